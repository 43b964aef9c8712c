//! The unflushed readings of one database in one shard, by bucket, and which bucket is due for a flush.

mod bucket;

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rapidhash::fast::RandomState;

use super::memtable::bucket::{MemtableBucket, find, place};
use super::record::batch::{DispatchedBatch, stored_bytes};
use crate::bucket::cache::CacheKey;
use crate::bucket::packed::Packed;
use crate::bucket::{Caps, UnflushedHour};
use crate::catalog::{Database, KnownSensor};
use crate::members::positions::PendingAck;
use crate::members::positions::pending_acks::PendingAcks;
use crate::members::registry_view::RegistryView;
use crate::reading::{Day, Hour, Value};
use crate::wal::Sequence;

/// With `FAR` sensors or more their state is rarely in the CPU caches: then `add` prefetches it for `TOUCHED` readings
/// at a time.
const TOUCHED: usize = 16;
const FAR: usize = 4096;

/// Most entries of `quiet` that are dropped at a time: more than a chunk of backfill takes buckets.
const DROPPED: usize = 64;

/// First and longest wait before a bucket that failed for its own reasons is tried again.
const DELAY: Range<Duration> = Duration::from_millis(100)..Duration::from_secs(30);
/// Longest wait if only other writers were in the way. Half of it is random, so that two instances that collided do not
/// collide again.
const DELAY_TRANSIENT: Duration = Duration::from_secs(2);

/// When buckets are due. From the config sections `[flush]` and `[page]`.
#[derive(Debug, Clone, Copy)]
pub struct DueRules {
    /// Longest time a reading waits, unless the store cannot keep up.
    pub interval: Duration,
    /// A bucket whose hour is over is due when it got no reading for this long.
    pub quiet: Duration,
    /// When a page is full.
    pub caps: Caps,
    /// How long a day must be over, in nanoseconds, so that its hours are flushed together; `None` if none are.
    pub direct_after: Option<i64>,
}

/// The unflushed readings of one database in one shard.
#[derive(Debug)]
pub struct MemtableBuckets {
    rules: DueRules,
    /// By sensor id; each sensor's buckets are sorted by hour.
    sensors: HashMap<u32, VecDeque<MemtableBucket>, RandomState>,
    /// Buckets with readings that no flush has taken, in WAL order of their first readings. An entry whose bucket was
    /// taken since is skipped.
    order: VecDeque<(Sequence, Instant, CacheKey)>,
    /// When to check which bucket for quiet, in order of time.
    quiet: VecDeque<(Instant, CacheKey)>,
    /// Buckets that are full or whose flush a write waits for.
    urgent: VecDeque<CacheKey>,
    /// Buckets that failed for their own reasons, each with the earliest time of its next try.
    delayed: BTreeSet<(Instant, CacheKey)>,
    pending_acks: PendingAcks,
    buckets: usize,
    /// How many buckets failed for their own reasons when last tried.
    failed: usize,
    /// Bytes of all packed readings, those in flush included.
    packed: usize,
}

/// One bucket's readings, taken for a flush.
#[derive(Debug)]
pub struct Load {
    pub known: Arc<KnownSensor>,
    pub database: Arc<Database>,
    pub hour: Hour,
    /// In WAL order.
    pub rows: Arc<Packed>,
    /// Estimated bytes in the store.
    pub bytes: usize,
    /// WAL position of the first reading.
    pub first: Sequence,
    /// Consecutive failed flushes before this one whose cause was this bucket alone.
    pub failures: u32,
    /// Whether this flush failed only because of other writers.
    pub is_transient: bool,
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

    /// How many buckets have unflushed readings.
    pub fn len(&self) -> usize {
        self.buckets
    }

    pub fn is_empty(&self) -> bool {
        self.buckets == 0
    }

    /// How many buckets failed for their own reasons when last tried.
    pub fn failed(&self) -> usize {
        self.failed
    }

    /// The oldest WAL record with unflushed readings here.
    pub fn first(&self) -> Option<Sequence> {
        self.pending_acks.first()
    }

    /// Estimated bytes of memory of the unflushed readings.
    pub fn memory(&self) -> usize {
        /// One bucket with its map entries (maps reserve about half as much again) and its entries in `order` and
        /// `quiet`.
        const BUCKET: usize = size_of::<MemtableBucket>()
            + (size_of::<u32>() + size_of::<VecDeque<MemtableBucket>>()) * 3 / 2
            + size_of::<(Sequence, Instant, CacheKey)>()
            + size_of::<(Instant, CacheKey)>();
        self.packed + self.buckets * BUCKET
    }

    /// The pending ack of a request with readings here.
    pub fn pending_ack(&self, sequence: Sequence) -> Option<&Arc<PendingAck>> {
        self.pending_acks.get(sequence)
    }

    #[inline(never)] // a stage of benches/callgrind.sh
    pub fn add(&mut self, dispatched: &DispatchedBatch, now: Instant) {
        self.pending_acks.pin(&dispatched.pending_ack, dispatched.batch.len());
        let mut ahead = dispatched.batch.readings().map(|(sensor, ..)| dispatched.batch.sensors[sensor as usize].id);
        let mut touched = 0;
        for (number, (sensor, time, cells)) in dispatched.batch.readings().enumerate() {
            if number == touched && self.sensors.len() >= FAR {
                touched += TOUCHED;
                ahead.by_ref().take(TOUCHED).for_each(|id| self.touch(id));
            }
            self.add_one(dispatched, &dispatched.batch.sensors[sensor as usize], (time, cells), now);
        }
    }

    /// Prefetches what [`MemtableBuckets::add`] needs of a sensor. With very many sensors none of it is in the CPU
    /// caches: accessed one by one, with the work for a whole reading in between, each access waits for memory alone;
    /// accessed in a row, they wait together.
    fn touch(&self, id: u32) {
        let last = self.sensors.get(&id).and_then(|waiting| waiting.back());
        std::hint::black_box(last.map(|waiting| waiting.rows.touch()));
    }

    fn add_one(
        &mut self,
        dispatched: &DispatchedBatch,
        known: &Arc<KnownSensor>,
        (time, cells): (i64, &[(u16, Value)]),
        now: Instant,
    ) {
        let (hour, sequence) = (Hour::of(time), dispatched.pending_ack.sequence());
        let waiting = self.sensors.entry(known.id).or_insert_with(|| {
            // Dispatch has noted it already, but the flush of the sensor's last earlier reading may have cleared that
            // since.
            dispatched.database.note_unflushed(known, true);
            VecDeque::new()
        });
        let at = match place(waiting, hour) {
            Ok(at) => at,
            Err(at) => {
                waiting.insert(at, MemtableBucket::new(hour, known, &dispatched.database, sequence, now));
                self.buckets += 1;
                at
            }
        };
        let waiting = &mut waiting[at];
        let key = (known.id, hour);
        if waiting.rows.is_empty() {
            waiting.first = sequence;
            waiting.is_urgent = false;
            self.order.push_back((sequence, now, key));
            self.quiet.push_back((now + self.rules.quiet, key));
        }
        waiting.last_touch = now;
        waiting.bytes += stored_bytes(cells);
        self.packed -= waiting.rows.memory();
        waiting.rows.push(sequence, time, cells.iter().map(|(field, value)| (*field, value)));
        self.packed += waiting.rows.memory();
        let full = waiting.rows.len() >= self.rules.caps.max_readings || waiting.bytes >= self.rules.caps.max_bytes;
        let full = full && waiting.not_before.is_none();
        if (full || dispatched.pending_ack.is_urgent()) && !waiting.is_urgent {
            waiting.is_urgent = true;
            self.urgent.push_back(key);
        }
    }

    fn get(&mut self, key: CacheKey) -> Option<&mut MemtableBucket> {
        find(self.sensors.get_mut(&key.0)?, key.1)
    }

    /// The next bucket that is due, if any, of those that no flush task has. In this order:
    ///
    /// * full buckets, and those whose flush a write awaits;
    /// * oldest first: those with readings up to `due` in the WAL, those older than the interval, or all if `pressed`;
    /// * those whose flush failed and whose delay is over;
    /// * quiet ones of past hours.
    pub fn next_due(&mut self, now: Instant, clock_ns: i64, due: Sequence, pressed: bool) -> Option<CacheKey> {
        self.drop_taken();
        for _ in 0..self.urgent.len() {
            let key = self.urgent.pop_front()?;
            match self.get(key) {
                Some(waiting) if waiting.is_urgent && waiting.flushing.is_none() => return Some(key),
                Some(waiting) if waiting.is_urgent => self.urgent.push_back(key),
                _ => {}
            }
        }
        let mut flushing = Vec::new();
        let mut found = None;
        while let Some((sequence, since, key)) = self.order.front().copied() {
            let current = self.get(key).filter(|waiting| waiting.first == sequence && !waiting.rows.is_empty());
            let Some(waiting) = current else {
                self.order.pop_front();
                continue;
            };
            let busy = waiting.is_held_back(now);
            if !(pressed || sequence <= due || now.saturating_duration_since(since) >= self.rules.interval) {
                break;
            }
            self.order.pop_front();
            if busy {
                flushing.push((sequence, since, key));
            } else {
                found = Some(key);
                break;
            }
        }
        for entry in flushing.into_iter().rev() {
            self.order.push_front(entry);
        }
        found.or_else(|| self.next_delayed(now)).or_else(|| self.next_quiet(now, clock_ns))
    }

    fn next_delayed(&mut self, now: Instant) -> Option<CacheKey> {
        while let Some((_, key)) = self.delayed.first().copied().filter(|(at, _)| *at <= now) {
            self.delayed.pop_first();
            if self.get(key).is_some_and(|waiting| waiting.flushing.is_none() && !waiting.rows.is_empty()) {
                return Some(key);
            }
        }
        None
    }

    /// Drops the first entries of `quiet` whose buckets were taken since. While readings come faster than the store takes them,
    /// some bucket is always due before the quiet ones, and nobody else would: an entry per bucket would stay for as long.
    fn drop_taken(&mut self) {
        for _ in 0..DROPPED {
            let Some((_, key)) = self.quiet.front().copied() else { return };
            if self.get(key).is_some_and(|waiting| !waiting.rows.is_empty()) {
                return;
            }
            self.quiet.pop_front();
        }
    }

    fn next_quiet(&mut self, now: Instant, clock_ns: i64) -> Option<CacheKey> {
        while let Some((at, key)) = self.quiet.front().copied().filter(|(at, _)| *at <= now) {
            self.quiet.pop_front();
            let quiet = self.rules.quiet;
            let Some(waiting) = self.get(key).filter(|waiting| !waiting.rows.is_empty()) else { continue };
            // If the hour is not over, the interval decides.
            let over = key.1.end_ns() <= clock_ns;
            if over && !waiting.is_held_back(now) && waiting.last_touch + quiet <= now {
                return Some(key);
            }
            if over {
                self.quiet.push_back((at.max(now) + quiet, key));
            }
        }
        None
    }

    /// The other hours of a bucket's day that could be flushed with it, if the day has been over for long.
    pub fn hours_of_day(&self, (id, hour): CacheKey, now: Instant, clock_ns: i64) -> Vec<CacheKey> {
        let day = Day::of(hour);
        let is_over = |after: i64| day.hours().end.start_ns().saturating_add(after) <= clock_ns;
        if !self.rules.direct_after.is_some_and(is_over) {
            return Vec::new();
        }
        let is_ready = |waiting: &&MemtableBucket| {
            Day::of(waiting.hour) == day && !waiting.is_held_back(now) && !waiting.rows.is_empty()
        };
        let ready = self.sensors.get(&id).into_iter().flatten().filter(is_ready);
        ready.map(|waiting| (id, waiting.hour)).filter(|key| key.1 != hour).collect()
    }

    /// Takes a bucket's readings for a flush. They stay visible to queries until [`MemtableBuckets::completed`].
    pub fn take(&mut self, key: CacheKey) -> Option<Load> {
        let waiting = self.get(key).filter(|waiting| waiting.flushing.is_none() && !waiting.rows.is_empty())?;
        let (rows, bytes) = (Arc::new(std::mem::take(&mut waiting.rows)), std::mem::take(&mut waiting.bytes));
        waiting.is_urgent = false;
        waiting.not_before = None;
        waiting.flushing = Some(rows.clone());
        Some(Load {
            known: waiting.known.clone(),
            database: waiting.database.clone(),
            hour: waiting.hour,
            rows,
            bytes,
            first: waiting.first,
            failures: waiting.failures,
            is_transient: false,
        })
    }

    /// A bucket's readings are in the store, or in the dead-letter file. Returns them: the caller passes them to
    /// [`MemtableBuckets::release`], which answers the writes that wait for them.
    #[must_use]
    pub fn completed(&mut self, key: CacheKey) -> Option<Arc<Packed>> {
        let waiting = self.get(key)?;
        let (completed, is_empty) = (waiting.flushing.take()?, waiting.rows.is_empty());
        let had_failed = std::mem::take(&mut waiting.failures) > 0;
        self.failed -= usize::from(had_failed);
        self.packed -= completed.memory();
        if is_empty {
            self.remove(key);
        }
        Some(completed)
    }

    /// Counts readings as flushed. With its last reading here a request's pending ack is dropped.
    pub fn release(&mut self, completed: &Packed) {
        self.pending_acks.release(completed.stamps());
    }

    /// Takes back readings that did not reach the store; they go before those that came since. They are due at once or,
    /// after a failure of the bucket's own, after a delay that grows with each failure.
    pub fn returned(&mut self, key: CacheKey, load: Load, own_failure: bool, now: Instant) {
        let Self { sensors, pending_acks, failed, .. } = self;
        let Some(waiting) = sensors.get_mut(&key.0).and_then(|waiting| find(waiting, key.1)) else { return };
        if waiting.flushing.take().is_none() {
            return;
        }
        self.packed -= load.rows.memory() + waiting.rows.memory();
        *failed += usize::from(own_failure && waiting.failures == 0);
        waiting.failures += u32::from(own_failure);
        waiting.first = load.first;
        waiting.bytes += load.bytes;
        let mut rows = Arc::unwrap_or_clone(load.rows);
        rows.append(&waiting.rows);
        waiting.rows = rows;
        self.packed += waiting.rows.memory();
        let is_urgent = |sequence| pending_acks.get(sequence).is_some_and(|pending_ack| pending_ack.is_urgent());
        waiting.is_urgent = !own_failure && waiting.rows.stamps().any(is_urgent);
        if own_failure {
            let at = now + delay(waiting.failures, load.is_transient.then_some((key, now)));
            waiting.not_before = Some(at);
            self.delayed.insert((at, key));
            return;
        }
        let (first, urgent) = (waiting.first, waiting.is_urgent);
        // Back-dated by the interval, so that it is due at once.
        let since = now.checked_sub(self.rules.interval).unwrap_or(now);
        self.order.push_front((first, since, key));
        self.quiet.push_back((now + self.rules.quiet, key));
        if urgent {
            self.urgent.push_back(key);
        }
    }

    /// Whether a bucket has unflushed readings.
    pub fn has(&self, (id, hour): CacheKey) -> bool {
        self.sensors.get(&id).is_some_and(|waiting| place(waiting, hour).is_ok())
    }

    fn remove(&mut self, key: CacheKey) {
        let Some(waiting) = self.sensors.get_mut(&key.0) else { return };
        let Ok(at) = place(waiting, key.1) else { return };
        let Some(removed) = waiting.remove(at) else { return };
        self.buckets -= 1;
        self.failed -= usize::from(removed.failures > 0);
        if waiting.is_empty() {
            self.sensors.remove(&key.0);
            removed.database.note_unflushed(&removed.known, false);
        }
    }

    /// Drops those of these sensors' readings that pass a test of sensor, time and record; returns how many. None of them
    /// may be in flush.
    pub fn delete_at(&mut self, ids: &HashSet<u32>, goes: impl Fn(u32, i64, Sequence) -> bool) -> usize {
        let (mut deleted, mut emptied) = (0, Vec::new());
        for id in ids {
            for waiting in self.sensors.get_mut(id).into_iter().flatten() {
                self.packed -= waiting.rows.memory();
                let gone = waiting.rows.take_out(|time, sequence| goes(*id, time, sequence));
                self.packed += waiting.rows.memory();
                deleted += gone.len();
                // In proportion: the value is an estimate anyway, and only decides when a page is full.
                waiting.bytes = waiting.bytes * waiting.rows.len() / (waiting.rows.len() + gone.len()).max(1);
                self.pending_acks.release(gone.stamps());
                if waiting.rows.is_empty() {
                    emptied.push((*id, waiting.hour));
                }
            }
        }
        emptied.into_iter().for_each(|key| self.remove(key));
        deleted
    }

    /// How many readings there are. None may be in flush.
    pub fn readings(&self) -> usize {
        self.sensors.values().flatten().map(|waiting| waiting.rows.len()).sum()
    }

    /// A sensor's unflushed readings in a range of hours, hour by hour.
    pub fn of_sensor(&self, id: u32, hours: &Range<Hour>, registry_view: &RegistryView) -> Vec<UnflushedHour> {
        let Some(waiting) = self.sensors.get(&id) else { return Vec::new() };
        let mut waiting = waiting.iter().filter(|waiting| hours.contains(&waiting.hour)).peekable();
        let Some(first) = waiting.peek() else { return Vec::new() };
        let names: Arc<[Arc<str>]> = first.known.fields().names.as_slice().into();
        waiting.filter_map(|waiting| waiting.unflushed(&names, registry_view)).collect()
    }
}

/// How long a bucket waits after this many failures. `transient` is given if only other writers were in the way; it
/// seeds the random part.
fn delay(failures: u32, transient: Option<(CacheKey, Instant)>) -> Duration {
    let delay = DELAY.start.saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1)));
    let Some(of) = transient else { return delay.min(DELAY.end) };
    let delay = delay.min(DELAY_TRANSIENT);
    // Each process has its own random keys, so two instances wait for different times.
    let random = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), of);
    delay / 2 + delay.mul_f64(f64::from(u32::try_from(random >> 32).unwrap_or(0)) / f64::from(u32::MAX) / 2.0)
}

#[cfg(test)]
mod tests;
