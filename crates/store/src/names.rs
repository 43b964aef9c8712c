//! Reversible `%XX` escapes for names that BSON keys and collection names cannot contain.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// Characters with a special meaning in BSON keys.
const KEY: &AsciiSet = &AsciiSet::EMPTY.add(b'%').add(b'.').add(b'$').add(0);
/// All characters except letters, digits, `_` and `-`.
const COLLECTION: &AsciiSet = &NON_ALPHANUMERIC.remove(b'_').remove(b'-');

/// Escapes a field or tag name for use as a BSON key: `%`, `.`, `$` and NUL, and the reserved names `ts` and `ns`.
#[must_use]
pub fn key(name: &str) -> Cow<'_, str> {
    match name {
        "ts" => Cow::Borrowed("%74s"),
        "ns" => Cow::Borrowed("%6Es"),
        other => utf8_percent_encode(other, KEY).into(),
    }
}

/// Reverses [`key`].
#[must_use]
pub fn from_key(key: &str) -> Cow<'_, str> {
    percent_decode_str(key).decode_utf8_lossy()
}

/// Escapes a database name for use as the prefix of collection names: all characters except letters, digits, `_` and `-`,
/// and the name `system`, which MongoDB reserves.
#[must_use]
pub fn collection_prefix(database: &str) -> Cow<'_, str> {
    match database {
        "system" => Cow::Borrowed("%73ystem"),
        other => utf8_percent_encode(other, COLLECTION).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_names_round_trip() {
        for name in ["temp", "a.b", "$where", "50%", "ts", "ns", "%74s", "tab\tnul\0", "température", "🌡", "ts2"] {
            let escaped = key(name);
            assert!(!escaped.contains(['.', '$', '\0']) && escaped != "ts" && escaped != "ns", "{escaped}");
            assert_eq!(from_key(&escaped), name);
        }
        assert_eq!(collection_prefix("plant-7_b"), "plant-7_b");
        assert_eq!(collection_prefix("a.b/c"), "a%2Eb%2Fc");
        assert_ne!(collection_prefix("system"), "system");
    }
}
