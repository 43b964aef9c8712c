//! Cursors: a time and the name of a sensor or series. Names are base64, because clients read headers in different
//! encodings, and an incomplete name would repeat readings.

use std::ops::Range;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;

/// Returns the text of a key.
pub fn encode(key: &str) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(key)
}

/// Returns a cursor, which is opaque to clients: the hexadecimal time of the next item, and the name of its series.
pub fn format(time: i64, name: &str) -> String {
    if name.is_empty() { format!("{time:x}") } else { format!("{time:x}.{}", encode(name)) }
}

/// Parses a cursor for a range of times. The name is empty if the cursor has none.
pub fn parse(cursor: &str, range: &Range<i64>) -> Option<(i64, String)> {
    let (time, name) = cursor.split_once('.').unwrap_or((cursor, ""));
    let time = u64::from_str_radix(time, 16).ok().map(u64::cast_signed).filter(|time| range.contains(time))?;
    Some((time, decode(name)?))
}

/// Returns the key of a text that [`encode`] returned.
pub fn decode(text: &str) -> Option<String> {
    String::from_utf8(BASE64_URL_SAFE_NO_PAD.decode(text).ok()?).ok()
}
