//! Pages and sensor documents as few large commands: typed inserts for what is new, raw `update`
//! commands of many compare-and-set statements for the rest, transactions for what must go together.

use bson::RawDocumentBuf;
use mongodb::error::Error;
use mongodb::options::{Acknowledgment, WriteConcern};
use mongodb::{Client, ClientSession, Collection, Database};

use crate::store::document::Writer;

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
}

impl Change {
    fn bytes(&self) -> usize {
        match self {
            Self::Insert(document) => document.len(),
            Self::Update { id, update, .. } => 2 * id.len() + update.len() + 96,
        }
    }
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
        Change::Insert(_) => None,
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

/// What a transaction came to.
#[derive(Debug)]
pub enum Committed {
    /// All of it is in the store.
    Yes,
    /// Another writer was there first; none of it is.
    Conflict,
}

/// Writes all changes in one transaction.
pub async fn transact(
    client: &Client,
    mongo: &Database,
    changes: Vec<(Collection<RawDocumentBuf>, Change)>,
) -> Result<Committed, Error> {
    let mut session = client.start_session().await?;
    session.start_transaction().write_concern(durable()).await?;
    for (collection, change) in changes {
        let step = one_change(&mut session, mongo, &collection, change).await;
        match step {
            Ok(Committed::Yes) => {}
            Ok(Committed::Conflict) => {
                session.abort_transaction().await?;
                return Ok(Committed::Conflict);
            }
            Err(error) => {
                // The server ends a transaction whose session goes away; this only frees it sooner.
                let _ = session.abort_transaction().await;
                return if super::outcome::is_transaction_conflict(&error) {
                    Ok(Committed::Conflict)
                } else {
                    Err(error)
                };
            }
        }
    }
    session.commit_transaction().await.map(|()| Committed::Yes)
}

async fn one_change(
    session: &mut ClientSession,
    mongo: &Database,
    collection: &Collection<RawDocumentBuf>,
    change: Change,
) -> Result<Committed, Error> {
    match change {
        Change::Insert(document) => {
            collection.insert_one(RawDocumentBuf::from_bytes(document)?).session(session).await?;
            Ok(Committed::Yes)
        }
        update @ Change::Update { .. } => {
            let command = update_command(collection.name(), &[update], true)?;
            let reply = mongo.run_raw_command(command).session(session).await?;
            let missed = reply.contains_key("writeErrors") || reply.contains_key("upserted");
            Ok(if missed { Committed::Conflict } else { Committed::Yes })
        }
    }
}
