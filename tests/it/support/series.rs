//! A series as a client sees it: readings by cursor, windows, metrics. Numbers stay JSON texts for exact comparisons.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::http::{Answer, encode, get, post, request};
use super::server::Server;
use super::wait_until;

/// A reading: time in nanoseconds, and fields as JSON texts.
pub type ReadingTexts = (i64, BTreeMap<String, String>);

#[derive(Debug, Clone, Deserialize)]
pub struct Window {
    pub count: u64,
    pub min: Box<RawValue>,
    pub max: Box<RawValue>,
    pub sum: Box<RawValue>,
    pub avg: Box<RawValue>,
}

/// Windows by start and end in nanoseconds, each by field.
pub type Windows = BTreeMap<(i64, i64), BTreeMap<String, Window>>;

/// Reads a sensor in a range of nanoseconds, `limit` readings at a time; checks order and size of each part.
#[track_caller]
pub fn readings(
    server: &Server,
    database: &str,
    sensor: &str,
    range: Option<(i64, i64)>,
    limit: usize,
) -> Vec<ReadingTexts> {
    readings_for(|path| get(&server.url(path)), database, sensor, range, limit)
}

/// As [`readings`], with custom requests.
#[track_caller]
pub fn readings_for(
    ask: impl Fn(&str) -> Answer,
    database: &str,
    sensor: &str,
    range: Option<(i64, i64)>,
    limit: usize,
) -> Vec<ReadingTexts> {
    let mut all: Vec<ReadingTexts> = Vec::new();
    let mut cursor = None;
    loop {
        let mut query = format!("/api/v1/readings?epoch=ns&limit={limit}&{}", selection(database, sensor, range));
        if let Some(cursor) = cursor {
            query.push_str(&format!("&cursor={cursor}"));
        }
        let answer = ask(&query).expect(200);
        let mut part: Part = serde_json::from_slice(&answer.body).expect("readings as JSON");
        assert!(part.series.len() <= 1, "one sensor was asked for");
        let rows = part.series.pop().map(|series| series.readings).unwrap_or_default();
        assert!(part.next.is_none() || rows.len() == limit, "{} readings and a cursor", rows.len());
        all.extend(rows.into_iter().map(seen));
        cursor = part.next;
        if cursor.is_none() {
            assert!(all.is_sorted_by(|a, b| a.0 < b.0), "{sensor}: not in time order, or a time twice");
            return all;
        }
    }
}

/// Returns the windows of a sensor; none for an unknown sensor.
#[track_caller]
pub fn windows(server: &Server, database: &str, sensor: &str, range: Option<(i64, i64)>, step: &str) -> Windows {
    let query = format!("/api/v1/summary?epoch=ns&step={step}&{}", selection(database, sensor, range));
    let answer = get(&server.url(&query)).expect(200);
    let mut answer: WindowsAnswer = serde_json::from_slice(&answer.body).expect("windows as JSON");
    assert!(answer.series.len() <= 1, "one sensor was asked for");
    let windows = answer.series.pop().map(|series| series.windows).unwrap_or_default();
    let count = windows.len();
    let windows: Windows = windows.into_iter().map(|window| ((window.start, window.end), window.fields)).collect();
    assert_eq!(windows.len(), count, "{sensor}: a window twice");
    windows
}

impl Server {
    /// Returns the JSON answer of a path.
    #[track_caller]
    pub fn fetch(&self, path: &str) -> Value {
        get(&self.url(path)).expect(200).json()
    }

    #[track_caller]
    pub fn set(&self, database: &str, settings: &str) -> Answer {
        let url = self.url(&format!("/api/v1/databases/{}", encode(database)));
        request("PATCH", &url, settings.as_bytes(), &[]).expect("an answer")
    }
}

/// Writes lines with times in seconds to the database `d`.
#[track_caller]
pub fn write(server: &Server, lines: impl AsRef<[u8]>) {
    write_to(server, "db=d&precision=s", lines);
}

/// As [`write`], with a flush.
#[track_caller]
pub fn write_flushed(server: &Server, lines: impl AsRef<[u8]>) {
    write(server, lines);
    flush(server);
}

/// Writes lines with these parameters.
#[track_caller]
pub fn write_to(server: &Server, parameters: &str, lines: impl AsRef<[u8]>) {
    post(&server.url(&format!("/write?{parameters}")), lines, &[]).expect(204);
}

/// Runs a statement that changes a database, and returns its result.
#[track_caller]
pub fn execute(server: &Server, database: &str, statement: &str) -> Value {
    let url = server.url(&format!("/query?db={database}&q={}", encode(statement)));
    let mut answer = post(&url, "", &[]).expect(200).json();
    assert!(answer["results"][0]["error"].is_null(), "{statement}: {answer}");
    answer["results"][0].take()
}

#[track_caller]
pub fn sensor_keys(server: &Server, parameters: &str) -> Vec<String> {
    let answer = server.fetch(&format!("/api/v1/sensors?{parameters}"));
    let key = |sensor: &Value| sensor["sensor"].as_str().expect("a key").to_owned();
    answer["sensors"].as_array().expect("a list").iter().map(key).collect()
}

/// Changes the metadata of a sensor in the database `d` and waits until it is stored.
#[track_caller]
pub fn describe(server: &Server, method: &str, key: &str, meta: &Value) -> Answer {
    let url = server.url(&format!("/api/v1/sensors/{}/meta?db=d", encode(key)));
    request(method, &url, meta.to_string().as_bytes(), &[("x-hourglass-ack", "store")]).expect("an answer")
}

/// Returns the series of a statement in the database `d`.
#[track_caller]
pub fn influxql(server: &Server, statement: &str) -> Value {
    let answer = server.fetch(&format!("/query?db=d&epoch=s&q={}", encode(statement)));
    answer["results"][0]["series"].clone()
}

/// Flushes everything that is acked.
#[track_caller]
pub fn flush(server: &Server) {
    post(&server.url("/api/v1/flush"), "", &[]).expect(204);
}

/// Waits until the WAL of the start is dispatched, so that queries are answered.
#[track_caller]
pub fn await_dispatched(server: &Server) {
    let is_fed = || server.fetch("/api/v1/status")["feeding"] == false;
    wait_until("the backlog is dispatched", is_fed);
}

/// Returns a counter or gauge of `/metrics`, summed over its labels; 0 if absent.
#[track_caller]
pub fn metric(server: &Server, name: &str) -> f64 {
    sample(&get(&server.url("/metrics")).expect(200), name)
}

/// As [`metric`], of an answer of `/metrics`.
#[track_caller]
pub fn sample(answer: &Answer, name: &str) -> f64 {
    let of_name = |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']));
    let value = |line: &str| line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok()).expect("a sample");
    answer.text().lines().filter(of_name).map(value).sum()
}

fn selection(database: &str, sensor: &str, range: Option<(i64, i64)>) -> String {
    let sensor = encode(sensor);
    let range = range.map(|(from, to)| format!("&from={from}&to={to}&precision=ns")).unwrap_or_default();
    format!("db={database}&sensor={sensor}{range}")
}

#[derive(Deserialize)]
struct Part {
    series: Vec<PartSeries>,
    next: Option<String>,
}

#[derive(Deserialize)]
struct PartSeries {
    readings: Vec<BTreeMap<String, Box<RawValue>>>,
}

fn seen(mut row: BTreeMap<String, Box<RawValue>>) -> ReadingTexts {
    let time = row.remove("ts").expect("a reading has its time").get().parse().expect("nanoseconds");
    (time, row.into_iter().map(|(name, value)| (name, value.get().to_owned())).collect())
}

#[derive(Deserialize)]
struct WindowsAnswer {
    series: Vec<WindowsSeries>,
}

#[derive(Deserialize)]
struct WindowsSeries {
    windows: Vec<OneWindow>,
}

#[derive(Deserialize)]
struct OneWindow {
    start: i64,
    end: i64,
    fields: BTreeMap<String, Window>,
}
