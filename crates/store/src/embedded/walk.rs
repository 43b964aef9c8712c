//! Walks everything the file holds of a database, as it is stored, in parts.

use redb::{Database, ReadableDatabase, ReadableTableMetadata};

use super::days;
use super::file::FileFailure;
use super::form::{self, PageKey};
use super::keys::Keys;
use super::tables::{DAYS, PAGES, SENSORS, unseal, unseal_document};
use crate::bucket::StorageError;
use crate::bucket::raw::{Cursor, RawBucket, RawDay, RawPage, RawSensor, Walked};
use crate::document::decode_raw_sensor;
use crate::reading::Hour;

/// A part ends after this many bytes of values.
const PART_BYTES: usize = 16 << 20;

/// Implements `Store::walk_buckets`.
pub(super) fn buckets(
    database: &Database,
    name: &str,
    from: Option<&Cursor>,
    pages_max: usize,
) -> Result<Walked<RawBucket>, FileFailure> {
    let keys = Keys::of(name);
    let all = keys.all();
    let start = from.map_or(&*all.start, |from| &*from.0);
    let transaction = database.begin_read()?;
    let table = transaction.open_table(PAGES)?;
    let mut walked = Walked::<RawBucket>::default();
    let (mut pages, mut bytes) = (0, 0);
    for row in table.range::<&[u8]>(start..&*all.end)? {
        let (key, value) = row?;
        let (key, value) = (key.value(), value.value());
        let bucket = Keys::bucket_of(key);
        if walked.found.last().is_none_or(|last| last.from.0 != bucket) {
            if pages >= pages_max.max(1) || bytes >= PART_BYTES {
                walked.next = Some(Cursor(key.to_vec()));
                break;
            }
            walked.found.push(RawBucket { from: Cursor(bucket.to_vec()), pages: Vec::new() });
        }
        (pages, bytes) = (pages + 1, bytes + value.len());
        if let Some(last) = walked.found.last_mut() {
            last.pages.push(page(&keys, key, value));
        }
    }
    Ok(walked)
}

fn page(keys: &Keys, key: &[u8], value: &[u8]) -> Result<RawPage, StorageError> {
    // An hour beyond the range of timestamps cannot be formatted.
    let hours = Hour::of(i64::MIN)..=Hour::of(i64::MAX);
    let Some((hour, sensor, number)) = keys.page_of(key).filter(|(hour, ..)| hours.contains(hour)) else {
        let detail = "its key is not a page key".to_owned();
        return Err(StorageError::Unreadable { id: key.escape_ascii().to_string(), detail });
    };
    let page = PageKey { sensor: &sensor, hour, number };
    form::decode_for_walk(unseal(key, value, || page.id())?, page)
}

/// Implements `Store::walk_sensors`.
pub(super) fn sensors(
    database: &Database,
    name: &str,
    from: Option<&Cursor>,
    max: usize,
) -> Result<Walked<RawSensor>, FileFailure> {
    let keys = Keys::of(name);
    let all = keys.all();
    let start = from.map_or(&*all.start, |from| &*from.0);
    let transaction = database.begin_read()?;
    let table = transaction.open_table(SENSORS)?;
    let mut walked = Walked::default();
    for row in table.range::<&[u8]>(start..&*all.end)? {
        let (key, value) = row?;
        let (key, value) = (key.value(), value.value());
        if walked.found.len() >= max.max(1) {
            walked.next = Some(Cursor(key.to_vec()));
            break;
        }
        let sensor = keys.sensor_of(key).map_or_else(|| key.escape_ascii().to_string(), str::to_owned);
        walked.found.push(match unseal_document(key, value, || sensor.clone()) {
            Ok(document) => decode_raw_sensor(document, sensor),
            Err(error) => RawSensor { key: sensor, document: Err(error) },
        });
    }
    Ok(walked)
}

/// Implements `Store::walk_days`.
pub(super) fn days(
    database: &Database,
    name: &str,
    from: Option<&Cursor>,
    max: usize,
) -> Result<Walked<RawDay>, FileFailure> {
    let keys = Keys::of(name);
    let all = keys.all();
    let start = from.map_or(&*all.start, |from| &*from.0);
    let transaction = database.begin_read()?;
    let table = transaction.open_table(DAYS)?;
    let (mut walked, mut bytes) = (Walked::default(), 0);
    for row in table.range::<&[u8]>(start..&*all.end)? {
        let (key, value) = row?;
        let (key, value) = (key.value(), value.value());
        if walked.found.len() >= max.max(1) || bytes >= PART_BYTES {
            walked.next = Some(Cursor(key.to_vec()));
            break;
        }
        bytes += value.len();
        walked.found.push(days::raw(key, value));
    }
    Ok(walked)
}

/// Implements `Store::estimate_pages`; exact in this store.
pub(super) fn count_pages(database: &Database) -> Result<u64, FileFailure> {
    let transaction = database.begin_read()?;
    Ok(transaction.open_table(PAGES)?.len()? + transaction.open_table(DAYS)?.len()?)
}
