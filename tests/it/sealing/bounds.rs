//! Data larger than a document, or unreadable, blocks nothing else.

use super::{PAGES, START, line};
use crate::support::prelude::*;

const TEXT_BYTES: usize = 16 << 10;

/// Returns a text that compresses by at most a quarter.
fn text(seed: u64) -> String {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut random = Random::new(seed);
    (0..TEXT_BYTES).map(|_| char::from(random.pick(DIGITS))).collect()
}

/// Regression: a chunk of 18 MB was refused by MongoDB for ever, and an hour larger than a document failed every round.
#[test]
fn strings_larger_than_a_document_are_stored() {
    let config = "[seal]\nafter = \"1s\"\ninterval = \"1h\"\nquiet = \"1h\"\n[sensors]\nwrite_interval = \"100ms\"\n";
    let server = Launch::with_store(mongod().uri(&fresh_database_name())).config(config).start();
    // A day with one a minute, then an hour of 1,300 next to a small one, which no document holds.
    let times: Vec<u64> = (0..1440)
        .map(|minute| START + minute * 60)
        .chain((0..1300).map(|n| START + 86_400 + n * 2))
        .chain([START + 86_400 + 7200])
        .collect();
    // Distinct texts, because zstd finds repetitions.
    let given: Vec<(u64, String)> = times.into_iter().map(|time| (time, text(time))).collect();
    for some in given.chunks(60) {
        let lines = some.iter().map(|(time, text)| format!("m,s=a note=\"{text}\" {time}\n"));
        post(&server.url("/write?db=d&precision=s"), lines.collect::<String>(), &[]).expect(204);
    }
    flush(&server);
    let check = |when: &str| {
        for some in given.chunks(60) {
            let first = some[0].0;
            let last = some[some.len() - 1].0;
            let path =
                format!("/query?db=d&epoch=s&q=SELECT+note+FROM+m+WHERE+time+%3E%3D+{first}s+AND+time+%3C%3D+{last}s");
            let answer: Value = server.fetch(&path);
            let found = &answer["results"][0]["series"][0]["values"];
            let same = some.iter().enumerate().all(|(at, (time, text))| found[at] == json!([time, text]));
            assert!(
                same && found[some.len()].is_null(),
                "{when}: the texts from {first} on: {:.200}",
                answer.to_string()
            );
        }
    };
    check("flushed");
    let round = seal(&server);
    // The day has pages and chunks; both are counted.
    let progress = &round["progress"];
    assert_eq!((&progress["large"], &progress["failed"]), (&1.into(), &0.into()), "{round}");
    assert!(round["last_error"].is_null(), "{round}");
    check("sealed");
}

/// Regression: an hour of an accelerometer (1,080,000 values) exceeded the limit of 1,048,576 and was never sealed.
#[test]
fn a_kilohertz_sensor_is_sealed() {
    let config = "[seal]\nafter = \"0s\"\n[server]\nmemory = \"512MiB\"\n[sensors]\nwrite_interval = \"100ms\"\n";
    let server = Launch::embedded().config(config).start();
    let line = |n: u64| format!("acc,s=a x={}.5,y={},z=9.8{} {}\n", n % 7, n % 11, n % 10, START * 1000 + n * 10);
    for first in (0..360_000).step_by(10_000) {
        let lines: String = (first..first + 10_000).map(line).collect();
        post(&server.url("/write?db=d&precision=ms"), lines, &[]).expect(204);
    }
    flush(&server);
    let round = seal(&server);
    let expected = json!({
        "days": 1, "readings": 360_000, "unsettled": 0, "large": 0, "failed": 0, "databases_off": 0, "lifetimes": 1
    });
    assert_eq!(round["progress"], expected, "{round}");
    // The readings of one second.
    let at = START + 1800;
    let path = format!("/query?db=d&epoch=ms&q=SELECT+x,y+FROM+acc+WHERE+time+%3E%3D+{at}s+AND+time+%3C+{}s", at + 1);
    let answer: Value = server.fetch(&path);
    let expected: Vec<Value> =
        (180_000_u64..180_100).map(|n| json!([START * 1000 + n * 10, (n % 7) as f64 + 0.5, n % 11])).collect();
    assert_eq!(answer["results"][0]["series"][0]["values"].as_array(), Some(&expected), "{answer:.500}");
    let all = server.fetch("/query?db=d&q=SELECT+count(z)+FROM+acc");
    assert_eq!(all["results"][0]["series"][0]["values"][0][1], 360_000, "{all}");
}

/// Regression: a damaged or newer page stopped the sealing of all later days.
#[test]
fn an_unreadable_page_blocks_only_the_seal_of_its_day() {
    let uri = mongod().uri(&fresh_database_name());
    let server = Launch::with_store(&uri).config(format!("{PAGES}[seal]\nafter = \"0s\"\n")).start();
    for (database, sensors) in [("d", 0..4), ("later", 0..1)] {
        for sensor in sensors {
            let lines: String = (0..1440).step_by(20).map(|minute| line(sensor, minute, minute * 7 % 101)).collect();
            post(&server.url(&format!("/write?db={database}&precision=s")), lines, &[]).expect(204);
        }
    }
    flush(&server);
    let page = |sensor: u64, hour: i64| {
        let start =
            mongodb::bson::DateTime::from_millis(i64::try_from(START).expect("a time") * 1000 + hour * 3_600_000);
        doc! { "sensor": format!("climate,s={sensor}"), "start": start }
    };
    change(&uri, page(0, 3), doc! { "schemaVersion": 99 });
    change(&uri, page(2, 5), doc! { "readings": "none" });
    let round = seal(&server);
    assert_eq!((&round["progress"]["failed"], &round["left"]), (&2.into(), &2.into()), "{round}");
    assert_eq!((&round["progress"]["days"], &round["last_error"]), (&3.into(), &Value::Null), "{round}");
    change(&uri, page(0, 3), doc! { "schemaVersion": 1 });
    let round = seal(&server);
    assert_eq!((&round["progress"]["failed"], &round["progress"]["days"]), (&1.into(), &4.into()), "{round}");
    assert_eq!(readings(&server, "d", "climate,s=0", None, 100).len(), 72);
}

fn change(uri: &str, which: Document, set: Document) {
    write_document(uri, "d.buckets", which, set);
}
