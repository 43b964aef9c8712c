//! Writes documents in few large commands: typed inserts for new documents, raw `update` commands with many
//! compare-and-set statements for existing ones, and transactions for pages that must change together.

use bson::{Document, RawDocumentBuf, doc};
use mongodb::error::Error;
use mongodb::options::{Acknowledgment, WriteConcern};
use mongodb::{ClientSession, Collection, Database};

use super::copies::NewCopies;
use super::kinds::{EXEMPT, with_marks};
use super::outcome::{Rule, exact_updates_outcome, statement, transaction_outcome};
use super::reads::CausalClient;
use super::setup::Collections;
use crate::bucket::WriteKind;
use crate::bucket::store::{PageWrite, WriteOutcome};
use crate::document::{self, BsonWriter};

/// Maximum size of a command's statements in bytes. The server limits commands to 16 MiB; smaller ones share the
/// connections better.
pub const COMMAND_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Maximum number of statements in a command. It limits the number of unknown outcomes if a command fails.
const COMMAND_STATEMENTS_MAX: usize = 1000;

/// The shard key of a page, which an upsert on a sharded cluster must contain.
#[derive(Debug, Clone)]
pub struct ShardKey {
    /// The sensor's key.
    pub sensor: String,
    /// The start of the hour, in milliseconds since the epoch.
    pub start_ms: i64,
}

/// The encoded write of one document.
#[derive(Debug, Clone)]
pub enum MongoWrite {
    /// A document that must not exist yet.
    Insert(RawDocumentBuf),
    /// An update of the document with this `_id` and `rev`.
    Update {
        /// The document's `_id`.
        id: String,
        /// The shard key, if the document is a page.
        shard: Option<ShardKey>,
        /// The expected rev.
        rev: u64,
        /// The update, in BSON.
        update: Vec<u8>,
    },
    /// The removal of the page with this `_id` and `rev`.
    Remove {
        /// The page's `_id`.
        id: String,
        shard: ShardKey,
        /// The expected rev.
        rev: u64,
    },
}

impl MongoWrite {
    /// Estimates the size of the write in a command, in bytes.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Insert(document) => document.as_bytes().len(),
            Self::Update { id, update, .. } => 2 * id.len() + update.len() + 96,
            Self::Remove { id, .. } => 2 * id.len() + 96,
        }
    }
}

/// Returns the document of an insert, or `None` for another write.
pub fn inserted_document(change: MongoWrite) -> Option<RawDocumentBuf> {
    match change {
        MongoWrite::Insert(document) => Some(document),
        MongoWrite::Update { .. } | MongoWrite::Remove { .. } => None,
    }
}

/// Encodes the pending write of a page. A new page gets the copies of its sensor's metadata.
pub fn page_change(write: &PageWrite<'_>, index: usize, copies: &NewCopies) -> MongoWrite {
    let page = &write.bucket.pages()[index];
    let id = || document::page_id(&write.id.sensor.key, write.id.hour, page.number);
    let shard = || ShardKey { sensor: write.id.sensor.key.to_string(), start_ms: write.id.hour.start_ms() };
    let update = match page.write_in_group() {
        WriteKind::Insert => {
            return insertion_with_copies(document::page_document(write.id, page), copies, &write.id.sensor.key);
        }
        WriteKind::Remove => return MongoWrite::Remove { id: id(), shard: shard(), rev: page.rev() },
        WriteKind::Append { start } => document::append_update(page, start),
        WriteKind::Replace => document::replace_update(page),
    };
    MongoWrite::Update { id: id(), shard: Some(shard()), rev: page.rev(), update }
}

/// Creates the insert of a document that this program encoded.
pub fn insertion(document: Vec<u8>) -> MongoWrite {
    // This fails only for a wrong length prefix, and [`BsonWriter`] sets it.
    MongoWrite::Insert(RawDocumentBuf::from_bytes(document).unwrap_or_default())
}

/// As [`insertion`], with the copies for a sensor.
pub fn insertion_with_copies(document: Vec<u8>, copies: &NewCopies, sensor: &str) -> MongoWrite {
    insertion(match copies.get(sensor) {
        Some(copies) => document::with_elements(document, &copies.elements),
        None => document,
    })
}

/// Encodes the pending writes of a group of pages, by collection.
pub fn transaction_writes(collections: &Collections, write: &PageWrite<'_>, copies: &NewCopies) -> TransactionWrites {
    let (buckets, overflow): (Vec<usize>, Vec<usize>) =
        write.group.iter().copied().partition(|index| write.bucket.pages()[*index].number == 0);
    let changes = |indexes: Vec<usize>| indexes.into_iter().map(|index| page_change(write, index, copies)).collect();
    [(collections.buckets.clone(), changes(buckets)), (collections.overflow.clone(), changes(overflow))]
}

/// Splits changes into commands within the limits. Each change comes with the index of its outcome.
pub fn chunks(changes: Vec<(usize, MongoWrite)>) -> Vec<Vec<(usize, MongoWrite)>> {
    let mut chunks: Vec<Vec<(usize, MongoWrite)>> = Vec::new();
    let mut bytes = usize::MAX;
    for (index, change) in changes {
        let is_full = bytes.saturating_add(change.bytes()) > COMMAND_BYTES_MAX
            || chunks.last().is_none_or(|chunk| chunk.len() >= COMMAND_STATEMENTS_MAX);
        if is_full {
            chunks.push(Vec::new());
            bytes = 0;
        }
        bytes += change.bytes();
        if let Some(chunk) = chunks.last_mut() {
            chunk.push((index, change));
        }
    }
    chunks
}

/// Returns the write concern of every write: journaled by a majority.
pub fn durable() -> WriteConcern {
    WriteConcern::builder().w(Acknowledgment::Majority).journal(true).build()
}

/// Sends one unordered insert.
pub async fn insert(
    client: &CausalClient,
    collection: &Collection<RawDocumentBuf>,
    documents: &[RawDocumentBuf],
) -> Result<(), Error> {
    let mut session = client.session().await?;
    let insert = collection.insert_many(documents).ordered(false).write_concern(durable());
    let inserted = insert.session(&mut session).await.map(drop);
    client.note(session.operation_time());
    inserted
}

/// Sends one unordered `update` command.
pub async fn update(
    client: &CausalClient,
    mongo: &Database,
    collection: &str,
    changes: &[MongoWrite],
    mode: UpdateMode,
) -> Result<Document, Error> {
    let reply = mongo.run_raw_command(update_command(collection, changes, mode)?).await?;
    client.note_reply(&reply);
    Ok(reply)
}

/// The mode of a compare-and-set, which decides on the report of a mismatch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpdateMode {
    /// A mismatch is an error of the statement, because it tries to insert.
    Upsert,
    /// A mismatch only lowers the total count.
    Plain,
    /// As `Plain`. The transaction has the write concern.
    InTransaction,
}

/// Builds one unordered raw `update` command with compare-and-set statements.
fn update_command(collection: &str, changes: &[MongoWrite], mode: UpdateMode) -> Result<RawDocumentBuf, Error> {
    let capacity = changes.iter().map(MongoWrite::bytes).sum::<usize>() + 256;
    let mut w = BsonWriter::document(capacity);
    w.text("update", collection);
    w.begin_array("updates");
    let mut index = 0;
    for change in changes {
        let MongoWrite::Update { id, shard, rev, update } = change else { continue };
        w.begin_element(index);
        index += 1;
        w.begin("q");
        w.text("_id", id);
        if let Some(shard) = shard {
            w.text("sensor", &shard.sensor);
            w.date("start", shard.start_ms);
        }
        w.count("rev", *rev);
        w.end();
        w.raw("u", update);
        w.boolean("upsert", mode == UpdateMode::Upsert);
        w.end();
    }
    w.end();
    w.boolean("ordered", false);
    if mode != UpdateMode::InTransaction {
        w.begin("writeConcern");
        w.text("w", "majority");
        w.boolean("j", true);
        w.end();
    }
    Ok(RawDocumentBuf::from_bytes(w.finish())?)
}

/// Removes incomplete documents, which have no `measurement`. An update of a missing page inserts them if the collection has
/// lost its validator.
pub async fn remove_torsos(collection: &Collection<RawDocumentBuf>, changes: &[MongoWrite], reply: &Document) {
    let upserted = reply.get_array("upserted").into_iter().flatten().filter_map(|part| part.as_document());
    let ids: Vec<&String> = upserted
        .filter_map(|part| match changes.get(statement(part)?) {
            Some(MongoWrite::Update { id, .. }) => Some(id),
            _ => None,
        })
        .collect();
    if ids.is_empty() {
        return;
    }
    let filter = doc! { "_id": { "$in": &ids }, "measurement": { "$exists": false } };
    let removed = collection.delete_many(filter).await;
    tracing::error!(
        collection = collection.name(),
        pages = ids.len(),
        removed = removed.is_ok(),
        "the collection has lost its validator; grant collMod and restart to restore it"
    );
}

/// The changes of one transaction: first those in `buckets`, which include page 0, then those in `overflow`.
pub type TransactionWrites = [(Collection<RawDocumentBuf>, Vec<MongoWrite>); 2];

/// The treatment of the pages of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Marks {
    /// The pages are not marked.
    Kept,
    /// All of them are marked as exempt from the schema of their kind. The job `index` removes the mark of those that
    /// conform.
    Exempt,
}

/// Writes all changes in one transaction.
pub async fn transact(
    client: &CausalClient,
    mongo: &Database,
    changes: TransactionWrites,
    marks: Marks,
) -> Result<WriteOutcome, Error> {
    let mut session = client.session().await?;
    session.start_transaction().write_concern(durable()).await?;
    let written = all_changes(&mut session, mongo, changes, marks).await;
    match written {
        Ok(WriteOutcome::Applied) => match session.commit_transaction().await {
            Ok(()) => {
                client.note(session.operation_time());
                Ok(WriteOutcome::Applied)
            }
            Err(error) => Ok(transaction_outcome(&error)),
        },
        other => {
            // The server would abort the transaction at the end of the session; this is only sooner.
            let _ = session.abort_transaction().await;
            Ok(other.unwrap_or_else(|error| transaction_outcome(&error)))
        }
    }
}

/// Sends all changes. The compare-and-set of page 0 comes first: if it does not match, nothing else is sent.
async fn all_changes(
    session: &mut ClientSession,
    mongo: &Database,
    changes: TransactionWrites,
    marks: Marks,
) -> Result<WriteOutcome, Error> {
    for (collection, changes) in changes {
        if marks == Marks::Exempt {
            let id = |change: &MongoWrite| match change {
                MongoWrite::Update { id, .. } => Some(id.clone()),
                MongoWrite::Insert(_) | MongoWrite::Remove { .. } => None,
            };
            let ids: Vec<String> = changes.iter().filter_map(id).collect();
            let update = doc! { "$set": { EXEMPT: true } };
            collection.update_many(doc! { "_id": { "$in": ids } }, update).session(&mut *session).await?;
        }
        let (inserts, rest): (Vec<_>, Vec<_>) =
            changes.into_iter().enumerate().partition(|(_, change)| matches!(change, MongoWrite::Insert(_)));
        let (updates, removes): (Vec<_>, Vec<_>) =
            rest.into_iter().partition(|(_, change)| matches!(change, MongoWrite::Update { .. }));
        for chunk in chunks(updates) {
            let changes: Vec<MongoWrite> = chunk.into_iter().map(|(_, change)| change).collect();
            let command = update_command(collection.name(), &changes, UpdateMode::InTransaction)?;
            let reply = mongo.run_raw_command(command).session(&mut *session).await?;
            match exact_updates_outcome(&reply, changes.len()) {
                WriteOutcome::Applied => {}
                other => return Ok(other),
            }
        }
        for (_, change) in removes {
            if !remove(session, &collection, change).await? {
                return Ok(WriteOutcome::Conflict);
            }
        }
        for chunk in chunks(inserts) {
            let mut documents: Vec<RawDocumentBuf> =
                chunk.into_iter().filter_map(|(_, change)| inserted_document(change)).collect();
            if marks == Marks::Exempt {
                documents.iter_mut().for_each(|document| *document = with_marks(document, &[Rule::Schema]));
            }
            collection.insert_many(documents).session(&mut *session).await?;
        }
    }
    Ok(WriteOutcome::Applied)
}

/// Removes a page by compare-and-set. Returns false if it did not match.
async fn remove(
    session: &mut ClientSession,
    collection: &Collection<RawDocumentBuf>,
    change: MongoWrite,
) -> Result<bool, Error> {
    let MongoWrite::Remove { id, shard, rev } = change else { return Ok(true) };
    let start = bson::DateTime::from_millis(shard.start_ms);
    let rev = i64::try_from(rev).unwrap_or(i64::MAX);
    let filter = doc! { "_id": id, "sensor": shard.sensor, "start": start, "rev": rev };
    Ok(collection.delete_one(filter).session(&mut *session).await?.deleted_count > 0)
}
