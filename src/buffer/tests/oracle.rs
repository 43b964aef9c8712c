//! The expected state: for each cell the logged value with the greatest stamp, unless a deletion has a greater stamp.
//! Also tracks the records of WALs that were silent beyond the horizon, because only these may be set aside.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;

use super::store::{Cell, Key};
use crate::bucket::registry::MemberRegistry;
use crate::reading::{Hour, Stamp, Value};

/// A logged request: readings, or a deletion.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) id: usize,
    pub(crate) stamp: Stamp,
    pub(crate) opening: u64,
    pub(crate) rows: Vec<Given>,
    pub(crate) deletion: Option<Gone>,
}

/// A reading as a client sends it: sensor, time, and fields by number.
#[derive(Debug, Clone)]
pub(crate) struct Given {
    pub(crate) sensor: usize,
    pub(crate) time: i64,
    pub(crate) cells: Vec<(u16, Value)>,
}

/// The sensors and times that a deletion covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Gone {
    pub(crate) sensors: Vec<usize>,
    pub(crate) range: Range<i64>,
}

impl Given {
    pub(crate) fn key(&self) -> Key {
        (self.sensor, Hour::from_ns(self.time).0)
    }
}

impl Record {
    fn covers(&self, sensor: usize, time: i64, stamp: Stamp) -> bool {
        let is_about = |gone: &Gone| gone.sensors.contains(&sensor) && gone.range.contains(&time);
        stamp < self.stamp && self.deletion.as_ref().is_some_and(is_about)
    }
}

/// A value that a record has for a cell.
pub(crate) struct Said {
    pub(crate) record: Rc<Record>,
    pub(crate) value: Value,
}

/// All logged records with their progress.
#[derive(Debug, Default)]
pub(crate) struct Oracle {
    pub(crate) records: Vec<Rc<Record>>,
    /// Rows that are in the store, or were deleted before: record, sensor and time.
    stored: BTreeSet<(usize, usize, i64)>,
    /// Completed deletions. Equal deletions of two instances with the same stamp count as one.
    done: Vec<(Stamp, Gone)>,
    /// Openings that the registry dropped while they held the floor.
    lost: BTreeSet<u64>,
    /// All openings that the registry dropped.
    forgotten: BTreeSet<u64>,
    /// Openings that were taken over, with the opening that took each.
    taken: BTreeMap<u64, u64>,
    /// Records of lost openings that the floor has passed, and records that were merged at or below the floor.
    pub(crate) late: BTreeSet<usize>,
    /// Rows that were set aside and reported.
    pub(crate) reported: BTreeSet<(usize, usize, i64)>,
}

impl Oracle {
    pub(crate) fn log(&mut self, stamp: Stamp, opening: u64, rows: Vec<Given>, deletion: Option<Gone>) -> Rc<Record> {
        let record = Rc::new(Record { id: self.records.len(), stamp, opening, rows, deletion });
        self.records.push(record.clone());
        record
    }

    pub(crate) fn note_stored(&mut self, record: &Record, sensor: usize, time: i64) {
        self.stored.insert((record.id, sensor, time));
    }

    pub(crate) fn note_done(&mut self, record: &Record) {
        self.done.extend(record.deletion.clone().map(|gone| (record.stamp, gone)));
    }

    /// Returns true if a record is completely in the store.
    pub(crate) fn is_stored(&self, record: &Record) -> bool {
        let is_stored = |row: &Given| self.stored.contains(&(record.id, row.sensor, row.time));
        record.rows.iter().all(is_stored)
            && record.deletion.as_ref().is_none_or(|gone| self.is_covered(record.stamp, gone))
    }

    /// Returns true if a deletion was carried out, or a later one of the same sensors that covers it.
    fn is_covered(&self, stamp: Stamp, gone: &Gone) -> bool {
        let covers = |(later, wider): &(Stamp, Gone)| {
            let is_wider = wider.range.start <= gone.range.start && gone.range.end <= wider.range.end;
            wider.sensors == gone.sensors && is_wider && stamp <= *later
        };
        self.done.iter().any(covers)
    }

    /// Checks a record that an instance skips because the registry has it as stored.
    pub(crate) fn check_passed_over(&self, record: &Record) {
        assert!(self.is_stored(record), "skipped as stored, but it is not: {record:?}");
    }

    /// Notes a record that an instance merges at or below the floor.
    pub(crate) fn note_below(&mut self, record: &Record) {
        let was_silent = self.is_lost(record.opening) || self.forgotten.contains(&record.opening);
        assert!(was_silent, "merged at or below the floor, but its WAL was never silent: {record:?}");
        self.late.insert(record.id);
    }

    /// Returns true if the registry dropped an opening, or the one that took it over, while it held the floor.
    fn is_lost(&self, opening: u64) -> bool {
        self.lost.contains(&opening) || self.taken.get(&opening).is_some_and(|by| self.is_lost(*by))
    }

    /// Follows a change of the registry.
    pub(crate) fn note_registry(&mut self, before: &MemberRegistry, after: &MemberRegistry) {
        for gone in before.logs.iter().filter(|log| after.log(log.opening).is_none()) {
            self.forgotten.insert(gone.opening);
            if gone.takeover.is_none() {
                self.lost.insert(gone.opening);
            }
        }
        for log in &after.logs {
            if let Some(by) = log.takeover.map(|taken| taken.successor).filter(|by| *by != log.opening) {
                self.taken.insert(log.opening, by);
            }
        }
        for record in &self.records {
            if record.stamp > after.floor || self.is_stored(record) || self.late.contains(&record.id) {
                continue;
            }
            if record.deletion.is_some() && after.deletions.iter().any(|deletion| deletion.stamp == record.stamp) {
                continue;
            }
            assert!(self.is_lost(record.opening), "the floor {} passes {record:?} unflushed", after.floor);
            self.late.insert(record.id);
        }
    }

    /// Returns all logged values of a bucket's cells, in order of their stamps.
    pub(crate) fn said(&self, key: Key, names: &[&str]) -> BTreeMap<Cell, Vec<Said>> {
        let mut said: BTreeMap<Cell, Vec<Said>> = BTreeMap::new();
        for record in &self.records {
            let mut own: BTreeMap<Cell, Value> = BTreeMap::new();
            for row in record.rows.iter().filter(|row| row.key() == key) {
                let name = |field: u16| names[usize::from(field)].to_owned();
                own.extend(row.cells.iter().map(|(field, value)| ((row.time, name(*field)), value.clone())));
            }
            for (cell, value) in own {
                said.entry(cell).or_default().push(Said { record: record.clone(), value });
            }
        }
        for of_cell in said.values_mut() {
            of_cell.sort_by(|a, b| {
                let by_value = || match (a.value.is_greater(&b.value), b.value.is_greater(&a.value)) {
                    (true, _) => std::cmp::Ordering::Greater,
                    (_, true) => std::cmp::Ordering::Less,
                    _ => std::cmp::Ordering::Equal,
                };
                a.record.stamp.cmp(&b.record.stamp).then_with(by_value)
            });
        }
        said
    }

    /// Returns true if a deletion that passes a test covers a record's reading at a sensor and time.
    pub(crate) fn is_deleted(&self, of: &Record, at: (usize, i64), test: impl Fn(&Record) -> bool) -> bool {
        self.records.iter().any(|record| record.covers(at.0, at.1, of.stamp) && test(record))
    }

    /// Checks the stored cells of a bucket after the last step.
    pub(crate) fn check_final(&self, key: Key, names: &[&str], mut found: BTreeMap<Cell, Value>) {
        for (cell, said) in self.said(key, names) {
            let found = found.remove(&cell);
            let at = (key.0, cell.0);
            let is_late = |said: &&Said| self.late.contains(&said.record.id);
            let is_gone = |said: &&Said| self.is_deleted(&said.record, at, |by| !self.late.contains(&by.id));
            let is_perhaps_gone = |one: &&Said| self.is_perhaps_gone(one, &said, at);
            let winner = said.iter().rfind(|said| !is_late(said) && !is_gone(said));
            let right = |said: Option<&Said>| found.as_ref().is_some_and(|found| same(found, said.map(|s| &s.value)));
            let is_right = right(winner) || found.is_none() && winner.is_none();
            let least = winner.map_or(0, |winner| winner.record.stamp);
            // Otherwise, the store may have a late value, or a late deletion may have removed the value.
            let is_late_value = said.iter().filter(is_late).any(|late| late.record.stamp >= least && right(Some(late)));
            let is_perhaps_deleted = found.is_none() && winner.is_some_and(|winner| is_perhaps_gone(&winner));
            let is_deleted_late = winner.is_some_and(|winner| is_perhaps_gone(&winner))
                && said.iter().any(|said| !is_gone(&said) && right(Some(said)));
            assert!(
                is_right || is_late_value || is_perhaps_deleted || is_deleted_late,
                "{key:?} {cell:?}: found {found:?}, expected {:?}",
                winner.map(|winner| (&winner.value, &winner.record))
            );
            self.check_reported(key, cell.0, &said, found.as_ref());
        }
        assert!(found.is_empty(), "never written: {found:?}");
    }

    /// Checks that a late latest value is in the store, deleted, or reported.
    fn check_reported(&self, (sensor, _): Key, time: i64, said: &[Said], found: Option<&Value>) {
        let Some(last) = said.last().filter(|last| self.late.contains(&last.record.id)) else { return };
        let is_there = found.is_some_and(|found| same(found, Some(&last.value)));
        let is_deleted = self.is_deleted(&last.record, (sensor, time), |_| true);
        let is_reported = self.reported.contains(&(last.record.id, sensor, time));
        assert!(is_there || is_deleted || is_reported, "set aside and not reported: {:?}", last.record);
    }

    pub(crate) fn is_done(&self, record: &Record) -> bool {
        self.done.iter().any(|(stamp, gone)| *stamp == record.stamp && record.deletion.as_ref() == Some(gone))
    }

    /// Returns true if a late deletion may have removed a value. A deletion with a smaller stamp can do so only if an
    /// earlier record has the same value, because the store keeps that record's stamp while there is no other instance.
    pub(crate) fn is_perhaps_gone(&self, of: &Said, said: &[Said], at: (usize, i64)) -> bool {
        let is_late = |by: &Record| self.late.contains(&by.id);
        let is_same = |other: &&Said| other.record.stamp <= of.record.stamp && same(&other.value, Some(&of.value));
        said.iter().filter(is_same).any(|other| self.is_deleted(&other.record, at, is_late))
    }
}

/// Returns true if the values are identical. `0.0` and `-0.0` differ.
pub(crate) fn same(one: &Value, other: Option<&Value>) -> bool {
    other.is_some_and(|other| !one.is_greater(other) && !other.is_greater(one))
}
