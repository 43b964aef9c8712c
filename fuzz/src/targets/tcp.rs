//! Raw bytes on the port for lines over TCP: no thread may panic, every answer must state the reason for closing, and
//! HTTP must still work.

use crate::served;

/// The data is what the client sends.
///
/// # Panics
/// If the server panics or hangs, sends a wrong answer, or does not work afterwards.
pub fn check(data: &[u8]) {
    let answered = served::send_raw(served::addresses().lines, data);
    let is_valid = answered.starts_with(b"ERROR ") || answered.starts_with(b"HTTP/1.1 400 ");
    assert!(answered.is_empty() || is_valid, "{:?}", String::from_utf8_lossy(&answered));
    let health = served::ask(b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    assert_eq!(health.status, 200);
}
