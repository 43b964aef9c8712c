//! A shard's memtables, one per database, each with its own order, turn and backoff: a database that the store fails on
//! delays no other. Only decides; does not access the store.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::buffer::flush::failing::WaitingReadings;
use crate::buffer::memtable::{DueRules, Load, MemtableBuckets};
use crate::catalog::Database;
use crate::wal::Sequence;

/// First and longest wait before a database that the store failed on is tried again.
const RETRY: Range<Duration> = Duration::from_millis(100)..Duration::from_secs(2);

/// Longer than any process takes to stop.
const NEVER: Duration = Duration::from_secs(24 * 3600);

/// The unflushed readings of one database, and when it may be flushed.
#[derive(Debug)]
pub struct Memtable {
    database: Arc<Database>,
    pub(super) unflushed: MemtableBuckets,
    backoff: Option<Backoff>,
    /// Whether it was last reported as failing, as a whole or in some bucket.
    pub(super) is_reported: bool,
}

/// Present while the store fails on the database.
#[derive(Debug)]
struct Backoff {
    at: Instant,
    wait: Duration,
    /// Whether a probe is under way: a flush of a few buckets that shows whether the store accepts them again.
    probing: bool,
    /// Whether the whole store was unavailable, not just this database.
    of_store: bool,
}

/// The moment at which flushes are chosen, and what is due then.
#[derive(Debug, Clone, Copy)]
pub struct FlushMoment {
    pub now: Instant,
    /// Wall clock, in nanoseconds.
    pub clock: i64,
    /// Everything up to this record is due.
    pub due: Sequence,
    /// Whether everything is due.
    pub pressed: bool,
}

/// Bounds of one flush.
#[derive(Debug, Clone, Copy)]
pub struct FlushBounds {
    pub buckets: usize,
    /// Bytes after which no further bucket is added.
    pub bytes: usize,
}

/// A shard's unflushed readings, by database.
#[derive(Debug)]
pub struct Memtables {
    rules: DueRules,
    /// By database number.
    tables: BTreeMap<u64, Memtable>,
    /// The database that was served last.
    turn: Option<u64>,
    /// Names of databases with a pending deletion: none of their buckets is due.
    stopped: BTreeSet<Box<str>>,
    memory: usize,
    /// At shutdown: a database that fails is not tried again.
    is_last_try: bool,
}

impl Memtables {
    pub fn new(rules: DueRules) -> Self {
        let (tables, stopped) = (BTreeMap::new(), BTreeSet::new());
        Self { rules, tables, turn: None, stopped, memory: 0, is_last_try: false }
    }

    /// How many buckets have unflushed readings.
    pub fn len(&self) -> usize {
        self.tables.values().map(|table| table.unflushed.len()).sum()
    }

    /// Bytes of memory that unflushed readings take.
    pub fn memory(&self) -> usize {
        self.memory
    }

    /// A database's buckets; `None` if it never had any.
    pub fn get(&self, database: &Database) -> Option<&MemtableBuckets> {
        self.tables.get(&database.number).map(|table| &table.unflushed)
    }

    /// Changes a database's buckets, and keeps the count of memory right.
    pub fn with<T>(&mut self, database: &Arc<Database>, change: impl FnOnce(&mut MemtableBuckets) -> T) -> T {
        let Self { rules, tables, .. } = self;
        let new = || {
            let (database, unflushed) = (database.clone(), MemtableBuckets::new(*rules));
            Memtable { database, unflushed, backoff: None, is_reported: false }
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

    /// Stops flushes of the databases of this name until [`Memtables::resume`].
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

    /// How much of a database waits, and since which record.
    pub fn waits(&self, database: &Database) -> WaitingReadings {
        self.get(database).map_or_else(WaitingReadings::default, |unflushed| WaitingReadings {
            bytes: unflushed.memory(),
            first: unflushed.first(),
        })
    }

    /// How many flushes are probes; they use no slot of healthy databases.
    pub fn probes(&self) -> usize {
        self.tables.values().filter(|table| table.backoff.as_ref().is_some_and(|backoff| backoff.probing)).count()
    }

    /// Probes of failing databases whose wait is over, at most `most`: a few buckets each.
    pub fn next_probes(&mut self, at: FlushMoment, room: FlushBounds, most: usize) -> Vec<Vec<Load>> {
        let Self { tables, stopped, .. } = self;
        let is_waiting = |table: &Memtable| {
            let is_due = table.backoff.as_ref().is_some_and(|b| !b.probing && b.at <= at.now);
            is_due && !table.unflushed.is_empty() && !stopped.contains(&table.database.name)
        };
        // Longest wait first.
        let mut waiting: Vec<(Option<Instant>, &mut Memtable)> = tables
            .values_mut()
            .filter(|table| is_waiting(table))
            .map(|table| (table.backoff.as_ref().map(|backoff| backoff.at), table))
            .collect();
        waiting.sort_by_key(|(at, _)| *at);
        let mut probes = Vec::new();
        for (_, table) in waiting {
            if probes.len() >= most {
                break;
            }
            let mut loads = Vec::new();
            take(&mut table.unflushed, at, room, &mut loads, |_| 0);
            if let Some(backoff) = table.backoff.as_mut().filter(|_| !loads.is_empty()) {
                backoff.probing = true;
                probes.push(loads);
            }
        }
        probes
    }

    /// What is due of healthy databases, up to the bounds of one flush: one batch per database, beginning with the
    /// database after the one served last. `more` estimates the memory of a load's cached bucket.
    pub fn next(&mut self, at: FlushMoment, room: FlushBounds, more: impl Fn(&Load) -> usize) -> Vec<Vec<Load>> {
        let is_well = |table: &Memtable| {
            !table.unflushed.is_empty() && table.backoff.is_none() && !self.stopped.contains(&table.database.name)
        };
        let well = self.tables.iter().filter(|(_, table)| is_well(table));
        let mut numbers: Vec<u64> = well.map(|(number, _)| *number).collect();
        let behind = numbers.partition_point(|number| self.turn.is_some_and(|turn| *number <= turn));
        numbers.rotate_left(behind);
        let (mut batches, mut left) = (Vec::new(), room);
        for number in numbers {
            let Some(table) = self.tables.get_mut(&number) else { continue };
            let mut loads = Vec::new();
            left = take(&mut table.unflushed, at, left, &mut loads, &more);
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

    /// Notes the outcome of a flush. `failure` is `None` on success, else whether the whole store was unavailable.
    pub fn completed(&mut self, database: &Database, failure: Option<bool>, now: Instant) {
        let Some(table) = self.tables.get_mut(&database.number) else { return };
        let Some(of_store) = failure else {
            let was_of_store = table.backoff.take().is_some_and(|backoff| backoff.of_store);
            if was_of_store {
                // The store is back: probe every database that waited for it.
                let away = self.tables.values_mut().filter_map(|table| table.backoff.as_mut());
                away.filter(|backoff| backoff.of_store).for_each(|backoff| backoff.at = now);
            }
            return;
        };
        let wait = match &table.backoff {
            None => RETRY.start,
            // The flush began before the first failure, so its failure says nothing new.
            Some(backoff) if !backoff.probing => backoff.wait,
            Some(backoff) => (backoff.wait * 2).min(RETRY.end),
        };
        let pause = if self.is_last_try { NEVER } else { wait };
        table.backoff = Some(Backoff { at: now + pause, wait, probing: false, of_store });
    }

    /// Whether the store fails on a database, or on some bucket of it, as far as this shard has tried.
    pub fn is_failing(&self, database: &Database) -> bool {
        let fails =
            |table: &Memtable| !table.unflushed.is_empty() && (table.backoff.is_some() || table.unflushed.failed() > 0);
        self.tables.get(&database.number).is_some_and(fails)
    }

    /// Notes whether the database is reported as failing; returns what was noted before.
    pub fn note_reported(&mut self, database: &Database, is_reported: bool) -> bool {
        self.tables
            .get_mut(&database.number)
            .is_some_and(|table| std::mem::replace(&mut table.is_reported, is_reported))
    }

    /// Whether the database was last reported as failing.
    pub fn is_reported(&self, database: &Database) -> bool {
        self.tables.get(&database.number).is_some_and(|table| table.is_reported)
    }

    /// Makes every database due at once, whatever its backoff; one that fails now is not tried again.
    pub fn try_for_the_last_time(&mut self) {
        self.is_last_try = true;
        self.tables.values_mut().for_each(|table| table.backoff = None);
    }
}

/// Adds what is due to `loads`, within the bounds; returns what is left of them.
fn take(
    from: &mut MemtableBuckets,
    at: FlushMoment,
    room: FlushBounds,
    loads: &mut Vec<Load>,
    more: impl Fn(&Load) -> usize,
) -> FlushBounds {
    let mut left = room;
    while left.buckets > 0 && left.bytes > 0 {
        let Some(key) = from.next_due(at.now, at.clock, at.due, at.pressed) else { break };
        let Some(load) = from.take(key) else { break };
        let mut with_it = from.hours_of_day(key, at.now, at.clock).into_iter();
        let mut next = Some(load);
        while let Some(load) = next {
            left = FlushBounds {
                buckets: left.buckets.saturating_sub(1),
                bytes: left.bytes.saturating_sub(load.bytes + more(&load)),
            };
            loads.push(load);
            next = if left.bytes > 0 { with_it.find_map(|key| from.take(key)) } else { None };
        }
    }
    left
}

#[cfg(test)]
mod tests;
