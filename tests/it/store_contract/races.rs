//! Concurrent writers, each with the loop of ingest: read, merge, compare-and-set, and repeat after a conflict.

use hourglass::bucket::store::BucketId;
use hourglass::bucket::{Bucket, Caps, Reading, Store};
use hourglass::reading::{Hour, Value};

use super::test_store::{
    CAPS, DB, Plain, SMALL, TestStore, bucket_id, merge_as, plain, put, read, reading, sensor, write_through,
};

const HOUR: Hour = Hour(491_150);
const WRITERS: i64 = 16;
const BATCHES: i64 = 4;

/// Three readings: an own time, one shared with a neighbour, one shared with all; fields differ per writer.
fn batch(writer: i64, batch: i64) -> Vec<Reading> {
    let field = format!("w{writer}");
    let at = |second: i64| reading(HOUR.start_ns() + second * 1_000_000_000, &[(&field, Value::Integer(batch))]);
    let mut readings = vec![at(batch), at(100 + writer * BATCHES + batch), at(200 + (writer / 2) * BATCHES + batch)];
    readings.sort_unstable_by_key(|reading| reading.time);
    readings
}

async fn write_batches(store: &dyn Store, id: &BucketId, writer: i64, caps: &Caps) {
    for number in 0..BATCHES {
        loop {
            let mut bucket = Bucket::from_stored(read(store, DB, id).await);
            let sequence = u64::try_from(number).expect("small") + 1;
            merge_as(sequence, &mut bucket, &batch(writer, number), caps);
            if write_through(store, DB, id, &mut bucket).await {
                break;
            }
        }
    }
}

async fn race(store: &dyn Store, id: &BucketId, caps: &Caps) {
    let writers = (0..WRITERS).map(|writer| write_batches(store, id, writer, caps));
    futures_util::future::join_all(writers).await;
}

fn union() -> Plain {
    let mut all = Plain::new();
    for reading in (0..WRITERS).flat_map(|writer| (0..BATCHES).flat_map(move |number| batch(writer, number))) {
        let fields = reading.fields.iter().map(|(name, value)| (name.to_string(), value.clone()));
        all.entry(reading.time).or_default().extend(fields);
    }
    all
}

pub async fn writers_of_one_page_lose_nothing(target: &mut impl TestStore) {
    let id = bucket_id(&sensor("climate", &[]), HOUR);
    let first = put(target.store(), &id, &batch(0, 0), &CAPS).await;
    race(target.store(), &id, &CAPS).await;
    let stored = read(target.store(), DB, &id).await;
    assert_eq!(stored.len(), 1);
    assert_eq!(plain(stored.iter().map(|page| &page.readings)), union());
    assert_eq!(
        stored[0].rev - first.pages()[0].rev() + 1,
        u64::try_from(WRITERS * BATCHES).expect("small"),
        "one rev for every write that went through"
    );
}

pub async fn writers_of_an_overflowing_bucket_store_every_time_once(target: &mut impl TestStore) {
    let id = bucket_id(&sensor("fast", &[]), HOUR);
    race(target.store(), &id, &Caps { max_readings: 40, ..SMALL }).await;
    let stored = read(target.store(), DB, &id).await;
    assert!(stored.len() > 2, "{} pages", stored.len());
    assert_eq!(plain(stored.iter().map(|page| &page.readings)), union());
    assert_eq!(stored.iter().filter(|page| !page.closed).count(), 1, "one page is open");
    assert!(stored[0].has_overflow);
}
