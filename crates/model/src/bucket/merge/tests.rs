//! Tests merging against a plain map: single merges first, then racing writers on a simulated store.

mod simulated;
mod splits;
mod writes;

use std::collections::BTreeMap;

use proptest::prelude::*;

use self::simulated::{
    Choices, Model, Origin, SimulatedStore, TestRow, World, apply, check_summaries, merge_into_model, union,
};
use super::*;
use crate::bucket::page::WriteKind;
use crate::bucket::readings::reading_bytes;
use crate::reading::Hour;

const HOUR_NS: i64 = 3_600_000_000_000;

fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

fn values() -> impl Strategy<Value = Value> {
    prop_oneof![
        4 => prop::sample::select(vec![0.0, -0.0, 0.1, 0.2, -1.5, 1e16, -1e16, 1.0, 3e-300]).prop_map(Value::Float),
        4 => prop::sample::select(vec![0, 1, -1, 7, (1 << 53) + 1, i64::MAX, i64::MIN]).prop_map(Value::Integer),
        1 => (1 << 63..=u64::MAX).prop_map(Value::Unsigned),
        1 => any::<bool>().prop_map(Value::Boolean),
        2 => (0..90_usize).prop_map(|len| Value::String("x".repeat(len).into())),
    ]
}

fn fields() -> impl Strategy<Value = Vec<(&'static str, Value)>> {
    let names = prop::sample::subsequence(vec!["a", "temp", "label", "humidity"], 1..=3).prop_shuffle();
    (names, prop::collection::vec(values(), 3)).prop_map(|(names, values)| names.into_iter().zip(values).collect())
}

/// Times from few milliseconds at either end of an hour, so that they collide often.
fn times() -> impl Strategy<Value = i64> {
    let within = prop_oneof![0..14_i64, 3_599_996..3_600_000_i64];
    (within, prop::sample::select(vec![0, 0, 1, 500_000, 999_999])).prop_map(|(ms, rest)| ms * MILLI_NS + rest)
}

fn rows(count: impl Into<prop::collection::SizeRange>) -> impl Strategy<Value = Vec<TestRow>> {
    prop::collection::vec((times(), fields()), count)
}

fn caps() -> impl Strategy<Value = Caps> {
    (1..6_usize, 60..400_usize, 0..300_usize).prop_map(|(max_readings, max_bytes, more)| Caps {
        max_readings,
        max_bytes,
        hard_bytes: max_bytes + more,
    })
}

/// Jobs of one or two merges each.
fn batches(jobs: usize) -> impl Strategy<Value = Vec<Vec<Vec<TestRow>>>> {
    prop::collection::vec(prop::collection::vec(rows(1..7), 1..=2), 0..jobs)
}

fn hours() -> impl Strategy<Value = i64> {
    prop::sample::select(vec![-490_000, -2, -1, 0, 1, 490_000])
}

fn place(batches: &mut [Vec<Vec<TestRow>>], hour: i64) {
    for (time, _) in batches.iter_mut().flatten().flatten() {
        *time += hour * HOUR_NS;
        assert_eq!(Hour::from_ns(*time), Hour(hour));
    }
}

fn roomy() -> Caps {
    Caps { max_readings: 3600, max_bytes: 1 << 20, hard_bytes: 4 << 20 }
}

/// The origin of rows from the only writer.
fn origin(stamp: Stamp) -> Origin {
    Origin { stamp, shared: false }
}

fn float(time: i64, value: f64) -> TestRow {
    (time, vec![("v", Value::Float(value))])
}

fn text(time: i64, len: usize) -> TestRow {
    (time, vec![("v", Value::String("x".repeat(len).into()))])
}

fn row_bytes((time, fields): &TestRow) -> usize {
    reading_bytes(*time, fields.iter().map(|(name, value)| (*name, value)))
}

/// A bucket after merges from one WAL, each with its own stamp.
fn merge_all(merges: &[Vec<TestRow>], caps: &Caps) -> (Bucket, Vec<MergeCounts>) {
    let mut bucket = Bucket::default();
    let applied = (1..).zip(merges).map(|(stamp, rows)| apply(&mut bucket, rows, caps, origin(stamp)));
    let applied = applied.collect();
    (bucket, applied)
}

/// Writes until no write is pending; every write must succeed.
fn store_all(store: &mut SimulatedStore, bucket: &mut Bucket) {
    loop {
        let groups = bucket.next_writes();
        if groups.is_empty() {
            assert_eq!(union(bucket), union(&store.load()), "without pending writes everything is stored");
            return;
        }
        for group in groups {
            assert!(store.write(bucket, &group), "nobody else writes");
            bucket.mark_written(&group);
        }
    }
}

fn distinct(rows: Vec<TestRow>) -> Vec<TestRow> {
    rows.into_iter().collect::<BTreeMap<_, _>>().into_iter().collect()
}

proptest! {
    #![proptest_config(cases(200))]

    #[test]
    fn merging_is_union_and_later_wins_by_field(merges in prop::collection::vec(rows(0..12), 0..6), caps in caps()) {
        let (bucket, applied) = merge_all(&merges, &caps);
        let mut model = Model::new();
        for (rows, applied) in merges.iter().zip(applied) {
            let before = model.clone();
            merge_into_model(&mut model, rows);
            prop_assert_eq!(applied.new, (model.len() - before.len()) as u64);
            let latest = before.last_key_value().map(|(time, _)| *time);
            let is_late = |time: &&i64| !before.contains_key(time) && latest.is_some_and(|latest| **time < latest);
            prop_assert_eq!(applied.late, model.keys().filter(is_late).count() as u64);
            prop_assert_eq!(applied.new + applied.duplicate + applied.overwritten, rows.len() as u64);
        }
        prop_assert_eq!(union(&bucket), model);
    }

    #[test]
    fn merging_is_idempotent(rows in rows(1..20), caps in caps()) {
        let rows = distinct(rows);
        let mut store = SimulatedStore::new(caps);
        let (mut bucket, _) = merge_all(std::slice::from_ref(&rows), &caps);
        store_all(&mut store, &mut bucket);
        let written = store.writes;
        let once = union(&bucket);
        for mut again in [bucket, store.load()] {
            let applied = apply(&mut again, &rows, &caps, origin(2));
            prop_assert_eq!(applied, MergeCounts { duplicate: rows.len() as u64, ..MergeCounts::default() });
            prop_assert!(again.next_writes().is_empty(), "duplicates cause no write");
            prop_assert_eq!(&union(&again), &once);
        }
        prop_assert_eq!(store.writes, written);
    }

    #[test]
    fn distinct_readings_commute(
        rows in rows(1..24),
        caps in caps(),
        cuts in prop::collection::vec(1..9_usize, 24),
        choices: Vec<u8>,
    ) {
        let rows = distinct(rows);
        let mut shuffled = rows.clone();
        let mut choices = Choices::new(choices);
        for i in (1..shuffled.len()).rev() {
            shuffled.swap(i, choices.below(i + 1));
        }
        let mut merges = Vec::new();
        let mut rest = &shuffled[..];
        for cut in cuts {
            let (now, later) = rest.split_at(cut.min(rest.len()));
            merges.push(now.to_vec());
            rest = later;
        }
        prop_assert_eq!(union(&merge_all(&merges, &caps).0), union(&merge_all(&[rows], &caps).0));
    }

    #[test]
    fn batching_does_not_matter(merges in prop::collection::vec(rows(0..8), 0..6), caps in caps()) {
        let together: Vec<TestRow> = merges.concat();
        prop_assert_eq!(union(&merge_all(&merges, &caps).0), union(&merge_all(&[together], &caps).0));
    }

    #[test]
    fn pages_stay_within_caps_without_overwrites(rows in rows(1..40), caps in caps()) {
        let (bucket, _) = merge_all(&distinct(rows).chunks(5).map(<[TestRow]>::to_vec).collect::<Vec<_>>(), &caps);
        for page in bucket.pages() {
            prop_assert!(page.readings.len() <= caps.max_readings);
            prop_assert!(page.readings.bytes() <= caps.max_bytes || page.readings.len() == 1);
        }
    }

    #[test]
    fn the_tail_is_the_latest(merges in prop::collection::vec(rows(0..8), 0..5), caps in caps(), count in 0..20_usize) {
        let (bucket, _) = merge_all(&merges, &caps);
        let tail: Vec<i64> = bucket.tail(count).iter().map(|reading| reading.time).collect();
        let all = union(&bucket);
        let latest = all.keys().skip(all.len().saturating_sub(count)).copied().collect::<Vec<_>>();
        prop_assert_eq!(&tail, &latest);
        // The tail of a partial bucket is equal or unknown. Loading the pages in `needed_for_tail` makes it known.
        let mut partial = reload(&bucket);
        partial.leave_out(1);
        if let Some(tail) = partial.clone().pack().tail(count) {
            prop_assert_eq!(tail.iter().map(|reading| reading.time).collect::<Vec<_>>(), latest.clone());
        }
        let needed = partial.needed_for_tail(count);
        let loaded = stored_pages(&bucket).filter(|page| needed.contains(&page.number)).collect();
        prop_assert!(partial.load(&needed, loaded));
        prop_assert_eq!(partial.tail(count).iter().map(|reading| reading.time).collect::<Vec<_>>(), latest);
    }
}

proptest! {
    #![proptest_config(cases(400))]

    /// One writer under every kind of network fault: the store ends up equal to the model.
    #[test]
    fn one_writer_stores_the_model(caps in caps(), mut batches in batches(8), hour in hours(), choices: Vec<u8>) {
        place(&mut batches, hour);
        let mut model = Model::new();
        batches.iter().flatten().for_each(|rows| merge_into_model(&mut model, rows));
        let mut world = World::new(caps, vec![batches]);
        world.run(&mut Choices::new(choices));
        prop_assert_eq!(union(&world.store.load()), model);
    }

    /// Several writers race, each with an arbitrarily outdated view.
    #[test]
    fn racing_writers_lose_and_double_nothing(
        caps in caps(),
        mut batches in prop::collection::vec(batches(6), 2..=3),
        hour in hours(),
        choices in prop::collection::vec(any::<u8>(), 0..400),
    ) {
        batches.iter_mut().for_each(|batches| place(batches, hour));
        race(caps, batches, choices);
    }

    /// Like the previous test, with few times and values, so that most writes are corrections.
    #[test]
    fn writes_after_an_ack_win(
        caps in caps(),
        batches in prop::collection::vec(
            prop::collection::vec(prop::collection::vec(corrections(), 1..=2), 0..6),
            2..=3,
        ),
        choices in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        race(caps, batches, choices);
    }
}

fn corrections() -> impl Strategy<Value = Vec<TestRow>> {
    let row = (0..3_i64, 0..3_usize, 0..3_i64).prop_map(|(time, grown, v)| {
        let grown = ("grown", Value::String("x".repeat(100 * grown).into()));
        (time, if v == 0 { vec![grown] } else { vec![("v", Value::Integer(v)), grown] })
    });
    prop::collection::vec(row, 1..3)
}

fn race(caps: Caps, batches: Vec<Vec<Vec<Vec<TestRow>>>>, choices: Vec<u8>) {
    let mut world = World::new(caps, batches);
    world.run(&mut Choices::new(choices));
    let mut merges: Vec<&(Stamp, Vec<TestRow>)> =
        world.writers.iter().flat_map(|writer| &writer.done).flat_map(|job| &job.merges).collect();
    merges.sort_by_key(|(stamp, _)| *stamp);
    let mut model = Model::new();
    merges.iter().for_each(|(_, rows)| merge_into_model(&mut model, rows));
    assert_eq!(union(&world.store.load()), model, "the greatest stamp of each cell");
}

#[test]
fn a_page_takes_exactly_its_cap_of_readings() {
    let caps = Caps { max_readings: 10, ..roomy() };
    for (count, pages) in [(9, vec![9]), (10, vec![10]), (11, vec![10, 1]), (20, vec![10, 10]), (21, vec![10, 10, 1])] {
        let rows: Vec<TestRow> = (0..count).map(|i| float(i * MILLI_NS, 1.0)).collect();
        for merges in [vec![rows.clone()], rows.chunks(3).map(<[TestRow]>::to_vec).collect()] {
            let (bucket, _) = merge_all(&merges, &caps);
            let found: Vec<usize> = bucket.pages().iter().map(|page| page.readings.len()).collect();
            assert_eq!(found, pages, "{count} readings");
            assert_eq!(bucket.pages()[0].has_overflow, pages.len() > 1);
            let overflow = bucket.pages()[0].overflow.map(|overflow| (overflow.pages, overflow.count));
            assert_eq!(overflow, (pages.len() > 1).then(|| (pages.len() as u32 - 2, 10 * (pages.len() as u64 - 2))));
            let open: Vec<bool> = bucket.pages().iter().map(|page| !page.closed).collect();
            assert_eq!(open.iter().rposition(|open| *open), Some(pages.len() - 1), "only the last page is open");
            assert_eq!(open.iter().filter(|open| **open).count(), 1);
        }
    }
}

/// Regression: page 0 kept the overflow mark after a deletion had emptied all other pages.
#[test]
fn a_page_0_that_a_deletion_leaves_alone_has_no_overflow() {
    let caps = Caps { max_readings: 10, ..roomy() };
    let rows: Vec<TestRow> = (0..11).map(|i| float(i * MILLI_NS, 1.0)).collect();
    let (mut bucket, _) = merge_all(&[rows], &caps);
    store_all(&mut SimulatedStore::new(caps), &mut bucket);
    assert_eq!(bucket.delete(&(10 * MILLI_NS..11 * MILLI_NS), 9), 1);
    let mut refilled = bucket.clone();
    assert_eq!(bucket.next_writes(), [[0, 1]], "together");
    bucket.mark_written(&[0, 1]);
    let found = |bucket: &Bucket| {
        let first = &bucket.pages()[0];
        (bucket.pages().len(), first.has_overflow, first.overflow.is_some())
    };
    assert_eq!(found(&bucket), (1, false, false));
    apply(&mut refilled, &[float(20 * MILLI_NS, 1.0)], &caps, origin(10));
    assert_eq!(found(&refilled), (2, true, true), "the page is used again");
    let mut emptied = refilled.clone();
    emptied.mark_written(&[0, 1]);
    assert_eq!(emptied.delete(&(0..30 * MILLI_NS), 11), 11);
    apply(&mut emptied, &[float(MILLI_NS, 1.0)], &caps, origin(12));
    assert_eq!(found(&emptied), (2, false, false), "page 0 is used again, and page 1 removed");
}

#[test]
fn a_page_takes_exactly_its_cap_of_bytes() {
    let rows: Vec<TestRow> = (0..12).map(|i| float(i * MILLI_NS, 1.0)).collect();
    let one = row_bytes(&rows[0]);
    for (max_bytes, first) in [(4 * one - 1, 3), (4 * one, 4), (4 * one + 1, 4), (5 * one - 1, 4), (5 * one, 5)] {
        let (bucket, _) = merge_all(std::slice::from_ref(&rows), &Caps { max_bytes, ..roomy() });
        assert_eq!(bucket.pages()[0].readings.len(), first, "{max_bytes} bytes");
        assert_eq!(bucket.pages()[0].readings.bytes(), first * one);
    }
    // A reading larger than a page gets a page of its own, and does not affect other readings.
    let large = [text(0, 10), text(MILLI_NS, 5000), text(2 * MILLI_NS, 10), text(3 * MILLI_NS, 10)];
    let (bucket, _) = merge_all(&[large.to_vec()], &Caps { max_bytes: 200, hard_bytes: 800, ..roomy() });
    let found: Vec<usize> = bucket.pages().iter().map(|page| page.readings.len()).collect();
    assert_eq!(found, [1, 1, 2]);
}

#[test]
fn a_retried_merge_does_not_overwrite_a_newer_correction() {
    let mut store = SimulatedStore::new(roomy());
    let rows = [float(1, 1.0), float(2, 1.0)];
    let mut bucket = Bucket::default();
    apply(&mut bucket, &rows, &roomy(), origin(5));
    assert!(store.write(&bucket, &[0]), "the write is applied, but the answer is lost");
    let mut other = store.load();
    let correction = apply(&mut other, &[float(2, 9.0)], &roomy(), origin(6));
    assert_eq!(correction.overwritten, 1);
    store_all(&mut store, &mut other);

    let mut reloaded = store.load();
    let resent = apply(&mut reloaded, &rows, &roomy(), origin(5));
    let expected = MergeCounts { new: 1, duplicate: 1, ..MergeCounts::default() };
    assert_eq!(resent, expected, "the earlier attempt stored them, and one was corrected since");
    assert!(reloaded.next_writes().is_empty());
    let later = apply(&mut reloaded, &rows, &roomy(), origin(7));
    assert_eq!(later, MergeCounts { duplicate: 1, overwritten: 1, ..MergeCounts::default() }, "a new stamp overwrites");
}

/// Regression: instance A acked v=1, instance B acked v=2 and stored it, then A flushed, and v=1 was stored for good,
/// without any fault. Also: a later write of an equal value did not store its stamp, so another instance's older
/// unflushed value won over it.
#[test]
fn the_greater_stamp_wins_in_any_order() {
    let mut bucket = Bucket::default();
    apply(&mut bucket, &[float(1, 2.0)], &roomy(), origin(20));
    let older = apply(&mut bucket, &[float(1, 1.0)], &roomy(), origin(10));
    assert_eq!((older.duplicate, &union(&bucket)[&1]["v"]), (1, &Value::Float(2.0)));
    let mut store = SimulatedStore::new(roomy());
    store_all(&mut store, &mut bucket);
    let equal = apply(&mut bucket, &[float(1, 2.0)], &roomy(), Origin { stamp: 40, shared: true });
    assert_eq!((equal.duplicate, bucket.next_writes()), (1, vec![vec![0]]), "its stamp must be written");
    store_all(&mut store, &mut bucket);
    let mut other = store.load();
    apply(&mut other, &[float(1, 3.0)], &roomy(), origin(30));
    assert_eq!(union(&other)[&1]["v"], Value::Float(2.0));
}

#[test]
fn the_last_line_of_a_request_wins() {
    let mut bucket = Bucket::default();
    let rows = [float(1, 9.0), (1, vec![("w", Value::Integer(1))]), float(1, 2.0)];
    let applied = apply(&mut bucket, &rows, &roomy(), origin(5));
    assert_eq!((applied.new, applied.overwritten), (1, 2));
    let once = union(&bucket);
    assert_eq!((&once[&1]["v"], &once[&1]["w"]), (&Value::Float(2.0), &Value::Integer(1)));
    let again = apply(&mut bucket, &rows, &roomy(), origin(5));
    assert_eq!((again.new, union(&bucket)), (1, once), "and again at a replay");
}

/// Rows at or below the floor come from a WAL that the floor no longer waited for.
#[test]
fn below_the_floor_only_missing_cells_are_merged() {
    let mut bucket = Bucket::default();
    apply(&mut bucket, &[float(1, 1.0)], &roomy(), origin(50));
    let names = [Arc::from("v")];
    let cells = [[(0, Value::Float(1.0))], [(0, Value::Float(2.0))]];
    let row = |time, cells| Row { time, stamp: 40, names: &names, cells };
    let options = MergeOptions { caps: &roomy(), floor: 60, restamps: true };
    let rows = [row(0, &cells[0]), row(1, &cells[1])];
    let applied = bucket.apply(rows.into_iter(), &options);
    assert_eq!((applied.new, applied.set_aside, bucket.set_aside()), (1, 1, &[1][..]));
    assert_eq!(union(&bucket)[&1]["v"], Value::Float(1.0));
    let same = bucket.apply([row(1, &cells[0])].into_iter(), &options);
    assert_eq!((same.duplicate, same.set_aside), (1, 0));
    assert!(bucket.pages()[0].readings.stamps().is_settled());
}

/// Regression: a WAL that returned below the floor conflicted with itself. Of a value and its correction the first one
/// was stored, and of two fields sent one after the other only the first. Where the bucket had other values, only one
/// of several lines of a request was reported as set aside, and the others were lost.
#[test]
fn below_the_floor_rows_of_one_time_are_merged_or_set_aside_together() {
    let mut bucket = Bucket::default();
    apply(&mut bucket, &[float(1, 1.0)], &roomy(), origin(50));
    let names = [Arc::from("v"), Arc::from("w")];
    let cells = [[(0, Value::Float(2.0))], [(0, Value::Float(3.0))], [(1, Value::Integer(4))]];
    let row = |time, stamp, cells| Row { time, stamp, names: &names, cells };
    let of = |time| [row(time, 40, &cells[0]), row(time, 41, &cells[1]), row(time, 42, &cells[2])];
    let options = MergeOptions { caps: &roomy(), floor: 60, restamps: true };
    let applied = bucket.apply(of(0).into_iter().chain(of(1)), &options);
    assert_eq!((applied.new, applied.overwritten, applied.set_aside), (1, 2, 3));
    assert_eq!(bucket.set_aside(), [3, 4, 5]);
    let now = union(&bucket);
    assert_eq!((&now[&0]["v"], &now[&0]["w"]), (&Value::Float(3.0), &Value::Integer(4)));
    assert_eq!((&now[&1]["v"], now[&1].get("w")), (&Value::Float(1.0), None));
}

/// The pages as a store would return them.
fn stored_pages(bucket: &Bucket) -> impl Iterator<Item = StoredPage> {
    bucket.pages().iter().map(|page| StoredPage {
        number: page.number,
        rev: 1,
        closed: page.closed,
        has_overflow: page.has_overflow,
        readings: page.readings.clone(),
        cut: false,
        left_out: None,
    })
}

fn reload(bucket: &Bucket) -> Bucket {
    Bucket::from_stored(stored_pages(bucket))
}

#[test]
fn a_field_can_change_its_type_within_a_page() {
    let max = Value::Integer(i64::MAX);
    let values =
        [max.clone(), max, Value::Unsigned(u64::MAX), Value::Float(0.5), Value::Integer(3), Value::Boolean(true)];
    let mut bucket = Bucket::default();
    for (i, value) in (0..).zip(&values) {
        apply(&mut bucket, &[(i, vec![("v", value.clone())])], &roomy(), origin(i.unsigned_abs() + 1));
        check_summaries(&bucket.pages()[0].readings);
    }
    // Once the float is overwritten, the sum is an integer again.
    apply(&mut bucket, &[(3, vec![("v", Value::Integer(0))])], &roomy(), origin(9));
    check_summaries(&bucket.pages()[0].readings);
    let (_, summary) = bucket.pages()[0].readings.summaries().next().expect("a number field");
    let crate::bucket::Summary::Integers(fold) = summary else { panic!("all are integers") };
    assert_eq!(fold.sum, 2 * i128::from(i64::MAX) + i128::from(u64::MAX) + 3);
}

#[test]
fn a_bucket_counts_the_memory_of_its_texts() {
    let (bucket, _) = merge_all(&[(0..100).map(|i| text(i, 1000)).collect()], &roomy());
    let packed = bucket.pack();
    assert!((100_000..150_000).contains(&packed.memory()), "{}", packed.memory());
    assert!((100_000..150_000).contains(&packed.unpacked_memory()), "{}", packed.unpacked_memory());
}
