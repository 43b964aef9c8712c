//! Sealed days: compare-and-set writes, whole reads, and scans by hour.

use std::sync::Arc;

use hourglass::bucket::store::{Extent, Order, Projection, ScannedPage, WriteOutcome};
use hourglass::bucket::summary::Figures;
use hourglass::bucket::{
    DatabaseSettings, DayId, DayPart, DayWrite, ExpiredDay, Reading, Readings, SealForm, Store, StoredDay, Summary,
};
use hourglass::reading::{Day, Hour, Sensor, Value};

use super::test_store::{CAPS, DB, SMALL, TestStore, bucket_id, put, read, reading, seconds, sensor};

const DAY: Day = Day(20_468);
const ALL: std::ops::Range<Hour> = Hour(-3_000_000)..Hour(3_000_000);
const FLOOR: u64 = 77 << 20;

fn id(sensor: &Arc<Sensor>, day: i64) -> DayId {
    DayId { sensor: sensor.clone(), day: Day(DAY.0 + day), part: DayPart::Whole }
}

/// Returns a reading in each of these hours of a day, with every type of value. Days of odd values are too large for the
/// plain form.
pub fn readings(day: i64, hours: &[i64], value: i64) -> Readings {
    let pad = if value % 2 == 0 { String::new() } else { "x".repeat(20_000) };
    let start = Day(DAY.0 + day).hours().start;
    let of_hour = |hour: &i64| {
        let time = Hour(start.0 + hour).start_ns() + 1_234_567_891;
        let fields = [
            ("float", Value::Float(0.1 * f64::from(i32::try_from(value + hour).expect("small")))),
            ("integer", Value::Integer(value * hour - 7)),
            ("unsigned", Value::Unsigned(u64::MAX - u64::try_from(*hour).expect("an hour"))),
            ("truth", Value::Boolean(hour % 2 == 0)),
            ("text", Value::String(format!("{hour} ° $.\u{1f600}{pad}").into())),
            ("$a.b", Value::Float(if hour % 3 == 0 { 1e300 } else { f64::MIN_POSITIVE })),
        ];
        let fields = if hour % 5 == 4 { &fields[..2] } else { &fields[..] };
        reading(time, fields)
    };
    let mut set: Readings = hours.iter().map(of_hour).collect::<Vec<Reading>>().into_iter().collect();
    set.raise_floor(FLOOR);
    set
}

async fn write(store: &dyn Store, id: &DayId, rev: u64, next_rev: u64, readings: Option<&Readings>) -> WriteOutcome {
    store.write_days(DB, &[DayWrite { id, rev, next_rev, readings, expired: None }]).await.remove(0)
}

async fn read_day(store: &dyn Store, id: &DayId) -> Option<StoredDay> {
    store.read_days(DB, std::slice::from_ref(id)).await.expect("a read").remove(0)
}

async fn scan_all(store: &dyn Store, sensor: &Arc<Sensor>, projection: &Projection) -> Vec<ScannedPage> {
    let scanned = store.scan_days(DB, &sensor.key, ALL, Order::Ascending, projection, Extent::ALL).await;
    scanned.expect("a scan").pages
}

fn hours(pages: &[ScannedPage]) -> Vec<i64> {
    pages.iter().map(|page| page.hour.0 - DAY.hours().start.0).collect()
}

pub async fn a_day_round_trips(target: &mut impl TestStore) {
    let sensor = sensor("climate", &[("sensor", "s1"), ("room", "a b,=")]);
    let set = readings(0, &[0, 1, 4, 9, 23], 5);
    assert_eq!(write(target.store(), &id(&sensor, 0), 0, 9 << 30, Some(&set)).await, WriteOutcome::Applied);
    target.reopen().await;
    let day = read_day(target.store(), &id(&sensor, 0)).await.expect("a day");
    assert_eq!((day.rev, &day.readings), (9 << 30, &set));
    assert_eq!(day.readings.stamps().floor(), FLOOR);
    assert!(day.readings.stamps().is_settled());
    let store = target.store();
    for (projection, with_readings) in [(Projection::ALL, true), (Projection::SUMMARIES, false)] {
        let pages = scan_all(store, &sensor, &projection).await;
        assert_eq!(hours(&pages), [0, 1, 4, 9, 23]);
        for (page, (hour, readings)) in pages.iter().zip(hourglass::bucket::day::by_hour(set.clone())) {
            let mut expected = readings.owned_summaries();
            let mut found = page.summary.clone();
            expected.sort_by(|a, b| a.0.cmp(&b.0));
            found.sort_by(|a, b| a.0.cmp(&b.0));
            assert_eq!((page.hour, page.oldest, found.into_vec()), (hour, FLOOR, expected));
            assert_eq!(page.readings.as_ref(), with_readings.then_some(&readings));
        }
    }
    let sums = |pages: &[ScannedPage]| {
        let sum = |(name, summary): &(Arc<str>, Summary)| {
            let Figures { count, sum, rest, avg, .. } = summary.figures();
            (name.clone(), count, sum, rest, avg)
        };
        pages.iter().map(|page| (page.hour, page.summary.iter().map(sum).collect::<Vec<_>>())).collect::<Vec<_>>()
    };
    let mut of_sums = Vec::new();
    for only_sums in [false, true] {
        let wanted = Projection { only_sums, ..Projection::SUMMARIES };
        of_sums.push(sums(&scan_all(store, &sensor, &wanted).await));
    }
    assert_eq!(of_sums[0], of_sums[1], "sums are whole where nothing else is asked for");
    let fields: Arc<[Arc<str>]> = Arc::new(["$a.b".into()]);
    let one = Projection { fields: Some(fields), ..Projection::SUMMARIES };
    let pages = scan_all(store, &sensor, &one).await;
    let names = |page: &ScannedPage| page.summary.iter().map(|(name, _)| name.to_string()).collect::<Vec<_>>();
    assert_eq!(pages.iter().map(names).collect::<Vec<_>>(), [vec!["$a.b"], vec!["$a.b"], vec![], vec![], vec!["$a.b"]]);
    let pages = scan_all(store, &sensor, &Projection::without_fields()).await;
    assert_eq!(hours(&pages), [0, 1, 4, 9, 23], "all hours, without any field");
}

pub async fn a_day_needs_the_current_rev(target: &mut impl TestStore) {
    let sensor = sensor("climate", &[]);
    let store = target.store();
    let first = readings(0, &[1], 1);
    let second = readings(0, &[1, 2], 2);
    let day = id(&sensor, 0);
    assert_eq!(write(store, &day, 3, 4, Some(&first)).await, WriteOutcome::Conflict, "there is none");
    assert_eq!(write(store, &day, 0, 100, Some(&Readings::default())).await, WriteOutcome::Applied, "a claim");
    assert_eq!(write(store, &day, 0, 200, Some(&first)).await, WriteOutcome::Conflict, "it is claimed");
    let claim = read_day(store, &day).await.expect("a claim");
    assert_eq!((claim.rev, claim.readings.len()), (100, 0));
    assert!(scan_all(store, &sensor, &Projection::ALL).await.is_empty(), "a claim is no hour");
    let parts = store.list_day_parts(DB, &[&sensor.key], Day::range_from_hours(&ALL)).await.expect("parts");
    assert_eq!(parts, [(0, DAY, DayPart::Whole)]);
    assert_eq!(write(store, &day, 100, 101, Some(&first)).await, WriteOutcome::Applied);
    assert_eq!(write(store, &day, 100, 101, Some(&second)).await, WriteOutcome::Conflict);
    assert_eq!(write(store, &day, 100, 101, None).await, WriteOutcome::Conflict);
    assert_eq!(read_day(store, &day).await.expect("a day").readings, first);
    assert_eq!(write(store, &day, 101, 102, Some(&second)).await, WriteOutcome::Applied);
    assert_eq!(read_day(store, &day).await.expect("a day").readings, second);
    assert_eq!(write(store, &day, 102, 103, None).await, WriteOutcome::Applied);
    assert!(read_day(store, &day).await.is_none());
    assert_eq!(write(store, &day, 102, 103, Some(&first)).await, WriteOutcome::Conflict, "it is gone");
}

pub async fn summaries_of_expired_readings_stay(target: &mut impl TestStore) {
    let sensor = sensor("climate", &[("sensor", "s1")]);
    let hourly = DayId { part: DayPart::Hour(4), ..id(&sensor, 1) };
    for (id, set) in [(id(&sensor, 0), readings(0, &[0, 1, 4, 9, 23], 5)), (hourly, readings(1, &[4], 6))] {
        assert_eq!(write(target.store(), &id, 0, 40, Some(&set)).await, WriteOutcome::Applied);
        let scan = async |store: &dyn Store, projection: &Projection| {
            let scanned = store.scan_days(DB, &sensor.key, id.hours(), Order::Ascending, projection, Extent::ALL).await;
            let mut pages = scanned.expect("a scan").pages;
            pages.iter_mut().for_each(|page| page.summary.sort_by(|a, b| a.0.cmp(&b.0)));
            pages.into_iter().map(|page| (page.hour, page.summary)).collect::<Vec<_>>()
        };
        let before = scan(target.store(), &Projection::SUMMARIES).await;
        let mut expired = ExpiredDay::from_readings(&set);
        let mut none = Readings::default();
        none.raise_floor(FLOOR + 1);
        let mut rev = 40;
        for _ in 0..2 {
            let day_write =
                DayWrite { id: &id, rev, next_rev: rev + 1, readings: Some(&none), expired: Some(&expired) };
            let late = DayWrite { rev: rev + 7, ..day_write.clone() };
            assert_eq!(target.store().write_days(DB, &[late]).await, [WriteOutcome::Conflict]);
            assert_eq!(target.store().write_days(DB, &[day_write]).await, [WriteOutcome::Applied]);
            target.reopen().await;
            rev += 1;
            let day = read_day(target.store(), &id).await.expect("a day");
            assert_eq!((day.rev, day.expired.as_ref(), day.readings.len()), (rev, Some(&expired), 0));
            assert_eq!(day.readings.stamps().floor(), FLOOR + 1);
            let left: Vec<_> =
                before.iter().filter(|(hour, _)| expired.hours.iter().any(|one| one.hour == *hour)).cloned().collect();
            assert_eq!(scan(target.store(), &Projection::SUMMARIES).await, left, "bit by bit");
            assert_eq!(scan(target.store(), &Projection::ALL).await, [], "no reading");
            let walked = target.store().walk_days(DB, None, 100).await.expect("a walk").found;
            let found = walked.iter().filter_map(|day| day.document.as_ref().ok()).find(|day| day.id == id);
            assert_eq!(found.expect("the part").mismatches, []);
            // Then again, without its first hour.
            if expired.hours.len() > 1 {
                let hour = expired.hours[0].hour;
                assert!(expired.remove(&(hour.start_ns()..hour.end_ns())));
            }
        }
        assert_eq!(write(target.store(), &id, rev, rev + 1, None).await, WriteOutcome::Applied);
    }
}

/// Every form can be read, and rewritten parts get the chosen form.
pub async fn days_of_all_forms_coexist(target: &mut impl TestStore) {
    let sensor = sensor("climate", &[("sensor", "s1")]);
    let held = |id: &DayId, rev: u64| {
        let value = i64::try_from(rev).expect("small");
        let hours: &[i64] = if id.part == DayPart::Whole { &[0, 1, 4, 9, 23] } else { &[4] };
        readings(id.day.0 - DAY.0, hours, value)
    };
    let forms = [None, Some(SealForm::Columns), Some(SealForm::Packed), Some(SealForm::Off), Some(SealForm::Columns)];
    let mut written: Vec<(DayId, u64)> = Vec::new();
    for (number, form) in (0..).zip(forms) {
        let settings = DatabaseSettings { rev: number + 1, seal_form: form, ..DatabaseSettings::default() };
        assert_eq!(target.store().write_settings(DB, number, Some(&settings)).await, WriteOutcome::Applied);
        // Rewrites every second day with other readings, and adds two.
        for (id, rev) in written.iter_mut().step_by(2) {
            assert_eq!(
                write(target.store(), id, *rev, *rev + 1, Some(&held(id, *rev + 1))).await,
                WriteOutcome::Applied
            );
            *rev += 1;
        }
        let day = 2 * i64::try_from(number).expect("small");
        for id in [DayId { part: DayPart::Hour(4), ..id(&sensor, day + 1) }, id(&sensor, day)] {
            assert_eq!(write(target.store(), &id, 0, 7, Some(&held(&id, 7))).await, WriteOutcome::Applied);
            written.push((id, 7));
        }
        target.reopen().await;
        for (id, rev) in &written {
            let day = read_day(target.store(), id).await.expect("a day");
            assert_eq!((day.rev, &day.readings), (*rev, &held(id, *rev)), "{form:?}");
        }
        let walked = target.store().walk_days(DB, None, 100).await.expect("a walk").found;
        assert_eq!(walked.len(), written.len());
        assert!(walked.iter().all(|day| day.document.as_ref().is_ok_and(|day| day.mismatches.is_empty())), "{form:?}");
    }
    // Expired days have no form.
    let (id, rev) = &written[2];
    let expired = ExpiredDay::from_readings(&held(id, *rev));
    let none = Readings::default();
    let gone = DayWrite { id, rev: *rev, next_rev: rev + 1, readings: Some(&none), expired: Some(&expired) };
    assert_eq!(target.store().write_days(DB, &[gone]).await, [WriteOutcome::Applied]);
    assert_eq!(read_day(target.store(), id).await.expect("a day").expired, Some(expired));
}

pub async fn a_scan_reads_days_in_both_orders_and_stops_at_a_limit(target: &mut impl TestStore) {
    let ours = sensor("climate", &[("s", "1")]);
    let theirs = sensor("climate", &[("s", "0")]);
    let store = target.store();
    for day in [-2, 0, 1, 5] {
        assert_eq!(
            write(store, &id(&ours, day), 0, 1, Some(&readings(day, &[0, 7, 23], day))).await,
            WriteOutcome::Applied
        );
    }
    for day in [-3, -1, 0, 4] {
        assert_eq!(write(store, &id(&theirs, day), 0, 1, Some(&readings(day, &[3], day))).await, WriteOutcome::Applied);
    }
    let all = [-48, -41, -25, 0, 7, 23, 24, 31, 47, 120, 127, 143];
    let start = DAY.hours().start.0;
    for (from, to) in [(-100, 200), (-48, 144), (-41, 7), (-40, 8), (0, 24), (24, 24), (48, 120), (130, 140), (9, 3)] {
        let range = Hour(start + from)..Hour(start + to);
        let expected: Vec<i64> = all.iter().copied().filter(|hour| (from..to).contains(hour)).collect();
        for (order, pages) in
            [(Order::Ascending, 1), (Order::Descending, 1), (Order::Ascending, 4), (Order::Descending, 99)]
        {
            let mut found = Vec::new();
            let mut rest = range.clone();
            while !rest.is_empty() {
                let extent = Extent::pages(pages);
                let scanned = store.scan_days(DB, &ours.key, rest.clone(), order, &Projection::SUMMARIES, extent).await;
                let scanned = scanned.expect("a scan");
                assert!(scanned.pages.len() < pages + 24);
                found.extend(hours(&scanned.pages));
                assert!(scanned.rest.is_empty() || scanned.rest != rest, "it goes on");
                rest = scanned.rest;
            }
            let mut expected = expected.clone();
            if order == Order::Descending {
                expected.reverse();
            }
            assert_eq!(found, expected, "{from}..{to} {order:?}");
        }
        let of_both = store.scan_sensor_days(DB, &[&theirs.key, &ours.key], range, &Projection::ALL, usize::MAX).await;
        let of_both = of_both.expect("a scan").expect("it fits");
        assert_eq!(hours(&of_both[1]), expected);
        assert!(hours(&of_both[0]).iter().all(|hour| (from..to).contains(hour) && hour.rem_euclid(24) == 3));
    }
    let tight = store.scan_sensor_days(DB, &[&ours.key], ALL, &Projection::ALL, 100).await.expect("a scan");
    assert!(tight.is_none());
    store.drop_database(DB).await.expect("a drop");
    assert!(store.list_day_parts(DB, &[&ours.key], Day::range_from_hours(&ALL)).await.expect("parts").is_empty());
}

/// Returns a chunk with one reading per record; the last one names it.
fn chunk(sensor: &Arc<Sensor>, day: i64, times: &[(i64, u64)]) -> (DayId, Readings) {
    let mut set = Readings::default();
    let start = Day(DAY.0 + day).hours().start;
    for (minute, stamp) in times {
        let fields = [("temp".into(), Value::Integer(*minute)), ("on".into(), Value::Boolean(true))];
        let time = start.start_ns() + minute * 60_000_000_000;
        set.push(time, *stamp, fields.iter().map(|(name, value): &(Arc<str>, Value)| (name, value)));
    }
    set.settle(false);
    let stamp = set.stamps().greatest();
    let hour = u8::try_from(times[0].0 / 60).expect("an hour");
    (DayId { part: DayPart::Chunk { stamp, hour }, ..id(sensor, day) }, set)
}

pub async fn chunks_and_hours_belong_to_their_day(target: &mut impl TestStore) {
    let ours = sensor("climate", &[("s", "1")]);
    let theirs = sensor("climate", &[("s", "0")]);
    // A realistic stamp, and cells with their own stamps.
    let stamp = 1_790_000_000_000 << 20;
    let (first, set) = chunk(&ours, 0, &[(61, stamp + 7), (62, stamp + 9), (200, stamp + 9)]);
    let (second, other) = chunk(&ours, 0, &[(130, stamp + 9)]);
    let (third, far) = chunk(&theirs, 2, &[(1, stamp)]);
    let hour = DayId { part: DayPart::Hour(5), ..id(&ours, 0) };
    let of_hour = readings(0, &[5], 3);
    let whole = readings(0, &[1, 9], 8);
    let all = [(&first, &set), (&second, &other), (&third, &far), (&hour, &of_hour), (&id(&ours, 0), &whole)];
    for (id, set) in all {
        assert_eq!(write(target.store(), id, 0, stamp, Some(set)).await, WriteOutcome::Applied, "{:?}", id.part);
        assert_eq!(write(target.store(), id, 0, stamp, Some(set)).await, WriteOutcome::Conflict, "{:?}", id.part);
    }
    target.reopen().await;
    let store = target.store();
    for (id, set) in all {
        let stored = read_day(store, id).await.expect("stored");
        assert_eq!((stored.rev, &stored.readings), (stamp, set), "{:?}", id.part);
        assert_eq!(stored.readings.stamps(), set.stamps(), "{:?}", id.part);
    }
    let days = Day(DAY.0 - 1)..Day(DAY.0 + 3);
    let mut parts = store.list_day_parts(DB, &[&theirs.key, "none", &ours.key], days.clone()).await.expect("parts");
    parts.sort();
    let mut expected = vec![
        (0, Day(DAY.0 + 2), third.part),
        (2, DAY, DayPart::Whole),
        (2, DAY, hour.part),
        (2, DAY, first.part),
        (2, DAY, second.part),
    ];
    expected.sort();
    assert_eq!(parts, expected);
    // Days with chunks, by day and sensor, each once.
    let ours_key = ours.key.to_string();
    let theirs_key = theirs.key.to_string();
    let from = (Day(DAY.0 - 9), String::new());
    let listed = |until: i64, most: usize, from| async move {
        store.next_chunks(DB, from, Day(DAY.0 + until), most).await.expect("a list")
    };
    let both = [(DAY, ours_key.clone()), (Day(DAY.0 + 2), theirs_key.clone())];
    assert_eq!(listed(9, 9, &from).await, both);
    assert_eq!(listed(9, 1, &from).await, both[..1]);
    assert_eq!(listed(9, 1, &both[0]).await, both[1..]);
    assert_eq!(listed(2, 9, &from).await, both[..1]);
    assert_eq!(listed(9, 9, &both[1]).await, []);
    assert_eq!(store.last_day(DB).await.expect("a day"), Some(Day(DAY.0 + 2)));
    assert_eq!(store.last_day("none").await.expect("no day"), None);
    // A page per hour and part.
    for order in [Order::Ascending, Order::Descending] {
        for projection in [Projection::ALL, Projection::SUMMARIES] {
            for most in [1, 3, 100] {
                let mut found: Vec<ScannedPage> = Vec::new();
                let mut rest = ALL;
                while !rest.is_empty() {
                    let extent = Extent::pages(most);
                    let scanned = store.scan_days(DB, &ours.key, rest, order, &projection, extent).await;
                    let scanned = scanned.expect("a scan");
                    found.extend(scanned.pages);
                    rest = scanned.rest;
                }
                let mut expected = vec![1, 1, 2, 3, 5, 9];
                if order == Order::Descending {
                    expected.reverse();
                }
                assert_eq!(hours(&found), expected, "{order:?} {most}");
                assert!(found.iter().all(|page| page.readings.is_some() == projection.readings));
                let counts: u64 = found
                    .iter()
                    .flat_map(|page| &page.summary)
                    .filter(|(name, _)| &**name == "temp")
                    .map(|(_, summary)| summary.figures().count)
                    .sum();
                assert_eq!(counts, 4, "the chunks have summaries, too");
                let least = found.iter().filter(|page| page.oldest > FLOOR).map(|page| page.oldest).min();
                assert_eq!(least, Some(stamp + 7));
            }
        }
    }
    let start = DAY.hours().start.0;
    let some = Hour(start + 5)..Hour(start + 6);
    let scanned = store.scan_days(DB, &ours.key, some.clone(), Order::Ascending, &Projection::ALL, Extent::ALL).await;
    assert_eq!(hours(&scanned.expect("a scan").pages), [5]);
    let of_both = store.scan_sensor_days(DB, &[&theirs.key, &ours.key], ALL, &Projection::ALL, usize::MAX).await;
    let of_both = of_both.expect("a scan").expect("it fits");
    assert_eq!((hours(&of_both[0]), hours(&of_both[1])), (vec![48], vec![1, 1, 2, 3, 5, 9]));
    // A walk visits all of them; a removal takes one.
    let walked = store.walk_days(DB, None, 100).await.expect("a walk").found;
    assert_eq!(walked.len(), 5);
    for raw in &walked {
        let document = raw.document.as_ref().expect("readable");
        assert_eq!(document.mismatches, []);
        assert!(all.iter().any(|(id, set)| **id == document.id && **set == document.day.readings));
    }
    assert_eq!(write(store, &first, stamp, stamp + 1, None).await, WriteOutcome::Applied);
    assert_eq!(listed(9, 9, &from).await, both, "the other chunk of the day is left");
    assert_eq!(write(store, &second, stamp, stamp + 1, None).await, WriteOutcome::Applied);
    assert_eq!(listed(9, 9, &from).await, both[1..]);
    store.drop_database(DB).await.expect("a drop");
    assert_eq!(listed(9, 9, &from).await, []);
}

pub async fn a_walk_visits_every_day_once(target: &mut impl TestStore) {
    let sensor = sensor("climate", &[("sensor", "s1"), ("room", "a b,=")]);
    let mut none = Readings::default();
    none.raise_floor(FLOOR);
    for day in [-3, 0, 4] {
        let set = readings(day, &[0, 4, 23], 11 + day);
        assert_eq!(write(target.store(), &id(&sensor, day), 0, 9 << 30, Some(&set)).await, WriteOutcome::Applied);
    }
    assert_eq!(write(target.store(), &id(&sensor, 5), 0, 9 << 30, Some(&none)).await, WriteOutcome::Applied);
    for most in [1, 2, 100] {
        let mut found = Vec::new();
        let mut from = None;
        loop {
            let walked = target.store().walk_days(DB, from.as_ref(), most).await.expect("a part");
            assert!(walked.found.len() <= most);
            found.extend(walked.found);
            from = walked.next;
            if from.is_none() {
                break;
            }
        }
        for (raw, day) in found.iter().zip([-3, 0, 4, 5]) {
            let document = raw.document.as_ref().expect("a day");
            assert_eq!(document.id, id(&sensor, day));
            assert_eq!(document.mismatches, []);
            let set = if day == 5 { none.clone() } else { readings(day, &[0, 4, 23], 11 + day) };
            assert_eq!(document.day.readings, set);
            let again = target.store().walk_days(DB, Some(&raw.cursor), 1).await.expect("a part").found;
            assert_eq!(again[0].key, raw.key);
        }
        assert_eq!(found.len(), 4);
    }
    assert_eq!(target.store().estimate_pages().await.expect("a number"), 4);
}

pub async fn buckets_are_listed_by_hour_and_pages_removed_by_rev(target: &mut impl TestStore) {
    let a = sensor("m", &[("s", "a")]);
    let b = sensor("m", &[("s", "b")]);
    for (sensor, hour, many) in [(&a, 5, 1), (&b, 5, 12), (&b, 6, 1), (&a, 7, 1), (&a, 9, 1)] {
        let values: Vec<i64> = (0..many).collect();
        let caps = if many > 1 { &SMALL } else { &CAPS };
        put(target.store(), &bucket_id(sensor, Hour(hour)), &seconds(Hour(hour), 0, &values), caps).await;
    }
    let store = target.store();
    let mut from = (Hour(-10), String::new());
    let mut found: Vec<(i64, String)> = Vec::new();
    loop {
        let next = store.next_buckets(DB, &from, Hour(9), 2).await.expect("a list");
        let Some(last) = next.last().cloned() else { break };
        assert!(next.len() <= 2);
        found.extend(next.into_iter().map(|(hour, sensor)| (hour.0, sensor)));
        from = last;
    }
    let expected = [(5, &a), (5, &b), (6, &b), (7, &a)].map(|(hour, sensor)| (hour, sensor.key.to_string()));
    assert_eq!(found, expected);
    let ids = [bucket_id(&a, Hour(5)), bucket_id(&b, Hour(5)), bucket_id(&b, Hour(6)), bucket_id(&a, Hour(7))];
    let mut pages = Vec::new();
    for id in &ids {
        pages.push((id.clone(), read(store, DB, id).await[0].rev));
    }
    // Another writer changed one of them, and one has other pages.
    pages[2].1 += 1;
    store.remove_single_pages(DB, &pages).await.expect("a removal");
    let mut left = Vec::new();
    for id in &ids {
        left.push(read(store, DB, id).await.len());
    }
    assert_eq!(left, [0, 3, 1, 0]);
}
