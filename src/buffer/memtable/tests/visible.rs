//! Tests of the visibility of unflushed readings to queries, and of their order in a flush.

use super::*;
use crate::members::registry_view::RegistryView;

/// Returns a sensor's unflushed readings as text: `hour nanosecond field=value…`.
fn seen(bench: &Bench, sensor: usize, hours: Range<Hour>) -> Vec<String> {
    let mut seen = Vec::new();
    for unflushed in bench.unflushed.sensor_hours(bench.known(sensor).id, &hours, &RegistryView::unshared()) {
        let hour = unflushed.hour;
        let readings = unflushed.readings();
        for reading in (0..readings.len()).map(|index| readings.reading(index)) {
            let mut fields: Vec<String> =
                reading.fields.iter().map(|(name, v)| format!(" {name}={}", text(v))).collect();
            fields.sort_unstable();
            seen.push(format!("{} {}{}", hour.0, reading.time - hour.start_ns(), fields.concat()));
        }
    }
    seen
}

fn text(value: &Value) -> String {
    let Value::Integer(number) = value else { panic!("a number: {value:?}") };
    number.to_string()
}

const ALL: Range<Hour> = Hour(i64::MIN)..Hour(i64::MAX);

fn number(field: u16, value: i64) -> (u16, Value) {
    (field, Value::Integer(value))
}

#[test]
fn later_values_win_by_field_also_during_a_flush() {
    let mut bench = Bench::new(ROOMY);
    bench.dispatch(seconds(0), &[(0, 7, &[number(0, 1), number(1, 1)]), (0, 5, &[number(0, 1)])]);
    bench.dispatch(seconds(0), &[(0, 7, &[number(1, 2), number(2, 2)]), (0, 7, &[number(2, 3)])]);
    assert_eq!(seen(&bench, 0, ALL), ["10 5 f0=1", "10 7 f0=1 f1=2 f2=3"]);
    let flush = only(bench.due_up_to(seconds(0), OPEN, Sequence::MAX, false));
    bench.dispatch(seconds(0), &[(0, 7, &[number(0, 4)]), (0, 6, &[number(3, 4)])]);
    let all = ["10 5 f0=1", "10 6 f3=4", "10 7 f0=4 f1=2 f2=3"];
    assert_eq!(seen(&bench, 0, ALL), all, "some are in flush");
    bench.return_flush(seconds(0), flush, false);
    assert_eq!(seen(&bench, 0, ALL), all, "the flush failed");
    let (key, load) = only(bench.due(seconds(0), OPEN));
    assert_eq!(seen(&bench, 0, ALL), all, "all are in flush");
    bench.dispatch(seconds(0), &[(0, 5, &[number(0, 5)])]);
    drop(load);
    bench.complete(key);
    assert_eq!(seen(&bench, 0, ALL), ["10 5 f0=5"], "the store has the others");
    assert_eq!(seen(&bench, 1, ALL), [""; 0]);
}

#[test]
fn hours_come_in_order_and_only_those_asked_for() {
    let mut bench = Bench::new(ROOMY);
    let hour = 3_600_000_000_000;
    for hours in [2, 0, -11, 1] {
        bench.dispatch(seconds(0), &[(0, hours * hour + 1, &[number(0, hours)])]);
    }
    assert_eq!(bench.unflushed.len(), 4);
    assert_eq!(seen(&bench, 0, ALL), ["-1 1 f0=-11", "10 1 f0=0", "11 1 f0=1", "12 1 f0=2"]);
    assert_eq!(seen(&bench, 0, Hour(10)..Hour(12)), ["10 1 f0=0", "11 1 f0=1"]);
    assert_eq!(seen(&bench, 0, Hour(3)..Hour(3)), [""; 0]);
}

#[test]
fn a_flush_is_in_time_order_then_in_wal_order() {
    let mut bench = Bench::new(ROOMY);
    bench.dispatch(seconds(0), &[(0, 7, &[number(0, 1)]), (0, 5, &[number(0, 1)])]);
    bench.dispatch(seconds(0), &[(0, 5, &[number(0, 2)]), (0, 7, &[number(0, 2)])]);
    let flush = only(bench.due_up_to(seconds(0), OPEN, Sequence::MAX, false));
    assert_eq!(rows(&flush.1), [(5, 1), (5, 2), (7, 1), (7, 2)]);
    bench.dispatch(seconds(0), &[(0, 5, &[number(0, 3)])]);
    bench.return_flush(seconds(0), flush, false);
    let flush = only(bench.due(seconds(0), OPEN));
    assert_eq!(rows(&flush.1), [(5, 1), (5, 2), (5, 3), (7, 1), (7, 2)], "they stay before what came since");
    // The same after a failure of the bucket's own.
    bench.dispatch(seconds(0), &[(0, 7, &[number(0, 4)])]);
    bench.return_flush(seconds(0), flush, true);
    let (_, load) = only(bench.due(DELAY.start, OPEN));
    assert_eq!(rows(&load), [(5, 1), (5, 2), (5, 3), (7, 1), (7, 2), (7, 4)]);
}

#[test]
fn a_bucket_counts_returned_readings_as_full() {
    let mut bench = Bench::new(Caps { max_readings: 4, ..ROOMY });
    bench.dispatch_one(seconds(0), 0, 1);
    bench.dispatch_one(seconds(0), 0, 2);
    let flush = only(bench.due_up_to(seconds(0), OPEN, Sequence::MAX, false));
    bench.dispatch_one(seconds(0), 0, 3);
    bench.return_flush(seconds(0), flush, false);
    bench.dispatch_one(seconds(0), 1, 1);
    bench.dispatch_one(seconds(0), 0, 4);
    let (key, load) = only(bench.due(seconds(0), OPEN));
    assert_eq!((key, rows(&load).len()), (bench.key(0), 4));
}
