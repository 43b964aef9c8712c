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
    pub(crate) rows: Vec<SentReading>,
    pub(crate) deletion: Option<DeletedRange>,
}

/// A reading as a client sends it: sensor, time, and fields by number.
#[derive(Debug, Clone)]
pub(crate) struct SentReading {
    pub(crate) sensor: usize,
    pub(crate) time: i64,
    pub(crate) cells: Vec<(u16, Value)>,
}

/// The sensors and times that a deletion covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeletedRange {
    pub(crate) sensors: Vec<usize>,
    pub(crate) range: Range<i64>,
}

impl SentReading {
    pub(crate) fn key(&self) -> Key {
        (self.sensor, Hour::from_ns(self.time).0)
    }
}

impl Record {
    fn covers(&self, sensor: usize, time: i64, stamp: Stamp) -> bool {
        let contains = |deleted: &DeletedRange| deleted.sensors.contains(&sensor) && deleted.range.contains(&time);
        stamp < self.stamp && self.deletion.as_ref().is_some_and(contains)
    }
}

/// A value that a record has written to a cell.
pub(crate) struct WrittenValue {
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
    done: Vec<(Stamp, DeletedRange)>,
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
    pub(crate) fn log(
        &mut self,
        stamp: Stamp,
        opening: u64,
        rows: Vec<SentReading>,
        deletion: Option<DeletedRange>,
    ) -> Rc<Record> {
        let record = Rc::new(Record { id: self.records.len(), stamp, opening, rows, deletion });
        self.records.push(record.clone());
        record
    }

    pub(crate) fn note_stored(&mut self, record: &Record, sensor: usize, time: i64) {
        self.stored.insert((record.id, sensor, time));
    }

    pub(crate) fn note_done(&mut self, record: &Record) {
        self.done.extend(record.deletion.clone().map(|deleted| (record.stamp, deleted)));
    }

    /// Returns true if a record is completely in the store.
    pub(crate) fn is_stored(&self, record: &Record) -> bool {
        let is_stored = |row: &SentReading| self.stored.contains(&(record.id, row.sensor, row.time));
        record.rows.iter().all(is_stored)
            && record.deletion.as_ref().is_none_or(|deleted| self.is_covered(record.stamp, deleted))
    }

    /// Returns true if a deletion was carried out, or a later one of the same sensors that covers it.
    fn is_covered(&self, stamp: Stamp, deleted: &DeletedRange) -> bool {
        let covers = |(later, wider): &(Stamp, DeletedRange)| {
            let is_wider = wider.range.start <= deleted.range.start && deleted.range.end <= wider.range.end;
            wider.sensors == deleted.sensors && is_wider && stamp <= *later
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
        self.lost.contains(&opening) || self.taken.get(&opening).is_some_and(|taker| self.is_lost(*taker))
    }

    /// Follows a change of the registry.
    pub(crate) fn note_registry(&mut self, before: &MemberRegistry, after: &MemberRegistry) {
        for dropped in before.logs.iter().filter(|log| after.log(log.opening).is_none()) {
            self.forgotten.insert(dropped.opening);
            if dropped.takeover.is_none() {
                self.lost.insert(dropped.opening);
            }
        }
        for log in &after.logs {
            if let Some(taker) = log.takeover.map(|takeover| takeover.successor).filter(|taker| *taker != log.opening) {
                self.taken.insert(log.opening, taker);
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
    pub(crate) fn written_values(&self, key: Key, names: &[&str]) -> BTreeMap<Cell, Vec<WrittenValue>> {
        let mut written: BTreeMap<Cell, Vec<WrittenValue>> = BTreeMap::new();
        for record in &self.records {
            let mut own: BTreeMap<Cell, Value> = BTreeMap::new();
            for row in record.rows.iter().filter(|row| row.key() == key) {
                let name = |field: u16| names[usize::from(field)].to_owned();
                own.extend(row.cells.iter().map(|(field, value)| ((row.time, name(*field)), value.clone())));
            }
            for (cell, value) in own {
                written.entry(cell).or_default().push(WrittenValue { record: record.clone(), value });
            }
        }
        for values in written.values_mut() {
            values.sort_by(|a, b| {
                let by_value = || match (a.value.is_greater(&b.value), b.value.is_greater(&a.value)) {
                    (true, _) => std::cmp::Ordering::Greater,
                    (_, true) => std::cmp::Ordering::Less,
                    _ => std::cmp::Ordering::Equal,
                };
                a.record.stamp.cmp(&b.record.stamp).then_with(by_value)
            });
        }
        written
    }

    /// Returns true if a deletion that passes a test covers a record's reading at a sensor and time.
    pub(crate) fn is_deleted(&self, record: &Record, sensor: usize, time: i64, test: impl Fn(&Record) -> bool) -> bool {
        self.records.iter().any(|deletion| deletion.covers(sensor, time, record.stamp) && test(deletion))
    }

    /// Checks the stored cells of a bucket after the last step.
    pub(crate) fn check_final(&self, key: Key, names: &[&str], mut found: BTreeMap<Cell, Value>) {
        let (sensor, _) = key;
        for (cell, values) in self.written_values(key, names) {
            let found = found.remove(&cell);
            let (time, _) = cell;
            let is_late = |written: &&WrittenValue| self.late.contains(&written.record.id);
            let is_punctual = |deletion: &Record| !self.late.contains(&deletion.id);
            let is_deleted = |written: &&WrittenValue| self.is_deleted(&written.record, sensor, time, is_punctual);
            let can_be_deleted = |written: &&WrittenValue| self.can_be_deleted(written, &values, sensor, time);
            let winner = values.iter().rfind(|written| !is_late(written) && !is_deleted(written));
            let is_found = |written: Option<&WrittenValue>| {
                found.as_ref().is_some_and(|found| same(found, written.map(|written| &written.value)))
            };
            let is_right = is_found(winner) || found.is_none() && winner.is_none();
            let least = winner.map_or(0, |winner| winner.record.stamp);
            // Otherwise, the store may have a late value, or a late deletion may have removed the value.
            let is_late_value =
                values.iter().filter(is_late).any(|late| late.record.stamp >= least && is_found(Some(late)));
            let is_perhaps_deleted = found.is_none() && winner.is_some_and(|winner| can_be_deleted(&winner));
            let is_deleted_late = winner.is_some_and(|winner| can_be_deleted(&winner))
                && values.iter().any(|written| !is_deleted(&written) && is_found(Some(written)));
            assert!(
                is_right || is_late_value || is_perhaps_deleted || is_deleted_late,
                "{key:?} {cell:?}: found {found:?}, expected {:?}",
                winner.map(|winner| (&winner.value, &winner.record))
            );
            self.check_reported(key, time, &values, found.as_ref());
        }
        assert!(found.is_empty(), "never written: {found:?}");
    }

    /// Checks that a late latest value is in the store, deleted, or reported.
    fn check_reported(&self, key: Key, time: i64, values: &[WrittenValue], found: Option<&Value>) {
        let (sensor, _) = key;
        let Some(last) = values.last().filter(|last| self.late.contains(&last.record.id)) else { return };
        let is_stored = found.is_some_and(|found| same(found, Some(&last.value)));
        let is_deleted = self.is_deleted(&last.record, sensor, time, |_| true);
        let is_reported = self.reported.contains(&(last.record.id, sensor, time));
        assert!(is_stored || is_deleted || is_reported, "set aside and not reported: {:?}", last.record);
    }

    pub(crate) fn is_done(&self, record: &Record) -> bool {
        self.done.iter().any(|(stamp, deleted)| *stamp == record.stamp && record.deletion.as_ref() == Some(deleted))
    }

    /// Returns true if a late deletion may have removed a value. A deletion with a smaller stamp can do so only if an
    /// earlier record has the same value: without other instances, an equal value keeps the stamp of that record.
    pub(crate) fn can_be_deleted(&self, value: &WrittenValue, all: &[WrittenValue], sensor: usize, time: i64) -> bool {
        let is_late = |deletion: &Record| self.late.contains(&deletion.id);
        let is_same =
            |other: &&WrittenValue| other.record.stamp <= value.record.stamp && same(&other.value, Some(&value.value));
        all.iter().filter(is_same).any(|other| self.is_deleted(&other.record, sensor, time, is_late))
    }
}

/// Returns true if the values are identical. `0.0` and `-0.0` differ.
pub(crate) fn same(one: &Value, other: Option<&Value>) -> bool {
    other.is_some_and(|other| !one.is_greater(other) && !other.is_greater(one))
}
