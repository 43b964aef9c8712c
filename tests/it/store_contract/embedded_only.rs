//! Properties of the embedded store only: lock, checksums, format, close.

use std::pin::pin;
use std::task::{Context, Waker};

use hourglass::bucket::store::{Extent, Order, PageWrite, Projection, SensorFilter, WriteOutcome};
use hourglass::bucket::{Reading, SensorDocument, StorageError};
use hourglass::reading::{Hour, Value};
use hourglass::store::document::page_id;
use hourglass::store::embedded::{EmbeddedStore, FILE_NAME, FileOpenError};
use redb::{Database, TableDefinition};

use crate::support::prelude::*;

use super::test_store::{
    CAPS, DB, Documents, Embedded, PAGES, SENSORS, TestStore, assert_stored, bucket_id, bucket_of, merge, page_row,
    put, read, reading, row_with, seconds, sensor,
};

const HOUR: Hour = Hour(491_150);

/// Changes one byte in the middle of a row.
fn damage(database: &Database, table: Documents, key: &[u8], mut value: Vec<u8>) {
    let middle = value.len() / 2;
    value[middle] ^= 1;
    set(database, table, key, &value);
}

/// Appends the store's checksum to a value.
fn with_checksum(key: &[u8], mut bytes: Vec<u8>) -> Vec<u8> {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(key);
    hasher.update(&bytes);
    bytes.extend_from_slice(&hasher.finalize().to_le_bytes());
    bytes
}

/// Sets the format version of the file.
fn set_version(database: &Database, version: u64) {
    let transaction = database.begin_write().expect("begin");
    let meta: TableDefinition<&str, u64> = TableDefinition::new("meta");
    transaction.open_table(meta).expect("the table").insert("version", version).expect("insert");
    transaction.commit().expect("commit");
}

fn set(database: &Database, table: Documents, key: &[u8], value: &[u8]) {
    let transaction = database.begin_write().expect("begin");
    transaction.open_table(table).expect("the table").insert(key, value).expect("insert");
    transaction.commit().expect("commit");
}

#[track_caller]
fn assert_unreadable<T: std::fmt::Debug>(result: Result<T, StorageError>, expected: &str) {
    match result {
        Err(StorageError::Unreadable { id, .. }) => assert_eq!(id, expected),
        other => panic!("{other:?} is not about {expected} being unreadable"),
    }
}

#[tokio::test]
async fn a_damaged_page_is_named_and_never_overwritten() {
    let mut target = Embedded::new();
    let good = bucket_id(&sensor("good", &[]), HOUR);
    let bad = bucket_id(&sensor("bad", &[]), HOUR);
    let mut bucket = put(target.store(), &good, &seconds(HOUR, 0, &[1]), &CAPS).await;
    put(target.store(), &bad, &seconds(HOUR, 0, &[1]), &CAPS).await;
    let bad_page = page_id("bad", HOUR, 0);
    target.with_file(|database| {
        let (key, value) = page_row(database, &bad_page);
        damage(database, PAGES, &key, value);
    });

    assert_unreadable(target.store().read_buckets(DB, &[good.clone(), bad.clone()], usize::MAX).await, &bad_page);
    assert_unreadable(
        target
            .store()
            .scan(DB, "bad", HOUR..HOUR.next(), Order::Ascending, &Projection::SUMMARIES, Extent::pages(9))
            .await,
        &bad_page,
    );
    assert_stored(&bucket, &read(target.store(), DB, &good).await);
    // A walk names it and continues.
    let walked = target.store().walk_buckets(DB, None, 100).await.expect("a part").found;
    let [bad_bucket, good_bucket] = &walked[..] else { panic!("{walked:?}") };
    assert_unreadable(bad_bucket.pages[0].clone(), &bad_page);
    assert!(good_bucket.pages[0].is_ok());
    // The other writes of the call succeed.
    let new = bucket_of(&seconds(HOUR, 5, &[2]), &CAPS);
    merge(&mut bucket, &seconds(HOUR, 5, &[2]), &CAPS);
    let writes = [(&bad, &new), (&good, &bucket)].map(|(id, bucket)| PageWrite { id, bucket, group: vec![0] });
    let outcomes = target.store().write_pages(DB, &writes).await;
    assert!(matches!(&outcomes[0], WriteOutcome::Failed(StorageError::Unreadable { id, .. }) if *id == bad_page));
    assert_eq!(outcomes[1], WriteOutcome::Applied);
    assert_unreadable(target.store().read_buckets(DB, std::slice::from_ref(&bad), usize::MAX).await, &bad_page);
}

#[tokio::test]
async fn a_page_under_a_wrong_key_is_unreadable() {
    let mut target = Embedded::new();
    let id = bucket_id(&sensor("climate", &[]), HOUR);
    put(target.store(), &id, &seconds(HOUR, 0, &[1]), &CAPS).await;
    put(target.store(), &bucket_id(&id.sensor, HOUR.next()), &seconds(HOUR.next(), 0, &[2]), &CAPS).await;
    target.with_file(|database| {
        let (key, _) = page_row(database, &page_id("climate", HOUR, 0));
        let (_, value) = page_row(database, &page_id("climate", HOUR.next(), 0));
        set(database, PAGES, &key, &value);
    });
    assert_unreadable(target.store().read_buckets(DB, &[id], usize::MAX).await, &page_id("climate", HOUR, 0));
}

#[tokio::test]
async fn a_damaged_sensor_is_named() {
    let mut target = Embedded::new();
    let document = SensorDocument::new(sensor("climate", &[("room", "lab")]));
    assert_eq!(target.store().write_sensors(DB, std::slice::from_ref(&document)).await, [WriteOutcome::Applied]);
    target.with_file(|database| {
        let (key, value) = row_with(database, SENSORS, "climate,room=lab");
        damage(database, SENSORS, &key, value);
    });
    let key = "climate,room=lab";
    assert_unreadable(target.store().read_sensors(DB, &[key]).await, key);
    let filter = SensorFilter { limit: 9, ..SensorFilter::default() };
    assert_unreadable(target.store().list_sensors(DB, &filter).await, key);
    let walked = target.store().walk_sensors(DB, None, 9).await.expect("a part").found;
    assert_unreadable(walked[0].document.clone(), key);
    let outcomes = target.store().write_sensors(DB, &[SensorDocument { rev: 1, ..document }]).await;
    assert!(matches!(&outcomes[..], [WriteOutcome::Failed(StorageError::Unreadable { .. })]), "{outcomes:?}");
}

#[tokio::test]
async fn a_folder_is_used_by_one_store_at_a_time() {
    let mut target = Embedded::new();
    let second = EmbeddedStore::open(target.folder().path(), 1 << 20);
    let Err(error @ FileOpenError::InUse { .. }) = second.map(drop) else { panic!("the file is locked") };
    assert!(error.to_string().starts_with("another process has "), "{error}");
    target.store().close().await;
    let again = EmbeddedStore::open(target.folder().path(), 1 << 20).expect("closing lets go of the lock");
    drop(again);
    target.reopen().await;
}

#[tokio::test]
async fn a_closed_store_is_unavailable() {
    let target = Embedded::new();
    let id = bucket_id(&sensor("climate", &[]), HOUR);
    put(target.store(), &id, &seconds(HOUR, 0, &[1]), &CAPS).await;
    target.store().close().await;
    target.store().close().await;
    let unavailable = |error: &StorageError| matches!(error, StorageError::Unavailable { .. });
    assert!(target.store().check().await.is_err_and(|e| unavailable(&e)));
    assert!(target.store().databases().await.is_err_and(|e| unavailable(&e)));
    let bucket = bucket_of(&seconds(HOUR, 0, &[1]), &CAPS);
    let outcomes = target.store().write_pages(DB, &[PageWrite { id: &id, bucket: &bucket, group: vec![0] }]).await;
    assert!(matches!(&outcomes[..], [WriteOutcome::Failed(e)] if unavailable(e)));
}

#[tokio::test]
async fn a_store_dropped_without_close_keeps_everything() {
    let mut target = Embedded::new();
    let id = bucket_id(&sensor("climate", &[]), HOUR);
    let bucket = put(target.store(), &id, &seconds(HOUR, 0, &[1]), &CAPS).await;
    target.with_file(|_| {});
    assert_stored(&bucket, &read(target.store(), DB, &id).await);
}

#[tokio::test]
async fn a_write_completes_when_its_caller_is_dropped() {
    let target = Embedded::new();
    let ids: Vec<_> = (0..50).map(|n| bucket_id(&sensor(&format!("s{n}"), &[]), HOUR)).collect();
    let mut bucket = bucket_of(&seconds(HOUR, 0, &[1]), &CAPS);
    {
        let writes: Vec<_> = ids.iter().map(|id| PageWrite { id, bucket: &bucket, group: vec![0] }).collect();
        let mut write = pin!(target.store().write_pages(DB, &writes));
        assert!(write.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    bucket.mark_written(&[0]);
    loop {
        let stored = target.store().read_buckets(DB, &ids, usize::MAX).await.expect("all buckets");
        match stored.iter().filter(|pages| !pages.is_empty()).count() {
            50 => return stored.iter().for_each(|stored| assert_stored(&bucket, stored)),
            0 => assert!(tokio::time::Instant::now() < deadline, "the write went with its caller"),
            some => panic!("{some} of 50 pages of one call"),
        }
    }
}

#[test]
fn a_file_of_a_later_version_is_refused() {
    let folder = Folder::new("embedded");
    drop(EmbeddedStore::open(folder.path(), 1 << 20).expect("a new store"));
    let database = Database::open(folder.file(FILE_NAME)).expect("the file");
    set_version(&database, 2);
    drop(database);
    let error = EmbeddedStore::open(folder.path(), 1 << 20).map(drop).expect_err("an unknown version");
    assert!(matches!(error, FileOpenError::Newer(_, 2)), "{error}");
}

/// Any changed byte, even with a matching checksum, is either read as valid or the page is named.
#[tokio::test]
async fn a_damaged_byte_never_causes_a_wrong_read() {
    let mut target = Embedded::new();
    let id = bucket_id(&sensor("climate", &[("room", "lab")]), HOUR);
    let readings: Vec<Reading> = (0..5)
        .map(|n: i32| {
            let time = HOUR.start_ns() + i64::from(n) * 1_000_000_007;
            let text = Value::String("x".into());
            reading(time, &[("f", Value::Float(f64::from(n) / 3.0)), ("n", Value::Integer(n.into())), ("t", text)])
        })
        .collect();
    put(target.store(), &id, &readings, &CAPS).await;
    let page = page_id(&id.sensor.key, HOUR, 0);
    let (key, whole) = target.with_file(|database| page_row(database, &page));
    let whole = &whole[..whole.len() - 4];
    let mut named = 0;
    for at in 0..whole.len() {
        let mut changed = whole.to_vec();
        changed[at] ^= 0x81;
        target.with_file(|database| set(database, PAGES, &key, &with_checksum(&key, changed)));
        match target.store().read_buckets(DB, std::slice::from_ref(&id), usize::MAX).await {
            Ok(_) => {}
            // An unknown form belongs to a later version.
            Err(StorageError::Unreadable { id, .. } | StorageError::Newer { id, .. }) => {
                assert_eq!(id, page, "byte {at}");
                named += 1;
            }
            Err(other) => panic!("byte {at}: {other}"),
        }
        assert!(target.store().walk_buckets(DB, None, 9).await.is_ok(), "byte {at}");
        assert_eq!(target.store().check().await, Ok(()), "byte {at}");
    }
    assert!(named > whole.len() / 4, "{named} of {} bytes", whole.len());
}

#[test]
fn a_foreign_file_is_refused_and_left_alone() {
    let folder = Folder::new("embedded");
    std::fs::write(folder.file(FILE_NAME), "this is no database").expect("a file");
    let error = EmbeddedStore::open(folder.path(), 1 << 20).map(drop).expect_err("no store");
    assert!(matches!(error, FileOpenError::Unreadable { .. }), "{error:?}");
    assert_eq!(std::fs::read(folder.file(FILE_NAME)).expect("it is there"), b"this is no database");
}

#[test]
fn a_folder_that_cannot_be_created_is_named() {
    let folder = Folder::new("embedded");
    std::fs::write(folder.file("file"), "").expect("a file");
    let error = EmbeddedStore::open(&folder.file("file/data"), 1 << 20).map(drop).expect_err("no folder");
    assert!(matches!(error, FileOpenError::Folder { .. }), "{error:?}");
}
