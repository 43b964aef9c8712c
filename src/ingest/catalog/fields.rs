//! A sensor's fields, kept once for all sensors that have the same: mostly those of a measurement do.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use crate::reading::Family;

/// A sensor's fields, in the order this process met them. Only ever grows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Fields {
    /// Their names; a cell names its field by index.
    pub names: Vec<Arc<str>>,
    /// The family of each.
    pub families: Vec<Family>,
    /// How many of them a record or a document has: those behind may be forgotten again.
    pub firm: usize,
    /// How many of them the stored document is known to have: all before this index.
    pub saved: usize,
    /// Whether the sensor's document is known to be stored.
    pub stored: bool,
}

impl Fields {
    /// The index of a field; `hint` is where it is most likely to be.
    pub fn find(&self, name: &str, hint: usize) -> Option<usize> {
        if self.names.get(hint).is_some_and(|n| **n == *name) {
            return Some(hint);
        }
        self.names.iter().position(|n| **n == *name)
    }

    /// These fields and one more, unless it is among them; `None` when there are `max` others.
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

    /// Whether the stored document lacks something that pages are about to need.
    pub fn unsaved(&self) -> bool {
        !self.stored || self.saved < self.firm
    }

    /// Those that a record or a document has.
    pub fn firm(&self) -> impl Iterator<Item = (&Arc<str>, &Family)> {
        self.names.iter().zip(&self.families).take(self.firm)
    }
}

/// How many sets of fields are remembered; those that nobody has any more go first.
const KEPT_MAX: usize = 4096;

/// The sets of fields that sensors have.
#[derive(Debug, Default)]
pub struct Shapes(Mutex<HashSet<Arc<Fields>>>);

impl Shapes {
    /// The same fields, as others have them.
    pub fn shared(&self, fields: Fields) -> Arc<Fields> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shared) = kept.get(&fields) {
            return shared.clone();
        }
        if kept.len() >= KEPT_MAX {
            kept.retain(|fields| Arc::strong_count(fields) > 1);
        }
        if kept.len() >= KEPT_MAX {
            kept.clear();
        }
        let shared = Arc::new(fields);
        kept.insert(shared.clone());
        shared
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(name: String) -> Fields {
        Fields { names: vec![name.into()], families: vec![Family::Number], firm: 1, saved: 0, stored: false }
    }

    #[test]
    fn equal_fields_are_one_and_their_number_is_bounded() {
        let shapes = Shapes::default();
        let one = shapes.shared(fields("temp".to_owned()));
        assert!(Arc::ptr_eq(&one, &shapes.shared(fields("temp".to_owned()))));
        assert!(!Arc::ptr_eq(&one, &shapes.shared(Fields { saved: 1, ..fields("temp".to_owned()) })));
        for number in 0..2 * KEPT_MAX {
            shapes.shared(fields(number.to_string()));
        }
        assert!(shapes.0.lock().expect("no panic").len() <= KEPT_MAX);
        assert!(Arc::ptr_eq(&one, &shapes.shared(fields("temp".to_owned()))), "somebody has it");
    }
}
