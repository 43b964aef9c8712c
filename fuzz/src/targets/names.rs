//! Names of fields, tags and databases, encoded as BSON keys and collection names: each must decode to itself, and no
//! two may have the same encoding.

use hourglass::store::names::{collection_prefix, from_key, key};

/// The data is two names, separated by the first LF.
///
/// # Panics
/// If a name does not decode to itself, or if its encoding is not allowed in its place.
pub fn check(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (one, other) = text.split_once('\n').unwrap_or((&text, ""));
    for name in [one, other, &*text] {
        let encoded = key(name);
        assert!(!encoded.contains(['.', '$', '\0']), "{encoded:?}");
        assert!(!matches!(&*encoded, "ts" | "ns"), "{name:?} would be taken for a time");
        assert_eq!(encoded.is_empty(), name.is_empty());
        assert_eq!(from_key(&encoded), name);
        let collection = collection_prefix(name);
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '%');
        assert!(collection.chars().all(plain), "{collection:?}");
        assert_ne!(collection, "system");
        assert_eq!(from_key(&collection), name);
        // A key that another program wrote must decode too.
        assert_eq!(from_key(&key(&from_key(name))), from_key(name));
    }
    if one != other {
        assert_ne!(key(one), key(other));
        assert_ne!(collection_prefix(one), collection_prefix(other));
    }
}
