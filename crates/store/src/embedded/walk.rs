//! Walks everything the file holds of a database, as it is stored, in parts.

use async_trait::async_trait;
use redb::{ReadableDatabase, ReadableTableMetadata};

use super::keys::Keys;
use super::page_form::{self, PageKey};
use super::tables::{DAYS, DocumentTable, PAGES, SENSORS, unseal, unseal_document};
use super::{EmbeddedStore, days};
use crate::bucket::raw::{Cursor, RawBucket, RawDay, RawPage, RawSensor, Walked};
use crate::bucket::store::WalkStore;
use crate::bucket::{Result, StorageError};
use crate::document::decode_raw_sensor;
use crate::reading::Hour;

/// A part ends after this many bytes of values.
const PART_BYTES: usize = 16 << 20;

impl EmbeddedStore {
    /// Walks a part of a table: about `rows_max` rows or [`PART_BYTES`], and at least one row unless none is left. `add` adds
    /// a row to what was found. The part does not end before a row that `continues` what was found last.
    async fn walk<T: Send + 'static>(
        &self,
        table: (DocumentTable, &str),
        from: Option<&Cursor>,
        rows_max: usize,
        continues: fn(&T, &[u8]) -> bool,
        add: fn(&mut Vec<T>, &[u8], &[u8]),
    ) -> Result<Walked<T>> {
        let from = from.cloned();
        self.read_table(table, move |keys, rows_of_table| {
            let all = keys.all();
            let start = from.as_ref().map_or(&*all.start, |from| &*from.0);
            let (mut walked, mut rows, mut bytes) = (Walked::default(), 0, 0);
            for row in rows_of_table.range::<&[u8]>(start..&*all.end)? {
                let (key, value) = row?;
                let (key, value) = (key.value(), value.value());
                let is_full = rows >= rows_max.max(1) || bytes >= PART_BYTES;
                if is_full && !walked.found.last().is_some_and(|last| continues(last, key)) {
                    walked.next = Some(Cursor(key.to_vec()));
                    break;
                }
                rows += 1;
                bytes += value.len();
                add(&mut walked.found, key, value);
            }
            Ok(walked)
        })
        .await
    }
}

#[async_trait]
impl WalkStore for EmbeddedStore {
    async fn walk_buckets(&self, database: &str, from: Option<&Cursor>, pages_max: usize) -> Result<Walked<RawBucket>> {
        let continues = |last: &RawBucket, key: &[u8]| last.from.0 == Keys::bucket_of(key);
        self.walk((PAGES, database), from, pages_max, continues, |found, key, value| {
            let bucket = Keys::bucket_of(key);
            if found.last().is_none_or(|last| last.from.0 != bucket) {
                found.push(RawBucket { from: Cursor(bucket.to_vec()), pages: Vec::new() });
            }
            found.last_mut().into_iter().for_each(|last| last.pages.push(page(key, value)));
        })
        .await
    }

    async fn walk_sensors(&self, database: &str, from: Option<&Cursor>, max: usize) -> Result<Walked<RawSensor>> {
        self.walk((SENSORS, database), from, max, |_, _| false, |found, key, value| found.push(sensor(key, value)))
            .await
    }

    async fn walk_days(&self, database: &str, from: Option<&Cursor>, max: usize) -> Result<Walked<RawDay>> {
        self.walk((DAYS, database), from, max, |_, _| false, |found, key, value| found.push(days::raw(key, value)))
            .await
    }

    /// Exact in this store.
    async fn estimate_pages(&self) -> Result<u64> {
        self.read(|db| {
            let transaction = db.begin_read()?;
            Ok(transaction.open_table(PAGES)?.len()? + transaction.open_table(DAYS)?.len()?)
        })
        .await
    }
}

fn sensor(key: &[u8], value: &[u8]) -> RawSensor {
    let sensor = Keys::sensor_of(key).map_or_else(|| key.escape_ascii().to_string(), str::to_owned);
    match unseal_document(key, value, || sensor.clone()) {
        Ok(document) => decode_raw_sensor(document, sensor),
        Err(error) => RawSensor { key: sensor, document: Err(error) },
    }
}

fn page(key: &[u8], value: &[u8]) -> Result<RawPage> {
    // An hour beyond the range of timestamps cannot be formatted.
    let hours = Hour::of(i64::MIN)..=Hour::of(i64::MAX);
    let Some((hour, sensor, number)) = Keys::any_page_of(key).filter(|(hour, ..)| hours.contains(hour)) else {
        let detail = "its key is not a page key".to_owned();
        return Err(StorageError::Unreadable { id: key.escape_ascii().to_string(), detail });
    };
    let page = PageKey { sensor: &sensor, hour, number };
    page_form::decode_for_walk(unseal(key, value, || page.id())?, page)
}
