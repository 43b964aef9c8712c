//! Conditions split into the time range they allow and the rest, windows get InfluxDB's offsets, and subqueries
//! inherit.

use super::super::{CheckedSelect, CivilTime, Clock, MAX_TIME, MIN_TIME, TimeRange, check, split};
use super::{NOW, select, utc};

const HOUR: i64 = 3_600_000_000_000;
const MINUTE: i64 = 60_000_000_000;

#[test]
fn conditions_split_into_time_and_the_rest() {
    for (condition, min, max, rest) in [
        ("time > 5", Some(6), None, ""),
        ("time >= 5 and time < 9", Some(5), Some(8), ""),
        ("5 < time and 9 >= time", Some(6), Some(9), ""),
        ("time = 5", Some(5), Some(5), ""),
        ("time >= 1672556400000ms", Some(1_672_556_400_000_000_000), None, ""),
        ("time > now() - 1h", Some(NOW - HOUR + 1), None, ""),
        ("time > now() - 1h30m and time <= now()", Some(NOW - HOUR - 30 * MINUTE + 1), Some(NOW), ""),
        ("time >= '1970-01-01T00:00:01Z'", Some(1_000_000_000), None, ""),
        ("time >= '1970-01-01 00:00:01.5'", Some(1_500_000_000), None, ""),
        ("time >= '1970-01-01' + 1h", Some(HOUR), None, ""),
        ("time >= 5.9", Some(5), None, ""),
        ("time > 9223372036854775807", Some(i64::MAX), None, ""),
        // There is one range, regardless of the operator that joins its ends.
        ("time > 3 or time < 9", Some(4), Some(8), ""),
        ("host = 'a' or time > 3", Some(4), None, "host = 'a'"),
        ("host = 'a' and time > 3", Some(4), None, "host = 'a'"),
        ("(time > 3 and (host = 'a' or host = 'b')) and v > 1", Some(4), None, "(host = 'a' OR host = 'b') AND v > 1"),
        ("(host = 'a')", None, None, "host = 'a'"),
        ("host = 'a' and true", None, None, "host = 'a'"),
        ("true", None, None, ""),
        ("false", None, None, "false"),
        ("v > 1 + 2 * 3", None, None, "v > 7"),
        ("v > 2 and 1 > 2", None, None, "false"),
        ("v > 7 / 2", None, None, "v > 3.500"),
        ("v = 7 % 0", None, None, "v = 0"),
        ("(time > 5) = true", None, None, "(time > 5) = true"),
    ] {
        let text = format!("select v from m where {condition}");
        let (range, left) = split(select(&text).condition.as_ref(), &utc()).expect("valid condition");
        assert_eq!(range, TimeRange { min, max }, "{condition}");
        assert_eq!(left.map(|left| left.to_string()).unwrap_or_default(), rest, "{condition}");
    }
}

#[test]
fn a_civil_time_is_resolved_in_the_zone_of_its_own_select() {
    fn resolve(zone: &str, civil: CivilTime) -> i128 {
        crate::utc(civil) - if zone == "Europe/Paris" { i128::from(HOUR) } else { 0 }
    }
    let clock = Clock { resolve: &resolve, ..utc() };
    let text = "select v from (select v from m where time >= '2024-01-01' tz('UTC')) \
                where time >= '2024-01-01' and time < '2024-01-02T00:00:00Z' tz('Europe/Paris')";
    let checked = check(&select(text), &clock).expect("valid");
    let midnight = 1_704_067_200_000_000_000;
    assert_eq!((checked.min, checked.max), (midnight - HOUR, midnight + 24 * HOUR - 1));
    assert_eq!(checked.subqueries[0].min, midnight);
}

fn checked(text: &str) -> CheckedSelect {
    check(&select(text), &utc()).unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn only_windows_end_now_by_default() {
    let windows = checked("select mean(v) from m group by time(1m)");
    assert_eq!((windows.min, windows.max), (MIN_TIME, NOW));
    let readings = checked("select v from m");
    assert_eq!((readings.min, readings.max), (MIN_TIME, MAX_TIME));
}

#[test]
fn windows_are_shifted_by_their_offset() {
    let week = 7 * 24 * HOUR;
    for (dimension, every, offset) in [
        ("time(1m)", MINUTE, 0),
        ("time(1h, 90m)", HOUR, 30 * MINUTE),
        ("time(1h, -90m)", HOUR, -30 * MINUTE),
        ("time(1m * 2, 1s)", 2 * MINUTE, 1_000_000_000),
        ("time(1h, now())", HOUR, NOW % HOUR),
        // Weeks start on Mondays: the first day of the year 1 was one.
        ("time(1w, '2024-01-02')", week, 24 * HOUR),
        ("time(0s, 1s)", 0, 0),
        ("time(-1m)", 0, 0),
    ] {
        let grouping = checked(&format!("select mean(v) from m group by {dimension}, host")).grouping;
        assert_eq!((grouping.every, grouping.offset), (every, offset), "{dimension}");
        assert_eq!(grouping.tags.len(), 1);
    }
}

#[test]
fn a_subquery_inherits_time_and_windows() {
    let text = "select max(v) from (select mean(v) as v from m where time >= 10) where time < 99 group by time(1m, 1s)";
    let outer = checked(text);
    let inner = &outer.subqueries[0];
    assert_eq!((inner.min, inner.max), (10, 98));
    assert!(inner.grouping.is_inherited);
    assert_eq!((inner.grouping.every, inner.grouping.offset), (MINUTE, 1_000_000_000));
}
