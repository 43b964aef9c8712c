//! Writes pages and sensors, records the acked writes and the one in progress, and checks that the store still has them.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use redb::Database;

use super::disk::Disk;
use crate::EmbeddedStore;
use crate::bucket::store::{BucketId, PageStore, PageWrite, SensorFilter, SensorStore, WalkStore, WriteOutcome};
use crate::bucket::{Bucket, Caps, MergeOptions, Meta, Page, Readings, Row, SensorDocument, StoredPage};
use crate::reading::{Family, Hour, Sensor, Value};

const CAPS: Caps = Caps { max_readings: 6, max_bytes: 1 << 20, hard_bytes: 4 << 20 };
const SENSORS: usize = 5;
const HOUR: Hour = Hour(491_150);

/// A stored page.
#[derive(Debug, Clone, PartialEq)]
struct PageContents {
    number: u32,
    rev: u64,
    closed: bool,
    has_overflow: bool,
    readings: Readings,
}

/// The key of a bucket or a sensor document, by the number of its sensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ItemKey {
    Bucket(usize),
    Sensor(usize),
}

/// A stored bucket or sensor document.
#[derive(Debug, Clone, PartialEq)]
enum Item {
    Bucket(Vec<PageContents>),
    Sensor(SensorDocument),
}

/// The effects of calls that the power cut left unanswered.
#[derive(Debug, Default)]
pub(super) struct UnansweredCalls {
    pub(super) not_applied: u64,
    pub(super) applied: u64,
}

impl UnansweredCalls {
    pub(super) fn add(&mut self, other: &Self) {
        self.not_applied += other.not_applied;
        self.applied += other.applied;
    }
}

/// A store under test, and the writes so far.
pub(super) struct History {
    disk: Disk,
    /// `None` between a cut and the next opening.
    store: Option<EmbeddedStore>,
    random_state: u64,
    time: i64,
    buckets: BTreeMap<usize, Bucket>,
    sensors: BTreeMap<usize, SensorDocument>,
    acked: BTreeMap<ItemKey, Item>,
    /// The writes of the unanswered call. The store has all of them or none.
    in_progress: BTreeMap<ItemKey, Item>,
    /// Number of acked writes.
    writes: u64,
    pub(super) unanswered: UnansweredCalls,
}

fn open(disk: &Disk) -> Result<EmbeddedStore, String> {
    let builder = || {
        let mut builder = Database::builder();
        // The smallest cache, so that reads reach the disk.
        builder.set_cache_size(0);
        builder
    };
    let reopened_disk = disk.clone();
    // redb may panic when it opens an invalid file.
    let opened = catch_unwind(AssertUnwindSafe(|| builder().create_with_backend(disk.clone())));
    let database = opened.map_err(|_| "redb panicked")?.map_err(|error| format!("it does not open: {error}"))?;
    let reopen = Box::new(move || builder().create_with_backend(reopened_disk.clone()));
    EmbeddedStore::from_database(database, reopen, Path::new("disk")).map_err(|error| error.to_string())
}

fn sensor(number: usize) -> Arc<Sensor> {
    Arc::new(Sensor::new("m", [("s", &*number.to_string())]).expect("one tag"))
}

fn id(number: usize) -> BucketId {
    BucketId { sensor: sensor(number), hour: HOUR }
}

/// Returns the pages of a bucket that are stored.
fn stored_item(bucket: &Bucket) -> Item {
    let contents = |page: &Page| PageContents {
        number: page.number,
        rev: page.rev(),
        closed: page.closed,
        has_overflow: page.has_overflow,
        readings: page.readings.clone(),
    };
    let stored = bucket.pages().iter().filter(|page| page.rev() > 0);
    Item::Bucket(stored.map(contents).collect())
}

impl History {
    /// Returns a new history on a disk that is empty or has an empty store.
    pub(super) fn new(disk: Disk, seed: u64) -> Self {
        let store = open(&disk).expect("a new store");
        disk.settle();
        Self {
            disk,
            store: Some(store),
            random_state: seed,
            time: 0,
            buckets: BTreeMap::new(),
            sensors: BTreeMap::new(),
            acked: BTreeMap::new(),
            in_progress: BTreeMap::new(),
            writes: 0,
            unanswered: UnansweredCalls::default(),
        }
    }

    /// Opens the store on the disk, or creates it.
    pub(super) fn open(disk: &Disk) -> Result<EmbeddedStore, String> {
        open(disk)
    }

    /// Drops the store and continues on this disk, which has the contents of the old one.
    pub(super) fn move_to(&mut self, disk: Disk) {
        self.store = None;
        self.disk = disk;
    }

    pub(super) fn disk(&self) -> &Disk {
        &self.disk
    }

    /// Returns the number of acked writes.
    pub(super) fn acked(&self) -> u64 {
        self.writes
    }

    fn store(&self) -> &EmbeddedStore {
        self.store.as_ref().expect("the store is open between cuts")
    }

    fn random(&mut self, below: usize) -> usize {
        self.random_state =
            self.random_state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.random_state >> 33).expect("31 bits") % below
    }

    /// Runs this many steps, or fewer if the power is cut.
    pub(super) async fn write(&mut self, steps: u64) -> Result<(), String> {
        for _ in 0..steps {
            let is_acked = if self.random(3) == 0 { self.write_sensors().await? } else { self.write_buckets().await? };
            if !is_acked {
                break;
            }
        }
        Ok(())
    }

    /// Adds readings to some buckets, some of them corrections, and writes all of them. Returns false if the power was cut.
    async fn write_buckets(&mut self) -> Result<bool, String> {
        let mut numbers: Vec<usize> = (0..=self.random(3)).map(|_| self.random(SENSORS)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        for number in &numbers {
            let text = "x".repeat(self.random(3000));
            self.time += 1;
            let second = if self.random(4) == 0 { 0 } else { self.time };
            let names = [Arc::from("text"), Arc::from("n")];
            let cells = [(0, Value::String(text.into())), (1, Value::Integer(self.time))];
            let time = HOUR.start_ns() + second * 1_000_000;
            let stamp = self.time.unsigned_abs();
            let row = Row { time, stamp, names: &names, cells: &cells };
            self.buckets
                .entry(*number)
                .or_default()
                .apply([row].into_iter(), &MergeOptions { caps: &CAPS, floor: 0, restamps: false });
        }
        loop {
            let groups: Vec<(usize, Vec<usize>)> = numbers
                .iter()
                .flat_map(|number| self.buckets[number].next_writes().into_iter().map(|group| (*number, group)))
                .collect();
            if groups.is_empty() {
                return Ok(true);
            }
            let mut after = self.buckets.clone();
            for (number, group) in &groups {
                if let Some(bucket) = after.get_mut(number) {
                    bucket.mark_written(group);
                }
            }
            self.in_progress =
                groups.iter().map(|(number, _)| (ItemKey::Bucket(*number), stored_item(&after[number]))).collect();
            let ids: Vec<BucketId> = groups.iter().map(|(number, _)| id(*number)).collect();
            let writes = groups.iter().zip(&ids);
            let writes: Vec<PageWrite<'_>> = writes
                .map(|((number, group), id)| PageWrite { id, bucket: &self.buckets[number], group: group.clone() })
                .collect();
            let outcomes = self.store().write_pages("db", &writes).await;
            if !self.record_outcomes(&outcomes)? {
                return Ok(false);
            }
            self.buckets = after;
        }
    }

    /// Writes a sensor document. Returns false if the power was cut.
    async fn write_sensors(&mut self) -> Result<bool, String> {
        let number = self.random(SENSORS);
        self.time += 1;
        let new = || SensorDocument {
            sensor: sensor(number),
            rev: 0,
            fields: vec![(Arc::from("n"), Family::Number)],
            first_seen: None,
            last_seen: None,
            recent: Vec::new(),
            outlier: None,
            lifetime: None,
            meta: Meta::default(),
        };
        let mut document = self.sensors.get(&number).cloned().unwrap_or_else(new);
        document.last_seen = Some(self.time * 1_000_000);
        let after = SensorDocument { rev: document.rev + 1, ..document.clone() };
        self.in_progress = BTreeMap::from([(ItemKey::Sensor(number), Item::Sensor(after.clone()))]);
        let outcomes = self.store().write_sensors("db", &[document]).await;
        let is_acked = self.record_outcomes(&outcomes)?;
        if is_acked {
            self.sensors.insert(number, after);
        }
        Ok(is_acked)
    }

    /// Returns true if all writes of the call in progress were acked, and records them as such.
    fn record_outcomes(&mut self, outcomes: &[WriteOutcome]) -> Result<bool, String> {
        if outcomes.contains(&WriteOutcome::Conflict) {
            return Err(format!("a conflict without another writer: {outcomes:?}"));
        }
        if outcomes.iter().any(|outcome| *outcome != WriteOutcome::Applied) {
            return Ok(false);
        }
        self.writes += outcomes.len() as u64;
        self.acked.append(&mut self.in_progress);
        Ok(true)
    }

    /// Cuts the power unless it is cut already, and opens the store on the surviving contents.
    pub(super) async fn after_cut(mut self, seed: u64) -> Result<Self, String> {
        let disk = self.disk.after_cut(seed);
        // Drop the old store first, because its last writes belong to the time before the cut.
        drop(self.store.take());
        self.store = Some(open(&disk)?);
        self.disk = disk;
        self.check().await?;
        for number in 0..SENSORS {
            let pages = self.read(number).await?;
            self.buckets.insert(number, Bucket::from_stored(pages));
            match self.acked.get(&ItemKey::Sensor(number)) {
                Some(Item::Sensor(document)) => drop(self.sensors.insert(number, document.clone())),
                _ => drop(self.sensors.remove(&number)),
            }
        }
        Ok(self)
    }

    async fn read(&self, number: usize) -> Result<Vec<StoredPage>, String> {
        let mut read =
            self.store().read_buckets("db", &[id(number)], usize::MAX).await.map_err(|error| error.to_string())?;
        Ok(read.pop().unwrap_or_default())
    }

    /// Reads all buckets and sensor documents of the store.
    async fn read_all(&self) -> Result<BTreeMap<ItemKey, Item>, String> {
        let mut held = BTreeMap::new();
        for number in 0..SENSORS {
            let pages = self.read(number).await?;
            let contents = |page: StoredPage| PageContents {
                number: page.number,
                rev: page.rev,
                closed: page.closed,
                has_overflow: page.has_overflow,
                readings: page.readings,
            };
            if !pages.is_empty() {
                held.insert(ItemKey::Bucket(number), Item::Bucket(pages.into_iter().map(contents).collect()));
            }
        }
        let filter = SensorFilter { limit: 100, ..SensorFilter::default() };
        for document in self.store().list_sensors("db", &filter).await.map_err(|error| error.to_string())? {
            let number = (0..SENSORS).find(|number| sensor(*number) == document.sensor);
            let number = number.ok_or("an unknown sensor")?;
            held.insert(ItemKey::Sensor(number), Item::Sensor(document));
        }
        Ok(held)
    }

    /// Checks that the store is readable and has the acked writes with their last value, all or none of the writes in
    /// progress, and nothing else. Afterwards, the stored items count as acked.
    pub(super) async fn check(&mut self) -> Result<(), String> {
        let walked = self.store().walk_buckets("db", None, 10_000).await.map_err(|error| error.to_string())?;
        if let Some(error) = walked.found.iter().flat_map(|bucket| &bucket.pages).find_map(|page| page.as_ref().err()) {
            return Err(error.to_string());
        }
        let held = self.read_all().await?;
        let is_unanswered = !self.in_progress.is_empty();
        let mut all = self.acked.clone();
        all.extend(std::mem::take(&mut self.in_progress));
        if held != self.acked && held != all {
            let is_wrong = |key: &&ItemKey| held.get(key) != self.acked.get(key) && held.get(key) != all.get(key);
            let wrong: Vec<_> = held.keys().chain(all.keys()).filter(is_wrong).collect();
            return Err(format!("{wrong:?} have wrong values, or the call in progress is partly applied"));
        }
        if is_unanswered && held == all {
            self.unanswered.applied += 1;
        } else if is_unanswered {
            self.unanswered.not_applied += 1;
        }
        self.acked = held;
        Ok(())
    }
}
