//! Claims on new fields. From admission on, a new field and its type are visible to other requests, so that two
//! requests cannot give it different types. The claim ends when a WAL record has the field (it is firm then) or the
//! request fails (the field is forgotten).

use std::collections::HashSet;
use std::sync::Arc;

use super::fields::SensorFields;
use super::sensor::KnownSensor;
use crate::reading::Family;

/// The fields that one request claims. Dropping them withdraws the claims; [`Claims::logged`] makes the fields firm.
#[derive(Debug, Default)]
pub struct Claims {
    claimed: Vec<(Arc<KnownSensor>, usize)>,
    /// The entries of `claimed` as (sensor id, field index), for lookup.
    places: HashSet<(u32, usize)>,
}

impl Claims {
    /// Adds a field to the sensor if it is missing, and claims it unless it is firm. `None` when the sensor has `max`
    /// other fields.
    pub fn claim(
        &mut self,
        known: &Arc<KnownSensor>,
        name: &str,
        family: Family,
        max: usize,
    ) -> Option<Arc<SensorFields>> {
        let fields = known.claim_field(name, family, max, &self.places)?;
        let at = fields.find(name, usize::MAX)?;
        if at >= fields.firm && self.places.insert((known.id, at)) {
            self.claimed.push((known.clone(), at));
        }
        Some(fields)
    }

    /// Makes the fields firm: a WAL record has them.
    pub fn logged(mut self) {
        for (known, at) in self.claimed.drain(..) {
            known.settle_field(at);
        }
    }
}

impl Drop for Claims {
    fn drop(&mut self) {
        for (known, at) in self.claimed.drain(..).rev() {
            known.release_field(at);
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

    /// Once, a request that was answered 503 because the WAL was full left its new field behind as a number: the text
    /// that its sender sent next was refused until the next start.
    #[test]
    fn a_field_that_no_record_has_is_forgotten() {
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
        claims.logged();
        assert_eq!((known.fields().firm, known.fields().unsaved()), (1, true));
        assert!(known.state.claimed.lock().is_empty());
    }

    #[test]
    fn a_field_that_others_bring_too_stays_theirs() {
        let known = known();
        let (mut one, mut other) = (Claims::default(), Claims::default());
        one.claim(&known, "a", Family::Number, 9).expect("room");
        other.claim(&known, "a", Family::Number, 9).expect("room");
        one.claim(&known, "b", Family::Number, 9).expect("room");
        other.claim(&known, "c", Family::Number, 9).expect("room");
        assert!(other.claim(&known, "d", Family::Number, 3).is_none(), "no room");
        drop(one);
        // The index of a field that another request uses must not change.
        assert_eq!(names(&known), ["a", "b", "c"]);
        other.logged();
        assert_eq!((known.fields().firm, known.state.claimed.lock().len()), (3, 0));
    }

    #[test]
    fn a_field_that_the_log_has_is_firm_at_once() {
        let known = known();
        let mut claims = Claims::default();
        claims.claim(&known, "a", Family::Number, 9).expect("room");
        known.add_field("b", Family::Number, 9).expect("room");
        assert_eq!(known.fields().firm, 2);
        drop(claims);
        assert_eq!(names(&known), ["a", "b"]);
    }
}
