//! The settings of a database as a document, in both stores.
//!
//! ```text
//! { _id: "<database>", schemaVersion: 1, rev: Int64, readings: Int64 (ns; 0: forever), default: "<policy>",
//!   replication: Int64, shardDuration: Int64 (ns), expired: Int64 (ns since the epoch), summaries: Int64 (ns; 0: forever),
//!   readingsBefore, readingsStamp, readingsDone: Int64, sealForm: "<form>", drift: "<drift>", created, set: Int64 (stamps),
//!   renames: [{ kind, tag, measurement, from, to: "<text>" }], mappings: [{ name, text: "<text>" }] }
//! ```
//!
//! All fields after `rev` are optional.

use std::collections::BTreeMap;
use std::sync::Arc;

use bson::{Bson, Document, doc};

use super::decode::check_document_version;
use super::encode::{SCHEMA_VERSION, signed};
use crate::bucket::settings::{Drift, ExpiredReadings};
use crate::bucket::{DatabaseSettings, Keep, Rename, Renames, Result, SealForm, StorageError};

/// Fields that can be negative, because they are times before the epoch.
const TIMES: [&str; 3] = ["expired", "readingsBefore", "readingsDone"];

/// Encodes the settings of a database.
#[must_use]
pub fn settings_document(database: &str, settings: &DatabaseSettings) -> Document {
    let DatabaseSettings {
        rev,
        readings,
        default,
        replication,
        shard_duration,
        expired,
        summaries,
        expired_readings,
        seal_form,
        drift,
        created,
        set: set_stamp,
        renames,
        mappings,
    } = settings;
    let stamp = |stamp: u64| Bson::from(signed(stamp));
    let mut document = doc! { "_id": database, "schemaVersion": signed(SCHEMA_VERSION), "rev": signed(*rev) };
    let fields = [
        ("readings", readings.map(|keep| Bson::from(keep.ns()))),
        ("default", default.as_ref().map(Bson::from)),
        ("replication", replication.map(|count| Bson::from(i64::from(count)))),
        ("shardDuration", shard_duration.map(Bson::from)),
        ("expired", expired.map(Bson::from)),
        ("summaries", summaries.map(|keep| Bson::from(keep.ns()))),
        ("readingsBefore", expired_readings.map(|expired| Bson::from(expired.before))),
        ("readingsStamp", expired_readings.map(|expired| stamp(expired.stamp))),
        ("readingsDone", expired_readings.map(|expired| Bson::from(expired.done))),
        ("sealForm", seal_form.map(|form| Bson::from(form.name()))),
        ("drift", drift.map(|drift| Bson::from(drift.name()))),
        ("created", Some(*created).filter(|at| *at > 0).map(stamp)),
        ("set", Some(*set_stamp).filter(|at| *at > 0).map(stamp)),
        ("renames", (!renames.is_empty()).then(|| renames.entries().iter().map(rename_document).collect())),
        (
            "mappings",
            (!mappings.is_empty())
                .then(|| mappings.iter().map(|(name, text)| doc! { "name": name, "text": text }).collect()),
        ),
    ];
    document.extend(fields.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))));
    document
}

fn rename_document(rename: &Rename) -> Document {
    rename.fields().map(|(name, text)| (name.to_owned(), Bson::from(text))).collect()
}

/// Decodes the own mappings. Returns `None` if any of them is malformed.
fn decode_mappings(document: &Document) -> Option<BTreeMap<String, String>> {
    let Some(mappings) = document.get("mappings") else { return Some(BTreeMap::new()) };
    let entry = |mapping: &Bson| {
        let mapping = mapping.as_document()?;
        Some((mapping.get_str("name").ok()?.to_owned(), mapping.get_str("text").ok()?.to_owned()))
    };
    mappings.as_array()?.iter().map(entry).collect()
}

/// Decodes the renames. Returns `None` if any entry is malformed, because a partial list would change names.
fn decode_renames(document: &Document) -> Option<Renames> {
    let Some(entries) = document.get("renames") else { return Some(Renames::default()) };
    let entry = |entry: &Bson| {
        let entry = entry.as_document()?;
        Rename::from_fields(|name| entry.get_str(name).ok())
    };
    entries.as_array()?.iter().map(entry).collect::<Option<Vec<_>>>().map(Renames::new)
}

/// Decodes the settings of a database.
///
/// # Errors
/// [`StorageError::Newer`] if a later version wrote them, because writing them back could lose fields.
/// [`StorageError::Unreadable`] if a field has an unexpected type, because a wrong retention would delete readings.
pub fn decode_settings(document: &Document) -> Result<(String, DatabaseSettings)> {
    let id = document.get_str("_id").unwrap_or("?").to_owned();
    check_document_version(document, || format!("settings of {id}"))?;
    let unreadable = || StorageError::Unreadable {
        id: format!("settings of {id}"),
        detail: "a field is missing or has an unexpected type".to_owned(),
    };
    let number = |name: &str| match document.get(name) {
        None => Ok(None),
        Some(Bson::Int64(number)) if *number >= 0 || TIMES.contains(&name) => Ok(Some(*number)),
        Some(_) => Err(unreadable()),
    };
    let text = |name: &str| match document.get(name) {
        None => Ok(None),
        Some(text) => text.as_str().map(Some).ok_or_else(unreadable),
    };
    let expired_readings = match (number("readingsBefore")?, number("readingsStamp")?, number("readingsDone")?) {
        (None, None, None) => None,
        (Some(before), Some(stamp), Some(done)) => {
            Some(ExpiredReadings { before, stamp: u64::try_from(stamp).map_err(|_| unreadable())?, done })
        }
        _ => return Err(unreadable()),
    };
    let stamp = |name: &str| -> Result<u64> {
        Ok(number(name)?.and_then(|stamp| u64::try_from(stamp).ok()).unwrap_or_default())
    };
    let settings = DatabaseSettings {
        rev: number("rev")?.and_then(|rev| u64::try_from(rev).ok()).ok_or_else(unreadable)?,
        readings: number("readings")?.map(Keep::from_ns),
        default: text("default")?.map(str::to_owned),
        replication: number("replication")?.and_then(|count| u32::try_from(count).ok()),
        shard_duration: number("shardDuration")?,
        expired: number("expired")?,
        summaries: number("summaries")?.map(Keep::from_ns),
        expired_readings,
        seal_form: text("sealForm")?.map(|form| SealForm::from_name(form).ok_or_else(unreadable)).transpose()?,
        drift: text("drift")?.map(|drift| Drift::from_name(drift).ok_or_else(unreadable)).transpose()?,
        created: stamp("created")?,
        set: stamp("set")?,
        renames: decode_renames(document).ok_or_else(unreadable)?,
        mappings: Arc::new(decode_mappings(document).ok_or_else(unreadable)?),
    };
    Ok((id, settings))
}
