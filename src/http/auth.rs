//! Who a request comes from: the token in its headers or its URL, in every form that clients have, or its connection's
//! certificate. What is found is never logged and never answered.

use std::borrow::Cow;

use axum::http::{HeaderMap, Uri, header};
use base64::Engine;
use base64::engine::GeneralPurpose;
use base64::engine::general_purpose::GeneralPurposeConfig;
use percent_encoding::percent_decode_str;

/// Padding is forgotten by some clients.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(base64::engine::DecodePaddingMode::Indifferent),
);

/// What a request must be allowed before it is looked at any further. Which database it is about is judged where that is
/// known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// Nothing: it is for everybody.
    Nothing,
    /// A token; what it may do is judged by database.
    Token,
    /// A token for metrics.
    Metrics,
    /// A token for all databases.
    Admin,
}

/// The token that a request carries, as text; an empty one when there is something that can be none.
pub fn token<'a>(headers: &'a HeaderMap, uri: &'a Uri) -> Option<Cow<'a, str>> {
    if let Some(value) = headers.get(header::AUTHORIZATION) {
        return Some(value.to_str().ok().and_then(of_header).unwrap_or(Cow::Borrowed("?")));
    }
    // InfluxDB 1.x: `u` is not looked at.
    let pairs = uri.query()?.split('&').filter_map(|pair| pair.split_once('='));
    let password = pairs.filter(|(name, _)| *name == "p").map(|(_, value)| value).next()?;
    Some(percent_decode_str(password).decode_utf8_lossy())
}

/// `Token x`, `Bearer x`, `Basic base64(user:x)`; and `Token user:x`, which clients of 2.x send to a server of 1.x.
fn of_header(value: &str) -> Option<Cow<'_, str>> {
    let (scheme, rest) = value.trim().split_once(' ')?;
    let rest = rest.trim();
    let behind_user = |text: &str| text.split_once(':').map_or(text.to_owned(), |(_, password)| password.to_owned());
    if scheme.eq_ignore_ascii_case("basic") {
        let text = String::from_utf8(BASE64.decode(rest).ok()?).ok()?;
        return Some(Cow::Owned(behind_user(&text)));
    }
    let is_plain = scheme.eq_ignore_ascii_case("token") || scheme.eq_ignore_ascii_case("bearer");
    is_plain.then(|| rest.split_once(':').map_or(Cow::Borrowed(rest), |(_, password)| Cow::Borrowed(password)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_form_that_clients_have_is_read() {
        let cases = [
            (Some("Token abc"), "/write", Some("abc")),
            (Some("token  abc "), "/write", Some("abc")),
            (Some("Bearer abc"), "/write", Some("abc")),
            (Some("Token user:abc"), "/write", Some("abc")),
            (Some("Basic dXNlcjphYmM="), "/write", Some("abc")),
            (Some("Basic dXNlcjphYmM"), "/write", Some("abc")),
            (Some("basic OmFiYw=="), "/write", Some("abc")),
            (Some("Basic YWJj"), "/write", Some("abc")),
            (Some("Basic !"), "/write", Some("?")),
            (Some("Digest abc"), "/write", Some("?")),
            (Some("abc"), "/write", Some("?")),
            (Some("\u{e9}"), "/write", Some("?")),
            (None, "/write?db=x&u=me&p=a%62c", Some("abc")),
            (None, "/write?p=abc&p=other", Some("abc")),
            (None, "/write?p=", Some("")),
            (None, "/write?db=x", None),
            (None, "/write", None),
            // A header counts more than the URL.
            (Some("Token abc"), "/write?p=other", Some("abc")),
        ];
        for (sent, uri, expected) in cases {
            let mut headers = HeaderMap::new();
            if let Some(sent) = sent {
                headers.insert(header::AUTHORIZATION, sent.parse().unwrap());
            }
            let uri: Uri = uri.parse().unwrap();
            assert_eq!(token(&headers, &uri).as_deref(), expected, "{sent:?} {uri}");
        }
    }
}
