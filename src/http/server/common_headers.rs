//! The headers that every answer has, whoever made it: handlers, the router, and refusals before routing. The one place
//! that decides what a cache may do with an answer.

use axum::http::{HeaderMap, HeaderValue, header};

/// A client may keep an answer that it can ask about by its tag, but no cache between: the answer is of one caller's data.
const TAGGED: HeaderValue = HeaderValue::from_static("private, no-cache");
/// Everything else changes with the next reading, or says something about this moment, as errors and health do.
const UNTAGGED: HeaderValue = HeaderValue::from_static("no-store");
/// Readings hold text that strangers may have written: no browser may take an answer for a page.
const AS_DECLARED: HeaderValue = HeaderValue::from_static("nosniff");

/// Adds them.
pub fn complete(headers: &mut HeaderMap) {
    let caching = if headers.contains_key(header::ETAG) { TAGGED } else { UNTAGGED };
    headers.insert(header::CACHE_CONTROL, caching);
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, AS_DECLARED);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_decides_what_may_be_kept() {
        let mut headers = HeaderMap::new();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=60"));
        complete(&mut headers);
        assert_eq!(headers.get_all(header::CACHE_CONTROL).iter().collect::<Vec<_>>(), ["no-store"]);
        headers.insert(header::ETAG, HeaderValue::from_static("W/\"1\""));
        complete(&mut headers);
        assert_eq!(headers.get_all(header::CACHE_CONTROL).iter().collect::<Vec<_>>(), ["private, no-cache"]);
        assert_eq!(headers.get_all(header::X_CONTENT_TYPE_OPTIONS).iter().collect::<Vec<_>>(), ["nosniff"]);
    }
}
