//! The tested stores with direct access, and helpers of the cases: readings, merges, and the write loop of ingest.

use async_trait::async_trait;
use hourglass::bucket::store::{
    BucketId, Coordination, Extent, Order, PageWrite, Projection, ScanResult, WriteOutcome,
};
use hourglass::bucket::{Bucket, Caps, MergeCounts, MergeOptions, Page, Reading, Row, Store, StoredPage};
use hourglass::reading::{Hour, Sensor, Value};
use hourglass::store::embedded::{EmbeddedStore, FILE_NAME};
use hourglass::store::names::collection_prefix;
use hourglass::store::{MongoOptions, MongoStore};
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};

use crate::support::prelude::*;

/// Default database of the cases.
pub const DB: &str = "plant";

/// Normal page sizes.
pub const CAPS: Caps = Caps { max_readings: 3600, max_bytes: 1 << 20, hard_bytes: 4 << 20 };
/// Small pages, so that a bucket soon has several.
pub const SMALL: Caps = Caps { max_readings: 5, max_bytes: 1 << 20, hard_bytes: 4 << 20 };

/// An empty store, and direct access to it.
#[async_trait]
pub trait TestStore: Send + Sync {
    fn store(&self) -> &dyn Store;

    /// Closes the store and opens it again.
    async fn reopen(&mut self);

    async fn delete_page(&mut self, database: &str, page_id: &str);
}

pub struct Embedded {
    /// `None` only while a case uses the file directly. Dropped before its folder.
    store: Option<EmbeddedStore>,
    folder: Folder,
}

/// Page and sensor tables of the embedded store.
pub type Documents = TableDefinition<'static, &'static [u8], &'static [u8]>;
pub const PAGES: Documents = TableDefinition::new("pages");
pub const SENSORS: Documents = TableDefinition::new("sensors");

impl Embedded {
    pub fn new() -> Embedded {
        let folder = Folder::new("embedded");
        Embedded { store: Some(open_embedded(&folder)), folder }
    }

    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Uses the file directly: the store is dropped before without `close`, and opened after.
    pub fn with_file<T>(&mut self, work: impl FnOnce(&Database) -> T) -> T {
        self.store = None;
        let database = Database::open(self.folder.file(FILE_NAME)).expect("the file is not open elsewhere");
        let result = work(&database);
        drop(database);
        self.store = Some(open_embedded(&self.folder));
        result
    }
}

fn open_embedded(folder: &Folder) -> EmbeddedStore {
    EmbeddedStore::open(folder.path(), 16 << 20).expect("the store opens")
}

#[async_trait]
impl TestStore for Embedded {
    fn store(&self) -> &dyn Store {
        self.store.as_ref().expect("the store is open between two steps of a case")
    }

    async fn reopen(&mut self) {
        self.store().close().await;
        self.store = Some(open_embedded(&self.folder));
    }

    async fn delete_page(&mut self, _database: &str, page_id: &str) {
        self.with_file(|database| {
            let key = page_row(database, page_id).0;
            let transaction = database.begin_write().expect("begin");
            transaction.open_table(PAGES).expect("the table").remove(&*key).expect("remove");
            transaction.commit().expect("commit");
        });
    }
}

/// Returns the row of the page in [`DB`] with this id, which is only in its key.
pub fn page_row(database: &Database, page_id: &str) -> (Vec<u8>, Vec<u8>) {
    let mut parts = page_id.splitn(2, ' ');
    let hour = parts.next().expect("an hour");
    let rest = parts.next().expect("a sensor and a number");
    let (sensor, number) = rest.rsplit_once(' ').expect("a number");
    let tail = [sensor.as_bytes(), &[0, 0], &number.parse::<u32>().expect("a number").to_be_bytes()].concat();
    let is_match = |key: &[u8]| {
        let Some(start) = key.strip_prefix(&[DB.as_bytes(), &[0, 0]].concat()[..]) else { return false };
        let (start, rest) = start.split_at(8);
        let start = Hour(i64::from_be_bytes(start.try_into().expect("eight bytes")) ^ i64::MIN);
        rest == tail && hourglass::store::document::page_id("", start, 0).starts_with(hour)
    };
    only_row(database, PAGES, |key, _| is_match(key))
}

/// Returns the only row of a table whose value contains this text.
pub fn row_with(database: &Database, table: Documents, text: &str) -> (Vec<u8>, Vec<u8>) {
    only_row(database, table, |_, value| value.windows(text.len()).any(|window| window == text.as_bytes()))
}

fn only_row(database: &Database, table: Documents, is_match: impl Fn(&[u8], &[u8]) -> bool) -> (Vec<u8>, Vec<u8>) {
    let transaction = database.begin_read().expect("begin");
    let table = transaction.open_table(table).expect("the table");
    let rows = table.iter().expect("rows").map(|row| {
        let (key, value) = row.expect("a row");
        (key.value().to_vec(), value.value().to_vec())
    });
    let mut found: Vec<_> = rows.filter(|(key, value)| is_match(key, value)).collect();
    assert_eq!(found.len(), 1, "rows");
    found.remove(0)
}

pub struct Mongo {
    database: String,
    store: MongoStore,
}

impl Mongo {
    pub async fn new() -> Mongo {
        let database = fresh_database_name();
        Mongo { store: open_mongo(&database).await, database }
    }
}

async fn open_mongo(database: &str) -> MongoStore {
    // All cases run at once, and a new collection costs the server some syncs.
    let options = MongoOptions { command_timeout: Duration::from_secs(60), ..MongoOptions::default() };
    MongoStore::open(&mongod().uri(database), options).await.expect("a good URI")
}

#[async_trait]
impl TestStore for Mongo {
    fn store(&self) -> &dyn Store {
        &self.store
    }

    async fn reopen(&mut self) {
        self.store.close().await;
        self.store = open_mongo(&self.database).await;
    }

    async fn delete_page(&mut self, database: &str, page_id: &str) {
        let client = mongodb::Client::with_uri_str(mongod().uri(&self.database)).await.expect("a good URI");
        let mut deleted = 0;
        for kind in ["buckets", "overflow"] {
            let name = format!("{}.{kind}", collection_prefix(database));
            let collection = client.database(&self.database).collection::<Document>(&name);
            deleted += collection.delete_one(doc! { "_id": page_id }).await.expect("delete").deleted_count;
        }
        assert_eq!(deleted, 1, "{page_id}");
    }
}

pub fn sensor(measurement: &str, tags: &[(&str, &str)]) -> Arc<Sensor> {
    Arc::new(Sensor::new(measurement, tags.iter().copied()).expect("distinct tags"))
}

pub fn bucket_id(sensor: &Arc<Sensor>, hour: Hour) -> BucketId {
    BucketId { sensor: sensor.clone(), hour }
}

pub fn reading(time: i64, fields: &[(&str, Value)]) -> Reading {
    Reading { time, fields: fields.iter().map(|(name, value)| (Arc::from(*name), value.clone())).collect() }
}

/// Returns readings of an integer field, a second apart, starting at second `from` of the hour.
pub fn seconds(hour: Hour, from: i64, values: &[i64]) -> Vec<Reading> {
    let time = |second: i64| hour.start_ns() + (from + second) * 1_000_000_000;
    (0..).zip(values).map(|(second, value)| reading(time(second), &[("n", Value::Integer(*value))])).collect()
}

/// Merges sorted readings into a bucket; every call is a new origin.
pub fn merge(bucket: &mut Bucket, readings: &[Reading], caps: &Caps) -> MergeCounts {
    use std::sync::atomic::{AtomicU64, Ordering};
    static SEQUENCE: AtomicU64 = AtomicU64::new(1);
    merge_as(SEQUENCE.fetch_add(1, Ordering::Relaxed), bucket, readings, caps)
}

pub fn merge_as(stamp: u64, bucket: &mut Bucket, readings: &[Reading], caps: &Caps) -> MergeCounts {
    type Parts = (i64, Vec<Arc<str>>, Vec<(u16, Value)>);
    let parts = |reading: &Reading| -> Parts {
        let cells = (0..).zip(&reading.fields).map(|(index, (_, value))| (index, value.clone()));
        (reading.time, reading.fields.iter().map(|(name, _)| name.clone()).collect(), cells.collect())
    };
    let parts: Vec<Parts> = readings.iter().map(parts).collect();
    let rows = parts.iter().map(|(time, names, cells)| Row { time: *time, stamp, names, cells });
    bucket.apply(rows, &MergeOptions { caps, floor: 0, restamps: true })
}

/// Returns an unstored bucket of these readings.
pub fn bucket_of(readings: &[Reading], caps: &Caps) -> Bucket {
    let mut bucket = Bucket::default();
    merge(&mut bucket, readings, caps);
    bucket
}

pub async fn write_group(store: &dyn Store, id: &BucketId, bucket: &Bucket, group: &[usize]) -> WriteOutcome {
    let outcomes = store.write_pages(DB, &[PageWrite { id, bucket, group: group.to_vec() }]).await;
    assert_eq!(outcomes.len(), 1);
    outcomes[0].clone()
}

/// Writes until the bucket is stored; returns false at a conflict or behind another transaction.
pub async fn write_through(store: &dyn Store, database: &str, id: &BucketId, bucket: &mut Bucket) -> bool {
    loop {
        let groups = bucket.next_writes();
        if groups.is_empty() {
            return true;
        }
        let writes: Vec<_> =
            groups.iter().map(|group| PageWrite { id, bucket: &*bucket, group: group.clone() }).collect();
        let outcomes = store.write_pages(database, &writes).await;
        assert_eq!(outcomes.len(), groups.len());
        drop(writes);
        for (group, outcome) in groups.iter().zip(&outcomes) {
            match outcome {
                WriteOutcome::Applied => bucket.mark_written(group),
                WriteOutcome::Conflict => {}
                WriteOutcome::Failed(error) => assert!(error.is_transient(), "{error}"),
            }
        }
        if outcomes.iter().any(|outcome| *outcome != WriteOutcome::Applied) {
            return false;
        }
    }
}

/// Stores a new bucket of these readings in [`DB`].
pub async fn put(store: &dyn Store, id: &BucketId, readings: &[Reading], caps: &Caps) -> Bucket {
    let mut bucket = bucket_of(readings, caps);
    assert!(write_through(store, DB, id, &mut bucket).await, "the bucket is new");
    bucket
}

pub async fn read(store: &dyn Store, database: &str, id: &BucketId) -> Vec<StoredPage> {
    let mut buckets =
        store.read_buckets(database, std::slice::from_ref(id), usize::MAX).await.expect("the bucket can be read");
    assert_eq!(buckets.len(), 1);
    buckets.remove(0)
}

/// Scans a sensor's pages in [`DB`].
pub async fn scan(
    store: &dyn Store,
    sensor: &str,
    hours: Range<Hour>,
    order: Order,
    projection: &Projection,
    extent: Extent,
) -> ScanResult {
    store.scan(DB, sensor, hours, order, projection, extent).await.expect("a scan")
}

/// Checks that the stored pages equal the bucket's view.
#[track_caller]
pub fn assert_stored(bucket: &Bucket, stored: &[StoredPage]) {
    let numbers = |pages: &mut dyn Iterator<Item = u32>| pages.collect::<Vec<_>>();
    assert_eq!(numbers(&mut stored.iter().map(|p| p.number)), numbers(&mut bucket.pages().iter().map(|p| p.number)));
    for (page, stored) in bucket.pages().iter().zip(stored) {
        assert_page(page, stored);
    }
}

#[track_caller]
pub fn assert_page(page: &Page, stored: &StoredPage) {
    assert_eq!(stored.number, page.number);
    assert_eq!(stored.rev, page.rev(), "rev of page {}", page.number);
    assert_eq!((stored.closed, stored.has_overflow), (page.closed, page.has_overflow), "marks of page {}", page.number);
    assert_eq!(stored.readings, page.readings, "readings of page {}", page.number);
}

/// Readings by time and field, without the order of fields.
pub type Plain = BTreeMap<i64, BTreeMap<String, Value>>;

/// Returns all readings of a bucket; panics if a time is on two pages.
#[track_caller]
pub fn plain<'a>(pages: impl Iterator<Item = &'a hourglass::bucket::Readings>) -> Plain {
    let mut all = Plain::new();
    for readings in pages {
        for (index, time) in readings.times().iter().enumerate() {
            let fields = readings.fields(index).map(|(name, value)| (name.to_string(), value.clone()));
            assert!(all.insert(*time, fields.collect()).is_none(), "{time} stands on two pages");
        }
    }
    all
}
