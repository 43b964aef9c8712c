//! Heads that two readers could read differently: a proxy in front of us that takes another end of a request than we
//! do hands us somebody's body as somebody else's request. Hyper refuses most of these (a space before a colon, a
//! folded line, lengths that differ); the rest is refused here.

use std::fmt;

use axum::http::{Request, StatusCode, Version, header};

use crate::edge::Watch;

/// Most headers of a request.
const HEADERS_MAX: usize = 64;

/// Why a head is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unsound {
    /// HTTP/1.1 without a host, or with several.
    Host,
    /// Another transfer encoding than `chunked`, or several.
    TransferEncoding,
    /// A length beside a transfer encoding, or one cannot tell.
    Length,
    /// Too many headers.
    Headers,
}

impl Unsound {
    /// The answer's status.
    pub fn status(self) -> StatusCode {
        match self {
            Self::Headers => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::Host | Self::TransferEncoding | Self::Length => StatusCode::BAD_REQUEST,
        }
    }
}

impl fmt::Display for Unsound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host => f.write_str("a request needs one Host header"),
            Self::TransferEncoding => f.write_str("Transfer-Encoding: only chunked is known, and once"),
            Self::Length => f.write_str("a chunked request states no Content-Length and follows no other unasked"),
            Self::Headers => write!(f, "a request has at most {HEADERS_MAX} headers"),
        }
    }
}

/// What is wrong with a request's head, if anything. Hyper drops a `Content-Length` that stands beside
/// `Transfer-Encoding`, so that the bytes of the head have to be looked at again; only for those that are chunked.
pub fn unsound<B>(request: &Request<B>, watch: &Watch) -> Option<Unsound> {
    let headers = request.headers();
    if headers.len() > HEADERS_MAX {
        return Some(Unsound::Headers);
    }
    if request.version() == Version::HTTP_2 {
        return None;
    }
    let mut hosts = headers.get_all(header::HOST).iter();
    let (host, second) = (hosts.next(), hosts.next());
    if second.is_some() || (host.is_none() && request.version() == Version::HTTP_11) {
        return Some(Unsound::Host);
    }
    let mut encodings = headers.get_all(header::TRANSFER_ENCODING).iter();
    let encoding = encodings.next()?;
    if encodings.next().is_some() || !encoding.as_bytes().eq_ignore_ascii_case(b"chunked") {
        return Some(Unsound::TransferEncoding);
    }
    let opening = watch.opening().unwrap_or_default();
    (!is_chunked_alone(&opening, request)).then_some(Unsound::Length)
}

/// Whether the bytes begin with this request's head, which is chunked and states no length.
fn is_chunked_alone<B>(opening: &[u8], request: &Request<B>) -> bool {
    // What has no end is cut off, not empty.
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
    // A head that did not end among what is kept.
    false
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_length_beside_chunks_is_seen_wherever_it_stands() {
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
        for (opening, alone) in cases {
            assert_eq!(is_chunked_alone(opening.as_bytes(), &request), alone, "{opening:?}");
        }
    }
}
