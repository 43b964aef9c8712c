//! A sensor's fields. Sensors with equal fields, which most sensors of a measurement have, share one copy.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;

use super::charge::{CatalogBytes, Charge};
use crate::reading::Family;

/// A sensor's fields, in the order in which this process first saw them. Firm fields are never removed; the others, at
/// the end, are removed when no request claims them any more.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct SensorFields {
    /// A cell names its field by its index here.
    pub names: Vec<Arc<str>>,
    /// The family of each field.
    pub families: Vec<Family>,
    /// How many fields, from the first on, are firm: a WAL record or the sensor's document has them.
    pub firm: usize,
    /// How many fields, from the first on, the stored document is known to have.
    pub saved: usize,
    /// Whether the sensor's document is known to be stored.
    pub stored: bool,
    /// What this set takes of the catalog's memory; nothing until it is shared.
    pub(crate) charge: Charge,
}

impl SensorFields {
    /// The index of a field; `hint` is the most likely index.
    pub fn find(&self, name: &str, hint: usize) -> Option<usize> {
        if self.names.get(hint).is_some_and(|n| **n == *name) {
            return Some(hint);
        }
        self.names.iter().position(|n| **n == *name)
    }

    /// These fields and one more, unless it is there already; `None` when there are `max` others.
    pub fn with(&self, name: &str, family: Family, max: usize) -> Option<Self> {
        let mut grown = self.clone();
        if self.find(name, usize::MAX).is_some() {
            return Some(grown);
        }
        if self.names.len() >= max {
            return None;
        }
        grown.names.push(Arc::from(name));
        grown.families.push(family);
        Some(grown)
    }

    /// Whether the stored document lacks something that pages to be written need.
    pub fn unsaved(&self) -> bool {
        !self.stored || self.saved < self.firm
    }

    /// The memory of a set of these fields.
    fn memory(&self) -> usize {
        let names: usize = self.names.iter().map(|name| Self::memory_of_field(name)).sum();
        size_of::<Self>() + names
    }

    /// The memory of one more field.
    pub fn memory_of_field(name: &str) -> usize {
        size_of::<(Arc<str>, Family, [usize; 2])>() + name.len()
    }

    /// The firm fields.
    pub fn firm(&self) -> impl Iterator<Item = (&Arc<str>, &Family)> {
        self.names.iter().zip(&self.families).take(self.firm)
    }
}

/// Most sets of fields that are shared. Beyond it, unused sets are dropped first, then all.
const KEPT_MAX: usize = 4096;
/// So many sets are shared before unused ones are looked for.
const KEPT_MIN: usize = 64;

/// The distinct sets of fields.
#[derive(Debug, Default)]
pub struct FieldSets(Mutex<KeptSets>);

#[derive(Debug, Default)]
struct KeptSets {
    sets: HashSet<Arc<SensorFields>>,
    /// How many were in use when unused ones were last dropped.
    used: usize,
}

impl FieldSets {
    /// The shared copy of equal fields.
    pub fn shared(&self, mut fields: SensorFields, bytes: &CatalogBytes) -> Arc<SensorFields> {
        let mut kept = self.0.lock();
        if let Some(shared) = kept.sets.get(&fields) {
            return shared.clone();
        }
        // A sensor leaves a set behind with each new field, and all of them count against `catalog.max_bytes`.
        if kept.sets.len() >= (2 * kept.used).clamp(KEPT_MIN, KEPT_MAX) {
            kept.sets.retain(|fields| Arc::strong_count(fields) > 1);
            kept.used = kept.sets.len();
        }
        if kept.sets.len() >= KEPT_MAX {
            kept.sets.clear();
        }
        fields.charge = bytes.charge(fields.memory());
        let shared = Arc::new(fields);
        kept.sets.insert(shared.clone());
        shared
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(name: String) -> SensorFields {
        SensorFields { names: vec![name.into()], families: vec![Family::Number], firm: 1, ..SensorFields::default() }
    }

    #[test]
    fn equal_fields_are_one_and_their_number_is_bounded() {
        let (shapes, bytes) = (FieldSets::default(), CatalogBytes::new(usize::MAX));
        let one = shapes.shared(fields("temp".to_owned()), &bytes);
        assert!(Arc::ptr_eq(&one, &shapes.shared(fields("temp".to_owned()), &bytes)));
        assert!(!Arc::ptr_eq(&one, &shapes.shared(SensorFields { saved: 1, ..fields("temp".to_owned()) }, &bytes)));
        for number in 0..2 * KEPT_MAX {
            shapes.shared(fields(number.to_string()), &bytes);
        }
        assert!(shapes.0.lock().sets.len() <= KEPT_MAX);
        assert!(Arc::ptr_eq(&one, &shapes.shared(fields("temp".to_owned()), &bytes)), "somebody has it");
    }

    /// Sets that no sensor has any more once stayed until there were 4,096, and kept new sensors out of
    /// `catalog.max_bytes`.
    #[test]
    fn sets_that_nobody_has_any_more_give_their_memory_back() {
        let (shapes, bytes) = (FieldSets::default(), CatalogBytes::new(usize::MAX));
        let mut grown = SensorFields::default();
        for number in 0..1000 {
            grown = SensorFields::clone(
                &shapes.shared(grown.with(&number.to_string(), Family::Number, 1000).expect("room"), &bytes),
            );
        }
        assert!(bytes.used() <= (KEPT_MIN + 1) * grown.memory(), "{} bytes", bytes.used());
    }
}
