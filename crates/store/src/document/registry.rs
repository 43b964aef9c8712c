//! The registry as a document, in both stores.
//!
//! ```text
//! { _id: "registry", schemaVersion: 1, rev: Int64, floor: Int64,
//!   logs: [ { opening: "<16 hex>", log: "<16 hex>", folder: "<16 hex>", watermark: Int64, beat: Int64, seen: Date,
//!             takenBy: "<16 hex>", takenThrough: Int64, host, peer }, … ],
//!   deletions: [ { stamp: Int64, database, statement, from: Int64, to: Int64, done: true }, … ],
//!   view: Int64, active: [ "<16 hex>", … ] }
//! peer: { address, start: Int64, protocol: [ Int32, Int32 ], suspects: [ { folder: "<16 hex>", start: Int64 }, … ] }
//! ```
//! `peer`, `view` and `active` are there only with `[cluster]`.

use bson::{Bson, Document, doc};

use super::decode::check_document_version;
use super::encode::{SCHEMA_VERSION, signed};
use crate::bucket::deletions::RememberedDeletion;
use crate::bucket::registry::{MemberRegistry, PeerEntry, RegistryEntry, Takeover, View};
use crate::bucket::{Result, StorageError};

/// The document's `_id`.
pub const REGISTRY: &str = "registry";

/// Encodes the registry with its next rev.
#[must_use]
pub fn registry_document(registry: &MemberRegistry) -> Document {
    let log = |log: &RegistryEntry| {
        let mut document = doc! {
            "opening": format!("{:016x}", log.opening), "log": format!("{:016x}", log.log),
            "folder": format!("{:016x}", log.folder),
            "watermark": signed(log.watermark), "beat": signed(log.beat),
            "seen": bson::DateTime::from_millis(signed(log.seen_ms)), "host": &log.host,
        };
        if let Some(Takeover { successor, through }) = log.takeover {
            document.insert("takenBy", format!("{successor:016x}"));
            document.insert("takenThrough", signed(through));
        }
        if let Some(peer) = &log.peer {
            document.insert("peer", peer_document(peer));
        }
        Bson::from(document)
    };
    let deletion = |deletion: &RememberedDeletion| {
        let mut document = doc! {
            "stamp": signed(deletion.stamp), "database": &deletion.database,
            "from": deletion.range.start, "to": deletion.range.end,
        };
        if let Some(statement) = &deletion.statement {
            document.insert("statement", statement);
        }
        if deletion.done {
            document.insert("done", true);
        }
        Bson::from(document)
    };
    let mut document = doc! {
        "_id": REGISTRY, "schemaVersion": signed(SCHEMA_VERSION), "rev": signed(registry.rev + 1), "floor": signed(registry.floor),
        "logs": registry.logs.iter().map(log).collect::<Vec<Bson>>(),
        "deletions": registry.deletions.iter().map(deletion).collect::<Vec<Bson>>(),
    };
    let View { number, active } = &registry.view;
    if *number > 0 {
        document.insert("view", signed(*number));
        document.insert("active", active.iter().map(|folder| format!("{folder:016x}")).collect::<Vec<String>>());
    }
    document
}

fn peer_document(peer: &PeerEntry) -> Document {
    let suspect =
        |(folder, start): &(u64, u32)| doc! { "folder": format!("{folder:016x}"), "start": i64::from(*start) };
    let suspects: Vec<Document> = peer.suspects.iter().map(suspect).collect();
    let protocol = [peer.protocol.0, peer.protocol.1].map(i32::from);
    doc! { "address": &peer.address, "start": i64::from(peer.start), "protocol": protocol.to_vec(), "suspects": suspects }
}

/// Decodes the registry.
///
/// # Errors
/// [`StorageError::Newer`] if a later version wrote it, because writing it back could lose fields.
/// [`StorageError::Unreadable`] if a field is missing or has an unexpected type.
pub fn decode_registry(document: &Document) -> Result<MemberRegistry> {
    check_document_version(document, || REGISTRY.to_owned())?;
    let detail = || "a field is missing or has an unexpected type".to_owned();
    decode(document).ok_or_else(|| StorageError::Unreadable { id: REGISTRY.to_owned(), detail: detail() })
}

fn decode(document: &Document) -> Option<MemberRegistry> {
    let whole = |document: &Document, name: &str| u64::try_from(document.get_i64(name).ok()?).ok();
    let id = |document: &Document, name: &str| u64::from_str_radix(document.get_str(name).ok()?, 16).ok();
    let log = |log: &Bson| {
        let log = log.as_document()?;
        Some(RegistryEntry {
            opening: id(log, "opening")?,
            log: id(log, "log")?,
            folder: id(log, "folder").unwrap_or_default(),
            watermark: whole(log, "watermark")?,
            beat: whole(log, "beat")?,
            seen_ms: u64::try_from(log.get_datetime("seen").ok()?.timestamp_millis()).ok()?,
            takeover: id(log, "takenBy")
                .map(|successor| Takeover { successor, through: whole(log, "takenThrough").unwrap_or_default() }),
            host: log.get_str("host").unwrap_or_default().to_owned(),
            peer: log.get_document("peer").ok().and_then(decode_peer),
        })
    };
    let deletion = |deletion: &Bson| {
        let deletion = deletion.as_document()?;
        Some(RememberedDeletion {
            stamp: whole(deletion, "stamp")?,
            database: deletion.get_str("database").ok()?.to_owned(),
            statement: deletion.get_str("statement").ok().map(str::to_owned),
            range: deletion.get_i64("from").ok()?..deletion.get_i64("to").ok()?,
            done: deletion.get_bool("done").unwrap_or_default(),
        })
    };
    Some(MemberRegistry {
        rev: whole(document, "rev")?,
        floor: whole(document, "floor")?,
        logs: document.get_array("logs").ok()?.iter().map(log).collect::<Option<_>>()?,
        deletions: document.get_array("deletions").ok()?.iter().map(deletion).collect::<Option<_>>()?,
        view: View {
            number: whole(document, "view").unwrap_or_default(),
            active: document.get_array("active").map_or(Some(Vec::new()), |active| {
                active.iter().map(|folder| u64::from_str_radix(folder.as_str()?, 16).ok()).collect()
            })?,
        },
    })
}

fn decode_peer(peer: &Document) -> Option<PeerEntry> {
    let start = |document: &Document| u32::try_from(document.get_i64("start").ok()?).ok();
    let suspect = |suspect: &Bson| {
        let suspect = suspect.as_document()?;
        Some((u64::from_str_radix(suspect.get_str("folder").ok()?, 16).ok()?, start(suspect)?))
    };
    let version = |at: usize| u16::try_from(peer.get_array("protocol").ok()?.get(at)?.as_i32()?).ok();
    Some(PeerEntry {
        address: peer.get_str("address").ok()?.to_owned(),
        start: start(peer)?,
        protocol: (version(0)?, version(1)?),
        suspects: peer.get_array("suspects").ok()?.iter().map(suspect).collect::<Option<_>>()?,
    })
}
