//! Sealed days in the embedded store, and a query of all of them without caches.

use std::sync::Arc;
use std::time::Duration;

use hourglass::access::Caller;
use hourglass::bucket::store::{DatabaseStore, DayStore, SensorStore};
use hourglass::bucket::{DayId, DayPart, DayWrite, KnownSettings, Readings, SensorDocument};
use hourglass::config::{QuerySettings, Settings};
use hourglass::query::Fill;
use hourglass::query::Query;
use hourglass::query::native::aggregate::{Aggregation, Families, GroupBy};
use hourglass::query::native::functions::NativeAggregate;
use hourglass::query::native::steps::parse_step;
use hourglass::query::selector::Selector;
use hourglass::reading::{Day, Family, Hour, Sensor, Value};
use hourglass::store::EmbeddedStore;
use hourglass::telemetry::Metrics;
use tokio::runtime::Builder;

use crate::MemoryDisk;
use crate::fleet::START_MS;
use crate::path::{merged_view, start};

const DATABASE: &str = "bench";
const SITES: usize = 10;
const DAYS: i64 = 30;
/// Milliseconds between two readings, which matter only for the size of the folder.
const INTERVAL_MS: i64 = 600_000;
const DAY_MS: i64 = 24 * 3_600_000;

/// Queries the hourly means by site of all days `times` times. Fills the store in the folder if it is empty. Returns
/// the number of windows in the answers.
///
/// # Panics
/// If the folder cannot be used.
#[must_use]
pub fn hourly_by_site(folder: &std::path::Path, sensors: usize, times: usize) -> usize {
    let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
    let store = EmbeddedStore::open(folder, 64 << 20).expect("a store");
    runtime.block_on(async {
        if store.databases().await.expect("a list").is_empty() {
            fill(&store, sensors).await;
        }
        let store = merged_view(store);
        let metrics = Metrics::new("bench", "embedded").expect("metrics");
        let ingest = Arc::new(start(MemoryDisk::default(), folder, store.clone(), metrics.clone()));
        let query = Query::new(store, ingest, KnownSettings::default(), settings(), metrics);
        let mut windows = 0;
        for _ in 0..times {
            let budget = query.begin(&Caller::Anybody, "hourly means by site");
            let answer = query.aggregate(&budget, &hourly_means()).await.expect("an answer");
            windows += answer.series.iter().map(|series| series.windows.len()).sum::<usize>();
        }
        windows
    })
}

fn hourly_means() -> Aggregation {
    Aggregation {
        database: DATABASE.to_owned(),
        selector: Selector::Matching { measurement: Some("climate".to_owned()), tags: Vec::new(), pins: Vec::new() },
        range: START_MS * 1_000_000..(START_MS + DAYS * DAY_MS) * 1_000_000,
        has_start: true,
        fields: vec!["temp".to_owned()],
        windows: parse_step("1h", None),
        functions: vec![NativeAggregate::from_name("mean").expect("it is one")],
        families: Families::First,
        group_by: GroupBy::Tags(vec!["site".to_owned()]),
        fill: Fill::None,
        ranking: None,
        part: None,
    }
}

async fn fill(store: &EmbeddedStore, sensors: usize) {
    let sensors: Vec<Arc<Sensor>> = (0..sensors).map(sensor).collect();
    let documents: Vec<SensorDocument> = sensors.iter().map(document).collect();
    store.write_sensors(DATABASE, &documents).await;
    for number in 0..DAYS {
        let day = Day(Day::from_hour(Hour::from_ms(START_MS)).0 + number);
        let id = |sensor: &Arc<Sensor>| DayId { sensor: sensor.clone(), day, part: DayPart::Whole };
        let ids: Vec<DayId> = sensors.iter().map(id).collect();
        let sets: Vec<Readings> = (0..).zip(&ids).map(|(sensor, _)| readings(day, sensor)).collect();
        let write = |(id, readings)| DayWrite { id, rev: 0, next_rev: 1, readings: Some(readings), expired: None };
        let writes: Vec<DayWrite<'_>> = ids.iter().zip(&sets).map(write).collect();
        store.write_days(DATABASE, &writes).await;
    }
}

fn sensor(number: usize) -> Arc<Sensor> {
    let name = format!("s{number:06}");
    let site = format!("site{}", number % SITES);
    Arc::new(Sensor::new("climate", [("sensor", &*name), ("site", &*site)]).expect("distinct tags"))
}

fn document(sensor: &Arc<Sensor>) -> SensorDocument {
    let first = START_MS * 1_000_000;
    let last = (START_MS + DAYS * DAY_MS - 1) * 1_000_000;
    let fields = ["temp", "humidity"].map(|name| (Arc::from(name), Family::Number)).into();
    SensorDocument { fields, first_seen: Some(first), last_seen: Some(last), ..SensorDocument::new(sensor.clone()) }
}

/// Returns readings with two decimals, and with integers, that rise and fall within a day.
fn readings(day: Day, sensor: i64) -> Readings {
    let start = day.hours().start.start_ms();
    let times: Vec<i64> = (0..DAY_MS / INTERVAL_MS).map(|tick| (start + tick * INTERVAL_MS) * 1_000_000).collect();
    let walk = |tick: i64, spread: i64| (tick * tick * 7 + sensor * 31 + day.0 * 13) % spread;
    let ticks = 0..DAY_MS / INTERVAL_MS;
    let temp = ticks.clone().map(|tick| Some(Value::Float((1500 + 10 * tick + walk(tick, 97)) as f64 / 100.0)));
    let humidity = ticks.map(|tick| Some(Value::Integer(30 + walk(tick, 40))));
    let columns = [(Arc::from("temp"), temp.collect()), (Arc::from("humidity"), humidity.collect())];
    Readings::from_columns(times, columns).expect("times in order")
}

/// Returns settings with the memory that the query needs, and without a cache.
fn settings() -> QuerySettings {
    QuerySettings {
        request_bytes: 256 << 20,
        bytes: 512 << 20,
        token_bytes: 512 << 20,
        concurrent: 4,
        cache_max_age: Duration::ZERO,
        cache_bytes: 0,
        wait: Duration::from_secs(60),
        timeout: Duration::from_secs(600),
        log_after: Duration::from_secs(600),
        ..Settings::default().query
    }
}
