//! Percent-encodes what InfluxDB's clients send raw in the query of a request line, because hyper refuses it. For
//! example `GET /query?q=SELECT%20"v"` becomes `GET /query?q=SELECT%20%22v%22`.
//!
//! Bytes of a body must not change, so this follows the framing of HTTP/1. It changes nothing from the first request on
//! whose end it does not know: one with `Transfer-Encoding`, one that hyper may read differently, and HTTP/2. Heads
//! that hyper refuses end the connection and need no care.

use std::mem::take;

/// Maximum number of bytes of a header line that are kept until its end arrives. Hyper refuses longer ones.
const LINE_BYTES_MAX: usize = 32 << 10;

/// The position in the received bytes of a connection.
#[derive(Debug, Default)]
pub(super) struct RequestLines {
    position: Position,
    /// The start of a header line whose end has not arrived.
    line: Vec<u8>,
    content_length: Option<u64>,
}

#[derive(Debug, Clone, Copy, Default)]
enum Position {
    Method,
    Target,
    Query,
    Version,
    Header,
    /// The remaining bytes of a body.
    Body(usize),
    /// No byte is changed any more.
    #[default]
    Unknown,
}

impl RequestLines {
    /// The start of an HTTP connection.
    pub(super) fn http() -> Self {
        Self { position: Position::Method, ..Self::default() }
    }

    /// Follows the received bytes. Returns their encoded form, or `None` if it is the same.
    pub(super) fn encode(&mut self, received: &[u8]) -> Option<Vec<u8>> {
        let mut encoded: Option<Vec<u8>> = None;
        let mut copied = 0;
        let mut next = 0;
        while let Some(&byte) = received.get(next) {
            match (self.position, byte) {
                (Position::Method, b' ') => self.position = Position::Target,
                (Position::Target, b'?') => self.position = Position::Query,
                // `PRI * HTTP/2.0` begins HTTP/2.
                (Position::Target, b'*') => self.position = Position::Unknown,
                (Position::Target | Position::Query, b' ') => self.position = Position::Version,
                (Position::Target | Position::Query | Position::Version, b'\n') => self.position = Position::Header,
                (Position::Query, b'"' | b'#' | b'<' | b'>') => {
                    let encoded = encoded.get_or_insert_default();
                    encoded.extend_from_slice(&received[copied..next]);
                    encoded.extend_from_slice(percent_encoding::percent_encode_byte(byte).as_bytes());
                    copied = next + 1;
                }
                (Position::Method | Position::Target | Position::Query | Position::Version, _) => {}
                (Position::Header, _) => {
                    next += self.follow_header(&received[next..]);
                    continue;
                }
                (Position::Body(left), _) => {
                    let length = left.min(received.len() - next);
                    next += length;
                    self.position = if length == left { Position::Method } else { Position::Body(left - length) };
                    continue;
                }
                (Position::Unknown, _) => break,
            }
            next += 1;
        }
        if let Some(encoded) = &mut encoded {
            encoded.extend_from_slice(&received[copied..]);
        }
        encoded
    }

    /// Follows a header line to its end or that of the bytes. Returns the number of its bytes.
    fn follow_header(&mut self, received: &[u8]) -> usize {
        let end = received.iter().position(|byte| *byte == b'\n');
        let part = &received[..end.unwrap_or(received.len())];
        if self.line.len() + part.len() > LINE_BYTES_MAX {
            self.position = Position::Unknown;
        } else if end.is_none() {
            self.line.extend_from_slice(part);
        } else if self.line.is_empty() {
            self.end_header(part);
        } else {
            let mut line = take(&mut self.line);
            line.extend_from_slice(part);
            self.end_header(&line);
        }
        end.map_or(received.len(), |end| end + 1)
    }

    fn end_header(&mut self, line: &[u8]) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            let length = self.content_length.take().unwrap_or(0);
            self.position = match usize::try_from(length) {
                Ok(0) => Position::Method,
                Ok(length) => Position::Body(length),
                Err(_) => Position::Unknown,
            };
            return;
        }
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let (name, value) = line.split_at(colon);
        if name.eq_ignore_ascii_case(b"transfer-encoding") {
            self.position = Position::Unknown;
        } else if name.eq_ignore_ascii_case(b"content-length") {
            let length = value.get(1..).and_then(|value| str::from_utf8(value).ok()?.trim().parse().ok());
            // Hyper accepts the same length twice.
            if length.is_none() || self.content_length.is_some_and(|earlier| Some(earlier) != length) {
                self.position = Position::Unknown;
            }
            self.content_length = length;
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Encodes the bytes in pieces of this size.
    fn encoded(sent: &str, size: usize) -> String {
        let mut lines = RequestLines::http();
        let mut out = Vec::new();
        for piece in sent.as_bytes().chunks(size) {
            match lines.encode(piece) {
                Some(encoded) => out.extend(encoded),
                None => out.extend_from_slice(piece),
            }
        }
        String::from_utf8(out).unwrap()
    }

    /// InfluxDB's clients and tests send `"` raw in the query string, and hyper answers 400.
    #[test]
    fn only_queries_of_request_lines_are_encoded_however_they_are_split() {
        let get = "GET /query?q=a\"b HTTP/1.1\r\nx: \"?\"\r\n\r\n";
        let encoded_get = "GET /query?q=a%22b HTTP/1.1\r\nx: \"?\"\r\n\r\n";
        let post = |headers: &str| format!("POST /\"?\" HTTP/1.1\r\n{headers}\r\n{get}");
        let encoded_post = |headers: &str, body: &str| format!("POST /\"?%22 HTTP/1.1\r\n{headers}\r\n{body}");
        let whole = format!("Content-LENGTH: \t {} \r\n", get.len());
        let twice = whole.repeat(2);
        let mut cases = vec![
            (get.repeat(3), encoded_get.repeat(3)),
            (format!("\r\n\n{get}\r\n{get}"), format!("\r\n\n{encoded_get}\r\n{encoded_get}")),
            ("GET http://h/?<#>\" HTTP/1.0\n\n".to_owned(), "GET http://h/?%3C%23%3E%22 HTTP/1.0\n\n".to_owned()),
            (post("") + get, encoded_post("", encoded_get) + encoded_get),
            (post("content-length: 0\r\n"), encoded_post("content-length: 0\r\n", encoded_get)),
            (post(&whole) + get, encoded_post(&whole, get) + encoded_get),
            (post(&twice) + get, encoded_post(&twice, get) + encoded_get),
            (format!("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n{get}"), format!("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n{get}")),
        ];
        // The end of these requests is unknown.
        let unknown =
            ["transfer-encoding: chunked\r\n", "content-length: 1\r\ncontent-length: 2\r\n", "content-length: -1\r\n"];
        cases.extend(unknown.map(|headers| (post(headers) + get, encoded_post(headers, get) + get)));
        let long = format!("x: {}\r\n", "x".repeat(LINE_BYTES_MAX));
        cases.push((post(&long), encoded_post(&long, get)));
        for (sent, expected) in cases {
            for size in [1, 2, 3, 7, 24, 100, sent.len()] {
                assert_eq!(encoded(&sent, size), expected, "in pieces of {size}");
            }
        }
    }

    #[test]
    fn other_protocols_are_never_encoded() {
        assert_eq!(RequestLines::default().encode(b"GET /?\" HTTP/1.1\r\n"), None);
    }
}
