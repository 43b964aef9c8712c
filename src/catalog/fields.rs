//! The fields of a sensor. Sensors with equal fields share one copy; most sensors of a measurement do.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;

use super::charge::Charge;
use crate::reading::Family;

/// A sensor's fields, in the order in which this process first saw them. Firm fields come first and are never removed.
/// Other fields are removed from the end once no request claims them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct SensorFields {
    /// The field names. Cells refer to them by index.
    pub names: Vec<Arc<str>>,
    /// The family of each field.
    pub families: Vec<Family>,
    /// The number of leading fields that are firm: a WAL record or the sensor's document has them.
    pub firm: usize,
    /// The number of leading fields that the stored document is known to have.
    pub saved: usize,
    /// True if the sensor's document is known to be stored.
    pub is_stored: bool,
    /// The memory of this set; empty until the set is shared.
    pub(crate) charge: Charge,
}

impl SensorFields {
    /// Returns the index of a field. `hint` is the most likely index.
    pub fn find(&self, name: &str, hint: usize) -> Option<usize> {
        if self.names.get(hint).is_some_and(|n| **n == *name) {
            return Some(hint);
        }
        self.names.iter().position(|n| **n == *name)
    }

    /// Returns these fields and the given one. Returns `None` if there are already `max` other fields.
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

    /// Returns true if the sensor's document must be written before pages that use the firm fields.
    pub fn is_unsaved(&self) -> bool {
        !self.is_stored || self.saved < self.firm
    }

    /// Estimates the bytes of this set.
    fn memory(&self) -> usize {
        let names: usize = self.names.iter().map(|name| Self::memory_of_field(name)).sum();
        size_of::<Self>() + names
    }

    /// Estimates the bytes of one more field.
    pub fn memory_of_field(name: &str) -> usize {
        size_of::<(Arc<str>, Family, [usize; 2])>() + name.len()
    }

    /// Iterates over the firm fields.
    pub fn firm(&self) -> impl Iterator<Item = (&Arc<str>, &Family)> {
        self.names.iter().zip(&self.families).take(self.firm)
    }
}

/// Maximum number of shared sets. At this size unused sets are dropped, and then all if none was unused.
const KEPT_MAX: usize = 4096;
/// Minimum number of sets before unused ones are dropped.
const KEPT_MIN: usize = 64;

/// The distinct sets of fields.
#[derive(Debug, Default)]
pub struct FieldSets(Mutex<KeptSets>);

#[derive(Debug, Default)]
struct KeptSets {
    sets: HashSet<Arc<SensorFields>>,
    /// The number of used sets when unused ones were last dropped.
    used: usize,
}

impl FieldSets {
    /// Returns the shared copy of a set of fields. A new set is charged to the account of the `sensor`'s charge.
    pub fn share(&self, mut fields: SensorFields, sensor: &Charge) -> Arc<SensorFields> {
        let mut kept = self.0.lock();
        if let Some(shared) = kept.sets.get(&fields) {
            return shared.clone();
        }
        // Every new field of a sensor leaves an unused set behind, which counts against `catalog.max_bytes`.
        if kept.sets.len() >= (2 * kept.used).clamp(KEPT_MIN, KEPT_MAX) {
            kept.sets.retain(|fields| Arc::strong_count(fields) > 1);
            kept.used = kept.sets.len();
        }
        if kept.sets.len() >= KEPT_MAX {
            kept.sets.clear();
        }
        fields.charge = sensor.account().map(|account| account.charge(fields.memory())).unwrap_or_default();
        let shared = Arc::new(fields);
        kept.sets.insert(shared.clone());
        shared
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::charge::CatalogBytes;

    fn fields(name: String) -> SensorFields {
        SensorFields { names: vec![name.into()], families: vec![Family::Number], firm: 1, ..SensorFields::default() }
    }

    #[test]
    fn equal_sets_are_shared_and_their_number_is_bounded() {
        let shapes = FieldSets::default();
        let charge = CatalogBytes::new(usize::MAX).account(None).charge(0);
        let one = shapes.share(fields("temp".to_owned()), &charge);
        assert!(Arc::ptr_eq(&one, &shapes.share(fields("temp".to_owned()), &charge)));
        assert!(!Arc::ptr_eq(&one, &shapes.share(SensorFields { saved: 1, ..fields("temp".to_owned()) }, &charge)));
        for number in 0..2 * KEPT_MAX {
            shapes.share(fields(number.to_string()), &charge);
        }
        assert!(shapes.0.lock().sets.len() <= KEPT_MAX);
        assert!(Arc::ptr_eq(&one, &shapes.share(fields("temp".to_owned()), &charge)), "a used set stays");
    }

    /// Regression: unused sets stayed until there were 4,096, and new sensors were rejected because of
    /// `catalog.max_bytes`.
    #[test]
    fn unused_sets_are_dropped() {
        let shapes = FieldSets::default();
        let bytes = CatalogBytes::new(usize::MAX);
        let charge = bytes.account(None).charge(0);
        let mut grown = SensorFields::default();
        for number in 0..1000 {
            let fields = grown.with(&number.to_string(), Family::Number, 1000).expect("room");
            grown = SensorFields::clone(&shapes.share(fields, &charge));
        }
        assert!(bytes.used_bytes() <= (KEPT_MIN + 1) * grown.memory(), "{} bytes", bytes.used_bytes());
    }
}
