//! Raw bytes on the HTTP port: no thread panics, whatever is answered is HTTP, and the next client is served.

use crate::served;

/// What a client of HTTP/2 begins with ([RFC 9113](https://www.rfc-editor.org/rfc/rfc9113#section-3.4)).
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const FRAME_HEAD: usize = 9;
const SETTINGS: u8 = 4;

/// The data is what a client sends.
///
/// # Panics
/// Where the server panics, hangs, answers something that is no HTTP, or is not well afterwards.
pub fn check(data: &[u8]) {
    let answered = served::raw(served::addresses().http, data);
    let is_http = match data.starts_with(PREFACE) {
        true => are_frames(&answered),
        false => answered.starts_with(b"HTTP/1."),
    };
    assert!(answered.is_empty() || is_http, "{:?}", String::from_utf8_lossy(&answered));
    let health = served::ask(b"GET /health HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n");
    assert_eq!(health.status, 200);
}

/// Whether bytes are frames of HTTP/2 of which the first one is the settings. The last one may be torn by a reset.
fn are_frames(mut bytes: &[u8]) -> bool {
    const STREAM: std::ops::Range<usize> = 5..FRAME_HEAD;
    let is_begun = bytes.get(3) == Some(&SETTINGS) && bytes.get(STREAM) == Some(&[0; 4]);
    while let Some((head, rest)) = bytes.split_first_chunk::<FRAME_HEAD>() {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        // No extension is spoken, and nobody has asked for more than the 16 KiB that all allow.
        if head[3] > 9 || length > 1 << 14 {
            return false;
        }
        bytes = rest.get(length..).unwrap_or_default();
    }
    is_begun
}
