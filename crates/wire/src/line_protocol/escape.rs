//! Escapes in names. A backslash directly before a separator escapes it and is removed. Any other backslash stays, even
//! before another backslash: `a\\ b` is the name `a\ b`.

use std::borrow::Cow;

/// The bytes that end a tag key, a tag value or a field key.
pub(super) fn separates(byte: u8) -> bool {
    matches!(byte, b',' | b'=' | b' ')
}

/// The bytes that end a measurement.
pub(super) fn separates_measurement(byte: u8) -> bool {
    matches!(byte, b',' | b' ')
}

/// Removes the escapes of a name.
pub(super) fn unescape(sent: &str, separates: fn(u8) -> bool) -> Cow<'_, str> {
    let bytes = sent.as_bytes();
    let escapes = |at: usize| bytes[at] == b'\\' && bytes.get(at + 1).is_some_and(|&next| separates(next));
    let Some(first) = (0..bytes.len()).find(|&at| escapes(at)) else { return Cow::Borrowed(sent) };
    let mut name = String::with_capacity(sent.len());
    let mut kept = 0;
    for at in first..bytes.len() {
        if escapes(at) {
            name.push_str(&sent[kept..at]);
            kept = at + 1;
        }
    }
    name.push_str(&sent[kept..]);
    Cow::Owned(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_backslashes_before_separators_are_removed() {
        for (sent, name) in [
            ("plain", "plain"),
            (r"two\ words", "two words"),
            (r"two\\ words", r"two\ words"),
            (r"two\\\ words", r"two\\ words"),
            (r"a\b\\c", r"a\b\\c"),
            (r"\,\=\ ", ",= "),
            (r"ü\ ü\,", "ü ü,"),
        ] {
            assert_eq!(unescape(sent, separates), name);
        }
        assert_eq!(unescape(r"a\=b\,c", separates_measurement), r"a\=b,c");
    }
}
