//! Extracts the token from a request's headers or URL, in all forms that clients use. The token is never logged or
//! answered.

use std::borrow::Cow;

use axum::http::{HeaderMap, Uri, header};
use base64::Engine;
use base64::engine::GeneralPurpose;
use base64::engine::general_purpose::GeneralPurposeConfig;
use percent_encoding::percent_decode_str;

/// Base64 with optional padding, which some clients omit.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(base64::engine::DecodePaddingMode::Indifferent),
);

/// Returns the token of the request. It is `?`, which is never valid, if the `Authorization` header is malformed or `p` is
/// given twice. Requests with two such headers never get here (see `head.rs`).
pub fn token<'a>(headers: &'a HeaderMap, uri: &'a Uri) -> Option<Cow<'a, str>> {
    if let Some(value) = headers.get(header::AUTHORIZATION) {
        return Some(value.to_str().ok().and_then(from_header).unwrap_or(Cow::Borrowed("?")));
    }
    // As in InfluxDB 1.x. The user name `u` is ignored.
    let pairs = uri.query()?.split('&').filter_map(|pair| pair.split_once('='));
    let mut passwords = pairs.filter(|(name, _)| *name == "p").map(|(_, value)| value);
    let password = passwords.next()?;
    if passwords.next().is_some() {
        return Some(Cow::Borrowed("?"));
    }
    Some(percent_decode_str(password).decode_utf8_lossy())
}

/// Parses `Token x`, `Bearer x`, `Basic base64(user:x)`, and `Token user:x`, which 2.x clients send to a 1.x server.
fn from_header(value: &str) -> Option<Cow<'_, str>> {
    let (scheme, rest) = value.trim().split_once(' ')?;
    let rest = rest.trim();
    let password = |text: &str| text.split_once(':').map_or(text.to_owned(), |(_, password)| password.to_owned());
    if scheme.eq_ignore_ascii_case("basic") {
        let text = String::from_utf8(BASE64.decode(rest).ok()?).ok()?;
        return Some(Cow::Owned(password(&text)));
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
            (None, "/write?p=abc&p=other", Some("?")),
            (None, "/write?p=", Some("")),
            (None, "/write?db=x", None),
            (None, "/write", None),
            // The header has precedence over the URL.
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
