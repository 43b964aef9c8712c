//! The list of sensor documents that lag behind the pages, and the choice of those to write next. This module does not
//! access the store and never waits.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::documents::{BATCH, DocumentsOutcome, MetaUpdate, StoredUpdates};
use super::task::BucketFlush;
use crate::bucket::cache::BucketCache;
use crate::bucket::packed::PackedRows;
use crate::bucket::{Meta, StorageError};
use crate::catalog::{Database, KnownSensor};
use crate::members::positions::{PendingAck, RequestGuards, WalPin};
use crate::members::registry_view::RegistryView;
use crate::reading::Hour;
use crate::reading::stamp::SETTLED;
use crate::telemetry::Metrics;

/// The wait of a database after its documents could not be written.
const PUT_OFF: Duration = Duration::from_secs(2);
/// The first and the longest wait before the next attempt to write a document that caused its own failure.
const RETRY: Range<Duration> = Duration::from_secs(1)..Duration::from_secs(300);

/// The changes of a sensor since its document was last written.
#[derive(Debug)]
struct SensorChange {
    known: Arc<KnownSensor>,
    /// The times of the first and the last stored reading.
    seen: Option<(i64, i64)>,
    /// The latest hours with new readings, at most as many as the document holds readings. Each hour has at least one
    /// reading, so earlier hours cannot matter.
    hours: BTreeSet<Hour>,
    /// The latest hour with more than one page, and its number of pages.
    outlier: Option<(Hour, u32)>,
    /// Keeps the first record of these changes in the WAL until the document is written.
    _pin: Option<Arc<WalPin>>,
    /// The wait after the next failure, if the document has caused a failure.
    retry: Option<Duration>,
    /// New metadata.
    meta: Meta,
    /// The guards of the records of `meta`, held until the document is stored.
    meta_guards: Vec<RequestGuards>,
}

/// A document that could not be read or written because of itself.
#[derive(Debug)]
struct FailingDocument {
    change: SensorChange,
    /// The time of the next attempt.
    retry_at: Instant,
    /// The wait after the next failure.
    next_wait: Duration,
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

    /// Returns the metadata changes, if any, after the readings were deleted.
    fn without_readings(self) -> Option<Self> {
        let Self { known, retry, meta, meta_guards, .. } = self;
        (!meta.is_empty()).then(|| Self { retry, meta, meta_guards, ..Self::new(&known, None) })
    }

    /// Drops the metadata, and reports the error to the writes that wait for it.
    fn give_up_meta(&mut self, error: &StorageError) {
        self.meta = Meta::default();
        for guards in self.meta_guards.drain(..) {
            guards.pending_ack.refuse(error);
        }
    }

    /// Adds the times and hours of stored readings. Keeps at most `hours_max` hours.
    fn add(&mut self, seen: (i64, i64), hours: impl IntoIterator<Item = Hour>, hours_max: usize) {
        self.seen = Some(self.seen.map_or(seen, |(first, last)| (first.min(seen.0), last.max(seen.1))));
        self.hours.extend(hours);
        while self.hours.len() > hours_max.max(1) {
            self.hours.pop_first();
        }
    }

    /// Notes an hour with more than one page.
    fn note_outlier(&mut self, hour: Hour, pages: u32) {
        if self.outlier.is_none_or(|(latest, _)| latest <= hour) {
            self.outlier = Some((hour, pages));
        }
    }
}

/// The sensors of one database whose documents lag behind, by id.
#[derive(Debug, Default)]
pub struct DatabaseDocuments {
    changes: HashMap<u32, SensorChange>,
    /// Sensors whose documents are being written, with their changes at the start of the write.
    under_way: HashMap<u32, SensorChange>,
    /// Documents that caused their own failure. They pin no WAL records, because their pages are stored.
    failing: HashMap<u32, FailingDocument>,
    /// Sensors whose documents are written next, in reverse order of their keys, because batches are taken from the
    /// end. Documents of a batch are neighbours in the store. Sensors that change meanwhile wait for the next round.
    round: Vec<u32>,
    /// Sensors whose bucket has just outgrown its page. Lists must show them as outliers at once.
    urgent: BTreeSet<u32>,
    /// Sensors whose documents are due soon: they have new metadata, or pages but no document.
    wanted: BTreeSet<u32>,
    /// Stored readings that count as flushed when the `urgent` documents are stored.
    completed: Vec<Arc<PackedRows>>,
    /// Stored readings that count as flushed when the documents in `under_way` are stored.
    completed_under_way: Vec<Arc<PackedRows>>,
    /// The time before which no document is written, after a failure.
    put_off: Option<Instant>,
    /// [`Database::doubts`] at the start of the last round that they caused.
    doubts: u64,
}

/// The sensors of one shard whose documents lag behind.
#[derive(Debug)]
pub struct SensorDocumentWriter {
    /// Databases with their documents, by number.
    databases: BTreeMap<u64, (Arc<Database>, DatabaseDocuments)>,
    /// The number of recent readings in a document.
    recent: usize,
}

impl SensorDocumentWriter {
    /// Creates a writer of documents that hold the latest `recent` readings.
    pub fn new(recent: usize) -> Self {
        Self { databases: BTreeMap::new(), recent }
    }

    fn get_mut(&mut self, database: &Database) -> Option<&mut DatabaseDocuments> {
        self.databases.get_mut(&database.number).map(|(_, documents)| documents)
    }

    /// Notes that a bucket's readings are in the store. `pending_ack` is that of the first reading.
    pub fn note(&mut self, database: &Arc<Database>, run: &BucketFlush, pending_ack: Option<&Arc<PendingAck>>) {
        let pages = run.bucket.pages();
        let Some(seen) = run.in_chunk.or_else(|| run.bucket.span()) else { return };
        let recent = self.recent;
        let documents = self.entry(database);
        let (change, is_failing) = match documents.failing.get_mut(&run.known.id) {
            Some(failing) => (&mut failing.change, true),
            None => {
                let new = || SensorChange::new(&run.known, None);
                let change = documents.changes.entry(run.known.id).or_insert_with(new);
                if change.seen.is_none() {
                    change._pin = pending_ack.map(|pending_ack| pending_ack.pin());
                }
                (change, false)
            }
        };
        change.add(seen, [run.id.hour], recent);
        // Another instance has deleted the document since the flush read it. Without a document, queries miss the
        // pages.
        if run.known.fields().is_unsaved() {
            documents.wanted.insert(run.known.id);
        }
        if run.has_changes() && pages.len() > 1 {
            change.note_outlier(run.id.hour, u32::try_from(pages.len()).unwrap_or(u32::MAX));
            if run.pages_before < 2 && !is_failing {
                documents.urgent.insert(run.known.id);
            }
        }
    }

    fn entry(&mut self, database: &Arc<Database>) -> &mut DatabaseDocuments {
        let new = || (database.clone(), DatabaseDocuments::default());
        &mut self.databases.entry(database.number).or_insert_with(new).1
    }

    /// Notes a metadata change of the WAL.
    pub fn note_meta(
        &mut self,
        database: &Arc<Database>,
        known: &Arc<KnownSensor>,
        change: &Meta,
        guards: &RequestGuards,
    ) {
        let documents = self.entry(database);
        let noted = match documents.failing.get_mut(&known.id) {
            Some(failing) => &mut failing.change,
            None => documents.changes.entry(known.id).or_insert_with(|| SensorChange::new(known, None)),
        };
        noted.meta.merge(change);
        noted.meta_guards.push(guards.clone());
        documents.wanted.insert(known.id);
    }

    /// Drops the changes of sensors that a deletion covers, because the deleter updates their documents. Metadata
    /// changes are dropped only if the deletion covers all times.
    pub fn forget(&mut self, database: &Database, sensors: &HashSet<u32>, covers_all_times: bool) {
        let Some(documents) = self.get_mut(database) else { return };
        let rest = |change: SensorChange| {
            if !covers_all_times {
                return change.without_readings();
            }
            database.note_meta_stored(&change.known, change.meta_guards.len());
            None
        };
        for id in sensors {
            if let Some(change) = documents.changes.remove(id).and_then(rest) {
                documents.changes.insert(*id, change);
            }
            if let Some(failing) = documents.failing.remove(id)
                && let Some(change) = rest(failing.change)
            {
                documents.failing.insert(*id, FailingDocument { change, ..failing });
            }
            documents.urgent.remove(id);
            if covers_all_times || !documents.has_changes(*id) {
                documents.wanted.remove(id);
            }
        }
    }

    /// Returns true if a document with new metadata cannot be written at present, because of itself.
    pub fn has_failing_meta(&self) -> bool {
        let has_meta = |failing: &FailingDocument| !failing.change.meta_guards.is_empty();
        self.databases.values().any(|(_, documents)| documents.failing.values().any(has_meta))
    }

    /// Removes a database. Returns its changes, so that the caller can free them without blocking the shard.
    pub fn remove(&mut self, database: &Database) -> Option<DatabaseDocuments> {
        self.databases.remove(&database.number).map(|(_, documents)| documents)
    }

    /// Returns the number of documents that lag behind, without failing ones.
    pub fn len(&self) -> usize {
        self.databases.values().map(|(_, documents)| documents.changes.len() + documents.under_way.len()).sum()
    }

    /// Returns the stored state of a sensor that its document lacks, if any.
    pub fn find_outdated(
        &self,
        database: &Database,
        known: &Arc<KnownSensor>,
        cache: &BucketCache,
        registry: &RegistryView,
    ) -> Option<StoredUpdates> {
        let (_, documents) = self.databases.get(&database.number)?;
        let failing = || documents.failing.get(&known.id).map(|failing| &failing.change);
        let later = documents.changes.get(&known.id).or_else(failing);
        let both = [documents.under_way.get(&known.id), later];
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
        both.iter().flatten().for_each(|noted| change.merge(&noted.meta));
        // The stored metadata needs no cut, because reads hide deleted values.
        let before = if change.is_empty() { SETTLED } else { registry.deleted_before(&database.name, &known.sensor) };
        change.cut(before);
        // Readers keep new metadata for some seconds after it is stored, which may be longer than a deletion is
        // remembered.
        database.meta.cut(&known.sensor.key, before);
        // Drop values that were stored before a restart, because they may have been deleted since.
        change.retain(|stamp| !registry.is_stored(stamp));
        let changes = both.iter().flatten().map(|noted| noted.meta_guards.len()).sum();
        let meta = MetaUpdate { change, changes, before, floor: registry.view().floor };
        Some(StoredUpdates { known, seen, hours, outlier, meta })
    }

    /// Starts a round of all documents that lag behind, in every database without a round.
    pub fn begin_round(&mut self, now: Instant) {
        for (_, documents) in self.databases.values_mut() {
            if documents.put_off.is_some_and(|retry_time| retry_time <= now) {
                documents.put_off = None;
            }
            documents.retry_failing(now, |_| true);
            if documents.put_off.is_none() && documents.round.is_empty() && documents.under_way.is_empty() {
                documents.begin_round(|_| true);
            }
        }
    }

    /// Starts a round of the wanted documents, in every database without a round. If another instance deleted
    /// documents, the round has all documents that lag behind, because queries miss the new pages of sensors without
    /// one.
    pub fn begin_urgent_round(&mut self, now: Instant) {
        for (database, documents) in self.databases.values_mut() {
            let doubts = database.doubts();
            if doubts == documents.doubts && documents.wanted.is_empty() {
                continue;
            }
            let is_put_off = documents.put_off.is_some_and(|retry_time| now < retry_time);
            if is_put_off || !documents.round.is_empty() || !documents.under_way.is_empty() {
                continue;
            }
            documents.put_off = None;
            let wanted = documents.wanted.clone();
            documents.retry_failing(now, |id| wanted.contains(&id));
            let is_doubted = std::mem::replace(&mut documents.doubts, doubts) != doubts;
            documents.begin_round(|id| is_doubted || wanted.contains(&id));
        }
    }

    /// Takes the next documents of a round, at most [`BATCH`], from a database that `can_write` allows and that has no
    /// documents under way.
    pub fn next(
        &mut self,
        cache: &BucketCache,
        registry: &RegistryView,
        can_write: impl Fn(&Database) -> bool,
    ) -> Option<(Arc<Database>, Vec<StoredUpdates>)> {
        let mut next = None;
        for (database, documents) in self.databases.values_mut() {
            let is_ready = documents.under_way.is_empty() && documents.put_off.is_none();
            if documents.round.is_empty() || !is_ready || !can_write(database) {
                continue;
            }
            while !documents.round.is_empty() && documents.under_way.is_empty() {
                let start = documents.round.len().saturating_sub(BATCH);
                // Some changes may have been dropped since the round began.
                let batch = documents.round.drain(start..);
                documents.under_way = batch.filter_map(|id| Some((id, documents.changes.remove(&id)?))).collect();
            }
            if !documents.under_way.is_empty() {
                next = Some(database.clone());
                break;
            }
        }
        next.map(|database| self.under_way(database, cache, registry))
    }

    /// Takes the documents of new outliers, unless other documents of the database are under way.
    pub fn next_urgent(
        &mut self,
        database: &Database,
        cache: &BucketCache,
        registry: &RegistryView,
    ) -> Option<(Arc<Database>, Vec<StoredUpdates>)> {
        let (database, documents) = self.databases.get_mut(&database.number)?;
        if documents.urgent.is_empty() || !documents.under_way.is_empty() {
            return None;
        }
        let urgent = std::mem::take(&mut documents.urgent);
        documents.under_way = urgent.into_iter().filter_map(|id| Some((id, documents.changes.remove(&id)?))).collect();
        documents.completed_under_way = std::mem::take(&mut documents.completed);
        let database = database.clone();
        Some(self.under_way(database, cache, registry))
    }

    /// Returns the documents under way, in order of their keys.
    fn under_way(
        &self,
        database: Arc<Database>,
        cache: &BucketCache,
        registry: &RegistryView,
    ) -> (Arc<Database>, Vec<StoredUpdates>) {
        let (_, documents) = &self.databases[&database.number];
        let changes = documents.under_way.values();
        let mut outdated: Vec<StoredUpdates> =
            changes.filter_map(|change| self.find_outdated(&database, &change.known, cache, registry)).collect();
        outdated.sort_unstable_by(|a, b| a.known.sensor.key.cmp(&b.known.sensor.key));
        (database, outdated)
    }

    /// Holds stored readings back until new outliers are listed. Returns them if there are no new outliers.
    pub fn await_urgent(&mut self, database: &Database, completed: Vec<Arc<PackedRows>>) -> Vec<Arc<PackedRows>> {
        match self.get_mut(database) {
            Some(documents) if !documents.urgent.is_empty() => {
                documents.completed.extend(completed);
                Vec::new()
            }
            _ => completed,
        }
    }

    /// Handles the outcome of documents under way. Failed documents still lag behind. Returns the readings that are now
    /// flushed.
    pub fn complete(
        &mut self,
        database: &Database,
        outcome: DocumentsOutcome,
        now: Instant,
        metrics: &Metrics,
    ) -> Vec<Arc<PackedRows>> {
        let recent = self.recent;
        let Some(documents) = self.get_mut(database) else { return Vec::new() };
        for id in outcome.done {
            let later = documents.changes.get(&id);
            if later.is_none_or(|later| later.meta.is_empty() && !later.known.fields().is_unsaved()) {
                documents.wanted.remove(&id);
            }
            if let Some(change) = documents.under_way.remove(&id)
                && !change.meta_guards.is_empty()
            {
                database.note_meta_stored(&change.known, change.meta_guards.len());
            }
        }
        for (id, error) in outcome.given_up_meta {
            let Some(change) = documents.under_way.get_mut(&id) else { continue };
            database.note_meta_stored(&change.known, change.meta_guards.len());
            change.give_up_meta(&error);
        }
        for (id, error) in outcome.failed {
            metrics.store_error(error.class());
            let Some(change) = documents.under_way.remove(&id) else { continue };
            let change = documents.with_later(id, change, recent);
            documents.put_off_failing(&database.name, change, &error, now);
        }
        for (id, change) in std::mem::take(&mut documents.under_way) {
            let merged = documents.with_later(id, change, recent);
            documents.changes.insert(id, merged);
        }
        if let Some(error) = outcome.error {
            metrics.store_error(error.class());
            tracing::warn!(database = &*database.name, sensors = documents.changes.len(), %error,
                "cannot write sensor documents; retrying");
            documents.put_off = Some(now + PUT_OFF);
            documents.round.clear();
        }
        let mut completed = std::mem::take(&mut documents.completed_under_way);
        if documents.urgent.is_empty() {
            completed.append(&mut documents.completed);
        }
        completed
    }
}

impl DatabaseDocuments {
    fn has_changes(&self, id: u32) -> bool {
        self.changes.contains_key(&id) || self.under_way.contains_key(&id) || self.failing.contains_key(&id)
    }

    /// Puts wanted failing documents whose wait is over back into `changes`.
    fn retry_failing(&mut self, now: Instant, is_wanted: impl Fn(u32) -> bool) {
        let is_due = |id: &u32, failing: &mut FailingDocument| failing.retry_at <= now && is_wanted(*id);
        for (id, FailingDocument { mut change, next_wait, .. }) in self.failing.extract_if(is_due) {
            change.retry = Some(next_wait);
            self.changes.insert(id, change);
        }
    }

    /// Starts a round of the wanted documents among those that lag behind.
    fn begin_round(&mut self, is_wanted: impl Fn(u32) -> bool) {
        let wanted = self.changes.iter().filter(|(id, _)| is_wanted(**id));
        let mut all: Vec<(&str, u32)> = wanted.map(|(id, change)| (&*change.known.sensor.key, *id)).collect();
        all.sort_unstable();
        self.round = all.iter().rev().map(|(_, id)| *id).collect();
    }

    /// Merges later changes of the same sensor into a change.
    fn with_later(&mut self, id: u32, mut change: SensorChange, recent: usize) -> SensorChange {
        if let Some(later) = self.changes.remove(&id) {
            // The pin belongs to the first readings. A metadata change alone has none.
            if change.seen.is_none() {
                change._pin = later._pin;
            }
            if let Some(seen) = later.seen {
                change.add(seen, later.hours, recent);
            }
            if let Some((hour, pages)) = later.outlier {
                change.note_outlier(hour, pages);
            }
            change.meta.merge(&later.meta);
            change.meta_guards.extend(later.meta_guards);
        }
        change
    }

    /// Puts off a document that caused its own failure.
    fn put_off_failing(&mut self, database: &str, mut change: SensorChange, error: &StorageError, now: Instant) {
        let wait = change.retry.take().unwrap_or(RETRY.start);
        if !error.is_transient() {
            tracing::error!(
                database, sensor = %change.known.sensor.key, %error, ?wait,
                "cannot update the document of a sensor; retrying"
            );
        }
        change._pin = None;
        let id = change.known.id;
        self.urgent.remove(&id);
        let failing = FailingDocument { change, retry_at: now + wait, next_wait: (2 * wait).min(RETRY.end) };
        self.failing.insert(id, failing);
    }
}
