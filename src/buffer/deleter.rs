//! Carries out deletions in the store. Deletions of one database run one after the other, in WAL order. A deletion of a
//! range of times is over for everybody else once the registry remembers it; its readings are then removed in the
//! background.

mod batches;
pub mod cells;
mod days;
mod documents;
pub mod pages;
mod patience;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::SemaphorePermit;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::{JoinError, JoinSet};

use super::deleter::batches::SensorBatches;
use super::deleter::cells::{Choice, DeletedCells};
use super::deleter::patience::{Patience, RETRY};
use super::dispatch::Dispatch;
use super::flush::task::FlushContext;
use super::shard::pending::{DroppedData, PendingDeletion};
use crate::bucket::deletions::{RememberedDeletion, StatementCompiler};
use crate::bucket::registry::MemberRegistry;
use crate::bucket::{StorageError, Store};
use crate::catalog::deletion::{Deletion, Scope};
use crate::faults;
use crate::members::retention::{EXPIRY, unlist_dropped};
use crate::reading::{Sensor, Stamp};

/// Maximum number of failed sensors that are remembered for the next sweep.
const UNSWEPT_MAX: usize = 1000;
/// The time for which a record of a deletion waits for the next one. They are logged one after the other.
const PART_TIME_MAX: Duration = Duration::from_secs(600);
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
    /// Locks by which removals of hidden readings of one database exclude each other.
    pub removals: DatabaseTurns,
    /// The sensors that the last sweep of a deletion could not visit, by its stamp. The next one visits only these.
    pub unswept: Mutex<HashMap<Stamp, Vec<Sensor>>>,
}

/// A deletion that no longer holds the database's flushes.
struct Processed {
    deletion: Arc<PendingDeletion>,
    parts: Vec<Arc<PendingDeletion>>,
    /// True if hidden readings are left to be removed.
    is_left: bool,
}

/// Processed records of deletions that take several, until the last one comes, which has the statement.
#[derive(Default)]
struct DeletionParts(Vec<(Instant, Arc<PendingDeletion>)>);

impl DeletionParts {
    /// Takes the earlier records of a deletion.
    fn take(&mut self, last: &PendingDeletion) -> Vec<Arc<PendingDeletion>> {
        let is_of_it = |(_, part): &mut (Instant, Arc<PendingDeletion>)| {
            let Deletion { received, database, .. } = &part.deletion;
            !last.is_part()
                && (*received, database, part.deletion.range())
                    == (last.deletion.received, &last.deletion.database, last.deletion.range())
        };
        self.0.extract_if(.., is_of_it).map(|(_, part)| part).collect()
    }

    /// Takes the parts whose last record was not logged, so that the client got an error.
    fn take_abandoned(&mut self) -> Vec<Arc<PendingDeletion>> {
        self.0.extract_if(.., |(since, _)| since.elapsed() >= PART_TIME_MAX).map(|(_, part)| part).collect()
    }
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
        let mut under_way: JoinSet<Processed> = JoinSet::new();
        let mut removals: JoinSet<()> = JoinSet::new();
        let mut parts = DeletionParts::default();
        loop {
            parts.take_abandoned().iter().for_each(|part| self.end(part));
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
                Some(ended) = removals.join_next() => {
                    unwrap_task(ended);
                    continue;
                }
                () = tokio::time::sleep(PART_TIME_MAX), if !parts.0.is_empty() => continue,
                Some(ended) = under_way.join_next() => {
                    let Some(Processed { deletion, parts: with_it, is_left }) = unwrap_task(ended) else { return };
                    let database = deletion.deletion.database.clone();
                    waiting.get_mut(&database).and_then(VecDeque::pop_front);
                    if deletion.is_part() {
                        parts.0.push((Instant::now(), deletion));
                    } else if is_left {
                        removals.spawn(self.clone().remove_hidden(deletion, with_it));
                    }
                    database
                }
            };
            if let Some(next) = waiting.get(&database).and_then(VecDeque::front) {
                under_way.spawn(self.clone().process(next.clone(), parts.take(next)));
            } else {
                waiting.remove(&database);
            }
        }
    }

    /// Carries out one deletion after all shards have done their part, with the earlier records of its statement. Of a
    /// range of times, this only hides the readings: the database's flushes go on while they are removed from the store.
    async fn process(self: Arc<Self>, deletion: Arc<PendingDeletion>, parts: Vec<Arc<PendingDeletion>>) -> Processed {
        self.forget_deleted(&deletion).await;
        let shards = u32::try_from(self.dispatch.shards()).unwrap_or(u32::MAX);
        if deletion.arrived.acquire_many(shards).await.map(SemaphorePermit::forget).is_err() {
            return Processed { deletion, parts, is_left: false };
        }
        self.free_taken(&deletion).await;
        faults::point("before_deletion");
        let is_left = self.carry_out(&deletion, &parts).await;
        if !deletion.is_part() {
            parts.iter().chain([&deletion]).for_each(|ended| self.end(ended));
            faults::point("after_deletion");
        }
        self.dispatch.resume(&deletion.deletion.database);
        Processed { deletion, parts, is_left }
    }

    fn end(&self, pending: &PendingDeletion) {
        self.dispatch.catalog.end_deletion(&pending.deletion);
    }

    /// Removes hidden readings from the store, a batch of sensors at a time. After an error that a retry does not mend,
    /// the job `sweep` goes on.
    async fn remove_hidden(self: Arc<Self>, pending: Arc<PendingDeletion>, parts: Vec<Arc<PendingDeletion>>) {
        let database = &*pending.deletion.database;
        let removals = self.removals.of(database);
        let _one_at_a_time = removals.lock().await;
        let mut patience = Patience::new(Instant::now());
        while let Err(error) = self.remove_readings(&pending, &parts).await {
            self.note_failure(database, &error);
            let wait = patience.wait_after(&error, Instant::now()).filter(|_| !error.is_document_error());
            let Some(wait) = wait else {
                report_refusal(&pending, &error);
                break;
            };
            tracing::warn!(%database, %error, "deleted readings are hidden, but not removed yet; retrying");
            tokio::time::sleep(wait).await;
        }
        while let Err(error) = self.note_done(&pending).await {
            self.note_failure(database, &error);
            tokio::time::sleep(RETRY.end).await;
        }
        self.context.changes.note_everything();
        faults::point("after_removal");
    }

    async fn remove_readings(
        &self,
        pending: &PendingDeletion,
        parts: &[Arc<PendingDeletion>],
    ) -> Result<(), StorageError> {
        let gone = pending.cells();
        let mut batches = named_sensors(pending, parts);
        let mut failed = FailedSensors::default();
        while let Some(sensors) = batches.next(&**self.context.store.raw(), gone.database).await? {
            self.sweep_batch(&gone, &sensors, &mut failed).await?;
        }
        failed.error.map_or(Ok(()), Err)
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

    /// Carries out a deletion, and retries while the store is away, but not if an available store keeps refusing, because
    /// everything behind the deletion waits. Returns true if readings are hidden and are left to be removed.
    async fn carry_out(&self, pending: &PendingDeletion, parts: &[Arc<PendingDeletion>]) -> bool {
        let mut patience = Patience::new(Instant::now());
        let database = &pending.deletion.database;
        loop {
            let attempted = self.delete(pending, parts).await;
            // For any outcome, because a part may be deleted.
            self.context.changes.note_everything();
            let error = match attempted {
                Ok(is_left) => return is_left,
                Err(error) => error,
            };
            self.note_failure(database, &error);
            let Some(wait) = patience.wait_after(&error, Instant::now()) else {
                report_refusal(pending, &error);
                self.dispatch.catalog.doubt(database, None);
                return false;
            };
            tracing::warn!(%database, %error, "deletion failed; it stays in the WAL and is retried");
            tokio::time::sleep(wait).await;
        }
    }

    fn note_failure(&self, database: &str, error: &StorageError) {
        self.context.metrics.store_error(error.class());
        self.context.presence.note_failure(database, error, Instant::now());
    }

    /// Returns true if readings are hidden and are left to be removed.
    async fn delete(&self, pending: &PendingDeletion, parts: &[Arc<PendingDeletion>]) -> Result<bool, StorageError> {
        if !self.context.registry_view.is_known() {
            return Err(StorageError::Unavailable("the registry was not read yet".to_owned()));
        }
        // The deletion was carried out before a restart. A second run could remove stored readings of later records,
        // which are not merged again.
        if self.context.registry_view.is_stored(pending.sequence()) {
            return Ok(false);
        }
        let deletion = pending.registry_entry();
        if let Some(deletion) = &deletion {
            if self.context.registry_view.is_done(deletion) {
                return Ok(false);
            }
            self.change(|registry| registry.remember(deletion.clone())).await?;
        }
        if let Scope::Readings { statement, .. } = &pending.deletion.scope {
            let database = &*pending.deletion.database;
            // A database exists even if all its readings were deleted before one was stored. But a deletion of expired
            // readings must not create a database that was dropped meanwhile.
            let is_expiry = statement.as_deref() == Some(EXPIRY);
            if !is_expiry && !self.context.registry_view.is_dropped(database, pending.sequence()) {
                self.context.store.raw().create_database(database).await?;
            }
            if deletion.is_none() {
                return Ok(false);
            }
            self.hide_in_documents(&pending.cells(), named_sensors(pending, parts)).await?;
            return Ok(true);
        }
        // Exclude sweeps, which could see pages that are about to be removed, and restore their sensor's document.
        let turn = self.turns.of(&pending.deletion.database);
        let _turn = turn.lock().await;
        self.remove(pending).await?;
        self.note_done(pending).await?;
        Ok(false)
    }

    /// Notes in the registry that a deletion was carried out.
    async fn note_done(&self, pending: &PendingDeletion) -> Result<(), StorageError> {
        let Some(deletion) = pending.registry_entry() else { return Ok(()) };
        self.change(|registry| registry.remember(RememberedDeletion { done: true, ..deletion.clone() })).await
    }

    /// Removes a dropped database, or single cells, from the store.
    async fn remove(&self, pending: &PendingDeletion) -> Result<(), StorageError> {
        let database = &*pending.deletion.database;
        let before = pending.sequence();
        match &pending.deletion.scope {
            // No other instance writes to the store, and this one does not flush the database now.
            Scope::Database if !self.context.registry_view.view().restamps => {
                self.context.store.raw().drop_database(database).await?;
            }
            Scope::Database => {
                self.delete_all(&pending.cells()).await?;
            }
            Scope::Readings { .. } | Scope::Mark => return Ok(()),
            Scope::Cells { sensors: deleted, mark } => {
                let sensors: Vec<Sensor> = deleted.iter().map(|deleted| deleted.sensor.clone()).collect();
                let choice = Choice::times(deleted);
                self.delete_of(&DeletedCells { database, choice, before: *mark }, &sensors).await?;
                return Ok(());
            }
        }
        self.unlist(database, before).await
    }

    async fn unlist(&self, database: &str, dropped: Stamp) -> Result<(), StorageError> {
        let left = unlist_dropped(&**self.context.store.raw(), database, dropped).await?;
        self.context.settings.put(database, left);
        self.dispatch.catalog.doubt(database, None);
        Ok(())
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
        let mut batches = match &unswept {
            Some(sensors) => SensorBatches::of(sensors.iter()),
            None => SensorBatches::Selected { test, after: None },
        };
        let store = &**self.context.store.raw();
        let mut started = Instant::now();
        while let Some(sensors) = batches.next(store, gone.database).await? {
            self.sweep_batch(&gone, &sensors, &mut failed).await?;
            faults::point("during_expiry");
            faults::halt_at("expiry_rests").await;
            tokio::time::sleep(started.elapsed()).await;
            started = Instant::now();
        }
        let FailedSensors { sensors, error } = failed;
        let Some(error) = error else {
            // The deletion itself may have failed.
            return if deletion.statement.is_none() && !deletion.done {
                self.unlist(gone.database, gone.before).await
            } else {
                Ok(())
            };
        };
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
        let mut batches = SensorBatches::ALL;
        while let Some(sensors) = batches.next(&**self.context.store.raw(), gone.database).await? {
            self.delete_of(gone, &sensors).await?;
        }
        Ok(())
    }

    async fn delete_of(&self, gone: &DeletedCells<'_>, sensors: &[Sensor]) -> Result<(), StorageError> {
        faults::halt_at("removing").await;
        self.delete_readings(gone, sensors).await?;
        // The days follow the pages: see `bucket::day`.
        self.delete_in_days(gone, sensors).await?;
        faults::point("during_deletion");
        let dropped = self.settle_documents(gone, sensors).await?;
        self.dispatch.catalog.doubt(gone.database, Some(&dropped));
        Ok(())
    }
}

/// Reports that an available store keeps refusing. The pending ack passes the error on.
fn report_refusal(pending: &PendingDeletion, error: &StorageError) {
    tracing::error!(
        database = %pending.deletion.database, %error, statement = pending.deletion.description(),
        "the store refuses a deletion: hidden readings stay hidden, and the job sweep tries again; others stay visible"
    );
    pending.pending_ack.refuse(error);
}

/// Returns the sensors that the records of a deletion name.
fn named_sensors<'p>(pending: &'p PendingDeletion, parts: &'p [Arc<PendingDeletion>]) -> SensorBatches<'p> {
    let records = parts.iter().map(|part| &**part).chain([pending]);
    SensorBatches::of(records.flat_map(|record| match &record.deletion.scope {
        Scope::Readings { sensors, .. } => &**sensors,
        Scope::Database | Scope::Mark | Scope::Cells { .. } => &[],
    }))
}

/// Returns the result of a task; `None` if it was aborted.
fn unwrap_task<T>(ended: Result<T, JoinError>) -> Option<T> {
    match ended {
        Err(ended) if ended.is_panic() => std::panic::resume_unwind(ended.into_panic()),
        ended => ended.ok(),
    }
}

/// Runs long work on a blocking thread. A deletion runs one such task at a time, so the other processors are free for
/// acks.
async fn run_blocking(work: impl FnOnce() + Send + 'static) {
    unwrap_task(tokio::task::spawn_blocking(work).await);
}
