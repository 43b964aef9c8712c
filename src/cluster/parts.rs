//! Writes: the receiver splits them by owner, and the owner logs what others send it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use hourglass_members::{Ack, AppendId, AppendOutcome, Batch as Piece, ClientAnswer, Event, FolderId, partition};

use super::Cluster;
use super::driver::{Input, boot_ms, outcome};
use crate::bucket::{SensorDocument, StorageError, UnflushedError};
use crate::buffer::dispatch::{batches, memory};
use crate::buffer::record::batch::{Batch, index, stored_bytes};
use crate::buffer::record::{self, KIND_READINGS};
use crate::catalog::{Claims, Database, KnownSensor};
use crate::config::AckLevel;
use crate::ingest::IngestError;
use crate::ingest::admission::owners::{OnPage, OwnedReadings, Owners, QueuedReadings, SharedClaims};
use crate::reading::Stamp;

/// Time from the last byte of a request to its answer, unless it waits for the store.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
/// Bytes of records in one part, except for a single reading that is larger.
const PART_BYTES: usize = 1 << 20;

/// What this instance needs to log a piece of a write itself.
pub struct OwnPiece(Option<QueuedReadings>);

impl OwnPiece {
    /// Returns the readings; a piece is logged here at most once.
    pub(super) fn take(&mut self) -> Option<QueuedReadings> {
        self.0.take()
    }
}

/// Readings of a request for one owner.
struct Share {
    /// Tells it from other shares of the request.
    number: u64,
    /// One of its partitions.
    partition: u16,
    /// By shard.
    batches: Vec<Batch>,
    /// About the size of its record.
    bytes: usize,
}

impl Cluster {
    /// Divides batches, of which there is one per shard, by owner, and the share of each owner into parts.
    fn divide(&self, database: &str, batches: &[Batch]) -> Vec<Share> {
        let owners = self.owners.read().clone();
        let mut open: BTreeMap<Option<FolderId>, Share> = BTreeMap::new();
        let mut shares = Vec::new();
        let mut numbers = 1..;
        for (shard, batch) in batches.iter().enumerate() {
            let partition_of = |sensor: &Arc<KnownSensor>| partition(database, sensor.sensor.key.as_bytes());
            let partitions: Vec<u16> = batch.sensors.iter().map(partition_of).collect();
            // The number of the share that has the sensor, and the sensor's index in it.
            let mut places: Vec<(u64, u32)> = vec![(0, 0); partitions.len()];
            for reading in batch.readings() {
                let sensor = reading.sensor as usize;
                let partition = partitions[sensor];
                let owner = owners.get(usize::from(partition)).copied().flatten();
                let share = open.entry(owner).or_insert_with(|| Share {
                    number: numbers.next().unwrap_or_default(),
                    partition,
                    batches: vec![Batch::default(); batches.len()],
                    bytes: 0,
                });
                let target = &mut share.batches[shard];
                if places[sensor].0 != share.number {
                    places[sensor] = (share.number, index(target.sensors.len()));
                    target.sensors.push(batch.sensors[sensor].clone());
                }
                let start = target.cells();
                reading.cells.iter().for_each(|(field, value)| target.push_cell(*field, value.clone()));
                target.push_row(places[sensor].1, reading.time, start);
                share.bytes += stored_bytes(reading.cells);
                if share.bytes >= PART_BYTES {
                    shares.extend(open.remove(&owner));
                }
            }
        }
        shares.extend(open.into_values());
        shares
    }

    /// Logs readings in this instance's WAL, and reports the outcome to the protocol.
    pub(super) fn log(
        self: &Arc<Self>,
        append: AppendId,
        mut readings: QueuedReadings,
        above: Stamp,
        in_time: impl Fn(Stamp) -> bool + Send + 'static,
        reports_stored: bool,
    ) {
        let (waiter, stored) = oneshot::channel::<Result<(), StorageError>>();
        readings.waiter = reports_stored.then_some(waiter);
        let cluster = self.clone();
        let done = move |appended| cluster.note_appended(append, outcome(appended));
        let Some(submitter) = self.submitter.upgrade() else {
            return self.note_appended(append, AppendOutcome::Refused);
        };
        if let Err(error) = submitter.queue_readings(readings, above, in_time, done) {
            return self.note_appended(append, outcome(Err(error)));
        }
        if reports_stored {
            submitter.dispatch.wake();
            let cluster = self.clone();
            tokio::spawn(async move {
                if matches!(stored.await, Ok(Ok(()))) {
                    cluster.send(Event::Stored { append });
                }
            });
        }
    }

    /// Takes a part of another instance, which has validated it.
    pub async fn take_part(
        self: &Arc<Self>,
        append: AppendId,
        payload: &[u8],
        in_time: impl Fn(Stamp) -> bool + Send + 'static,
        reports_stored: bool,
    ) {
        match self.decode_part(payload).await {
            Ok(readings) => self.log(append, readings, 0, in_time, reports_stored),
            Err(error) => {
                tracing::warn!(%error, "a part of another instance cannot be taken");
                self.note_appended(append, AppendOutcome::Refused);
            }
        }
    }

    async fn decode_part(&self, payload: &[u8]) -> Result<QueuedReadings, String> {
        let submitter = self.submitter.upgrade().ok_or("this instance stops")?;
        submitter.member.check().map_err(|error| error.to_string())?;
        let request = record::decode(KIND_READINGS, payload).map_err(|error| error.to_string())?;
        let dispatch = &submitter.dispatch;
        let database = dispatch.catalog.enlist_database(&request.database);
        self.lookup.enlist(&database, &request.sensors).await;
        let batches = batches(&dispatch.catalog, &database, &request, dispatch.shards());
        Ok(QueuedReadings {
            database,
            batches: batches.map_err(|error| error.to_string())?,
            record: payload.to_vec(),
            received: request.received,
            memory: memory(&request),
            claims: SharedClaims::default(),
            waiter: None,
        })
    }

    fn piece(database: &Arc<Database>, received: i64, claims: &SharedClaims, share: Share) -> (Piece, OwnPiece) {
        let Share { partition, batches, .. } = share;
        let record = record::encode(&database.name, received, &batches);
        let piece = Piece { partition, records: record.as_slice().into() };
        let memory = batches.iter().map(Batch::memory).sum();
        let database = database.clone();
        let claims = claims.clone();
        (piece, OwnPiece(Some(QueuedReadings { database, batches, record, received, memory, claims, waiter: None })))
    }
}

#[async_trait]
impl Owners for Cluster {
    fn are_others(&self, database: &str, batches: &[Batch]) -> bool {
        let owners = self.owners.read().clone();
        let is_other = |partition: u16| {
            owners.get(usize::from(partition)).copied().flatten().is_some_and(|owner| owner != self.own.folder)
        };
        if !(0..owners.len()).any(|partition| owners[partition].is_some_and(|owner| owner != self.own.folder)) {
            return false;
        }
        let keys = batches.iter().flat_map(|batch| &batch.sensors).map(|known| known.sensor.key.as_bytes());
        keys.map(|key| partition(database, key)).any(is_other)
    }

    async fn write(&self, readings: OwnedReadings, level: AckLevel) -> Result<(), IngestError> {
        let OwnedReadings { database, batches, claims, received, mut admission, guard } = readings;
        let read_boot_ms = boot_ms();
        let claims: SharedClaims = Arc::new(Mutex::new(Some(claims)));
        let shares = self.divide(&database.name, &batches);
        drop(batches);
        let (pieces, own): (Vec<Piece>, Vec<OwnPiece>) =
            shares.into_iter().map(|share| Self::piece(&database, received, &claims, share)).unzip();
        // The records are in memory twice: for a repeat, and as frames.
        admission.grow(2 * pieces.iter().map(|piece| piece.records.len()).sum::<usize>())?;
        let (reply, answer) = oneshot::channel();
        let ack = if level == AckLevel::Store { Ack::Stored } else { Ack::Logged };
        self.input(Input::Write { pieces, own, read_boot_ms, ack, reply });
        // In a task, because the claims, the guard and the memory last until the end even if the client disconnects.
        let answered = tokio::spawn(async move {
            let answer = answer.await;
            if matches!(answer, Ok(ClientAnswer::Acked { .. })) {
                let claims = claims.lock().take();
                claims.into_iter().for_each(Claims::make_firm);
            }
            drop((guard, admission));
            answer
        });
        match answered.await {
            Ok(Ok(ClientAnswer::Acked { .. })) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(IngestError::Stopping),
            Ok(Ok(_)) => {
                Err(IngestError::Timeout { waited: REQUEST_TIMEOUT, key: "the deadline of writes in a cluster" })
            }
        }
    }

    async fn complete(
        &self,
        database: &str,
        documents: &mut BTreeMap<Box<str>, SensorDocument>,
        on_page: Option<OnPage<'_>>,
    ) -> Result<(), UnflushedError> {
        self.complete_documents(database, documents, on_page).await
    }

    async fn flush_others(&self, timeout: Duration) -> bool {
        self.flush_all(timeout).await
    }

    fn write_condition(&self) -> Box<dyn Fn(Stamp) -> bool + Send> {
        let end = boot_ms() + u64::try_from(REQUEST_TIMEOUT.as_millis()).unwrap_or(u64::MAX);
        Box::new(move |_| boot_ms() < end)
    }
}
