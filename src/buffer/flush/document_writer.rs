//! Which sensor documents lag behind the pages, and which of them to write now. Only decides: does not access the store
//! and never waits.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::documents::{BATCH, DocumentsOutcome, MetaUpdate, Outdated};
use super::task::BucketFlush;
use crate::bucket::cache::BucketCache;
use crate::bucket::packed::Packed;
use crate::bucket::{Meta, StorageError};
use crate::catalog::{Database, KnownSensor};
use crate::members::positions::{PendingAck, RequestGuards, WalPin};
use crate::members::registry_view::RegistryView;
use crate::reading::Hour;
use crate::reading::stamp::SETTLED;
use crate::telemetry::Metrics;

/// How long a database waits after its documents could not be written.
const PUT_OFF: Duration = Duration::from_secs(2);
/// First and longest wait before a document that failed for its own reasons is tried again.
const RETRY: Range<Duration> = Duration::from_secs(1)..Duration::from_secs(300);

/// What has happened to a sensor since its document was last written.
#[derive(Debug)]
struct SensorChange {
    known: Arc<KnownSensor>,
    /// Times of the earliest and latest reading stored since.
    seen: Option<(i64, i64)>,
    /// The latest hours written to, at most as many as the document holds readings: each hour has at least one reading,
    /// so earlier hours cannot matter.
    hours: BTreeSet<Hour>,
    /// The latest hour that took more than one page, and its number of pages.
    outlier: Option<(Hour, u32)>,
    /// Keeps the first record of these changes in the WAL until the document is written.
    _pin: Option<Arc<WalPin>>,
    /// After a failure of the document's own: the wait after its next failure.
    retry: Option<Duration>,
    /// New metadata.
    meta: Meta,
    /// Of the records of `meta`: they are stored when the document is.
    meta_guards: Vec<RequestGuards>,
}

impl SensorChange {
    fn new(known: &Arc<KnownSensor>, pin: Option<Arc<WalPin>>) -> Self {
        Self {
            known: known.clone(),
            seen: None,
            hours: BTreeSet::new(),
            outlier: None,
            _pin: pin,
            retry: None,
            meta: Meta::default(),
            meta_guards: Vec::new(),
        }
    }

    /// What stays of it when its readings are deleted.
    fn without_readings(self) -> Option<Self> {
        let Self { known, retry, meta, meta_guards, .. } = self;
        (!meta.is_empty()).then(|| Self { retry, meta, meta_guards, ..Self::new(&known, None) })
    }

    /// Forgets its metadata, and reports to those who wait for it that it is not stored.
    fn give_up_meta(&mut self, error: &StorageError) {
        self.meta = Meta::default();
        self.meta_guards.drain(..).for_each(|(pending_ack, _)| pending_ack.refuse(error));
    }

    /// Adds later changes.
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
pub struct DatabaseDocuments {
    changes: HashMap<u32, SensorChange>,
    /// Sensors whose documents are being written, with their changes when that began.
    under_way: HashMap<u32, SensorChange>,
    /// Documents that could not be read or written for reasons of their own: when each is tried again, and the wait
    /// after its next failure. They pin no WAL records, since their pages are stored.
    failing: HashMap<u32, (SensorChange, Instant, Duration)>,
    /// Sensors whose documents are written next, in reverse order of their keys, since the end is taken first:
    /// documents written together are neighbours in the store. Sensors that change meanwhile are left to the next
    /// round.
    round: Vec<u32>,
    /// Sensors whose bucket has just outgrown its page: lists must show them as outliers at once.
    urgent: BTreeSet<u32>,
    /// Sensors whose documents are written soon: they have new metadata, or pages but no document.
    wanted: BTreeSet<u32>,
    /// Stored readings that count as flushed once the `urgent` documents are stored.
    completed: Vec<Arc<Packed>>,
    /// Stored readings that count as flushed once the documents being written are stored.
    landed_under_way: Vec<Arc<Packed>>,
    /// After a failure: its documents are not tried before this.
    put_off: Option<Instant>,
    /// [`Database::doubts`] when a round last began for them.
    doubts: u64,
}

/// The sensors of one shard whose documents lag behind.
#[derive(Debug)]
pub struct SensorDocumentWriter {
    /// By database number.
    databases: BTreeMap<u64, (Arc<Database>, DatabaseDocuments)>,
    recent: usize,
}

impl SensorDocumentWriter {
    /// `recent` is how many of the latest readings a document holds.
    pub fn new(recent: usize) -> Self {
        Self { databases: BTreeMap::new(), recent }
    }

    fn of(&mut self, database: &Database) -> Option<&mut DatabaseDocuments> {
        self.databases.get_mut(&database.number).map(|(_, of)| of)
    }

    /// Notes that a bucket's readings are in the store. `pending_ack` is that of the first of them.
    pub fn note(&mut self, database: &Arc<Database>, run: &BucketFlush, pending_ack: Option<&Arc<PendingAck>>) {
        let pages = run.bucket.pages();
        let Some(seen) = run.in_chunk.or_else(|| run.bucket.span()) else { return };
        let recent = self.recent;
        let of = self.or_new(database);
        let (change, is_failing) = match of.failing.get_mut(&run.known.id) {
            Some((change, ..)) => (change, true),
            None => {
                let change = of.changes.entry(run.known.id).or_insert_with(|| SensorChange::new(&run.known, None));
                if change.seen.is_none() {
                    change._pin = pending_ack.map(|pending_ack| pending_ack.pin());
                }
                (change, false)
            }
        };
        change.add(seen, [run.id.hour], recent);
        // Another instance has deleted the document since the flush looked: without it, nobody finds the pages.
        if run.known.fields().is_unsaved() {
            of.wanted.insert(run.known.id);
        }
        if run.changed() && pages.len() > 1 {
            change.spill((run.id.hour, u32::try_from(pages.len()).unwrap_or(u32::MAX)));
            if run.pages_before < 2 && !is_failing {
                of.urgent.insert(run.known.id);
            }
        }
    }

    fn or_new(&mut self, database: &Arc<Database>) -> &mut DatabaseDocuments {
        let new = || (database.clone(), DatabaseDocuments::default());
        &mut self.databases.entry(database.number).or_insert_with(new).1
    }

    /// Takes a change of metadata from the WAL.
    pub fn note_meta(&mut self, database: &Arc<Database>, known: &Arc<KnownSensor>, change: &Meta, tracked: &RequestGuards) {
        let of = self.or_new(database);
        let noted = match of.failing.get_mut(&known.id) {
            Some((noted, ..)) => noted,
            None => of.changes.entry(known.id).or_insert_with(|| SensorChange::new(known, None)),
        };
        noted.meta.merge(change);
        noted.meta_guards.push(tracked.clone());
        of.wanted.insert(known.id);
    }

    /// Forgets the changes of sensors that a deletion covers: the deleter updates their documents. Metadata goes only with
    /// everything else of a sensor.
    pub fn forget(&mut self, database: &Database, sensors: &HashSet<u32>, covers_all_times: bool) {
        let Some(of) = self.of(database) else { return };
        let rest = |change: SensorChange| {
            if !covers_all_times {
                return change.without_readings();
            }
            database.note_meta_stored(&change.known, change.meta_guards.len());
            None
        };
        for id in sensors {
            let change = of.changes.remove(id).and_then(rest);
            let failing = of.failing.remove(id).and_then(|(change, at, wait)| Some((rest(change)?, at, wait)));
            change.into_iter().for_each(|change| drop(of.changes.insert(*id, change)));
            failing.into_iter().for_each(|failing| drop(of.failing.insert(*id, failing)));
            of.urgent.remove(id);
            if covers_all_times || !of.has_changes(*id) {
                of.wanted.remove(id);
            }
        }
    }

    /// Whether the document of a sensor with new metadata cannot be written at present, for a reason of its own.
    pub fn has_failing_meta(&self) -> bool {
        let is_new = |(change, ..): &(SensorChange, Instant, Duration)| !change.meta_guards.is_empty();
        self.databases.values().any(|(_, of)| of.failing.values().any(is_new))
    }

    /// Forgets a whole database, and returns its changes so that they can be freed where nobody waits for that.
    pub fn remove(&mut self, database: &Database) -> Option<DatabaseDocuments> {
        self.databases.remove(&database.number).map(|(_, of)| of)
    }

    /// How many documents lag behind, without those that failed for their own reasons.
    pub fn len(&self) -> usize {
        self.databases.values().map(|(_, of)| of.changes.len() + of.under_way.len()).sum()
    }

    /// What is stored of a sensor and missing in its document, as far as is known here.
    pub fn outdated(
        &self,
        database: &Database,
        known: &Arc<KnownSensor>,
        (cache, registry): (&BucketCache, &RegistryView),
    ) -> Option<Outdated> {
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
                if found < self.recent { cache.tail(database.number, (known.id, hour), self.recent) } else { None };
            found += tail.as_ref().map_or(0, Vec::len);
            (hour, tail)
        };
        let hours = hours.into_iter().rev().take(self.recent).map(with_tail).collect();
        let mut change = Meta::default();
        both.iter().flatten().for_each(|of| change.merge(&of.meta));
        // What the store has is cut when it is read.
        let before = if change.is_empty() { SETTLED } else { registry.deleted_before(&database.name, &known.sensor) };
        change.cut(before);
        // Stored before a restart, and perhaps deleted since.
        change.retain(|stamp| !registry.is_stored(stamp));
        let changes = both.iter().flatten().map(|of| of.meta_guards.len()).sum();
        let meta = MetaUpdate { change, changes, before, floor: registry.view().floor };
        Some(Outdated { known, seen, hours, outlier, meta })
    }

    /// Starts a round in every database that has none: the documents of all sensors that lag behind now.
    pub fn begin_round(&mut self, now: Instant) {
        for (_, of) in self.databases.values_mut() {
            if of.put_off.is_some_and(|until| until <= now) {
                of.put_off = None;
            }
            of.retry_failing(now, |_| true);
            if of.put_off.is_none() && of.round.is_empty() && of.under_way.is_empty() {
                of.begin_round(|_| true);
            }
        }
    }

    /// Starts a round in every database that has none, of the documents that are wanted soon, and of all where another
    /// instance deleted documents, without which nobody finds the pages stored since.
    pub fn begin_urgent_round(&mut self, now: Instant) {
        for (database, of) in self.databases.values_mut() {
            let doubts = database.doubts();
            if doubts == of.doubts && of.wanted.is_empty() {
                continue;
            }
            if of.put_off.is_some_and(|until| now < until) || !of.round.is_empty() || !of.under_way.is_empty() {
                continue;
            }
            of.put_off = None;
            let wanted = of.wanted.clone();
            of.retry_failing(now, |id| wanted.contains(&id));
            let is_doubted = std::mem::replace(&mut of.doubts, doubts) != doubts;
            of.begin_round(|id| is_doubted || wanted.contains(&id));
        }
    }

    /// Next documents of a round, at most [`BATCH`], from a database that may be written to and has none under way.
    pub fn next(
        &mut self,
        known: (&BucketCache, &RegistryView),
        may_be_written: impl Fn(&Database) -> bool,
    ) -> Option<(Arc<Database>, Vec<Outdated>)> {
        let is_open = |(database, of): &&mut (Arc<Database>, DatabaseDocuments)| {
            !of.round.is_empty() && of.under_way.is_empty() && of.put_off.is_none() && may_be_written(database)
        };
        let mut next = None;
        for (database, of) in self.databases.values_mut().filter(is_open) {
            while !of.round.is_empty() && of.under_way.is_empty() {
                let later = of.round.len().saturating_sub(BATCH);
                // Some may have been forgotten since the round began.
                of.under_way = of.round.drain(later..).filter_map(|id| Some((id, of.changes.remove(&id)?))).collect();
            }
            if !of.under_way.is_empty() {
                next = Some(database.clone());
                break;
            }
        }
        next.map(|database| self.under_way(database, known))
    }

    /// The documents of sensors that have just become outliers, unless others of the database are under way.
    pub fn next_urgent(
        &mut self,
        database: &Database,
        known: (&BucketCache, &RegistryView),
    ) -> Option<(Arc<Database>, Vec<Outdated>)> {
        let (database, of) = self.databases.get_mut(&database.number)?;
        if of.urgent.is_empty() || !of.under_way.is_empty() {
            return None;
        }
        let urgent = std::mem::take(&mut of.urgent);
        of.under_way = urgent.into_iter().filter_map(|id| Some((id, of.changes.remove(&id)?))).collect();
        of.landed_under_way = std::mem::take(&mut of.completed);
        let database = database.clone();
        Some(self.under_way(database, known))
    }

    fn under_way(
        &self,
        database: Arc<Database>,
        known: (&BucketCache, &RegistryView),
    ) -> (Arc<Database>, Vec<Outdated>) {
        let (_, of) = &self.databases[&database.number];
        let mut outdated: Vec<Outdated> =
            of.under_way.values().filter_map(|change| self.outdated(&database, &change.known, known)).collect();
        outdated.sort_unstable_by(|a, b| a.known.sensor.key.cmp(&b.known.sensor.key));
        (database, outdated)
    }

    /// Holds stored readings back until new outliers are listed; returns them if there are none.
    pub fn await_urgent(&mut self, database: &Database, completed: Vec<Arc<Packed>>) -> Vec<Arc<Packed>> {
        match self.of(database) {
            Some(of) if !of.urgent.is_empty() => {
                of.completed.extend(completed);
                Vec::new()
            }
            _ => completed,
        }
    }

    /// Handles the outcome of documents that were under way. Those that failed still lag behind. Returns the readings
    /// that now count as flushed.
    pub fn completed(
        &mut self,
        database: &Database,
        outcome: DocumentsOutcome,
        now: Instant,
        metrics: &Metrics,
    ) -> Vec<Arc<Packed>> {
        let recent = self.recent;
        let Some(of) = self.of(database) else { return Vec::new() };
        for id in outcome.done {
            if of.changes.get(&id).is_none_or(|later| later.meta.is_empty() && !later.known.fields().is_unsaved()) {
                of.wanted.remove(&id);
            }
            let Some(change) = of.under_way.remove(&id).filter(|change| !change.meta_guards.is_empty()) else {
                continue;
            };
            database.note_meta_stored(&change.known, change.meta_guards.len());
        }
        for (id, error) in outcome.given_up_meta {
            let Some(change) = of.under_way.get_mut(&id) else { continue };
            database.note_meta_stored(&change.known, change.meta_guards.len());
            change.give_up_meta(&error);
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
                "sensor documents could not be written; retrying");
            of.put_off = Some(now + PUT_OFF);
            of.round.clear();
        }
        let mut completed = std::mem::take(&mut of.landed_under_way);
        if of.urgent.is_empty() {
            completed.append(&mut of.completed);
        }
        completed
    }
}

impl DatabaseDocuments {
    fn has_changes(&self, id: u32) -> bool {
        self.changes.contains_key(&id) || self.under_way.contains_key(&id) || self.failing.contains_key(&id)
    }

    /// Takes back wanted documents that failed for their own reasons and whose wait is over.
    fn retry_failing(&mut self, now: Instant, is_wanted: impl Fn(u32) -> bool) {
        for (id, (mut change, _, wait)) in self.failing.extract_if(|id, (_, at, _)| *at <= now && is_wanted(*id)) {
            change.retry = Some(wait);
            self.changes.insert(id, change);
        }
    }

    /// Begins a round of the wanted documents among those that lag behind.
    fn begin_round(&mut self, is_wanted: impl Fn(u32) -> bool) {
        let wanted = self.changes.iter().filter(|(id, _)| is_wanted(**id));
        let mut all: Vec<(&str, u32)> = wanted.map(|(id, change)| (&*change.known.sensor.key, *id)).collect();
        all.sort_unstable();
        self.round = all.iter().rev().map(|(_, id)| *id).collect();
    }

    /// Merges later changes of the same sensor into a change.
    fn with_later(&mut self, id: u32, mut change: SensorChange, recent: usize) -> SensorChange {
        if let Some(later) = self.changes.remove(&id) {
            // The pin is that of the first readings: a change of metadata alone has none.
            if change.seen.is_none() {
                change._pin = later._pin;
            }
            if let Some(seen) = later.seen {
                change.add(seen, later.hours, recent);
            }
            later.outlier.into_iter().for_each(|outlier| change.spill(outlier));
            change.meta.merge(&later.meta);
            change.meta_guards.extend(later.meta_guards);
        }
        change
    }

    /// Puts off a document that failed for its own reasons.
    fn fail(&mut self, database: &str, (id, error): (u32, &StorageError), (now, recent): (Instant, usize)) {
        let Some(change) = self.under_way.remove(&id) else { return };
        let mut change = self.with_later(id, change, recent);
        let wait = change.retry.take().unwrap_or(RETRY.start);
        if !error.is_transient() {
            tracing::error!(
                database, sensor = %change.known.sensor.key, %error, ?wait,
                "a sensor's document could not be updated; retrying"
            );
        }
        change._pin = None;
        self.urgent.remove(&id);
        self.failing.insert(id, (change, now + wait, (2 * wait).min(RETRY.end)));
    }
}
