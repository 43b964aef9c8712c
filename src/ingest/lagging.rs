//! Sensor documents that lag behind the pages: brought up to date now and then with first and last
//! seen, recent readings and the outlier mark, always by compare-and-set and by the law.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::catalog::{Database, KnownSensor};
use super::deletion::ALL_HOURS;
use super::flight::Run;
use super::outliers::expire;
use super::progress::{Hold, Ticket};
use super::reads::{read_buckets_each, read_sensors_each};
use super::sensors::{ATTEMPTS_MAX, add_fields, new_document};
use crate::bucket::hot::HotBuckets;
use crate::bucket::readings::reading_bytes;
use crate::bucket::store::{BucketId, Outlier, Written};
use crate::bucket::{Bucket, Reading, SensorDocument, StorageError, Store};
use crate::reading::Hour;
use crate::reading::time::MILLI_NS;
use crate::telemetry::Metrics;

/// How many documents are brought up to date at a time.
const BATCH: usize = 500;
/// How long a database whose documents could not be written waits before they are tried again.
const PUT_OFF: Duration = Duration::from_secs(2);
/// How many buckets are read back at a time for their latest readings. They may be large.
const COLD_LOT: usize = 32;
/// Most stored bytes of a document's recent readings, far below what a document may have.
const RECENT_BYTES: usize = 1024 * 1024;

/// How long after a failure of its own a document is tried again, at first and at most.
const RETRY: Range<Duration> = Duration::from_secs(1)..Duration::from_secs(300);

/// Where a shard's sensors live: what the work on their documents needs beside them.
#[derive(Clone, Copy)]
pub struct Surroundings<'a> {
    /// Where the documents are.
    pub store: &'a dyn Store,
    /// The same store with what deletions hide of it.
    pub raw: &'a dyn Store,
    /// The shard's hot buckets.
    pub hot: &'a HotBuckets,
    /// Counters.
    pub metrics: &'a Metrics,
    /// The clock, in nanoseconds.
    pub now: i64,
}

/// What became of a sensor since its document was last written.
#[derive(Debug)]
pub struct Change {
    known: Arc<KnownSensor>,
    /// Times of the earliest and latest reading stored since.
    seen: Option<(i64, i64)>,
    /// The latest hours written to: as many as a document holds readings, since each of them has
    /// at least one, so no earlier hour can matter to the recent ones.
    hours: BTreeSet<Hour>,
    /// The latest hour that took more than one page, and its pages.
    outlier: Option<(Hour, u32)>,
    /// The first record of these changes, which stays in the log until the document is written.
    _hold: Option<Arc<Hold>>,
    /// After a failure of the document's own: how long it waits after the next one.
    retry: Option<Duration>,
}

/// The sensors of one shard whose documents lag behind.
#[derive(Debug)]
pub struct Lagging {
    changes: HashMap<u32, (Arc<Database>, Change)>,
    /// Those whose document could not be read or written for a reason of its own: when each is tried again, and how long
    /// it waits after the next failure. They hold nothing in the log, since their pages are stored.
    failing: HashMap<u32, (Arc<Database>, Change, Instant, Duration)>,
    /// Whose documents are written next, the first of them last: in the order of their keys, so that those written
    /// together are neighbours in the store. Those that have come since are for the next round.
    round: Vec<u32>,
    /// Sensors whose bucket just outgrew its page: they are to be listed as outliers at once.
    urgent: BTreeSet<u32>,
    /// Databases whose documents could not be written, and until when they are not tried again: the others are.
    put_off: BTreeMap<Box<str>, Instant>,
    recent: usize,
    outlier_ttl_ns: i64,
}

impl Lagging {
    /// None yet; documents hold the `recent` latest readings.
    pub fn new(recent: usize, outlier_ttl: Duration) -> Self {
        let outlier_ttl_ns = i64::try_from(outlier_ttl.as_nanos()).unwrap_or(i64::MAX);
        Self {
            changes: HashMap::new(),
            failing: HashMap::new(),
            round: Vec::new(),
            urgent: BTreeSet::new(),
            put_off: BTreeMap::new(),
            recent,
            outlier_ttl_ns,
        }
    }

    /// Notes that a run's readings are in the store. The ticket is that of the first of them.
    pub fn note(&mut self, database: &Arc<Database>, run: &Run, ticket: Option<&Arc<Ticket>>) {
        let pages = run.bucket.pages();
        let times = pages.iter().filter_map(|p| Some((*p.readings.times().first()?, *p.readings.times().last()?)));
        let Some((first, last)) = times.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))) else { return };
        let hold = || ticket.map(|ticket| ticket.hold());
        let new = || Change {
            known: run.known.clone(),
            seen: None,
            hours: BTreeSet::new(),
            outlier: None,
            _hold: hold(),
            retry: None,
        };
        let change = match self.failing.get_mut(&run.known.id) {
            Some((_, change, ..)) => change,
            None => &mut self.changes.entry(run.known.id).or_insert_with(|| (database.clone(), new())).1,
        };
        change.seen = Some(change.seen.map_or((first, last), |(f, l)| (f.min(first), l.max(last))));
        change.hours.insert(run.id.hour);
        if change.hours.len() > self.recent.max(1) {
            change.hours.pop_first();
        }
        let spilled = run.changed() && pages.len() > 1;
        if spilled && change.outlier.is_none_or(|(hour, _)| hour <= run.id.hour) {
            change.outlier = Some((run.id.hour, u32::try_from(pages.len()).unwrap_or(u32::MAX)));
        }
        if spilled && run.pages_before < 2 {
            self.urgent.insert(run.known.id);
        }
    }

    /// Forgets what is known of sensors of which something is about to be deleted: whoever deletes it brings their
    /// documents up to date.
    pub fn forget(&mut self, sensors: &HashSet<u32>) {
        self.changes.retain(|id, _| !sensors.contains(id));
        self.failing.retain(|id, _| !sensors.contains(id));
        self.urgent.retain(|id| !sensors.contains(id));
    }

    /// How many lag behind, but for those whose own document cannot be written now.
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    /// Writes the documents of sensors that have just become outliers, so that they are listed. Those that the store
    /// does not take stay lagging.
    pub async fn write_urgent(&mut self, at: Surroundings<'_>) {
        let urgent: Vec<u32> = std::mem::take(&mut self.urgent).into_iter().collect();
        for ids in urgent.chunks(BATCH) {
            if !self.write_ids(at, ids.to_vec()).await {
                return;
            }
        }
    }

    /// Writes the documents of some lagging sensors: at most [`BATCH`] of them, so that readings never wait for long.
    /// Those that the store does not take stay lagging. Whether there are more that may be written now.
    pub async fn write_some(&mut self, at: Surroundings<'_>) -> bool {
        let now = Instant::now();
        self.put_off.retain(|_, until| now < *until);
        self.try_failing_again(now);
        let ids = self.next_ids();
        if ids.is_empty() {
            return false;
        }
        self.write_ids(at, ids).await && !self.changes.is_empty()
    }

    /// Takes those up again whose document failed by itself, and whose time has come.
    fn try_failing_again(&mut self, now: Instant) {
        let Self { changes, failing, .. } = self;
        for (id, (database, mut change, _, wait)) in failing.extract_if(|_, (.., at, _)| *at <= now) {
            change.retry = Some(wait);
            changes.insert(id, (database, change));
        }
    }

    fn next_ids(&mut self) -> Vec<u32> {
        let Self { changes, round, put_off, .. } = self;
        let may_be_written = |database: &Database| !put_off.contains_key(&database.name);
        let mut is_fresh = round.is_empty();
        loop {
            let later = round.len().saturating_sub(BATCH);
            // Some have been written, forgotten or put off since the round began.
            let is_open = |id: &u32| changes.get(id).is_some_and(|(database, _)| may_be_written(database));
            let ids: Vec<u32> = round.split_off(later).into_iter().rev().filter(is_open).collect();
            if !ids.is_empty() || changes.is_empty() {
                return ids;
            }
            if round.is_empty() {
                if is_fresh && !changes.values().any(|(database, _)| may_be_written(database)) {
                    return ids;
                }
                is_fresh = true;
                let all = changes.iter().filter(|(_, (database, _))| may_be_written(database));
                let all = all.map(|(id, (database, change))| (&*database.name, &*change.known.sensor.key, *id));
                let mut all: Vec<(&str, &str, u32)> = all.collect();
                all.sort_unstable();
                round.extend(all.iter().rev().map(|(.., id)| *id));
            }
        }
    }

    /// Writes some documents, database by database: one that the store fails on is put off alone. Whether the store is
    /// there at all.
    async fn write_ids(&mut self, at: Surroundings<'_>, ids: Vec<u32>) -> bool {
        crate::faults::point("before_sensors");
        let mut by_database: BTreeMap<Box<str>, Vec<u32>> = BTreeMap::new();
        for id in ids {
            if let Some((database, _)) = self.changes.get(&id) {
                by_database.entry(database.name.clone()).or_default().push(id);
            }
        }
        for (database, ids) in by_database {
            if let Err(error) = self.write_database(at, &database, ids).await {
                at.metrics.store_error(error.class());
                tracing::warn!(%database, sensors = self.changes.len(), %error,
                    "sensor documents lag behind; they are tried again");
                self.put_off.insert(database, Instant::now() + PUT_OFF);
                if error.is_of_store() {
                    return false;
                }
            }
        }
        true
    }

    async fn write_database(
        &mut self,
        at: Surroundings<'_>,
        database: &str,
        ids: Vec<u32>,
    ) -> Result<(), StorageError> {
        let mut open = ids.clone();
        for _ in 0..ATTEMPTS_MAX {
            open = self.write_batch(at, database, open).await?;
            if open.is_empty() {
                break;
            }
        }
        at.metrics.sensor_writes.increment((ids.len() - open.len()) as u64);
        let Some(id) = open.first() else { return Ok(()) };
        Err(StorageError::Contended { detail: self.changes[id].1.known.sensor.key.to_string() })
    }

    /// Leaves a sensor's document for later, since nothing can be done about it now.
    fn put_off(&mut self, at: Surroundings<'_>, id: u32, error: &StorageError) {
        at.metrics.store_error(error.class());
        let Some((database, mut change)) = self.changes.remove(&id) else { return };
        let wait = change.retry.take().unwrap_or(RETRY.start);
        if !error.is_transient() {
            tracing::error!(
                database = &*database.name, sensor = %change.known.sensor.key, %error, ?wait,
                "a sensor's document cannot be brought up to date; it is tried again"
            );
        }
        change._hold = None;
        self.failing.insert(id, (database, change, Instant::now() + wait, (2 * wait).min(RETRY.end)));
    }

    /// Reads, refreshes and writes some documents; returns those that others changed meanwhile.
    async fn write_batch(
        &mut self,
        at: Surroundings<'_>,
        database: &str,
        ids: Vec<u32>,
    ) -> Result<Vec<u32>, StorageError> {
        let known: Vec<Arc<KnownSensor>> = ids.iter().map(|id| self.changes[id].1.known.clone()).collect();
        let keys: Vec<&str> = known.iter().map(|known| &*known.sensor.key).collect();
        let mut stored = read_sensors_each(at.store, database, &keys).await?;
        let mut documents: Vec<(u32, SensorDocument)> = Vec::with_capacity(ids.len());
        for id in ids {
            let sensor = self.changes[&id].1.known.clone();
            match stored.remove(&sensor.sensor.key) {
                // Another instance deleted it; with its readings, unless some came to the store since. A page that is only
                // hidden needs its document too: by that it is found when the deletion is swept up after.
                None => match at.raw.scan_back(database, &sensor.sensor.key, ALL_HOURS, 1).await {
                    Ok(pages) if pages.is_empty() => {
                        sensor.unsave();
                        self.changes.remove(&id);
                    }
                    Err(error) if error.is_away() => return Err(error),
                    // One that cannot be read is there all the same.
                    Ok(_) | Err(_) => documents.push((id, new_document(&sensor))),
                },
                Some(Ok(document)) => documents.push((id, document)),
                Some(Err(error)) => self.put_off(at, id, &error),
            }
        }
        let before: Vec<SensorDocument> = documents.iter().map(|(_, document)| document.clone()).collect();
        self.refresh(at, database, &mut documents).await?;
        let changed = |(now, before): &((u32, SensorDocument), SensorDocument)| now.1 != *before;
        let (documents, same): (Vec<_>, Vec<_>) = documents.into_iter().zip(before).partition(changed);
        for ((id, _), _) in same {
            self.changes.remove(&id);
        }
        let documents = documents.into_iter().map(|(now, _)| now);
        let (ids, documents): (Vec<u32>, Vec<SensorDocument>) = documents.unzip();
        let written = at.store.write_sensors(database, &documents).await;
        let (mut open, mut away) = (Vec::new(), None);
        for ((id, document), written) in ids.into_iter().zip(&documents).zip(written) {
            match written {
                Written::Yes => {
                    if let Some((_, change)) = self.changes.remove(&id) {
                        change.known.written_rev.store(document.rev + 1, Ordering::Relaxed);
                    }
                }
                Written::Conflict => open.push(id),
                Written::Failed(error) if error.is_away() => away = Some(error),
                Written::Failed(error) => self.put_off(at, id, &error),
            }
        }
        away.map_or(Ok(open), Err)
    }

    /// Brings documents up to what was stored since they were written. Buckets that are not hot
    /// any more are read, and those of sensors whose document another instance wrote last, which
    /// may have corrected what is hot here.
    ///
    /// # Errors
    /// When those cannot be read.
    pub async fn refresh(
        &self,
        at: Surroundings<'_>,
        database: &str,
        documents: &mut [(u32, SensorDocument)],
    ) -> Result<(), StorageError> {
        let failing = |id: &u32| self.failing.get(id).map(|(_, change, ..)| change);
        let lagging = |id: &u32| self.changes.get(id).map(|(_, change)| change).or_else(|| failing(id));
        let mut tails: HashMap<u32, BTreeMap<i64, Reading>> = HashMap::new();
        // The newest hour of all first, then the next of those that want more: most sensors need
        // one, and it is hot.
        for nth in 0..self.recent {
            let mut cold: Vec<(u32, BucketId)> = Vec::new();
            for (id, document) in documents.iter() {
                let Some(change) = lagging(id) else { continue };
                let tail = tails.entry(*id).or_default();
                let Some(hour) = change.hours.iter().rev().nth(nth).filter(|_| tail.len() < self.recent) else {
                    continue;
                };
                let rev = change.known.written_rev.load(Ordering::Relaxed);
                let foreign = at.store.is_shared() && document.rev != rev;
                let hot = if foreign { None } else { at.hot.tail((*id, *hour), self.recent) };
                match hot {
                    Some(hot) => tail.extend(hot.into_iter().map(|r| (r.time, r))),
                    None => cold.push((*id, BucketId { sensor: change.known.sensor.clone(), hour: *hour })),
                }
            }
            for lot in cold.chunks(COLD_LOT) {
                let ids: Vec<BucketId> = lot.iter().map(|(_, id)| id.clone()).collect();
                for ((id, _), pages) in lot.iter().zip(read_buckets_each(at.store, database, &ids).await) {
                    // A page that cannot be read adds nothing to what its sensor's document says.
                    let pages = match pages {
                        Err(error) if error.is_away() => return Err(error),
                        pages => pages.unwrap_or_default(),
                    };
                    let tail = Bucket::from_stored(pages).tail(self.recent);
                    tails.entry(*id).or_default().extend(tail.into_iter().map(|r| (r.time, r)));
                }
            }
        }
        for (id, document) in documents {
            expire(document, at.now, self.outlier_ttl_ns);
            if let Some(change) = lagging(id) {
                self.bring_up_to_date(document, change, tails.remove(id).unwrap_or_default(), at.now);
            }
        }
        Ok(())
    }

    /// Lays readings over a document that are not in the store yet; each is whole, with what the store has at its time.
    pub fn lay_over(&self, document: &mut SensorDocument, known: &KnownSensor, unflushed: Vec<Reading>) {
        add_fields(document, known);
        for time in unflushed.iter().map(|reading| whole(reading.time)) {
            document.first_seen = Some(document.first_seen.map_or(time, |seen| seen.min(time)));
            document.last_seen = Some(document.last_seen.map_or(time, |seen| seen.max(time)));
        }
        let mut recent: BTreeMap<i64, Reading> = document.recent.drain(..).map(|r| (r.time, r)).collect();
        recent.extend(unflushed.into_iter().map(|reading| (reading.time, reading)));
        document.recent = newest(recent, self.recent);
    }

    fn bring_up_to_date(&self, document: &mut SensorDocument, change: &Change, tail: BTreeMap<i64, Reading>, now: i64) {
        add_fields(document, &change.known);
        if let Some((first, last)) = change.seen.map(|(first, last)| (whole(first), whole(last))) {
            document.first_seen = Some(document.first_seen.map_or(first, |seen| seen.min(first)));
            document.last_seen = Some(document.last_seen.map_or(last, |seen| seen.max(last)));
        }
        let mut recent: BTreeMap<i64, Reading> = document.recent.drain(..).map(|r| (r.time, r)).collect();
        recent.extend(tail);
        document.recent = newest(recent, self.recent);
        if let Some((hour, pages)) = change.outlier {
            let before = document.outlier.filter(|outlier| outlier.last_hour > hour);
            document.outlier = Some(Outlier {
                since: document.outlier.map_or(now, |outlier| outlier.since),
                seen: now,
                last_hour: before.map_or(hour, |outlier| outlier.last_hour),
                pages: before.map_or(pages, |outlier| outlier.pages),
            });
        }
    }
}

/// The newest readings that a document has room for, in time order and at most `recent` of them.
pub fn newest(readings: BTreeMap<i64, Reading>, recent: usize) -> Vec<Reading> {
    let mut bytes = 0;
    let bytes_of = |r: &Reading| reading_bytes(r.time, r.fields.iter().map(|(name, value)| (&**name, value)));
    let fits = |reading: &Reading| {
        bytes += bytes_of(reading);
        bytes <= RECENT_BYTES
    };
    let mut newest: Vec<Reading> = readings.into_values().rev().take(recent).take_while(fits).collect();
    newest.reverse();
    newest
}

/// In whole milliseconds, as they are stored.
pub fn whole(time: i64) -> i64 {
    time.div_euclid(MILLI_NS).saturating_mul(MILLI_NS)
}
