//! The unflushed readings of one database in one shard by bucket, and the rules that decide which bucket is due.

mod bucket;

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rapidhash::fast::RandomState;

use super::memtable::bucket::{MemtableBucket, find, find_bucket};
use super::record::batch::{BatchReading, DispatchedBatch, stored_bytes};
use crate::bucket::cache::CacheKey;
use crate::bucket::packed::PackedRows;
use crate::bucket::{Caps, UnflushedHour};
use crate::catalog::{Database, KnownSensor};
use crate::members::positions::PendingAck;
use crate::members::positions::pending_acks::PendingAcks;
use crate::members::registry_view::RegistryView;
use crate::reading::{Day, Hour, Value};
use crate::wal::Sequence;

/// The number of sensors from which on [`MemtableBuckets::add`] prefetches their state, which is then rarely in the CPU
/// caches.
const PREFETCH_SENSORS_MIN: usize = 4096;
/// The number of readings per prefetch.
const PREFETCH_READINGS: usize = 16;

/// Maximum number of outdated `quiet` entries dropped per call. It exceeds the number of buckets in a chunk of
/// backfill.
const DROPPED_MAX: usize = 64;

/// The first and the longest delay after a failure that was caused by the bucket itself.
const DELAY: Range<Duration> = Duration::from_millis(100)..Duration::from_secs(30);
/// The longest delay after a conflict with other writers. Half of a delay is random, so that two instances that
/// collided do not collide again.
const DELAY_TRANSIENT: Duration = Duration::from_secs(2);

/// The rules that decide when buckets are due, from the config sections `[flush]` and `[page]`.
#[derive(Debug, Clone, Copy)]
pub struct DueRules {
    /// Maximum time that a reading waits, unless the store cannot keep up.
    pub interval: Duration,
    /// The time without a new reading after which a bucket of a past hour is due.
    pub quiet: Duration,
    /// The size of a full page.
    pub caps: Caps,
    /// The age of a past day, in nanoseconds, from which on its hours are flushed together; `None` disables this.
    pub direct_after: Option<i64>,
}

/// An entry of [`MemtableBuckets::order`].
#[derive(Debug, Clone, Copy)]
struct OrderEntry {
    /// The record of the bucket's first reading.
    first: Sequence,
    /// The time at which that reading was added.
    since: Instant,
    key: CacheKey,
}

/// An entry of [`MemtableBuckets::quiet`].
#[derive(Debug, Clone, Copy)]
struct QuietEntry {
    /// The time at which to check the bucket.
    check_at: Instant,
    key: CacheKey,
}

/// The unflushed readings of one database in one shard.
#[derive(Debug)]
pub struct MemtableBuckets {
    rules: DueRules,
    /// The buckets of each sensor id, sorted by hour.
    sensors: HashMap<u32, VecDeque<MemtableBucket>, RandomState>,
    /// Buckets with readings that no flush has taken, in WAL order of their first readings. Entries whose bucket was
    /// taken are outdated and skipped.
    order: VecDeque<OrderEntry>,
    /// Buckets to check for quiet, in order of time.
    quiet: VecDeque<QuietEntry>,
    /// Buckets that are full or whose flush a write waits for.
    urgent: VecDeque<CacheKey>,
    /// Buckets whose last flush failed because of themselves, with the earliest time of the next attempt.
    delayed: BTreeSet<(Instant, CacheKey)>,
    pending_acks: PendingAcks,
    /// The number of buckets.
    buckets: usize,
    /// The number of buckets whose last flush failed because of themselves.
    failed: usize,
    /// Bytes of all packed readings, including those in flush.
    packed: usize,
}

/// The readings of one bucket, taken for a flush.
#[derive(Debug)]
pub struct Load {
    pub known: Arc<KnownSensor>,
    pub database: Arc<Database>,
    pub hour: Hour,
    /// In WAL order.
    pub rows: Arc<PackedRows>,
    /// Estimated bytes in the store.
    pub bytes: usize,
    /// WAL record of the first reading.
    pub first: Sequence,
    /// The number of consecutive failed flushes before this one that were caused by this bucket alone.
    pub failures: u32,
    /// True if this flush failed only because of other writers.
    pub is_transient: bool,
}

impl Load {
    /// Returns the approximate memory of the merged readings in bytes. A merged reading has a cell for each field of its
    /// sensor, also for those that it lacks.
    pub fn merged_memory(&self) -> usize {
        let cells = self.rows.len() * self.known.fields().names.len();
        self.bytes.max(cells * size_of::<Option<Value>>() / 2)
    }
}

impl MemtableBuckets {
    pub fn new(rules: DueRules) -> Self {
        Self {
            rules,
            sensors: HashMap::default(),
            order: VecDeque::new(),
            quiet: VecDeque::new(),
            urgent: VecDeque::new(),
            delayed: BTreeSet::new(),
            pending_acks: PendingAcks::default(),
            buckets: 0,
            failed: 0,
            packed: 0,
        }
    }

    /// Returns the number of buckets with unflushed readings.
    pub fn len(&self) -> usize {
        self.buckets
    }

    pub fn is_empty(&self) -> bool {
        self.buckets == 0
    }

    /// Returns the number of buckets whose last flush failed because of themselves.
    pub fn failed_count(&self) -> usize {
        self.failed
    }

    /// Returns the oldest WAL record with unflushed readings here.
    pub fn first(&self) -> Option<Sequence> {
        self.pending_acks.first()
    }

    /// Estimates the memory of the unflushed readings, in bytes.
    pub fn memory(&self) -> usize {
        /// One bucket with its entries in the map, which reserves about half as much again, in `order` and in `quiet`.
        const BUCKET: usize = size_of::<MemtableBucket>()
            + (size_of::<u32>() + size_of::<VecDeque<MemtableBucket>>()) * 3 / 2
            + size_of::<OrderEntry>()
            + size_of::<QuietEntry>();
        self.packed + self.buckets * BUCKET
    }

    /// Returns the pending ack of a request with readings here.
    pub fn pending_ack(&self, sequence: Sequence) -> Option<&Arc<PendingAck>> {
        self.pending_acks.get(sequence)
    }

    /// Adds the readings of a batch.
    #[inline(never)] // a stage of benches/callgrind.sh
    pub fn add(&mut self, dispatched: &DispatchedBatch, now: Instant) {
        let batch = &dispatched.batch;
        self.pending_acks.pin(&dispatched.pending_ack, batch.len());
        let mut ids_ahead = batch.readings().map(|reading| batch.sensors[reading.sensor as usize].id);
        let mut prefetched = 0;
        for (number, reading) in batch.readings().enumerate() {
            if number == prefetched && self.sensors.len() >= PREFETCH_SENSORS_MIN {
                prefetched += PREFETCH_READINGS;
                ids_ahead.by_ref().take(PREFETCH_READINGS).for_each(|id| self.prefetch(id));
            }
            self.add_one(dispatched, &batch.sensors[reading.sensor as usize], &reading, now);
        }
    }

    /// Loads the state of a sensor that [`MemtableBuckets::add`] needs into the CPU caches. With very many sensors,
    /// every access is a cache miss. The misses of several sensors overlap if no other work is done between the
    /// accesses.
    fn prefetch(&self, id: u32) {
        let last = self.sensors.get(&id).and_then(|buckets| buckets.back());
        std::hint::black_box(last.map(|bucket| bucket.rows.touch()));
    }

    fn add_one(
        &mut self,
        dispatched: &DispatchedBatch,
        known: &Arc<KnownSensor>,
        reading: &BatchReading<'_>,
        now: Instant,
    ) {
        let hour = Hour::from_ns(reading.time);
        let sequence = dispatched.pending_ack.sequence();
        let buckets = self.sensors.entry(known.id).or_insert_with(|| {
            // Dispatch has set this, but the flush of the sensor's previous reading may have cleared it since.
            dispatched.database.note_unflushed(known, true);
            VecDeque::new()
        });
        let index = match find_bucket(buckets, hour) {
            Ok(index) => index,
            Err(index) => {
                buckets.insert(index, MemtableBucket::new(hour, known, &dispatched.database, sequence, now));
                self.buckets += 1;
                index
            }
        };
        let bucket = &mut buckets[index];
        let key = (known.id, hour);
        if bucket.rows.is_empty() {
            bucket.first = sequence;
            bucket.is_urgent = false;
            self.order.push_back(OrderEntry { first: sequence, since: now, key });
            self.quiet.push_back(QuietEntry { check_at: now + self.rules.quiet, key });
        }
        bucket.last_touch = now;
        bucket.bytes += stored_bytes(reading.cells);
        self.packed -= bucket.rows.memory();
        bucket.rows.push(sequence, reading.time, reading.cells.iter().map(|(field, value)| (*field, value)));
        self.packed += bucket.rows.memory();
        let is_full = bucket.rows.len() >= self.rules.caps.max_readings || bucket.bytes >= self.rules.caps.max_bytes;
        // A full bucket must not cut its delay short.
        let is_full = is_full && bucket.not_before.is_none();
        if (is_full || dispatched.pending_ack.is_urgent()) && !bucket.is_urgent {
            bucket.is_urgent = true;
            self.urgent.push_back(key);
        }
    }

    fn get(&mut self, key: CacheKey) -> Option<&mut MemtableBucket> {
        find(self.sensors.get_mut(&key.0)?, key.1)
    }

    /// Returns the next due bucket, if any, among those that no flush task has. In this order:
    ///
    /// * buckets that are full or whose flush a write waits for;
    /// * oldest first, buckets with records up to `due`, those older than the interval, or all if `pressed`;
    /// * buckets whose flush failed and whose delay is over;
    /// * quiet buckets of past hours.
    pub fn next_due(&mut self, now: Instant, clock_ns: i64, due: Sequence, is_pressed: bool) -> Option<CacheKey> {
        self.drop_taken();
        for _ in 0..self.urgent.len() {
            let key = self.urgent.pop_front()?;
            match self.get(key) {
                Some(bucket) if bucket.is_urgent && bucket.flushing.is_none() => return Some(key),
                Some(bucket) if bucket.is_urgent => self.urgent.push_back(key),
                _ => {}
            }
        }
        let oldest = self.next_in_order(now, due, is_pressed);
        oldest.or_else(|| self.next_delayed(now)).or_else(|| self.next_quiet(now, clock_ns))
    }

    /// Returns the oldest due bucket that is not held back.
    fn next_in_order(&mut self, now: Instant, due: Sequence, is_pressed: bool) -> Option<CacheKey> {
        let mut held_back = Vec::new();
        let mut found = None;
        while let Some(entry) = self.order.front().copied() {
            let current = self.get(entry.key).filter(|bucket| bucket.first == entry.first && !bucket.rows.is_empty());
            let Some(bucket) = current else {
                self.order.pop_front();
                continue;
            };
            let is_held_back = bucket.is_held_back(now);
            let is_old = now.saturating_duration_since(entry.since) >= self.rules.interval;
            if !(is_pressed || entry.first <= due || is_old) {
                break;
            }
            self.order.pop_front();
            if !is_held_back {
                found = Some(entry.key);
                break;
            }
            held_back.push(entry);
        }
        for entry in held_back.into_iter().rev() {
            self.order.push_front(entry);
        }
        found
    }

    /// Returns a failed bucket whose delay is over.
    fn next_delayed(&mut self, now: Instant) -> Option<CacheKey> {
        while let Some((_, key)) = self.delayed.first().copied().filter(|(not_before, _)| *not_before <= now) {
            self.delayed.pop_first();
            if self.get(key).is_some_and(|bucket| bucket.flushing.is_none() && !bucket.rows.is_empty()) {
                return Some(key);
            }
        }
        None
    }

    /// Drops outdated entries from the front of `quiet`. While readings arrive faster than the store takes them, some
    /// other bucket is always due first, so [`MemtableBuckets::next_quiet`] never gets to drop them.
    fn drop_taken(&mut self) {
        for _ in 0..DROPPED_MAX {
            let Some(QuietEntry { key, .. }) = self.quiet.front().copied() else { return };
            if self.get(key).is_some_and(|bucket| !bucket.rows.is_empty()) {
                return;
            }
            self.quiet.pop_front();
        }
    }

    /// Returns a quiet bucket of a past hour.
    fn next_quiet(&mut self, now: Instant, clock_ns: i64) -> Option<CacheKey> {
        while let Some(QuietEntry { check_at, key }) = self.quiet.front().copied().filter(|entry| entry.check_at <= now)
        {
            self.quiet.pop_front();
            let quiet = self.rules.quiet;
            let Some(bucket) = self.get(key).filter(|bucket| !bucket.rows.is_empty()) else { continue };
            // Before the end of its hour, only the interval applies to a bucket.
            let is_over = key.1.end_ns() <= clock_ns;
            if is_over && !bucket.is_held_back(now) && bucket.last_touch + quiet <= now {
                return Some(key);
            }
            if is_over {
                self.quiet.push_back(QuietEntry { check_at: check_at.max(now) + quiet, key });
            }
        }
        None
    }

    /// Returns the other hours of a bucket's day that can be flushed with it. There are none unless the day has been
    /// over for [`DueRules::direct_after`].
    pub fn hours_of_day(&self, (id, hour): CacheKey, now: Instant, clock_ns: i64) -> Vec<CacheKey> {
        let day = Day::from_hour(hour);
        let is_over = |after: i64| day.hours().end.start_ns().saturating_add(after) <= clock_ns;
        if !self.rules.direct_after.is_some_and(is_over) {
            return Vec::new();
        }
        let is_ready = |bucket: &&MemtableBucket| {
            Day::from_hour(bucket.hour) == day && !bucket.is_held_back(now) && !bucket.rows.is_empty()
        };
        let ready = self.sensors.get(&id).into_iter().flatten().filter(is_ready);
        ready.map(|bucket| (id, bucket.hour)).filter(|key| key.1 != hour).collect()
    }

    /// Takes a bucket's readings for a flush. They stay visible to queries until [`MemtableBuckets::complete`].
    pub fn take(&mut self, key: CacheKey) -> Option<Load> {
        let bucket = self.get(key).filter(|bucket| bucket.flushing.is_none() && !bucket.rows.is_empty())?;
        let rows = Arc::new(std::mem::take(&mut bucket.rows));
        let bytes = std::mem::take(&mut bucket.bytes);
        bucket.is_urgent = false;
        bucket.not_before = None;
        bucket.flushing = Some(rows.clone());
        Some(Load {
            known: bucket.known.clone(),
            database: bucket.database.clone(),
            hour: bucket.hour,
            rows,
            bytes,
            first: bucket.first,
            failures: bucket.failures,
            is_transient: false,
        })
    }

    /// Completes a flush whose readings are in the store or in the dead-letter file. Returns the readings, which the
    /// caller must pass to [`MemtableBuckets::release`] to answer the waiting writes.
    #[must_use]
    pub fn complete(&mut self, key: CacheKey) -> Option<Arc<PackedRows>> {
        let bucket = self.get(key)?;
        let completed = bucket.flushing.take()?;
        let is_empty = bucket.rows.is_empty();
        let had_failed = std::mem::take(&mut bucket.failures) > 0;
        self.failed -= usize::from(had_failed);
        self.packed -= completed.memory();
        if is_empty {
            self.remove(key);
        }
        Some(completed)
    }

    /// Counts readings as flushed. Drops a request's pending ack with its last reading here.
    pub fn release(&mut self, completed: &PackedRows) {
        self.pending_acks.release(completed.stamps());
    }

    /// Takes back readings that did not reach the store, and puts them before newer ones. They are due at once. If the
    /// bucket itself caused the failure, they are due after a delay that grows with each failure.
    pub fn put_back(&mut self, key: CacheKey, load: Load, own_failure: bool, now: Instant) {
        let Self { sensors, pending_acks, failed, .. } = self;
        let Some(bucket) = sensors.get_mut(&key.0).and_then(|buckets| find(buckets, key.1)) else { return };
        if bucket.flushing.take().is_none() {
            return;
        }
        self.packed -= load.rows.memory() + bucket.rows.memory();
        *failed += usize::from(own_failure && bucket.failures == 0);
        bucket.failures += u32::from(own_failure);
        bucket.first = load.first;
        bucket.bytes += load.bytes;
        let mut rows = Arc::unwrap_or_clone(load.rows);
        rows.append(&bucket.rows);
        bucket.rows = rows;
        self.packed += bucket.rows.memory();
        let is_urgent = |sequence| pending_acks.get(sequence).is_some_and(|pending_ack| pending_ack.is_urgent());
        bucket.is_urgent = !own_failure && bucket.rows.stamps().any(is_urgent);
        if own_failure {
            let not_before = now + delay(bucket.failures, load.is_transient.then_some((key, now)));
            bucket.not_before = Some(not_before);
            self.delayed.insert((not_before, key));
            return;
        }
        if bucket.is_urgent {
            self.urgent.push_back(key);
        }
        // Back-date the entry by the interval, so that the bucket is due at once.
        let since = now.checked_sub(self.rules.interval).unwrap_or(now);
        self.order.push_front(OrderEntry { first: bucket.first, since, key });
        self.quiet.push_back(QuietEntry { check_at: now + self.rules.quiet, key });
    }

    /// Returns true if a bucket has unflushed readings.
    pub fn has(&self, (id, hour): CacheKey) -> bool {
        self.sensors.get(&id).is_some_and(|buckets| find_bucket(buckets, hour).is_ok())
    }

    fn remove(&mut self, key: CacheKey) {
        let Some(buckets) = self.sensors.get_mut(&key.0) else { return };
        let Ok(index) = find_bucket(buckets, key.1) else { return };
        let Some(removed) = buckets.remove(index) else { return };
        self.buckets -= 1;
        self.failed -= usize::from(removed.failures > 0);
        if buckets.is_empty() {
            self.sensors.remove(&key.0);
            removed.database.note_unflushed(&removed.known, false);
        }
    }

    /// Drops the readings of these sensors for which `is_deleted(sensor, time, record)` returns true. Returns their
    /// number. None of the sensors may have readings in flush.
    pub fn delete(&mut self, ids: &HashSet<u32>, is_deleted: impl Fn(u32, i64, Sequence) -> bool) -> usize {
        let mut deleted = 0;
        let mut emptied = Vec::new();
        for id in ids {
            for bucket in self.sensors.get_mut(id).into_iter().flatten() {
                self.packed -= bucket.rows.memory();
                let removed = bucket.rows.take_out(|time, sequence| is_deleted(*id, time, sequence));
                self.packed += bucket.rows.memory();
                deleted += removed.len();
                // A proportional estimate is enough, because the value only decides when a page is full.
                bucket.bytes = bucket.bytes * bucket.rows.len() / (bucket.rows.len() + removed.len()).max(1);
                self.pending_acks.release(removed.stamps());
                if bucket.rows.is_empty() {
                    emptied.push((*id, bucket.hour));
                }
            }
        }
        emptied.into_iter().for_each(|key| self.remove(key));
        deleted
    }

    /// Returns the number of readings. None may be in flush.
    pub fn readings(&self) -> usize {
        self.sensors.values().flatten().map(|bucket| bucket.rows.len()).sum()
    }

    /// Returns a sensor's unflushed readings in a range of hours, in order of hours.
    pub fn sensor_hours(&self, id: u32, hours: &Range<Hour>, registry_view: &RegistryView) -> Vec<UnflushedHour> {
        let Some(buckets) = self.sensors.get(&id) else { return Vec::new() };
        let mut buckets = buckets.iter().filter(|bucket| hours.contains(&bucket.hour)).peekable();
        let Some(first) = buckets.peek() else { return Vec::new() };
        let names: Arc<[Arc<str>]> = first.known.fields().names.as_slice().into();
        buckets.filter_map(|bucket| bucket.unflushed(&names, registry_view)).collect()
    }
}

/// Returns the delay of a bucket after this many failures. `transient` is set if only other writers caused the failure,
/// and seeds the random part of the delay.
fn delay(failures: u32, transient: Option<(CacheKey, Instant)>) -> Duration {
    let delay = DELAY.start.saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1)));
    let Some(seed) = transient else { return delay.min(DELAY.end) };
    let delay = delay.min(DELAY_TRANSIENT);
    // The hasher has random keys, so two instances wait for different times.
    let random = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), seed);
    delay / 2 + delay.mul_f64(f64::from(u32::try_from(random >> 32).unwrap_or(0)) / f64::from(u32::MAX) / 2.0)
}

#[cfg(test)]
mod tests;
