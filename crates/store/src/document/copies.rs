//! Copies of metadata in pages and parts of days (MongoDB only), and their state in the sensor's document:
//!
//! ```text
//! meta: { site: "lab" }                              in pages and parts of days: the copied names that have a value
//! copied: { names: "site,unit", through: Int64 }     in the sensor's document: all its copies of these names include
//!                                                    the metadata changes up to this stamp
//! ```

use bson::{Bson, Document, RawBsonRef, RawDocument, RawDocumentBuf, doc};
use serde_json::Value;

use super::decode::Detail;
use super::encode::signed;
use super::meta;
use super::writer::BsonWriter;
use crate::bucket::Meta;
use crate::names::key;
use crate::reading::Stamp;
use crate::reading::stamp::SETTLED;

/// The fields of a sensor's document that [`SensorCopies::from_document`] reads.
pub const COPIED_FIELDS: [&str; 5] = ["meta", "metaStamps", "metaReplaced", "metaDropped", "copied"];

/// The metadata of one sensor, and the state of its copies.
#[derive(Debug, Clone)]
pub struct SensorCopies {
    /// The sensor's key.
    pub sensor: String,
    meta: Meta,
    /// The field `copied`.
    done: Option<Copied>,
}

/// The names that are copied, and the stamp up to which all copies are current.
#[derive(Debug, Clone)]
struct Copied {
    /// Separated by commas.
    names: String,
    through: Stamp,
}

impl SensorCopies {
    /// Reads a sensor's document.
    ///
    /// # Errors
    /// If it has no `_id`.
    pub fn from_document(document: &RawDocument) -> Result<Self, Detail> {
        let sensor = document.get_str("_id").map_err(|e| e.to_string())?.to_owned();
        let copied = document.get("copied").ok().flatten().and_then(RawBsonRef::as_document);
        let done = copied.and_then(|copied| {
            let through = copied.get_i64("through").ok().and_then(|stamp| Stamp::try_from(stamp).ok())?;
            Some(Copied { names: copied.get_str("names").ok()?.to_owned(), through })
        });
        Ok(Self { sensor, meta: meta::read(document), done })
    }

    /// Returns the stamp of the latest change to these names. Changes that are no longer remembered by name count for all.
    fn stamp(&self, names: &[&str]) -> Stamp {
        let named = self.meta.entries().filter(|(name, _)| names.contains(name)).map(|(_, entry)| entry.stamp);
        named.max().unwrap_or(SETTLED).max(self.meta.replaced_before()).max(self.meta.forgotten_stamp())
    }

    /// Returns true if copies of these names may be outdated. A sensor that never had metadata has no outdated copies.
    pub fn is_stale(&self, names: &[&str]) -> bool {
        if self.meta.is_empty() && self.meta.forgotten_stamp() == SETTLED && self.done.is_none() {
            return false;
        }
        let is_done = |done: &Copied| done.names == names.join(",") && done.through >= self.stamp(names);
        !self.done.as_ref().is_some_and(is_done)
    }

    /// Returns the field `copied` for the time when all copies of these names match this metadata.
    pub fn done(&self, names: &[&str]) -> Document {
        let before = self.done.as_ref().map_or(SETTLED, |done| done.through);
        doc! { "names": names.join(","), "through": signed(self.stamp(names).max(before)) }
    }

    fn value(&self, name: &str) -> Option<Value> {
        self.meta.get(name).and_then(|json| serde_json::from_str(json).ok())
    }

    /// Encodes the field `meta` of a new page or part. Returns `None` if none of these names has a value.
    pub fn document(&self, names: &[&str]) -> Option<Vec<u8>> {
        let mut w = BsonWriter::document(64);
        let mut is_empty = true;
        for name in names {
            if let Some(value) = self.value(name) {
                meta::put_value(&mut w, &key(name), &value);
                is_empty = false;
            }
        }
        (!is_empty).then(|| w.finish())
    }

    /// Returns the update that sets the copies of these names in a page or part.
    ///
    /// The update needs no filter on the old values: MongoDB does not rewrite a document that already has the same bytes. A
    /// filter would treat 3 as equal to 3.0, and a list as equal to any of its elements.
    ///
    /// # Errors
    /// If a value cannot be encoded.
    pub fn update(&self, names: &[&str]) -> Result<Document, Detail> {
        let mut set = Document::new();
        let mut unset = Document::new();
        for name in names {
            let field = format!("meta.{}", key(name));
            match self.value(name) {
                Some(value) => drop(set.insert(field, to_bson(name, &value)?)),
                None => drop(unset.insert(field, 1)),
            }
        }
        let operators = [("$set", set), ("$unset", unset)].into_iter().filter(|(_, fields)| !fields.is_empty());
        Ok(operators.map(|(operator, fields)| (operator.to_owned(), Bson::Document(fields))).collect())
    }
}

/// Converts a value in the same way as [`meta::put_value`].
fn to_bson(name: &str, value: &Value) -> Result<Bson, Detail> {
    let mut w = BsonWriter::document(64);
    meta::put_value(&mut w, "value", value);
    let document = RawDocumentBuf::from_bytes(w.finish()).map_err(|e| format!("meta.{name}: {e}"))?;
    let mut document = Document::try_from(&*document).map_err(|e| format!("meta.{name}: {e}"))?;
    document.remove("value").ok_or_else(|| format!("meta.{name} has no value"))
}

/// Adds the field `meta` to the encoded document of a page or part.
#[must_use]
pub fn with_copies(mut document: Vec<u8>, copies: &[u8]) -> Vec<u8> {
    // Insert an element of type document (0x03) before the final zero byte, then correct the length at the start.
    document.pop();
    document.push(0x03);
    document.extend_from_slice(b"meta\0");
    document.extend_from_slice(copies);
    document.push(0);
    let length = u32::try_from(document.len()).unwrap_or(u32::MAX).to_le_bytes();
    document[..length.len()].copy_from_slice(&length);
    document
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn copies(document: Document) -> SensorCopies {
        SensorCopies::from_document(&RawDocumentBuf::try_from(&document).unwrap()).unwrap()
    }

    fn copied(names: &str, through: Stamp) -> Option<Copied> {
        Some(Copied { names: names.to_owned(), through })
    }

    #[test]
    fn copies_are_added_to_a_whole_document() {
        let sensor = copies(doc! { "_id": "m", "meta": { "site": "lab", "n": 3_i64, "secret": "x" } });
        let copies = sensor.document(&["n", "none", "site"]).unwrap();
        let mut w = BsonWriter::document(0);
        w.text("_id", "page");
        let both = RawDocumentBuf::from_bytes(with_copies(w.finish(), &copies)).unwrap();
        let expected = doc! { "_id": "page", "meta": { "n": 3_i64, "site": "lab" } };
        assert_eq!(Document::try_from(&*both).unwrap(), expected);
        assert_eq!(meta::read(&both).values().map(|(name, _)| name).collect::<Vec<_>>(), ["n", "site"]);
        assert!(sensor.document(&["none"]).is_none());
        let update = sensor.update(&["none", "site"]).unwrap();
        assert_eq!(update, doc! { "$set": { "meta.site": "lab" }, "$unset": { "meta.none": 1 } });
    }

    #[test]
    fn copies_are_stale_after_a_change_or_for_other_names() {
        let document = doc! { "_id": "m", "meta": { "site": "lab" }, "metaStamps": { "site": 7_i64, "gone": 9_i64 } };
        let mut sensor = copies(document);
        assert!(sensor.is_stale(&["site"]));
        sensor.done = copied("site", 7);
        assert!(!sensor.is_stale(&["site"]) && sensor.is_stale(&["gone", "site"]));
        assert_eq!(sensor.done(&["gone", "site"]), doc! { "names": "gone,site", "through": 9_i64 });
        sensor.done = copied("site", 6);
        assert!(sensor.is_stale(&["site"]));
        assert!(!copies(doc! { "_id": "m" }).is_stale(&["site"]));
        // A removal is forgotten once no older change can arrive, so `through` must not go back.
        sensor.done = copied("site", 12);
        assert_eq!(sensor.done(&["site"]), doc! { "names": "site", "through": 12_i64 });
    }

    /// Regression: a removal that was forgotten before its copies were updated left them outdated.
    #[test]
    fn a_forgotten_removal_leaves_copies_stale() {
        let field = doc! { "names": "site", "through": 7_i64 };
        let mut sensor = copies(doc! { "_id": "m", "metaDropped": 9_i64, "copied": field });
        assert!(sensor.is_stale(&["site"]));
        assert_eq!(sensor.done(&["site"]), doc! { "names": "site", "through": 9_i64 });
        sensor.done = copied("site", 9);
        assert!(!sensor.is_stale(&["site"]));
        let never_copied = copies(doc! { "_id": "m", "metaDropped": 9_i64 });
        assert!(never_copied.is_stale(&["site"]), "pages may have been created in between");
    }
}
