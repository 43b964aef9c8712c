//! Who said what when, and what may be there after it: per field of a timestamp, the value of an attempt that no acked one
//! and no deletion came after. What overlaps in time may have come in either order.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::{Duration, Instant};

/// A field of a reading: the sensor, the time, the field.
pub type Place = (String, i64, String);

/// What two instances on one machine, with one clock, may differ by in what they take for now: each reads it when it
/// starts, in milliseconds.
const CLOCKS: Duration = Duration::from_millis(5);

/// A body that was sent once.
struct Attempt {
    values: BTreeMap<Place, i64>,
    start: Instant,
    /// When its stamp was surely given out, if it ever was; `None` where that may be at any later time.
    end: Option<Instant>,
    acked: bool,
}

/// A deletion that was asked for.
pub struct Delete {
    /// Whose.
    pub sensor: String,
    /// Of which times.
    pub range: Range<i64>,
    /// When it was asked for.
    pub start: Instant,
    /// When it was answered as done; `None` where it may be done at any later time, or never.
    pub end: Option<Instant>,
}

/// Everything that was sent.
#[derive(Default)]
pub struct History {
    attempts: Vec<Attempt>,
    deletions: Vec<Delete>,
}

impl History {
    /// A body is about to be sent; gives its number. Of several lines about one place the last counts.
    pub fn begin(&mut self, values: &[(Place, i64)]) -> usize {
        let values = values.iter().cloned().collect();
        self.attempts.push(Attempt { values, start: Instant::now(), end: None, acked: false });
        self.attempts.len() - 1
    }

    /// It was acked, or surely not and never will be; nothing where nobody knows.
    pub fn end(&mut self, number: usize, acked: Option<bool>) {
        let attempt = &mut self.attempts[number];
        (attempt.end, attempt.acked) = (acked.map(|_| Instant::now()), acked == Some(true));
    }

    /// Notes a deletion.
    pub fn note_deletion(&mut self, deletion: Delete) {
        self.deletions.push(deletion);
    }

    /// How many places were acked.
    pub fn acked(&self) -> usize {
        let acked = self.attempts.iter().filter(|attempt| attempt.acked);
        acked.flat_map(|attempt| attempt.values.keys()).collect::<BTreeSet<_>>().len()
    }

    /// How many deletions were answered as done.
    pub fn deletions(&self) -> usize {
        self.deletions.iter().filter(|deletion| deletion.end.is_some()).count()
    }

    /// Asserts that what was found is what must be there.
    #[track_caller]
    pub fn check(&self, found: &BTreeMap<Place, i64>) {
        let mut by_place: BTreeMap<&Place, Vec<(&Attempt, i64)>> = BTreeMap::new();
        for attempt in &self.attempts {
            for (place, value) in &attempt.values {
                by_place.entry(place).or_default().push((attempt, *value));
            }
        }
        for (place, value) in found {
            let attempts = by_place.get(place).unwrap_or_else(|| panic!("{place:?} was never written"));
            let is_current =
                |(attempt, said): &&(&Attempt, i64)| said == value && self.may_stand(attempt, place, attempts);
            assert!(attempts.iter().any(|attempt| is_current(&attempt)), "{place:?} is {value}: {}", self.tell(place));
        }
        for (place, attempts) in by_place.iter().filter(|(place, _)| !found.contains_key(**place)) {
            let must_be_there =
                attempts.iter().any(|(attempt, _)| attempt.acked && !self.may_be_deleted(attempt, place));
            assert!(!must_be_there, "{place:?} is not there: {}", self.tell(place));
        }
    }

    /// Whether nothing surely came after an attempt.
    fn may_stand(&self, attempt: &Attempt, place: &Place, all: &[(&Attempt, i64)]) -> bool {
        let Some(end) = attempt.end else { return true };
        let is_after = |start: Instant| start > end + CLOCKS;
        let is_covered =
            |deletion: &&Delete| deletion.end.is_some() && covers(deletion, place) && is_after(deletion.start);
        !all.iter().any(|(other, _)| other.acked && is_after(other.start))
            && !self.deletions.iter().any(|d| is_covered(&d))
    }

    /// Whether some deletion did not surely come before an attempt.
    fn may_be_deleted(&self, attempt: &Attempt, place: &Place) -> bool {
        let is_before = |deletion: &Delete| deletion.end.is_some_and(|end| attempt.start > end + CLOCKS);
        self.deletions.iter().any(|deletion| covers(deletion, place) && !is_before(deletion))
    }

    /// All that happened to a place, in milliseconds since the first attempt.
    fn tell(&self, place: &Place) -> String {
        let began = self.attempts.first().map_or_else(Instant::now, |first| first.start);
        let at = |time: Instant| time.saturating_duration_since(began).as_millis();
        let mut told: Vec<(u128, String)> = Vec::new();
        for attempt in &self.attempts {
            if let Some(value) = attempt.values.get(place) {
                let (start, end) = (at(attempt.start), attempt.end.map(at));
                told.push((start, format!("{start}..{end:?} {value} acked={}", attempt.acked)));
            }
        }
        for deletion in self.deletions.iter().filter(|deletion| covers(deletion, place)) {
            let (start, end) = (at(deletion.start), deletion.end.map(at));
            told.push((start, format!("{start}..{end:?} deleted")));
        }
        told.sort();
        told.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join("; ")
    }
}

fn covers(deletion: &Delete, (sensor, time, _): &Place) -> bool {
    deletion.sensor == *sensor && deletion.range.contains(time)
}
