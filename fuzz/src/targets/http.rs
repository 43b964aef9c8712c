//! Raw bytes on the HTTP port: no thread panics, whatever is answered is HTTP, and the next client is served.

use crate::served;

/// The data is what a client sends.
///
/// # Panics
/// Where the server panics, hangs, answers something that is no HTTP, or is not well afterwards.
pub fn check(data: &[u8]) {
    let answered = served::raw(served::addresses().http, data);
    assert!(answered.is_empty() || answered.starts_with(b"HTTP/1."), "{:?}", String::from_utf8_lossy(&answered));
    let health = served::ask(b"GET /health HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n");
    assert_eq!(health.status, 200);
}
