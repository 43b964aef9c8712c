//! Dispatch of WAL records to the shards, in WAL order. While there is memory, records are dispatched as soon as they
//! are durable. Otherwise, and after a start, they are replayed from the WAL as fast as the store takes the readings.

pub mod backlog;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use rapidhash::fast::RandomState;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinHandle;

use super::dispatch::backlog::{Backlog, NotedFields};
use super::record::batch::{Batch, DispatchedBatch, index};
use super::record::deletion::{self, KIND_DELETION};
use super::record::meta::{self, KIND_META, MetaChange, MetaRecord};
use super::record::{self, DecodedRecord, RecordError};
use super::shard::ShardMessage;
use super::shard::pending::PendingDeletion;
use crate::blocking;
use crate::bucket::Meta;
use crate::catalog::deletion::{Deletion, Scope};
use crate::catalog::deletions::DeletedSensors;
use crate::catalog::lookup::SensorLookup;
use crate::catalog::{Catalog, Database, KnownSensor};
use crate::faults;
use crate::members::marks::Marks;
use crate::members::positions::{LoggedRequest, RequestGuards, WalPositions};
use crate::reading::{Hour, Sensor, Value};
use crate::wal::{DiskError, Record, Sequence, Wal, WalReader};

/// Maximum number of records per chunk that is read from the WAL.
const CHUNK_RECORDS_MAX: usize = 256;
/// The size at which a chunk is complete. The last record may exceed it.
const CHUNK_BYTES: usize = 256 << 10;
/// The delay after a failed read of the WAL.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// A known sensor and a change of its metadata.
pub type KnownChange = (Arc<KnownSensor>, MetaChange);

/// Passes logged batches to the shards. The shards' inboxes are bounded by the memory for unflushed readings, which
/// [`WalPositions`] counts.
#[derive(Debug)]
pub struct Dispatch {
    pub positions: Arc<WalPositions>,
    /// Records that are logged and not dispatched yet.
    pub backlog: Arc<Backlog>,
    pub catalog: Arc<Catalog>,
    pub shards: Vec<UnboundedSender<ShardMessage>>,
    /// The deleter's inbox, bounded like the shards' inboxes.
    pub deleter: UnboundedSender<Arc<PendingDeletion>>,
    pub marks: Arc<Marks>,
}

impl Dispatch {
    pub fn shards(&self) -> usize {
        self.shards.len()
    }

    /// Sends a message to a shard. Returns false if the shard has ended.
    pub fn ask(&self, shard: usize, message: ShardMessage) -> bool {
        self.shards[shard].send(message).is_ok()
    }

    /// Makes every shard check for due buckets.
    pub fn wake(&self) {
        for shard in 0..self.shards.len() {
            self.ask(shard, ShardMessage::Wake);
        }
    }

    /// Tells every shard that the current deletion of a database is done.
    pub fn resume(&self, database: &str) {
        for shard in 0..self.shards.len() {
            self.ask(shard, ShardMessage::Deleted(database.into()));
        }
    }

    /// Dispatches a request that has just become durable, or leaves it to the replay. Called in WAL order.
    pub fn dispatch_logged(&self, logged: LoggedRequest, database: &Arc<Database>, batches: Vec<Batch>) {
        faults::point("before_dispatch");
        let is_deleted = |batch: &Batch| batch.sensors.iter().any(|known| known.is_superseded());
        // If a sensor was deleted during admission, the replay looks it up again.
        let is_current = || !database.is_superseded() && !batches.iter().any(is_deleted);
        match self.positions.note_logged(logged, is_current) {
            Some(guards) => self.send_batches(&guards, database, batches),
            // This precedes the ack, so that queries after the ack find the readings or wait for them.
            None => self.note_backlog(logged.sequence, database, &batches),
        }
        faults::point("after_dispatch");
    }

    /// Dispatches a deletion that has just become durable, with its targets. Called in WAL order.
    pub fn deletion_logged(&self, logged: LoggedRequest, deletion: Deletion, targets: DeletedSensors) {
        faults::point("before_dispatch");
        // If a sensor was added since the lookup, the replay looks the targets up again.
        match self.positions.note_logged(logged, || self.catalog.begin_deletion(&deletion, &targets)) {
            Some(guards) => self.send_deletion(guards, deletion, targets),
            None => self.backlog.note_change(&deletion.database, logged.sequence),
        }
        faults::point("after_dispatch");
    }

    /// Dispatches metadata changes that have just become durable. Called in WAL order.
    pub fn meta_logged(&self, logged: LoggedRequest, database: &Arc<Database>, changes: Vec<KnownChange>) {
        faults::point("before_dispatch");
        // If a sensor was deleted meanwhile, the replay looks it up again.
        let is_current = || !database.is_superseded() && !changes.iter().any(|(known, _)| known.is_superseded());
        match self.positions.note_logged(logged, is_current) {
            Some(guards) => self.send_meta(&guards, database, changes),
            None => self.backlog.note_change(&database.name, logged.sequence),
        }
        faults::point("after_dispatch");
    }

    fn send_meta(&self, guards: &RequestGuards, database: &Arc<Database>, changes: Vec<KnownChange>) {
        let mut by_shard: Vec<Vec<(Arc<KnownSensor>, Meta)>> = vec![Vec::new(); self.shards.len()];
        for (known, change) in changes {
            let change = change.to_meta(guards.pending_ack.sequence());
            self.catalog.note_meta(database, &known, &change);
            by_shard[known.shard].push((known, change));
        }
        for (shard, changes) in by_shard.into_iter().enumerate().filter(|(_, changes)| !changes.is_empty()) {
            self.ask(shard, ShardMessage::Meta { database: database.clone(), changes, guards: guards.clone() });
        }
    }

    /// Sets a mark that has just become durable. Called in WAL order.
    pub fn mark_logged(&self, logged: LoggedRequest) {
        // If there is no memory for it, the replay reads it from the WAL.
        if let Some(guards) = self.positions.note_logged(logged, || true) {
            self.marks.set(logged.sequence, guards.pending_ack.pin());
        }
    }

    fn note_backlog(&self, sequence: Sequence, database: &Database, batches: &[Batch]) {
        let mut note = self.backlog.begin_note(&database.name, sequence);
        for batch in batches {
            for (sensor, hours) in batch.hours() {
                let Some(known) = batch.sensors.get(sensor as usize) else { continue };
                let fields = known.fields();
                note.add_sensor(&known.sensor.key, hours, NotedFields::Known(&fields), || known.sensor.clone());
            }
        }
        if note.finish() {
            self.catalog.note_news();
        }
    }

    /// Returns true if readings of these sensors in these hours are logged and not dispatched yet.
    pub fn is_behind(&self, database: &str, sensors: &[&str], hours: &Range<Hour>) -> bool {
        !self.positions.is_live() && self.backlog.has(database, sensors, hours)
    }

    /// As [`Dispatch::is_behind`], for all `wanted` sensors and all hours.
    pub fn is_any_behind(&self, database: &str, wanted: impl Fn(&str) -> bool) -> bool {
        !self.positions.is_live() && self.backlog.has_any(database, wanted)
    }

    /// Returns true if the sensors of a database are not all known yet, or with `None` the databases.
    pub fn is_unlisted(&self, database: Option<&str>) -> bool {
        !self.positions.is_live() && self.backlog.is_unlisted(database)
    }

    fn send_deletion(&self, guards: RequestGuards, deletion: Deletion, targets: DeletedSensors) {
        let mark = match &deletion.scope {
            Scope::Cells { mark, .. } => self.marks.get(*mark),
            _ => None,
        };
        let pending = Arc::new(PendingDeletion::new(deletion, targets, guards, mark));
        for shard in 0..self.shards.len() {
            self.ask(shard, ShardMessage::Delete(pending.clone()));
        }
        // If this fails, the process is ending, and the next start carries out the deletion.
        let _ = self.deleter.send(pending);
    }

    fn send_batches(&self, guards: &RequestGuards, database: &Arc<Database>, batches: Vec<Batch>) {
        for (shard, batch) in batches.into_iter().enumerate().filter(|(_, batch)| !batch.is_empty()) {
            batch.sensors.iter().for_each(|known| database.note_unflushed(known, true));
            let dispatched = DispatchedBatch {
                database: database.clone(),
                batch,
                pending_ack: guards.pending_ack.clone(),
                _queued: guards.queued.clone(),
            };
            // If the shard has ended, the next start replays the readings.
            self.ask(shard, ShardMessage::Dispatch(dispatched));
        }
    }
}

/// Replays the WAL whenever the shards are behind.
pub struct Replay {
    pub dispatch: Arc<Dispatch>,
    pub log: Arc<Wal>,
    /// The last record at the start. Readings up to it count as replayed.
    pub last_at_start: Sequence,
    /// Adds the sensors of records to the catalog.
    pub lookup: SensorLookup,
}

impl Replay {
    /// Runs until the task is aborted. Stops for good at a record that this version cannot read, because no later
    /// record may overtake it. The WAL still accepts records.
    pub async fn run(self) {
        loop {
            let start = self.dispatch.positions.wait_until_behind().await;
            if let Err(error) = self.catch_up(start).await {
                tracing::error!(%error, "replay stopped at an unreadable WAL record; all records from it on stay in the WAL; start the version that wrote it, or a newer one");
                self.dispatch.positions.block(error.to_string());
                return;
            }
        }
    }

    /// Dispatches the records from `start` on, until the shards have everything that is logged.
    async fn catch_up(&self, start: Sequence) -> Result<(), RecordError> {
        let started = std::time::Instant::now();
        let mut next = read_chunk(self.log.reader(start), DecodedPayload::decode);
        let mut records = 0;
        let mut bytes = 0;
        loop {
            let Chunk { reader, records: read } = await_chunk(next).await;
            let chunk = match read {
                Ok(chunk) => chunk,
                Err(error) => {
                    tracing::warn!(%error, "WAL read failed; retrying");
                    tokio::time::sleep(RETRY_DELAY).await;
                    next = read_chunk(reader, DecodedPayload::decode);
                    continue;
                }
            };
            if chunk.is_empty() && self.dispatch.positions.try_go_live(reader.position()) {
                self.dispatch.backlog.forget_dispatched(reader.position().saturating_sub(1));
                self.dispatch.marks.end_through(self.last_at_start);
                let seconds = started.elapsed().as_secs_f64();
                tracing::info!(records, bytes, seconds, "WAL backlog replayed");
                return Ok(());
            }
            // One chunk is read ahead and decoded while this one is dispatched.
            next = read_chunk(reader, DecodedPayload::decode);
            for (record, decoded) in chunk {
                self.dispatch.positions.wait_for_room().await;
                faults::halt_at("replay").await;
                records += 1;
                bytes += record.payload.len();
                let decoded = decoded?;
                faults::point("during_replay");
                match decoded {
                    DecodedPayload::Readings(request) => self.dispatch_readings(&record, request).await?,
                    DecodedPayload::Meta(request) => self.dispatch_meta(&record, request).await?,
                    DecodedPayload::Deletion(deletion) => self.dispatch_deletion(&record, deletion),
                }
                self.dispatch.backlog.note_dispatched(record.sequence);
            }
        }
    }

    async fn dispatch_readings(&self, record: &Record, request: DecodedRecord) -> Result<(), RecordError> {
        let database = self.dispatch.catalog.enlist_database(&request.database);
        self.lookup.enlist(&database, &request.sensors).await;
        let batches = batches(&self.dispatch.catalog, &database, &request, self.dispatch.shards.len())?;
        let guards = self.read_back(record, request.rows.len() as u64, memory(&request), request.received);
        self.dispatch.send_batches(&guards, &database, batches);
        Ok(())
    }

    async fn dispatch_meta(&self, record: &Record, request: MetaRecord) -> Result<(), RecordError> {
        let database = self.dispatch.catalog.enlist_database(&request.database);
        let sensors: Vec<Sensor> = request.changes.iter().map(|change| change.sensor.clone()).collect();
        self.lookup.enlist(&database, &sensors).await;
        let known = |change: MetaChange| match self.dispatch.catalog.sensor(&database, &change.sensor.key) {
            Some(known) => Ok((known, change)),
            None => Err(RecordError::Unnumbered { name: change.sensor.key.to_string() }),
        };
        let changes = request.changes.into_iter().map(known).collect::<Result<_, _>>()?;
        let guards = self.read_back(record, 0, record.payload.len(), request.received);
        self.dispatch.send_meta(&guards, &database, changes);
        Ok(())
    }

    fn dispatch_deletion(&self, record: &Record, deletion: Deletion) {
        let guards = self.read_back(record, 0, record.payload.len(), deletion.received);
        if deletion.scope == Scope::Mark {
            self.dispatch.marks.set(record.sequence, guards.pending_ack.pin());
            return;
        }
        let targets = self.dispatch.catalog.begin_replayed_deletion(&deletion);
        self.dispatch.send_deletion(guards, deletion, targets);
    }

    /// Tracks a record that is read from the WAL.
    fn read_back(&self, record: &Record, readings: u64, memory: usize, received: i64) -> RequestGuards {
        let logged = LoggedRequest { sequence: record.sequence, readings, memory, received };
        self.dispatch.positions.read_back(logged, record.sequence <= self.last_at_start)
    }
}

/// The decoded payload of a record.
enum DecodedPayload {
    Readings(DecodedRecord),
    Meta(MetaRecord),
    Deletion(Deletion),
}

impl DecodedPayload {
    fn decode(record: &Record) -> Result<Self, RecordError> {
        match record.kind {
            KIND_DELETION => deletion::decode(record.kind, &record.payload).map(Self::Deletion),
            KIND_META => meta::decode(record.kind, &record.payload).map(Self::Meta),
            _ => record::decode(record.kind, &record.payload).map(Self::Readings),
        }
    }
}

/// A chunk of records, each with what was made of it.
struct Chunk<T> {
    /// The reader, behind the last record.
    reader: WalReader,
    /// The records, or the error of the first one. Empty at the end of the WAL.
    records: Result<Vec<(Record, T)>, DiskError>,
}

/// Reads a chunk of records on a blocking thread, and passes each to `take` there.
fn read_chunk<T: Send + 'static>(
    mut reader: WalReader,
    take: impl Fn(&Record) -> T + Send + 'static,
) -> JoinHandle<Chunk<T>> {
    blocking::spawn(move || {
        let mut records = Vec::new();
        let mut bytes = 0;
        while records.len() < CHUNK_RECORDS_MAX && bytes < CHUNK_BYTES {
            match reader.next() {
                Ok(Some(record)) => {
                    bytes += record.payload.len();
                    let taken = take(&record);
                    records.push((record, taken));
                }
                Ok(None) => break,
                // Return the records before the error. The next read returns the error again.
                Err(_) if !records.is_empty() => break,
                Err(error) => return Chunk { reader, records: Err(error) },
            }
        }
        Chunk { reader, records: Ok(records) }
    })
}

/// Waits for a chunk.
async fn await_chunk<T>(reading: JoinHandle<Chunk<T>>) -> Chunk<T> {
    match reading.await {
        Ok(chunk) => chunk,
        Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
    }
}

/// Makes the same batches as admission did for a request, with this process's ids. Returns an error unless all readings
/// have one, because readings left out here would count as stored.
pub(crate) fn batches(
    catalog: &Catalog,
    database: &Database,
    request: &DecodedRecord,
    shards: usize,
) -> Result<Vec<Batch>, RecordError> {
    let unnumbered = |name: &str| RecordError::Unnumbered { name: name.to_owned() };
    let mut batches: Vec<Batch> = (0..shards).map(|_| Batch::default()).collect();
    let known: Vec<Option<Arc<KnownSensor>>> =
        request.sensors.iter().map(|sensor| catalog.sensor(database, &sensor.key)).collect();
    let mut places: Vec<Option<u32>> = vec![None; known.len()];
    let mut fields: HashMap<(usize, usize), Option<u16>, RandomState> = HashMap::default();
    for row in &request.rows {
        let Some(known) = &known[row.sensor] else { return Err(unnumbered(&request.sensors[row.sensor].key)) };
        let batch = &mut batches[known.shard];
        let start = batch.cells();
        for (name, value) in &row.cells {
            let field = fields.entry((row.sensor, *name)).or_insert_with(|| {
                let grown = known.add_field(&request.names[*name], value.family(), usize::from(u16::MAX))?;
                grown.find(&request.names[*name], usize::MAX).and_then(|field| u16::try_from(field).ok())
            });
            batch.push_cell(field.ok_or_else(|| unnumbered(&request.names[*name]))?, value.clone());
        }
        let sensor = *places[row.sensor].get_or_insert_with(|| {
            known.note_reading(request.received);
            batch.sensors.push(known.clone());
            index(batch.sensors.len() - 1)
        });
        batch.push_row(sensor, row.time, start);
    }
    Ok(batches)
}

/// Returns the memory of a request's batches in bytes, as admission counts it.
pub(crate) fn memory(request: &DecodedRecord) -> usize {
    let text = |value: &Value| if let Value::String(text) = value { text.len() } else { 0 };
    let cell = |(_, value): &(usize, Value)| size_of::<(u16, Value)>() + text(value);
    request.rows.iter().map(|row| Batch::ROW_BYTES + row.cells.iter().map(cell).sum::<usize>()).sum()
}
