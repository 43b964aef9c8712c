//! Cached store contents while another instance writes.

use crate::support::prelude::*;

const MAX_AGE: Duration = Duration::from_secs(1);
const CONFIG: &str = "[query]\ncache_max_age = \"1s\"\n[flush]\ninterval = \"10m\"\n";
/// 2026-03-27T00:00:00Z.
const START: i64 = 1_774_569_600;
const WRITES: i64 = 4;

fn count(server: &Server, path: &str) -> i64 {
    let answer = get(&server.url(&format!("{path}&from={START}&precision=s&step=1h&to={}", START + 86400)));
    let answer = answer.expect(200).json();
    let series = answer["series"].as_array().expect("series").iter();
    let windows = series.flat_map(|series| series["windows"].as_array().expect("windows"));
    let of_window = |window: &Value| window["fields"]["v"]["count"].as_i64().expect("a count");
    windows.map(of_window).sum()
}

#[test]
fn own_writes_are_visible_at_once_and_others_in_time() {
    let name = fresh_database_name();
    let [a, b] = [0, 1].map(|_| Launch::with_store(mongod().uri(&name)).config(CONFIG).start());
    for question in ["/api/v1/summary?db=d&measurement=m&agg=count", "/api/v1/summary?db=d&sensor=m,s=1"] {
        let before = count(&a, question);
        for write in 0..WRITES {
            let time = START + before * 60 + write * 60;
            // In an hour that both have queried and whose readings are all flushed.
            post(&a.url("/write?db=d&ack=store&precision=s"), format!("m,s=1 v=1 {time}"), &[]).expect(204);
            let written = Instant::now();
            assert_eq!(count(&a, question), before + write + 1, "the instance that took it");
            wait_until("the other instance sees it", || {
                let asked = Instant::now();
                let found = count(&b, question);
                let is_late = asked.duration_since(written) >= MAX_AGE;
                assert!(found == before + write + 1 || !is_late, "it remembers {found} for longer than it may");
                found == before + write + 1
            });
            assert_eq!(count(&b, question), before + write + 1);
        }
    }
    for server in [&a, &b] {
        assert!(metric(server, "hourglass_query_cache_hits_total") > 0.0, "nothing was remembered");
        assert!(metric(server, "hourglass_query_cache_bytes") > 0.0, "nothing is remembered");
    }
}

#[test]
fn without_a_cache_every_query_reads_the_store() {
    let server = Launch::embedded().config("[query]\ncache_bytes = 0\n").start();
    post(&server.url("/write?db=d&ack=store&precision=s"), format!("m,s=1 v=1 {START}"), &[]).expect(204);
    for _ in 0..2 {
        assert_eq!(count(&server, "/api/v1/summary?db=d&measurement=m&agg=count"), 1);
    }
    assert_eq!(metric(&server, "hourglass_query_cache_hits_total"), 0.0);
    assert_eq!(metric(&server, "hourglass_query_cache_bytes"), 0.0);
}

/// Regression: an hour took the memory of four fields, so a day of 1,000 sensors just missed the default cache, and a
/// dashboard read all of it from the store each time.
#[test]
fn a_day_of_a_thousand_sensors_is_remembered() {
    let server = Launch::embedded().env("HOURGLASS_SERVER_MEMORY", "512MiB").start();
    let start = START * SECOND + 12 * HOUR;
    for hour in 0..24 {
        let time = start + hour * HOUR;
        let line = |sensor: i64| format!("m,site=s{},sensor={sensor} v={} {time}\n", sensor % 10, sensor + hour);
        write_to(&server, "db=d&precision=ns", (0..1_000).map(line).collect::<String>());
    }
    flush(&server);
    let range = format!("time >= {start} AND time < {}", start + 24 * HOUR);
    let ask = || influxql(&server, &format!("SELECT mean(v) FROM m WHERE {range} GROUP BY time(1h), site"));
    let first = ask();
    let missed = || metric(&server, "hourglass_query_cache_misses_total");
    let before = missed();
    assert_eq!(ask(), first);
    assert_eq!(missed(), before, "it was read again");
    let bytes = metric(&server, "hourglass_query_cache_bytes") / 24_000.0;
    assert!(bytes < 500.0, "{bytes} bytes per hour");
}
