//! What a shard has that is not in the store, by database: each has its own order, its own turn and its own back-off, so
//! that a database that the store fails on holds up no other. Decides; knows no store.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::ingest::catalog::Database;
use crate::ingest::failing::Waits;
use crate::ingest::unflushed::{Load, Rules, Unflushed};
use crate::log::Sequence;

/// How long after the store failed on a database that is tried again, at first and at most.
const RETRY: Range<Duration> = Duration::from_millis(100)..Duration::from_secs(2);

/// Longer than any process takes to stop.
const NEVER: Duration = Duration::from_secs(24 * 3600);

/// The readings of one database, by whatever name it went, and when they may be tried.
#[derive(Debug)]
pub struct Memtable {
    database: Arc<Database>,
    unflushed: Unflushed,
    backoff: Option<Backoff>,
    /// Whether it was told that the store fails on it, or on some bucket of it.
    is_told: bool,
}

/// The store failed on the database when it was last tried.
#[derive(Debug)]
struct Backoff {
    at: Instant,
    wait: Duration,
    /// A few buckets are on their way, to see whether it takes them now.
    probing: bool,
    /// The store was not there, for nobody.
    of_store: bool,
}

/// When a flight may start, and with what.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// Now.
    pub now: Instant,
    /// The clock, in nanoseconds.
    pub clock: i64,
    /// Up to which record everything is due.
    pub due: Sequence,
    /// Whether everything is.
    pub pressed: bool,
}

/// Bounds of one flight.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    /// Most buckets.
    pub buckets: usize,
    /// Bytes after which no further bucket is added.
    pub bytes: usize,
}

/// A shard's unflushed readings, by database.
#[derive(Debug)]
pub struct Memtables {
    rules: Rules,
    /// By their databases' numbers.
    tables: BTreeMap<u64, Memtable>,
    /// Whose turn was the last.
    turn: Option<u64>,
    /// Names of databases of which something is being deleted: nothing of them is due until that is done.
    stopped: BTreeSet<Box<str>>,
    memory: usize,
    /// Nobody waits for a further try.
    is_last_try: bool,
}

impl Memtables {
    /// None yet.
    pub fn new(rules: Rules) -> Self {
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

    /// What is unflushed of a database, if there ever was anything.
    pub fn get(&self, database: &Database) -> Option<&Unflushed> {
        self.tables.get(&database.number).map(|table| &table.unflushed)
    }

    /// Changes what is unflushed of a database.
    pub fn with<T>(&mut self, database: &Arc<Database>, change: impl FnOnce(&mut Unflushed) -> T) -> T {
        let Self { rules, tables, .. } = self;
        let new = || {
            let (database, unflushed) = (database.clone(), Unflushed::new(*rules));
            Memtable { database, unflushed, backoff: None, is_told: false }
        };
        let Memtable { unflushed, .. } = tables.entry(database.number).or_insert_with(new);
        self.memory -= unflushed.memory();
        let changed = change(unflushed);
        self.memory += unflushed.memory();
        changed
    }

    /// Takes out all that is unflushed of a database, of which nothing may be in flight.
    pub fn remove(&mut self, database: &Database) -> Option<Memtable> {
        let removed = self.tables.remove(&database.number)?;
        self.memory -= removed.unflushed.memory();
        Some(removed)
    }

    /// Has nothing of the databases of this name due, until it is resumed.
    pub fn stop(&mut self, name: &str) {
        self.stopped.insert(name.into());
    }

    /// Ends a stop.
    pub fn resume(&mut self, name: &str) {
        self.stopped.remove(name);
    }

    /// Whether databases of this name are stopped.
    pub fn is_stopped(&self, name: &str) -> bool {
        self.stopped.contains(name)
    }

    /// What waits of a database.
    pub fn waits(&self, database: &Database) -> Waits {
        self.get(database)
            .map_or_else(Waits::default, |unflushed| Waits { bytes: unflushed.memory(), first: unflushed.first() })
    }

    /// How many flights are probes: they take no place from those of databases that are well.
    pub fn probes(&self) -> usize {
        self.tables.values().filter(|table| table.backoff.as_ref().is_some_and(|backoff| backoff.probing)).count()
    }

    /// The databases whose time has come to be tried again, with a few of their buckets each: at most so many.
    pub fn next_probes(&mut self, at: Moment, room: Room, most: usize) -> Vec<Vec<Load>> {
        let Self { tables, stopped, .. } = self;
        let is_waiting = |table: &Memtable| {
            let is_due = table.backoff.as_ref().is_some_and(|b| !b.probing && b.at <= at.now);
            is_due && !table.unflushed.is_empty() && !stopped.contains(&table.database.name)
        };
        // Who has waited longest comes first.
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

    /// What is due of databases that are well, as much as fits into a flight: lots of one database each, beginning
    /// with the database behind the one that came last.
    pub fn next(&mut self, at: Moment, room: Room, more: impl Fn(&Load) -> usize) -> Vec<Vec<Load>> {
        let is_well = |table: &Memtable| {
            !table.unflushed.is_empty() && table.backoff.is_none() && !self.stopped.contains(&table.database.name)
        };
        let well = self.tables.iter().filter(|(_, table)| is_well(table));
        let mut numbers: Vec<u64> = well.map(|(number, _)| *number).collect();
        let behind = numbers.partition_point(|number| self.turn.is_some_and(|turn| *number <= turn));
        numbers.rotate_left(behind);
        let (mut lots, mut left) = (Vec::new(), room);
        for number in numbers {
            let Some(table) = self.tables.get_mut(&number) else { continue };
            let mut loads = Vec::new();
            left = take(&mut table.unflushed, at, left, &mut loads, &more);
            if !loads.is_empty() {
                self.turn = Some(number);
                lots.push(loads);
            }
            if left.buckets == 0 || left.bytes == 0 {
                break;
            }
        }
        lots
    }

    /// Notes what became of a flight of a database: why the store failed on it, if it did.
    pub fn landed(&mut self, database: &Database, failure: Option<bool>, now: Instant) {
        let Some(table) = self.tables.get_mut(&database.number) else { return };
        let Some(of_store) = failure else {
            let was_of_store = table.backoff.take().is_some_and(|backoff| backoff.of_store);
            if was_of_store {
                // The store is back, for all who waited for it.
                let away = self.tables.values_mut().filter_map(|table| table.backoff.as_mut());
                away.filter(|backoff| backoff.of_store).for_each(|backoff| backoff.at = now);
            }
            return;
        };
        let wait = match &table.backoff {
            None => RETRY.start,
            // Of flights that had begun before the first failure one more says nothing new.
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

    /// Notes whether others were told that the store fails on a database; what was noted before.
    pub fn tell(&mut self, database: &Database, is_told: bool) -> bool {
        self.tables.get_mut(&database.number).is_some_and(|table| std::mem::replace(&mut table.is_told, is_told))
    }

    /// Whether others were told that the store fails on a database.
    pub fn is_told(&self, database: &Database) -> bool {
        self.tables.get(&database.number).is_some_and(|table| table.is_told)
    }

    /// Has every database tried at once, however long ago the store failed on it; one that fails now is not tried again.
    pub fn try_for_the_last_time(&mut self) {
        self.is_last_try = true;
        self.tables.values_mut().for_each(|table| table.backoff = None);
    }
}

impl Memtable {
    /// How many readings it has, of which nothing may be in flight.
    pub fn readings(&self) -> usize {
        self.unflushed.readings()
    }

    /// Whether others were told that the store fails on it.
    pub fn is_told(&self) -> bool {
        self.is_told
    }
}

/// Takes what is due, within the room; what is left of that.
fn take(from: &mut Unflushed, at: Moment, room: Room, loads: &mut Vec<Load>, more: impl Fn(&Load) -> usize) -> Room {
    let mut left = room;
    while left.buckets > 0 && left.bytes > 0 {
        let next = from.next_due(at.now, at.clock, at.due, at.pressed);
        let Some(load) = next.and_then(|key| from.take(key)) else { break };
        left = Room { buckets: left.buckets - 1, bytes: left.bytes.saturating_sub(load.bytes + more(&load)) };
        loads.push(load);
    }
    left
}

#[cfg(test)]
mod tests;
