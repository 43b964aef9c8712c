//! Sensor keys in cursors. They are base64, because clients read headers in different encodings, and an incomplete key
//! would repeat readings.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;

/// Returns the text of a key.
pub fn encode(key: &str) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(key)
}

/// Returns the key of a text that [`encode`] returned.
pub fn decode(text: &str) -> Option<String> {
    String::from_utf8(BASE64_URL_SAFE_NO_PAD.decode(text).ok()?).ok()
}
