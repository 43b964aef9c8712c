//! Weeks, months, quarters and years: each reading is in the window of its local date.

use jiff::Timestamp;
use jiff::civil::{Date, Weekday, date};
use jiff::tz::TimeZone;

use super::{end, start, summary};
use crate::support::prelude::*;

/// Days are sealed on request, also those of today.
const CONFIG: &str =
    "[query]\ntimeout = \"5m\"\n[seal]\nafter = \"0s\"\ndirect_min = 0\n[clock]\nmax_offset = \"1s\"\n";
/// A reading every 13 hours from 2024-11-03 to 2026-02-22, on whole hours and on others.
const FIRST: i64 = 1_730_592_000 * SECOND;
const COUNT: i64 = 879;

fn time(n: i64) -> i64 {
    FIRST + n * 13 * HOUR + n % 3 * 20 * MINUTE
}

/// Quarters add up without rounding.
fn value(n: i64) -> f64 {
    ((n * 37) % 101 - 50) as f64 / 4.0
}

fn local(zone: &TimeZone, time: i64) -> Date {
    zone.to_datetime(Timestamp::from_nanosecond(time.into()).expect("a time")).date()
}

/// Returns the number of the window with this date, by the step's count and unit.
fn place(count: i64, unit: &str, day: Date) -> i64 {
    let month = (i64::from(day.year()) - 1970) * 12 + i64::from(day.month()) - 1;
    let monday = date(1970, 1, 5);
    match unit {
        "w" => i64::from(day.since(monday).expect("days").get_days()).div_euclid(7 * count),
        "mo" => month.div_euclid(count),
        "q" => month.div_euclid(3 * count),
        _ => month.div_euclid(12 * count),
    }
}

const STEPS: [(i64, &str); 9] =
    [(1, "w"), (2, "w"), (1, "mo"), (2, "mo"), (5, "mo"), (1, "q"), (2, "q"), (1, "y"), (2, "y")];

/// Compares all windows of a step with those of the readings in a range.
#[track_caller]
fn check(server: &Server, zone: &str, (count, unit): (i64, &str), range: Range<i64>) {
    let Range { start: from, end: to } = range;
    let step = format!("{count}{unit}");
    let tz = if zone.is_empty() { String::new() } else { format!("&tz={zone}") };
    let asked = format!("sensor=m&agg=count,sum,max,first,last&step={step}&from={from}&to={to}{tz}");
    let clocks = if zone.is_empty() { TimeZone::UTC } else { TimeZone::get(zone).expect("a zone") };
    let mut model: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    for n in (0..COUNT).filter(|n| range.contains(&time(*n))) {
        model.entry(place(count, unit, local(&clocks, time(n)))).or_default().push(n);
    }
    let windows = summary(server, &asked).remove("m").expect("a series");
    assert_eq!(windows.len(), model.len(), "{asked}");
    for (window, (place_of_window, members)) in windows.iter().zip(&model) {
        let values: Vec<f64> = members.iter().map(|n| value(*n)).collect();
        let of_window = &window["fields"]["v"];
        let expected = [
            values.len() as f64,
            values.iter().sum(),
            values.iter().copied().fold(f64::MIN, f64::max),
            values[0],
            values[values.len() - 1],
        ];
        let found = ["count", "sum", "max", "first", "last"].map(|name| of_window[name].as_f64().expect("a number"));
        assert_eq!(found, expected, "{asked}: {window}");
        // The bounds are the first instants of local days, or those of the range.
        for (bound, limit, number) in [(start(window), from, 0), (end(window), to, 1)] {
            if bound != limit {
                let day = local(&clocks, bound);
                assert_eq!(place(count, unit, day), place_of_window + number, "{asked}: {window}");
                assert_eq!(local(&clocks, bound - 1).tomorrow().expect("a day"), day, "{asked}: {window}");
                assert!(if unit == "w" { day.weekday() == Weekday::Monday } else { day.day() == 1 }, "{asked}");
            }
        }
    }
}

tests! {
    fn windows_follow_the_calendar_embedded() => windows_follow_the_calendar(&stores()[0]);
    fn windows_follow_the_calendar_in_mongodb() => windows_follow_the_calendar(&stores()[1]);
}

fn windows_follow_the_calendar(store: &str) {
    let server = Launch::with_store(store).config(CONFIG).start();
    let line = |n: i64| format!("m v={:.2} {}\n", value(n), time(n));
    write_to(&server, "db=d&precision=ns", (0..COUNT).map(line).collect::<String>());
    let ranges = [
        FIRST..time(COUNT),
        // From a month's first to another, from an hour, and from within one.
        1_733_011_200 * SECOND..1_767_225_600 * SECOND,
        FIRST + 100 * HOUR..FIRST + 5_000 * HOUR,
        FIRST + 1_000 * HOUR + 7 * MINUTE..FIRST + 9_000 * HOUR + 11 * MINUTE,
    ];
    let check_all = |zones: &[&str]| {
        for zone in zones {
            for step in STEPS {
                ranges.iter().for_each(|range| check(&server, zone, step, range.clone()));
            }
        }
    };
    check_all(&["Europe/Berlin"]);
    flush(&server);
    seal(&server);
    check_all(&["", "America/New_York", "Asia/Kathmandu"]);
    // Months in UTC come from the totals of days.
    let totals = || metric(&server, "hourglass_query_daily_totals_total");
    wait_until("months answer", || {
        seal(&server);
        let before = totals();
        check(&server, "", (1, "mo"), ranges[1].clone());
        totals() - before >= 300.0
    });
    empty_windows_are_places(&server);
    histograms_have_the_same_windows(&server);
    weeks_of_influxql_are_durations(&server);
    // Readings expire; whole months stay.
    server.set("d", r#"{"readings":"40d","summaries":"inf"}"#).expect(200);
    check(&server, "", (1, "q"), ranges[1].clone());
}

/// A line between two months counts months, whatever their lengths.
fn empty_windows_are_places(server: &Server) {
    write_to(server, "db=d&precision=s", "gap t=0 1738368000\ngap t=4 1748736000");
    let months =
        summary(server, "sensor=gap&agg=first&step=1mo&fill=linear&from=1735689600000000000&to=1751328000000000000");
    let shown: Vec<f64> = months["gap"].iter().filter_map(|window| window["fields"]["t"]["first"].as_f64()).collect();
    assert_eq!(shown, [0.0, 1.0, 2.0, 3.0, 4.0]);
    let dates: Vec<String> =
        months["gap"].iter().map(|window| local(&TimeZone::UTC, start(window)).to_string()).collect();
    assert_eq!(dates, ["2025-01-01", "2025-02-01", "2025-03-01", "2025-04-01", "2025-05-01", "2025-06-01"]);
}

fn histograms_have_the_same_windows(server: &Server) {
    let path = "/api/v1/histogram?db=d&sensor=m&field=v&bounds=0&epoch=ns&step=1q&tz=Europe/Berlin";
    let answer = server.fetch(path);
    let counts = answer["series"][0]["windows"].as_array().expect("windows").iter();
    let counts: Vec<(i64, i64)> =
        counts.map(|window| (start(window), window["count"].as_i64().expect("a count"))).collect();
    let quarters = summary(server, "sensor=m&agg=count&step=1q&tz=Europe/Berlin");
    let count = |window: &Value| (start(window), window["fields"]["v"]["count"].as_i64().expect("a count"));
    assert_eq!(counts, quarters["m"].iter().map(count).collect::<Vec<_>>());
}

/// As in InfluxDB: counted from the epoch, which was a Thursday.
fn weeks_of_influxql_are_durations(server: &Server) {
    let answer = influxql(
        server,
        "SELECT count(v) FROM m WHERE time >= '2025-03-03T00:00:00Z' AND time < '2025-03-20T00:00:00Z' GROUP BY time(1w)",
    );
    let times = answer[0]["values"].as_array().expect("rows").iter();
    let dates: Vec<String> =
        times.map(|row| local(&TimeZone::UTC, row[0].as_i64().expect("a time") * SECOND).to_string()).collect();
    assert_eq!(dates, ["2025-02-27", "2025-03-06", "2025-03-13"]);
}

/// Percentiles with fractions follow the rule of whole ones: of n values, the one with the rank that is nearest to n × p / 100.
#[test]
fn percentiles_have_fractions() {
    for store in stores() {
        let server = Launch::with_store(store).start();
        // In hours of 1,999, 1, 10 and 200 values; the order is mixed.
        let counts = [1999_i64, 1, 10, 200];
        let mixed = |hour: usize, n: i64| (n * 7919 + 3) % counts[hour] * 5;
        let line =
            |hour: usize, n: i64| format!("m v={}i {}\n", mixed(hour, n), START + hour as i64 * HOUR + n * SECOND);
        let lines = counts.iter().enumerate().flat_map(|(hour, count)| (0..*count).map(move |n| line(hour, n)));
        write_to(&server, "db=d&precision=ns", lines.collect::<String>());
        let percents =
            [("p99.9", 999), ("p0.5", 5), ("p50", 500), ("p0.1", 1), ("p12.3", 123), ("p97.5", 975), ("p5", 50)];
        let names = percents.map(|(name, _)| name).join(",");
        let windows = summary(&server, &format!("sensor=m&step=1h&agg=count,{names}"));
        for (hour, window) in windows["m"].iter().enumerate() {
            for (name, permille) in percents {
                // Rounded to the nearest rank, half up.
                let rank = (2 * counts[hour] * permille + 1000) / 2000;
                let expected = if rank == 0 { Value::Null } else { json!((rank - 1) * 5) };
                assert_eq!(window["fields"]["v"][name], expected, "{name} of {}: {window}", counts[hour]);
            }
        }
        let csv = get(&server.url(&format!("{}sensor=m&agg=p99.90,p99.9&format=csv", super::SUMMARY))).expect(200);
        assert!(csv.text().starts_with("sensor,start,end,v.p99.9\r\n"), "{}", csv.text());
        for bad in ["p0", "p100", "p", "p1e1", "p-5", "pinf", "p1.2.3", "p100.5"] {
            get(&server.url(&format!("{}sensor=m&agg={bad}", super::SUMMARY))).expect(400);
        }
    }
}
