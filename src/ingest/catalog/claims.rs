//! Fields that a request is about to bring: known to others from admission on, so that two requests do not give them
//! different types, and forgotten when no record came to have them. What the log refused fixes nothing.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Fields, KnownSensor};
use crate::reading::Family;

/// How many requests are about to bring each of a sensor's fields behind those that are firm, by the sensor's number.
#[derive(Debug, Default)]
pub struct Claimed(Mutex<HashMap<u32, Vec<usize>>>);

impl Claimed {
    fn lock(&self) -> MutexGuard<'_, HashMap<u32, Vec<usize>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The sensor's fields are firm up to here.
    pub fn settle(&self, sensor: u32, before: usize, firm: usize) {
        let mut claimed = self.lock();
        if let Some(counts) = claimed.get_mut(&sensor) {
            counts.drain(..firm.saturating_sub(before).min(counts.len()));
            if counts.is_empty() {
                claimed.remove(&sensor);
            }
        }
    }
}

/// The fields that one request claims. Unless it is logged, they are let go when this is dropped.
#[derive(Debug, Default)]
pub struct Claims {
    claimed: Vec<(Arc<KnownSensor>, usize)>,
    /// The same, to be looked up.
    places: HashSet<(u32, usize)>,
}

impl Claims {
    /// Claims a field that is not firm, or adds it; `None` when there are `max` others.
    pub fn claim(&mut self, known: &Arc<KnownSensor>, name: &str, family: Family, max: usize) -> Option<Arc<Fields>> {
        let fields = known.claim_field(name, family, max, &self.places)?;
        let at = fields.find(name, usize::MAX)?;
        if at >= fields.firm && self.places.insert((known.id, at)) {
            self.claimed.push((known.clone(), at));
        }
        Some(fields)
    }

    /// A record has them all: they stay.
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

impl KnownSensor {
    /// The fields with this one, which is claimed once more unless it is firm or among `own`.
    fn claim_field(&self, name: &str, family: Family, max: usize, own: &HashSet<(u32, usize)>) -> Option<Arc<Fields>> {
        let mut fields = self.write_fields();
        let mut claimed = self.met.claimed.lock();
        match fields.find(name, usize::MAX) {
            Some(at) if at < fields.firm || own.contains(&(self.id, at)) => {}
            Some(at) => {
                if let Some(count) = claimed.get_mut(&self.id).and_then(|counts| counts.get_mut(at - fields.firm)) {
                    *count += 1;
                }
            }
            None => {
                *fields = self.met.shapes.shared(fields.with(name, family, max)?);
                claimed.entry(self.id).or_default().push(1);
            }
        }
        Some(fields.clone())
    }

    /// A record has the field: it stays, and those before it with it, whose places must not change.
    fn settle_field(&self, at: usize) {
        let mut fields = self.write_fields();
        if at >= fields.firm && at < fields.names.len() {
            self.met.claimed.settle(self.id, fields.firm, at + 1);
            *fields = self.met.shapes.shared(Fields { firm: at + 1, ..Fields::clone(&fields) });
            self.met.note_news();
        }
    }

    /// A request does not bring the field after all. The last ones that nobody is about to bring are forgotten.
    fn release_field(&self, at: usize) {
        let mut fields = self.write_fields();
        let mut claimed = self.met.claimed.lock();
        let Some(place) = at.checked_sub(fields.firm) else { return };
        let Some(counts) = claimed.get_mut(&self.id) else { return };
        if let Some(count) = counts.get_mut(place) {
            *count = count.saturating_sub(1);
        }
        let left = counts.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
        let length = fields.firm + left;
        counts.truncate(left);
        if counts.is_empty() {
            claimed.remove(&self.id);
        }
        if length < fields.names.len() {
            let mut fewer = Fields::clone(&fields);
            fewer.names.truncate(length);
            fewer.families.truncate(length);
            *fields = self.met.shapes.shared(fewer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Allowance;
    use crate::ingest::Options;
    use crate::ingest::catalog::Catalog;
    use crate::ingest::learn::{Found, Wanted};
    use crate::reading::Sensor;

    /// A sensor of which nothing is known but its name.
    fn known() -> Arc<KnownSensor> {
        let catalog = Catalog::new(&Options::small());
        let database = catalog.enlist_database("d");
        let sensor = Sensor::new("m", Vec::<(&str, &str)>::new()).expect("no tags");
        let wanted = Wanted { sensor, payer: Allowance::default() };
        catalog.learn(&database, vec![wanted], Found::default(), usize::MAX);
        catalog.sensor(&database, "m").expect("learnt")
    }

    fn names(known: &KnownSensor) -> Vec<String> {
        known.fields().names.iter().map(ToString::to_string).collect()
    }

    /// A request that was answered 503, since the log was full, had its new field known as a number for good: the text
    /// that its sender then sent instead was refused until the next start.
    #[test]
    fn a_field_that_no_record_has_is_forgotten() {
        let known = known();
        let mut claims = Claims::default();
        claims.claim(&known, "a", Family::Number, 9).expect("room");
        claims.claim(&known, "b", Family::Number, 9).expect("room");
        let fields = claims.claim(&known, "a", Family::Number, 9).expect("room");
        assert_eq!((names(&known), fields.firm), (vec!["a".to_owned(), "b".to_owned()], 0));
        drop(claims);
        assert!(names(&known).is_empty() && known.met.claimed.lock().is_empty());
        let mut claims = Claims::default();
        let fields = claims.claim(&known, "b", Family::String, 9).expect("room");
        assert_eq!(fields.families, [Family::String]);
        claims.logged();
        assert_eq!((known.fields().firm, known.fields().unsaved()), (1, true));
        assert!(known.met.claimed.lock().is_empty());
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
        // The place of a field that somebody uses must not change.
        assert_eq!(names(&known), ["a", "b", "c"]);
        other.logged();
        assert_eq!((known.fields().firm, known.met.claimed.lock().len()), (3, 0));
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
