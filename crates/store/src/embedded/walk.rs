//! Walks over all stored rows of a database, in batches. Damaged rows are returned as errors of their own.

use async_trait::async_trait;
use redb::{ReadableDatabase, ReadableTableMetadata, TableError};

use super::keys::Keys;
use super::page_form::{self, PageKey};
use super::tables::{DAYS, DocumentTable, MIGRATED, PAGES, SENSORS, begin, unseal, unseal_document};
use super::{EmbeddedStore, SMALL_WRITE_BYTES, days};
use crate::bucket::raw::{Cursor, RawBucket, RawDay, RawPage, RawSensor, WalkStep};
use crate::bucket::store::WalkStore;
use crate::bucket::{Result, StorageError};
use crate::document::decode_raw_sensor;
use crate::reading::Hour;

/// Bytes of values after which a batch ends.
const BATCH_BYTES_MAX: usize = 16 << 20;

impl EmbeddedStore {
    /// Reads a batch of a table: at most about `rows_max` rows or [`BATCH_BYTES_MAX`], but at least one row if any is left.
    /// `add` appends a row to the found items. A batch never ends before a row that `continues` the last item.
    async fn walk<T: Send + 'static>(
        &self,
        table: DocumentTable,
        database: &str,
        start: Option<&Cursor>,
        rows_max: usize,
        continues: fn(&T, &[u8]) -> bool,
        add: fn(&mut Vec<T>, &[u8], &[u8]),
    ) -> Result<WalkStep<T>> {
        let start = start.cloned();
        self.read_table(table, database, move |keys, table| {
            let all = keys.all();
            let start = start.as_ref().map_or(&*all.start, |start| &*start.0);
            let mut walked = WalkStep::default();
            let mut bytes = 0;
            for (rows, row) in table.range::<&[u8]>(start..&*all.end)?.enumerate() {
                let (key, value) = row?;
                let key = key.value();
                let value = value.value();
                let is_full = rows >= rows_max.max(1) || bytes >= BATCH_BYTES_MAX;
                if is_full && !walked.found.last().is_some_and(|last| continues(last, key)) {
                    walked.next = Some(Cursor(key.to_vec()));
                    break;
                }
                bytes += value.len();
                add(&mut walked.found, key, value);
            }
            Ok(walked)
        })
        .await
    }
}

impl EmbeddedStore {
    /// Returns the end of the parts that certainly have no older form.
    async fn migrated_end(&self, database: &str) -> Result<Option<Cursor>> {
        let name = database.to_owned();
        self.read(move |db| match db.begin_read()?.open_table(MIGRATED) {
            Err(TableError::TableDoesNotExist(_)) => Ok(None),
            table => Ok(table?.get(&*name)?.map(|end| Cursor(end.value().to_vec()))),
        })
        .await
    }
}

#[async_trait]
impl WalkStore for EmbeddedStore {
    async fn walk_buckets(
        &self,
        database: &str,
        start: Option<&Cursor>,
        pages_max: usize,
    ) -> Result<WalkStep<RawBucket>> {
        let continues = |last: &RawBucket, key: &[u8]| last.cursor.0 == Keys::bucket_prefix(key);
        self.walk(PAGES, database, start, pages_max, continues, |found, key, value| {
            let bucket = Keys::bucket_prefix(key);
            if found.last().is_none_or(|last| last.cursor.0 != bucket) {
                found.push(RawBucket { cursor: Cursor(bucket.to_vec()), pages: Vec::new() });
            }
            if let Some(last) = found.last_mut() {
                last.pages.push(raw_page(key, value));
            }
        })
        .await
    }

    async fn walk_sensors(&self, database: &str, start: Option<&Cursor>, max: usize) -> Result<WalkStep<RawSensor>> {
        self.walk(SENSORS, database, start, max, |_, _| false, |found, key, value| found.push(raw_sensor(key, value)))
            .await
    }

    async fn walk_days(&self, database: &str, start: Option<&Cursor>, max: usize) -> Result<WalkStep<RawDay>> {
        self.walk(DAYS, database, start, max, |_, _| false, |found, key, value| found.push(days::raw_day(key, value)))
            .await
    }

    async fn count_outdated_days(&self, database: &str) -> Result<Option<u64>> {
        let is_done = self.migrated_end(database).await? == Some(Cursor(Keys::new(database).all().end));
        Ok(is_done.then_some(0))
    }

    async fn walk_outdated_days(&self, database: &str, start: Option<&Cursor>, max: usize) -> Result<WalkStep<RawDay>> {
        let noted = if start.is_none() { self.migrated_end(database).await? } else { None };
        self.walk(DAYS, database, start.or(noted.as_ref()), max, |_, _| false, days::add_outdated).await
    }

    async fn note_migrated(&self, database: &str, end: Option<&Cursor>) -> Result<()> {
        let name = database.to_owned();
        let end = end.map_or_else(|| Keys::new(database).all().end, |end| end.0.clone());
        self.run(SMALL_WRITE_BYTES, move |db| {
            let transaction = begin(db)?;
            transaction.open_table(MIGRATED)?.insert(&*name, &*end)?;
            Ok(transaction.commit()?)
        })
        .await
    }

    /// Returns the exact number of pages and parts of days, of all databases.
    async fn estimate_pages(&self) -> Result<u64> {
        self.read(|db| {
            let transaction = db.begin_read()?;
            Ok(transaction.open_table(PAGES)?.len()? + transaction.open_table(DAYS)?.len()?)
        })
        .await
    }
}

fn raw_sensor(key: &[u8], value: &[u8]) -> RawSensor {
    let sensor = Keys::parse_sensor(key).map_or_else(|| key.escape_ascii().to_string(), str::to_owned);
    match unseal_document(key, value, || sensor.clone()) {
        Ok(document) => decode_raw_sensor(document, sensor),
        Err(error) => RawSensor { key: sensor, document: Err(error) },
    }
}

fn raw_page(key: &[u8], value: &[u8]) -> Result<RawPage> {
    // Hours outside the range of timestamps cannot be formatted.
    let hours = Hour::from_ns(i64::MIN)..=Hour::from_ns(i64::MAX);
    let Some((hour, sensor, number)) = Keys::parse_any_page(key).filter(|(hour, ..)| hours.contains(hour)) else {
        let detail = "the key is not a valid page key".to_owned();
        return Err(StorageError::Unreadable { id: key.escape_ascii().to_string(), detail });
    };
    let page = PageKey { sensor: &sensor, hour, number };
    page_form::decode_for_walk(unseal(key, value, || page.id())?, page)
}
