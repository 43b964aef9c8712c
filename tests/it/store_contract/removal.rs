//! Removals take exactly what they should, and no outdated view restores it.

use hourglass::bucket::store::{Extent, Order, Projection, SensorFilter, WriteOutcome};
use hourglass::bucket::{
    Bucket, DayId, DayPart, DayWrite, MonthId, MonthTotals, MonthWrite, Readings, SensorDocument, Store,
};
use hourglass::reading::{Day, Hour, Month, Stamp, Value};

use super::test_store::{
    CAPS, DB, SMALL, TestStore, assert_stored, bucket_id, merge, plain, put, read, scan, seconds, sensor, write_group,
    write_through,
};

const HOUR: Hour = Hour(491_150);
const ALL: std::ops::Range<Hour> = Hour(-3_000_000)..Hour(3_000_000);

fn later(hours: i64) -> Hour {
    Hour(HOUR.0 + hours)
}

async fn hours(store: &dyn Store, sensor: &str) -> Vec<Hour> {
    let pages = scan(store, sensor, ALL, Order::Ascending, &Projection::ALL, Extent::ALL).await.pages;
    pages.into_iter().map(|page| page.hour).collect()
}

fn range(from: i64, to: i64) -> std::ops::Range<i64> {
    HOUR.start_ns() + from * 1_000_000_000..HOUR.start_ns() + to * 1_000_000_000
}

/// The second and third of five pages are emptied; later pages take their numbers.
pub async fn empty_pages_are_removed(target: &mut impl TestStore) {
    let id = bucket_id(&sensor("climate", &[]), HOUR);
    let values: Vec<i64> = (0..23).collect();
    let mut bucket = put(target.store(), &id, &seconds(HOUR, 0, &values), &SMALL).await;
    assert_eq!(bucket.pages().len(), 5);
    assert_eq!(bucket.delete(&range(5, 15), 1 << 40), 10);
    assert!(write_through(target.store(), DB, &id, &mut bucket).await);
    let stored = read(target.store(), DB, &id).await;
    assert_stored(&bucket, &stored);
    assert_eq!(
        stored.iter().map(|page| (page.number, page.closed)).collect::<Vec<_>>(),
        [(0, true), (1, false), (2, true)]
    );
    assert_eq!(plain(stored.iter().map(|page| &page.readings)).len(), 13);

    // The rest is still open, and can be removed, too.
    merge(&mut bucket, &seconds(HOUR, 100, &[1, 2, 3, 4]), &SMALL);
    assert!(write_through(target.store(), DB, &id, &mut bucket).await);
    assert_stored(&bucket, &read(target.store(), DB, &id).await);
    assert_eq!(bucket.delete(&range(0, 3600), 1 << 40), 17);
    assert!(write_through(target.store(), DB, &id, &mut bucket).await);
    assert!(bucket.pages().is_empty() && read(target.store(), DB, &id).await.is_empty());
    assert!(hours(target.store(), "climate").await.is_empty());
}

pub async fn a_removal_needs_the_current_rev(target: &mut impl TestStore) {
    let id = bucket_id(&sensor("climate", &[]), HOUR);
    let mut bucket = put(target.store(), &id, &seconds(HOUR, 0, &[1, 2]), &CAPS).await;
    let mut old = bucket.clone();
    merge(&mut bucket, &seconds(HOUR, 2, &[3]), &CAPS);
    assert!(write_through(target.store(), DB, &id, &mut bucket).await);
    old.delete(&range(0, 2), 1 << 40);
    assert_eq!(write_group(target.store(), &id, &old, &[0]).await, WriteOutcome::Conflict);
    assert_stored(&bucket, &read(target.store(), DB, &id).await);
}

/// Regression: an append by an outdated view matched a recreated page, because revs started at 1 again.
pub async fn an_old_view_does_not_match_a_recreated_page(target: &mut impl TestStore) {
    let id = bucket_id(&sensor("climate", &[]), HOUR);
    let mut old = put(target.store(), &id, &seconds(HOUR, 0, &[1, 2]), &CAPS).await;
    target.store().remove_buckets(DB, &["climate"], HOUR..HOUR.next(), 1 << 40).await.expect("removed");
    let rewritten = put(target.store(), &id, &seconds(HOUR, 10, &[3, 4]), &CAPS).await;
    merge(&mut old, &seconds(HOUR, 20, &[5]), &CAPS);
    assert_eq!(write_group(target.store(), &id, &old, &[0]).await, WriteOutcome::Conflict);
    assert_stored(&rewritten, &read(target.store(), DB, &id).await);
}

pub async fn buckets_are_removed_by_sensor_and_hour(target: &mut impl TestStore) {
    let sensors: Vec<_> = ["a", "a!", "b"].map(|name| sensor(name, &[])).into_iter().collect();
    let values: Vec<i64> = (0..12).collect();
    for sensor in &sensors {
        for hour in 0..4 {
            put(target.store(), &bucket_id(sensor, later(hour)), &seconds(later(hour), 0, &values), &CAPS).await;
        }
    }
    target.store().remove_buckets(DB, &["a", "b", "nobody"], later(1)..later(3), 1 << 40).await.expect("removed");
    for (name, left) in [("a", vec![0, 3]), ("a!", vec![0, 1, 2, 3])] {
        assert_eq!(hours(target.store(), name).await, left.into_iter().map(later).collect::<Vec<_>>(), "{name}");
    }
    assert_eq!(hours(target.store(), "b").await.len(), 2);
    target.store().remove_buckets(DB, &["a"], ALL, 1 << 40).await.expect("removed");
    target.store().remove_buckets("another", &["a!"], ALL, 1 << 40).await.expect("nothing to remove");
    target.reopen().await;
    assert!(hours(target.store(), "a").await.is_empty());
    assert_eq!(hours(target.store(), "a!").await.len(), 4);
    let gone = read(target.store(), DB, &bucket_id(&sensors[0], HOUR)).await;
    assert!(Bucket::from_stored(gone).pages().is_empty());
}

/// Parts are removed without being decoded: whole ones below a stamp only.
pub async fn parts_of_days_are_removed_by_age(target: &mut impl TestStore) {
    let day = Day::from_hour(HOUR);
    let part = |name: &str, day: Day, part: DayPart| DayId { sensor: sensor(name, &[]), day, part };
    let readings = |id: &DayId, floor: Stamp| {
        let mut readings = Readings::default();
        readings.raise_floor(floor);
        readings.push(id.hours().start.start_ns(), floor + 1, [(&"v".into(), &Value::Integer(1))].into_iter());
        readings.settle(true);
        if !id.part.is_chunk() {
            readings.raise_floor(floor + 1);
        }
        readings
    };
    let chunk = |stamp| DayPart::Chunk { stamp, hour: 0 };
    let old = [
        (part("a", day, DayPart::Whole), 10),
        (part("a", day.next(), DayPart::Hour(3)), 10),
        (part("a", day, chunk(11)), 10),
        (part("a!", day.next(), DayPart::Whole), 10),
    ];
    let kept = [
        (part("a", day.next().next(), DayPart::Whole), 10),
        (part("a", day.next(), DayPart::Whole), 50),
        (part("a!", day, chunk(51)), 10),
        (part("b", day, DayPart::Whole), 10),
    ];
    for (id, floor) in old.iter().chain(&kept) {
        let readings = readings(id, *floor);
        let write = DayWrite { id, rev: 0, next_rev: 7, readings: Some(&readings), expired: None };
        assert_eq!(target.store().write_days(DB, &[write]).await, [WriteOutcome::Applied], "{id:?}");
    }
    let month = MonthId { sensor: "a".into(), month: Month::from_day(day) };
    let months = day..Day(day.0 + 40);
    let months = Month::from_day(months.start)..Month::from_day(months.end);
    let totals = MonthTotals::default();
    let write = MonthWrite { id: &month, rev: 0, next_rev: 1, totals: Some(&totals) };
    assert_eq!(target.store().write_months(DB, &[write]).await, [WriteOutcome::Applied]);
    let hours = day.hours().start..day.next().hours().end;
    target.store().remove_days(DB, &["a", "a!", "nobody"], hours.clone(), 50).await.expect("removed");
    target.store().remove_days("another", &["b"], hours.clone(), 50).await.expect("nothing to remove");
    // A part of a day is not in the range.
    target.store().remove_days(DB, &["b"], hours.start.next()..hours.end, 50).await.expect("nothing to remove");
    target.reopen().await;
    let ids = |parts: &[(DayId, Stamp)]| parts.iter().map(|(id, _)| id.clone()).collect::<Vec<_>>();
    let left = target.store().read_days(DB, &ids(&old)).await.expect("an answer");
    assert!(left.iter().all(Option::is_none), "{left:?}");
    let left = target.store().read_days(DB, &ids(&kept)).await.expect("an answer");
    assert!(left.iter().all(Option::is_some), "{left:?}");
    let left = target.store().read_months(DB, &["a"], months, &Projection::ALL).await.expect("an answer");
    assert!(left.is_empty(), "the totals of a month outlive its days");
}

fn document(name: &str) -> SensorDocument {
    SensorDocument::new(sensor(name, &[]))
}

pub async fn sensor_documents_are_removed(target: &mut impl TestStore) {
    let documents: Vec<SensorDocument> = ["a", "b", "c"].map(document).into_iter().collect();
    assert_eq!(target.store().write_sensors(DB, &documents).await, vec![WriteOutcome::Applied; 3]);
    let gone = [("a", Some(1)), ("b", Some(7)), ("c", None), ("nobody", None), ("nobody", Some(1))];
    target.store().remove_sensors(DB, &gone).await.expect("removed");
    let filter = SensorFilter { limit: 10, ..SensorFilter::default() };
    let left = target.store().list_sensors(DB, &filter).await.expect("a list");
    assert_eq!(left.iter().map(|document| &*document.sensor.key).collect::<Vec<_>>(), ["b"]);
}

pub async fn a_dropped_database_can_be_recreated(target: &mut impl TestStore) {
    let values: Vec<i64> = (0..12).collect();
    for database in ["plant", "planted"] {
        let id = bucket_id(&sensor("a", &[]), HOUR);
        let mut bucket = Bucket::default();
        merge(&mut bucket, &seconds(HOUR, 0, &values), &SMALL);
        assert!(write_through(target.store(), database, &id, &mut bucket).await);
        assert_eq!(target.store().write_sensors(database, &[document("a")]).await, [WriteOutcome::Applied]);
    }
    target.store().drop_database("plant").await.expect("dropped");
    target.store().drop_database("plant").await.expect("nothing to drop");
    target.store().drop_database("never there").await.expect("nothing to drop");
    assert_eq!(
        target.store().databases().await.expect("a list"),
        ["plant", "planted"],
        "it may have been created again"
    );
    for name in ["plant", "plant", "never there"] {
        target.store().unlist_database(name).await.expect("unlisted");
    }
    assert_eq!(target.store().databases().await.expect("a list"), ["planted"]);
    assert!(hours(target.store(), "a").await.is_empty());
    assert!(target.store().read_sensors("plant", &["a"]).await.expect("none").is_empty());
    let other = target
        .store()
        .scan("planted", "a", ALL, Order::Ascending, &Projection::ALL, Extent::ALL)
        .await
        .expect("a scan")
        .pages;
    assert_eq!(other.len(), 3);

    put(target.store(), &bucket_id(&sensor("b", &[]), HOUR), &seconds(HOUR, 0, &[1]), &CAPS).await;
    target.reopen().await;
    assert_eq!(target.store().databases().await.expect("a list"), ["plant", "planted"]);
    assert_eq!(hours(target.store(), "b").await, [HOUR]);
    assert!(hours(target.store(), "a").await.is_empty());
}
