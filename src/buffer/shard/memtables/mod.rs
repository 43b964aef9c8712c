//! A shard's memtables, one per database. Each has its own order, turn and backoff, so a database that the store fails
//! on delays no other. This module chooses the next flushes and does not access the store.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::buffer::flush::failing::WaitingReadings;
use crate::buffer::memtable::{DueRules, Load, MemtableBuckets};
use crate::catalog::Database;
use crate::wal::Sequence;

/// The first and the longest wait before the next probe of a failing database.
const RETRY: Range<Duration> = Duration::from_millis(100)..Duration::from_secs(2);

/// A wait that exceeds the time of any shutdown.
const NEVER: Duration = Duration::from_secs(24 * 3600);

/// The unflushed readings of one database, with its backoff.
#[derive(Debug)]
pub struct Memtable {
    database: Arc<Database>,
    pub(super) unflushed: MemtableBuckets,
    backoff: Option<Backoff>,
    /// True if the database, or a bucket of it, was last reported as failing.
    pub(super) is_reported: bool,
}

/// The state of a database that the store fails on.
#[derive(Debug)]
struct Backoff {
    /// The time of the next probe.
    probe_at: Instant,
    /// The wait before that probe.
    wait: Duration,
    /// True while a probe is running: a flush of a few buckets that shows whether the store accepts them again.
    is_probing: bool,
    /// True if the whole store was unavailable, not just this database.
    is_store_away: bool,
}

/// The result of a flush for its database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlushOutcome {
    Stored,
    DatabaseFailed,
    /// The whole store was unavailable.
    StoreFailed,
}

/// The times and bounds by which due buckets are chosen.
#[derive(Debug, Clone, Copy)]
pub struct FlushMoment {
    pub now: Instant,
    /// The wall clock, in nanoseconds since the epoch.
    pub clock: i64,
    /// The last record that is due.
    pub due: Sequence,
    /// True if everything is due.
    pub is_pressed: bool,
}

/// The bounds of one flush.
#[derive(Debug, Clone, Copy)]
pub struct FlushBounds {
    pub buckets: usize,
    /// The size in bytes at which no further bucket is added.
    pub bytes: usize,
}

/// A shard's unflushed readings by database.
#[derive(Debug)]
pub struct Memtables {
    rules: DueRules,
    /// Memtables by database number.
    tables: BTreeMap<u64, Memtable>,
    /// The database that was flushed last.
    turn: Option<u64>,
    /// Names of databases with a pending deletion. None of their buckets is due.
    stopped: BTreeSet<Box<str>>,
    /// The memory of all unflushed readings, in bytes.
    memory: usize,
    /// True at shutdown, when failing databases are not tried again.
    is_last_attempt: bool,
}

impl Memtables {
    pub fn new(rules: DueRules) -> Self {
        Self { rules, tables: BTreeMap::new(), turn: None, stopped: BTreeSet::new(), memory: 0, is_last_attempt: false }
    }

    /// Returns the number of buckets with unflushed readings.
    pub fn len(&self) -> usize {
        self.tables.values().map(|table| table.unflushed.len()).sum()
    }

    /// Returns the memory of unflushed readings in bytes.
    pub fn memory(&self) -> usize {
        self.memory
    }

    /// Returns the buckets of a database; `None` if it never had any.
    pub fn get(&self, database: &Database) -> Option<&MemtableBuckets> {
        self.tables.get(&database.number).map(|table| &table.unflushed)
    }

    /// Changes the buckets of a database, and updates the memory count.
    pub fn update_buckets<T>(&mut self, database: &Arc<Database>, change: impl FnOnce(&mut MemtableBuckets) -> T) -> T {
        let Self { rules, tables, .. } = self;
        let new = || Memtable {
            database: database.clone(),
            unflushed: MemtableBuckets::new(*rules),
            backoff: None,
            is_reported: false,
        };
        let Memtable { unflushed, .. } = tables.entry(database.number).or_insert_with(new);
        self.memory -= unflushed.memory();
        let changed = change(unflushed);
        self.memory += unflushed.memory();
        changed
    }

    /// Removes a database's memtable. None of its readings may be in flush.
    pub fn remove(&mut self, database: &Database) -> Option<Memtable> {
        let removed = self.tables.remove(&database.number)?;
        self.memory -= removed.unflushed.memory();
        Some(removed)
    }

    /// Stops flushes of databases with this name until [`Memtables::resume`].
    pub fn stop(&mut self, name: &str) {
        self.stopped.insert(name.into());
    }

    /// Ends [`Memtables::stop`].
    pub fn resume(&mut self, name: &str) {
        self.stopped.remove(name);
    }

    pub fn is_stopped(&self, name: &str) -> bool {
        self.stopped.contains(name)
    }

    /// Returns the size of a database's unflushed readings and their first record.
    pub fn waits(&self, database: &Database) -> WaitingReadings {
        self.get(database).map_or_else(WaitingReadings::default, |unflushed| WaitingReadings {
            bytes: unflushed.memory(),
            first: unflushed.first(),
        })
    }

    /// Returns the number of running probes. They do not count against the flushes of healthy databases.
    pub fn probes(&self) -> usize {
        self.tables.values().filter(|table| table.backoff.as_ref().is_some_and(|backoff| backoff.is_probing)).count()
    }

    /// Takes the probes of failing databases whose wait is over: at most `probes_max`, and the longest wait first.
    pub fn next_probes(&mut self, moment: FlushMoment, bounds: FlushBounds, probes_max: usize) -> Vec<Vec<Load>> {
        let Self { tables, stopped, .. } = self;
        let mut waiting: Vec<(Instant, &mut Memtable)> = Vec::new();
        for table in tables.values_mut() {
            let Some(Backoff { probe_at, is_probing: false, .. }) = table.backoff else { continue };
            if probe_at <= moment.now && !table.unflushed.is_empty() && !stopped.contains(&table.database.name) {
                waiting.push((probe_at, table));
            }
        }
        waiting.sort_by_key(|(probe_at, _)| *probe_at);
        let mut probes = Vec::new();
        for (_, table) in waiting {
            if probes.len() >= probes_max {
                break;
            }
            let mut loads = Vec::new();
            take(&mut table.unflushed, moment, bounds, &mut loads, |_| 0);
            if let Some(backoff) = table.backoff.as_mut().filter(|_| !loads.is_empty()) {
                backoff.is_probing = true;
                probes.push(loads);
            }
        }
        probes
    }

    /// Takes the due buckets of healthy databases, up to the bounds of one flush. Returns one batch per database,
    /// starting with the database after the last one. `bucket_bytes` estimates the memory of a load's bucket.
    pub fn next(
        &mut self,
        moment: FlushMoment,
        bounds: FlushBounds,
        bucket_bytes: impl Fn(&Load) -> usize,
    ) -> Vec<Vec<Load>> {
        let is_healthy = |table: &Memtable| {
            !table.unflushed.is_empty() && table.backoff.is_none() && !self.stopped.contains(&table.database.name)
        };
        let healthy = self.tables.iter().filter(|(_, table)| is_healthy(table));
        let mut numbers: Vec<u64> = healthy.map(|(number, _)| *number).collect();
        let served = numbers.partition_point(|number| self.turn.is_some_and(|turn| *number <= turn));
        numbers.rotate_left(served);
        let mut batches = Vec::new();
        let mut left = bounds;
        for number in numbers {
            let Some(table) = self.tables.get_mut(&number) else { continue };
            let mut loads = Vec::new();
            left = take(&mut table.unflushed, moment, left, &mut loads, &bucket_bytes);
            if !loads.is_empty() {
                self.turn = Some(number);
                batches.push(loads);
            }
            if left.buckets == 0 || left.bytes == 0 {
                break;
            }
        }
        batches
    }

    /// Notes the outcome of a flush.
    pub fn note_outcome(&mut self, database: &Database, outcome: FlushOutcome, now: Instant) {
        let Some(table) = self.tables.get_mut(&database.number) else { return };
        if outcome == FlushOutcome::Stored {
            let was_store_away = table.backoff.take().is_some_and(|backoff| backoff.is_store_away);
            if was_store_away {
                // The store is back, so probe every database that waited for it.
                let backoffs = self.tables.values_mut().filter_map(|table| table.backoff.as_mut());
                backoffs.filter(|backoff| backoff.is_store_away).for_each(|backoff| backoff.probe_at = now);
            }
            return;
        }
        let wait = match &table.backoff {
            None => RETRY.start,
            // The flush began before the first failure, so the wait does not grow.
            Some(backoff) if !backoff.is_probing => backoff.wait,
            Some(backoff) => (backoff.wait * 2).min(RETRY.end),
        };
        let pause = if self.is_last_attempt { NEVER } else { wait };
        let is_store_away = outcome == FlushOutcome::StoreFailed;
        table.backoff = Some(Backoff { probe_at: now + pause, wait, is_probing: false, is_store_away });
    }

    /// Returns true if the last flush of a database, or of some bucket of it, failed.
    pub fn is_failing(&self, database: &Database) -> bool {
        let Some(table) = self.tables.get(&database.number) else { return false };
        !table.unflushed.is_empty() && (table.backoff.is_some() || table.unflushed.failed_count() > 0)
    }

    /// Notes whether the database is reported as failing. Returns the previous value.
    pub fn note_reported(&mut self, database: &Database, is_reported: bool) -> bool {
        self.tables
            .get_mut(&database.number)
            .is_some_and(|table| std::mem::replace(&mut table.is_reported, is_reported))
    }

    /// Returns true if the database was last reported as failing.
    pub fn is_reported(&self, database: &Database) -> bool {
        self.tables.get(&database.number).is_some_and(|table| table.is_reported)
    }

    /// Removes all backoffs. A database that fails from now on is not tried again.
    pub fn begin_last_attempt(&mut self) {
        self.is_last_attempt = true;
        self.tables.values_mut().for_each(|table| table.backoff = None);
    }
}

/// Takes due buckets within the bounds and adds them to `loads`. Returns the rest of the bounds.
fn take(
    buckets: &mut MemtableBuckets,
    moment: FlushMoment,
    bounds: FlushBounds,
    loads: &mut Vec<Load>,
    bucket_bytes: impl Fn(&Load) -> usize,
) -> FlushBounds {
    let mut left = bounds;
    while left.buckets > 0 && left.bytes > 0 {
        let Some(key) = buckets.next_due(moment.now, moment.clock, moment.due, moment.is_pressed) else { break };
        let Some(load) = buckets.take(key) else { break };
        let mut same_day = buckets.hours_of_day(key, moment.now, moment.clock).into_iter();
        let mut next = Some(load);
        while let Some(load) = next {
            left = FlushBounds {
                buckets: left.buckets.saturating_sub(1),
                bytes: left.bytes.saturating_sub(load.merged_memory() + bucket_bytes(&load)),
            };
            loads.push(load);
            next = if left.bytes > 0 { same_day.find_map(|key| buckets.take(key)) } else { None };
        }
    }
    left
}

#[cfg(test)]
mod tests;
