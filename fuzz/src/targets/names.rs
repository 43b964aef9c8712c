//! Names of fields, tags and databases as BSON keys and names of collections: each comes back, and no two are one.

use hourglass::store::names::{collection_prefix, from_key, key};

/// The data is two names, apart by its first LF.
///
/// # Panics
/// Where a name does not come back, or what stands for it may not stand there.
pub fn check(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (one, other) = text.split_once('\n').unwrap_or((&text, ""));
    for name in [one, other, &*text] {
        let stands = key(name);
        assert!(!stands.contains(['.', '$', '\0']), "{stands:?}");
        assert!(!matches!(&*stands, "ts" | "ns"), "{name:?} would be taken for a time");
        assert_eq!(stands.is_empty(), name.is_empty());
        assert_eq!(from_key(&stands), name);
        let collection = collection_prefix(name);
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '%');
        assert!(collection.chars().all(plain), "{collection:?}");
        assert_ne!(collection, "system");
        assert_eq!(from_key(&collection), name);
        // What another program wrote as a key is read too, whatever it is.
        assert_eq!(from_key(&key(&from_key(name))), from_key(name));
    }
    if one != other {
        assert_ne!(key(one), key(other));
        assert_ne!(collection_prefix(one), collection_prefix(other));
    }
}
