//! Walks over all documents of a store.

use std::collections::BTreeMap;

use hourglass::bucket::raw::{Cursor, RawBucket, RawPage};
use hourglass::bucket::summary::Figures;
use hourglass::bucket::{Meta, Reading, SensorDocument, Store};
use hourglass::reading::{Hour, Value};
use hourglass::store::document::page_id;

use super::test_store::{CAPS, DB, SMALL, TestStore, bucket_id, merge, put, reading, seconds, sensor, write_through};

async fn walk(store: &dyn Store, pages_max: usize) -> Vec<Vec<RawBucket>> {
    let mut parts: Vec<Vec<RawBucket>> = Vec::new();
    let mut from: Option<Cursor> = None;
    loop {
        let part = store.walk_buckets(DB, from.as_ref(), pages_max).await.expect("a part");
        assert!(!part.found.is_empty() || part.next.is_none(), "a part without anything");
        parts.push(part.found);
        from = part.next;
        if from.is_none() {
            return parts;
        }
    }
}

fn pages(bucket: &RawBucket) -> Vec<&RawPage> {
    bucket.pages.iter().map(|page| page.as_ref().expect("a page that can be read")).collect()
}

pub async fn a_walk_visits_every_bucket_once(target: &mut impl TestStore) {
    assert_eq!(walk(target.store(), 9).await.concat().len(), 0);
    // Keys with common prefixes, whose documents interleave in MongoDB.
    let sensors = ["a", "a!", "b", "a\\", "a 1", "a\\ 1"].map(|name| sensor(name, &[]));
    let mut expected: BTreeMap<String, usize> = BTreeMap::new();
    for (n, sensor) in (0..).zip(&sensors) {
        for hour in [Hour(-1), Hour(0), Hour(491_150 + n)] {
            // Up to twelve pages, so that the id of the tenth sorts before the second.
            let count = if hour.0 == 0 { 58 } else { n * 3 + 1 };
            let values: Vec<i64> = (0..count).collect();
            put(target.store(), &bucket_id(sensor, hour), &seconds(hour, 0, &values), &SMALL).await;
            for number in 0..u32::try_from(count).expect("few").div_ceil(5) {
                expected.insert(page_id(&sensor.key, hour, number), usize::try_from(count.min(5)).expect("few"));
            }
        }
    }
    for pages_max in [1, 2, 7, 30, 1000] {
        let parts = walk(target.store(), pages_max).await;
        let mut found = BTreeMap::new();
        for bucket in parts.iter().flatten() {
            for (number, page) in (0..).zip(pages(bucket)) {
                assert_eq!((page.number, &page.id, &page.own_id), (number, &page.key, &page.key), "{pages_max}");
                let none = found.insert(page.key.clone(), page.readings.len());
                assert_eq!(none, None, "{pages_max}: {} came twice", page.key);
            }
            // A walk from there returns it again.
            let again = target.store().walk_buckets(DB, Some(&bucket.cursor), 1).await.expect("a part").found;
            let again = again.iter().find(|again| again.cursor == bucket.cursor).expect("the bucket");
            assert_eq!(again.pages.len(), bucket.pages.len());
        }
        assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>(), "{pages_max}");
        // The last page of a bucket has the rest.
        assert_eq!(found.values().sum::<usize>(), 6 * 58 + 2 * (1 + 4 + 7 + 10 + 13 + 16), "{pages_max}");
        let largest = parts.iter().map(|part| part.iter().map(|bucket| bucket.pages.len()).sum::<usize>()).max();
        // One bucket may exceed the limit, plus one per key.
        assert!(largest.expect("a part") <= 2 * pages_max + 2 * 12, "{pages_max}: {largest:?}");
        assert!(pages_max > 100 || parts.len() > 1, "{pages_max}");
    }
    assert_eq!(target.store().estimate_pages().await, Ok(expected.len() as u64));
    let other = target.store().walk_buckets("never written", None, 9).await.expect("a part");
    assert!(other.found.is_empty() && other.next.is_none());
}

pub async fn a_walk_reports_the_headers_of_documents(target: &mut impl TestStore) {
    let sensor = sensor("climate", &[("room", "lab, 2")]);
    let hour = Hour(491_150);
    let readings: Vec<Reading> = (0..7)
        .map(|n: i32| {
            let fields = [
                ("x.y", Value::Float(f64::from(n) * 0.1 - 0.0)),
                ("large", Value::Unsigned(u64::MAX - u64::from(n.unsigned_abs()))),
                ("whole", Value::Integer(i64::from(n))),
                ("text", Value::String("a".into())),
            ];
            reading(hour.start_ns() + i64::from(n) * 1_000_000_500, &fields)
        })
        .collect();
    let bucket = put(target.store(), &bucket_id(&sensor, hour), &readings, &SMALL).await;
    let parts = walk(target.store(), 9).await;
    let found = pages(&parts[0][0]);
    assert_eq!(found.len(), 2);
    for (kept, page) in found.iter().zip(bucket.pages()) {
        assert_eq!((kept.number, kept.rev), (page.number, page.rev()));
        assert_eq!((kept.closed, kept.has_overflow), (page.closed, page.has_overflow));
        assert_eq!(kept.in_overflow.unwrap_or(page.number > 0), page.number > 0);
        assert_eq!((&*kept.sensor_key, &kept.sensor), (&*sensor.key, &sensor));
        assert_eq!((kept.start_ms, kept.end_ms), (hour.start_ms(), hour.next().start_ms()));
        let times = page.readings.times();
        let all: Vec<Reading> = (0..times.len()).map(|n| page.readings.reading(n)).collect();
        assert_eq!(kept.readings, all);
        assert_eq!(kept.count, Some(times.len() as u64));
        let floored = |time: i64| Some(time.div_euclid(1_000_000));
        assert_eq!((kept.first_ms, kept.last_ms), (floored(times[0]), floored(times[times.len() - 1])));
        let figures = |(name, figures): &(std::sync::Arc<str>, Option<Figures>)| {
            (name.to_string(), figures.clone().expect("figures"))
        };
        let kept: Vec<(String, Figures)> = kept.summary.iter().map(figures).collect();
        let folded = page.readings.summaries().map(|(name, summary)| (name.to_string(), summary.figures()));
        assert_eq!(kept, folded.collect::<Vec<_>>());
    }
}

pub async fn a_walk_continues_past_concurrent_writes(target: &mut impl TestStore) {
    let id = |n: i64| bucket_id(&sensor("m", &[]), Hour(491_150 + n));
    for n in 0..4 {
        put(target.store(), &id(n), &seconds(id(n).hour, 0, &[n]), &CAPS).await;
    }
    let first = target.store().walk_buckets(DB, None, 2).await.expect("a part");
    assert_eq!(first.found.len(), 2);
    put(target.store(), &id(-1), &seconds(id(-1).hour, 0, &[9]), &CAPS).await;
    let mut third = put(target.store(), &id(4), &seconds(id(4).hour, 0, &[1]), &CAPS).await;
    merge(&mut third, &seconds(id(4).hour, 5, &[1, 2, 3, 4, 5, 6]), &SMALL);
    assert!(write_through(target.store(), DB, &id(4), &mut third).await);
    let rest = target.store().walk_buckets(DB, first.next.as_ref(), 100).await.expect("a part");
    let found: Vec<(Hour, usize)> =
        rest.found.iter().map(|bucket| (pages(bucket)[0].hour(), bucket.pages.len())).collect();
    assert_eq!(found, [(id(2).hour, 1), (id(3).hour, 1), (id(4).hour, 2)]);
    assert_eq!(rest.next, None);
}

pub async fn sensor_documents_are_walked_in_key_order(target: &mut impl TestStore) {
    let document = |name: &str| SensorDocument {
        sensor: sensor(name, &[("t", "1")]),
        rev: 0,
        fields: Vec::new(),
        first_seen: Some(1_000_000),
        last_seen: None,
        recent: Vec::new(),
        outlier: None,
        lifetime: None,
        meta: Meta::default(),
    };
    let documents: Vec<SensorDocument> = ["b", "a", "ü", "a!", "c"].map(document).to_vec();
    target.store().write_sensors(DB, &documents).await;
    let mut keys: Vec<String> = documents.iter().map(|document| document.sensor.key.to_string()).collect();
    keys.sort_unstable();
    for max in [1, 2, 5, 9] {
        let mut found = Vec::new();
        let mut from = None;
        loop {
            let part = target.store().walk_sensors(DB, from.as_ref(), max).await.expect("a part");
            assert!(part.found.len() <= max);
            for kept in part.found {
                let read = kept.document.expect("a document that can be read");
                assert_eq!((&*read.sensor.key, read.rev, read.first_seen), (&*kept.key, 1, Some(1_000_000)));
                found.push(kept.key);
            }
            from = part.next;
            if from.is_none() {
                break;
            }
        }
        assert_eq!(found, keys, "{max} at a time");
    }
}
