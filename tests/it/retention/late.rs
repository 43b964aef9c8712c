//! Other instances change days while their readings expire.

use mongodb::Collection;
use mongodb::bson::DateTime;

use super::summaries::{SEALS, await_gone, fill, kept_from, launch, whole_hours};
use super::{CONFIG, HOUR, SECOND, database_settings};
use crate::support::prelude::*;

const KEPT: &str = r#"{"readings":"3d","summaries":"inf"}"#;

/// Regression: an instance without settings stored a page in an expired day, which hid its summary for good.
#[test]
fn late_writes_of_an_outdated_instance_hide_no_summary() {
    let name = fresh_database_name();
    // Readings are stored on request.
    let config = CONFIG.replace("interval = \"200ms\"\nquiet = \"50ms\"", "interval = \"1h\"\nquiet = \"10m\"");
    let config = format!("{config}{}", SEALS.replace("[seal]\n", "[seal]\ndirect_min = 2\n"));
    let start = || {
        let halt = Halt::new();
        let launch = Launch::with_store(mongod().uri(&name)).config(&config);
        (halt.launch(launch, "reading_settings").start(), halt)
    };
    let one = start();
    let other = start();
    // The instance that removes readings must know the settings.
    let [(knowing, _), (late, halt)] = if is_leader(&name, &one.0) { [one, other] } else { [other, one] };
    let first = fill(&knowing);
    let before = whole_hours(&knowing, first);
    halt.set();
    halt.await_met("it is halted");
    knowing.set("w", KEPT).expect(200);
    await_gone(&knowing);
    let write = |lines: String| post(&late.url("/write?db=w"), lines, &[]).expect(204);
    write(format!("m,s=0 temp=7777.5 {}", first + HOUR + 13));
    flush(&late);
    assert_eq!(whole_hours(&late, first), before, "beside a page");
    // Enough for a chunk; it learns the settings before the flush.
    write((1..3).map(|n| format!("m,s=0 temp=7777.5 {}\n", first + 5 * HOUR + n * SECOND)).collect());
    halt.lift();
    wait_until("it knows", || !database_settings(&late, "w")["expired_before"].is_null());
    post(&late.url("/api/v1/flush"), "", &[]).expect(409);
    let letters: Value = late.fetch("/api/v1/dead-letters");
    assert_eq!(letters["readings"], 2, "{letters}");
    for server in [&late, &knowing] {
        assert_eq!(whole_hours(server, first), before, "set aside");
    }
}

/// Returns true if an instance has the least opening.
fn is_leader(name: &str, server: &Server) -> bool {
    let registry = in_mongo(&mongod().uri(name), async |store| {
        let registry: Collection<Document> = store.collection("registry");
        registry.find_one(doc! {}).await.expect("an answer").expect("the registry")
    });
    let logs = registry.get_array("logs").expect("logs").iter().filter_map(|log| log.as_document());
    let least = logs.min_by_key(|log| log.get_str("opening").expect("an opening")).expect("a log");
    least.get_str("host").expect("a host").ends_with(&format!(" pid {}", server.pid()))
}

/// Regression: a day that was split between listing and reading counted as done and kept its readings.
#[test]
fn a_day_split_during_stripping_is_stripped() {
    let name = fresh_database_name();
    let halt = Halt::new();
    let launch = Launch::with_store(mongod().uri(&name)).config(format!("{CONFIG}{SEALS}"));
    let server = halt.launch(launch, "strip_listed").start();
    let kept = kept_from();
    let first = fill(&server);
    // One hour of another sensor.
    post(&server.url("/write?db=w"), format!("m,s=2 temp=3.5 {}", first + 14 * HOUR + 5), &[]).expect(204);
    flush(&server);
    let date = |ns: i64| DateTime::from_millis(ns / 1_000_000);
    let expired = doc! { "start": { "$lt": date(kept) } };
    let count = |collection: &str, filter: Document| {
        in_mongo(&mongod().uri(&name), async |store| {
            let documents: Collection<Document> = store.collection(collection);
            documents.count_documents(filter).await.expect("an answer")
        })
    };
    let are_sealed = || {
        let sealed = count("w.days", doc! { "start": { "$lt": date(kept) }, "count": { "$gt": 0 } });
        (sealed == 5 && count("w.days", expired.clone()) == 5 && count("w.buckets", expired.clone()) == 0).then_some(())
    };
    eventually("two days of two sensors and one of another are sealed", are_sealed);
    let answers = whole_hours(&server, first);
    halt.set();
    server.set("w", KEPT).expect(200);
    halt.await_met("it is halted");
    // As another instance does, unknown to this one.
    in_mongo(&mongod().uri(&name), async |store| {
        let days: Collection<Document> = store.collection("w.days");
        let whole = doc! { "sensor": "m,s=2", "hour": { "$exists": false } };
        let mut part = days.find_one(whole.clone()).await.expect("an answer").expect("the day");
        let id = part.get_str("_id").expect("an id").replacen(' ', "T14 ", 1);
        let hour = doc! {
            "_id": id, "hour": 14, "start": date(first + 14 * HOUR), "end": date(first + 15 * HOUR),
        };
        part.extend(hour);
        days.insert_one(part).await.expect("it can be written");
        assert_eq!(days.delete_one(whole).await.expect("an answer").deleted_count, 1);
    });
    halt.lift();
    await_gone(&server);
    assert_eq!(count("w.days", doc! { "start": { "$lt": date(kept) }, "form": "expired" }), 5);
    assert_eq!(count("w.days", expired.clone()), 5);
    assert_eq!(whole_hours(&server, first), answers);
}

/// Regression: a request that waited for the WAL during an expiry was acked, but was missing in the summaries.
#[test]
fn a_reading_validated_before_its_expiry_is_in_the_summary() {
    let halt = Halt::new();
    let server = halt.launch(launch("embedded"), "before_append").start();
    let first = fill(&server);
    halt.set();
    let url = server.url("/write?db=w");
    let line = format!("m,s=0 temp=7777.5 {}", first + HOUR + 13);
    let waiting = std::thread::spawn(move || post(&url, line, &[]));
    halt.await_met("it is halted");
    server.set("w", KEPT).expect(200);
    // Only if no request is awaited.
    let is_removed = || (!database_settings(&server, "w")["removed_before"].is_null()).then_some(());
    assert_eq!(poll(Duration::from_secs(8), is_removed), None, "the summaries are made without it");
    halt.lift();
    waiting.join().expect("an answer").expect(204);
    await_gone(&server);
    let letters: Value = server.fetch("/api/v1/dead-letters");
    assert_eq!(letters["readings"], 0, "{letters}");
    let path =
        format!("/api/v1/summary?db=w&sensor=m,s=0&fields=temp&step=1h&from={}&to={}", first + HOUR, first + 2 * HOUR);
    let summary = get(&server.url(&path)).expect(200).text().to_owned();
    assert!(summary.contains("\"max\":7777.5"), "{summary}");
}

/// With the longest `retention.interval`: only a change or a retry starts an expiry.
fn launch_looking_rarely(halt: &Halt, point: &str) -> Launch {
    let config = CONFIG.replace("interval = \"100ms\"", "interval = \"1h\"");
    assert_ne!(config, CONFIG, "retention.interval is replaced");
    let launch = Launch::embedded().config(format!("{config}{SEALS}[ingest]\nack_timeout = \"500ms\"\n"));
    halt.launch(launch.env("HOURGLASS_TELEMETRY_LOG_LEVEL", "info,hourglass::upkeep::expire=debug"), point)
}

fn log_count(server: &Server, text: &str) -> usize {
    server.stderr().matches(text).count()
}

/// Regression: an expiry that gave up on an unlogged request counted as done until the next interval.
#[test]
fn an_expiry_that_timed_out_on_the_log_is_retried() {
    let halt = Halt::new();
    let server = launch_looking_rarely(&halt, "before_append").start();
    let first = fill(&server);
    halt.set();
    let url = server.url("/write?db=w");
    let line = format!("m,s=0 temp=7777.5 {}", first + HOUR + 13);
    let waiting = std::thread::spawn(move || post(&url, line, &[]));
    halt.await_met("it is halted");
    server.set("w", KEPT).expect(200);
    let looks = || log_count(&server, "cannot expire before earlier requests");
    wait_until("it gives up, and tries again", || looks() > 1);
    halt.lift();
    waiting.join().expect("an answer").expect(204);
}

/// Regression: without room for another deletion, the service retried every second.
#[test]
fn a_failed_expiry_is_not_retried_every_second() {
    let halt = Halt::new();
    let launch = launch_looking_rarely(&halt, "expiring");
    let server = launch.env("HOURGLASS_LIMITS_DELETIONS", "1").start();
    fill(&server);
    post(&server.url("/write?db=other"), "m v=1", &[]).expect(204);
    halt.set();
    server.set("w", r#"{"readings":"3d"}"#).expect(200);
    halt.await_met("it is halted");
    post(&server.url("/query?db=other&q=DELETE+FROM+m"), "", &[]).expect(200);
    halt.lift();
    let failed = "cannot delete expired readings";
    wait_until("it fails", || log_count(&server, failed) > 0);
    let retried = poll(Duration::from_secs(5), || (log_count(&server, failed) > 1).then_some(()));
    assert_eq!(retried, None, "{}", server.stderr());
    wait_until("it is tried again", || progress(&server, "expire", "deletions") == 1);
}
