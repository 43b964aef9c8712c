//! Writes pages and sensors, remembers which writes were acked and which were in progress, and checks what the store
//! must still hold.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use redb::Database;

use super::disk::Disk;
use crate::EmbeddedStore;
use crate::bucket::store::{BucketId, PageStore, PageWrite, SensorFilter, SensorStore, WalkStore, Written};
use crate::bucket::{Bucket, Caps, MergeOptions, Meta, Readings, Row, SensorDocument, StoredPage};
use crate::reading::{Family, Hour, Sensor, Value};

const CAPS: Caps = Caps { max_readings: 6, max_bytes: 1 << 20, hard_bytes: 4 << 20 };
const SENSORS: usize = 5;
const HOUR: Hour = Hour(491_150);

/// Contents of a page in the store.
type Kept = (u32, u64, bool, bool, Readings);

/// Contents of a bucket and of a sensor in the store.
#[derive(Debug, Clone, PartialEq)]
enum Held {
    Bucket(Vec<Kept>),
    Sensor(SensorDocument),
}

pub(super) struct History {
    disk: Disk,
    /// `None` until it is opened.
    store: Option<EmbeddedStore>,
    chance: u64,
    time: i64,
    buckets: BTreeMap<usize, Bucket>,
    sensors: BTreeMap<usize, SensorDocument>,
    /// Key: whether it is a sensor document, and the sensor.
    acked: BTreeMap<(bool, usize), Held>,
    /// The unanswered call: either all of it is in the store or nothing.
    under_way: BTreeMap<(bool, usize), Held>,
    writes: u64,
    /// How often an unanswered call had done nothing, and how often all of it.
    pub(super) unanswered: [u64; 2],
}

fn open(disk: &Disk) -> Result<EmbeddedStore, String> {
    let builder = || {
        let mut builder = Database::builder();
        // The smallest cache, so that reads reach the disk.
        builder.set_cache_size(0);
        builder
    };
    let again = disk.clone();
    // redb may panic when it opens a file that is not its own.
    let opened = catch_unwind(AssertUnwindSafe(|| builder().create_with_backend(disk.clone())));
    let database = opened.map_err(|_| "redb panicked")?.map_err(|error| format!("it does not open: {error}"))?;
    let reopen = Box::new(move || builder().create_with_backend(again.clone()));
    EmbeddedStore::over(database, reopen, Path::new("disk")).map_err(|error| error.to_string())
}

fn sensor(number: usize) -> Arc<Sensor> {
    Arc::new(Sensor::new("m", [("s", &*number.to_string())]).expect("one tag"))
}

fn id(number: usize) -> BucketId {
    BucketId { sensor: sensor(number), hour: HOUR }
}

fn stored_of(bucket: &Bucket) -> Held {
    let stored = bucket.pages().iter().filter(|page| page.rev() > 0);
    Held::Bucket(stored.map(|p| (p.number, p.rev(), p.closed, p.has_overflow, p.readings.clone())).collect())
}

impl History {
    /// A new history on a new disk, or on a copy of a disk that has an empty store.
    pub(super) fn new(disk: Disk, seed: u64) -> Self {
        let store = open(&disk).expect("a new store");
        disk.settle();
        let (buckets, sensors, acked, under_way) = Default::default();
        Self {
            disk,
            store: Some(store),
            chance: seed,
            time: 0,
            buckets,
            sensors,
            acked,
            under_way,
            writes: 0,
            unanswered: [0; 2],
        }
    }

    /// Opens the store on the disk, or makes it.
    pub(super) fn open(disk: &Disk) -> Result<EmbeddedStore, String> {
        open(disk)
    }

    /// Continues on this disk, which has the contents of the old one. The store on the old disk is dropped.
    pub(super) fn move_to(&mut self, disk: Disk) {
        self.store = None;
        self.disk = disk;
    }

    pub(super) fn disk(&self) -> &Disk {
        &self.disk
    }

    /// Number of acked writes.
    pub(super) fn acked(&self) -> u64 {
        self.writes
    }

    fn store(&self) -> &EmbeddedStore {
        self.store.as_ref().expect("the store is open between two cuts")
    }

    fn random(&mut self, below: usize) -> usize {
        self.chance = self.chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.chance >> 33).expect("31 bits") % below
    }

    /// Runs this many steps, or fewer if the power is cut.
    pub(super) async fn write(&mut self, steps: u64) -> Result<(), String> {
        for _ in 0..steps {
            let goes_on = match self.random(3) {
                0 => self.write_sensors().await?,
                _ => self.write_buckets().await?,
            };
            if !goes_on {
                break;
            }
        }
        Ok(())
    }

    /// Writes new readings, some of them corrections, for some buckets, until the store has all of them.
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
            let (time, stamp) = (HOUR.start_ns() + second * 1_000_000, self.time.unsigned_abs());
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
            self.under_way = groups.iter().map(|(n, _)| ((false, *n), stored_of(&after[n]))).collect();
            let ids: Vec<BucketId> = groups.iter().map(|(number, _)| id(*number)).collect();
            let writes = groups.iter().zip(&ids);
            let writes: Vec<PageWrite<'_>> = writes
                .map(|((number, group), id)| PageWrite { id, bucket: &self.buckets[number], group: group.clone() })
                .collect();
            let outcomes = self.store().write_pages("db", &writes).await;
            if !self.is_acked(&outcomes)? {
                return Ok(false);
            }
            self.buckets = after;
        }
    }

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
            meta: Meta::default(),
        };
        let mut document = self.sensors.get(&number).cloned().unwrap_or_else(new);
        document.last_seen = Some(self.time * 1_000_000);
        let after = SensorDocument { rev: document.rev + 1, ..document.clone() };
        self.under_way = BTreeMap::from([((true, number), Held::Sensor(after.clone()))]);
        let outcomes = self.store().write_sensors("db", &[document]).await;
        let acked = self.is_acked(&outcomes)?;
        if acked {
            self.sensors.insert(number, after);
        }
        Ok(acked)
    }

    /// Whether the call was acked as a whole; if so it is no longer in progress.
    fn is_acked(&mut self, outcomes: &[Written]) -> Result<bool, String> {
        if outcomes.contains(&Written::Conflict) {
            return Err(format!("a conflict without anybody else: {outcomes:?}"));
        }
        if outcomes.iter().any(|outcome| *outcome != Written::Yes) {
            return Ok(false);
        }
        self.writes += outcomes.len() as u64;
        self.acked.append(&mut self.under_way);
        Ok(true)
    }

    /// Cuts the power now, unless it is cut already, and opens the store on what is left.
    pub(super) async fn after_cut(mut self, seed: u64) -> Result<Self, String> {
        let disk = self.disk.after_cut(seed);
        // The old process must not touch what is left.
        drop(self.store.take());
        self.store = Some(open(&disk)?);
        self.disk = disk;
        self.check().await?;
        for number in 0..SENSORS {
            let pages = self.read(number).await?;
            self.buckets.insert(number, Bucket::from_stored(pages));
            match self.acked.get(&(true, number)) {
                Some(Held::Sensor(document)) => drop(self.sensors.insert(number, document.clone())),
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

    async fn held(&self) -> Result<BTreeMap<(bool, usize), Held>, String> {
        let mut held = BTreeMap::new();
        for number in 0..SENSORS {
            let pages = self.read(number).await?;
            let kept = pages.into_iter().map(|p| (p.number, p.rev, p.closed, p.has_overflow, p.readings));
            let kept: Vec<Kept> = kept.collect();
            if !kept.is_empty() {
                held.insert((false, number), Held::Bucket(kept));
            }
        }
        let filter = SensorFilter { limit: 100, ..SensorFilter::default() };
        for document in self.store().list_sensors("db", &filter).await.map_err(|error| error.to_string())? {
            let number = (0..SENSORS).find(|number| sensor(*number) == document.sensor);
            held.insert((true, number.ok_or("a sensor nobody wrote")?), Held::Sensor(document));
        }
        Ok(held)
    }

    /// Checks that acked writes are there with their last value, the call in progress wholly or not at all (which is
    /// known from then on), and nothing else; and that everything is readable.
    pub(super) async fn check(&mut self) -> Result<(), String> {
        let walked = self.store().walk_buckets("db", None, 10_000).await.map_err(|error| error.to_string())?;
        if let Some(error) = walked.found.iter().flat_map(|bucket| &bucket.pages).find_map(|page| page.as_ref().err()) {
            return Err(error.to_string());
        }
        let held = self.held().await?;
        let mut with = self.acked.clone();
        let unanswered = !self.under_way.is_empty();
        with.extend(std::mem::take(&mut self.under_way));
        if held != self.acked && held != with {
            let keys = held.keys().chain(with.keys());
            let wrong = keys.filter(|key| held.get(key) != self.acked.get(key) && held.get(key) != with.get(key));
            return Err(format!(
                "of (sensor, number) {:?} something else is there, or a part",
                wrong.collect::<Vec<_>>()
            ));
        }
        if unanswered {
            self.unanswered[usize::from(held == with)] += 1;
        }
        self.acked = held;
        Ok(())
    }
}
