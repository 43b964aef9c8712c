//! Copies of metadata in pages and parts of days (MongoDB only), and their state in the sensor's document:
//!
//! ```text
//! kind: "press"                                      in all of these documents: the kind of the sensor, if it has one
//! meta: { site: "lab" }                              in pages and parts of days: the copied names that have a value
//! copied: { names: "site,unit", through: Int64, kind: "press", refreshedAt: Date }
//!                                                    in the sensor's document: since this time, all its copies of these
//!                                                    names include the metadata changes up to this stamp, and the kind
//! ```

use std::collections::BTreeSet;

use bson::{Bson, Document, RawBsonRef, RawDocument, RawDocumentBuf, doc};
use serde_json::{Map, Value};

use super::decode::Detail;
use super::encode::signed;
use super::meta;
use super::writer::BsonWriter;
use crate::bucket::{KindRules, Meta};
use crate::names::key;
use crate::reading::stamp::SETTLED;
use crate::reading::{Sensor, Stamp};

/// The fields of a sensor's document that [`SensorCopies::from_document`] reads.
pub const COPIED_FIELDS: [&str; 6] = ["measurement", "meta", "metaStamps", "metaReplaced", "metaDropped", "copied"];
/// The field with the name of a sensor's kind.
pub const SENSOR_KIND: &str = "kind";

/// What is copied in one database.
#[derive(Debug)]
pub struct CopyPlan<'a> {
    /// The metadata names, in order.
    pub names: Vec<&'a str>,
    /// The kinds of sensors.
    pub kinds: &'a KindRules,
}

impl CopyPlan<'_> {
    /// Returns true if nothing is copied.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty() && self.kinds.is_empty()
    }
}

/// Returns the kind of a sensor with this metadata.
#[must_use]
pub fn kind_of<'a>(kinds: &'a KindRules, measurement: &str, meta: &Meta) -> Option<&'a str> {
    let named = meta.get(SENSOR_KIND).and_then(|json| serde_json::from_str::<String>(json).ok());
    kinds.kind_of(measurement, named.as_deref())
}

/// The metadata of one sensor, and the state of its copies.
#[derive(Debug, Clone)]
pub struct SensorCopies {
    /// The sensor's key.
    pub sensor: String,
    measurement: String,
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
    kind: Option<String>,
}

impl SensorCopies {
    /// Reads a sensor's document.
    ///
    /// # Errors
    /// If it has no `_id`.
    pub fn from_document(document: &RawDocument) -> Result<Self, Detail> {
        let sensor = document.get_str("_id").map_err(|e| e.to_string())?.to_owned();
        let measurement = document.get_str("measurement").map_err(|e| e.to_string())?.to_owned();
        let copied = document.get("copied").ok().flatten().and_then(RawBsonRef::as_document);
        let done = copied.and_then(|copied| {
            let through = copied.get_i64("through").ok().and_then(|stamp| Stamp::try_from(stamp).ok())?;
            let kind = copied.get_str(SENSOR_KIND).ok().map(str::to_owned);
            Some(Copied { names: copied.get_str("names").ok()?.to_owned(), through, kind })
        });
        Ok(Self { sensor, measurement, meta: meta::read(document), done })
    }

    /// The state of a sensor without a document.
    #[must_use]
    pub fn of_new(sensor: &Sensor) -> Self {
        let Sensor { key, measurement, .. } = sensor;
        let [sensor, measurement] = [&**key, &**measurement].map(str::to_owned);
        Self { sensor, measurement, meta: Meta::default(), done: None }
    }

    /// Returns the kind of the sensor.
    #[must_use]
    pub fn kind<'a>(&self, plan: &CopyPlan<'a>) -> Option<&'a str> {
        kind_of(plan.kinds, &self.measurement, &self.meta)
    }

    /// Returns the stamp of the latest change to these names. Changes that are no longer remembered by name count for all.
    fn stamp(&self, names: &[&str]) -> Stamp {
        let is_copied = |name: &str| names.iter().any(|path| *path == name || path.split('.').next() == Some(name));
        let named = self.meta.entries().filter(|(name, _)| is_copied(name)).map(|(_, entry)| entry.stamp);
        named.max().unwrap_or(SETTLED).max(self.meta.replaced_before()).max(self.meta.forgotten_stamp())
    }

    /// Returns true if copies of the plan may be outdated.
    #[must_use]
    pub fn is_stale(&self, plan: &CopyPlan<'_>) -> bool {
        let copied_kind = self.done.as_ref().map(|done| done.kind.as_deref());
        let has_stale_kind = !plan.kinds.is_empty() && copied_kind != Some(self.kind(plan));
        has_stale_kind || (!plan.names.is_empty() && self.has_stale_names(&plan.names))
    }

    /// A sensor that never had metadata has no outdated copies.
    fn has_stale_names(&self, names: &[&str]) -> bool {
        if self.meta.is_empty() && self.meta.forgotten_stamp() == SETTLED && self.done.is_none() {
            return false;
        }
        let is_done = |done: &Copied| done.names == names.join(",") && done.through >= self.stamp(names);
        !self.done.as_ref().is_some_and(is_done)
    }

    /// Returns the update of the sensor's document for the time when all copies match this metadata.
    #[must_use]
    pub fn done(&self, plan: &CopyPlan<'_>, now: bson::DateTime) -> Document {
        let before = self.done.as_ref().map_or(SETTLED, |done| done.through);
        let through = signed(self.stamp(&plan.names).max(before));
        let mut copied = doc! { "names": plan.names.join(","), "through": through, "refreshedAt": now };
        if let Some(kind) = self.kind(plan) {
            copied.insert(SENSOR_KIND, kind);
        }
        let mut set = doc! { "copied": copied };
        match self.kind(plan) {
            Some(kind) => drop(set.insert(SENSOR_KIND, kind)),
            None if plan.kinds.is_empty() => {}
            None => return doc! { "$set": set, "$unset": { SENSOR_KIND: 1 } },
        }
        doc! { "$set": set }
    }

    /// Returns the copied part of the metadata.
    fn values(&self, paths: &[&str]) -> Map<String, Value> {
        let mut values = Map::new();
        for path in paths {
            if let Some(value) = self.meta.at(path) {
                put_at(&mut values, path, value);
            }
        }
        values
    }

    /// Encodes a document with what a new page or part gets: `kind` and `meta`. Returns `None` if it has neither.
    #[must_use]
    pub fn document(&self, plan: &CopyPlan<'_>) -> Option<Vec<u8>> {
        let kind = self.kind(plan);
        let copies = self.values(&plan.names);
        if kind.is_none() && copies.is_empty() {
            return None;
        }
        let mut w = BsonWriter::document(64);
        if let Some(kind) = kind {
            w.text(SENSOR_KIND, kind);
        }
        if !copies.is_empty() {
            meta::put_value(&mut w, "meta", &Value::Object(copies));
        }
        Some(w.finish())
    }

    /// Returns the update that sets the copies in a page or part.
    ///
    /// The update needs no filter on the old values: MongoDB does not rewrite a document that already has the same bytes. A
    /// filter would treat 3 as equal to 3.0, and a list as equal to any of its elements.
    ///
    /// # Errors
    /// If a value cannot be encoded.
    pub fn update(&self, plan: &CopyPlan<'_>) -> Result<Document, Detail> {
        let mut set = Document::new();
        let mut unset = Document::new();
        match self.kind(plan) {
            _ if plan.kinds.is_empty() => {}
            Some(kind) => drop(set.insert(SENSOR_KIND, kind)),
            None => drop(unset.insert(SENSOR_KIND, 1)),
        }
        let mut values = self.values(&plan.names);
        // As a whole, because an old copy of `site` may be no object with a `name`.
        let names: BTreeSet<&str> = plan.names.iter().filter_map(|path| path.split('.').next()).collect();
        for name in names {
            let field = format!("meta.{}", key(name));
            match values.remove(name) {
                Some(value) => drop(set.insert(field, to_bson(name, &value)?)),
                None => drop(unset.insert(field, 1)),
            }
        }
        let operators = [("$set", set), ("$unset", unset)].into_iter().filter(|(_, fields)| !fields.is_empty());
        Ok(operators.map(|(operator, fields)| (operator.to_owned(), Bson::Document(fields))).collect())
    }
}

/// Returns the field of a copied path in pages and parts: `meta.site.name`.
#[must_use]
pub fn copy_field(path: &str) -> String {
    path.split('.').fold("meta".to_owned(), |field, part| field + "." + &key(part))
}

/// Puts a value at a path of nested objects.
fn put_at(object: &mut Map<String, Value>, path: &str, value: Value) {
    match path.split_once('.') {
        None => drop(object.insert(path.to_owned(), value)),
        Some((name, rest)) => {
            let inner = object.entry(name).or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(inner) = inner {
                put_at(inner, rest, value);
            }
        }
    }
}

/// Converts a metadata value to its stored form.
///
/// # Errors
/// If it cannot be encoded.
pub fn to_bson(name: &str, value: &Value) -> Result<Bson, Detail> {
    let mut w = BsonWriter::document(64);
    meta::put_value(&mut w, "value", value);
    let document = RawDocumentBuf::from_bytes(w.finish()).map_err(|e| format!("meta.{name}: {e}"))?;
    let mut document = Document::try_from(&*document).map_err(|e| format!("meta.{name}: {e}"))?;
    document.remove("value").ok_or_else(|| format!("meta.{name} has no value"))
}

/// Appends the elements of one encoded document to another one.
#[must_use]
pub fn with_elements(mut document: Vec<u8>, added: &[u8]) -> Vec<u8> {
    // A document is its length, its elements and a zero byte.
    let length_bytes = size_of::<u32>();
    document.pop();
    document.extend_from_slice(added.get(length_bytes..).unwrap_or_default());
    let length = u32::try_from(document.len()).unwrap_or(u32::MAX).to_le_bytes();
    document[..length_bytes].copy_from_slice(&length);
    document
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::bucket::{KindChecks, KindRule};

    fn copies(mut document: Document) -> SensorCopies {
        document.insert("measurement", "m");
        SensorCopies::from_document(&RawDocumentBuf::try_from(&document).unwrap()).unwrap()
    }

    fn is_stale(sensor: &SensorCopies, names: &[&str]) -> bool {
        sensor.is_stale(&CopyPlan { names: names.to_vec(), kinds: &KindRules::default() })
    }

    fn done(sensor: &SensorCopies, names: &[&str]) -> Document {
        let plan = CopyPlan { names: names.to_vec(), kinds: &KindRules::default() };
        let update = sensor.done(&plan, bson::DateTime::from_millis(5));
        let mut copied = update.get_document("$set").unwrap().get_document("copied").unwrap().clone();
        assert_eq!(copied.remove("refreshedAt"), Some(bson::DateTime::from_millis(5).into()));
        copied
    }

    fn copied(names: &str, through: Stamp) -> Option<Copied> {
        Some(Copied { names: names.to_owned(), through, kind: None })
    }

    #[test]
    fn copies_are_added_to_a_whole_document() {
        let sensor = copies(doc! { "_id": "m", "meta": { "site": "lab", "n": 3_i64, "secret": "x" } });
        let press = KindRule {
            name: "press".into(),
            measurement: Some("m".into()),
            has_index: false,
            checks: KindChecks::default(),
        };
        let kinds = KindRules::new([press]);
        let plan = |names: &[&'static str]| CopyPlan { names: names.to_vec(), kinds: &kinds };
        let copies = sensor.document(&plan(&["n", "none", "site"])).unwrap();
        let mut w = BsonWriter::document(0);
        w.text("_id", "page");
        let both = RawDocumentBuf::from_bytes(with_elements(w.finish(), &copies)).unwrap();
        let expected = doc! { "_id": "page", "kind": "press", "meta": { "n": 3_i64, "site": "lab" } };
        assert_eq!(Document::try_from(&*both).unwrap(), expected);
        assert_eq!(meta::read(&both).values().map(|(name, _)| name).collect::<Vec<_>>(), ["n", "site"]);
        let without_kinds = CopyPlan { names: vec!["none"], kinds: &KindRules::default() };
        assert!(sensor.document(&without_kinds).is_none());
        let update = sensor.update(&plan(&["none", "site"])).unwrap();
        assert_eq!(update, doc! { "$set": { "kind": "press", "meta.site": "lab" }, "$unset": { "meta.none": 1 } });
        // Regression: the kind in the sensor's document was compared, which changes before that of its pages.
        assert!(sensor.is_stale(&plan(&[])), "its pages may have no kind");
        let copied = |kind: &str| doc! { "names": "", "through": 1_i64, "kind": kind };
        let stale = |kind: &str, copied: Document| {
            let document = doc! { "_id": "m", "kind": kind, "meta": { "kind": kind }, "copied": copied };
            self::copies(document).is_stale(&plan(&[]))
        };
        assert!(!stale("press", copied("press")) && stale("other", copied("press")) && stale("press", copied("other")));
    }

    #[test]
    fn copies_are_stale_after_a_change_or_for_other_names() {
        let document = doc! { "_id": "m", "meta": { "site": "lab" }, "metaStamps": { "site": 7_i64, "gone": 9_i64 } };
        let mut sensor = copies(document);
        assert!(is_stale(&sensor, &["site"]));
        sensor.done = copied("site", 7);
        assert!(!is_stale(&sensor, &["site"]) && is_stale(&sensor, &["gone", "site"]));
        assert_eq!(done(&sensor, &["gone", "site"]), doc! { "names": "gone,site", "through": 9_i64 });
        sensor.done = copied("site", 6);
        assert!(is_stale(&sensor, &["site"]));
        assert!(!is_stale(&copies(doc! { "_id": "m" }), &["site"]));
        // A removal is forgotten once no older change can arrive, so `through` must not go back.
        sensor.done = copied("site", 12);
        assert_eq!(done(&sensor, &["site"]), doc! { "names": "site", "through": 12_i64 });
    }

    /// Regression: a removal that was forgotten before its copies were updated left them outdated.
    #[test]
    fn a_forgotten_removal_leaves_copies_stale() {
        let field = doc! { "names": "site", "through": 7_i64 };
        let mut sensor = copies(doc! { "_id": "m", "metaDropped": 9_i64, "copied": field });
        assert!(is_stale(&sensor, &["site"]));
        assert_eq!(done(&sensor, &["site"]), doc! { "names": "site", "through": 9_i64 });
        sensor.done = copied("site", 9);
        assert!(!is_stale(&sensor, &["site"]));
        let never_copied = copies(doc! { "_id": "m", "metaDropped": 9_i64 });
        assert!(is_stale(&never_copied, &["site"]), "pages may have been created in between");
    }
}
