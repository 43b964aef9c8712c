//! Pages with one planted error each: the check finds exactly that error, once.

use std::sync::Arc;

use super::*;
use crate::bucket::Reading;
use crate::bucket::exact::SumRest;
use crate::bucket::raw::Cursor;
use crate::bucket::stamps::StampOrder;
use crate::reading::Sensor;
use crate::verify::finding::{Difference, NoteCount};

const HOUR: Hour = Hour(491_150);
const BOUNDS: Caps = Caps { max_readings: 100, max_bytes: 1 << 20, hard_bytes: 4 << 20 };

fn key(number: u32) -> String {
    format!("2026-01-11T14 m,s=1 {number}")
}

fn readings(seconds: std::ops::Range<i64>) -> Vec<Reading> {
    let reading = |second: i64| {
        let fields = vec![
            (Arc::from("n"), Value::Integer(second)),
            (Arc::from("f"), Value::Float(-0.0)),
            (Arc::from("on"), Value::Boolean(true)),
        ];
        Reading { time: HOUR.start_ns() + second * 1_000_000_000 + 7, fields }
    };
    seconds.map(reading).collect()
}

/// A correct page.
fn page(number: u32, readings: Vec<Reading>) -> RawPage {
    let sensor = Arc::new(Sensor::new("m", [("s", "1")]).expect("distinct tags"));
    let set: Readings = readings.iter().cloned().collect();
    let ms = |time: &i64| time.div_euclid(MILLI_NS);
    RawPage {
        key: key(number),
        in_overflow: Some(number > 0),
        id: key(number),
        own_id: key(number),
        sensor_key: sensor.key.clone(),
        sensor,
        start_ms: HOUR.start_ms(),
        end_ms: HOUR.next().start_ms(),
        number,
        rev: 1,
        closed: false,
        has_overflow: false,
        count: Some(set.len() as u64),
        first_ms: set.times().first().map(ms),
        last_ms: set.times().last().map(ms),
        summary: set.summaries().map(|(name, summary)| (name.clone(), Some(summary.figures()))).collect(),
        readings,
        order: Ok(order(&set)),
    }
}

fn order(set: &Readings) -> StampOrder<'static> {
    let stamps = set.stamps();
    StampOrder {
        floor: stamps.floor(),
        oldest: stamps.oldest(),
        last: stamps.greatest(),
        stamps: set.encode_stamps().into(),
    }
}

fn several() -> Vec<RawPage> {
    let mut pages = vec![page(0, readings(0..5)), page(1, readings(5..10)), page(2, readings(10..12))];
    pages[0].has_overflow = true;
    (pages[0].closed, pages[1].closed) = (true, true);
    pages
}

fn check(pages: Vec<RawPage>) -> Findings {
    let bucket = RawBucket { cursor: Cursor(Vec::new()), pages: pages.into_iter().map(Ok).collect() };
    check_bucket(&bucket, &BOUNDS)
}

fn kinds(findings: &Findings) -> Vec<(FindingKind, &str)> {
    findings.differences.iter().map(|difference| (difference.kind, &*difference.document)).collect()
}

/// The differences of a single page after this change.
fn wrong(change: impl FnOnce(&mut RawPage)) -> Vec<Difference> {
    let mut page = page(0, readings(0..5));
    change(&mut page);
    let findings = check(vec![page]);
    assert!(findings.notes.is_empty(), "{findings:?}");
    findings.differences
}

#[test]
fn correct_pages_have_no_findings() {
    assert_eq!(check(vec![page(0, readings(0..100))]), Findings::default());
    assert_eq!(check(several()), Findings::default());
    let mut embedded = page(0, readings(0..1));
    embedded.in_overflow = None;
    assert_eq!(check(vec![embedded]), Findings::default());
    assert_eq!(check(Vec::new()), Findings::default());
    // The first and the last nanosecond of the hour.
    let ends = [HOUR.start_ns(), HOUR.end_ns() - 1].map(|time| Reading { time, fields: Vec::new() });
    assert_eq!(check(vec![page(0, ends.to_vec())]), Findings::default());
}

#[test]
fn a_contradiction_to_the_key_is_an_identity() {
    let changes: [fn(&mut RawPage); 8] = [
        |page| page.id = key(1),
        |page| page.own_id = key(1),
        |page| page.key = key(1),
        |page| page.sensor_key = "m,s=2".into(),
        |page| page.start_ms += 1,
        |page| page.end_ms -= 1,
        |page| page.end_ms += 3_600_000,
        |page| page.in_overflow = Some(true),
    ];
    for (n, change) in changes.into_iter().enumerate() {
        let found = wrong(change);
        assert!(!found.is_empty() && found.iter().all(|d| d.kind == FindingKind::Identity), "{n}: {found:?}");
    }
}

#[test]
fn a_reading_of_another_hour_is_found() {
    for outside in [HOUR.start_ns() - 1, HOUR.end_ns()] {
        let mut stranger = readings(0..5);
        let at = if outside < HOUR.start_ns() { 0 } else { 4 };
        stranger[at].time = outside;
        let findings = check(vec![page(0, stranger)]);
        assert_eq!(kinds(&findings), [(FindingKind::Hour, &*key(0))]);
    }
}

#[test]
fn order_is_found_and_nothing_is_folded_then() {
    let swapped = wrong(|page| page.readings.swap(1, 3));
    assert_eq!(swapped.iter().map(|d| d.kind).collect::<Vec<_>>(), [FindingKind::Order]);
    let twice = wrong(|page| page.readings[2].time = page.readings[1].time);
    assert_eq!(twice.iter().map(|d| d.kind).collect::<Vec<_>>(), [FindingKind::Order]);
    let field = wrong(|page| {
        let n = page.readings[2].fields[0].clone();
        page.readings[2].fields.push(n);
    });
    assert_eq!(field.iter().map(|d| d.kind).collect::<Vec<_>>(), [FindingKind::Order]);
    assert_eq!(field[0].found, "n twice at 2026-01-11T14:00:02.000000007Z");
}

#[test]
fn count_first_and_last_are_compared_with_the_readings() {
    type Case = (fn(&mut RawPage), &'static str, &'static str);
    let changes: [Case; 5] = [
        (|page| page.count = Some(4), "count 5", "4"),
        (|page| page.count = None, "count 5", "no valid value"),
        (
            |page| page.first_ms = page.first_ms.map(|ms| ms + 1),
            "first 2026-01-11T14:00:00Z",
            "2026-01-11T14:00:00.001Z",
        ),
        (|page| page.last_ms = Some(0), "last 2026-01-11T14:00:04Z", "1970-01-01T00:00:00Z"),
        (|page| page.last_ms = None, "last 2026-01-11T14:00:04Z", "no valid value"),
    ];
    for (change, expected, found) in changes {
        let differences = wrong(change);
        let told: Vec<_> = differences.iter().map(|d| (d.kind, &*d.expected, &*d.found)).collect();
        assert_eq!(told, [(FindingKind::Count, expected, found)]);
    }
}

/// Regression: a repair rewrote pages without their stamps, so that older unflushed values overwrote newer ones.
#[test]
fn the_stamps_of_a_page_are_checked_and_kept() {
    let mut kept = page(0, readings(0..3));
    let mut set: Readings = Readings::default();
    for (reading, stamp) in kept.readings.iter().zip([7, 9, 8]) {
        set.push(reading.time, stamp, reading.fields.iter().map(|(name, value)| (name, value)));
    }
    set.settle(false);
    kept.order = Ok(order(&set));
    assert_eq!(check(vec![kept.clone()]).differences, []);
    assert_eq!(page_readings(&kept).stamps(), set.stamps());
    let wrong = |change: fn(&mut StampOrder<'static>)| {
        let mut kept = kept.clone();
        change(kept.order.as_mut().unwrap());
        (check(vec![kept.clone()]).differences.iter().map(|d| d.kind).collect::<Vec<_>>(), page_readings(&kept))
    };
    assert_eq!(wrong(|order| order.last += 1).0, [FindingKind::Stamps]);
    assert_eq!(wrong(|order| order.oldest = 0).0, [FindingKind::Stamps]);
    let (found, settled) = wrong(|order| order.stamps = vec![9].into());
    assert_eq!((found, settled.stamps().is_settled(), settled.stamps().floor()), (vec![FindingKind::Stamps], true, 9));
}

#[test]
fn every_bit_of_a_summary_counts() {
    let n = |page: &mut RawPage, change: fn(&mut Figures)| change(page.summary[0].1.as_mut().expect("figures"));
    let f = |page: &mut RawPage, change: fn(&mut Figures)| change(page.summary[1].1.as_mut().expect("figures"));
    let cases: Vec<Vec<Difference>> = vec![
        wrong(|page| n(page, |figures| figures.count += 1)),
        wrong(|page| n(page, |figures| figures.sum = Value::Integer(11))),
        wrong(|page| n(page, |figures| figures.sum = Value::Float(10.0))),
        wrong(|page| n(page, |figures| figures.max = Value::Unsigned(4))),
        wrong(|page| n(page, |figures| figures.avg = Value::Float(f64::from_bits(2.0_f64.to_bits() + 1)))),
        wrong(|page| n(page, |figures| std::mem::swap(&mut figures.first, &mut figures.last))),
        wrong(|page| f(page, |figures| figures.min = Value::Float(0.0))),
        wrong(|page| f(page, |figures| figures.rest = SumRest::from_doubles(0.0, [5e-324].into_iter()).unwrap())),
        wrong(|page| page.summary[0].1 = None),
        wrong(|page| drop(page.summary.remove(0))),
        wrong(|page| page.summary.push((Arc::from("on"), None))),
        wrong(|page| page.summary.push((Arc::from("more"), page.summary[0].1.clone()))),
    ];
    for (n, found) in cases.iter().enumerate() {
        assert_eq!(found.iter().map(|d| d.kind).collect::<Vec<_>>(), [FindingKind::Summary], "{n}: {found:?}");
    }
    assert_eq!(cases[6][0].expected, "f: count 5, min -0.0, max -0.0, sum 0.0, avg 0.0, first -0.0, last -0.0");
    assert_eq!(cases[6][0].found, "count 5, min 0.0, max -0.0, sum 0.0, avg 0.0, first -0.0, last -0.0");
}

#[test]
fn a_page_without_readings_is_told_once() {
    let found = wrong(|page| page.readings.clear());
    assert_eq!(found.iter().map(|d| d.kind).collect::<Vec<_>>(), [FindingKind::Empty]);
}

#[test]
fn size_is_a_difference_and_number_a_note() {
    let check = |bounds: &Caps, seconds| {
        let pages = vec![Ok(page(0, readings(seconds)))];
        check_bucket(&RawBucket { cursor: Cursor(Vec::new()), pages }, bounds)
    };
    let bytes = page_readings(&page(0, readings(0..5))).bytes();
    let fits = Caps { max_readings: 5, hard_bytes: bytes, ..BOUNDS };
    assert_eq!(check(&fits, 0..5), Findings::default());
    let small = Caps { max_readings: 5, hard_bytes: bytes - 1, ..BOUNDS };
    assert_eq!(kinds(&check(&small, 0..5)), [(FindingKind::Size, &*key(0))]);
    let one = Caps { max_readings: 1, hard_bytes: 1, ..BOUNDS };
    assert_eq!(check(&one, 0..1), Findings::default(), "a single reading may be larger");
    let few = check(&Caps { max_readings: 4, hard_bytes: bytes, ..BOUNDS }, 0..5);
    let noted = NoteCount { documents: 1, first: key(0) };
    assert_eq!((few.differences.len(), few.notes.get(&Note::ManyReadings)), (0, Some(&noted)));
}

#[test]
fn marks_and_numbers_of_a_bucket_are_checked_together() {
    let wrong = |change: fn(&mut Vec<RawPage>)| {
        let mut pages = several();
        change(&mut pages);
        let findings = check(pages);
        kinds(&findings).into_iter().map(|(kind, document)| (kind, document.to_owned())).collect::<Vec<_>>()
    };
    assert_eq!(wrong(|pages| pages[0].closed = false), [(FindingKind::Open, key(0))]);
    assert_eq!(wrong(|pages| pages[2].closed = true), [], "no page need be open");
    assert_eq!(wrong(|pages| pages[0].has_overflow = false), [(FindingKind::Overflow, key(0))]);
    assert_eq!(wrong(|pages| pages[2].has_overflow = true), [(FindingKind::Overflow, key(2))]);
    assert_eq!(wrong(|pages| drop(pages.remove(1))), [(FindingKind::Numbers, key(0))]);
    assert_eq!(wrong(|pages| drop(pages.remove(0))), [(FindingKind::NoFirst, key(1))]);
    let both = wrong(|pages| {
        let again = pages[2].clone();
        pages.push(again);
    });
    let expected = [(FindingKind::Numbers, key(0)), (FindingKind::Open, key(0)), (FindingKind::TwoPages, key(2))];
    assert_eq!(both, expected, "one page twice, as in both collections");
    let mut alone = page(0, readings(0..5));
    alone.has_overflow = true;
    let findings = check(vec![alone]);
    let noted = NoteCount { documents: 1, first: key(0) };
    assert_eq!((findings.differences.len(), findings.notes.get(&Note::MarkedAhead)), (0, Some(&noted)));
}

#[test]
fn a_time_on_two_pages_is_told_once_per_pair() {
    let mut pages = several();
    let mut more = readings(3..5);
    more.extend(readings(7..9));
    more.extend(readings(20..21));
    pages[2] = page(2, more);
    let findings = check(pages);
    assert_eq!(kinds(&findings), [(FindingKind::TwoPages, &*key(2)), (FindingKind::TwoPages, &*key(2))]);
    assert_eq!(findings.differences[0].found, "2 also on page 0, for example 2026-01-11T14:00:03.000000007Z");
    assert_eq!(findings.differences[1].found, "2 also on page 1, for example 2026-01-11T14:00:07.000000007Z");
}

#[test]
fn a_page_that_cannot_be_read_hides_no_other_and_is_not_missing() {
    let mut pages: Vec<_> = several().into_iter().map(Ok).collect();
    pages[1] = Err(StorageError::Unreadable { id: key(1), detail: "no start".into() });
    if let Ok(page) = &mut pages[2] {
        page.count = Some(9);
    }
    let bucket = RawBucket { cursor: Cursor(Vec::new()), pages };
    let findings = check_bucket(&bucket, &BOUNDS);
    assert_eq!(kinds(&findings), [(FindingKind::Unreadable, &*key(1)), (FindingKind::Count, &*key(2))]);
    assert_eq!(findings.differences[0].found, "no start");
}

#[test]
fn only_sound_pages_are_made_anew() {
    assert!(is_sound(&page(0, readings(0..5))));
    let changes: [fn(&mut RawPage); 3] =
        [|page| page.end_ms += 1, |page| page.readings.swap(0, 1), |page| page.readings.clear()];
    for change in changes {
        let mut page = page(0, readings(0..5));
        change(&mut page);
        assert!(!is_sound(&page));
    }
}
