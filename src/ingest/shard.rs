//! A shard: the one owner of its sensors' hot buckets. It gathers batches for a moment, merges
//! them as one group per database, writes until the store has everything, and acks. One group at
//! a time, so that no page ever has two unresolved writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::{mpsc, oneshot};

use super::catalog::{Database, KnownSensor};
use super::door::Batch;
use super::group::{Group, Merge, Run};
use super::sensors::{Lagging, store_before_pages};
use super::{Admission, IngestError, Options};
use crate::bucket::hot::HotBuckets;
use crate::bucket::store::Written;
use crate::bucket::{Caps, Origin, SensorDocument, StorageError, Store};
use crate::telemetry::Metrics;

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
                    None => return self.write_sensors().await,
                },
                () = tokio::time::sleep_until(sensors_due) => {
                    self.write_sensors().await;
                    sensors_due = tokio::time::Instant::now() + self.sensor_interval;
                }
            }
            if tokio::time::Instant::now() >= sensors_due {
                // A busy inbox must not keep the documents waiting for ever.
                self.write_sensors().await;
                sensors_due = tokio::time::Instant::now() + self.sensor_interval;
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
        let instance = self.instance.clone();
        let origin = Origin { instance: &instance, sequence: self.sequence.fetch_add(1, Ordering::Relaxed) + 1 };
        let mut group = Group::new(&batches, &mut self.hot);
        self.metrics.group_readings.record(u32::try_from(group.len()).unwrap_or(u32::MAX));
        let caps = self.caps;
        let merge = Merge { caps: &caps, origin, shared: self.store.is_shared() };
        group.merge(merge);
        self.store_sensors(database, &mut group).await;
        self.store_pages(database, &mut group, merge).await;
        let failures = group.failures();
        for run in group.runs {
            self.finish(database, run);
        }
        let urgent = self.lagging.write_urgent(&*self.store, &self.hot, &self.metrics, now_ns()).await;
        self.sensors_written(urgent);
        self.metrics.flush_seconds.record(started.elapsed());
        if let Some(error) = failures.iter().flatten().next() {
            let lost = failures.iter().flatten().count();
            tracing::warn!(database = %database.name, requests = lost, %error, "readings were not stored; their senders were told to retry");
        }
        for ((ack, admission), failure) in acks.into_iter().zip(failures) {
            drop(admission);
            // A client that went away does not wait for its ack; its readings are stored.
            let _ = ack.send(failure.map_or(Ok(()), Err));
        }
    }

    async fn store_sensors(&self, database: &Database, group: &mut Group<'_>) {
        let mut unsaved: Vec<Arc<KnownSensor>> = Vec::new();
        for run in &group.runs {
            let counted = unsaved.last().is_some_and(|last| last.id == run.known.id);
            if !counted && run.known.fields().unsaved() {
                unsaved.push(run.known.clone());
            }
        }
        if !unsaved.is_empty() {
            let failed = store_before_pages(&*self.store, &database.name, unsaved, &self.metrics).await;
            group.fail_sensors(&failed);
        }
    }

    /// Writes, and reads and merges again what others changed, until nothing is left to write.
    async fn store_pages(&self, database: &Database, group: &mut Group<'_>, merge: Merge<'_>) {
        loop {
            let (runs, writes) = group.writes();
            if !writes.is_empty() {
                let outcomes = self.store.write_pages(&database.name, &writes).await;
                let conflicts = outcomes.iter().filter(|outcome| **outcome == Written::Conflict).count();
                self.metrics.conflicts.increment(conflicts as u64);
                let pages = writes.into_iter().map(|write| write.group);
                let written = runs.into_iter().zip(pages).zip(outcomes).map(|((r, p), o)| (r, p, o)).collect();
                group.settle(written);
            }
            let (stale, ids) = group.stale();
            if stale.is_empty() && group.writes().1.is_empty() {
                return;
            }
            if !stale.is_empty() {
                let read = self.store.read_buckets(&database.name, &ids).await;
                group.reload(&stale, read, merge);
            }
        }
    }

    /// Counts what became of a run, and keeps its bucket hot if it is as the store has it.
    fn finish(&mut self, database: &Arc<Database>, run: Run) {
        if let Some(error) = run.failure() {
            self.metrics.store_error(error.class());
            return;
        }
        let applied = run.applied;
        self.metrics.stored.increment(applied.new);
        self.metrics.duplicate.increment(applied.duplicate);
        self.metrics.overwritten.increment(applied.overwritten);
        self.metrics.late.increment(applied.late);
        let pages = run.bucket.pages().len();
        self.metrics.overflow_pages.increment(pages.saturating_sub(run.pages_before.max(1)) as u64);
        if applied.new + applied.overwritten > 0 {
            self.lagging.note(database, &run.known, &run.id, &run.bucket, run.pages_before);
        }
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
        let done = self.lagging.refresh(&*self.store, &self.hot, &database.name, &mut documents, now_ns()).await;
        let answer = done.map(|()| places.into_iter().zip(documents.into_iter().map(|(_, d)| d)).collect());
        // Whoever asked may have gone.
        let _ = reply.send(answer);
    }

    async fn write_sensors(&mut self) -> bool {
        if self.lagging.len() == 0 {
            return true;
        }
        let written = self.lagging.write(&*self.store, &self.hot, &self.metrics, now_ns()).await;
        self.sensors_written(written)
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
fn now_ns() -> i64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_epoch.as_nanos()).unwrap_or(i64::MAX)
}
