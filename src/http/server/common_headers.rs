//! The headers of every answer: from handlers, the router, and refusals before routing. Only this module sets caching
//! rules.

use axum::http::{HeaderMap, HeaderValue, header};

/// Caching of an answer with an ETag: only the client may store it, because it is specific to the caller.
const TAGGED: HeaderValue = HeaderValue::from_static("private, no-cache");
/// Caching of other answers, such as current readings, errors and health.
const UNTAGGED: HeaderValue = HeaderValue::from_static("no-store");
/// Prevents browsers from interpreting text in readings, which anybody may have sent, as HTML.
const NO_SNIFFING: HeaderValue = HeaderValue::from_static("nosniff");

/// Adds the common headers.
pub fn add(headers: &mut HeaderMap) {
    let caching = if headers.contains_key(header::ETAG) { TAGGED } else { UNTAGGED };
    headers.insert(header::CACHE_CONTROL, caching);
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, NO_SNIFFING);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tagged_answers_may_be_cached() {
        let mut headers = HeaderMap::new();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=60"));
        add(&mut headers);
        assert_eq!(headers.get_all(header::CACHE_CONTROL).iter().collect::<Vec<_>>(), ["no-store"]);
        headers.insert(header::ETAG, HeaderValue::from_static("W/\"1\""));
        add(&mut headers);
        assert_eq!(headers.get_all(header::CACHE_CONTROL).iter().collect::<Vec<_>>(), ["private, no-cache"]);
        assert_eq!(headers.get_all(header::X_CONTENT_TYPE_OPTIONS).iter().collect::<Vec<_>>(), ["nosniff"]);
    }
}
