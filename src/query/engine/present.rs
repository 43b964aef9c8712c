//! The sensors of a database under their present names.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::directory::{DirectoryEntry, entry};
use crate::bucket::{Meta, Relabels};
use crate::reading::{Family, Sensor};

/// What stored sensors with one present name have together.
#[derive(Default)]
struct Together {
    fields: Vec<(Arc<str>, Family)>,
    meta: Option<Arc<Meta>>,
}

impl Together {
    /// Adds what a stored sensor has. A field that both have keeps the family it has, but numbers come first: a text that is written
    /// later to one of the sensors leaves the sums of the others.
    fn add(&mut self, stored: &DirectoryEntry) {
        for (name, family) in stored.fields.iter() {
            match self.fields.iter_mut().find(|(known, _)| known == name) {
                Some((_, held)) if *family == Family::Number => *held = Family::Number,
                Some(_) => {}
                None => self.fields.push((name.clone(), *family)),
            }
        }
        if let Some(meta) = &stored.meta {
            match &mut self.meta {
                Some(held) => Arc::make_mut(held).unite(meta),
                held => *held = Some(meta.clone()),
            }
        }
    }
}

/// The entries of stored sensors under the names that they have at some time, in key order. A sensor that is named
/// otherwise from a time on has several.
#[must_use]
pub fn presented(stored: Vec<DirectoryEntry>, relabels: &Relabels) -> Vec<DirectoryEntry> {
    let mut plain = Vec::with_capacity(stored.len());
    let mut renamed: BTreeMap<Box<str>, (Arc<Sensor>, Vec<DirectoryEntry>)> = BTreeMap::new();
    for entry in stored {
        for (_, name) in relabels.names_of(&entry.sensor) {
            let is_itself = name.key == entry.sensor.key;
            if is_itself && relabels.sources_of(&name).len() == 1 {
                plain.push(entry.clone());
            } else {
                let (_, of) = renamed.entry(name.key.clone()).or_insert_with(|| (name.clone(), Vec::new()));
                // First the one whose values count.
                let at = if is_itself { 0 } else { of.len() };
                of.insert(at, entry.clone());
            }
        }
    }
    plain.extend(renamed.into_values().map(|(name, of)| united(name, &of, relabels)));
    plain.sort_unstable_by(|a, b| a.sensor.key.cmp(&b.sensor.key));
    plain
}

/// One entry of stored sensors that have a present name in common.
#[must_use]
pub fn united(name: Arc<Sensor>, stored: &[DirectoryEntry], relabels: &Relabels) -> DirectoryEntry {
    let mut together = Together::default();
    stored.iter().for_each(|entry| together.add(entry));
    let others = relabels.other_names(&name);
    DirectoryEntry {
        others: (!others.is_empty()).then(|| Arc::new(others)),
        ..entry(name, together.fields, together.meta)
    }
}

/// A stored sensor under the name that it has at a time, and the other spellings of that.
#[must_use]
pub fn named_at(stored: &DirectoryEntry, relabels: &Relabels, time: i64) -> DirectoryEntry {
    let sensor = relabels.name_at(&stored.sensor, time).map_or_else(|| stored.sensor.clone(), Arc::new);
    let mut others = relabels.other_names_at(&sensor, time);
    others.retain(|other| other.is_spelling);
    DirectoryEntry { sensor, others: (!others.is_empty()).then(|| Arc::new(others)), ..stored.clone() }
}
