//! Month totals: compare-and-set writes, and removal with any write to the month.

use std::sync::Arc;

use hourglass::bucket::store::{Extent, Order, Projection, WriteOutcome};
use hourglass::bucket::{DayId, DayPart, DayWrite, MonthId, MonthTotals, MonthWrite, Store, StoredMonth};
use hourglass::reading::{Day, Month, Sensor};

use super::days::readings;
use super::test_store::{DB, TestStore, sensor};

/// First day of `days::readings`.
const DAY: Day = Day(20_468);

fn id(sensor: &Arc<Sensor>, month: i64) -> MonthId {
    MonthId { sensor: Arc::from(&*sensor.key), month: Month(Month::from_day(DAY).0 + month) }
}

async fn write(store: &dyn Store, id: &MonthId, rev: u64, next_rev: u64, totals: Option<&MonthTotals>) -> WriteOutcome {
    store.write_months(DB, &[MonthWrite { id, rev, next_rev, totals }]).await.remove(0)
}

async fn write_day(store: &dyn Store, sensor: &Arc<Sensor>, day: i64, rev: u64) -> WriteOutcome {
    let (id, set) =
        (DayId { sensor: sensor.clone(), day: Day(DAY.0 + day), part: DayPart::Whole }, readings(day, &[1, 5], 3));
    store
        .write_days(DB, &[DayWrite { id: &id, rev, next_rev: rev + 10, readings: Some(&set), expired: None }])
        .await
        .remove(0)
}

async fn read_months(store: &dyn Store, sensor: &Arc<Sensor>) -> Vec<(i64, StoredMonth)> {
    let months = Month(Month::from_day(DAY).0 - 2)..Month(Month::from_day(DAY).0 + 3);
    let read = store.read_months(DB, &["nobody", &sensor.key], months, &Projection::SUMMARIES).await.expect("a read");
    let mut found: Vec<_> = read
        .into_iter()
        .map(|(id, mut month)| {
            assert_eq!(*id.sensor, *sensor.key);
            let days = month.totals.iter_mut().flat_map(|totals| &mut totals.days);
            days.for_each(|(_, fields)| fields.sort_by(|a, b| a.0.cmp(&b.0)));
            (id.month.0 - Month::from_day(DAY).0, month)
        })
        .collect();
    found.sort_by_key(|(month, _)| *month);
    found
}

/// Computes the totals of the stored parts.
async fn totals(store: &dyn Store, sensor: &Arc<Sensor>, month: Month) -> MonthTotals {
    let hours = month.days().start.hours().start..month.days().end.hours().start;
    let scanned = store.scan_days(DB, &sensor.key, hours, Order::Ascending, &Projection::SUMMARIES, Extent::ALL).await;
    let mut totals = MonthTotals::from_pages(&scanned.expect("a scan").pages);
    totals.days.iter_mut().for_each(|(_, fields)| fields.sort_by(|a, b| a.0.cmp(&b.0)));
    totals
}

pub async fn a_month_round_trips(target: &mut impl TestStore) {
    let sensor = sensor("climate", &[("sensor", "s 1"), ("room", "a,=")]);
    for day in [0, 1, 3, 20] {
        assert_eq!(write_day(target.store(), &sensor, day, 0).await, WriteOutcome::Applied);
    }
    for month in [0, 1] {
        let id = id(&sensor, month);
        let mut totals = totals(target.store(), &sensor, id.month).await;
        totals.overlapping.push(Day(id.month.days().end.0 - 1));
        assert_eq!(write(target.store(), &id, 0, 40, None).await, WriteOutcome::Applied);
        assert_eq!(write(target.store(), &id, 40, 41, Some(&totals)).await, WriteOutcome::Applied);
        target.reopen().await;
        let found = read_months(target.store(), &sensor).await;
        let (number, found) = found.last().expect("a month");
        assert_eq!((*number, found), (month, &StoredMonth { rev: 41, totals: Some(totals) }), "bit by bit");
    }
}

pub async fn a_month_needs_the_current_rev(target: &mut impl TestStore) {
    let sensor = sensor("climate", &[]);
    let store = target.store();
    let month = id(&sensor, 0);
    let none = MonthTotals::default();
    assert_eq!(write(store, &month, 3, 4, Some(&none)).await, WriteOutcome::Conflict, "there is none");
    assert_eq!(write(store, &month, 0, 100, None).await, WriteOutcome::Applied, "a claim");
    assert_eq!(write(store, &month, 0, 200, None).await, WriteOutcome::Conflict, "it is claimed");
    assert_eq!(read_months(store, &sensor).await, [(0, StoredMonth { rev: 100, totals: None })]);
    assert_eq!(write(store, &month, 100, 300, None).await, WriteOutcome::Applied, "a claim can be taken over");
    assert_eq!(write(store, &month, 100, 101, Some(&none)).await, WriteOutcome::Conflict);
    assert_eq!(write(store, &month, 300, 301, Some(&none)).await, WriteOutcome::Applied);
    assert_eq!(read_months(store, &sensor).await, [(0, StoredMonth { rev: 301, totals: Some(none) })]);
}

pub async fn writing_a_day_removes_its_month(target: &mut impl TestStore) {
    let sensor = sensor("climate", &[("sensor", "s1")]);
    let store = target.store();
    let none = MonthTotals::default();
    for (rev, totals) in [(40, None), (50, Some(&none))] {
        for month in [-1, 0, 1] {
            let _ = write(store, &id(&sensor, month), 0, rev, None).await;
            if totals.is_some() {
                assert_eq!(
                    write(store, &id(&sensor, month), if month == 0 { rev } else { 40 }, 60, totals).await,
                    WriteOutcome::Applied
                );
            }
        }
        // A new part, then an existing part.
        assert_eq!(write_day(store, &sensor, 1, if totals.is_none() { 0 } else { 10 }).await, WriteOutcome::Applied);
        let left: Vec<i64> = read_months(store, &sensor).await.into_iter().map(|(month, _)| month).collect();
        assert_eq!(left, [-1, 1]);
    }
    assert_eq!(write(store, &id(&sensor, 0), 40, 41, Some(&none)).await, WriteOutcome::Conflict, "the claim is gone");
    let day = DayId { sensor: sensor.clone(), day: Day(DAY.0 + 1), part: DayPart::Whole };
    assert_eq!(write(store, &id(&sensor, 0), 0, 70, None).await, WriteOutcome::Applied);
    let removal = DayWrite { id: &day, rev: 20, next_rev: 21, readings: None, expired: None };
    assert_eq!(store.write_days(DB, &[removal]).await, [WriteOutcome::Applied]);
    let left: Vec<i64> = read_months(store, &sensor).await.into_iter().map(|(month, _)| month).collect();
    assert_eq!(left, [-1, 1], "a removed part");
    store.drop_database(DB).await.expect("dropped");
    assert!(read_months(store, &sensor).await.is_empty());
}
