//! Copies of metadata in pages and parts of days, on MongoDB only, and what a sensor's document says of them:
//!
//! ```text
//! meta: { site: "lab" }                              in pages and parts of days: the copied names that have a value
//! copied: { names: "site,unit", through: Int64 }     in the sensor's document: all its copies of these names are as the
//!                                                    metadata was once the record of that stamp was in it
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

/// What is needed of a sensor's document.
pub const COPIED_FIELDS: [&str; 5] = ["meta", "metaStamps", "metaReplaced", "metaDropped", "copied"];

/// The metadata of one sensor as far as it is copied.
#[derive(Debug, Clone)]
pub struct SensorCopies {
    /// The sensor's key.
    pub sensor: String,
    meta: Meta,
    /// The names and the stamp of which its document says that they are done.
    done: Option<(String, Stamp)>,
}

impl SensorCopies {
    /// What a sensor's document says.
    ///
    /// # Errors
    /// If it has no `_id`.
    pub fn of(document: &RawDocument) -> Result<Self, Detail> {
        let sensor = document.get_str("_id").map_err(|e| e.to_string())?.to_owned();
        let copied = document.get("copied").ok().flatten().and_then(RawBsonRef::as_document);
        let done = copied.and_then(|copied| {
            let through = copied.get_i64("through").ok().and_then(|stamp| Stamp::try_from(stamp).ok())?;
            Some((copied.get_str("names").ok()?.to_owned(), through))
        });
        Ok(Self { sensor, meta: meta::read(document), done })
    }

    /// The greatest stamp of what was ever said of these names, or said and forgotten of any.
    fn stamp(&self, names: &[&str]) -> Stamp {
        let named = self.meta.entries().filter(|(name, _)| names.contains(name)).map(|(_, entry)| entry.stamp);
        named.max().unwrap_or(SETTLED).max(self.meta.replaced()).max(self.meta.dropped())
    }

    /// Whether the document does not say that all copies of these names are as the metadata. Not where nothing was ever said.
    pub fn is_stale(&self, names: &[&str]) -> bool {
        if self.meta.is_empty() && self.meta.dropped() == SETTLED && self.done.is_none() {
            return false;
        }
        let is_done = |(done, through): &(String, Stamp)| *done == names.join(",") && *through >= self.stamp(names);
        !self.done.as_ref().is_some_and(is_done)
    }

    /// What the document says once all copies of these names are as this metadata.
    pub fn done(&self, names: &[&str]) -> Document {
        let before = self.done.as_ref().map_or(SETTLED, |(_, through)| *through);
        doc! { "names": names.join(","), "through": signed(self.stamp(names).max(before)) }
    }

    fn value(&self, name: &str) -> Option<Value> {
        self.meta.get(name).and_then(|json| serde_json::from_str(json).ok())
    }

    /// The document `meta` of a new page or part; `None` if none of these names has a value.
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

    /// The update after which a page or part has these names as they are to be copied. MongoDB changes no document that has all of it
    /// already, byte for byte; a comparison in the filter would take 3 for 3.0, and a list for any of its elements.
    ///
    /// # Errors
    /// If a value cannot be written.
    pub fn update(&self, names: &[&str]) -> Result<Document, Detail> {
        let (mut set, mut unset) = (Document::new(), Document::new());
        for name in names {
            let field = format!("meta.{}", key(name));
            match self.value(name) {
                Some(value) => drop(set.insert(field, bson_of(name, &value)?)),
                None => drop(unset.insert(field, 1)),
            }
        }
        let operators = [("$set", set), ("$unset", unset)].into_iter().filter(|(_, fields)| !fields.is_empty());
        Ok(operators.map(|(operator, fields)| (operator.to_owned(), Bson::Document(fields))).collect())
    }
}

/// A value as [`meta::put_value`] writes it.
fn bson_of(name: &str, value: &Value) -> Result<Bson, Detail> {
    let mut w = BsonWriter::document(64);
    meta::put_value(&mut w, "value", value);
    let document = RawDocumentBuf::from_bytes(w.finish()).map_err(|e| format!("meta.{name}: {e}"))?;
    let mut document = Document::try_from(&*document).map_err(|e| format!("meta.{name}: {e}"))?;
    document.remove("value").ok_or_else(|| format!("meta.{name} has no value"))
}

/// Adds copies to the encoded document of a page or part.
#[must_use]
pub fn with_copies(mut document: Vec<u8>, copies: &[u8]) -> Vec<u8> {
    // A document is its length, its elements and a zero byte; an element is its type, its name and its value.
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

    fn of(document: Document) -> SensorCopies {
        SensorCopies::of(&RawDocumentBuf::try_from(&document).unwrap()).unwrap()
    }

    #[test]
    fn copies_are_added_to_a_whole_document() {
        let sensor = of(doc! { "_id": "m", "meta": { "site": "lab", "n": 3_i64, "secret": "x" } });
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
    fn what_is_done_is_of_these_names_and_of_this_change() {
        let said = doc! { "_id": "m", "meta": { "site": "lab" }, "metaStamps": { "site": 7_i64, "gone": 9_i64 } };
        let mut sensor = of(said.clone());
        assert!(sensor.is_stale(&["site"]));
        sensor.done = Some(("site".to_owned(), 7));
        assert!(!sensor.is_stale(&["site"]) && sensor.is_stale(&["gone", "site"]));
        assert_eq!(sensor.done(&["gone", "site"]), doc! { "names": "gone,site", "through": 9_i64 });
        sensor.done = Some(("site".to_owned(), 6));
        assert!(sensor.is_stale(&["site"]));
        assert!(!of(doc! { "_id": "m" }).is_stale(&["site"]));
        // What was removed is forgotten once no older change can come: what was done stays done.
        sensor.done = Some(("site".to_owned(), 12));
        assert_eq!(sensor.done(&["site"]), doc! { "names": "site", "through": 12_i64 });
    }

    /// Regression: once a removal was forgotten, which may be before its copies are set, the document said no longer that they were not.
    #[test]
    fn a_removal_that_is_forgotten_leaves_copies_to_be_set() {
        let copied = doc! { "names": "site", "through": 7_i64 };
        let mut sensor = of(doc! { "_id": "m", "metaDropped": 9_i64, "copied": copied });
        assert!(sensor.is_stale(&["site"]));
        assert_eq!(sensor.done(&["site"]), doc! { "names": "site", "through": 9_i64 });
        sensor.done = Some(("site".to_owned(), 9));
        assert!(!sensor.is_stale(&["site"]));
        assert!(
            of(doc! { "_id": "m", "metaDropped": 9_i64 }).is_stale(&["site"]),
            "pages may have been made in between"
        );
    }
}
