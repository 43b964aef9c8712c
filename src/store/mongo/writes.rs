//! Pages and sensor documents as few large commands: typed inserts for what is new, raw `update`
//! commands of many compare-and-set statements for the rest, transactions for what must go together.

use bson::{Document, RawDocumentBuf, doc};
use mongodb::error::Error;
use mongodb::options::{Acknowledgment, WriteConcern};
use mongodb::{Client, ClientSession, Collection, Database};

use super::outcome::{is_transaction_conflict, of_updates, statement};
use crate::bucket::WriteKind;
use crate::bucket::store::{PageWrite, Written};
use crate::store::document::{self, Writer};

/// A command's statements stay below this: a raw command is capped at 16 MiB by the server, and
/// smaller ones share the connections better.
const COMMAND_BYTES: usize = 4 * 1024 * 1024;
/// And below this many, so that a failed command leaves few outcomes unknown.
const COMMAND_STATEMENTS: usize = 1000;

/// One document's write, encoded.
#[derive(Debug)]
pub enum Change {
    /// A document that must not exist yet.
    Insert(Vec<u8>),
    /// An update of the document that has this `_id` and `rev`.
    Update {
        /// Its `_id`.
        id: String,
        /// A page's sensor and start: the shard key, which an upsert on a cluster must name.
        shard: Option<(String, i64)>,
        /// The rev it must have.
        rev: u64,
        /// The update, as the server takes it.
        update: Vec<u8>,
    },
    /// The end of the page that has this `_id` and `rev`.
    Remove {
        /// Its `_id`.
        id: String,
        /// Its sensor and start: the shard key.
        shard: (String, i64),
        /// The rev it must have.
        rev: u64,
    },
}

impl Change {
    fn bytes(&self) -> usize {
        match self {
            Self::Insert(document) => document.len(),
            Self::Update { id, update, .. } => 2 * id.len() + update.len() + 96,
            Self::Remove { id, .. } => 2 * id.len() + 96,
        }
    }
}

/// What a page needs to be written; `None` for nothing.
pub fn page_change(write: &PageWrite<'_>, index: usize) -> Option<Change> {
    let page = &write.bucket.pages()[index];
    let id = || document::page_id(&write.id.sensor.key, write.id.hour, page.number);
    let shard = || (write.id.sensor.key.to_string(), write.id.hour.start_ms());
    Some(match page.pending()? {
        WriteKind::Insert => Change::Insert(document::page_document(write.id, page)),
        WriteKind::Append { from } => {
            let update = document::append_update(page, from);
            Change::Update { id: id(), shard: Some(shard()), rev: page.rev(), update }
        }
        WriteKind::Replace => {
            Change::Update { id: id(), shard: Some(shard()), rev: page.rev(), update: document::replace_update(page) }
        }
        WriteKind::Remove => Change::Remove { id: id(), shard: shard(), rev: page.rev() },
    })
}

/// Splits changes (with the place of each among the outcomes) into commands of a good size.
pub fn chunks(changes: Vec<(usize, Change)>) -> Vec<Vec<(usize, Change)>> {
    let mut chunks: Vec<Vec<(usize, Change)>> = Vec::new();
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

/// What every write asks for: a majority has it in its journal.
pub fn durable() -> WriteConcern {
    WriteConcern::builder().w(Acknowledgment::Majority).journal(true).build()
}

/// Inserts documents, unordered.
pub async fn insert(collection: &Collection<RawDocumentBuf>, documents: Vec<Vec<u8>>) -> Result<(), Error> {
    let documents = documents.into_iter().map(RawDocumentBuf::from_bytes).collect::<Result<Vec<_>, _>>()?;
    collection.insert_many(documents).ordered(false).write_concern(durable()).await.map(drop)
}

/// One raw `update` command of upserts by compare-and-set, unordered. Upserts because then a miss
/// comes back as a statement's own error, which a plain update would only show in the total.
pub fn update_command(collection: &str, changes: &[Change], in_transaction: bool) -> Result<RawDocumentBuf, Error> {
    let capacity = changes.iter().map(Change::bytes).sum::<usize>() + 256;
    let mut w = Writer::document(capacity);
    w.text("update", collection);
    w.begin_array("updates");
    let updates = changes.iter().filter_map(|change| match change {
        Change::Update { id, shard, rev, update } => Some((id, shard, rev, update)),
        Change::Insert(_) | Change::Remove { .. } => None,
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
        w.boolean("upsert", true);
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

/// Removes what an update of a missing page inserted because the collection has lost its
/// validator: a torso that has no `measurement`.
pub async fn remove_torsos(collection: &Collection<RawDocumentBuf>, changes: &[Change], reply: &Document) {
    let upserted = reply.get_array("upserted").into_iter().flatten().filter_map(|part| part.as_document());
    let ids: Vec<&String> = upserted
        .filter_map(|part| match changes.get(statement(part)?) {
            Some(Change::Update { id, .. }) => Some(id),
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
        "the collection has lost its validator; a restart sets it again where the user may"
    );
}

/// Writes all changes in one transaction: all of them or none.
pub async fn transact(
    client: &Client,
    mongo: &Database,
    changes: Vec<(Collection<RawDocumentBuf>, Change)>,
) -> Result<Written, Error> {
    let mut session = client.start_session().await?;
    session.start_transaction().write_concern(durable()).await?;
    let written = all_changes(&mut session, mongo, changes).await;
    match written {
        Ok(Written::Yes) => match session.commit_transaction().await {
            Err(error) if is_transaction_conflict(&error) => Ok(Written::Conflict),
            committed => committed.map(|()| Written::Yes),
        },
        other => {
            // The server ends a transaction whose session goes away; this only frees it sooner.
            let _ = session.abort_transaction().await;
            match other {
                Err(error) if is_transaction_conflict(&error) => Ok(Written::Conflict),
                other => other,
            }
        }
    }
}

async fn all_changes(
    session: &mut ClientSession,
    mongo: &Database,
    changes: Vec<(Collection<RawDocumentBuf>, Change)>,
) -> Result<Written, Error> {
    for (collection, change) in changes {
        let written = match change {
            Change::Insert(document) => {
                collection.insert_one(RawDocumentBuf::from_bytes(document)?).session(&mut *session).await?;
                Written::Yes
            }
            update @ Change::Update { .. } => {
                let command = update_command(collection.name(), &[update], true)?;
                let reply = mongo.run_raw_command(command).session(&mut *session).await?;
                of_updates(Ok(reply), 1).pop().unwrap_or(Written::Conflict)
            }
            Change::Remove { id, shard: (sensor, start), rev } => {
                let start = bson::DateTime::from_millis(start);
                let rev = i64::try_from(rev).unwrap_or(i64::MAX);
                let filter = doc! { "_id": id, "sensor": sensor, "start": start, "rev": rev };
                match collection.delete_one(filter).session(&mut *session).await?.deleted_count {
                    0 => Written::Conflict,
                    _ => Written::Yes,
                }
            }
        };
        if written != Written::Yes {
            return Ok(written);
        }
    }
    Ok(Written::Yes)
}
