//! Sensors' fields, kept once for all sensors that have the same: mostly those of a measurement do.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use super::Fields;

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
    use crate::reading::Family;

    fn fields(name: String) -> Fields {
        Fields { names: vec![name.into()], families: vec![Family::Number], saved: 0, stored: false }
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
