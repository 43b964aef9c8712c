//! One process of the model: an opening of a WAL, its state in memory, and its clock.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use super::oracle::{DeletedRange, Record, SentReading};
use super::store::Key;
use super::{DATABASE, names};
use crate::bucket::deletions::{Masks, RememberedDeletion, SensorTest, StatementCompiler};
use crate::bucket::packed::PackedRows;
use crate::bucket::registry::{MemberRegistry, RegistryEntry, settled_before};
use crate::bucket::{Bucket, Readings, UnflushedHour};
use crate::members::registry_view::{Fate, ReadingFates, RegistryView};
use crate::reading::stamp::{SETTLED, opening_stamp};
use crate::reading::{Hour, Sensor, Stamp};
use crate::wal::Recovery;

/// The silence after which a WAL no longer holds the floor.
pub(crate) const HORIZON_MS: u64 = 600_000;
/// The clock offset beyond which an instance accepts no writes and does not write the registry.
const MAX_OFFSET_MS: i64 = 60_000;

/// A WAL's folder. It can be copied.
#[derive(Debug, Clone)]
pub(crate) struct Folder {
    pub(crate) log: u64,
    /// A copy gets another one.
    pub(crate) id: u64,
    pub(crate) records: BTreeMap<Stamp, Rc<Record>>,
    /// Replay starts after it.
    pub(crate) truncated: Stamp,
    /// Segments up to here are removed.
    pub(crate) cut_off: Stamp,
}

impl Folder {
    pub(crate) fn new(log: u64) -> Self {
        Self { log, id: log, records: BTreeMap::new(), truncated: 0, cut_off: 0 }
    }

    fn last(&self) -> Stamp {
        self.records.last_key_value().map_or(0, |(stamp, _)| *stamp).max(self.truncated)
    }

    fn openings(&self) -> Vec<(u64, Stamp)> {
        let mut openings: Vec<(u64, Stamp)> = Vec::new();
        for (stamp, record) in self.records.range(self.cut_off + 1..) {
            match openings.last_mut().filter(|(opening, _)| *opening == record.opening) {
                Some((_, last)) => *last = *stamp,
                None => openings.push((record.opening, *stamp)),
            }
        }
        openings
    }
}

/// A bucket in flush.
#[derive(Debug)]
pub(crate) struct LawFlush {
    pub(crate) rows: Arc<PackedRows>,
    pub(crate) bucket: Bucket,
    /// Groups of the current round that are not written yet.
    pub(crate) round: Vec<Vec<usize>>,
    pub(crate) is_stale: bool,
    pub(crate) is_from_cache: bool,
    /// Stamp and time of each reading that is set aside.
    pub(crate) set_aside: Vec<(Stamp, i64)>,
    /// Stamps of the readings that are skipped as stored.
    pub(crate) passed_over: Vec<Stamp>,
    /// Stamps of the readings that were merged at or below the floor.
    pub(crate) below: Vec<Stamp>,
}

/// A deletion whose readings are left out of the instance's memory, and of the buckets that are not `left`.
#[derive(Debug)]
pub(crate) struct RunningDeletion {
    pub(crate) record: Rc<Record>,
    pub(crate) left: Vec<Key>,
    pub(crate) bucket: Option<Bucket>,
}

pub(crate) struct Instance {
    pub(crate) folder: usize,
    pub(crate) wal_id: u64,
    pub(crate) opening: u64,
    folder_id: u64,
    /// The folder's last record when it was opened.
    last: Stamp,
    random: u8,
    /// The lead of its clock, in milliseconds.
    pub(crate) offset: i64,
    pub(crate) registry_view: RegistryView,
    next: Stamp,
    above: Stamp,
    pub(crate) memtable: BTreeMap<Key, PackedRows>,
    pub(crate) flushes: BTreeMap<Key, LawFlush>,
    held: BTreeMap<Stamp, usize>,
    pub(crate) deletions: VecDeque<Rc<Record>>,
    /// The first of `deletions`, while no flush is running.
    pub(crate) deleting: Option<RunningDeletion>,
    /// Remembered deletions whose readings are not removed from the store yet.
    pub(crate) removals: VecDeque<RunningDeletion>,
    pub(crate) cache: BTreeMap<Key, Bucket>,
    beat: u64,
    pub(crate) swept: Vec<RememberedDeletion>,
    /// Records of its WAL, all durable.
    pub(crate) own: Vec<Rc<Record>>,
}

fn compiler() -> StatementCompiler {
    Arc::new(|statement: &str| {
        let keys: Vec<String> = statement.split(' ').map(str::to_owned).collect();
        let test: SensorTest = Arc::new(move |sensor: &Sensor| keys.iter().any(|key| **key == *sensor.key));
        Some(test)
    })
}

impl Instance {
    /// Opens a folder, and replays the records that are not truncated.
    pub(crate) fn open(place: usize, folder: &Folder, opening: u64, random: u8, offset: i64) -> Self {
        let recovery = Recovery {
            log: folder.log,
            opening,
            openings: folder.openings(),
            last: folder.last(),
            truncated: folder.truncated,
            damage: Vec::new(),
            unwritable: None,
        };
        let mut instance = Self {
            folder: place,
            wal_id: folder.log,
            opening,
            folder_id: folder.id,
            last: folder.last(),
            random,
            offset,
            registry_view: RegistryView::new(Masks::default(), compiler(), &recovery, true),
            next: folder.last() + 16,
            above: 0,
            memtable: BTreeMap::new(),
            flushes: BTreeMap::new(),
            held: BTreeMap::new(),
            deletions: VecDeque::new(),
            deleting: None,
            removals: VecDeque::new(),
            cache: BTreeMap::new(),
            beat: 0,
            swept: Vec::new(),
            own: Vec::new(),
        };
        folder.records.range(folder.truncated + 1..).for_each(|(_, record)| instance.dispatch(record));
        instance
    }

    /// Its clock, in milliseconds.
    fn now_ms(&self, now: u64) -> u64 {
        now.saturating_add_signed(self.offset)
    }

    pub(crate) fn is_clock_right(&self) -> bool {
        self.offset.abs() <= MAX_OFFSET_MS
    }

    /// The stamp of the next record.
    pub(crate) fn stamp(&mut self, now: u64, above: Stamp) -> Stamp {
        let floor = self.registry_view.view().floor.max(self.above).max(above);
        let stamp = opening_stamp(self.now_ms(now), self.random).max(floor + 1).max(self.next);
        self.next = stamp + 1;
        stamp
    }

    /// Takes in a record of its WAL.
    pub(crate) fn dispatch(&mut self, record: &Rc<Record>) {
        self.own.push(record.clone());
        if record.deletion.is_some() {
            self.held.insert(record.stamp, 1);
            self.deletions.push_back(record.clone());
            return;
        }
        self.held.insert(record.stamp, record.rows.len());
        for SentReading { sensor, time, cells } in &record.rows {
            let key = (*sensor, crate::reading::Hour::from_ns(*time).0);
            let cells = cells.iter().map(|(field, value)| (*field, value));
            self.memtable.entry(key).or_default().push(record.stamp, *time, cells);
        }
    }

    pub(crate) fn release(&mut self, stamps: impl Iterator<Item = Stamp>) {
        for stamp in stamps {
            let held = self.held.get_mut(&stamp).expect("each reading is let go once");
            *held -= 1;
            if *held == 0 {
                self.held.remove(&stamp);
            }
        }
    }

    /// Returns true if everything in its WAL is stored.
    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// The first record that the WAL must keep.
    pub(crate) fn first_held(&self) -> Option<Stamp> {
        self.held.keys().next().copied()
    }

    pub(crate) fn watermark(&mut self, now: u64) -> Stamp {
        self.above = self.above.max(settled_before(self.now_ms(now)));
        let closed = self.above.max(self.next.saturating_sub(1));
        self.first_held().map_or(closed, |first| (first - 1).min(closed))
    }

    pub(crate) fn entry(&mut self, now: u64) -> RegistryEntry {
        RegistryEntry {
            opening: self.opening,
            log: self.wal_id,
            folder: self.folder_id,
            watermark: self.watermark(now),
            beat: self.beat,
            seen_ms: self.now_ms(now),
            takeover: None,
            host: String::new(),
            peer: None,
        }
    }

    /// Reads the registry, and writes it back updated.
    pub(crate) fn beat(&mut self, registry: &mut MemberRegistry, now: u64) {
        self.beat += 1;
        self.adopt(registry);
        if !self.is_clock_right() {
            return;
        }
        registry.publish(self.entry(now));
        registry.take_over(self.opening, self.last);
        registry.settle(self.now_ms(now), HORIZON_MS);
        registry.forget(&std::mem::take(&mut self.swept));
        registry.rev += 1;
        self.adopt(registry);
    }

    pub(crate) fn adopt(&mut self, registry: &MemberRegistry) {
        self.registry_view.adopt(registry, self.opening, Instant::now());
    }

    /// Leaves the registry with nothing left to store.
    pub(crate) fn leave(&mut self, registry: &mut MemberRegistry, now: u64) {
        registry.publish(self.entry(now));
        registry.take_over_self(self.opening);
        registry.rev += 1;
    }

    /// A deletion as the registry remembers it.
    pub(crate) fn registry_entry(record: &Record, deleted: &DeletedRange) -> RememberedDeletion {
        let keys: Vec<String> = deleted.sensors.iter().map(|sensor| names().sensors[*sensor].key.to_string()).collect();
        RememberedDeletion {
            stamp: record.stamp,
            database: DATABASE.to_owned(),
            statement: Some(keys.join(" ")),
            range: deleted.range.clone(),
            done: false,
        }
    }

    /// A bucket's unflushed readings, as answers merge them onto the store.
    pub(crate) fn unflushed(&self, key: Key) -> Readings {
        let in_flush = self.flushes.get(&key).map(|flush| &*flush.rows);
        let fates = self.fates(key);
        let merged = |rows: &PackedRows| {
            let mut rows = rows.clone();
            rows.take_out(|time, stamp| fates.fate(time, stamp) != Fate::Merged);
            Arc::new(rows)
        };
        let packed = in_flush.into_iter().chain(self.memtable.get(&key)).map(merged);
        let fields = names().fields.as_slice().into();
        UnflushedHour::new(Hour(key.1), packed, &fields).map(|hour| hour.readings()).unwrap_or_default()
    }

    /// Returns the rules for a bucket's unflushed readings.
    pub(crate) fn fates(&self, (sensor, hour): Key) -> ReadingFates {
        self.registry_view.fates(DATABASE, &names().sensors[sensor], Hour(hour), SETTLED)
    }

    /// Returns the deletions of a bucket that the instance knows.
    pub(crate) fn covers(&self, (sensor, hour): Key) -> crate::bucket::deletions::Covers {
        self.registry_view.covers(DATABASE, &names().sensors[sensor], Hour(hour))
    }
}
