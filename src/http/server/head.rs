//! Refuses ambiguous request heads:
//!
//! * Request smuggling: if a proxy and the service disagree about the end of a request, part of one client's body becomes
//!   another client's request. Hyper refuses most of these heads; the rest is refused here.
//! * Two `Authorization` headers: a proxy may have checked the other one.
//! * URL parameters that are not UTF-8: lossy decoding would map different names to the same text.

use axum::http::{Request, StatusCode, Version, header};
use percent_encoding::percent_decode_str;

use crate::edge::ConnectionState;

/// Maximum number of headers of a request.
const HEADERS_MAX: usize = 64;

/// Returns the status and text of a refusal, if the head is ambiguous. Hyper drops a `Content-Length` beside
/// `Transfer-Encoding`, so for chunked requests the received bytes are checked again.
pub fn find_fault<B>(request: &Request<B>, state: &ConnectionState) -> Option<(StatusCode, String)> {
    let bad = |text: &str| Some((StatusCode::BAD_REQUEST, text.to_owned()));
    let headers = request.headers();
    if headers.len() > HEADERS_MAX {
        let text = format!("the request has more than {HEADERS_MAX} headers");
        return Some((StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, text));
    }
    if headers.get_all(header::AUTHORIZATION).iter().nth(1).is_some() {
        return bad("the request has more than one Authorization header: send one");
    }
    if request
        .uri()
        .query()
        .is_some_and(|query| query.contains('%') && percent_decode_str(query).decode_utf8().is_err())
    {
        return bad("the parameters of the URL are not UTF-8: percent-encode UTF-8 bytes");
    }
    if request.version() == Version::HTTP_2 {
        return None;
    }
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = hosts.next();
    if hosts.next().is_some() || (host.is_none() && request.version() == Version::HTTP_11) {
        return bad("the request must have exactly one Host header");
    }
    let mut encodings = headers.get_all(header::TRANSFER_ENCODING).iter();
    let encoding = encodings.next()?;
    if encodings.next().is_some() || !encoding.as_bytes().eq_ignore_ascii_case(b"chunked") {
        return bad("Transfer-Encoding must be chunked, and given only once");
    }
    let opening = state.take_opening().unwrap_or_default();
    if is_only_chunked(&opening, request) {
        return None;
    }
    bad("a chunked request must have no Content-Length and must not be pipelined")
}

/// Returns true if the bytes begin with this request's head, and the head is chunked without a `Content-Length`.
fn is_only_chunked<B>(opening: &[u8], request: &Request<B>) -> bool {
    // A last line without a newline may be incomplete, so it is dropped.
    let ended = opening.split_inclusive(|byte| *byte == b'\n').filter_map(|line| line.strip_suffix(b"\n"));
    let mut lines = ended.map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    // Empty lines before a request are skipped.
    let Some(first) = lines.by_ref().find(|line| !line.is_empty()) else { return false };
    let mut words = first.split(|byte| *byte == b' ');
    if words.next() != Some(request.method().as_str().as_bytes()) {
        return false;
    }
    let mut chunked = false;
    for line in lines {
        if line.is_empty() {
            return chunked;
        }
        let name = line.split(|byte| *byte == b':').next().unwrap_or_default();
        if name.eq_ignore_ascii_case(b"content-length") {
            return false;
        }
        chunked |= name.eq_ignore_ascii_case(b"transfer-encoding");
    }
    // The head is longer than the recorded bytes.
    false
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_content_length_beside_chunks_is_found_at_any_position() {
        let request = Request::post("/write").body(()).unwrap();
        let chunked = "Transfer-Encoding: chunked\r\n";
        let cases = [
            (format!("POST /write HTTP/1.1\r\nhost: h\r\n{chunked}\r\n5\r\nContent-Length: 3\r\n"), true),
            (format!("\r\n\r\nPOST /write HTTP/1.1\n{chunked}\n"), true),
            (format!("POST /write HTTP/1.1\r\ncontent-LENGTH: 3\r\n{chunked}\r\n"), false),
            (format!("POST /write HTTP/1.1\r\n{chunked}Content-Length:3\r\n\r\n"), false),
            (format!("GET / HTTP/1.1\r\nhost: h\r\n\r\nPOST /write HTTP/1.1\r\n{chunked}\r\n"), false),
            (format!("POST /write HTTP/1.1\r\nhost: h\r\n\r\nPOST /write HTTP/1.1\r\n{chunked}\r\n"), false),
            (format!("POST /write HTTP/1.1\r\n{chunked}"), false),
            (String::new(), false),
        ];
        for (opening, only_chunked) in cases {
            assert_eq!(is_only_chunked(opening.as_bytes(), &request), only_chunked, "{opening:?}");
        }
    }
}
