//! Random traffic on both stores, with full pages, evictions, restarts and kills, agrees with a plain map.

mod again;
mod instances;
mod model;
mod traffic;

use hourglass::bucket::Caps;

use self::model::{Model, Tally};
use self::traffic::Writer;

use crate::support::prelude::*;

const DATABASE: &str = "lawful";
/// Small pages overflow, minimal hot memory evicts buckets, and long timeouts allow for a busy machine.
const CONFIG: &str = r#"
[page]
max_readings = 20
max_bytes = "2KiB"
hard_bytes = "3KiB"

[memtable]
max_bytes = "1MiB"

[store]
command_timeout = "60s"

[ingest]
ack_timeout = "60s"
"#;
const CAPS: Caps = Caps { max_readings: 20, max_bytes: 2 << 10, hard_bytes: 3 << 10 };
/// Concurrent connections; each has its own sensors and sends one body at a time.
const CONNECTIONS: usize = 4;
const BODIES: usize = 30;

struct World {
    server: Server,
    stored: Stored,
}

impl World {
    fn start(store: String) -> World {
        let server = Launch::with_store(store).config(CONFIG).start();
        let stored = Stored::from_server(&server, DATABASE);
        World { server, stored }
    }
}

tests! {
    fn random_traffic_agrees_with_a_plain_map_in_the_embedded_store() =>
        random_traffic_agrees_with_a_plain_map(World::start("embedded".to_owned()));
    fn random_traffic_agrees_with_a_plain_map_in_mongodb() =>
        random_traffic_agrees_with_a_plain_map(World::start(mongod().uri(&fresh_database_name())));
}

fn random_traffic_agrees_with_a_plain_map(mut world: World) {
    let mut writers: Vec<Writer> = (0..CONNECTIONS).map(|number| Writer::new(number, 2026)).collect();
    // Stopped twice; sensor documents survive that.
    send_through(&mut world.server, &mut writers, [Ending::Stop, Ending::Stop]);
    check_answers(&world.server, &writers);
    assert!(world.server.stop().success());
    check_documents(&world.stored, &writers, Sensors::UpToDate);

    // Killed twice.
    world.server.restart();
    send_through(&mut world.server, &mut writers, [Ending::Kill, Ending::Kill]);
    check_answers(&world.server, &writers);
    assert!(world.server.stop().success());
    check_documents(&world.stored, &writers, Sensors::Known);

    // Undisturbed, so that every outcome is predictable.
    world.server.restart();
    writers.iter_mut().for_each(|writer| writer.tally = Tally::default());
    send_through(&mut world.server, &mut writers, []);
    check_counters(&world.server, &writers);
    check_answers(&world.server, &writers);
    let buckets = writers.iter().map(|writer| writer.model.buckets()).sum::<usize>();
    assert!(
        metric(&world.server, "hourglass_bucket_cache_buckets") < double(buckets),
        "none of {buckets} was forgotten"
    );
    assert!(world.server.stop().success());
    check_documents(&world.stored, &writers, Sensors::Known);
}

/// Ways to end the server under load.
#[derive(Debug, Clone, Copy)]
enum Ending {
    Stop,
    Kill,
}

/// Sends the bodies of every writer; meanwhile the server is ended and restarted at equal intervals.
fn send_through<const N: usize>(server: &mut Server, writers: &mut [Writer], endings: [Ending; N]) {
    let url = server.url(&format!("/write?precision=ns&db={DATABASE}"));
    let acked = AtomicUsize::new(0);
    let all = writers.len() * BODIES;
    std::thread::scope(|scope| {
        for writer in writers {
            scope.spawn(|| {
                for _ in 0..BODIES {
                    writer.send_one(&url);
                    acked.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for (number, ending) in endings.into_iter().enumerate() {
            let due = all * (number + 1) / (N + 1);
            wait_until("the next body is acked", || acked.load(Ordering::Relaxed) >= due);
            match ending {
                Ending::Stop => assert!(server.stop().success(), "{ending:?} {number}"),
                Ending::Kill => drop(server.kill()),
            }
            server.restart();
        }
    });
}

fn check_answers(server: &Server, writers: &[Writer]) {
    await_dispatched(server);
    writers.iter().for_each(|writer| writer.model.check_answers(server, DATABASE));
}

/// Expected state of sensor documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sensors {
    /// Complete.
    UpToDate,
    /// Present with its fields; after a kill, other properties follow with the next reading.
    Known,
}

fn check_documents(stored: &Stored, writers: &[Writer], sensors: Sensors) {
    let models: Vec<&Model> = writers.iter().map(|writer| &writer.model).collect();
    check_stored(stored, &models, sensors);
}

/// Checks that the stored pages hold exactly the readings of the models.
fn check_stored(stored: &Stored, models: &[&Model], sensors: Sensors) {
    let series: BTreeMap<&str, &model::Series> = models.iter().flat_map(|model| model.series()).collect();
    let mut found: BTreeMap<String, model::Series> = BTreeMap::new();
    let mut outliers: BTreeMap<String, (i64, i64)> = BTreeMap::new();
    stored.each_bucket(&CAPS, |pages| {
        let found = found.entry(pages[0].sensor.clone()).or_default();
        for reading in pages.iter().flat_map(|page| &page.readings) {
            found.insert(reading.time, reading.fields.iter().cloned().collect());
        }
        if pages.len() > 1 {
            let outlier = outliers.entry(pages[0].sensor.clone()).or_default();
            let pages = (pages[0].start, i64::try_from(pages.len()).expect("few"));
            *outlier = if *outlier == (0, 0) { pages } else { pages.max(*outlier) };
        }
    });
    assert_eq!(found.keys().collect::<Vec<_>>(), series.keys().collect::<Vec<_>>());
    for (sensor, found) in &found {
        model::assert_same(sensor, found, series[&**sensor]);
    }
    let mut known = 0;
    stored.each_sensor(|document| {
        let series = series.get(&*document.key).unwrap_or_else(|| panic!("{} has no reading", document.key));
        model::check_sensor(&document, series, sensors == Sensors::UpToDate);
        if sensors == Sensors::UpToDate {
            assert_eq!(document.outlier, outliers.get(&document.key).copied(), "{}: outlier", document.key);
        }
        known += 1;
    });
    assert_eq!(known, series.len(), "sensors' documents");
}

fn check_counters(server: &Server, writers: &[Writer]) {
    flush(server);
    let sum = |part: fn(&Tally) -> usize| writers.iter().map(|writer| part(&writer.tally)).sum::<usize>();
    let new = sum(|t| t.new);
    let duplicate = sum(|t| t.duplicate);
    let overwritten = sum(|t| t.overwritten);
    assert!(new > 100 && duplicate > 100 && overwritten > 100, "{new} new, {duplicate} again, {overwritten} over");
    let expected = [
        ("accepted", new + duplicate + overwritten),
        ("stored", new),
        ("duplicate", duplicate),
        ("overwritten", overwritten),
        ("rejected", 0),
    ];
    for (what, expected) in expected {
        let found = metric(server, &format!("hourglass_ingest_readings_{what}_total"));
        assert_eq!(found, double(expected), "{what}");
    }
    let late = metric(server, "hourglass_ingest_readings_late_total");
    assert!(late > 0.0 && late <= double(new), "{late} late");
}

#[allow(clippy::cast_precision_loss, reason = "small numbers")]
fn double(number: usize) -> f64 {
    number as f64
}
