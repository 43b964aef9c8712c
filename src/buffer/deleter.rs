//! Carries out deletions in the store: those of one database one after the other, in WAL order, for as long as it
//! takes.

mod cells;
mod days;
mod documents;
mod patience;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;

use super::deleter::cells::{Choice, DeletedCells};
use super::deleter::patience::Patience;
use super::dispatch::Dispatch;
use super::flush::task::FlushContext;
use super::shard::pending::{DroppedData, PendingDeletion};
use crate::bucket::deletions::{RememberedDeletion, Understand};
use crate::bucket::registry::MemberRegistry;
use crate::bucket::store::{BucketId, PageWrite, Projection, SensorFilter};
use crate::bucket::{Bucket, StorageError, Store, StoredPage};
use crate::catalog::deletion::{ALWAYS, Scope};
use crate::catalog::reads::read_buckets_each;
use crate::faults;
use crate::members::retention::{EXPIRY, unlist_dropped};
use crate::reading::{Hour, Sensor};

/// Sensors per batch of a deletion.
const SENSORS: usize = 500;
/// Sensors per batch of a deletion of expired readings, which rests after each.
const PACED_SENSORS: usize = 100;
/// Most buckets rewritten at a time: all of them are in memory.
const BUCKETS: usize = 32;
/// Most stored bytes of readings in the buckets that are rewritten at a time, if they are several; decoded they take some times that.
const LOT_BYTES: usize = 8 << 20;
/// How often a batch is read and written again because other writers were faster.
const CONFLICTS_MAX: usize = 30;

pub struct Deleter {
    pub context: Arc<FlushContext>,
    /// Resumes the database's flushes when a deletion is done.
    pub dispatch: Arc<Dispatch>,
    /// Turns a deletion's statement into a test of sensors.
    pub understand: Understand,
    /// This opening of the WAL.
    pub opening: u64,
    /// Locks by database. Deletions, sweeps after earlier deletions and the jobs that rewrite exclude each other.
    pub turns: Arc<DatabaseTurns>,
}

/// One lock per database name.
#[derive(Debug, Default)]
pub struct DatabaseTurns(Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>);

impl DatabaseTurns {
    pub fn of(&self, database: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.0.lock();
        turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        turns.entry(database.to_owned()).or_default().clone()
    }
}

/// Whether there is a database of this name. Whoever writes what is no news of anybody asks this within the database's turn:
/// a write to one that was dropped would list it again.
///
/// # Errors
/// If the store does not answer.
pub async fn is_listed(store: &dyn Store, database: &str) -> Result<bool, StorageError> {
    Ok(store.databases().await?.iter().any(|listed| listed == database))
}

impl Deleter {
    /// Runs until it is aborted.
    pub async fn run(self: Arc<Self>, mut inbox: UnboundedReceiver<Arc<PendingDeletion>>) {
        let mut waiting: HashMap<String, VecDeque<Arc<PendingDeletion>>> = HashMap::new();
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

    /// Carries out one deletion, once all shards have done their part; returns its database.
    async fn see_to(self: Arc<Self>, pending: Arc<PendingDeletion>) -> String {
        self.forget_deleted(&pending).await;
        let shards = u32::try_from(self.dispatch.shards()).unwrap_or(u32::MAX);
        let database = pending.deletion.database.clone();
        let Ok(_all) = pending.arrived.acquire_many(shards).await else { return database };
        self.free_taken(&pending).await;
        faults::point("before_deletion");
        self.carry_out(&pending).await;
        self.dispatch.catalog.end_deletion(&pending.deletion);
        faults::point("after_deletion");
        self.dispatch.resume(&database);
        database
    }

    /// Removes the deleted sensors from the catalog.
    async fn forget_deleted(&self, pending: &Arc<PendingDeletion>) {
        let (catalog, pending) = (self.dispatch.catalog.clone(), pending.clone());
        beside(move || {
            faults::point("forgetting_deleted");
            drop(catalog.forget_deleted(&pending.deletion, pending.sequence(), &pending.targets));
        })
        .await;
    }

    /// Frees what shards had in memory of a dropped database.
    async fn free_taken(&self, pending: &PendingDeletion) {
        let (positions, taken) = (self.dispatch.positions.clone(), pending.taken());
        if taken.is_empty() {
            return;
        }
        beside(move || {
            positions.count_deleted(taken.iter().map(DroppedData::readings).sum::<usize>() as u64);
            drop(taken);
        })
        .await;
    }

    /// Retries for as long as the store is away. Gives up a deletion that an available store refuses again and again,
    /// since everything behind it waits; its pending ack then reports the error.
    async fn carry_out(&self, pending: &PendingDeletion) {
        let mut patience = Patience::new(Instant::now());
        let database = &pending.deletion.database;
        // A sweep could see pages that are about to go, and restore their sensor's document.
        let turn = self.turns.of(database);
        let _turn = turn.lock().await;
        while let Err(error) = self.attempt(pending).await {
            self.context.metrics.store_error(error.class());
            self.context.presence.note_failure(database, &error, Instant::now());
            let Some(wait) = patience.wait_after(&error, Instant::now()) else {
                tracing::error!(
                    %database, %error, statement = pending.deletion.description(),
                    "deletion given up; readings not deleted so far stay: run it again"
                );
                pending.pending_ack.refuse(&error);
                self.give_up(pending).await;
                self.dispatch.catalog.doubt(database, None);
                break;
            };
            tracing::warn!(%database, %error, "deletion failed; it stays in the WAL and is retried");
            tokio::time::sleep(wait).await;
        }
    }

    async fn attempt(&self, pending: &PendingDeletion) -> Result<(), StorageError> {
        let attempted = self.delete(pending).await;
        // Whatever the outcome: a part of it may be deleted.
        self.context.changes.note_everything();
        attempted
    }

    async fn delete(&self, pending: &PendingDeletion) -> Result<(), StorageError> {
        if !self.context.registry_view.is_known() {
            return Err(StorageError::Unavailable("the registry was not read yet".to_owned()));
        }
        // Carried out before a restart, with everything logged before it. Records logged later may be stored too: a
        // second run could remove them, and they are not merged again.
        if self.context.registry_view.is_stored(pending.sequence()) {
            return Ok(());
        }
        let deletion = pending.remembered();
        if let Some(deletion) = &deletion {
            if self.context.registry_view.is_done(deletion) {
                return Ok(());
            }
            self.change(|registry| registry.remember(deletion.clone())).await?;
        }
        self.remove(pending).await?;
        if let Some(deletion) = deletion {
            self.change(|registry| registry.remember(RememberedDeletion { done: true, ..deletion.clone() })).await?;
        }
        Ok(())
    }

    /// Removes the deleted readings from the store.
    async fn remove(&self, pending: &PendingDeletion) -> Result<(), StorageError> {
        let (database, before) = (&*pending.deletion.database, pending.sequence());
        match &pending.deletion.scope {
            // No other instance writes to the store, and this one flushes nothing of the database meanwhile.
            Scope::Database if !self.context.registry_view.view().restamps => {
                self.context.store.raw().drop_database(database).await?;
            }
            Scope::Database => {
                let gone = DeletedCells { database, choice: Choice::Range(ALWAYS), before };
                self.delete_all(&gone, |_| true).await?;
            }
            Scope::Readings { sensors, range, statement } => {
                // The database exists even if all of its readings were deleted before any was stored. One that was
                // dropped while its readings expired does not.
                let is_expiry = statement.as_deref() == Some(EXPIRY);
                if !is_expiry && !self.context.registry_view.is_dropped(database, before) {
                    self.context.store.raw().create_database(database).await?;
                }
                let choice = Choice::Range(range.clone());
                self.delete_of(&DeletedCells { database, choice, before }, sensors).await?;
                return Ok(());
            }
            Scope::Mark => return Ok(()),
            Scope::Cells { sensors: of, before } => {
                let sensors: Vec<Sensor> = of.iter().map(|of| of.sensor.clone()).collect();
                let choice = Choice::times(of);
                self.delete_of(&DeletedCells { database, choice, before: *before }, &sensors).await?;
                return Ok(());
            }
        }
        let left = unlist_dropped(&**self.context.store.raw(), database, before).await?;
        self.context.settings.put(database, left);
        self.dispatch.catalog.doubt(database, None);
        Ok(())
    }

    /// Removes a deletion that was given up from the registry.
    async fn give_up(&self, pending: &PendingDeletion) {
        let Some(deletion) = pending.remembered() else { return };
        if let Err(error) = self.change(|registry| registry.give_up(&deletion)).await {
            tracing::warn!(
                database = %deletion.database, %error,
                "a deletion was given up, but the registry still has it: its readings stay hidden from queries until the \
                 cleanup after every WAL has passed it"
            );
        }
    }

    /// Changes the deletions in the registry, and this process's view of them.
    async fn change(&self, change: impl Fn(&mut MemberRegistry)) -> Result<(), StorageError> {
        for _ in 0..CONFLICTS_MAX {
            let read = Instant::now();
            let before = self.context.store.raw().read_registry().await?;
            let mut registry = before.clone();
            change(&mut registry);
            if registry != before {
                if !self.context.store.raw().write_registry(&registry).await.applied()? {
                    continue;
                }
                registry.rev += 1;
            }
            self.context.registry_view.adopt(&registry, self.opening, read);
            self.context.metrics.registry(registry.logs.len(), registry.deletions.len(), registry.floor);
            return Ok(());
        }
        Err(StorageError::Contended("the registry".to_owned()))
    }

    /// Removes once more what a deletion covers, after every WAL has passed it.
    ///
    /// # Errors
    /// If some of it may be left.
    pub async fn sweep(&self, deletion: &RememberedDeletion) -> Result<(), StorageError> {
        let turn = self.turns.of(&deletion.database);
        let choice = Choice::Range(deletion.range.clone());
        let gone = DeletedCells { database: &deletion.database, choice, before: deletion.stamp };
        if deletion.statement.as_deref() == Some(EXPIRY) {
            return self.delete_paced(&gone, &turn).await;
        }
        let Ok(_turn) = turn.try_lock() else {
            return Err(StorageError::Contended(format!("a deletion in {}", deletion.database)));
        };
        let Some(statement) = &deletion.statement else { return self.delete_all(&gone, |_| true).await };
        // A process that cannot parse the statement has never hidden any reading by it either.
        let Some(test) = (self.understand)(statement) else { return Ok(()) };
        self.delete_all(&gone, |sensor| test(sensor)).await
    }

    /// Deletes readings of all sensors, and leaves the store as much time as that takes. Takes the database's turn for a batch at a
    /// time: while a deletion waits for it, all of the database's readings wait in memory.
    async fn delete_paced(&self, gone: &DeletedCells<'_>, turn: &tokio::sync::Mutex<()>) -> Result<(), StorageError> {
        let mut after = None;
        loop {
            let held = turn.lock().await;
            let started = Instant::now();
            after = self.delete_some(gone, after, PACED_SENSORS, |_| true).await?;
            drop(held);
            faults::point("during_expiry");
            faults::halt_at("expiry_rests").await;
            if after.is_none() {
                return Ok(());
            }
            tokio::time::sleep(started.elapsed()).await;
        }
    }

    /// Deletes readings of all sensors that pass a test and have a document.
    async fn delete_all(&self, gone: &DeletedCells<'_>, test: impl Fn(&Sensor) -> bool) -> Result<(), StorageError> {
        let mut after = None;
        loop {
            after = self.delete_some(gone, after, SENSORS, &test).await?;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    /// As [`Deleter::delete_all`], for the next sensors after one; returns the last of them, `None` at the end.
    async fn delete_some(
        &self,
        gone: &DeletedCells<'_>,
        after: Option<String>,
        limit: usize,
        test: impl Fn(&Sensor) -> bool,
    ) -> Result<Option<String>, StorageError> {
        let filter = SensorFilter { after, outliers: false, limit };
        let documents = self.context.store.list_sensors(gone.database, &filter).await?;
        let last = documents.last().map(|document| document.sensor.key.to_string());
        let sensors: Vec<Sensor> =
            documents.iter().filter(|document| test(&document.sensor)).map(|d| Sensor::clone(&d.sensor)).collect();
        self.delete_of(gone, &sensors).await?;
        Ok(last)
    }

    async fn delete_of(&self, gone: &DeletedCells<'_>, sensors: &[Sensor]) -> Result<(), StorageError> {
        for chunk in sensors.chunks(SENSORS) {
            self.delete_readings(gone, chunk).await?;
            // After the pages: see `bucket::day`.
            self.delete_in_days(gone, chunk).await?;
            faults::point("during_deletion");
            let dropped = self.settle_documents(gone, chunk).await?;
            self.dispatch.catalog.doubt(gone.database, Some(&dropped));
        }
        Ok(())
    }

    async fn delete_readings(&self, gone: &DeletedCells<'_>, sensors: &[Sensor]) -> Result<(), StorageError> {
        let store = &*self.context.store;
        let keys: Vec<&str> = sensors.iter().map(|sensor| &*sensor.key).collect();
        let whole = gone.whole_hours();
        if !whole.is_empty() {
            store.raw().remove_buckets(gone.database, &keys, whole.clone(), gone.before).await?;
        }
        // Buckets that are left in whole hours have newer cells or several pages.
        let mut left: Vec<(Arc<Sensor>, Hour)> = Vec::new();
        let shared: Vec<Arc<Sensor>> = sensors.iter().cloned().map(Arc::new).collect();
        if !whole.is_empty() {
            let places = Projection::places();
            let scanned = store.raw().scan_sensors(gone.database, &keys, whole, &places, usize::MAX).await?;
            for (sensor, pages) in shared.iter().zip(scanned.unwrap_or_default()) {
                let old = pages.into_iter().filter(|page| page.oldest < gone.before);
                left.extend(old.map(|page| (sensor.clone(), page.hour)));
            }
        }
        for sensor in &shared {
            left.extend(gone.cut_hours(&sensor.key).into_iter().map(|hour| (sensor.clone(), hour)));
        }
        let ids: Vec<BucketId> = left.into_iter().map(|(sensor, hour)| BucketId { sensor, hour }).collect();
        for chunk in ids.chunks(BUCKETS) {
            for lot in self.lots_in_memory(gone.database, chunk).await? {
                self.cut(gone, lot.to_vec()).await?;
            }
        }
        Ok(())
    }

    /// The buckets in lots that fit into memory. One that does not is a lot of its own: an hour of a sensor is read as a whole.
    async fn lots_in_memory<'i>(
        &self,
        database: &str,
        ids: &'i [BucketId],
    ) -> Result<Vec<&'i [BucketId]>, StorageError> {
        let mut bytes = Vec::with_capacity(ids.len());
        for pages in read_buckets_each(&self.context.store, database, ids, 0).await {
            let of_page = |page: &StoredPage| page.left_out.map_or(page.readings.bytes(), |out| out.bytes);
            bytes.push(pages?.iter().map(of_page).sum::<usize>());
        }
        let (mut lots, mut first, mut held) = (Vec::new(), 0, 0);
        for (place, bytes) in bytes.into_iter().enumerate() {
            if held > 0 && held + bytes > LOT_BYTES {
                lots.push(&ids[first..place]);
                (first, held) = (place, 0);
            }
            held += bytes;
        }
        lots.push(&ids[first..]);
        Ok(lots)
    }

    /// Removes what is deleted from buckets of which something may stay.
    async fn cut(&self, gone: &DeletedCells<'_>, mut ids: Vec<BucketId>) -> Result<(), StorageError> {
        for _ in 0..CONFLICTS_MAX {
            let read = read_buckets_each(&self.context.store, gone.database, &ids, usize::MAX).await;
            let mut buckets = Vec::with_capacity(ids.len());
            for (id, pages) in ids.into_iter().zip(read) {
                let mut bucket = Bucket::from_stored(pages?);
                bucket.cut(|readings| gone.cut(&id.sensor.key, readings));
                buckets.push((id, bucket));
            }
            ids = write_buckets(&**self.context.store.raw(), gone.database, buckets).await?;
            if ids.is_empty() {
                return Ok(());
            }
        }
        Err(StorageError::Contended(ids[0].sensor.key.to_string()))
    }
}

/// Writes buckets until they have nothing left to write; returns those that other writers changed meanwhile.
pub async fn write_buckets(
    store: &dyn Store,
    database: &str,
    mut buckets: Vec<(BucketId, Bucket)>,
) -> Result<Vec<BucketId>, StorageError> {
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
        let outcomes = store.write_pages(database, &writes).await;
        drop(writes);
        let mut conflicts = BTreeSet::new();
        for ((number, _, group), outcome) in groups.into_iter().zip(outcomes) {
            if outcome.applied()? {
                buckets[number].1.mark_written(&group);
            } else {
                conflicts.insert(number);
            }
        }
        changed.extend(conflicts.into_iter().rev().map(|number| buckets.swap_remove(number).0));
    }
}

/// Runs blocking or long work on a blocking thread. A deletion runs one such task at a time, which leaves the other
/// processors to acks.
async fn beside(work: impl FnOnce() + Send + 'static) {
    if let Err(ended) = tokio::task::spawn_blocking(work).await
        && ended.is_panic()
    {
        std::panic::resume_unwind(ended.into_panic());
    }
}
