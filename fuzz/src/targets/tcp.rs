//! Raw bytes on the port for lines without HTTP: no thread panics, whoever is answered is told why they are closed, and
//! HTTP is still served.

use crate::served;

/// The data is what a client sends.
///
/// # Panics
/// Where the server panics, hangs, answers what it should not, or is not well afterwards.
pub fn check(data: &[u8]) {
    let answered = served::raw(served::addresses().lines, data);
    let is_told = answered.starts_with(b"ERROR ") || answered.starts_with(b"HTTP/1.1 400 ");
    assert!(answered.is_empty() || is_told, "{:?}", String::from_utf8_lossy(&answered));
    let health = served::ask(b"GET /health HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n");
    assert_eq!(health.status, 200);
}
