//! Scans of one sensor's pages over a range of hours.

use std::ops::Range;

use hourglass::bucket::store::{Extent, Order, Projection, ScannedPage};
use hourglass::bucket::{Reading, StorageError, Store, Summary};
use hourglass::reading::{Hour, Value};

use super::test_store::{CAPS, DB, SMALL, TestStore, bucket_id, put, reading, scan, seconds, sensor};

async fn pages(store: &dyn Store, sensor: &str, hours: Range<i64>, order: Order, pages_max: usize) -> Vec<ScannedPage> {
    let hours = Hour(hours.start)..Hour(hours.end);
    scan(store, sensor, hours, order, &Projection::ALL, Extent::pages(pages_max)).await.pages
}

fn places(pages: &[ScannedPage]) -> Vec<(i64, u32)> {
    pages.iter().map(|page| (page.hour.0, page.number)).collect()
}

pub async fn a_scan_covers_a_half_open_range_of_hours(target: &mut impl TestStore) {
    let ours = sensor("climate", &[("sensor", "s1")]);
    let theirs = sensor("climate", &[("sensor", "s0")]);
    let least = Hour::from_ns(i64::MIN + 2).0;
    let most = Hour::from_ns(i64::MAX - 1).0;
    for hour in [least, -3, -1, 0, 2, 491_150, most] {
        // The first and last hours are partial, so their seconds are counted from the valid part.
        let first = Hour(hour).start_ns().max(i64::MIN + 2);
        let readings: Vec<Reading> =
            (0..7).map(|n| reading(first + n * 1_000_000, &[("n", Value::Integer(n))])).collect();
        put(target.store(), &bucket_id(&ours, Hour(hour)), &readings, &SMALL).await;
    }
    for hour in [-2, -1, 1, 3, 4, 5] {
        put(target.store(), &bucket_id(&theirs, Hour(hour)), &seconds(Hour(hour), 0, &[1]), &SMALL).await;
    }
    let cases: [(Range<i64>, &[i64]); 9] = [
        (-3..3, &[-3, -1, 0, 2]),
        (-2..2, &[-1, 0]),
        (-1..0, &[-1]),
        (0..0, &[]),
        (1..2, &[]),
        (3..491_150, &[]),
        (3..491_151, &[491_150]),
        (least..most + 1, &[least, -3, -1, 0, 2, 491_150, most]),
        (Range { start: 2, end: -3 }, &[]),
    ];
    for (hours, expected) in cases {
        let found = pages(target.store(), &ours.key, hours.clone(), Order::Ascending, 100).await;
        let expected: Vec<(i64, u32)> = expected.iter().flat_map(|hour| [(*hour, 0), (*hour, 1)]).collect();
        assert_eq!(places(&found), expected, "{hours:?}");
        let back = pages(target.store(), &ours.key, hours.clone(), Order::Descending, 100).await;
        let falling: Vec<(i64, u32)> = expected.chunks(2).rev().flatten().copied().collect();
        assert_eq!(places(&back), falling, "{hours:?}");
    }
    assert!(
        target
            .store()
            .scan("never written", "s", Hour(0)..Hour(9), Order::Ascending, &Projection::ALL, Extent::pages(9))
            .await
            .expect("a scan")
            .pages
            .is_empty()
    );
}

pub async fn a_scan_stops_after_the_hour_that_makes_it_full(target: &mut impl TestStore) {
    let sensor = sensor("fast", &[]);
    // One, three, one and two pages.
    for (hour, count) in [(0, 5), (1, 13), (3, 2), (4, 6)] {
        let values: Vec<i64> = (0..count).collect();
        put(target.store(), &bucket_id(&sensor, Hour(hour)), &seconds(Hour(hour), 0, &values), &SMALL).await;
    }
    let all = [(0, 0), (1, 0), (1, 1), (1, 2), (3, 0), (4, 0), (4, 1)];
    for (pages_max, expected) in [(1, 1), (2, 4), (3, 4), (4, 4), (5, 5), (6, 7), (7, 7), (8, 7)] {
        let found = pages(target.store(), &sensor.key, 0..5, Order::Ascending, pages_max).await;
        assert_eq!(places(&found), all[..expected], "at most {pages_max} pages");
    }
    let falling = [(4, 0), (4, 1), (3, 0), (1, 0), (1, 1), (1, 2), (0, 0)];
    for (pages_max, expected) in [(1, 2), (2, 2), (3, 3), (4, 6), (6, 6), (7, 7), (8, 7)] {
        let found = pages(target.store(), &sensor.key, 0..5, Order::Descending, pages_max).await;
        assert_eq!(places(&found), falling[..expected], "at most {pages_max} pages, from the end");
        assert!(found.iter().all(|page| page.readings.is_some()));
    }
    // Each scan continues after the last hour, until nothing is left.
    let mut from = 0;
    let mut found = Vec::new();
    loop {
        let more = pages(target.store(), &sensor.key, from..5, Order::Ascending, 2).await;
        let Some(last) = more.last() else { break };
        from = last.hour.next().0;
        found.extend(places(&more));
    }
    assert_eq!(found, all);
}

pub async fn a_stored_summary_is_the_fold_over_its_page(target: &mut impl TestStore) {
    let sensor = sensor("climate", &[]);
    let hour = Hour(491_150);
    let readings: Vec<Reading> = (0..13)
        .map(|n: i32| {
            let mixed = if n % 3 == 0 { Value::Float(f64::from(n) / 7.0) } else { Value::Integer(i64::from(n)) };
            let fields = [
                ("float", Value::Float(f64::from(n) * 0.1)),
                ("integer", Value::Integer(i64::MAX - i64::from(n))),
                ("unsigned", if n < 5 { Value::Integer(3) } else { Value::Unsigned(u64::MAX) }),
                ("mixed.$", mixed),
                ("on", Value::Boolean(n % 2 == 0)),
                ("text", Value::String("12".into())),
            ];
            let some = if n == 4 { &fields[..1] } else { &fields[..] };
            reading(hour.start_ns() + i64::from(n) * 1_000_000, some)
        })
        .collect();
    let bucket = put(target.store(), &bucket_id(&sensor, hour), &readings, &SMALL).await;
    for projection in [Projection::ALL, Projection::SUMMARIES] {
        let hours = hour..hour.next();
        let found =
            scan(target.store(), &sensor.key, hours, Order::Ascending, &projection, Extent::pages(100)).await.pages;
        assert_eq!(found.len(), 3);
        for (found, page) in found.iter().zip(bucket.pages()) {
            assert_eq!(found.readings.as_ref(), projection.readings.then_some(&page.readings));
            let mut folded: Vec<(&str, Summary)> =
                page.readings.summaries().map(|(name, s)| (&**name, s.clone())).collect();
            let mut stored: Vec<(&str, Summary)> = found.summary.iter().map(|(name, s)| (&**name, s.clone())).collect();
            folded.sort_unstable_by_key(|(name, _)| *name);
            stored.sort_unstable_by_key(|(name, _)| *name);
            assert_eq!(stored.len(), folded.len());
            for ((name, stored), (folded_name, folded)) in stored.iter().zip(&folded) {
                assert_eq!(name, folded_name);
                assert_eq!(stored, folded, "{name}");
            }
        }
    }
}

/// Regression: scans read all fields, and scans of many sensors had no limit.
pub async fn a_scan_returns_its_projection_and_stops_at_a_limit(target: &mut impl TestStore) {
    let sensor = sensor("wide", &[]);
    let whole = |hour: Hour| -> Vec<Reading> {
        let fields = |n: i64| ["a", "b", "c.d"].map(|name| (name, Value::Integer(n)));
        // One of these has none of the requested fields.
        let some = |n: i64| if n == 2 { fields(n)[..1].to_vec() } else { fields(n).to_vec() };
        (0..4).map(|n| reading(hour.start_ns() + n * 1_000_000_000, &some(n))).collect()
    };
    for hour in (0..5).map(Hour) {
        put(target.store(), &bucket_id(&sensor, hour), &whole(hour), &SMALL).await;
    }
    let key = &*sensor.key;
    let hours = Hour(0)..Hour(5);
    let fields: std::sync::Arc<[std::sync::Arc<str>]> = ["b".into(), "c.d".into(), "nobody".into()].into();
    for readings in [true, false] {
        let projection = Projection { readings, fields: Some(fields.clone()), ..Projection::ALL };
        let one = scan(target.store(), key, hours.clone(), Order::Ascending, &projection, Extent::ALL).await.pages;
        let back = scan(target.store(), key, hours.clone(), Order::Descending, &projection, Extent::ALL).await.pages;
        let many = target.store().scan_sensors(DB, &[key], hours.clone(), &projection, usize::MAX).await;
        let many = many.expect("a scan").expect("nothing bounds it").remove(0);
        assert_eq!((one.len(), back.len(), many.len()), (5, 5, 5));
        for page in one.iter().chain(&back).chain(&many) {
            let mut names: Vec<&str> = page.summary.iter().map(|(name, _)| &**name).collect();
            names.sort_unstable();
            assert_eq!(names, ["b", "c.d"]);
            assert_eq!(page.summary.iter().map(|(_, summary)| summary.count()).collect::<Vec<_>>(), [3, 3]);
            let columns = page.readings.as_ref().map(|set| set.columns().map(|(name, _)| &**name).collect::<Vec<_>>());
            assert_eq!(columns, readings.then(|| vec!["b", "c.d"]));
        }
    }
    let all = &Projection::ALL;
    let small = Extent { bytes: 1, ..Extent::pages(9) };
    let first = scan(target.store(), key, hours.clone(), Order::Ascending, all, small).await;
    let last = scan(target.store(), key, hours.clone(), Order::Descending, all, small).await;
    assert_eq!((places(&first.pages), places(&last.pages)), (vec![(0, 0)], vec![(4, 0)]));
    assert_eq!((first.rest, last.rest), (hours.start.next()..hours.end, hours.start..Hour(4)));
    let all_of_it = scan(target.store(), key, hours.clone(), Order::Ascending, all, Extent::ALL).await;
    let back = scan(target.store(), key, hours.clone(), Order::Descending, all, Extent::pages(9)).await;
    assert_eq!((all_of_it.rest, back.rest), (hours.end..hours.end, hours.start..hours.start));
    assert!(target.store().scan_sensors(DB, &[key], hours, all, 1).await.expect("a scan").is_none());
}

/// Regression: an hour with a thousand readings a second was always read whole, 250 MB.
pub async fn only_the_requested_pages_of_an_hour_are_read(target: &mut impl TestStore) {
    let sensor = sensor("fast", &[]);
    let key = &*sensor.key;
    let hour = Hour(3);
    let hours = Hour(3)..Hour(4);
    let second = |n: i64| hour.start_ns() + n * 1_000_000_000;
    // Each of the 12 pages has 1.5 kB of text and little else.
    let text = |n: i64| Value::String(format!("{n:0300}").into());
    let all: Vec<Reading> = (0..60).map(|n| reading(second(n), &[("line", text(n))])).collect();
    put(target.store(), &bucket_id(&sensor, hour), &all, &SMALL).await;
    let with_times = |times: std::ops::Range<i64>| Projection { times, ..Projection::ALL };
    let some = with_times(second(22)..second(31));
    let limit = 12_000;
    let tight = Extent { hour_bytes: limit, ..Extent::ALL };
    for (projection, extent) in [(&some, Extent::ALL), (&some, tight)] {
        let one = scan(target.store(), key, hours.clone(), Order::Ascending, projection, extent).await;
        let back = scan(target.store(), key, hours.clone(), Order::Descending, projection, extent).await;
        for scanned in [&one, &back] {
            let found: Vec<i64> = scanned
                .pages
                .iter()
                .flat_map(|page| page.readings.as_ref().expect("readings").times())
                .copied()
                .collect();
            assert!((22..31).all(|n| found.contains(&second(n))), "{found:?}");
            assert!(found.len() <= 20, "pages of other times are left out: {found:?}");
            assert!(scanned.rest.is_empty());
        }
    }
    // An exceeded limit is reported before memory is filled.
    for failed in [
        target.store().scan(DB, key, hours.clone(), Order::Ascending, &Projection::ALL, tight).await,
        target.store().scan(DB, key, hours.clone(), Order::Descending, &Projection::ALL, tight).await,
    ] {
        assert_eq!(failed.map(|scanned| scanned.pages.len()), Err(StorageError::HourTooLarge { limit, hour }));
    }
    let many = target.store().scan_sensors(DB, &[key], hours.clone(), &Projection::ALL, limit).await;
    assert!(many.expect("a scan").is_none(), "the pages after the first one count");
    // A summary needs no readings of any page, either.
    let summaries = target.store().scan(DB, key, hours, Order::Ascending, &Projection::SUMMARIES, tight).await;
    assert_eq!(summaries.expect("a scan").pages.len(), 12);
}

pub async fn sensors_with_a_common_key_prefix_are_kept_apart(target: &mut impl TestStore) {
    let sensors = [
        sensor("a", &[]),
        sensor("a", &[("b", "c")]),
        sensor("a", &[("b", "c"), ("d", "e")]),
        sensor("a", &[("b", "c!")]),
        sensor("a b", &[]),
        sensor("a!", &[]),
        sensor("ab", &[]),
        sensor("A", &[]),
    ];
    for (n, sensor) in (0..).zip(&sensors) {
        for hour in [Hour(0), Hour(n), Hour(10)] {
            let known =
                target.store().read_buckets(DB, &[bucket_id(sensor, hour)], usize::MAX).await.expect("a bucket");
            if known[0].is_empty() {
                put(target.store(), &bucket_id(sensor, hour), &seconds(hour, 0, &[n; 7]), &SMALL).await;
            }
        }
    }
    for (n, sensor) in (0..).zip(&sensors) {
        let found = pages(target.store(), &sensor.key, -1..20, Order::Ascending, 100).await;
        let mut hours = vec![0, n, 10];
        hours.dedup();
        let expected: Vec<(i64, u32)> = hours.into_iter().flat_map(|hour| [(hour, 0), (hour, 1)]).collect();
        assert_eq!(places(&found), expected, "{}", sensor.key);
        for page in &found {
            let readings = page.readings.as_ref().expect("readings were asked for");
            let ours = (0..readings.len()).all(|i| readings.fields(i).all(|(_, value)| *value == Value::Integer(n)));
            assert!(ours, "{}", sensor.key);
        }
        let bucket =
            target.store().read_buckets(DB, &[bucket_id(sensor, Hour(10))], usize::MAX).await.expect("a bucket");
        assert_eq!(bucket[0].len(), 2, "{}", sensor.key);
    }
    assert!(
        pages(target.store(), "a,b=", -1..20, Order::Ascending, 100).await.is_empty(),
        "a key's beginning is no sensor"
    );
    // Normal pages in the same hours are not affected.
    put(target.store(), &bucket_id(&sensor("aa", &[]), Hour(0)), &seconds(Hour(0), 0, &[1]), &CAPS).await;
    assert_eq!(pages(target.store(), "aa", -1..20, Order::Ascending, 100).await.len(), 1);
}
