//! From a request's body to its ack: lines are judged at the door and batched by shard; a shard
//! groups the batches of many requests into few page writes. Reaches storage only through the
//! trait that `bucket` declares; knows nothing of HTTP.
//!
//! The log's place is between door and shard: a batch that the door let in is final, and what a
//! shard merges is never judged again.

mod admission;
mod catalog;
mod door;
mod group;
mod lagging;
mod options;
mod outliers;
mod reads;
mod sensors;
mod shard;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;

pub use self::admission::Admission;
pub use self::door::Rejected;
pub use self::options::Options;

use self::catalog::{Catalog, Database};
use self::door::{Door, Judged, Pass};
use self::shard::{Message, Shard, Submission};
use crate::bucket::{SensorDocument, StorageError, Store};
use crate::reading::{Precision, Sensor};
use crate::telemetry::Metrics;
use crate::wire::{json, line_protocol};

/// What became of a write request: a promise that `accepted` readings are in the store, durably.
#[derive(Debug, Default)]
pub struct Ack {
    /// Readings kept, duplicates included.
    pub accepted: usize,
    /// What was not kept.
    pub rejected: Rejected,
}

/// Why a request was not acked. Nothing of it is promised; resending is harmless.
#[derive(Debug, Clone, thiserror::Error)]
pub enum IngestError {
    /// A queue or buffer is full.
    #[error("the service is at its limit of {limit} ({key})")]
    Overloaded {
        /// The limit's value.
        limit: usize,
        /// The limit's config key.
        key: &'static str,
    },
    /// A single request that takes more memory than all requests together may.
    #[error("the request takes more than {limit} bytes (ingest.bytes_in_flight): send smaller batches")]
    TooLarge {
        /// The limit's value.
        limit: usize,
    },
    /// The store did not answer in time; the readings may get there yet.
    #[error("the store did not confirm the readings within {0:?} (ingest.ack_timeout)")]
    Timeout(Duration),
    /// The store failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// A database beyond the limit.
    #[error("a new database {name:?} is over the limit of {limit} (limits.databases)")]
    TooManyDatabases {
        /// Its name.
        name: String,
        /// The limit's value.
        limit: usize,
    },
    /// A database name that cannot be one.
    #[error("database name {name:?}: 1 to 64 bytes without control characters are wanted")]
    DatabaseName {
        /// The name.
        name: String,
    },
    /// The service is stopping.
    #[error("the service is shutting down")]
    Stopping,
}

/// The clock and place of one request's arrival: taken once, an argument everywhere else.
#[derive(Debug, Clone, Copy)]
pub struct Arrival<'a> {
    /// The database's name.
    pub database: &'a str,
    /// The unit of integer timestamps.
    pub precision: Precision,
    /// When it was received, in nanoseconds since the epoch: the time of undated readings.
    pub received: i64,
    /// Whether good lines are kept when others are not.
    pub partial: bool,
}

/// The ingest path. Cheap to share.
#[derive(Debug)]
pub struct Ingest {
    options: Options,
    store: Arc<dyn Store>,
    catalog: Catalog,
    shards: Vec<mpsc::Sender<Message>>,
    bytes: Arc<Semaphore>,
    metrics: Metrics,
    sweeper: JoinHandle<()>,
}

impl Drop for Ingest {
    fn drop(&mut self) {
        self.sweeper.abort();
    }
}

impl Ingest {
    /// Starts the shards. The handles end once [`Ingest`] is dropped and all that was admitted is
    /// in the store; each tells whether nothing was left behind.
    #[must_use]
    pub fn start(options: Options, store: Arc<dyn Store>, metrics: Metrics) -> (Self, Vec<JoinHandle<bool>>) {
        let instance = instance_name();
        let sequence = Arc::default();
        let (mut shards, mut workers) = (Vec::new(), Vec::new());
        for number in 0..options.shards {
            let (sender, inbox) = mpsc::channel(options.queue);
            let origin = (Arc::clone(&instance), Arc::clone(&sequence));
            let shard = Shard::new(number, &options, store.clone(), metrics.clone(), origin);
            workers.push(tokio::spawn(shard.run(inbox)));
            shards.push(sender);
        }
        let sweeper = tokio::spawn(outliers::sweep(store.clone(), options.outlier_ttl_ns(), metrics.clone()));
        let bytes = Arc::new(Semaphore::new(options.bytes_in_flight));
        let catalog = Catalog::new(&options);
        (Self { options, store, catalog, shards, bytes, metrics, sweeper }, workers)
    }

    /// A place in the bytes in flight, empty yet.
    #[must_use]
    pub fn admission(&self) -> Admission {
        Admission {
            permit: None,
            bytes: self.bytes.clone(),
            limit: self.options.bytes_in_flight,
            in_flight: self.metrics.bytes_in_flight.clone(),
        }
    }

    /// Takes a body of line protocol. On return the accepted readings are in the store.
    ///
    /// # Errors
    /// When not all of them are, or are known to be.
    pub async fn lines(&self, arrival: Arrival<'_>, body: &[u8], admission: Admission) -> Result<Ack, IngestError> {
        let judge = |door: &mut Door<'_>| {
            let mut lines = line_protocol::Lines::new(body, arrival.precision, self.options.limits);
            while let Some(line) = lines.next().filter(|_| door.has_room()) {
                match line {
                    Ok(line) => door.line(&line),
                    Err(rejection) => door.reject(rejection),
                }
            }
        };
        self.take(arrival, admission, judge).await
    }

    /// Takes a body of JSON readings. On return the accepted readings are in the store.
    ///
    /// # Errors
    /// When not all of them are, or are known to be.
    pub async fn json(&self, arrival: Arrival<'_>, body: &[u8], admission: Admission) -> Result<Ack, IngestError> {
        let judge = |door: &mut Door<'_>| {
            for item in json::items(body, arrival.precision, self.options.limits) {
                if !door.has_room() {
                    return;
                }
                match item {
                    Ok(item) => door.item(item),
                    Err(rejection) => door.reject(rejection),
                }
            }
        };
        self.take(arrival, admission, judge).await
    }

    async fn take(
        &self,
        arrival: Arrival<'_>,
        mut admission: Admission,
        judge: impl Fn(&mut Door<'_>),
    ) -> Result<Ack, IngestError> {
        let started = std::time::Instant::now();
        let database = self.database(arrival.database).await?;
        let judged = self.judge(&database, arrival, admission.size(), judge).await?;
        // The batches stay in memory until they are acked, as the body does.
        admission.grow(judged.memory)?;
        let ack = Ack { accepted: judged.accepted, rejected: judged.rejected };
        for (reason, count) in &ack.rejected.reasons {
            self.metrics.rejected(reason, *count);
        }
        self.submit(&database, judged.batches, admission).await?;
        self.metrics.accepted.increment(ack.accepted as u64);
        self.metrics.request_readings.record(u32::try_from(ack.accepted).unwrap_or(u32::MAX));
        self.metrics.ack_seconds.record(started.elapsed());
        Ok(ack)
    }

    /// Judges all lines. Where sensors turn up that this process does not know yet, their
    /// documents are read and the body is judged once more: it happens once per sensor. A request
    /// that is to be kept whole or not at all is first judged without leaving a trace.
    async fn judge(
        &self,
        database: &Arc<Database>,
        arrival: Arrival<'_>,
        body_bytes: usize,
        judge: impl Fn(&mut Door<'_>),
    ) -> Result<Judged, IngestError> {
        let pass = |learnt: bool, publish: bool| {
            let budget = self.bytes.available_permits();
            let pass = Pass { received: arrival.received, learnt, publish, budget };
            let mut door = Door::new(database, &self.catalog, &self.options, pass);
            judge(&mut door);
            let judged = door.close();
            match judged.memory {
                memory if memory <= budget => Ok(judged),
                // It would not fit with nobody else there: waiting mends nothing.
                memory if memory + body_bytes > self.options.bytes_in_flight => {
                    Err(IngestError::TooLarge { limit: self.options.bytes_in_flight })
                }
                _ => Err(self.overloaded()),
            }
        };
        let mut judged = pass(false, arrival.partial)?;
        if !judged.unknown.is_empty() {
            // What was judged so far counts nowhere while the store is asked: let it go.
            let unknown = std::mem::take(&mut judged.unknown);
            drop(judged);
            self.learn(database, unknown).await?;
            judged = pass(true, arrival.partial)?;
        }
        if arrival.partial {
            return Ok(judged);
        }
        if judged.rejected.count == 0 {
            judged = pass(true, true)?;
        }
        if judged.rejected.count > 0 {
            judged.keep_nothing();
        }
        Ok(judged)
    }

    fn overloaded(&self) -> IngestError {
        IngestError::Overloaded { limit: self.options.bytes_in_flight, key: "ingest.bytes_in_flight" }
    }

    async fn learn(&self, database: &Arc<Database>, unknown: Vec<Sensor>) -> Result<(), IngestError> {
        let keys: Vec<&str> = unknown.iter().map(|sensor| &*sensor.key).collect();
        let documents = self.noted(reads::read_sensors_each(&*self.store, &database.name, &keys).await)?;
        // A sensor whose document cannot be read becomes known too; its readings fail when they
        // come to be stored, and nobody else's.
        self.catalog.learn(database, unknown, documents.into_values().flatten().collect());
        self.metrics.sensors.set(u32::try_from(self.catalog.len()).unwrap_or(u32::MAX));
        Ok(())
    }

    /// Hands the batches to their shards, which own them from here on whatever becomes of the
    /// client, and waits for all.
    async fn submit(
        &self,
        database: &Arc<Database>,
        batches: Vec<door::Batch>,
        admission: Admission,
    ) -> Result<(), IngestError> {
        let admission = Arc::new(admission);
        // Either every shard has room for its batch or none gets one.
        let (mut places, mut acks) = (Vec::new(), Vec::new());
        for (shard, batch) in batches.into_iter().enumerate().filter(|(_, batch)| !batch.is_empty()) {
            let place = self.shards[shard].try_reserve().map_err(|refused| match refused {
                mpsc::error::TrySendError::Full(()) => {
                    IngestError::Overloaded { limit: self.options.queue, key: "ingest.queue" }
                }
                mpsc::error::TrySendError::Closed(()) => IngestError::Stopping,
            })?;
            places.push((place, batch));
        }
        for (place, batch) in places {
            let (ack, acked) = oneshot::channel();
            let submission = Submission { database: database.clone(), batch, ack, admission: admission.clone() };
            place.send(Message::Submit(submission));
            acks.push(acked);
        }
        drop(admission);
        let all = async {
            for acked in acks {
                acked.await.map_err(|_| IngestError::Stopping)??;
            }
            Ok(())
        };
        let timeout = self.options.ack_timeout;
        tokio::time::timeout(timeout, all).await.unwrap_or(Err(IngestError::Timeout(timeout)))
    }

    /// The database of that name, created if there is none yet.
    ///
    /// # Errors
    /// A name that cannot be one, one too many, or a store that does not answer.
    pub async fn create_database(&self, name: &str) -> Result<(), IngestError> {
        let database = self.database(name).await?;
        self.noted(self.store.create_database(&database.name).await)?;
        Ok(())
    }

    async fn database(&self, name: &str) -> Result<Arc<Database>, IngestError> {
        if let Some(database) = self.catalog.database(name) {
            return Ok(database);
        }
        check_database_name(name)?;
        let stored = self.noted(self.store.databases().await)?;
        let limit = self.options.databases;
        let too_many = || IngestError::TooManyDatabases { name: name.to_owned(), limit };
        self.catalog.add_database(name, &stored, limit).ok_or_else(too_many)
    }

    /// Brings sensors' documents, as read from the store, up to what this instance has stored
    /// since they were last written.
    ///
    /// # Errors
    /// When readings of theirs must be read and the store does not answer.
    pub async fn refresh(
        &self,
        database: &str,
        documents: Vec<SensorDocument>,
    ) -> Result<Vec<SensorDocument>, IngestError> {
        let mut documents = documents;
        for document in &mut documents {
            outliers::expire(document, shard::now_ns(), self.options.outlier_ttl_ns());
        }
        let Some(database) = self.catalog.database(database) else { return Ok(documents) };
        let mut by_shard: Vec<Vec<(usize, u32, SensorDocument)>> = vec![Vec::new(); self.shards.len()];
        let mut fresh: Vec<Option<SensorDocument>> = Vec::with_capacity(documents.len());
        for (place, document) in documents.into_iter().enumerate() {
            match self.catalog.sensor(&database, &document.sensor.key) {
                Some(known) => {
                    by_shard[known.shard].push((place, known.id, document));
                    fresh.push(None);
                }
                None => fresh.push(Some(document)),
            }
        }
        for (shard, documents) in by_shard.into_iter().enumerate().filter(|(_, documents)| !documents.is_empty()) {
            let (reply, answer) = oneshot::channel();
            let message = Message::Refresh { database: database.clone(), documents, reply };
            let refreshed = async {
                self.shards[shard].send(message).await.map_err(|_| IngestError::Stopping)?;
                Ok::<_, IngestError>(answer.await.map_err(|_| IngestError::Stopping)??)
            };
            let timeout = self.options.ack_timeout;
            let refreshed = tokio::time::timeout(timeout, refreshed).await;
            for (place, document) in refreshed.map_err(|_| IngestError::Timeout(timeout))?? {
                fresh[place] = Some(document);
            }
        }
        Ok(fresh.into_iter().flatten().collect())
    }

    /// Counts and logs a failure of the store that a request ends with.
    fn noted<T>(&self, result: Result<T, StorageError>) -> Result<T, StorageError> {
        result.inspect_err(|error| {
            self.metrics.store_error(error.class());
            tracing::warn!(%error, "a write could not begin; its sender was told to retry");
        })
    }
}

/// A name for this process among all that ever write to the store: the standard library seeds
/// every hasher at random.
fn instance_name() -> Arc<str> {
    use std::hash::{BuildHasher, Hasher};
    let random = std::collections::hash_map::RandomState::new().build_hasher().finish();
    Arc::from(format!("{random:016x}"))
}

/// Whether a database may have this name.
///
/// # Errors
/// [`IngestError::DatabaseName`] when not.
pub fn check_database_name(name: &str) -> Result<(), IngestError> {
    if name.is_empty() || name.len() > 64 || name.chars().any(char::is_control) {
        return Err(IngestError::DatabaseName { name: name.chars().take(64).collect() });
    }
    Ok(())
}
