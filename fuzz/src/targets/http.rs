//! Raw bytes on the HTTP port: no thread may panic, every answer must be HTTP, and the server must serve the next
//! client.

use crate::served;

/// The connection preface of HTTP/2 ([RFC 9113](https://www.rfc-editor.org/rfc/rfc9113#section-3.4)).
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const FRAME_HEAD: usize = 9;
const SETTINGS: u8 = 4;

/// The data is what the client sends.
///
/// # Panics
/// If the server panics or hangs, if an answer is not HTTP, or if the server does not work afterwards.
pub fn check(data: &[u8]) {
    let answered = served::send_raw(served::addresses().http, data);
    let is_http = match data.starts_with(PREFACE) {
        true => are_frames(&answered),
        false => answered.starts_with(b"HTTP/1."),
    };
    assert!(answered.is_empty() || is_http, "{:?}", String::from_utf8_lossy(&answered));
    let health = served::ask(b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    assert_eq!(health.status, 200);
}

/// Returns true if the bytes are HTTP/2 frames that begin with SETTINGS. A reset may have cut off the last one.
fn are_frames(mut bytes: &[u8]) -> bool {
    const STREAM: std::ops::Range<usize> = 5..FRAME_HEAD;
    let is_begun = bytes.get(3) == Some(&SETTINGS) && bytes.get(STREAM) == Some(&[0; 4]);
    while let Some((head, rest)) = bytes.split_first_chunk::<FRAME_HEAD>() {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        // No extension frames, and at most 16 KiB per frame, because the client did not allow more.
        if head[3] > 9 || length > 1 << 14 {
            return false;
        }
        bytes = rest.get(length..).unwrap_or_default();
    }
    is_begun
}
