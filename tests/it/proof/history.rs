//! The history of requests and the values allowed after it: per field, any attempt without a certainly later ack or
//! deletion.

use crate::support::prelude::*;

/// A field of a reading.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CellKey {
    pub sensor: String,
    pub time: i64,
    pub field: String,
}

/// Maximum clock difference between instances on one machine, which read it in milliseconds at startup.
const CLOCKS: Duration = Duration::from_millis(5);

struct Attempt {
    values: BTreeMap<CellKey, i64>,
    start: Instant,
    /// Time at which its stamp certainly existed; `None` if it may get one at any later time.
    end: Option<Instant>,
    acked: bool,
    source: String,
}

pub struct Delete {
    pub sensor: String,
    pub range: Range<i64>,
    pub start: Instant,
    /// Time at which its stamp certainly existed; `None` if it may get one at any later time.
    pub end: Option<Instant>,
    pub done: bool,
    pub source: String,
}

impl Attempt {
    fn is_acked_by(&self, time: Instant) -> bool {
        self.acked && self.end.is_some_and(|end| end <= time)
    }
}

#[derive(Default)]
pub struct History {
    attempts: Vec<Attempt>,
    deletions: Vec<Delete>,
}

impl History {
    /// Records that a body is about to be sent; returns its number. The last line about a cell counts.
    pub fn begin(&mut self, values: &[(CellKey, i64)], source: &str) -> usize {
        let values = values.iter().cloned().collect();
        let source = source.to_owned();
        self.attempts.push(Attempt { values, start: Instant::now(), end: None, acked: false, source });
        self.attempts.len() - 1
    }

    /// Records an ack, a certain refusal, or an unknown outcome (`None`).
    pub fn end(&mut self, number: usize, acked: Option<bool>) {
        let attempt = &mut self.attempts[number];
        attempt.end = acked.map(|_| Instant::now());
        attempt.acked = acked == Some(true);
    }

    /// Records a refusal: the body was not and will never be kept.
    pub fn refuse(&mut self, number: usize) {
        self.attempts[number].values.clear();
    }

    pub fn note_deletion(&mut self, deletion: Delete) {
        self.deletions.push(deletion);
    }

    pub fn acked(&self) -> usize {
        let acked = self.attempts.iter().filter(|attempt| attempt.acked);
        acked.flat_map(|attempt| attempt.values.keys()).collect::<BTreeSet<_>>().len()
    }

    pub fn deletions(&self) -> usize {
        self.deletions.iter().filter(|deletion| deletion.done).count()
    }

    /// Checks the current readings.
    #[track_caller]
    pub fn check(&self, found: &BTreeMap<CellKey, i64>) {
        let now = Instant::now();
        self.check_between(now, now, found);
    }

    /// Checks readings of some moment: everything done before `first`, and nothing begun after `last`.
    #[track_caller]
    pub fn check_between(&self, first: Instant, last: Instant, found: &BTreeMap<CellKey, i64>) {
        let wrong = self.find_error(first, last, found);
        assert!(wrong.is_none(), "{}", wrong.unwrap_or_default());
    }

    /// Returns the first error, if any.
    pub fn find_error(&self, first: Instant, last: Instant, found: &BTreeMap<CellKey, i64>) -> Option<String> {
        let mut by_cell: BTreeMap<&CellKey, Vec<(&Attempt, i64)>> = BTreeMap::new();
        for attempt in self.attempts.iter().filter(|attempt| attempt.start <= last) {
            for (cell, value) in &attempt.values {
                by_cell.entry(cell).or_default().push((attempt, *value));
            }
        }
        for (cell, value) in found {
            let Some(attempts) = by_cell.get(cell) else { return Some(format!("{cell:?} was never written")) };
            let is_current = |(attempt, written_value): &(&Attempt, i64)| {
                written_value == value && self.is_possible(attempt, cell, attempts, first)
            };
            if !attempts.iter().any(is_current) {
                return Some(format!("{cell:?} is {value}: {}", self.events(cell)));
            }
        }
        for (cell, attempts) in by_cell.iter().filter(|(cell, _)| !found.contains_key(**cell)) {
            let must_be_there = attempts
                .iter()
                .any(|(attempt, _)| attempt.is_acked_by(first) && !self.may_be_deleted(attempt, cell, last));
            if must_be_there {
                return Some(format!("{cell:?} is not there: {}", self.events(cell)));
            }
        }
        None
    }

    /// Replaces the history by what was found at rest, which keeps later checks exact and fast.
    pub fn settle(&mut self, found: BTreeMap<CellKey, i64>) {
        let now = Instant::now();
        self.attempts =
            vec![Attempt { values: found, start: now, end: Some(now), acked: true, source: "found".to_owned() }];
        self.deletions.clear();
    }

    /// Returns true if no attempt was certainly later and present by this time.
    fn is_possible(&self, attempt: &Attempt, cell: &CellKey, all: &[(&Attempt, i64)], time: Instant) -> bool {
        let Some(end) = attempt.end else { return true };
        let is_after = |start: Instant| start > end + CLOCKS;
        let is_covered = |deletion: &Delete| {
            deletion.done
                && deletion.end.is_some_and(|end| end <= time)
                && covers(deletion, cell)
                && is_after(deletion.start)
        };
        !all.iter().any(|(other, _)| other.is_acked_by(time) && is_after(other.start))
            && !self.deletions.iter().any(is_covered)
    }

    /// Returns true if a deletion begun by this time was not certainly before the attempt.
    fn may_be_deleted(&self, attempt: &Attempt, cell: &CellKey, time: Instant) -> bool {
        let is_before = |deletion: &Delete| deletion.end.is_some_and(|end| attempt.start > end + CLOCKS);
        self.deletions.iter().any(|deletion| deletion.start <= time && covers(deletion, cell) && !is_before(deletion))
    }

    /// Lists the events of a cell, in milliseconds since the first attempt.
    fn events(&self, cell: &CellKey) -> String {
        let started = self.attempts.first().map_or_else(Instant::now, |first| first.start);
        let milliseconds = |time: Instant| time.saturating_duration_since(started).as_millis();
        let mut events: Vec<(u128, String)> = Vec::new();
        for attempt in &self.attempts {
            if let Some(value) = attempt.values.get(cell) {
                let start = milliseconds(attempt.start);
                let end = attempt.end.map(milliseconds);
                events
                    .push((start, format!("{start}..{end:?} {value} acked={} via {}", attempt.acked, attempt.source)));
            }
        }
        for deletion in self.deletions.iter().filter(|deletion| covers(deletion, cell)) {
            let start = milliseconds(deletion.start);
            let end = deletion.end.map(milliseconds);
            events.push((start, format!("{start}..{end:?} deleted={} via {}", deletion.done, deletion.source)));
        }
        events.sort();
        events.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join("; ")
            + &format!("; it is {}", milliseconds(Instant::now()))
    }
}

fn covers(deletion: &Delete, cell: &CellKey) -> bool {
    deletion.sensor == cell.sensor && deletion.range.contains(&cell.time)
}
