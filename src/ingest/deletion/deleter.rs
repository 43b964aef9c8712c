//! Carries deletions out in the store, those of one database one after the other in log order, for as long as it takes.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;

use super::{ALL_HOURS, ALWAYS, Pending, Scope};
use crate::bucket::deletions::Remembered;
use crate::bucket::registry::Registry;
use crate::bucket::store::{BucketId, Extent, PageWrite, Projection, SensorFilter, Written};
use crate::bucket::{Bucket, Reading, SensorDocument, StorageError};
use crate::faults::{self, Bug};
use crate::ingest::agreed::Understanding;
use crate::ingest::catalog::Catalog;
use crate::ingest::feed::Feed;
use crate::ingest::flight::Context;
use crate::ingest::reads::{read_buckets_each, read_sensors_each};
use crate::ingest::refresh::{newest, whole};
use crate::ingest::shard::Taken;
use crate::reading::{Hour, Sensor, Stamp};

/// Of how many sensors readings are deleted at a time.
const SENSORS: usize = 500;
/// How many buckets are cut at a time: all of them are in memory.
const BUCKETS: usize = 32;
/// How long after a failure it is tried again, at first and at most.
const RETRY: Range<Duration> = Duration::from_millis(100)..Duration::from_secs(2);
/// How often the store may refuse a deletion before it is given up.
const REFUSALS_MAX: usize = 10;
/// How long a deletion may fail for reasons that are not known to pass, before it is given up: far longer than the
/// minute for which a store lets a transaction live that nobody ends.
const FAILING_MAX: Duration = Duration::from_secs(300);
/// How often one lot is read and written anew because other writers were faster.
const CONFLICTS_MAX: usize = 30;

/// Carries deletions out.
#[derive(Debug)]
pub struct Deleter {
    /// Where from.
    pub context: Arc<Context>,
    /// What goes on when one is done.
    pub feed: Arc<Feed>,
    /// What is known of the sensors.
    pub catalog: Arc<Catalog>,
    /// Makes a test of a deletion's statement.
    pub understand: Understanding,
    /// This opening of the log.
    pub opening: u64,
    /// How many recent readings a sensor's document holds.
    pub recent: usize,
    /// Who is at work in a database: a deletion, or the sweep after an earlier one.
    pub turns: Turns,
}

/// Turns by the names of databases.
#[derive(Debug, Default)]
pub struct Turns(Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>);

impl Turns {
    fn of(&self, database: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        turns.entry(database.to_owned()).or_default().clone()
    }
}

impl Deleter {
    /// Works until it is aborted.
    pub async fn run(self: Arc<Self>, mut inbox: UnboundedReceiver<Arc<Pending>>) {
        let mut waiting: HashMap<String, VecDeque<Arc<Pending>>> = HashMap::new();
        let mut under_way: JoinSet<String> = JoinSet::new();
        loop {
            let database = tokio::select! {
                pending = inbox.recv() => {
                    let Some(pending) = pending else { return };
                    let database = pending.deletion.database.clone();
                    let of_database = waiting.entry(database.clone()).or_default();
                    of_database.push_back(pending);
                    if of_database.len() > 1 {
                        continue;
                    }
                    database
                }
                Some(done) = under_way.join_next() => {
                    let database = match done {
                        Ok(database) => database,
                        Err(ended) if ended.is_panic() => std::panic::resume_unwind(ended.into_panic()),
                        Err(_) => return,
                    };
                    waiting.get_mut(&database).and_then(VecDeque::pop_front);
                    database
                }
            };
            match waiting.get(&database).and_then(VecDeque::front) {
                Some(next) => drop(under_way.spawn(self.clone().see_to(next.clone()))),
                None => drop(waiting.remove(&database)),
            }
        }
    }

    /// Carries one deletion out, when all shards have met it; returns its database.
    async fn see_to(self: Arc<Self>, pending: Arc<Pending>) -> String {
        self.forget_deleted(&pending).await;
        let shards = u32::try_from(self.feed.shards()).unwrap_or(u32::MAX);
        let database = pending.deletion.database.clone();
        let Ok(_all) = pending.arrived.acquire_many(shards).await else { return database };
        self.free_taken(&pending).await;
        faults::point("before_deletion");
        self.carry_out(&pending).await;
        self.catalog.end_deletion(&database);
        faults::point("after_deletion");
        self.feed.resume(&database);
        database
    }

    /// Takes what is deleted out of the catalog.
    async fn forget_deleted(&self, pending: &Arc<Pending>) {
        let (catalog, pending) = (self.catalog.clone(), pending.clone());
        beside(move || {
            faults::point("forgetting_deleted");
            drop(catalog.forget_deleted(&pending.deletion, &pending.doomed));
        })
        .await;
    }

    /// Frees what shards had of a whole database.
    async fn free_taken(&self, pending: &Pending) {
        let (progress, taken) = (self.feed.progress.clone(), pending.taken());
        if taken.is_empty() {
            return;
        }
        beside(move || {
            progress.deleted(taken.iter().map(Taken::readings).sum::<usize>() as u64);
            drop(taken);
        })
        .await;
    }

    /// Does it, however long the store is away. What a store that is there refuses again and again is given up,
    /// since nothing behind it could go on: whoever asked is told.
    async fn carry_out(&self, pending: &Pending) {
        let mut patience = Patience::new(Instant::now());
        let database = &pending.deletion.database;
        // A sweep that sees pages which are about to go would put their sensor's document back.
        let turn = self.turns.of(database);
        let _turn = turn.lock().await;
        while let Err(error) = self.attempt(pending).await {
            self.context.metrics.store_error(error.class());
            self.context.presence.missed(database, &error, Instant::now());
            let Some(wait) = patience.wait_after(&error, Instant::now()) else {
                tracing::error!(%database, %error, "a deletion is given up; what is left of it stays");
                pending.ticket.refuse(&error);
                self.give_up(pending).await;
                self.catalog.doubt(database, None);
                break;
            };
            tracing::warn!(%database, %error, "something could not be deleted yet; it is in the log and tried again");
            tokio::time::sleep(wait).await;
        }
    }

    async fn attempt(&self, pending: &Pending) -> Result<(), StorageError> {
        let attempted = self.delete(pending).await;
        // Whatever became of it.
        self.context.changes.note_everything();
        attempted
    }

    async fn delete(&self, pending: &Pending) -> Result<(), StorageError> {
        if !self.context.agreed.is_known() {
            return Err(StorageError::Unavailable { detail: "the registry was not read yet".to_owned() });
        }
        // Done before a restart, with all that was logged by then: what was logged later is in the store too, and its
        // records are not merged again.
        if self.context.agreed.is_stored(pending.sequence()) {
            return Ok(());
        }
        let deletion = pending.remembered().filter(|_| !faults::has(Bug::DeletionNotRemembered));
        if let Some(deletion) = &deletion {
            if self.context.agreed.is_done(deletion) {
                return Ok(());
            }
            self.change(|registry| registry.remember(deletion.clone())).await?;
        }
        self.remove(pending).await?;
        if let Some(deletion) = deletion {
            self.change(|registry| registry.remember(Remembered { done: true, ..deletion.clone() })).await?;
        }
        Ok(())
    }

    /// Removes what is there of it.
    async fn remove(&self, pending: &Pending) -> Result<(), StorageError> {
        let (database, before) = (&*pending.deletion.database, pending.sequence());
        match &pending.deletion.scope {
            // Nobody else writes to it, and nothing is flushed here meanwhile.
            Scope::Database if !self.context.agreed.view().restamps => {
                self.context.store.drop_database(database).await?
            }
            Scope::Database => {
                let gone = Gone { database, range: ALWAYS, before };
                self.delete_all(&gone, |_| true).await?;
                self.context.store.unlist_database(database).await?;
            }
            Scope::Readings { sensors, range, .. } => {
                // It stays a database when all of its readings were deleted before any of them was stored.
                if !self.context.agreed.is_dropped(database, before) {
                    self.context.store.create_database(database).await?;
                }
                self.delete_of(&Gone { database, range: range.clone(), before }, sensors).await?;
                return Ok(());
            }
        }
        self.catalog.doubt(database, None);
        Ok(())
    }

    /// Takes back what all members were told.
    async fn give_up(&self, pending: &Pending) {
        let Some(deletion) = pending.remembered() else { return };
        if let Err(error) = self.change(|registry| registry.give_up(&deletion)).await {
            tracing::warn!(database = %deletion.database, %error, "a deletion that was given up is still remembered: its readings are hidden");
        }
    }

    /// Changes what all members know of deletions, this process among them.
    async fn change(&self, change: impl Fn(&mut Registry)) -> Result<(), StorageError> {
        for _ in 0..CONFLICTS_MAX {
            let read = Instant::now();
            let before = self.context.store.read_registry().await?;
            let mut registry = before.clone();
            change(&mut registry);
            if registry != before {
                match self.context.store.write_registry(&registry).await {
                    Written::Yes => registry.rev += 1,
                    Written::Conflict => continue,
                    Written::Failed(error) => return Err(error),
                }
            }
            self.context.agreed.learn(&registry, self.opening, read);
            return Ok(());
        }
        Err(StorageError::Contended { detail: "the registry".to_owned() })
    }

    /// Removes once more what is left of a deletion that every log has passed.
    ///
    /// # Errors
    /// When not all of it is known to be gone.
    pub async fn sweep(&self, deletion: &Remembered) -> Result<(), StorageError> {
        let turn = self.turns.of(&deletion.database);
        let Ok(_turn) = turn.try_lock() else {
            return Err(StorageError::Contended { detail: format!("a deletion in {}", deletion.database) });
        };
        let gone = Gone { database: &deletion.database, range: deletion.range.clone(), before: deletion.stamp };
        let Some(statement) = &deletion.statement else { return self.delete_all(&gone, |_| true).await };
        // Whoever does not understand it has never masked anything by it either.
        let Some(test) = self.understand.of(statement) else { return Ok(()) };
        self.delete_all(&gone, |sensor| test(sensor)).await
    }

    /// Deletes readings of all sensors that pass a test and have a document.
    async fn delete_all(&self, gone: &Gone<'_>, test: impl Fn(&Sensor) -> bool) -> Result<(), StorageError> {
        let mut after = None;
        loop {
            let filter = SensorFilter { after, outliers: false, limit: SENSORS };
            let documents = self.context.store.list_sensors(gone.database, &filter).await?;
            let Some(last) = documents.last().map(|document| document.sensor.key.to_string()) else { return Ok(()) };
            let sensors: Vec<Sensor> =
                documents.iter().filter(|document| test(&document.sensor)).map(|d| Sensor::clone(&d.sensor)).collect();
            self.delete_of(gone, &sensors).await?;
            after = Some(last);
        }
    }

    async fn delete_of(&self, gone: &Gone<'_>, sensors: &[Sensor]) -> Result<(), StorageError> {
        for lot in sensors.chunks(SENSORS) {
            self.delete_readings(gone, lot).await?;
            faults::point("during_deletion");
            let dropped = self.settle_documents(gone, lot).await?;
            self.catalog.doubt(gone.database, Some(&dropped));
        }
        Ok(())
    }

    async fn delete_readings(&self, gone: &Gone<'_>, sensors: &[Sensor]) -> Result<(), StorageError> {
        let store = &*self.context.store;
        let keys: Vec<&str> = sensors.iter().map(|sensor| &*sensor.key).collect();
        let (whole, cut) = parts(&gone.range);
        if !whole.is_empty() {
            store.remove_buckets(gone.database, &keys, whole.clone(), gone.before).await?;
        }
        // What is left of whole hours has something later in it, or several pages.
        let mut left: Vec<(Arc<Sensor>, Hour)> = Vec::new();
        let shared: Vec<Arc<Sensor>> = sensors.iter().cloned().map(Arc::new).collect();
        if !whole.is_empty() {
            let scanned =
                self.context.raw.scan_sensors(gone.database, &keys, whole, &Projection::places(), usize::MAX).await?;
            for (sensor, pages) in shared.iter().zip(scanned.unwrap_or_default()) {
                let old = pages.into_iter().filter(|page| page.oldest < gone.before);
                left.extend(old.map(|page| (sensor.clone(), page.hour)));
            }
        }
        left.extend(cut.iter().flat_map(|hour| shared.iter().map(|sensor| (sensor.clone(), *hour))));
        left.dedup();
        for lot in left.chunks(BUCKETS) {
            let ids = lot.iter().map(|(sensor, hour)| BucketId { sensor: sensor.clone(), hour: *hour }).collect();
            self.cut(gone, ids).await?;
        }
        Ok(())
    }

    /// Takes the range out of buckets of which something may stay.
    async fn cut(&self, gone: &Gone<'_>, mut ids: Vec<BucketId>) -> Result<(), StorageError> {
        for _ in 0..CONFLICTS_MAX {
            let read = read_buckets_each(&*self.context.store, gone.database, &ids).await;
            let mut buckets = Vec::with_capacity(ids.len());
            for (id, pages) in ids.into_iter().zip(read) {
                let mut bucket = Bucket::from_stored(pages?);
                bucket.delete(&gone.range, gone.before);
                buckets.push((id, bucket));
            }
            ids = self.write(gone.database, buckets).await?;
            if ids.is_empty() {
                return Ok(());
            }
        }
        Err(StorageError::Contended { detail: ids[0].sensor.key.to_string() })
    }

    /// Writes buckets until nothing of them is left to write; returns those that others changed meanwhile.
    async fn write(&self, database: &str, mut buckets: Vec<(BucketId, Bucket)>) -> Result<Vec<BucketId>, StorageError> {
        let mut changed: Vec<BucketId> = Vec::new();
        loop {
            let of_bucket = |(number, (id, bucket)): (usize, &'_ (BucketId, Bucket))| {
                bucket.next_writes().into_iter().map(move |group| (number, id.clone(), group)).collect::<Vec<_>>()
            };
            let groups: Vec<(usize, BucketId, Vec<usize>)> = buckets.iter().enumerate().flat_map(of_bucket).collect();
            if groups.is_empty() {
                return Ok(changed);
            }
            let writes: Vec<PageWrite<'_>> = groups
                .iter()
                .map(|(number, id, group)| PageWrite { id, bucket: &buckets[*number].1, group: group.clone() })
                .collect();
            let outcomes = self.context.store.write_pages(database, &writes).await;
            drop(writes);
            let mut conflicts = BTreeSet::new();
            for ((number, _, group), outcome) in groups.into_iter().zip(outcomes) {
                match outcome {
                    Written::Yes => buckets[number].1.mark_written(&group),
                    Written::Conflict => drop(conflicts.insert(number)),
                    Written::Failed(error) => return Err(error),
                }
            }
            changed.extend(conflicts.into_iter().rev().map(|number| buckets.swap_remove(number).0));
        }
    }

    /// Removes the documents of sensors that have no readings left, and brings the others up to date; returns the
    /// keys of those that are gone.
    async fn settle_documents<'s>(
        &self,
        deletion: &Gone<'_>,
        sensors: &'s [Sensor],
    ) -> Result<Vec<&'s str>, StorageError> {
        let (store, database) = (&*self.context.store, deletion.database);
        // Most have nothing left where all times are deleted, which one question tells of all.
        let is_empty = match is_all(&deletion.range) {
            true => self.empty_ones(database, sensors.iter()).await?,
            false => vec![false; sensors.len()],
        };
        let mut gone: Vec<(&Sensor, Option<SensorDocument>)> = Vec::new();
        let mut left: Vec<(&Sensor, bool)> = sensors.iter().zip(is_empty).collect();
        for _ in 0..CONFLICTS_MAX {
            // Documents before pages: what others store meanwhile comes to a document of a later rev.
            let keys: Vec<&str> = left.iter().map(|(sensor, _)| &*sensor.key).collect();
            let mut read = read_sensors_each(store, database, &keys).await?;
            faults::halt_at("settling").await;
            let mut documents = Vec::new();
            for (sensor, is_empty) in &left {
                let rest = if *is_empty { None } else { self.rest(database, sensor).await? };
                match (rest, read.remove(&sensor.key)) {
                    (None, document) => gone.push((sensor, document.and_then(Result::ok))),
                    (Some(rest), Some(document)) => {
                        let mut document = document?;
                        rest.describe(&mut document);
                        documents.push(document);
                    }
                    // Without a document there is nothing to bring up to date: it is made with the next write.
                    (Some(_), None) => {}
                }
            }
            let mut changed = BTreeSet::new();
            for (document, written) in documents.iter().zip(store.write_sensors(database, &documents).await) {
                match written {
                    Written::Yes => {}
                    Written::Conflict => drop(changed.insert(&*document.sensor.key)),
                    Written::Failed(error) => return Err(error),
                }
            }
            left.retain(|(sensor, _)| changed.contains(&*sensor.key));
            if left.is_empty() {
                let keys: Vec<&str> = gone.iter().map(|(sensor, _)| &*sensor.key).collect();
                store.remove_sensors(database, &keys).await?;
                self.restore_documents(database, gone).await?;
                return Ok(keys);
            }
        }
        Err(StorageError::Contended { detail: left[0].0.key.to_string() })
    }

    /// Puts removed documents back of which the store has a page, hidden by a deletion or not: somebody stored it
    /// meanwhile and still found the document. Sweeps go by documents, so a page without one would be missed by all.
    async fn restore_documents(
        &self,
        database: &str,
        removed: Vec<(&Sensor, Option<SensorDocument>)>,
    ) -> Result<(), StorageError> {
        let is_empty = self.empty_ones(database, removed.iter().map(|(sensor, _)| *sensor)).await?;
        let mut documents = Vec::new();
        for ((sensor, document), is_empty) in removed.into_iter().zip(is_empty) {
            let Some(mut document) = document.filter(|_| !is_empty) else { continue };
            document.rev = 0;
            if let Some(rest) = self.rest(database, sensor).await? {
                rest.describe(&mut document);
            }
            documents.push(document);
        }
        // In a conflict another has put one there.
        let failed = |written| if let Written::Failed(error) = written { Some(error) } else { None };
        let written = self.context.store.write_sensors(database, &documents).await;
        written.into_iter().find_map(failed).map_or(Ok(()), Err)
    }

    /// Which of these sensors have no page at all, a hidden one neither.
    async fn empty_ones(
        &self,
        database: &str,
        sensors: impl Iterator<Item = &Sensor>,
    ) -> Result<Vec<bool>, StorageError> {
        let keys: Vec<&str> = sensors.map(|sensor| &*sensor.key).collect();
        let scanned =
            self.context.raw.scan_sensors(database, &keys, ALL_HOURS, &Projection::places(), usize::MAX).await?;
        Ok(scanned.unwrap_or_default().iter().map(Vec::is_empty).collect())
    }

    /// What is left of a sensor in the store.
    async fn rest(&self, database: &str, sensor: &Sensor) -> Result<Option<Rest>, StorageError> {
        let store = &*self.context.store;
        let mut recent: BTreeMap<i64, Reading> = BTreeMap::new();
        let mut hours = ALL_HOURS;
        while recent.len() < self.recent.max(1) && !hours.is_empty() {
            let latest = store.scan_back(database, &sensor.key, hours, &Projection::ALL, Extent::pages(1)).await?;
            let sets = latest.pages.iter().filter_map(|page| page.readings.as_ref());
            let readings = sets.flat_map(|set| (0..set.len()).rev().take(self.recent.max(1)).map(|i| set.reading(i)));
            recent.extend(readings.map(|reading| (reading.time, reading)));
            hours = latest.rest;
        }
        let Some(last) = recent.last_key_value().map(|(time, _)| *time) else { return Ok(None) };
        let first = store.scan(database, &sensor.key, ALL_HOURS, &Projection::ALL, Extent::pages(1)).await?;
        let times = first.pages.iter().filter_map(|page| page.readings.as_ref()?.times().first().copied());
        let first = times.min().unwrap_or(last);
        Ok(Some(Rest { first, last, recent: newest(recent, self.recent) }))
    }
}

/// Does what may take long or wait for a lock on a thread that may: one at a time for each deletion, so that acks have the
/// processors' others.
async fn beside(work: impl FnOnce() + Send + 'static) {
    if let Err(ended) = tokio::task::spawn_blocking(work).await
        && ended.is_panic()
    {
        std::panic::resume_unwind(ended.into_panic());
    }
}

/// What goes: cells of a range of times of a database that are older than a stamp.
struct Gone<'a> {
    database: &'a str,
    range: Range<i64>,
    before: Stamp,
}

fn is_all(range: &Range<i64>) -> bool {
    range.start <= ALWAYS.start && range.end == ALWAYS.end
}

/// How long a deletion goes on after failures.
struct Patience {
    wait: Duration,
    refusals: usize,
    /// Since when it has failed for reasons of the documents alone.
    failing_since: Instant,
}

impl Patience {
    fn new(now: Instant) -> Self {
        Self { wait: RETRY.start, refusals: 0, failing_since: now }
    }

    /// How long to wait before the next try; `None` where it is given up. A store that is away, slow or full may yet do
    /// it, and other writers come to an end: those are waited for however long it takes.
    fn wait_after(&mut self, error: &StorageError, now: Instant) -> Option<Duration> {
        let given_up = match error {
            StorageError::Unavailable { .. }
            | StorageError::Unknown { .. }
            | StorageError::Contended { .. }
            | StorageError::Busy { .. } => {
                self.failing_since = now;
                false
            }
            StorageError::Failing { .. } | StorageError::Database { .. } => {
                now.saturating_duration_since(self.failing_since) >= FAILING_MAX
            }
            StorageError::Refused { .. } | StorageError::Denied { .. } | StorageError::Unreadable { .. } => {
                self.refusals += 1;
                self.refusals >= REFUSALS_MAX
            }
        };
        let wait = self.wait;
        self.wait = (wait * 2).min(RETRY.end);
        (!given_up).then_some(wait)
    }
}

/// What is left of a sensor.
struct Rest {
    first: i64,
    last: i64,
    recent: Vec<Reading>,
}

impl Rest {
    fn describe(&self, document: &mut SensorDocument) {
        document.first_seen = Some(whole(self.first));
        document.last_seen = Some(whole(self.last));
        document.recent.clone_from(&self.recent);
    }
}

/// The hours that lie wholly in a range of times, and those that do so in part.
fn parts(range: &Range<i64>) -> (Range<Hour>, Vec<Hour>) {
    if range.is_empty() {
        return (Hour(0)..Hour(0), Vec::new());
    }
    // The first and last hours reach beyond what a time can be.
    let first = Hour::of(range.start);
    let last = Hour::of(range.end - 1);
    let starts = range.start <= ALWAYS.start || first.start_ns() == range.start;
    let ends = range.end == ALWAYS.end || last.end_ns() == range.end;
    let whole = if starts { first } else { first.next() }..if ends { last.next() } else { last };
    let mut cut: Vec<Hour> = [(first, starts), (last, ends)].into_iter().filter(|part| !part.1).map(|p| p.0).collect();
    cut.dedup();
    (if whole.start < whole.end { whole } else { Hour(0)..Hour(0) }, cut)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Other writers' transactions, one of them left open by an instance that was killed, were counted as refusals: ten
    /// of them, 11 s, and the deletion was given up, while MongoDB lets such a transaction live for a minute.
    #[test]
    fn a_deletion_outwaits_other_writers_and_gives_up_what_is_refused() {
        let (start, detail) = (Instant::now(), String::new);
        let tries = |error: StorageError| {
            let (mut patience, mut waited) = (Patience::new(start), Duration::ZERO);
            for tries in 1..500 {
                match patience.wait_after(&error, start + waited) {
                    Some(wait) => waited += wait,
                    None => return Some((tries, waited)),
                }
            }
            None
        };
        assert_eq!(tries(StorageError::Busy { detail: detail() }), None);
        assert_eq!(tries(StorageError::Contended { detail: detail() }), None);
        assert_eq!(tries(StorageError::Unavailable { detail: detail() }), None);
        let (_, waited) = tries(StorageError::Failing { detail: detail() }).expect("an end");
        assert!((FAILING_MAX..FAILING_MAX + RETRY.end).contains(&waited), "{waited:?}");
        let refused = tries(StorageError::Refused { detail: detail() }).map(|(tries, _)| tries);
        assert_eq!(refused, Some(REFUSALS_MAX));
    }

    #[test]
    fn hours_are_whole_or_cut() {
        let ns = |hour: i64, more: i64| Hour(hour).start_ns() + more;
        let none = Hour(0)..Hour(0);
        for (range, whole, cut) in [
            (ns(5, 0)..ns(7, 0), Hour(5)..Hour(7), vec![]),
            (ns(5, 1)..ns(7, 0), Hour(6)..Hour(7), vec![5]),
            (ns(5, 0)..ns(7, 1), Hour(5)..Hour(7), vec![7]),
            (ns(5, 1)..ns(7, -1), none.clone(), vec![5, 6]),
            (ns(5, 1)..ns(5, 2), none.clone(), vec![5]),
            (ns(5, 0)..ns(5, 1), none.clone(), vec![5]),
            (ns(-1, 0)..ns(0, 0), Hour(-1)..Hour(0), vec![]),
            (ns(5, 7)..ns(5, 7), none, vec![]),
        ] {
            assert_eq!(parts(&range), (whole, cut.into_iter().map(Hour).collect()), "{range:?}");
        }
        let (whole, cut) = parts(&ALWAYS);
        assert_eq!((whole, cut), (Hour::of(ALWAYS.start)..Hour::of(ALWAYS.end - 1).next(), Vec::new()));
    }
}
