//! Writing and reading pages.

use hourglass::bucket::store::{Extent, Order, PageWrite, Projection, WriteOutcome};
use hourglass::bucket::{Bucket, Caps, Reading, StoredPage, WriteKind};
use hourglass::reading::time::{TIMESTAMP_MAX, TIMESTAMP_MIN};
use hourglass::reading::{Hour, Value};
use hourglass::store::document::page_id;

use super::test_store::{
    CAPS, DB, SMALL, TestStore, assert_stored, bucket_id, bucket_of, merge, put, read, reading, scan, seconds, sensor,
    write_group, write_through,
};

const HOUR: Hour = Hour(491_150);

pub async fn values_names_and_times_round_trip(target: &mut impl TestStore) {
    let every_value = [
        ("temp", Value::Float(22.1)),
        ("minus zero", Value::Float(-0.0)),
        ("tiny", Value::Float(f64::from_bits(1))),
        ("integer", Value::Integer(i64::MIN)),
        ("unsigned", Value::Unsigned(u64::MAX)),
        ("barely unsigned", Value::Unsigned(1 << 63)),
        ("boolean", Value::Boolean(true)),
        ("text", Value::String("zwölf 🌡 \0 \"quoted\"".into())),
        ("no text", Value::String("".into())),
        ("a.b", Value::Integer(1)),
        ("$x", Value::Integer(2)),
        ("%", Value::Integer(3)),
        ("%2E", Value::Integer(4)),
        ("ts", Value::Integer(5)),
        ("ns", Value::Integer(6)),
        ("_id", Value::Integer(7)),
        ("température", Value::Integer(8)),
        ("nul\0", Value::Integer(9)),
    ];
    let odd = sensor("my climate", &[("a.b", "1"), ("$x", "2"), ("%", "3"), ("ts", "4"), ("ns", "ü, ="), ("_id", "5")]);
    let hour_ns = HOUR.start_ns();
    let times = [
        vec![hour_ns, hour_ns + 1, hour_ns + 999_999, hour_ns + 1_000_000, HOUR.end_ns() - 1],
        vec![-1],
        vec![Hour(-1).start_ns(), Hour(-1).start_ns() + 1],
        vec![-2_000_000_000_000_000_000],
        vec![0, 1],
        vec![TIMESTAMP_MIN],
        vec![TIMESTAMP_MAX],
    ];
    for times in times {
        let id = bucket_id(&odd, Hour::from_ns(times[0]));
        // The first reading has all fields, the others two each, so that the columns have gaps.
        let fields = |index: usize| if index == 0 { &every_value[..] } else { &every_value[index..index + 2] };
        let readings: Vec<Reading> = times.iter().enumerate().map(|(i, time)| reading(*time, fields(i))).collect();
        let known = read(target.store(), DB, &id).await;
        let mut bucket = Bucket::from_stored(known);
        merge(&mut bucket, &readings, &CAPS);
        assert!(write_through(target.store(), DB, &id, &mut bucket).await);
        assert_stored(&bucket, &read(target.store(), DB, &id).await);
        let scanned = scan(
            target.store(),
            &odd.key,
            id.hour..id.hour.next(),
            Order::Ascending,
            &Projection::ALL,
            Extent::pages(10),
        )
        .await
        .pages;
        assert_eq!((scanned.len(), scanned[0].hour), (1, id.hour));
        assert_eq!(scanned[0].readings.as_ref(), Some(&bucket.pages()[0].readings));
    }
}

pub async fn a_large_page_round_trips(target: &mut impl TestStore) {
    let id = bucket_id(&sensor("log", &[]), HOUR);
    let text = Value::String("x".repeat(1000).into());
    let readings: Vec<Reading> =
        (0..3600).map(|second| reading(HOUR.start_ns() + second * 1_000_000_000, &[("line", text.clone())])).collect();
    let caps = Caps { max_bytes: 4 << 20, ..CAPS };
    let bucket = put(target.store(), &id, &readings, &caps).await;
    assert_eq!(bucket.pages().len(), 1);
    assert!(bucket.pages()[0].readings.bytes() > 3 << 20, "near the hard size of a page");
    assert_stored(&bucket, &read(target.store(), DB, &id).await);
}

pub async fn a_page_is_inserted_once(target: &mut impl TestStore) {
    let id = bucket_id(&sensor("climate", &[("sensor", "s1")]), HOUR);
    let first = put(target.store(), &id, &seconds(HOUR, 0, &[1, 2]), &CAPS).await;
    let second = bucket_of(&seconds(HOUR, 1, &[7, 8]), &CAPS);
    assert_eq!(write_group(target.store(), &id, &second, &[0]).await, WriteOutcome::Conflict);
    assert_stored(&first, &read(target.store(), DB, &id).await);
}

pub async fn an_append_needs_the_current_rev(target: &mut impl TestStore) {
    stale_writes_conflict(
        target,
        &seconds(HOUR, 10, &[1, 2]),
        &seconds(HOUR, 12, &[3]),
        WriteKind::Append { start: 3 },
    )
    .await;
}

pub async fn a_replacement_needs_the_current_rev(target: &mut impl TestStore) {
    stale_writes_conflict(target, &seconds(HOUR, 1, &[50]), &seconds(HOUR, 0, &[60, 61]), WriteKind::Replace).await;
}

/// Two writers know the same page; after the first write, the second must read, merge and write again.
async fn stale_writes_conflict(target: &mut impl TestStore, ours: &[Reading], theirs: &[Reading], kind: WriteKind) {
    let id = bucket_id(&sensor("climate", &[("sensor", "s1")]), HOUR);
    let mut us = put(target.store(), &id, &seconds(HOUR, 0, &[1, 2, 3]), &CAPS).await;
    let first_rev = us.pages()[0].rev();
    let mut them = Bucket::from_stored(read(target.store(), DB, &id).await);
    merge(&mut us, ours, &CAPS);
    merge(&mut them, theirs, &CAPS);
    assert_eq!((us.pages()[0].pending(), them.pages()[0].pending()), (Some(kind), Some(kind)));

    assert_eq!(write_group(target.store(), &id, &us, &[0]).await, WriteOutcome::Applied);
    us.mark_written(&[0]);
    assert_stored(&us, &read(target.store(), DB, &id).await);
    assert_eq!(write_group(target.store(), &id, &them, &[0]).await, WriteOutcome::Conflict);
    assert_stored(&us, &read(target.store(), DB, &id).await);

    let mut them = Bucket::from_stored(read(target.store(), DB, &id).await);
    merge(&mut them, theirs, &CAPS);
    assert!(write_through(target.store(), DB, &id, &mut them).await);
    assert_eq!(them.pages()[0].rev(), first_rev + 2);
    merge(&mut us, theirs, &CAPS);
    let stored = read(target.store(), DB, &id).await;
    assert_stored(&them, &stored);
    assert_eq!(stored[0].readings, us.pages()[0].readings, "both writers' readings, the later ones on top");
}

pub async fn a_bucket_overflows_page_by_page(target: &mut impl TestStore) {
    let id = bucket_id(&sensor("fast", &[("sensor", "s1")]), HOUR);
    let values: Vec<i64> = (0..23).collect();
    // The open page is stored before it fills up, so that closing it is a separate write.
    let mut bucket = put(target.store(), &id, &seconds(HOUR, 0, &values[..3]), &SMALL).await;
    merge(&mut bucket, &seconds(HOUR, 3, &values[3..]), &SMALL);
    let revs = |b: &Bucket| b.pages()[0].rev();
    let mut before = bucket.clone();
    assert_eq!(bucket.next_writes(), [[0, 1, 2, 3, 4]], "the page that closes, and all that open, with page 0");
    assert!(write_through(target.store(), DB, &id, &mut bucket).await);
    assert_eq!((revs(&bucket), bucket.pages().len()), (revs(&before) + 1, 5));
    let stored = read(target.store(), DB, &id).await;
    assert_stored(&bucket, &stored);
    assert_eq!(stored.iter().filter(|page| !page.closed).count(), 1);
    assert!(stored[0].has_overflow && stored[0].closed, "page 0 is marked");
    // A writer that knows only the first page creates none beside them.
    merge(&mut before, &seconds(HOUR, 30, &values), &SMALL);
    let groups = before.next_writes();
    assert_eq!(write_group(target.store(), &id, &before, &groups[0]).await, WriteOutcome::Conflict);
    assert_stored(&bucket, &read(target.store(), DB, &id).await);

    // One more page, where only the rev of page 0 changes.
    let rev = revs(&bucket);
    merge(&mut bucket, &seconds(HOUR, 23, &values[..3]), &SMALL);
    assert!(write_through(target.store(), DB, &id, &mut bucket).await);
    assert_eq!((revs(&bucket), bucket.pages().len()), (rev + 1, 6));
    assert_stored(&bucket, &read(target.store(), DB, &id).await);

    // Late readings go to the open page and overwrites to the closed ones; these are independent writes.
    let mut again = Bucket::from_stored(read(target.store(), DB, &id).await);
    let mut more = seconds(HOUR, 0, &[100]);
    more.push(reading(HOUR.start_ns() + 500_000_000, &[("n", Value::Integer(101))]));
    more.extend(seconds(HOUR, 7, &[102]));
    merge(&mut again, &more, &SMALL);
    assert_eq!(again.next_writes(), [vec![0], vec![1], vec![5]]);
    assert!(write_through(target.store(), DB, &id, &mut again).await);
    let stored = read(target.store(), DB, &id).await;
    assert_stored(&again, &stored);
    assert_eq!(stored.iter().map(|page| page.readings.len()).sum::<usize>(), 27);
}

/// Regression: a page beyond the first could be inserted into a deleted bucket, and nobody found it.
pub async fn a_deleted_bucket_gets_no_overflow_page(target: &mut impl TestStore) {
    let id = bucket_id(&sensor("fast", &[("sensor", "s1")]), HOUR);
    let values: Vec<i64> = (0..5).collect();
    let mut bucket = put(target.store(), &id, &seconds(HOUR, 0, &values), &SMALL).await;
    merge(&mut bucket, &seconds(HOUR, 5, &values), &SMALL);
    let groups = bucket.next_writes();
    target.store().remove_buckets(DB, &[&id.sensor.key], HOUR..HOUR.next(), 1 << 40).await.expect("removed");
    assert_eq!(write_group(target.store(), &id, &bucket, &groups[0]).await, WriteOutcome::Conflict);
    let left = target.store().walk_buckets(DB, None, 10).await.expect("a walk");
    assert!(left.found.is_empty(), "{left:?}");
}

pub async fn outcomes_follow_the_order_of_the_writes(target: &mut impl TestStore) {
    let ids: Vec<_> =
        (0..60).map(|n| bucket_id(&sensor("climate", &[("sensor", &format!("s{n:02}"))]), HOUR)).collect();
    let mut expected = Vec::new();
    let mut buckets = Vec::new();
    for (n, id) in ids.iter().enumerate() {
        // New pages, appends and replacements in turn; one of each is too late.
        let mut bucket = Bucket::default();
        if n % 3 > 0 {
            bucket = put(target.store(), id, &seconds(HOUR, 0, &[1, 2]), &CAPS).await;
        }
        let from = if n % 3 == 1 { 5 } else { 0 };
        let stale = [17 * 3, 4 * 3 + 1, 9 * 3 + 2].contains(&n);
        if stale {
            let mut other = bucket.clone();
            merge(&mut other, &seconds(HOUR, 30, &[7]), &CAPS);
            assert!(write_through(target.store(), DB, id, &mut other).await);
        }
        merge(&mut bucket, &seconds(HOUR, from, &[i64::try_from(n).expect("small") + 100]), &CAPS);
        expected.push(if stale { WriteOutcome::Conflict } else { WriteOutcome::Applied });
        buckets.push(bucket);
    }
    let writes: Vec<_> =
        ids.iter().zip(&buckets).map(|(id, bucket)| PageWrite { id, bucket, group: vec![0] }).collect();
    assert_eq!(target.store().write_pages(DB, &writes).await, expected);
    drop(writes);
    let stored = target.store().read_buckets(DB, &ids, usize::MAX).await.expect("all buckets");
    for ((bucket, outcome), stored) in buckets.iter_mut().zip(&expected).zip(&stored) {
        if *outcome == WriteOutcome::Applied {
            bucket.mark_written(&[0]);
            assert_stored(bucket, stored);
        } else {
            assert_eq!(stored[0].readings.times().last(), Some(&(HOUR.start_ns() + 30_000_000_000)));
        }
    }
    assert_eq!(target.store().write_pages(DB, &[]).await, []);
}

pub async fn a_split_is_atomic(target: &mut impl TestStore) {
    let id = bucket_id(&sensor("log", &[]), HOUR);
    let caps = Caps { max_readings: 100, max_bytes: 2000, hard_bytes: 4000 };
    let lines = |length: usize| -> Vec<Reading> {
        let text = Value::String("x".repeat(length).into());
        (0..10).map(|second| reading(HOUR.start_ns() + second * 1_000_000_000, &[("line", text.clone())])).collect()
    };
    let mut us = put(target.store(), &id, &lines(10), &caps).await;
    let mut them = us.clone();
    merge(&mut us, &seconds(HOUR, 20, &[1]), &caps);
    merge(&mut them, &lines(500), &caps);
    let groups = them.next_writes();
    assert!(groups[0].len() > 1, "the overwrites split the page: {groups:?}");

    // The stored page is not the one that was split, so nothing may be written.
    assert!(write_through(target.store(), DB, &id, &mut us).await);
    assert_eq!(write_group(target.store(), &id, &them, &groups[0]).await, WriteOutcome::Conflict);
    assert_stored(&us, &read(target.store(), DB, &id).await);

    let mut them = Bucket::from_stored(read(target.store(), DB, &id).await);
    merge(&mut them, &lines(500), &caps);
    let groups = them.next_writes();
    assert!(groups[0].len() > 1);
    assert_eq!(write_group(target.store(), &id, &them, &groups[0]).await, WriteOutcome::Applied);
    them.mark_written(&groups[0]);
    assert!(write_through(target.store(), DB, &id, &mut them).await);
    assert!(read(target.store(), DB, &id).await[0].has_overflow);
    assert_stored(&them, &read(target.store(), DB, &id).await);
}

pub async fn an_append_never_restores_a_deleted_page(target: &mut impl TestStore) {
    let id = bucket_id(&sensor("climate", &[]), HOUR);
    for late in [&seconds(HOUR, 10, &[4])[..], &seconds(HOUR, 0, &[4])[..]] {
        let mut bucket = put(target.store(), &id, &seconds(HOUR, 0, &[1, 2, 3]), &CAPS).await;
        merge(&mut bucket, late, &CAPS);
        target.delete_page(DB, &page_id(&id.sensor.key, HOUR, 0)).await;
        assert_eq!(write_group(target.store(), &id, &bucket, &[0]).await, WriteOutcome::Conflict);
        assert!(read(target.store(), DB, &id).await.is_empty(), "no torso");
    }
    let bucket = put(target.store(), &id, &seconds(HOUR, 0, &[9]), &CAPS).await;
    assert_stored(&bucket, &read(target.store(), DB, &id).await);
}

/// Regression: a flush of one reading read all thousand pages of a busy hour.
pub async fn only_the_requested_pages_of_a_bucket_are_read(target: &mut impl TestStore) {
    let id = bucket_id(&sensor("fast", &[]), HOUR);
    let values: Vec<i64> = (0..42).collect();
    let bucket = put(target.store(), &id, &seconds(HOUR, 0, &values), &SMALL).await;
    assert_eq!(bucket.pages().len(), 9);
    let ids = std::slice::from_ref(&id);
    let whole = target.store().read_buckets(DB, ids, 9).await.expect("a bucket").remove(0);
    assert_stored(&bucket, &whole);
    let marks = target.store().read_buckets(DB, ids, 8).await.expect("a bucket").remove(0);
    assert_eq!(marks.len(), 9);
    for (mark, page) in marks.iter().zip(&whole) {
        assert_eq!((mark.number, mark.rev, mark.closed), (page.number, page.rev, page.closed));
        assert_eq!(mark.has_overflow, page.has_overflow);
        let left_out = mark.left_out.expect("without readings");
        let ms = |time: Option<&i64>| time.expect("one").div_euclid(1_000_000);
        let times = page.readings.times();
        assert_eq!((left_out.count, left_out.span_ms), (times.len(), (ms(times.first()), ms(times.last()))));
        assert!(mark.readings.is_empty() && page.left_out.is_none());
        assert!(left_out.bytes >= times.len(), "{left_out:?}");
    }
    // With 0 of every bucket, even a single page.
    let single = bucket_id(&sensor("slow", &[]), HOUR);
    put(target.store(), &single, &seconds(HOUR, 0, &[1, 2, 3]), &CAPS).await;
    let both = target.store().read_buckets(DB, &[single.clone(), id.clone()], 0).await.expect("buckets");
    let counts = |pages: &[StoredPage]| -> Vec<Option<usize>> {
        pages.iter().map(|page| page.left_out.filter(|out| out.bytes > 0).map(|out| out.count)).collect()
    };
    assert_eq!(counts(&both[0]), [Some(3)]);
    assert_eq!(counts(&both[1]), whole.iter().map(|page| Some(page.readings.len())).collect::<Vec<_>>());
    let mut some = target.store().read_pages(DB, &id, &[0, 7, 99]).await.expect("pages");
    some.sort_by_key(|page| page.number);
    assert_eq!(some.iter().map(|page| page.number).collect::<Vec<_>>(), [0, 7]);
    assert_eq!((&some[0].readings, &some[1].readings), (&whole[0].readings, &whole[7].readings));

    // Late and new readings go to the right pages although most pages are not loaded.
    let mut bucket = Bucket::from_stored(marks);
    let late = seconds(HOUR, 37, &[-1]);
    let times = [late[0].time];
    let mut needed = bucket.always_needed();
    needed.extend(bucket.needed_for(&times));
    assert_eq!(needed, [0, 8, 7]);
    let pages = target.store().read_pages(DB, &id, &needed).await.expect("pages");
    assert!(bucket.load(&needed, pages));
    merge(&mut bucket, &late, &SMALL);
    merge(&mut bucket, &seconds(HOUR, 50, &[50; 6]), &SMALL);
    assert!(write_through(target.store(), DB, &id, &mut bucket).await);
    let stored = read(target.store(), DB, &id).await;
    assert_eq!(stored.iter().map(|page| page.readings.len()).sum::<usize>(), 48);
    assert_eq!(stored[7].readings.reading(2), late[0]);
    // A writer that skipped pages learns that they have changed.
    let mut outdated = Bucket::from_stored(whole.clone());
    outdated.leave_out(1);
    let pages = target.store().read_pages(DB, &id, &[5]).await.expect("pages");
    assert!(outdated.load(&[5], pages), "page 5 is as it was");
    outdated = Bucket::from_stored(whole);
    outdated.leave_out(1);
    let mut changed = Bucket::from_stored(read(target.store(), DB, &id).await);
    merge(&mut changed, &seconds(HOUR, 27, &[-2]), &SMALL);
    assert!(write_through(target.store(), DB, &id, &mut changed).await);
    let pages = target.store().read_pages(DB, &id, &[5]).await.expect("pages");
    assert!(!outdated.load(&[5], pages), "somebody has overwritten a reading on page 5");
}

pub async fn buckets_are_read_in_the_requested_order(target: &mut impl TestStore) {
    let a = sensor("a", &[]);
    let b = sensor("b", &[]);
    let ids = [bucket_id(&b, HOUR), bucket_id(&a, Hour(-1)), bucket_id(&a, HOUR), bucket_id(&b, Hour(0))];
    assert_eq!(target.store().read_buckets("never written", &ids, usize::MAX).await.expect("an answer").len(), 4);
    let mut buckets = Vec::new();
    for (n, id) in (0..).zip(&ids[..3]) {
        buckets.push(put(target.store(), id, &seconds(id.hour, 0, &[n; 8]), &SMALL).await);
    }
    let asked = [3, 2, 0, 1].map(|n: usize| ids[n].clone());
    let stored = target.store().read_buckets(DB, &asked, usize::MAX).await.expect("all buckets");
    assert_eq!(stored.len(), 4);
    assert!(stored[0].is_empty(), "nobody wrote there");
    for (stored, bucket) in [(&stored[1], 2), (&stored[2], 0), (&stored[3], 1)] {
        assert_stored(&buckets[bucket], stored);
    }
    assert!(target.store().read_buckets(DB, &[], usize::MAX).await.expect("an answer").is_empty());
}

pub async fn a_reopened_store_keeps_everything(target: &mut impl TestStore) {
    let id = bucket_id(&sensor("fast", &[("sensor", "s1")]), HOUR);
    let mut bucket = put(target.store(), &id, &seconds(HOUR, 0, &[1; 12]), &SMALL).await;
    target.store().create_database("other").await.expect("created");
    target.reopen().await;
    assert_stored(&bucket, &read(target.store(), DB, &id).await);
    assert_eq!(target.store().databases().await.expect("the databases"), ["other", DB]);
    merge(&mut bucket, &seconds(HOUR, 12, &[2]), &SMALL);
    assert!(write_through(target.store(), DB, &id, &mut bucket).await, "the revs are as they were");
    target.reopen().await;
    assert_stored(&bucket, &read(target.store(), DB, &id).await);
}
