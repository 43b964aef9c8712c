//! Encoding pages as BSON, as for MongoDB.

use std::sync::Arc;

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use hourglass::bucket::BucketId;
use hourglass::reading::{Hour, Sensor};
use hourglass::store::document::{append_update, page_document};
use hourglass_benches::Rows;

#[divan::bench(args = [60, 3600])]
fn page(bencher: Bencher<'_, '_>, readings: usize) {
    let bucket = Rows::new(readings, 1000, 0).to_bucket();
    let tags = [("sensor", "s000001"), ("site", "berlin")];
    let sensor = Arc::new(Sensor::new("climate", tags).expect("distinct tags"));
    let id = BucketId { sensor, hour: Hour::from_ns(bucket.pages()[0].readings.times()[0]) };
    bencher
        .counter(ItemsCount::new(readings))
        .bench_local(|| page_document(black_box(&id), black_box(&bucket.pages()[0])));
}

/// The update for the last 60 readings of a page.
#[divan::bench(args = [120, 3600])]
fn append_60(bencher: Bencher<'_, '_>, readings: usize) {
    let bucket = Rows::new(readings, 1000, 0).to_bucket();
    let page = &bucket.pages()[0];
    bencher.counter(ItemsCount::new(60_u32)).bench_local(|| append_update(black_box(page), readings - 60));
}
