//! What one shard has been fed and has not seen stored yet, by bucket, and which of it is due.

mod waiting;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rapidhash::fast::RandomState;

use self::waiting::{Waiting, find, place};
use super::agreed::Agreed;
use super::batch::{Fed, stored_bytes};
use super::catalog::{Database, KnownSensor};
use super::deletion::Pending;
use super::progress::Ticket;
use super::tickets::Tickets;
use crate::bucket::hot::HotKey;
use crate::bucket::packed::Packed;
use crate::bucket::{Caps, UnflushedHour};
use crate::log::Sequence;
use crate::reading::{Hour, Value};

/// How many readings are looked ahead, where there are so many sensors that they are far from the processor.
const TOUCHED: usize = 16;
const FAR: usize = 4096;

/// How long after a failure of its own a bucket is tried again, at first and at most.
const DELAY: Range<Duration> = Duration::from_millis(100)..Duration::from_secs(30);
/// The most where only other writers were in the way. Half of it at random, so that two instances that
/// met in the store do not meet there again.
const DELAY_TRANSIENT: Duration = Duration::from_secs(2);

/// When buckets are due. From the config sections `[flush]` and `[page]`.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// Longest time that a reading waits, unless the store is too slow for that.
    pub interval: Duration,
    /// How long nothing must have come for an hour that is over.
    pub quiet: Duration,
    /// When a page is full.
    pub caps: Caps,
}

/// The unflushed readings of one shard.
#[derive(Debug)]
pub struct Unflushed {
    rules: Rules,
    /// Each sensor's buckets, by their hours.
    sensors: HashMap<u32, VecDeque<Waiting>, RandomState>,
    /// Buckets with readings that are in no flight, in the order in which the first of those came.
    /// An entry whose bucket has been taken since is passed over.
    order: VecDeque<(Sequence, Instant, HotKey)>,
    /// Buckets to look at for quiet, in the order in which it is time to.
    quiet: VecDeque<(Instant, HotKey)>,
    /// Full ones, and those that somebody waits for.
    urgent: VecDeque<HotKey>,
    /// Those that failed by themselves, each with the time before which it is not tried again.
    delayed: BTreeSet<(Instant, HotKey)>,
    tickets: Tickets,
    buckets: usize,
    /// How many of them failed by themselves when they were last tried.
    failed: usize,
    /// Bytes of all packed readings.
    packed: usize,
}

/// A bucket's readings on their way to the store.
#[derive(Debug)]
pub struct Load {
    /// Whose bucket.
    pub known: Arc<KnownSensor>,
    /// In which database.
    pub database: Arc<Database>,
    /// Of which hour.
    pub hour: Hour,
    /// In log order.
    pub rows: Arc<Packed>,
    /// What they take in the store, roughly.
    pub bytes: usize,
    /// The place in the log of the first of them.
    pub first: Sequence,
    /// How many flights in a row failed before this one, for reasons of this bucket alone.
    pub failures: u32,
    /// Whether it failed now because of other writers alone.
    pub is_transient: bool,
}

impl Unflushed {
    /// Nothing yet.
    pub fn new(rules: Rules) -> Self {
        Self {
            rules,
            sensors: HashMap::default(),
            order: VecDeque::new(),
            quiet: VecDeque::new(),
            urgent: VecDeque::new(),
            delayed: BTreeSet::new(),
            tickets: Tickets::default(),
            buckets: 0,
            failed: 0,
            packed: 0,
        }
    }

    /// How many buckets have unflushed readings.
    pub fn len(&self) -> usize {
        self.buckets
    }

    /// Whether no bucket has.
    pub fn is_empty(&self) -> bool {
        self.buckets == 0
    }

    /// How many of them failed by themselves when they were last tried.
    pub fn failed(&self) -> usize {
        self.failed
    }

    /// The first record of which there are readings here.
    pub fn first(&self) -> Option<Sequence> {
        self.tickets.first()
    }

    /// Bytes of memory that unflushed readings take.
    pub fn memory(&self) -> usize {
        /// A bucket by itself, its place among its sensor's, its sensor's among all, and its entries in the orders.
        const BUCKET: usize = size_of::<Waiting>()
            + (size_of::<u32>() + size_of::<VecDeque<Waiting>>()) * 3 / 2
            + size_of::<(Sequence, Instant, HotKey)>()
            + size_of::<(Instant, HotKey)>();
        self.packed + self.buckets * BUCKET
    }

    /// The ticket of a request with readings here.
    pub fn ticket(&self, sequence: Sequence) -> Option<&Arc<Ticket>> {
        self.tickets.get(sequence)
    }

    /// Takes a fed batch in.
    pub fn add(&mut self, fed: &Fed, now: Instant) {
        self.tickets.hold(&fed.ticket, fed.batch.len());
        let mut ahead = fed.batch.readings().map(|(sensor, ..)| fed.batch.sensors[sensor as usize].id);
        let mut touched = 0;
        for (number, (sensor, time, cells)) in fed.batch.readings().enumerate() {
            if number == touched && self.sensors.len() >= FAR {
                touched += TOUCHED;
                ahead.by_ref().take(TOUCHED).for_each(|id| self.touch(id));
            }
            self.add_one(fed, &fed.batch.sensors[sensor as usize], (time, cells), now);
        }
    }

    /// Has the processor fetch what [`Unflushed::add`] is about to need of a sensor. Of very many sensors nothing is in
    /// its caches: met one by one, with the work of a whole reading between them, each waits for memory alone; looked
    /// at in a row, they wait together.
    fn touch(&self, id: u32) {
        let last = self.sensors.get(&id).and_then(|waiting| waiting.back());
        std::hint::black_box(last.map(|waiting| waiting.rows.touch()));
    }

    fn add_one(&mut self, fed: &Fed, known: &Arc<KnownSensor>, (time, cells): (i64, &[(u16, Value)]), now: Instant) {
        let (hour, sequence) = (Hour::of(time), fed.ticket.sequence());
        let waiting = self.sensors.entry(known.id).or_insert_with(|| {
            // It was noted when the request was logged; but then another one's last reading may have landed.
            known.note_waiting(&fed.database, true);
            VecDeque::new()
        });
        let at = match place(waiting, hour) {
            Ok(at) => at,
            Err(at) => {
                waiting.insert(at, Waiting::new(hour, known, &fed.database, sequence, now));
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
        if (full || fed.ticket.is_urgent()) && !waiting.is_urgent {
            waiting.is_urgent = true;
            self.urgent.push_back(key);
        }
    }

    fn get(&mut self, key: HotKey) -> Option<&mut Waiting> {
        find(self.sensors.get_mut(&key.0)?, key.1)
    }

    /// The next bucket that is due, if there is one: full ones and those waited for, then, oldest
    /// first, all up to `due` in the log, all older than the interval, and all if `pressed`; then
    /// those of hours that are over and for which nothing comes any more. A bucket in flight has to
    /// wait for its landing.
    pub fn next_due(&mut self, now: Instant, clock_ns: i64, due: Sequence, pressed: bool) -> Option<HotKey> {
        for _ in 0..self.urgent.len() {
            let key = self.urgent.pop_front()?;
            match self.get(key) {
                Some(waiting) if waiting.is_urgent && waiting.in_flight.is_none() => return Some(key),
                Some(waiting) if waiting.is_urgent => self.urgent.push_back(key),
                _ => {}
            }
        }
        let mut in_flight = Vec::new();
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
                in_flight.push((sequence, since, key));
            } else {
                found = Some(key);
                break;
            }
        }
        for entry in in_flight.into_iter().rev() {
            self.order.push_front(entry);
        }
        found.or_else(|| self.next_delayed(now)).or_else(|| self.next_quiet(now, clock_ns))
    }

    fn next_delayed(&mut self, now: Instant) -> Option<HotKey> {
        while let Some((_, key)) = self.delayed.first().copied().filter(|(at, _)| *at <= now) {
            self.delayed.pop_first();
            if self.get(key).is_some_and(|waiting| waiting.in_flight.is_none() && !waiting.rows.is_empty()) {
                return Some(key);
            }
        }
        None
    }

    fn next_quiet(&mut self, now: Instant, clock_ns: i64) -> Option<HotKey> {
        while let Some((at, key)) = self.quiet.front().copied().filter(|(at, _)| *at <= now) {
            self.quiet.pop_front();
            let quiet = self.rules.quiet;
            let Some(waiting) = self.get(key).filter(|waiting| !waiting.rows.is_empty()) else { continue };
            // An hour that is not over is left to the interval.
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

    /// Takes a bucket's readings for a flight. They stay visible until [`Unflushed::landed`].
    pub fn take(&mut self, key: HotKey) -> Option<Load> {
        let waiting = self.get(key).filter(|waiting| waiting.in_flight.is_none() && !waiting.rows.is_empty())?;
        let (rows, bytes) = (Arc::new(std::mem::take(&mut waiting.rows)), std::mem::take(&mut waiting.bytes));
        waiting.is_urgent = false;
        waiting.not_before = None;
        waiting.in_flight = Some(rows.clone());
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

    /// A bucket's readings are in the store, or in the dead-letter file. They are returned, so that
    /// [`Unflushed::let_go`] tells those who wait for that.
    #[must_use]
    pub fn landed(&mut self, key: HotKey) -> Option<Arc<Packed>> {
        let waiting = self.get(key)?;
        let (landed, is_empty) = (waiting.in_flight.take()?, waiting.rows.is_empty());
        let had_failed = std::mem::take(&mut waiting.failures) > 0;
        self.failed -= usize::from(had_failed);
        self.packed -= landed.memory();
        if is_empty {
            self.remove(key);
        }
        Some(landed)
    }

    /// Lets readings go that have landed: with the last one of a request its ticket is given back.
    pub fn let_go(&mut self, landed: &Packed) {
        self.tickets.let_go(landed.stamps());
    }

    /// Takes back a bucket's readings that did not reach the store, before those that came since.
    /// They are due at once; where the reason is the bucket's own, after a while, which gets longer.
    pub fn returned(&mut self, key: HotKey, load: Load, own_failure: bool, now: Instant) {
        let Self { sensors, tickets, failed, .. } = self;
        let Some(waiting) = sensors.get_mut(&key.0).and_then(|waiting| find(waiting, key.1)) else { return };
        if waiting.in_flight.take().is_none() {
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
        let is_urgent = |sequence| tickets.get(sequence).is_some_and(|ticket| ticket.is_urgent());
        waiting.is_urgent = !own_failure && waiting.rows.stamps().any(is_urgent);
        if own_failure {
            let at = now + delay(waiting.failures, load.is_transient.then_some((key, now)));
            waiting.not_before = Some(at);
            self.delayed.insert((at, key));
            return;
        }
        let (first, urgent) = (waiting.first, waiting.is_urgent);
        // Due at once: it has waited long enough.
        let since = now.checked_sub(self.rules.interval).unwrap_or(now);
        self.order.push_front((first, since, key));
        self.quiet.push_back((now + self.rules.quiet, key));
        if urgent {
            self.urgent.push_back(key);
        }
    }

    /// Whether a bucket has unflushed readings.
    pub fn has(&self, (id, hour): HotKey) -> bool {
        self.sensors.get(&id).is_some_and(|waiting| place(waiting, hour).is_ok())
    }

    fn remove(&mut self, key: HotKey) {
        let Some(waiting) = self.sensors.get_mut(&key.0) else { return };
        let Ok(at) = place(waiting, key.1) else { return };
        let Some(removed) = waiting.remove(at) else { return };
        self.buckets -= 1;
        self.failed -= usize::from(removed.failures > 0);
        if waiting.is_empty() {
            self.sensors.remove(&key.0);
            removed.known.note_waiting(&removed.database, false);
        }
    }

    /// Drops what a deletion is about, of which nothing may be in flight; tells how many readings there were.
    pub fn delete(&mut self, pending: &Pending) -> usize {
        let (range, before) = (pending.deletion.range(), pending.sequence());
        let goes = |time: i64, sequence: Sequence| range.contains(&time) && sequence < before;
        let (mut deleted, mut emptied) = (0, Vec::new());
        for id in &pending.doomed.ids {
            for waiting in self.sensors.get_mut(id).into_iter().flatten() {
                self.packed -= waiting.rows.memory();
                let gone = waiting.rows.take_out(goes);
                self.packed += waiting.rows.memory();
                deleted += gone.len();
                // In the same proportion: it is rough anyway, and sees only that a page is full.
                waiting.bytes = waiting.bytes * waiting.rows.len() / (waiting.rows.len() + gone.len()).max(1);
                self.tickets.let_go(gone.stamps());
                if waiting.rows.is_empty() {
                    emptied.push((*id, waiting.hour));
                }
            }
        }
        emptied.into_iter().for_each(|key| self.remove(key));
        deleted
    }

    /// How many readings there are, of which nothing may be in flight.
    pub fn readings(&self) -> usize {
        self.sensors.values().flatten().map(|waiting| waiting.rows.len()).sum()
    }

    /// A sensor's unflushed readings in a range of hours, hour by hour.
    pub fn of_sensor(&self, id: u32, hours: &Range<Hour>, agreed: &Agreed) -> Vec<UnflushedHour> {
        let Some(waiting) = self.sensors.get(&id) else { return Vec::new() };
        let mut waiting = waiting.iter().filter(|waiting| hours.contains(&waiting.hour)).peekable();
        let Some(first) = waiting.peek() else { return Vec::new() };
        let names: Arc<[Arc<str>]> = first.known.fields().names.as_slice().into();
        waiting.filter_map(|waiting| waiting.unflushed(&names, agreed)).collect()
    }
}

/// How long a bucket waits after so many failures; where only other writers were in the way, with what makes
/// this one's wait another one than theirs.
fn delay(failures: u32, transient: Option<(HotKey, Instant)>) -> Duration {
    let delay = DELAY.start.saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1)));
    let Some(of) = transient else { return delay.min(DELAY.end) };
    let delay = delay.min(DELAY_TRANSIENT);
    // Keyed anew in each process.
    let random = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), of);
    delay / 2 + delay.mul_f64(f64::from(u32::try_from(random >> 32).unwrap_or(0)) / f64::from(u32::MAX) / 2.0)
}

#[cfg(test)]
mod tests;
