//! Sensor documents that lag behind the pages: which, since when, and what of them is to be written now. Decides; asks no
//! store and waits for nobody.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::catalog::{Database, KnownSensor};
use super::flight::Run;
use super::progress::{Hold, Ticket};
use super::refresh::{BATCH, Outcome, Outdated};
use crate::bucket::StorageError;
use crate::bucket::hot::HotBuckets;
use crate::bucket::packed::Packed;
use crate::reading::Hour;
use crate::telemetry::Metrics;

/// How long a database whose documents could not be written waits before they are tried again.
const PUT_OFF: Duration = Duration::from_secs(2);
/// How long after a failure of its own a document is tried again, at first and at most.
const RETRY: Range<Duration> = Duration::from_secs(1)..Duration::from_secs(300);

/// What became of a sensor since its document was last written.
#[derive(Debug)]
struct Change {
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

impl Change {
    /// Adds what became of it later.
    fn add(&mut self, (first, last): (i64, i64), hours: impl IntoIterator<Item = Hour>, most: usize) {
        self.seen = Some(self.seen.map_or((first, last), |(f, l)| (f.min(first), l.max(last))));
        self.hours.extend(hours);
        while self.hours.len() > most.max(1) {
            self.hours.pop_first();
        }
    }

    fn spill(&mut self, (hour, pages): (Hour, u32)) {
        if self.outlier.is_none_or(|(latest, _)| latest <= hour) {
            self.outlier = Some((hour, pages));
        }
    }
}

/// The sensors of one database whose documents lag behind.
#[derive(Debug, Default)]
pub struct OfDatabase {
    changes: HashMap<u32, Change>,
    /// Those whose document is being written, as they were when that began.
    under_way: HashMap<u32, Change>,
    /// Those whose document could not be read or written for a reason of its own: when each is tried again, and how long
    /// it waits after the next failure. They hold nothing in the log, since their pages are stored.
    failing: HashMap<u32, (Change, Instant, Duration)>,
    /// Whose documents are written next, the first of them last: in the order of their keys, so that those written
    /// together are neighbours in the store. Those that have come since are for the next round.
    round: Vec<u32>,
    /// Sensors whose bucket just outgrew its page: they are to be listed as outliers at once.
    urgent: BTreeSet<u32>,
    /// What landed and counts as flushed when the urgent ones are listed; and when those under way are.
    landed: Vec<Arc<Packed>>,
    landed_under_way: Vec<Arc<Packed>>,
    /// Its documents could not be written: until when they are not tried again.
    put_off: Option<Instant>,
}

/// The sensors of one shard whose documents lag behind.
#[derive(Debug)]
pub struct Lagging {
    /// By their databases' numbers.
    databases: BTreeMap<u64, (Arc<Database>, OfDatabase)>,
    recent: usize,
}

impl Lagging {
    /// None yet; documents hold the `recent` latest readings.
    pub fn new(recent: usize) -> Self {
        Self { databases: BTreeMap::new(), recent }
    }

    fn of(&mut self, database: &Database) -> Option<&mut OfDatabase> {
        self.databases.get_mut(&database.number).map(|(_, of)| of)
    }

    /// Notes that a run's readings are in the store. The ticket is that of the first of them.
    pub fn note(&mut self, database: &Arc<Database>, run: &Run, ticket: Option<&Arc<Ticket>>) {
        let pages = run.bucket.pages();
        let times = pages.iter().filter_map(|p| Some((*p.readings.times().first()?, *p.readings.times().last()?)));
        let Some(seen) = times.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))) else { return };
        let new = || Change {
            known: run.known.clone(),
            seen: None,
            hours: BTreeSet::new(),
            outlier: None,
            _hold: ticket.map(|ticket| ticket.hold()),
            retry: None,
        };
        let (_, of) =
            self.databases.entry(database.number).or_insert_with(|| (database.clone(), OfDatabase::default()));
        let (change, is_failing) = match of.failing.get_mut(&run.known.id) {
            Some((change, ..)) => (change, true),
            None => (of.changes.entry(run.known.id).or_insert_with(new), false),
        };
        change.add(seen, [run.id.hour], self.recent);
        if run.changed() && pages.len() > 1 {
            change.spill((run.id.hour, u32::try_from(pages.len()).unwrap_or(u32::MAX)));
            if run.pages_before < 2 && !is_failing {
                of.urgent.insert(run.known.id);
            }
        }
    }

    /// Forgets what is known of sensors of which something is about to be deleted: whoever deletes it brings their
    /// documents up to date.
    pub fn forget(&mut self, database: &Database, sensors: &HashSet<u32>) {
        let Some(of) = self.of(database) else { return };
        for id in sensors {
            of.changes.remove(id);
            of.failing.remove(id);
            of.urgent.remove(id);
        }
    }

    /// Forgets a whole database. What was known of it is returned, so that it may be freed where nobody waits for it.
    pub fn remove(&mut self, database: &Database) -> Option<OfDatabase> {
        self.databases.remove(&database.number).map(|(_, of)| of)
    }

    /// How many lag behind, but for those whose own document cannot be written now.
    pub fn len(&self) -> usize {
        self.databases.values().map(|(_, of)| of.changes.len() + of.under_way.len()).sum()
    }

    /// What of a sensor is stored and not in its document, as far as it is known here.
    pub fn outdated(&self, database: &Database, known: &Arc<KnownSensor>, hot: &HotBuckets) -> Option<Outdated> {
        let (_, of) = self.databases.get(&database.number)?;
        let failing = || of.failing.get(&known.id).map(|(change, ..)| change);
        let later = of.changes.get(&known.id).or_else(failing);
        let both = [of.under_way.get(&known.id), later];
        let known = both.iter().flatten().next()?.known.clone();
        let seen = both.iter().flatten().filter_map(|change| change.seen).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        let hours: BTreeSet<Hour> = both.iter().flatten().flat_map(|change| &change.hours).copied().collect();
        let outlier = both.iter().flatten().filter_map(|change| change.outlier).max_by_key(|(hour, _)| *hour);
        let mut found = 0;
        let with_tail = |hour: Hour| {
            let tail =
                if found < self.recent { hot.tail(database.number, (known.id, hour), self.recent) } else { None };
            found += tail.as_ref().map_or(0, Vec::len);
            (hour, tail)
        };
        let hours = hours.into_iter().rev().take(self.recent).map(with_tail).collect();
        Some(Outdated { known, seen, hours, outlier })
    }

    /// Has the documents of all that lag behind now written, database by database, where that is not under way.
    pub fn begin_round(&mut self, now: Instant) {
        for (_, of) in self.databases.values_mut() {
            if of.put_off.is_some_and(|until| until <= now) {
                of.put_off = None;
            }
            for (id, (mut change, _, wait)) in of.failing.extract_if(|_, (_, at, _)| *at <= now) {
                change.retry = Some(wait);
                of.changes.insert(id, change);
            }
            if of.put_off.is_none() && of.round.is_empty() && of.under_way.is_empty() {
                let mut all: Vec<(&str, u32)> =
                    of.changes.iter().map(|(id, change)| (&*change.known.sensor.key, *id)).collect();
                all.sort_unstable();
                of.round = all.iter().rev().map(|(_, id)| *id).collect();
            }
        }
    }

    /// Some documents of this round that are to be written now, of a database that may be written to and of which none
    /// are under way: at most [`BATCH`] of them.
    pub fn next(
        &mut self,
        hot: &HotBuckets,
        may_be_written: impl Fn(&Database) -> bool,
    ) -> Option<(Arc<Database>, Vec<Outdated>)> {
        let is_open = |(database, of): &&mut (Arc<Database>, OfDatabase)| {
            !of.round.is_empty() && of.under_way.is_empty() && of.put_off.is_none() && may_be_written(database)
        };
        let mut next = None;
        for (database, of) in self.databases.values_mut().filter(is_open) {
            while !of.round.is_empty() && of.under_way.is_empty() {
                let later = of.round.len().saturating_sub(BATCH);
                // Some have been forgotten since the round began.
                of.under_way = of.round.drain(later..).filter_map(|id| Some((id, of.changes.remove(&id)?))).collect();
            }
            if !of.under_way.is_empty() {
                next = Some(database.clone());
                break;
            }
        }
        next.map(|database| self.under_way(database, hot))
    }

    /// The documents of sensors that have just become outliers, which are to be written at once.
    pub fn next_urgent(&mut self, database: &Database, hot: &HotBuckets) -> Option<(Arc<Database>, Vec<Outdated>)> {
        let (database, of) = self.databases.get_mut(&database.number)?;
        if of.urgent.is_empty() || !of.under_way.is_empty() {
            return None;
        }
        let urgent = std::mem::take(&mut of.urgent);
        of.under_way = urgent.into_iter().filter_map(|id| Some((id, of.changes.remove(&id)?))).collect();
        of.landed_under_way = std::mem::take(&mut of.landed);
        let database = database.clone();
        Some(self.under_way(database, hot))
    }

    fn under_way(&self, database: Arc<Database>, hot: &HotBuckets) -> (Arc<Database>, Vec<Outdated>) {
        let (_, of) = &self.databases[&database.number];
        let mut outdated: Vec<Outdated> =
            of.under_way.values().filter_map(|change| self.outdated(&database, &change.known, hot)).collect();
        outdated.sort_unstable_by(|a, b| a.known.sensor.key.cmp(&b.known.sensor.key));
        (database, outdated)
    }

    /// Keeps what has landed until new outliers are listed; returns it where there are none.
    pub fn await_urgent(&mut self, database: &Database, landed: Vec<Arc<Packed>>) -> Vec<Arc<Packed>> {
        match self.of(database) {
            Some(of) if !of.urgent.is_empty() => {
                of.landed.extend(landed);
                Vec::new()
            }
            _ => landed,
        }
    }

    /// Takes notice of what became of documents that were under way. What the store did not take stays lagging. Returns
    /// what now counts as flushed.
    pub fn landed(
        &mut self,
        database: &Database,
        outcome: Outcome,
        now: Instant,
        metrics: &Metrics,
    ) -> Vec<Arc<Packed>> {
        let recent = self.recent;
        let Some(of) = self.of(database) else { return Vec::new() };
        for id in outcome.done {
            of.under_way.remove(&id);
        }
        for (id, error) in outcome.failed {
            metrics.store_error(error.class());
            of.fail(&database.name, (id, &error), (now, recent));
        }
        for (id, change) in std::mem::take(&mut of.under_way) {
            let merged = of.with_later(id, change, recent);
            of.changes.insert(id, merged);
        }
        if let Some(error) = outcome.error {
            metrics.store_error(error.class());
            tracing::warn!(database = &*database.name, sensors = of.changes.len(), %error,
                "sensor documents lag behind; they are tried again");
            of.put_off = Some(now + PUT_OFF);
            of.round.clear();
        }
        let mut landed = std::mem::take(&mut of.landed_under_way);
        if of.urgent.is_empty() {
            landed.append(&mut of.landed);
        }
        landed
    }
}

impl OfDatabase {
    /// A change with what became of its sensor since.
    fn with_later(&mut self, id: u32, mut change: Change, recent: usize) -> Change {
        if let Some(later) = self.changes.remove(&id) {
            if let Some(seen) = later.seen {
                change.add(seen, later.hours, recent);
            }
            later.outlier.into_iter().for_each(|outlier| change.spill(outlier));
        }
        change
    }

    /// Leaves a sensor's document for later, since nothing can be done about it now.
    fn fail(&mut self, database: &str, (id, error): (u32, &StorageError), (now, recent): (Instant, usize)) {
        let Some(change) = self.under_way.remove(&id) else { return };
        let mut change = self.with_later(id, change, recent);
        let wait = change.retry.take().unwrap_or(RETRY.start);
        if !error.is_transient() {
            tracing::error!(
                database, sensor = %change.known.sensor.key, %error, ?wait,
                "a sensor's document cannot be brought up to date; it is tried again"
            );
        }
        change._hold = None;
        self.urgent.remove(&id);
        self.failing.insert(id, (change, now + wait, (2 * wait).min(RETRY.end)));
    }
}
