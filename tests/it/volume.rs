//! Two million readings (in CI) of a thousand sensors through the real binary, into both stores: afterwards every reading is
//! there once, every page's summary is the fold over it, and the same files sent again change nothing.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hourglass::bucket::Caps;
use hourglass::reading::Value;

use crate::support::eventually;
use crate::support::exact::Exact;
use crate::support::http::{get, post};
use crate::support::mongod::{fresh_database_name, mongod};
use crate::support::pages::{Page, Reading, Sensor, Stored, millis};
use crate::support::scale::scaled;
use crate::support::series::{Seen, flush, metric, readings, windows};
use crate::support::server::Server;

const DATABASE: &str = "volume";
const SENSORS: i64 = 1000;
const LINES: i64 = 5000;
const CONNECTIONS: usize = 8;
/// The first whole hour, 2026-01-15T14:00:00Z, and a start that does not lie on one.
const HOUR: i64 = 1_768_485_600_000_000_000;
const START: i64 = HOUR + 10 * MINUTE;
const MINUTE: i64 = 60_000_000_000;
const HOUR_NS: i64 = 60 * MINUTE;
/// The fast sensor sends ten readings a second for an hour.
const FAST: &str = "motor,sensor=fast";
const FAST_READINGS: i64 = 36_000;
const FAST_STEP: i64 = 100_000_000;
/// The defaults of the config, which this test runs with.
const CAPS: Caps = Caps { max_readings: 3600, max_bytes: 1 << 20, hard_bytes: 4 << 20 };

#[test]
fn two_million_readings_are_kept_once_in_the_embedded_store() {
    let mut server = Server::start("embedded");
    let stored = Stored::in_file(server.data_dir(), DATABASE);
    run(&mut server, &stored, |_| {});
}

#[test]
fn two_million_readings_are_kept_once_in_mongodb() {
    let mongo_database = fresh_database_name();
    let mut server = Server::start(&mongod().uri(&mongo_database));
    let stored = Stored::in_mongo(mongod(), &mongo_database, DATABASE);
    // A value that is said again before the others' floor has passed it gets a later stamp: its page is written once more.
    run(&mut server, &stored, |server| {
        let started = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_secs_f64();
        let has_passed = || (metric(server, "hourglass_registry_floor_timestamp_seconds") > started).then_some(());
        eventually("the floor passes what is stored", Duration::from_secs(60), has_passed);
    });
    stored.check_collections();
}

/// `settle` is called between the first and the second time that everything is sent.
fn run(server: &mut Server, stored: &Stored, settle: impl FnOnce(&Server)) {
    let minutes = per_sensor();
    let all = u64::try_from(minutes * SENSORS + FAST_READINGS).expect("positive");
    let files = files(minutes);
    send(server, &files, minutes);
    check_counters(server, [all, all, 0, 0]);
    check_series(server, minutes);
    check_fast(server);
    assert!(server.stop().success());
    check_documents(stored, minutes);
    let before = stored.fingerprints();

    // Once with the buckets only in the store, and some of it once more with them in memory.
    server.restart("127.0.0.1:0");
    settle(server);
    send(server, &files, minutes);
    let again = &files[..20.min(files.len())];
    send(server, again, minutes);
    let sent = all + again.iter().map(|file| file.lines(minutes)).sum::<u64>();
    check_counters(server, [sent, 0, sent, 0]);
    assert!(server.stop().success());
    let after = stored.fingerprints();
    assert_eq!(before.len(), after.len());
    for (document, print) in &before {
        assert_eq!(Some(print), after.get(document), "{document:?}: changed by readings it had");
    }
}

/// One POST's readings: of all sensors for some minutes, or of the fast one.
#[derive(Debug, Clone, Copy)]
enum File {
    Minutes(i64),
    Fast(i64),
}

const FILE_MINUTES: i64 = LINES / SENSORS;

/// In the order they are sent. The fast sensor's lie among the others.
fn files(minutes: i64) -> Vec<File> {
    let mut files: Vec<File> = (0..minutes).step_by(5).map(File::Minutes).collect();
    let fast: Vec<File> = (0..FAST_READINGS).step_by(5000).map(File::Fast).collect();
    let gap = files.len() / fast.len() + 1;
    for (number, file) in fast.into_iter().enumerate() {
        files.insert((number * gap + number).min(files.len()), file);
    }
    files
}

impl File {
    fn lines(self, minutes: i64) -> u64 {
        let lines = match self {
            File::Minutes(first) => FILE_MINUTES.min(minutes - first) * SENSORS,
            File::Fast(first) => LINES.min(FAST_READINGS - first),
        };
        u64::try_from(lines).expect("positive")
    }

    fn body(self, minutes: i64) -> String {
        let mut body = String::with_capacity(500_000);
        match self {
            File::Minutes(first) => {
                for minute in first..minutes.min(first + FILE_MINUTES) {
                    for sensor in 0..SENSORS {
                        let (temp, humidity) = (temp(sensor, minute), humidity(sensor, minute));
                        let (key, time) = (key(sensor), time(sensor, minute));
                        writeln!(body, "{key} temp={temp},humidity={humidity}i {time}").expect("a String takes it");
                    }
                }
            }
            File::Fast(first) => {
                for step in first..FAST_READINGS.min(first + LINES) {
                    let (time, current) = (HOUR + step * FAST_STEP, current(step));
                    writeln!(body, "{FAST} current={current},step={step}i {time}").expect("a String takes it");
                }
            }
        }
        body
    }
}

fn per_sensor() -> i64 {
    scaled([400_000, 2_000_000, 20_000_000]) / SENSORS
}

fn key(sensor: i64) -> String {
    format!("climate,sensor=s{sensor:04},site=site{}", sensor % 7)
}

/// Every sensor sends once a minute, each at a millisecond and a nanosecond of its own.
fn time(sensor: i64, minute: i64) -> i64 {
    START + minute * MINUTE + sensor * 1_000_000 + sensor % 3
}

#[allow(clippy::cast_precision_loss, reason = "small numbers")]
fn temp(sensor: i64, minute: i64) -> f64 {
    ((sensor * 31 + minute * 17) % 4000 - 1000) as f64 / 100.0
}

fn humidity(sensor: i64, minute: i64) -> i64 {
    (sensor + minute * 7) % 101
}

#[allow(clippy::cast_precision_loss, reason = "small numbers")]
fn current(step: i64) -> f64 {
    (step * 37 % 10_007) as f64 / 1000.0
}

fn send(server: &Server, files: &[File], minutes: i64) {
    let next = AtomicUsize::new(0);
    let url = server.url(&format!("/write?db={DATABASE}"));
    std::thread::scope(|scope| {
        for _ in 0..CONNECTIONS {
            scope.spawn(|| {
                while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                    post(&url, file.body(minutes), &[]).expect(204);
                }
            });
        }
    });
}

fn check_counters(server: &Server, expected: [u64; 4]) {
    flush(server);
    let found = ["accepted", "stored", "duplicate", "overwritten"].map(|what| {
        let value = metric(server, &format!("hourglass_ingest_readings_{what}_total"));
        format!("{what} {value}")
    });
    let [accepted, stored, duplicate, overwritten] = expected;
    let expected = [("accepted", accepted), ("stored", stored), ("duplicate", duplicate), ("overwritten", overwritten)];
    assert_eq!(found, expected.map(|(what, value)| format!("{what} {value}")));
    assert_eq!(metric(server, "hourglass_ingest_readings_rejected_total"), 0.0);
}

/// Every sensor's readings and windows, as a client is told of them.
fn check_series(server: &Server, minutes: i64) {
    std::thread::scope(|scope| {
        for part in 0..2 {
            scope.spawn(move || {
                for sensor in (part..SENSORS).step_by(2) {
                    let key = key(sensor);
                    let found = readings(server, DATABASE, &key, None, 100_000);
                    assert_eq!(found.len(), usize::try_from(minutes).expect("positive"), "{key}");
                    for (minute, (at, fields)) in found.iter().enumerate() {
                        let minute = i64::try_from(minute).expect("few");
                        let expected = [temp(sensor, minute).to_string(), humidity(sensor, minute).to_string()];
                        assert_eq!(*at, time(sensor, minute), "{key}");
                        assert_eq!([&fields["temp"], &fields["humidity"]], expected.each_ref(), "{key} at {at}");
                        assert_eq!(fields.len(), 2, "{key} at {at}");
                    }
                    check_windows(server, &key, &series(sensor, minutes), sensor);
                }
            });
        }
    });
}

type Numbers = Vec<(i64, f64, i64)>;

fn series(sensor: i64, minutes: i64) -> Numbers {
    (0..minutes).map(|minute| (time(sensor, minute), temp(sensor, minute), humidity(sensor, minute))).collect()
}

/// Whole hours, days of many pages, and for some a ragged range with ragged steps.
fn check_windows(server: &Server, key: &str, series: &Numbers, sensor: i64) {
    let fields = ["temp", "humidity"];
    assert_windows(server, key, series, None, ("1h", HOUR_NS), fields);
    assert_windows(server, key, series, None, ("1d", 24 * HOUR_NS), fields);
    if sensor % 50 == 0 {
        let range = (START + 7 * MINUTE + 1, START + 20 * HOUR_NS + 13);
        assert_windows(server, key, series, Some(range), ("1h", HOUR_NS), fields);
        assert_windows(server, key, series, Some(range), ("7m", 7 * MINUTE), fields);
    }
}

fn assert_windows(
    server: &Server,
    key: &str,
    series: &Numbers,
    range: Option<(i64, i64)>,
    (step_name, step): (&str, i64),
    [float, whole]: [&str; 2],
) {
    let within = |time: i64| range.is_none_or(|(from, to)| (from..to).contains(&time));
    let mut expected: BTreeMap<i64, Vec<&(i64, f64, i64)>> = BTreeMap::new();
    for reading in series.iter().filter(|reading| within(reading.0)) {
        expected.entry(reading.0.div_euclid(step)).or_default().push(reading);
    }
    let found = windows(server, DATABASE, key, range, step_name);
    assert_eq!(found.len(), expected.len(), "{key}: windows of {step_name}");
    for ((number, readings), ((start, end), fields)) in expected.into_iter().zip(found) {
        let cut = |time: i64| range.map_or(time, |(from, to)| time.clamp(from, to));
        assert_eq!((start, end), (cut(number * step), cut((number + 1) * step)), "{key}: windows of {step_name}");
        let place = format!("{key}: window at {start} of {step_name}");
        let wholes = readings.iter().map(|reading| reading.2);
        let (min, max) = (wholes.clone().min().expect("some"), wholes.clone().max().expect("some"));
        let exact = [min, max, wholes.sum::<i64>()].map(|number| number.to_string());
        let window = &fields[whole];
        assert_eq!([window.min.get(), window.max.get(), window.sum.get()], exact.each_ref().map(|n| &**n), "{place}");
        let window = &fields[float];
        let floats = readings.iter().map(|reading| reading.1);
        let (min, max) = (floats.clone().fold(f64::MAX, f64::min), floats.clone().fold(f64::MIN, f64::max));
        assert_eq!([double(window.min.get()), double(window.max.get())], [min, max], "{place}");
        assert_eq!(double(window.sum.get()).to_bits(), Exact::of_doubles(floats).rounded().to_bits(), "{place}: sum");
        let count = u64::try_from(readings.len()).expect("few");
        assert_eq!([fields[whole].count, fields[float].count], [count, count], "{place}");
    }
}

fn double(text: &str) -> f64 {
    text.parse().unwrap_or_else(|_| panic!("{text} is no number"))
}

/// The sensor that outgrows its pages comes back whole and in order, a thousand readings at a time.
fn check_fast(server: &Server) {
    let found = readings(server, DATABASE, FAST, Some((HOUR, HOUR + HOUR_NS)), 1000);
    let expected = (0..FAST_READINGS).map(|step| {
        let fields = [("current".to_owned(), current(step).to_string()), ("step".to_owned(), step.to_string())];
        (HOUR + step * FAST_STEP, BTreeMap::from(fields))
    });
    assert!(found == expected.collect::<Vec<Seen>>(), "the fast sensor's readings");
    let series: Numbers = (0..FAST_READINGS).map(|step| (HOUR + step * FAST_STEP, current(step), step)).collect();
    assert_windows(server, FAST, &series, None, ("1h", HOUR_NS), ["current", "step"]);
    assert_windows(server, FAST, &series, None, ("7m", 7 * MINUTE), ["current", "step"]);
    let outliers = get(&server.url(&format!("/api/v1/sensors?db={DATABASE}&outlier=true"))).expect(200).json();
    let listed: Vec<&str> =
        outliers["sensors"].as_array().expect("a list").iter().filter_map(|s| s["sensor"].as_str()).collect();
    assert_eq!(listed, [FAST]);
}

/// The documents: every page passes the checks of `support::pages`, and all of them hold every reading once.
fn check_documents(stored: &Stored, minutes: i64) {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    stored.each_bucket(&CAPS, |pages| {
        let sensor = &pages[0].sensor;
        *counts.entry(sensor.clone()).or_default() += pages.iter().map(|page| page.readings.len()).sum::<usize>();
        if sensor == FAST {
            assert_eq!(pages.len(), 10, "pages of {FAST}");
        } else {
            assert_eq!(pages.len(), 1, "pages of {}", pages[0].id);
        }
        pages.iter().for_each(check_page);
    });
    assert_eq!(counts.len(), usize::try_from(SENSORS).expect("positive") + 1);
    for (sensor, count) in counts {
        let expected = if sensor == FAST { FAST_READINGS } else { minutes };
        assert_eq!(count, usize::try_from(expected).expect("positive"), "{sensor}");
    }
    let mut sensors = 0;
    stored.each_sensor(|sensor| {
        check_sensor(&sensor, minutes);
        sensors += 1;
    });
    assert_eq!(sensors, SENSORS + 1);
}

fn check_page(page: &Page) {
    let number = number_of(&page.sensor);
    for reading in &page.readings {
        let expected = match number {
            Some(sensor) => stored_reading(sensor, (reading.time - START) / MINUTE),
            None => fast_reading((reading.time - HOUR) / FAST_STEP),
        };
        assert_eq!(*reading, expected, "{}", page.id);
    }
}

/// The number of a sensor, but for the fast one.
fn number_of(key: &str) -> Option<i64> {
    let number = key.strip_prefix("climate,sensor=s")?;
    Some(number.split(',').next()?.parse().expect("a number"))
}

fn stored_reading(sensor: i64, minute: i64) -> Reading {
    let temp = ("temp".to_owned(), Value::Float(temp(sensor, minute)));
    let humidity = ("humidity".to_owned(), Value::Integer(humidity(sensor, minute)));
    Reading { time: time(sensor, minute), fields: vec![temp, humidity] }
}

fn fast_reading(step: i64) -> Reading {
    let fields = vec![("current".to_owned(), Value::Float(current(step))), ("step".to_owned(), Value::Integer(step))];
    Reading { time: HOUR + step * FAST_STEP, fields }
}

fn check_sensor(sensor: &Sensor, minutes: i64) {
    let key = &sensor.key;
    let all: Vec<Reading> = match number_of(key) {
        Some(number) => {
            [0].into_iter().chain(minutes - 10.min(minutes)..minutes).map(|m| stored_reading(number, m)).collect()
        }
        None => [0].into_iter().chain(FAST_READINGS - 10..FAST_READINGS).map(fast_reading).collect(),
    };
    let fields: BTreeMap<String, String> =
        all[0].fields.iter().map(|(name, _)| (name.clone(), "number".to_owned())).collect();
    assert_eq!(sensor.fields, fields, "{key}");
    assert_eq!(sensor.first_seen, Some(millis(all[0].time)), "{key}");
    assert_eq!(sensor.last_seen, Some(millis(all[all.len() - 1].time)), "{key}");
    assert_eq!(sensor.recent, all[1..], "{key}");
    assert_eq!(sensor.outlier, (key == FAST).then_some((millis(HOUR), 10)), "{key}");
}
