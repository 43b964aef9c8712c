//! A shard: the one owner of its sensors' hot buckets. It gathers batches for a moment, merges
//! them as one group per database, writes until the store has everything, and acks. One group at
//! a time, so that no page ever has two unresolved writes.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::{mpsc, oneshot};

use super::catalog::{Database, KnownSensor};
use super::door::Batch;
use super::group::{Group, Merge, Run, State, writes};
use super::lagging::{Lagging, Surroundings};
use super::reads::read_buckets_each;
use super::sensors::store_before_pages;
use super::{Admission, IngestError, Options};
use crate::bucket::hot::{HotBuckets, HotKey};
use crate::bucket::store::{BucketId, Written};
use crate::bucket::{Bucket, Caps, Origin, SensorDocument, StorageError, Store};
use crate::telemetry::Metrics;

/// How many buckets are merged and written at a time: as many as fill a command.
const SLICE: usize = 1000;
/// How many buckets are read back at a time. They may be large, and all of a lot is in memory.
const STALE_LOT: usize = 32;

/// What a shard is asked to do.
pub enum Message {
    /// Store a batch and ack it.
    Submit(Submission),
    /// Bring sensor documents up to date: each with its place in the answer and its sensor's id.
    Refresh { database: Arc<Database>, documents: Vec<(usize, u32, SensorDocument)>, reply: oneshot::Sender<Refreshed> },
}

/// Documents with their places, or why they could not be brought up to date.
pub type Refreshed = Result<Vec<(usize, SensorDocument)>, StorageError>;

/// One request's readings for one shard.
pub struct Submission {
    pub database: Arc<Database>,
    pub batch: Batch,
    pub ack: oneshot::Sender<Result<(), IngestError>>,
    /// The request's place in the bytes in flight, given back with the last of its batches.
    pub admission: Arc<Admission>,
}

/// One shard's state. Nothing else touches it.
pub struct Shard {
    number: usize,
    hot: HotBuckets,
    lagging: Lagging,
    /// Buckets with a write that may have been applied, or may yet be: nobody has learnt which.
    doubtful: HashSet<HotKey>,
    store: Arc<dyn Store>,
    metrics: Metrics,
    caps: Caps,
    linger: Duration,
    group_bytes: usize,
    sensor_interval: Duration,
    instance: Arc<str>,
    sequence: Arc<AtomicU64>,
}

impl Shard {
    /// A shard of the instance `origin` names, with no buckets yet.
    pub fn new(
        number: usize,
        options: &Options,
        store: Arc<dyn Store>,
        metrics: Metrics,
        origin: (Arc<str>, Arc<AtomicU64>),
    ) -> Self {
        Self {
            number,
            hot: HotBuckets::new(options.hot_bytes / options.shards.max(1)),
            lagging: Lagging::new(options.recent, options.outlier_ttl),
            doubtful: HashSet::new(),
            store,
            metrics,
            caps: options.caps,
            linger: options.linger,
            group_bytes: options.group_bytes,
            sensor_interval: options.sensor_interval,
            instance: origin.0,
            sequence: origin.1,
        }
    }

    /// Works until the inbox is closed and empty, and tells whether the sensor documents could
    /// be written at the end. Readings are in the store before they are acked, so none is left.
    pub async fn run(mut self, mut inbox: mpsc::Receiver<Message>) -> bool {
        let mut sensors_due = tokio::time::Instant::now() + self.sensor_interval;
        loop {
            tokio::select! {
                message = inbox.recv() => match message {
                    Some(Message::Submit(first)) => {
                        let group = self.gather(first, &mut inbox).await;
                        self.commit(group).await;
                    }
                    Some(Message::Refresh { database, documents, reply }) => self.refresh(&database, documents, reply).await,
                    None => return self.write_all_sensors().await,
                },
                () = tokio::time::sleep_until(sensors_due) => {}
            }
            // A busy inbox must not keep the documents waiting for ever, nor they the inbox.
            if tokio::time::Instant::now() >= sensors_due {
                let written = self.write_some_sensors().await;
                if !written || self.lagging.len() == 0 {
                    sensors_due = tokio::time::Instant::now() + self.sensor_interval;
                }
            }
        }
    }

    /// The first batch and what arrives within the linger after it, up to the group's size.
    async fn gather(&mut self, first: Submission, inbox: &mut mpsc::Receiver<Message>) -> Vec<Submission> {
        let deadline = tokio::time::Instant::now() + self.linger;
        let mut bytes = first.admission.size();
        let mut group = vec![first];
        while bytes < self.group_bytes {
            match tokio::time::timeout_at(deadline, inbox.recv()).await {
                Ok(Some(Message::Submit(next))) => {
                    bytes += next.admission.size();
                    group.push(next);
                }
                Ok(Some(Message::Refresh { database, documents, reply })) => {
                    self.refresh(&database, documents, reply).await;
                }
                Ok(None) | Err(_) => break,
            }
        }
        group
    }

    async fn commit(&mut self, mut submissions: Vec<Submission>) {
        while let Some(first) = submissions.first() {
            let database = first.database.clone();
            let (of_database, others) = submissions.into_iter().partition(|s| Arc::ptr_eq(&s.database, &database));
            submissions = others;
            self.commit_database(&database, of_database).await;
        }
        self.hot.shrink();
        self.metrics.hot(self.number, self.hot.len(), self.hot.memory());
    }

    async fn commit_database(&mut self, database: &Arc<Database>, submissions: Vec<Submission>) {
        let started = Instant::now();
        let (batches, acks): (Vec<Batch>, Vec<_>) =
            submissions.into_iter().map(|s| (s.batch, (s.ack, s.admission))).unzip();
        let (instance, caps) = (self.instance.clone(), self.caps);
        let sequence = self.sequence.fetch_add(1, Ordering::Relaxed) + 1;
        let origin = Origin { instance: &instance, sequence };
        let merge = Merge { caps: &caps, origin, shared: self.store.is_shared() };
        let mut group = Group::new(&batches);
        self.metrics.group_readings.record(u32::try_from(group.len()).unwrap_or(u32::MAX));
        for start in (0..group.buckets()).step_by(SLICE) {
            let end = (start + SLICE).min(group.buckets());
            let runs = group.merge(start..end, &mut self.hot, merge);
            if let Err(away) = self.store_runs(database, &mut group, runs, merge).await {
                group.fail_from(end, &away);
                break;
            }
        }
        // New outliers are listed by the time that their readings are acked.
        let at = Surroundings { store: &*self.store, hot: &self.hot, metrics: &self.metrics, now: now_ns() };
        let urgent = self.lagging.write_urgent(at).await;
        self.sensors_written(urgent);
        let failures = group.into_failures();
        self.metrics.flush_seconds.record(started.elapsed());
        if let Some(error) = failures.iter().flatten().next() {
            let requests = failures.iter().flatten().count();
            tracing::warn!(database = %database.name, requests, %error, "readings were not stored; their senders were told so");
        }
        for ((ack, admission), failure) in acks.into_iter().zip(failures) {
            drop(admission);
            // A client that went away does not wait for its ack; its readings are stored.
            let _ = ack.send(failure.map_or(Ok(()), Err));
        }
    }

    /// Brings runs to the store: the bulk at once, and what turns out to be different there in
    /// small lots, since those buckets are read whole. `Err` when the store turns out to be away:
    /// then nothing more is tried, or every lot would wait for a deadline of its own.
    async fn store_runs(
        &mut self,
        database: &Arc<Database>,
        group: &mut Group<'_>,
        mut runs: Vec<Run>,
        merge: Merge<'_>,
    ) -> Result<(), StorageError> {
        self.confirm(database, &mut runs).await;
        self.store_sensors(database, &mut runs).await;
        self.write(database, &mut runs).await;
        let (mut stale, mut away) = self.finish(database, group, runs);
        while !stale.is_empty() {
            if let Some(away) = away {
                for run in &stale {
                    group.fail(run, &away);
                }
                return Err(away);
            }
            let rest = stale.split_off(stale.len().min(STALE_LOT));
            let mut lot = std::mem::replace(&mut stale, rest);
            self.reload(database, group, &mut lot, merge).await;
            self.write(database, &mut lot).await;
            let (again, lot_away) = self.finish(database, group, lot);
            stale.extend(again);
            away = lot_away;
            self.hot.shrink();
        }
        away.map_or(Ok(()), Err)
    }

    /// Looks whether the store still holds what doubted runs take it to hold.
    async fn confirm(&self, database: &Database, runs: &mut [Run]) {
        let mut doubted: Vec<&mut Run> = runs.iter_mut().filter(|run| run.state == State::Doubted).collect();
        if doubted.is_empty() {
            return;
        }
        let ids: Vec<BucketId> = doubted.iter().map(|run| run.id.clone()).collect();
        let revs = self.store.read_revs(&database.name, &ids).await;
        for (number, run) in doubted.iter_mut().enumerate() {
            run.state = match &revs {
                Ok(revs) if run.bucket.has_revs(&revs[number]) => State::Merged,
                // What cannot be read is found out, and fails, bucket by bucket.
                Ok(_) | Err(StorageError::Unreadable { .. }) => State::Stale,
                Err(error) => State::Failed(error.clone()),
            };
        }
    }

    async fn store_sensors(&self, database: &Database, runs: &mut [Run]) {
        let mut unsaved: Vec<Arc<KnownSensor>> = Vec::new();
        for run in runs.iter() {
            let counted = unsaved.last().is_some_and(|last| last.id == run.known.id);
            if !counted && run.known.fields().unsaved() {
                unsaved.push(run.known.clone());
            }
        }
        if unsaved.is_empty() {
            return;
        }
        let failed = store_before_pages(&*self.store, &database.name, unsaved, &self.metrics).await;
        for run in runs {
            if let Some(error) = failed.get(&run.known.id) {
                run.state = State::Failed(error.clone());
            }
        }
    }

    /// Writes until no merged run has anything left to write.
    async fn write(&mut self, database: &Database, runs: &mut [Run]) {
        loop {
            let (numbers, writes) = writes(runs);
            if writes.is_empty() {
                return;
            }
            let outcomes = self.store.write_pages(&database.name, &writes).await;
            let pages: Vec<Vec<usize>> = writes.into_iter().map(|write| write.group).collect();
            for ((number, pages), outcome) in numbers.into_iter().zip(pages).zip(outcomes) {
                let run = &mut runs[number];
                match &outcome {
                    Written::Conflict => self.metrics.conflicts.increment(1),
                    Written::Failed(StorageError::Unknown { .. }) => drop(self.doubtful.insert(run.key())),
                    Written::Yes | Written::Failed(_) => {}
                }
                run.settle(&pages, outcome);
            }
        }
    }

    /// Reads stale runs' buckets and merges their readings in. One that cannot be read fails alone.
    async fn reload(&self, database: &Database, group: &Group<'_>, runs: &mut [Run], merge: Merge<'_>) {
        let ids: Vec<BucketId> = runs.iter().map(|run| run.id.clone()).collect();
        let read = read_buckets_each(&*self.store, &database.name, &ids).await;
        for (run, bucket) in runs.iter_mut().zip(read) {
            match bucket {
                Ok(pages) => group.reload(run, pages, &self.doubtful, merge),
                Err(error) => run.state = State::Failed(error),
            }
        }
    }

    /// Counts what became of stored runs and keeps their buckets hot, tells the group of failed
    /// ones, and returns those that are stale, and the failure that says the store is away.
    fn finish(
        &mut self,
        database: &Arc<Database>,
        group: &mut Group<'_>,
        runs: Vec<Run>,
    ) -> (Vec<Run>, Option<StorageError>) {
        let (mut stale, mut away) = (Vec::new(), None);
        for mut run in runs {
            match &run.state {
                State::Merged => self.stored(database, run),
                State::Failed(error) => {
                    self.metrics.store_error(error.class());
                    group.fail(&run, error);
                    if error.is_away() {
                        away = Some(error.clone());
                    }
                }
                State::Doubted | State::Stale => {
                    run.bucket = Bucket::default();
                    stale.push(run);
                }
            }
        }
        (stale, away)
    }

    fn stored(&mut self, database: &Arc<Database>, run: Run) {
        let applied = run.applied;
        self.metrics.stored.increment(applied.new);
        self.metrics.duplicate.increment(applied.duplicate);
        self.metrics.overwritten.increment(applied.overwritten);
        self.metrics.late.increment(applied.late);
        let pages = run.bucket.pages().len();
        self.metrics.overflow_pages.increment(pages.saturating_sub(run.pages_before.max(1)) as u64);
        // Duplicates of a bucket just read may be readings whose first ack was never learnt.
        if run.changed() || !run.from_hot {
            self.lagging.note(database, &run);
        }
        self.doubtful.remove(&run.key());
        self.hot.put(run.key(), run.bucket);
    }

    async fn refresh(
        &mut self,
        database: &Database,
        documents: Vec<(usize, u32, SensorDocument)>,
        reply: oneshot::Sender<Refreshed>,
    ) {
        let (places, mut documents): (Vec<usize>, Vec<(u32, SensorDocument)>) =
            documents.into_iter().map(|(place, id, document)| (place, (id, document))).unzip();
        let at = Surroundings { store: &*self.store, hot: &self.hot, metrics: &self.metrics, now: now_ns() };
        let done = self.lagging.refresh(at, &database.name, &mut documents).await;
        let answer = done.map(|()| places.into_iter().zip(documents.into_iter().map(|(_, d)| d)).collect());
        // Whoever asked may have gone.
        let _ = reply.send(answer);
    }

    async fn write_some_sensors(&mut self) -> bool {
        let at = Surroundings { store: &*self.store, hot: &self.hot, metrics: &self.metrics, now: now_ns() };
        let written = self.lagging.write_some(at).await;
        self.sensors_written(written)
    }

    async fn write_all_sensors(&mut self) -> bool {
        while self.lagging.len() > 0 {
            if !self.write_some_sensors().await {
                return false;
            }
        }
        true
    }

    fn sensors_written(&self, written: Result<(), StorageError>) -> bool {
        if let Err(error) = &written {
            self.metrics.store_error(error.class());
            tracing::warn!(sensors = self.lagging.len(), %error, "sensor documents lag behind; the next interval tries again");
        }
        written.is_ok()
    }
}

/// The wall clock, for marks that people read; no order depends on it.
pub fn now_ns() -> i64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_epoch.as_nanos()).unwrap_or(i64::MAX)
}
