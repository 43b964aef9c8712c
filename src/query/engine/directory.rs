//! The sensors of each database: the store's list, at most a few seconds old, merged with the sensors that this
//! instance has added since.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use super::columns::SensorList;
use super::memory::document_bytes;
use crate::bucket::meta::META_PREFIX;
use crate::bucket::store::SensorFilter;
use crate::bucket::{CatalogVersion, Meta, Renames, SensorDocument};
use crate::reading::{Family, Sensor};

/// Names of fields with the family of their values.
type FieldSet = Arc<[(Arc<str>, Family)]>;

/// A sensor with its fields in name order.
#[derive(Debug, Clone)]
pub struct DirectoryEntry {
    /// The sensor as it is shown.
    pub sensor: Arc<Sensor>,
    /// The sensor as it is stored, by which its readings are read and deleted.
    pub stored: Arc<Sensor>,
    /// Names, with the family of their values.
    pub fields: FieldSet,
    /// What is said of the sensor now.
    pub meta: Option<Arc<Meta>>,
}

impl DirectoryEntry {
    /// An entry of which only the stored sensor is known.
    #[must_use]
    pub fn bare(sensor: Arc<Sensor>) -> Self {
        Self { stored: sensor.clone(), sensor, fields: Arc::new([]), meta: None }
    }

    /// The entry under the name by which these renames show it.
    #[must_use]
    pub fn shown_by(self, renames: &Renames) -> Self {
        match renames.shown_sensor(&self.stored) {
            Some(shown) => Self { sensor: Arc::new(shown), ..self },
            None => self,
        }
    }

    /// Returns true if another entry of this stored sensor says the same.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.fields == other.fields && self.meta == other.meta
    }

    /// Replaces the fields with equal ones of `known`, or adds them to it. Sensors of a measurement have equal fields.
    pub(super) fn share_fields(&mut self, known: &mut HashSet<FieldSet>) {
        match known.get(&self.fields) {
            Some(same) => self.fields = same.clone(),
            None => drop(known.insert(self.fields.clone())),
        }
    }

    /// The value of a tag, or with the prefix `meta.` of metadata: of a text, the text itself. A tag of the same name wins.
    #[must_use]
    pub fn tag(&self, name: &str) -> Option<Cow<'_, str>> {
        match self.sensor.tag(name) {
            Some(tag) => Some(Cow::Borrowed(tag)),
            None => meta_text(self.meta.as_deref()?, name),
        }
    }

    /// The family of a field's values, if the sensor has the field.
    #[must_use]
    pub fn family(&self, field: &str) -> Option<Family> {
        let at = self.fields.binary_search_by(|(name, _)| (**name).cmp(field)).ok()?;
        Some(self.fields[at].1)
    }
}

/// The value of metadata that a name with the prefix `meta.` means.
#[must_use]
pub fn meta_text<'a>(meta: &'a Meta, name: &str) -> Option<Cow<'a, str>> {
    meta.text(name.strip_prefix(META_PREFIX)?)
}

pub type Sensors = Arc<SensorList>;

/// The sensor lists of all databases that were queried.
pub type Directory = Mutex<HashMap<String, KnownSensors>>;

#[derive(Debug, Clone)]
pub struct KnownSensors {
    pub sensors: Sensors,
    /// When the store's part was read.
    pub read: Instant,
    /// The catalog's version just before that read.
    pub since: CatalogVersion,
    /// The catalog's version that `sensors` includes.
    pub version: CatalogVersion,
    /// The renames by which `sensors` are shown.
    pub renames: Option<Renames>,
    pub stored: Arc<Vec<DirectoryEntry>>,
}

/// Documents read at a time, at first and at most. One may hold a megabyte of recent readings.
const BATCH: (usize, usize) = (16, 512);
/// About how many bytes of documents to read at a time.
const BATCH_BYTES: usize = 1 << 20;

/// The filter for the first batch of a list of documents.
#[must_use]
pub fn first_batch() -> SensorFilter {
    SensorFilter { limit: BATCH.0, ..SensorFilter::default() }
}

/// How many documents to read after a batch of this length, given the memory its documents take.
#[must_use]
pub fn next_batch<'d>(batch: usize, documents: impl ExactSizeIterator<Item = &'d SensorDocument>) -> usize {
    let count = documents.len().max(1);
    let each = documents.map(document_bytes).sum::<usize>() / count;
    (BATCH_BYTES / each.max(1)).clamp(1, (2 * batch).min(BATCH.1))
}

/// An entry; sorts the fields by name.
pub(super) fn entry(
    sensor: Arc<Sensor>,
    mut fields: Vec<(Arc<str>, Family)>,
    meta: Option<Arc<Meta>>,
) -> DirectoryEntry {
    fields.sort_by(|a, b| a.0.cmp(&b.0));
    DirectoryEntry { fields: fields.into(), meta, ..DirectoryEntry::bare(sensor) }
}

/// The entry of a stored document; `None` if it is not one of a sensor.
pub(super) fn stored_entry(document: SensorDocument) -> Option<DirectoryEntry> {
    if document.is_tombstone() {
        return None;
    }
    let SensorDocument { sensor, fields, meta, .. } = document;
    Some(entry(sensor, fields, (!meta.is_empty()).then(|| Arc::new(meta))))
}

/// Merges both lists, in key order. The catalog's entry has every field that this instance knows; other instances may
/// have stored more. Sensors without any field have no readings, and are left out.
pub(super) fn united(stored: &[DirectoryEntry], unflushed: Vec<crate::bucket::CatalogSensor>) -> Vec<DirectoryEntry> {
    let new = |of: crate::bucket::CatalogSensor| (of.sensor.key.clone(), entry(of.sensor, of.fields, of.meta));
    let mut by_key: HashMap<Box<str>, DirectoryEntry> = unflushed.into_iter().map(new).collect();
    let mut entries: Vec<DirectoryEntry> = Vec::with_capacity(stored.len() + by_key.len());
    for entry in stored {
        let Some(mut here) = by_key.remove(&entry.sensor.key) else {
            entries.push(entry.clone());
            continue;
        };
        let is_new = |(name, _): &&(Arc<str>, Family)| here.family(name).is_none();
        let new: Vec<_> = entry.fields.iter().filter(is_new).cloned().collect();
        let meta = both(entry.meta.as_ref(), here.meta.as_ref());
        if !new.is_empty() {
            here = self::entry(here.sensor.clone(), here.fields.iter().cloned().chain(new).collect(), None);
        }
        here.meta = meta;
        entries.push(here);
    }
    entries.extend(by_key.into_values());
    entries.retain(|entry| !entry.fields.is_empty());
    entries.sort_unstable_by(|a, b| a.sensor.key.cmp(&b.sensor.key));
    entries
}

/// Merges metadata of two sources.
pub(super) fn both(one: Option<&Arc<Meta>>, other: Option<&Arc<Meta>>) -> Option<Arc<Meta>> {
    match (one, other) {
        (Some(one), Some(other)) => {
            let mut both = Meta::clone(one);
            both.merge(other);
            Some(Arc::new(both))
        }
        (one, other) => one.or(other).cloned(),
    }
}
