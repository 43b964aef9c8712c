//! Claims on new fields.
//!
//! A request claims its new fields when it is admitted. Other requests see the claimed fields and their types, so two
//! requests cannot give one field different types. A claim ends when a WAL record has the field, which is then firm, or
//! when the request fails, which removes the field.

use std::collections::HashSet;
use std::sync::Arc;

use super::fields::SensorFields;
use super::sensor::KnownSensor;
use crate::reading::Family;

/// The claims of one request. [`Claims::make_firm`] makes the fields firm; a drop withdraws the claims.
#[derive(Debug, Default)]
pub struct Claims {
    claimed: Vec<Claim>,
    /// The entries of `claimed` as (sensor id, field index), for lookup.
    fields: HashSet<(u32, usize)>,
}

/// A claim on one field.
#[derive(Debug)]
struct Claim {
    known: Arc<KnownSensor>,
    /// The field's index in [`SensorFields`].
    index: usize,
}

impl Claims {
    /// Adds a field to the sensor, if it is missing, and claims it unless it is firm. Returns `None` if the sensor has
    /// `max` other fields.
    pub fn claim(
        &mut self,
        known: &Arc<KnownSensor>,
        name: &str,
        family: Family,
        max: usize,
    ) -> Option<Arc<SensorFields>> {
        let fields = known.claim_field(name, family, max, &self.fields)?;
        let index = fields.find(name, usize::MAX)?;
        if index >= fields.firm && self.fields.insert((known.id, index)) {
            self.claimed.push(Claim { known: known.clone(), index });
        }
        Some(fields)
    }

    /// Makes the fields firm, because a WAL record has them.
    pub fn make_firm(mut self) {
        for claim in self.claimed.drain(..) {
            claim.known.settle_field(claim.index);
        }
    }
}

impl Drop for Claims {
    fn drop(&mut self) {
        for claim in self.claimed.drain(..).rev() {
            claim.known.release_field(claim.index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Allowance;
    use crate::catalog::Catalog;
    use crate::catalog::LookupResult;
    use crate::catalog::WantedSensor;
    use crate::reading::Sensor;

    fn known() -> Arc<KnownSensor> {
        let catalog = Catalog::new(&crate::config::small());
        let database = catalog.enlist_database("d");
        let sensor = Sensor::new("m", Vec::<(&str, &str)>::new()).expect("no tags");
        let wanted = WantedSensor { sensor, allowance: Allowance::default() };
        catalog.add_sensors(&database, vec![wanted], LookupResult::default(), usize::MAX);
        catalog.sensor(&database, "m").expect("learnt")
    }

    fn names(known: &KnownSensor) -> Vec<String> {
        known.fields().names.iter().map(ToString::to_string).collect()
    }

    /// Regression: a request that got a 503 because the WAL was full left its new field behind as a number, so a string
    /// for that field was rejected until the next start.
    #[test]
    fn unlogged_fields_are_removed() {
        let known = known();
        let mut claims = Claims::default();
        claims.claim(&known, "a", Family::Number, 9).expect("room");
        claims.claim(&known, "b", Family::Number, 9).expect("room");
        let fields = claims.claim(&known, "a", Family::Number, 9).expect("room");
        assert_eq!((names(&known), fields.firm), (vec!["a".to_owned(), "b".to_owned()], 0));
        drop(claims);
        assert!(names(&known).is_empty() && known.state.claimed.lock().is_empty());
        let mut claims = Claims::default();
        let fields = claims.claim(&known, "b", Family::String, 9).expect("room");
        assert_eq!(fields.families, [Family::String]);
        claims.make_firm();
        assert_eq!((known.fields().firm, known.fields().is_unsaved()), (1, true));
        assert!(known.state.claimed.lock().is_empty());
    }

    #[test]
    fn fields_claimed_by_another_request_stay() {
        let known = known();
        let mut one = Claims::default();
        let mut other = Claims::default();
        one.claim(&known, "a", Family::Number, 9).expect("room");
        other.claim(&known, "a", Family::Number, 9).expect("room");
        one.claim(&known, "b", Family::Number, 9).expect("room");
        other.claim(&known, "c", Family::Number, 9).expect("room");
        assert!(other.claim(&known, "d", Family::Number, 3).is_none(), "no room");
        drop(one);
        // The index of a field that another request uses must not change.
        assert_eq!(names(&known), ["a", "b", "c"]);
        other.make_firm();
        assert_eq!((known.fields().firm, known.state.claimed.lock().len()), (3, 0));
    }

    #[test]
    fn fields_of_wal_records_are_firm() {
        let known = known();
        let mut claims = Claims::default();
        claims.claim(&known, "a", Family::Number, 9).expect("room");
        known.add_field("b", Family::Number, 9).expect("room");
        assert_eq!(known.fields().firm, 2);
        drop(claims);
        assert_eq!(names(&known), ["a", "b"]);
    }
}
