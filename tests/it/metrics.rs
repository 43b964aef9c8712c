//! `/metrics`: counters match their help, no label names a sensor, and `promtool` accepts the text.

use crate::support::prelude::*;

/// Returns the samples by name and labels, as written in the text.
fn scrape(server: &Server) -> BTreeMap<String, f64> {
    let answer = http::get(&server.url("/metrics")).expect(200);
    let samples = answer.text().lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let sample = |line: &str| {
        let (name, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no sample: {line}"));
        (name.to_owned(), value.parse().unwrap_or_else(|_| panic!("no number: {line}")))
    };
    samples.map(sample).collect()
}

/// Expected changes by sample name; other samples may change.
type SampleChanges<'a> = &'a [(&'a str, f64)];

struct MetricsObserver {
    server: Server,
    before: BTreeMap<String, f64>,
}

impl MetricsObserver {
    fn new(server: Server) -> Self {
        let before = scrape(&server);
        Self { server, before }
    }

    /// Checks the changes since the last call; every changed reading counter must be named.
    #[track_caller]
    fn expect_changes(&mut self, what: &str, changes: SampleChanges<'_>) {
        let now = scrape(&self.server);
        let sample_value = |samples: &BTreeMap<String, f64>, name: &str| samples.get(name).copied().unwrap_or(0.0);
        for (name, change) in changes {
            assert_eq!(sample_value(&now, name) - sample_value(&self.before, name), *change, "{what}: {name}");
        }
        for name in now.keys().filter(|name| name.starts_with("hourglass_ingest_readings_")) {
            let named = changes.iter().any(|(known, _)| known == name);
            assert!(
                named || sample_value(&now, name) == sample_value(&self.before, name),
                "{what}: {name} changed too"
            );
        }
        self.before = now;
    }

    #[track_caller]
    fn write(&self, lines: &str, status: u16) {
        http::post(&self.server.url("/write?db=d"), lines, &[]).expect(status);
        flush(&self.server);
    }
}

const ACCEPTED: &str = "hourglass_ingest_readings_accepted_total";
const STORED: &str = "hourglass_ingest_readings_stored_total";
const DUPLICATE: &str = "hourglass_ingest_readings_duplicate_total";
const OVERWRITTEN: &str = "hourglass_ingest_readings_overwritten_total";
const LATE: &str = "hourglass_ingest_readings_late_total";

fn rejected(reason: &str) -> String {
    format!("hourglass_ingest_readings_rejected_total{{reason=\"{reason}\"}}")
}

#[test]
fn reading_counters_cover_every_outcome() {
    let mut observer = MetricsObserver::new(Server::start("embedded"));
    observer.write("m a=1 10\nm a=2 20\nm,s=b a=1 10", 204);
    observer.expect_changes("new", &[(ACCEPTED, 3.0), (STORED, 3.0)]);
    observer.write("m a=1 10\nm a=2 20\nm,s=b a=1 10", 204);
    observer.expect_changes("the same again", &[(ACCEPTED, 3.0), (DUPLICATE, 3.0)]);
    observer.write("m a=9 10\nm b=1 20", 204);
    observer.expect_changes("another value, another field", &[(ACCEPTED, 2.0), (OVERWRITTEN, 2.0)]);
    observer.write("m a=1 5\nm a=1 30", 204);
    observer.expect_changes("one before the latest", &[(ACCEPTED, 2.0), (STORED, 2.0), (LATE, 1.0)]);
    // A new bucket has no latest reading yet.
    observer.write("m a=1 -5", 204);
    observer.expect_changes("an earlier hour", &[(ACCEPTED, 1.0), (STORED, 1.0)]);
    observer.write("# nothing\n", 204);
    observer.expect_changes("nothing", &[]);
    // Known after a restart, too.
    observer.server.stop_and_restart();
    observer.before = scrape(&observer.server);
    observer.write("m a=9,b=5 10\nm a=2 20\nm a=1 7", 204);
    observer.expect_changes(
        "after a restart",
        &[(ACCEPTED, 3.0), (OVERWRITTEN, 1.0), (DUPLICATE, 1.0), (STORED, 1.0), (LATE, 1.0)],
    );
}

#[test]
fn rejections_are_counted_by_reason() {
    let mut observer = MetricsObserver::new(Launch::embedded().config("[limits]\ntags = 2\nsensors = 2\n").start());
    observer.write("m a=1 1", 204);
    observer.expect_changes("the first", &[(ACCEPTED, 1.0), (STORED, 1.0)]);
    for (lines, reason, count) in [
        ("bad", "syntax", 1.0),
        ("m a=1x 1\nm\nm,t= a=1", "syntax", 3.0),
        ("m a=99999999999999999999i", "number_range", 1.0),
        ("m a=NaN", "not_finite", 1.0),
        ("m a=1 x\nm a=1 9223372036854775807", "timestamp", 2.0),
        ("m\u{1} a=1", "encoding", 1.0),
        ("m,a=1,b=2,c=3 a=1", "limit", 1.0),
        ("m a=\"x\" 1", "family", 1.0),
    ] {
        observer.write(lines, 400);
        observer.expect_changes(lines, &[(&rejected(reason), count)]);
    }
    observer.write("m,s=2 a=1 1\nm,s=3 a=1 1", 400);
    observer.expect_changes("one sensor too many", &[(&rejected("sensors"), 1.0), (ACCEPTED, 1.0), (STORED, 1.0)]);
    http::post(&observer.server.url("/api/v1/readings?db=d"), "{\"measurement\":7}\n{", &[]).expect(400);
    observer.expect_changes("JSON", &[(&rejected("json"), 2.0)]);
    // A field of a line and the rest of the line: both are counted.
    observer.write("m a=\"x\",b=1 2", 400);
    observer.expect_changes("a conflict", &[(&rejected("family"), 1.0), (ACCEPTED, 1.0), (STORED, 1.0)]);
}

/// Regression: a counter with a label was absent until its first event, which `rate` and `increase` then did not see.
#[test]
fn counters_with_labels_start_at_zero() {
    let samples = scrape(&Server::start("embedded"));
    let reference = fs::read_to_string(root().join("docs/reference/metrics.md")).unwrap();
    for name in [
        "hourglass_ingest_shed_total",
        "hourglass_ingest_readings_rejected_total",
        "hourglass_store_errors_total",
        "hourglass_edge_connections_closed_total",
        "hourglass_edge_tls_loads_total",
        "hourglass_access_denied_total",
        "hourglass_access_quota_total",
        "hourglass_tcp_lines_dropped_total",
    ] {
        let series: Vec<_> = samples.iter().filter(|(sample, _)| sample.starts_with(&format!("{name}{{"))).collect();
        assert!(series.len() > 1 && series.iter().all(|(_, value)| **value == 0.0), "{name}: {series:?}");
        assert!(reference.contains(name), "{name} is not in metrics.md");
    }
    assert_eq!(samples["hourglass_store_up"], 1.0);
    assert_eq!(samples["hourglass_store_full_seconds"], f64::INFINITY, "it was not observed long enough");
    assert!(samples["hourglass_http_connections_limit"] >= 64.0);
}

#[test]
fn requests_are_counted_by_route() {
    let server = Server::start("embedded");
    let requests = [
        ("POST", "/write?db=d", "/write", 204, 2.0),
        ("POST", "/write?precision=x", "/write", 400, 1.0),
        ("POST", "/api/v2/write?bucket=d", "/api/v2/write", 204, 1.0),
        ("POST", "/api/v3/write_lp?db=d", "/api/v3/write_lp", 204, 1.0),
        ("POST", "/api/v1/readings?db=d", "/api/v1/readings", 200, 1.0),
        ("GET", "/api/v1/readings?sensor=secret-sensor", "/api/v1/readings", 200, 3.0),
        ("GET", "/api/v1/summary?sensor=m", "/api/v1/summary", 200, 1.0),
        ("GET", "/api/v1/sensors", "/api/v1/sensors", 200, 1.0),
        ("GET", "/query?q=SHOW%20DATABASES", "/query", 200, 1.0),
        ("HEAD", "/ping", "/ping", 204, 1.0),
        ("GET", "/", "/", 200, 1.0),
        ("GET", "/secret/path", "other", 404, 1.0),
        ("DELETE", "/write", "/write", 405, 1.0),
    ];
    for (method, path, _, status, times) in requests {
        for _ in 0..times as usize {
            http::request(method, &server.url(path), b"", &[]).unwrap().expect(status);
        }
    }
    let samples = scrape(&server);
    for (method, _, route, status, times) in requests {
        let method = if method == "DELETE" { "other" } else { method };
        let name =
            format!("hourglass_http_requests_total{{route=\"{route}\",method=\"{method}\",status=\"{status}\"}}");
        assert_eq!(samples.get(&name), Some(&times), "{name} in {samples:#?}");
        let count = format!("hourglass_http_request_seconds_count{{route=\"{route}\"}}");
        assert!(samples.get(&count).is_some_and(|count| *count >= times), "{count}");
    }
    assert!(samples.keys().all(|name| !name.contains("secret")), "{samples:#?}");
}

/// Starts a server and causes every kind of event.
fn busy_server() -> Server {
    let server = Launch::embedded().config("[page]\nmax_readings = 10\n").start();
    let lines: String =
        (0..35).map(|n| format!("climate,sensor=secret-7,site=cellar temp={n},on=true {n}\n")).collect();
    http::post(&server.url("/write?db=secret-database"), &lines, &[]).expect(204);
    http::post(&server.url("/write?db=secret-database"), &lines, &[]).expect(204);
    http::post(&server.url("/write?db=secret-database"), "climate,sensor=secret-8 temp=\"x\",v=1\nbad secret", &[])
        .expect(400);
    flush(&server);
    http::get(&server.url("/api/v1/readings?db=secret-database&sensor=climate,sensor=secret-7,site=cellar"))
        .expect(200);
    http::get(&server.url("/api/v1/summary?db=secret-database&sensor=climate,sensor=secret-7,site=cellar")).expect(200);
    http::get(&server.url("/secret-path?secret=parameter")).expect(404);
    server
}

/// Regression: stored buckets were first inserted in vain instead of being read.
#[test]
fn evicted_buckets_are_not_counted_as_new() {
    let server = Launch::embedded().config("[memtable]\nmax_bytes = \"1MiB\"\n").start();
    // Many fields, so that few buckets exceed the memory.
    let fields: Vec<String> = (0..20).map(|n| format!("f{n}=1")).collect();
    let line = |n: usize, value: usize| format!("m,s={n} {} {value}\n", fields.join(","));
    let lines = |value: usize| (0..600).map(|n| line(n, value)).collect::<String>();
    for value in 1..4 {
        http::post(&server.url("/write?ack=store"), lines(value), &[]).expect(204);
    }
    let seen = scrape(&server);
    let hot: f64 =
        seen.iter().filter(|(name, _)| name.starts_with("hourglass_bucket_cache_buckets")).map(|(_, n)| n).sum();
    assert!(hot < 600.0, "{hot}: some were let go");
    assert_eq!(seen.get("hourglass_store_conflicts_total").copied().unwrap_or(0.0), 0.0);
    assert_eq!(seen["hourglass_ingest_readings_stored_total"], 1800.0);
}

/// Returns the free bytes on the disk of a folder for this process, by `df`.
fn free_on_disk(folder: &std::path::Path) -> f64 {
    let output = Command::new("df").args(["--output=avail", "-B1"]).arg(folder).output().expect("df can be run");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    text.lines().nth(1).and_then(|bytes| bytes.trim().parse().ok()).unwrap_or_else(|| panic!("{text}"))
}

/// Returns true if both are close; others write to this disk, too.
fn is_near(one: f64, other: f64) -> bool {
    (one - other).abs() < 2e9 + 0.05 * other
}

/// Regression: a full disk showed only when writes were refused, and alerts repeated the WAL's budget.
#[test]
fn disk_space_is_reported_before_it_runs_out() {
    let server = Launch::embedded().config("[wal]\nbudget_bytes = \"3GiB\"\n").start();
    let file = server.data_dir().join("hourglass.redb");
    eventually("the space is measured", || {
        let samples = scrape(&server);
        let sample_value = |name: &str| samples.get(name).copied();
        assert_eq!(sample_value("hourglass_wal_budget_bytes"), Some(3.0 * 1024.0 * 1024.0 * 1024.0));
        let free = free_on_disk(&server.data_dir());
        let wal = sample_value("hourglass_wal_disk_free_bytes")?;
        let store = sample_value("hourglass_store_disk_free_bytes")?;
        assert!(is_near(wal, free) && is_near(store, free), "{wal} and {store}, not {free}");
        // Nothing was written since the start, so the file has its initial size; unwritten parts take no space.
        let taken = |file: std::fs::Metadata| file.len().min(file.blocks() * 512) as f64;
        assert_eq!(sample_value("hourglass_store_bytes"), std::fs::metadata(&file).ok().map(taken));
        Some(())
    });
    let mongod = mongod();
    let server = Server::start(&mongod.uri(&fresh_database_name()));
    let measured = || {
        let samples = scrape(&server);
        let sample_value = |name: &str| samples.get(name).copied().filter(|value| !value.is_nan());
        Some((sample_value("hourglass_store_bytes")?, sample_value("hourglass_store_disk_free_bytes")?))
    };
    let (bytes, free) = eventually("MongoDB reports its space", measured);
    // A database without readings, at most the registry.
    assert!((0.0..1e8).contains(&bytes), "{bytes}");
    assert!(is_near(free, free_on_disk(&server.data_dir())), "{free}");
}

#[test]
fn no_label_names_a_sensor_and_every_name_has_a_prefix() {
    let server = busy_server();
    let answer = http::get(&server.url("/metrics")).expect(200);
    assert!(answer.header("content-type").is_some_and(|kind| kind.starts_with("text/plain; version=0.0.4")));
    for word in ["secret", "cellar", "climate", "temp"] {
        assert!(!answer.text().contains(word), "{word}");
    }
    let mut described = Vec::new();
    let mut typed = Vec::new();
    for line in answer.text().lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["#", "HELP", name, first, ..] => {
                assert!(!first.is_empty(), "{line}");
                described.push(name);
            }
            ["#", "TYPE", name, _] => typed.push(name),
            _ if line.is_empty() => {}
            _ => {
                let name = line.split(['{', ' ']).next().unwrap();
                assert!(name.starts_with("hourglass_") || name.starts_with("process_"), "{line}");
                assert!(typed.iter().any(|typed| name.starts_with(typed)), "no type: {line}");
            }
        }
    }
    assert_eq!(described, typed, "each has its help");
    let samples = scrape(&server);
    let at_least = |name: &str, least: f64| {
        assert!(samples.get(name).is_some_and(|value| *value >= least), "{name}: {:?}", samples.get(name));
    };
    at_least("hourglass_store_overflow_pages_total", 3.0);
    at_least("hourglass_store_sensor_writes_total", 2.0);
    at_least("hourglass_ingest_sensors", 2.0);
    at_least("hourglass_http_body_bytes_total", 1000.0);
    at_least("hourglass_query_points_total", 36.0);
    at_least("hourglass_query_seconds_count", 2.0);
    at_least("hourglass_ingest_ack_seconds_count", 3.0);
    at_least("hourglass_flush_seconds_count", 2.0);
    at_least("hourglass_ingest_request_readings_sum", 71.0);
    at_least("hourglass_flush_readings_sum", 71.0);
    at_least("hourglass_http_connections", 1.0);
    at_least("process_resident_memory_bytes", 1e6);
    at_least("process_open_fds", 3.0);
    let version = env!("CARGO_PKG_VERSION");
    let build =
        format!("hourglass_build_info{{version=\"{version}\",store=\"embedded\",commit=\"\",profile=\"debug\"}}");
    at_least(&build, 1.0);
    let held =
        |name: &str| samples.iter().filter(|(key, _)| key.starts_with(name)).map(|(_, value)| value).sum::<f64>();
    assert!(
        held("hourglass_bucket_cache_buckets{") >= 2.0 && held("hourglass_bucket_cache_bytes{") > 100.0,
        "{samples:#?}"
    );
}

#[test]
fn promtool_accepts_the_metrics() {
    let Some(promtool) = require(Package::Promtool) else { return };
    let server = busy_server();
    let text = http::get(&server.url("/metrics")).expect(200);
    let complaints =
        run_with_input(Command::new(promtool).args(["check", "metrics"]), &text.body).expect_success().output();
    assert!(complaints.trim().is_empty(), "{complaints}");
}
