//! Packing unflushed readings, and merging them into a bucket.

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use hourglass::bucket::exact::ExactSum;
use hourglass::bucket::packed::{PackedRows, UnpackedRows};
use hourglass::bucket::{Bucket, MergeCounts, MergeOptions};
use hourglass_benches::Rows;
use hourglass_benches::rows::CAPS;

/// Packs 60 readings of one sensor, as a shard does.
#[divan::bench]
fn pack_unflushed(bencher: Bencher<'_, '_>) {
    let rows = Rows::new(60, 1000, 0);
    bencher.counter(ItemsCount::new(rows.len())).bench_local(|| {
        let mut packed = PackedRows::default();
        black_box(&rows).push_to(&mut packed);
        packed
    });
}

/// Unpacks unflushed readings, which is the first step of a flush.
#[divan::bench]
fn unpack_unflushed(bencher: Bencher<'_, '_>) {
    let rows = Rows::new(60, 1000, 0);
    let mut packed = PackedRows::default();
    let mut unpacked = UnpackedRows::default();
    rows.push_to(&mut packed);
    bencher.counter(ItemsCount::new(rows.len())).bench_local(|| {
        unpacked.unpack_in_time_order([black_box(&packed)]);
        unpacked.rows(&[]).len()
    });
}

/// Adds each value to an exact sum, and finally rounds the sum and computes the rest, as a summary does.
#[divan::bench(args = [60, 3600])]
fn add_up(bencher: Bencher<'_, '_>, readings: usize) {
    let values: Vec<f64> = (0..readings).map(|n| 20.0 + (n * 37 % 100) as f64 / 100.0).collect();
    bencher.counter(ItemsCount::new(readings)).bench_local(|| {
        let mut sum = ExactSum::default();
        black_box(&values).iter().for_each(|value| sum.add(*value));
        sum.parts()
    });
}

/// Packs a whole bucket for the bucket cache.
#[divan::bench(args = [60, 3600])]
fn pack(bencher: Bencher<'_, '_>, readings: usize) {
    let stored = Rows::new(readings, 1000, 0).to_bucket();
    bencher.counter(ItemsCount::new(readings)).with_inputs(|| stored.clone()).bench_local_values(Bucket::pack);
}

#[divan::bench(args = [60, 3600])]
fn unpack(bencher: Bencher<'_, '_>, readings: usize) {
    let stored = Rows::new(readings, 1000, 0).to_bucket();
    bencher
        .counter(ItemsCount::new(readings))
        .with_inputs(|| stored.clone().pack())
        .bench_local_values(|packed| packed.unpack());
}

#[divan::bench]
fn merge_60_into_a_new_bucket(bencher: Bencher<'_, '_>) {
    merge(bencher, &Bucket::default(), &Rows::new(60, 1000, 0), |applied| applied.new == 60);
}

/// New readings after those of the bucket.
#[divan::bench(args = [60, 3000])]
fn merge_60_into_a_cached_bucket(bencher: Bencher<'_, '_>, readings: usize) {
    let stored = Rows::new(readings, 1000, 0).to_bucket();
    merge(bencher, &stored, &Rows::new(60, 1000, 3_000_000), |applied| (applied.new, applied.late) == (60, 0));
}

/// New readings between those of the bucket.
#[divan::bench(args = [60, 3000])]
fn merge_60_late(bencher: Bencher<'_, '_>, readings: usize) {
    let stored = Rows::new(readings, 1000, 0).to_bucket();
    merge(bencher, &stored, &Rows::new(60, 900, 500), |applied| applied.late > 0);
}

#[divan::bench(args = [60, 3000])]
fn merge_60_duplicates(bencher: Bencher<'_, '_>, readings: usize) {
    let stored = Rows::new(readings, 1000, 0).to_bucket();
    merge(bencher, &stored, &Rows::new(60, 1000, 0), |applied| applied.duplicate == 60);
}

fn merge(bencher: Bencher<'_, '_>, target: &Bucket, rows: &Rows, has_effect: impl Fn(MergeCounts) -> bool) {
    let options = MergeOptions { caps: &CAPS, floor: 0, restamps: true };
    // The stamp is later than those of the stored readings, or the rows would count as already applied.
    let apply = |mut bucket: Bucket| (bucket.apply(rows.rows(2), &options), bucket);
    assert!(has_effect(apply(target.clone()).0), "the rows have the effect that the benchmark's name states");
    bencher.counter(ItemsCount::new(rows.len())).with_inputs(|| target.clone()).bench_local_values(apply);
}
