//! Writes pages and sensor documents in few large commands: typed inserts for new documents, raw `update` commands of
//! many compare-and-set statements for existing ones, transactions for pages that must change together.

use bson::{Document, RawDocumentBuf, doc};
use mongodb::error::Error;
use mongodb::options::{Acknowledgment, WriteConcern};
use mongodb::{Client, ClientSession, Collection, Database};

use super::copies::NewCopies;
use super::outcome::{of_exact_updates, of_transaction, statement};
use super::setup::Collections;
use crate::bucket::WriteKind;
use crate::bucket::store::{PageWrite, Written};
use crate::document::{self, BsonWriter};

/// Maximum bytes of a command's statements: the server caps a raw command at 16 MiB, and smaller ones share the
/// connections better.
pub const COMMAND_BYTES: usize = 4 * 1024 * 1024;
/// Maximum statements of a command, so that a failed command leaves few outcomes unknown.
const COMMAND_STATEMENTS: usize = 1000;

/// One document's write, encoded.
#[derive(Debug, Clone)]
pub enum MongoWrite {
    /// A document that must not exist yet.
    Insert(RawDocumentBuf),
    /// An update of the document with this `_id` and `rev`.
    Update {
        /// The document's `_id`.
        id: String,
        /// A page's sensor and start: the shard key, which an upsert on a sharded cluster must name.
        shard: Option<(String, i64)>,
        /// The expected rev.
        rev: u64,
        /// The update, in BSON.
        update: Vec<u8>,
    },
    /// The removal of the page with this `_id` and `rev`.
    Remove {
        /// The page's `_id`.
        id: String,
        /// The page's sensor and start: the shard key.
        shard: (String, i64),
        /// The expected rev.
        rev: u64,
    },
}

impl MongoWrite {
    /// About how many bytes it takes in a command.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Insert(document) => document.as_bytes().len(),
            Self::Update { id, update, .. } => 2 * id.len() + update.len() + 96,
            Self::Remove { id, .. } => 2 * id.len() + 96,
        }
    }
}

/// The document of an insert.
pub fn inserted(change: MongoWrite) -> Option<RawDocumentBuf> {
    match change {
        MongoWrite::Insert(document) => Some(document),
        MongoWrite::Update { .. } | MongoWrite::Remove { .. } => None,
    }
}

/// The write that a page needs; a new one gets these copies of metadata.
pub fn page_change(write: &PageWrite<'_>, index: usize, copies: &NewCopies) -> MongoWrite {
    let page = &write.bucket.pages()[index];
    let id = || document::page_id(&write.id.sensor.key, write.id.hour, page.number);
    let shard = || (write.id.sensor.key.to_string(), write.id.hour.start_ms());
    let update = match page.write_in_group() {
        WriteKind::Insert => {
            return insertion_with(document::page_document(write.id, page), copies, &write.id.sensor.key);
        }
        WriteKind::Remove => return MongoWrite::Remove { id: id(), shard: shard(), rev: page.rev() },
        WriteKind::Append { from } => document::append_update(page, from),
        WriteKind::Replace => document::replace_update(page),
    };
    MongoWrite::Update { id: id(), shard: Some(shard()), rev: page.rev(), update }
}

/// The insert of a document encoded by this program.
pub fn insertion(document: Vec<u8>) -> MongoWrite {
    // Fails only if the length prefix is wrong, which [`BsonWriter`] sets.
    MongoWrite::Insert(RawDocumentBuf::from_bytes(document).unwrap_or_default())
}

/// As [`insertion`], with the copies of metadata of a sensor.
pub fn insertion_with(document: Vec<u8>, copies: &NewCopies, sensor: &str) -> MongoWrite {
    insertion(match copies.get(sensor) {
        Some(copies) => document::with_copies(document, copies),
        None => document,
    })
}

/// The writes that a group of pages needs, per collection.
pub fn together(collections: &Collections, write: &PageWrite<'_>, copies: &NewCopies) -> Together {
    let (buckets, overflow): (Vec<usize>, Vec<usize>) =
        write.group.iter().copied().partition(|index| write.bucket.pages()[*index].number == 0);
    let changes = |indexes: Vec<usize>| indexes.into_iter().map(|index| page_change(write, index, copies)).collect();
    [(collections.buckets.clone(), changes(buckets)), (collections.overflow.clone(), changes(overflow))]
}

/// Splits changes (with the place of each among the outcomes) into commands within the limits.
pub fn chunks(changes: Vec<(usize, MongoWrite)>) -> Vec<Vec<(usize, MongoWrite)>> {
    let mut chunks: Vec<Vec<(usize, MongoWrite)>> = Vec::new();
    let mut bytes = usize::MAX;
    for (place, change) in changes {
        let full = bytes.saturating_add(change.bytes()) > COMMAND_BYTES
            || chunks.last().is_none_or(|chunk| chunk.len() >= COMMAND_STATEMENTS);
        if full {
            chunks.push(Vec::new());
            bytes = 0;
        }
        bytes += change.bytes();
        if let Some(chunk) = chunks.last_mut() {
            chunk.push((place, change));
        }
    }
    chunks
}

/// Write concern of every write: journaled by a majority.
pub fn durable() -> WriteConcern {
    WriteConcern::builder().w(Acknowledgment::Majority).journal(true).build()
}

/// Inserts documents, unordered.
pub async fn insert(collection: &Collection<RawDocumentBuf>, documents: &[RawDocumentBuf]) -> Result<(), Error> {
    collection.insert_many(documents).ordered(false).write_concern(durable()).await.map(drop)
}

/// Sends one `update` command, unordered.
pub async fn update(mongo: &Database, into: &str, changes: &[MongoWrite], how: Updates) -> Result<Document, Error> {
    mongo.run_raw_command(update_command(into, changes, how)?).await
}

/// How the reply reports a compare-and-set that did not match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Updates {
    /// As an error of the statement, since it tries to insert.
    Upserts,
    /// Only by the total count.
    Plain,
    /// Only by the total count; the transaction has the write concern.
    InTransaction,
}

/// One raw `update` command of compare-and-set statements, unordered.
fn update_command(collection: &str, changes: &[MongoWrite], updates: Updates) -> Result<RawDocumentBuf, Error> {
    let (upsert, in_transaction) = (updates == Updates::Upserts, updates == Updates::InTransaction);
    let capacity = changes.iter().map(MongoWrite::bytes).sum::<usize>() + 256;
    let mut w = BsonWriter::document(capacity);
    w.text("update", collection);
    w.begin_array("updates");
    let updates = changes.iter().filter_map(|change| match change {
        MongoWrite::Update { id, shard, rev, update } => Some((id, shard, rev, update)),
        MongoWrite::Insert(_) | MongoWrite::Remove { .. } => None,
    });
    for (index, (id, shard, rev, update)) in updates.enumerate() {
        w.begin_element(index);
        w.begin("q");
        w.text("_id", id);
        if let Some((sensor, start)) = shard {
            w.text("sensor", sensor);
            w.date("start", *start);
        }
        w.count("rev", *rev);
        w.end();
        w.raw("u", update);
        w.boolean("upsert", upsert);
        w.end();
    }
    w.end();
    w.boolean("ordered", false);
    if !in_transaction {
        w.begin("writeConcern");
        w.text("w", "majority");
        w.boolean("j", true);
        w.end();
    }
    Ok(RawDocumentBuf::from_bytes(w.finish())?)
}

/// Removes incomplete documents (without `measurement`), which an update of a missing page inserts if the collection
/// has lost its validator.
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
        "the collection has lost its validator; a restart restores it if the user may run collMod"
    );
}

/// Changes of one transaction: those of `buckets`, among them page 0's, and those of `overflow`.
pub type Together = [(Collection<RawDocumentBuf>, Vec<MongoWrite>); 2];

/// Writes all changes in one transaction, or none.
pub async fn transact(client: &Client, mongo: &Database, changes: Together) -> Result<Written, Error> {
    let mut session = client.start_session().await?;
    session.start_transaction().write_concern(durable()).await?;
    let written = all_changes(&mut session, mongo, changes).await;
    match written {
        Ok(Written::Yes) => match session.commit_transaction().await {
            Ok(()) => Ok(Written::Yes),
            Err(error) => Ok(of_transaction(&error)),
        },
        other => {
            // The server aborts a transaction when its session ends; this only does so sooner.
            let _ = session.abort_transaction().await;
            Ok(other.unwrap_or_else(|error| of_transaction(&error)))
        }
    }
}

/// Page 0's compare-and-set comes first: if it does not match, nothing else is sent.
async fn all_changes(session: &mut ClientSession, mongo: &Database, changes: Together) -> Result<Written, Error> {
    for (collection, changes) in changes {
        let (inserts, rest): (Vec<_>, Vec<_>) =
            changes.into_iter().enumerate().partition(|(_, change)| matches!(change, MongoWrite::Insert(_)));
        let (updates, removes): (Vec<_>, Vec<_>) =
            rest.into_iter().partition(|(_, change)| matches!(change, MongoWrite::Update { .. }));
        for chunk in chunks(updates) {
            let changes: Vec<MongoWrite> = chunk.into_iter().map(|(_, change)| change).collect();
            let command = update_command(collection.name(), &changes, Updates::InTransaction)?;
            let reply = mongo.run_raw_command(command).session(&mut *session).await?;
            match of_exact_updates(&reply, changes.len()) {
                Written::Yes => {}
                other => return Ok(other),
            }
        }
        for (_, change) in removes {
            if !remove(session, &collection, change).await? {
                return Ok(Written::Conflict);
            }
        }
        for chunk in chunks(inserts) {
            let documents: Vec<RawDocumentBuf> = chunk.into_iter().filter_map(|(_, change)| inserted(change)).collect();
            collection.insert_many(documents).session(&mut *session).await?;
        }
    }
    Ok(Written::Yes)
}

/// Removes a page by compare-and-set; false if it did not match.
async fn remove(
    session: &mut ClientSession,
    collection: &Collection<RawDocumentBuf>,
    change: MongoWrite,
) -> Result<bool, Error> {
    let MongoWrite::Remove { id, shard: (sensor, start), rev } = change else { return Ok(true) };
    let start = bson::DateTime::from_millis(start);
    let rev = i64::try_from(rev).unwrap_or(i64::MAX);
    let filter = doc! { "_id": id, "sensor": sensor, "start": start, "rev": rev };
    Ok(collection.delete_one(filter).session(&mut *session).await?.deleted_count > 0)
}
