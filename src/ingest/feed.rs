//! From the log to the shards, in log order: at once as long as there is memory, else, and after a
//! start, by reading the log back at the pace at which the store takes it.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;

use super::backlog::{Backlog, Named};
use super::batch::{Batch, Fed, index};
use super::catalog::{Catalog, Database, Doomed, KnownSensor};
use super::deletion::{self, Deletion, KIND_DELETION, Pending};
use super::learn::Learner;
use super::progress::{Logged, Progress, Tracked};
use super::record::{self, RecordError, Request};
use super::shard::Message;
use crate::faults::{self, Bug};
use crate::log::{Log, ReadError, Reader, Record, Sequence};
use crate::reading::{Hour, Value};

/// How many records are read back at a time, and most of their bytes together but for the last.
const LOT: usize = 256;
const LOT_BYTES: usize = 2 << 20;
/// How long after the log could not be read it is read again.
const RETRY: Duration = Duration::from_secs(1);

/// Gives logged batches to the shards. What waits before a shard is bounded by the memory for
/// unflushed readings, which [`Progress`] counts.
#[derive(Debug)]
pub struct Feed {
    /// How far everything has come.
    pub progress: Arc<Progress>,
    /// What is logged and was not given to the shards yet.
    pub backlog: Arc<Backlog>,
    catalog: Arc<Catalog>,
    shards: Vec<UnboundedSender<Message>>,
    /// Bounded like what waits before a shard.
    deleter: UnboundedSender<Arc<Pending>>,
}

impl Feed {
    /// A feed of these shards, and of whoever carries deletions out.
    pub fn new(
        (progress, backlog): (Arc<Progress>, Arc<Backlog>),
        catalog: Arc<Catalog>,
        shards: Vec<UnboundedSender<Message>>,
        deleter: UnboundedSender<Arc<Pending>>,
    ) -> Self {
        Self { progress, backlog, catalog, shards, deleter }
    }

    /// How many shards there are.
    pub fn shards(&self) -> usize {
        self.shards.len()
    }

    /// Asks a shard something; `false` when it has ended.
    pub fn ask(&self, shard: usize, message: Message) -> bool {
        self.shards[shard].send(message).is_ok()
    }

    /// Has every shard look again at what is due.
    pub fn wake(&self) {
        for shard in 0..self.shards.len() {
            self.ask(shard, Message::Wake);
        }
    }

    /// Tells every shard that the deletion of this database that it met first is done.
    pub fn resume(&self, database: &str) {
        for shard in 0..self.shards.len() {
            self.ask(shard, Message::Deleted(database.into()));
        }
    }

    /// Takes a request that has just become durable. Called in log order.
    pub fn logged(&self, logged: Logged, database: &Arc<Database>, batches: Vec<Batch>) {
        faults::point("before_feed");
        let is_deleted = |batch: &Batch| batch.sensors.iter().any(|known| known.is_superseded());
        // Sensors that were deleted while it was judged are looked up anew.
        let is_current = || !database.is_superseded() && !batches.iter().any(is_deleted);
        match self.progress.logged_if(logged, is_current) {
            Some(tracked) => self.give(&tracked, database, batches),
            // Before anybody is told that it is logged, so that whoever was told finds it or waits for it.
            None => self.note_backlog(logged.sequence, database, &batches),
        }
        faults::point("after_feed");
    }

    /// Takes a deletion that has just become durable, and what it was about when somebody looked. Called in log order.
    pub fn deletion_logged(&self, logged: Logged, deletion: Deletion, doomed: Doomed) {
        faults::point("before_feed");
        // Where sensors became known meanwhile it is looked up anew, when it is read back.
        match self.progress.logged_if(logged, || self.catalog.begin_deletion(&deletion, &doomed)) {
            Some(tracked) => self.delete(tracked, deletion, doomed),
            None => self.backlog.note_deletion(&deletion.database, logged.sequence),
        }
        faults::point("after_feed");
    }

    fn note_backlog(&self, sequence: Sequence, database: &Database, batches: &[Batch]) {
        let mut noting = self.backlog.noting(&database.name, sequence);
        for batch in batches {
            for (sensor, hours) in batch.hours() {
                let Some(known) = batch.sensors.get(sensor as usize) else { continue };
                noting.sensor(&known.sensor.key, hours, Named::Known(&known.fields()), || known.sensor.clone());
            }
        }
        if noting.finish() {
            self.catalog.note_news();
        }
    }

    /// Whether readings of these sensors in these hours are logged and the shards do not have them.
    pub fn is_behind(&self, database: &str, sensors: &[&str], hours: &Range<Hour>) -> bool {
        !self.progress.is_live() && self.backlog.has(database, sensors, hours)
    }

    /// The same of any sensor with such a key.
    pub fn is_any_behind(&self, database: &str, wanted: impl Fn(&str) -> bool) -> bool {
        !self.progress.is_live() && self.backlog.has_any(database, wanted)
    }

    /// Whether nobody can tell yet which sensors a database has, or with `None` which databases there are.
    pub fn is_unlisted(&self, database: Option<&str>) -> bool {
        !self.progress.is_live() && self.backlog.is_unlisted(database)
    }

    fn delete(&self, tracked: Tracked, deletion: Deletion, doomed: Doomed) {
        let pending = Arc::new(Pending::new(deletion, doomed, tracked));
        for shard in 0..self.shards.len() {
            self.ask(shard, Message::Delete(pending.clone()));
        }
        // Whoever carries it out ends only with the process; the next start does it then.
        let _ = self.deleter.send(pending);
    }

    fn give(&self, (ticket, queued): &Tracked, database: &Arc<Database>, batches: Vec<Batch>) {
        for (shard, batch) in batches.into_iter().enumerate().filter(|(_, batch)| !batch.is_empty()) {
            batch.sensors.iter().for_each(|known| known.note_waiting(database, true));
            let fed = Fed { database: database.clone(), batch, ticket: ticket.clone(), _queued: queued.clone() };
            // A shard that has ended leaves its readings to the next start.
            self.ask(shard, Message::Feed(fed));
        }
    }
}

/// Reads the log back whenever the shards are behind. Runs until it is aborted.
pub struct Feeder {
    /// Where to.
    pub feed: Arc<Feed>,
    /// Where from.
    pub log: Arc<Log>,
    /// The last record that was there at the start: up to it everything is replayed.
    pub last_at_start: Sequence,
    /// Who is met in the records.
    pub catalog: Arc<Catalog>,
    /// Asks the store about sensors.
    pub learner: Learner,
}

impl Feeder {
    /// Feeds until it is aborted. A record of another version stops the feeding for good, since
    /// nothing behind it may overtake it; the log goes on.
    pub async fn run(self) {
        loop {
            let from = self.feed.progress.behind().await;
            if let Err(error) = self.catch_up(from).await {
                tracing::error!(%error, "the log cannot be fed; what is in it stays there until a version starts that can read it");
                self.feed.progress.block(error.to_string());
                return;
            }
        }
    }

    async fn catch_up(&self, from: Sequence) -> Result<(), RecordError> {
        let started = std::time::Instant::now();
        let mut reader = self.log.reader(from);
        let (mut records, mut bytes) = (0, 0);
        loop {
            let (back, lot) = read_lot(reader).await;
            reader = back;
            let lot = match lot {
                Ok(lot) => lot,
                Err(error) => {
                    tracing::warn!(%error, "the log cannot be read at present; it is tried again");
                    tokio::time::sleep(RETRY).await;
                    continue;
                }
            };
            let skipped = usize::from(records == 0 && faults::has(Bug::ReplaySkipsOne));
            for record in lot.into_iter().skip(skipped) {
                // Before each of them: what a lot takes once it is decoded is many times its bytes.
                self.feed.progress.room().await;
                faults::halt_at("replay").await;
                records += 1;
                bytes += record.payload.len();
                self.feed_record(&record).await?;
                self.feed.backlog.give(record.sequence);
            }
            if self.feed.progress.try_go_live(reader.position()) {
                self.feed.backlog.give_all(reader.position().saturating_sub(1));
                let seconds = started.elapsed().as_secs_f64();
                tracing::info!(records, bytes, seconds, "the backlog of the log is fed");
                return Ok(());
            }
        }
    }

    async fn feed_record(&self, record: &Record) -> Result<(), RecordError> {
        if record.kind == KIND_DELETION {
            return self.feed_deletion(record);
        }
        let mut request = record::decode(record.kind, &record.payload)?;
        faults::point("during_replay");
        let database = self.catalog.enlist_database(&request.database);
        self.learner.enlist(&database, &request.sensors).await;
        let replayed = record.sequence <= self.last_at_start;
        let readings = request.rows.len() as u64;
        if faults::has(Bug::RestampAtReplay) {
            request.rows.iter_mut().for_each(|row| row.time += 1);
        }
        let logged =
            Logged { sequence: record.sequence, readings, memory: memory(&request), received: request.received };
        let batches = batches(&self.catalog, &database, &request, self.feed.shards.len())?;
        let tracked = self.feed.progress.read_back(logged, replayed);
        self.feed.give(&tracked, &database, batches);
        Ok(())
    }

    fn feed_deletion(&self, record: &Record) -> Result<(), RecordError> {
        let deletion = deletion::decode(record.kind, &record.payload)?;
        faults::point("during_replay");
        let memory = record.payload.len();
        let logged = Logged { sequence: record.sequence, readings: 0, memory, received: deletion.received };
        let tracked = self.feed.progress.read_back(logged, record.sequence <= self.last_at_start);
        let doomed = self.catalog.begin_deletion_read_back(&deletion);
        self.feed.delete(tracked, deletion, doomed);
        Ok(())
    }
}

/// Reads some records, on a thread that may wait for the disk.
async fn read_lot(mut reader: Reader) -> (Reader, Result<Vec<Record>, ReadError>) {
    let read = tokio::task::spawn_blocking(move || {
        let (mut lot, mut bytes) = (Vec::new(), 0);
        while lot.len() < LOT && bytes < LOT_BYTES {
            match reader.next() {
                Ok(Some(record)) => {
                    bytes += record.payload.len();
                    lot.push(record);
                }
                Ok(None) => break,
                // What was read before is fed first; the error comes again.
                Err(_) if !lot.is_empty() => break,
                Err(error) => return (reader, Err(error)),
            }
        }
        (reader, Ok(lot))
    });
    match read.await {
        Ok(read) => read,
        Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
    }
}

/// The batches that the door once made of a request, in this process's numbers: all of it or an error,
/// since what is left out here would count as stored.
fn batches(
    catalog: &Catalog,
    database: &Database,
    request: &Request,
    shards: usize,
) -> Result<Vec<Batch>, RecordError> {
    let unnumbered = |name: &str| RecordError::Unnumbered { name: name.to_owned() };
    let mut batches: Vec<Batch> = (0..shards).map(|_| Batch::default()).collect();
    let known: Vec<Option<Arc<KnownSensor>>> =
        request.sensors.iter().map(|sensor| catalog.sensor(database, &sensor.key)).collect();
    let mut places: Vec<Option<u32>> = vec![None; known.len()];
    let mut fields: HashMap<(usize, usize), Option<u16>> = HashMap::new();
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
            batch.sensors.push(known.clone());
            index(batch.sensors.len() - 1)
        });
        batch.push_row(sensor, row.time, start);
    }
    Ok(batches)
}

/// The memory that a request's batches take, as the door counts it.
fn memory(request: &Request) -> usize {
    let text = |value: &Value| if let Value::String(text) = value { text.len() } else { 0 };
    let cell = |(_, value): &(usize, Value)| size_of::<(u16, Value)>() + text(value);
    request.rows.iter().map(|row| Batch::ROW_BYTES + row.cells.iter().map(cell).sum::<usize>()).sum()
}
