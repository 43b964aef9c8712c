//! Carries out deletions in the store. Deletions of one database run one after the other, in WAL order.

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
use crate::bucket::deletions::{RememberedDeletion, StatementCompiler};
use crate::bucket::registry::MemberRegistry;
use crate::bucket::store::{BucketId, PageWrite, Projection, SensorFilter};
use crate::bucket::{Bucket, StorageError, Store, StoredPage};
use crate::catalog::deletion::{ALWAYS, Scope};
use crate::catalog::reads::read_buckets_each;
use crate::faults;
use crate::members::retention::{EXPIRY, unlist_dropped};
use crate::reading::{Hour, Sensor, Stamp};

/// Sensors per batch of a deletion.
const SENSORS: usize = 500;
/// Sensors per batch of a sweep, which pauses after each batch.
const SWEPT_SENSORS: usize = 100;
/// Maximum number of failed sensors that are remembered for the next sweep.
const UNSWEPT_MAX: usize = 1000;
/// Maximum number of buckets rewritten at a time. All of them are in memory.
const BUCKETS: usize = 32;
/// Maximum stored bytes of several buckets that are rewritten at a time. Decoded, they take a multiple of that.
const LOT_BYTES: usize = 8 << 20;
/// The number of attempts to rewrite a batch against concurrent writers.
const CONFLICTS_MAX: usize = 30;

pub struct Deleter {
    pub context: Arc<FlushContext>,
    /// Resumes the database's flushes when a deletion is done.
    pub dispatch: Arc<Dispatch>,
    /// Turns a deletion's statement into a test of sensors.
    pub compiler: StatementCompiler,
    /// The id of this opening of the WAL.
    pub opening: u64,
    /// Locks by which deletions, sweeps and rewriting jobs of one database exclude each other.
    pub turns: Arc<DatabaseTurns>,
    /// The sensors that the last sweep of a deletion could not visit, by its stamp. The next one visits only these.
    pub unswept: Mutex<HashMap<Stamp, Vec<Sensor>>>,
}

/// The sensors that a sweep could not visit, with the first error.
#[derive(Default)]
struct FailedSensors {
    sensors: Vec<Sensor>,
    error: Option<StorageError>,
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

/// Returns true if there is a database of this name. Jobs that rewrite stored data check this while they hold the
/// database's turn, because a write to a dropped database would list it again.
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
            if let Some(next) = waiting.get(&database).and_then(VecDeque::front) {
                under_way.spawn(self.clone().process(next.clone()));
            } else {
                waiting.remove(&database);
            }
        }
    }

    /// Carries out one deletion after all shards have done their part. Returns its database.
    async fn process(self: Arc<Self>, pending: Arc<PendingDeletion>) -> String {
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
        let catalog = self.dispatch.catalog.clone();
        let pending = pending.clone();
        run_blocking(move || {
            faults::point("forgetting_deleted");
            drop(catalog.forget_deleted(&pending.deletion, pending.sequence(), &pending.targets));
        })
        .await;
    }

    /// Frees the shards' memory of a dropped database.
    async fn free_taken(&self, pending: &PendingDeletion) {
        let positions = self.dispatch.positions.clone();
        let taken = pending.take_dropped();
        if taken.is_empty() {
            return;
        }
        run_blocking(move || {
            positions.count_deleted(taken.iter().map(DroppedData::readings).sum::<usize>() as u64);
            drop(taken);
        })
        .await;
    }

    /// Deletes the readings from the store, and retries while the store is away. Gives up if an available store keeps
    /// refusing, because everything behind the deletion waits. The pending ack then reports the error.
    async fn carry_out(&self, pending: &PendingDeletion) {
        let mut patience = Patience::new(Instant::now());
        let database = &pending.deletion.database;
        // Exclude sweeps, which could see pages that are about to be removed, and restore their sensor's document.
        let turn = self.turns.of(database);
        let _turn = turn.lock().await;
        while let Err(error) = self.attempt(pending).await {
            self.context.metrics.store_error(error.class());
            self.context.presence.note_failure(database, &error, Instant::now());
            let Some(wait) = patience.wait_after(&error, Instant::now()) else {
                tracing::error!(
                    %database, %error, statement = pending.deletion.description(),
                    "deletion given up; the remaining readings stay: run it again"
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
        // For any outcome, because a part may be deleted.
        self.context.changes.note_everything();
        attempted
    }

    async fn delete(&self, pending: &PendingDeletion) -> Result<(), StorageError> {
        if !self.context.registry_view.is_known() {
            return Err(StorageError::Unavailable("the registry was not read yet".to_owned()));
        }
        // The deletion was carried out before a restart. A second run could remove stored readings of later records,
        // which are not merged again.
        if self.context.registry_view.is_stored(pending.sequence()) {
            return Ok(());
        }
        let deletion = pending.registry_entry();
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
        let database = &*pending.deletion.database;
        let before = pending.sequence();
        match &pending.deletion.scope {
            // No other instance writes to the store, and this one does not flush the database now.
            Scope::Database if !self.context.registry_view.view().restamps => {
                self.context.store.raw().drop_database(database).await?;
            }
            Scope::Database => {
                let gone = DeletedCells { database, choice: Choice::Range(ALWAYS), before };
                self.delete_all(&gone).await?;
            }
            Scope::Readings { sensors, range, statement } => {
                // A database exists even if all its readings were deleted before one was stored. But a deletion of
                // expired readings must not create a database that was dropped meanwhile.
                let is_expiry = statement.as_deref() == Some(EXPIRY);
                if !is_expiry && !self.context.registry_view.is_dropped(database, before) {
                    self.context.store.raw().create_database(database).await?;
                }
                let choice = Choice::Range(range.clone());
                self.delete_of(&DeletedCells { database, choice, before }, sensors).await?;
                return Ok(());
            }
            Scope::Mark => return Ok(()),
            Scope::Cells { sensors: deleted, mark } => {
                let sensors: Vec<Sensor> = deleted.iter().map(|deleted| deleted.sensor.clone()).collect();
                let choice = Choice::times(deleted);
                self.delete_of(&DeletedCells { database, choice, before: *mark }, &sensors).await?;
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
        let Some(deletion) = pending.registry_entry() else { return };
        if let Err(error) = self.change(|registry| registry.give_up(&deletion)).await {
            tracing::warn!(
                database = %deletion.database, %error,
                "cannot remove a deletion that was given up from the registry; its readings stay hidden from queries until \
                 the next sweep"
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

    /// Repeats a deletion after the floor has passed it, a batch of sensors at a time. Pauses after each batch for as long
    /// as the batch took, and holds the database's turn only during a batch, because a waiting deletion keeps all readings
    /// of the database in memory. A sensor that cannot be visited does not stop the others.
    ///
    /// # Errors
    /// If some deleted readings may be left. The next call visits only the sensors that failed.
    pub async fn sweep(&self, deletion: &RememberedDeletion) -> Result<(), StorageError> {
        let choice = Choice::Range(deletion.range.clone());
        let gone = DeletedCells { database: &deletion.database, choice, before: deletion.stamp };
        let test = deletion.statement.as_deref().map(|statement| (self.compiler)(statement));
        // A process that cannot parse the statement has not hidden any readings either.
        let Some(test) = test.map_or(Some(None), |test| test.map(Some)) else { return Ok(()) };
        let mut failed = FailedSensors::default();
        let unswept = self.unswept.lock().remove(&deletion.stamp);
        if let Some(sensors) = unswept {
            self.sweep_batch(&gone, &sensors, &mut failed).await?;
        } else {
            let mut after = None;
            loop {
                let started = Instant::now();
                let filter = SensorFilter { after, outliers: false, limit: SWEPT_SENSORS };
                let documents = self.context.store.list_sensors(gone.database, &filter).await?;
                let is_chosen = |sensor: &&Sensor| test.as_ref().is_none_or(|test| test(sensor));
                let sensors: Vec<Sensor> =
                    documents.iter().map(|document| &*document.sensor).filter(is_chosen).cloned().collect();
                self.sweep_batch(&gone, &sensors, &mut failed).await?;
                faults::point("during_expiry");
                faults::halt_at("expiry_rests").await;
                let Some(last) = documents.last() else { break };
                after = Some(last.sensor.key.to_string());
                tokio::time::sleep(started.elapsed()).await;
            }
        }
        let FailedSensors { sensors, error } = failed;
        let Some(error) = error else { return Ok(()) };
        if sensors.len() <= UNSWEPT_MAX {
            self.unswept.lock().insert(deletion.stamp, sensors);
        }
        Err(error)
    }

    /// Deletes readings of these sensors, of each by itself if the batch fails.
    async fn sweep_batch(
        &self,
        gone: &DeletedCells<'_>,
        sensors: &[Sensor],
        failed: &mut FailedSensors,
    ) -> Result<(), StorageError> {
        let turn = self.turns.of(gone.database);
        let _turn = turn.lock().await;
        match self.delete_of(gone, sensors).await {
            Err(error) if !error.is_away() => {}
            done => return done,
        }
        for sensor in sensors {
            match self.delete_of(gone, std::slice::from_ref(sensor)).await {
                Err(error) if !error.is_away() => {
                    failed.sensors.push(sensor.clone());
                    failed.error.get_or_insert(error);
                }
                done => done?,
            }
        }
        Ok(())
    }

    /// Deletes readings of all sensors that have a document.
    async fn delete_all(&self, gone: &DeletedCells<'_>) -> Result<(), StorageError> {
        let mut after = None;
        loop {
            let filter = SensorFilter { after, outliers: false, limit: SENSORS };
            let documents = self.context.store.list_sensors(gone.database, &filter).await?;
            let sensors: Vec<Sensor> = documents.iter().map(|document| Sensor::clone(&document.sensor)).collect();
            self.delete_of(gone, &sensors).await?;
            let Some(last) = sensors.last() else { return Ok(()) };
            after = Some(last.key.to_string());
        }
    }

    async fn delete_of(&self, gone: &DeletedCells<'_>, sensors: &[Sensor]) -> Result<(), StorageError> {
        for chunk in sensors.chunks(SENSORS) {
            self.delete_readings(gone, chunk).await?;
            // The days follow the pages: see `bucket::day`.
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
        // Remaining buckets in whole hours have newer cells or several pages.
        let mut left: Vec<(Arc<Sensor>, Hour)> = Vec::new();
        let shared: Vec<Arc<Sensor>> = sensors.iter().cloned().map(Arc::new).collect();
        if !whole.is_empty() {
            let places = Projection::without_fields();
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

    /// Splits the buckets into lots that fit into memory. A larger bucket is a lot of its own.
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
        let mut lots = Vec::new();
        let mut first = 0;
        let mut lot_bytes = 0;
        for (index, bytes) in bytes.into_iter().enumerate() {
            if lot_bytes > 0 && lot_bytes + bytes > LOT_BYTES {
                lots.push(&ids[first..index]);
                first = index;
                lot_bytes = 0;
            }
            lot_bytes += bytes;
        }
        lots.push(&ids[first..]);
        Ok(lots)
    }

    /// Removes deleted readings from buckets that may keep some.
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

/// Writes buckets until nothing is left to write. Returns the buckets that other writers changed meanwhile.
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

/// Runs long work on a blocking thread. A deletion runs one such task at a time, so the other processors are free for
/// acks.
async fn run_blocking(work: impl FnOnce() + Send + 'static) {
    if let Err(ended) = tokio::task::spawn_blocking(work).await
        && ended.is_panic()
    {
        std::panic::resume_unwind(ended.into_panic());
    }
}
