//! One process of the model's world: an opening of a log, what it has in memory, and its clock.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use super::oracle::{Given, Gone, Record};
use super::store::Key;
use super::{DATABASE, names};
use crate::bucket::deletions::{Masks, Remembered, SensorTest, Understand};
use crate::bucket::packed::Packed;
use crate::bucket::registry::{Registered, Registry, settled_before};
use crate::bucket::{Bucket, Readings, UnflushedHour};
use crate::faults::{self, Bug};
use crate::ingest::agreed::{Agreed, Fate, Judge};
use crate::log::Recovery;
use crate::reading::stamp::{SETTLED, first_for};
use crate::reading::{Hour, Sensor, Stamp};

/// A log that is silent for so long holds the floor no more.
pub(super) const HORIZON_MS: u64 = 600_000;
/// An instance whose clock is further off takes no writes, and judges nobody.
const MAX_OFFSET_MS: i64 = 60_000;

/// A log's folder. It can be copied.
#[derive(Debug, Clone)]
pub(super) struct Folder {
    pub(super) log: u64,
    /// Which a copy does not share.
    pub(super) id: u64,
    pub(super) records: BTreeMap<Stamp, Rc<Record>>,
    /// Replay begins behind it.
    pub(super) released: Stamp,
    /// Segments are gone up to here.
    pub(super) gone: Stamp,
}

impl Folder {
    pub(super) fn new(log: u64) -> Self {
        Self { log, id: log, records: BTreeMap::new(), released: 0, gone: 0 }
    }

    fn last(&self) -> Stamp {
        self.records.last_key_value().map_or(0, |(stamp, _)| *stamp).max(self.released)
    }

    fn openings(&self) -> Vec<(u64, Stamp)> {
        let mut openings: Vec<(u64, Stamp)> = Vec::new();
        for (stamp, record) in self.records.range(self.gone + 1..) {
            match openings.last_mut().filter(|(opening, _)| *opening == record.opening) {
                Some((_, last)) => *last = *stamp,
                None => openings.push((record.opening, *stamp)),
            }
        }
        openings
    }
}

/// A bucket on its way to the store.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) rows: Arc<Packed>,
    pub(super) bucket: Bucket,
    /// Groups of the present round that are still to be written.
    pub(super) round: Vec<Vec<usize>>,
    pub(super) is_stale: bool,
    pub(super) from_hot: bool,
    /// Stamp and time of what is set aside.
    pub(super) set_aside: Vec<(Stamp, i64)>,
    /// Stamps and times of what is passed over as stored.
    pub(super) passed_over: Vec<Stamp>,
    /// Stamps of what was merged at or below the floor.
    pub(super) below: Vec<Stamp>,
}

/// How far a deletion has come.
#[derive(Debug)]
pub(super) struct Deleting {
    pub(super) record: Rc<Record>,
    pub(super) is_remembered: bool,
    pub(super) left: Vec<Key>,
    pub(super) bucket: Option<Bucket>,
}

/// A process.
pub(super) struct Instance {
    pub(super) folder: usize,
    pub(super) ids: (u64, u64),
    folder_id: u64,
    /// Of the folder's records when it was opened.
    last: Stamp,
    random: u8,
    /// By how much its clock is ahead.
    pub(super) offset: i64,
    pub(super) agreed: Agreed,
    next: Stamp,
    above: Stamp,
    pub(super) memtable: BTreeMap<Key, Packed>,
    pub(super) flights: BTreeMap<Key, Flight>,
    held: BTreeMap<Stamp, usize>,
    pub(super) deletions: VecDeque<Rc<Record>>,
    pub(super) deleting: Option<Deleting>,
    pub(super) hot: BTreeMap<Key, Bucket>,
    beat: u64,
    pub(super) swept: Vec<Remembered>,
    /// Records that it was told are durable.
    pub(super) own: Vec<Rc<Record>>,
}

fn understand() -> Understand {
    Arc::new(|statement: &str| {
        let keys: Vec<String> = statement.split(' ').map(str::to_owned).collect();
        let test: SensorTest = Arc::new(move |sensor: &Sensor| keys.iter().any(|key| **key == *sensor.key));
        Some(test)
    })
}

impl Instance {
    /// Opens a folder, and reads back what is not released.
    pub(super) fn open(place: usize, folder: &Folder, opening: u64, random: u8, offset: i64) -> Self {
        let recovery = Recovery {
            log: folder.log,
            opening,
            openings: folder.openings(),
            last: folder.last(),
            released: folder.released,
            damage: Vec::new(),
            unwritable: None,
        };
        let mut instance = Self {
            folder: place,
            ids: (folder.log, opening),
            folder_id: folder.id,
            last: folder.last(),
            random,
            offset,
            agreed: Agreed::new(Masks::default(), understand(), &recovery, true),
            next: folder.last() + 16,
            above: 0,
            memtable: BTreeMap::new(),
            flights: BTreeMap::new(),
            held: BTreeMap::new(),
            deletions: VecDeque::new(),
            deleting: None,
            hot: BTreeMap::new(),
            beat: 0,
            swept: Vec::new(),
            own: Vec::new(),
        };
        folder.records.range(folder.released + 1..).for_each(|(_, record)| instance.feed(record));
        instance
    }

    /// Milliseconds by its clock.
    fn now_ms(&self, now: u64) -> u64 {
        now.saturating_add_signed(self.offset)
    }

    pub(super) fn is_clock_right(&self) -> bool {
        self.offset.abs() <= MAX_OFFSET_MS
    }

    /// The stamp of the next record.
    pub(super) fn stamp(&mut self, now: u64, above: Stamp) -> Stamp {
        let floor = self.agreed.view().floor.max(self.above).max(above);
        let stamp = first_for(self.now_ms(now), self.random).max(floor + 1).max(self.next);
        self.next = stamp + 1;
        stamp
    }

    /// Takes a record of its log in.
    pub(super) fn feed(&mut self, record: &Rc<Record>) {
        self.own.push(record.clone());
        if record.deletion.is_some() {
            self.held.insert(record.stamp, 1);
            self.deletions.push_back(record.clone());
            return;
        }
        self.held.insert(record.stamp, record.rows.len());
        for Given { sensor, time, cells } in &record.rows {
            let key = (*sensor, crate::reading::Hour::of(*time).0);
            let cells = cells.iter().map(|(field, value)| (*field, value));
            self.memtable.entry(key).or_default().push(record.stamp, *time, cells);
        }
    }

    pub(super) fn let_go(&mut self, stamps: impl Iterator<Item = Stamp>) {
        for stamp in stamps {
            let held = self.held.get_mut(&stamp).expect("held until it is let go");
            *held -= 1;
            if *held == 0 {
                self.held.remove(&stamp);
            }
        }
    }

    /// Whether nothing of its log is left to be stored.
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// The first record that the log must keep.
    pub(super) fn first_held(&self) -> Option<Stamp> {
        self.held.keys().next().copied()
    }

    pub(super) fn watermark(&mut self, now: u64) -> Stamp {
        self.above = self.above.max(settled_before(self.now_ms(now)));
        let closed = self.above.max(self.next.saturating_sub(1));
        if faults::has(Bug::WatermarkIgnoresUnflushed) {
            return closed;
        }
        self.first_held().map_or(closed, |first| (first - 1).min(closed))
    }

    pub(super) fn entry(&mut self, now: u64) -> Registered {
        let watermark = self.watermark(now);
        let ((log, opening), folder, seen_ms) = (self.ids, self.folder_id, self.now_ms(now));
        Registered { opening, log, folder, watermark, beat: self.beat, seen_ms, taken: None, host: String::new() }
    }

    /// Looks at the registry and writes it anew.
    pub(super) fn beat(&mut self, registry: &mut Registry, now: u64) {
        self.beat += 1;
        self.learn(registry);
        if !self.is_clock_right() {
            return;
        }
        registry.publish(self.entry(now));
        registry.take_over(self.ids.1, self.last);
        registry.settle(self.now_ms(now), HORIZON_MS);
        registry.forget(&std::mem::take(&mut self.swept));
        registry.rev += 1;
        self.learn(registry);
    }

    pub(super) fn learn(&mut self, registry: &Registry) {
        self.agreed.learn(registry, self.ids.1, Instant::now());
    }

    /// Ends with nothing left.
    pub(super) fn leave(&mut self, registry: &mut Registry, now: u64) {
        registry.publish(self.entry(now));
        registry.take_over_self(self.ids.1);
        registry.rev += 1;
    }

    /// What its deletion is, as all are told.
    pub(super) fn remembered(record: &Record, gone: &Gone) -> Remembered {
        let keys: Vec<String> = gone.sensors.iter().map(|sensor| names().sensors[*sensor].key.to_string()).collect();
        let (stamp, database, range) = (record.stamp, DATABASE.to_owned(), gone.range.clone());
        Remembered { stamp, database, statement: Some(keys.join(" ")), range, done: false }
    }

    /// What is unflushed of a bucket, as answers lay it over the store.
    pub(super) fn unflushed(&self, key: Key) -> Readings {
        let in_flight = self.flights.get(&key).map(|flight| &*flight.rows);
        let judge = self.judge(key);
        let merged = |rows: &Packed| {
            let mut rows = rows.clone();
            rows.take_out(|time, stamp| judge.fate(time, stamp) != Fate::Merged);
            Arc::new(rows)
        };
        let packed = in_flight.into_iter().chain(self.memtable.get(&key)).map(merged);
        let fields = names().fields.as_slice().into();
        UnflushedHour::new(Hour(key.1), packed, &fields).map(|hour| hour.readings()).unwrap_or_default()
    }

    /// What is known of a bucket's unflushed readings.
    pub(super) fn judge(&self, (sensor, hour): Key) -> Judge {
        self.agreed.judge(DATABASE, &names().sensors[sensor], Hour(hour), SETTLED)
    }

    /// What is deleted of a bucket, as far as it knows.
    pub(super) fn covers(&self, (sensor, hour): Key) -> crate::bucket::deletions::Covers {
        self.agreed.covers(DATABASE, &names().sensors[sensor], Hour(hour))
    }
}
