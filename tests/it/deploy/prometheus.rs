//! A real Prometheus with the config of `deploy/`: every expression finds series, and an outage fires the right alerts.

use super::{dashboard_expressions, read, root};
use crate::support::prelude::*;

/// Time for a first scrape, a first evaluation and a second sample on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Another process can take a free port before Prometheus; more often in a row is another problem.
const PORT_ATTEMPTS: usize = 5;

/// A running Prometheus. Dropping it kills it and removes its folder.
pub struct Prometheus {
    process: Process,
    folder: Folder,
    port: u16,
}

impl Prometheus {
    /// Starts it on a free port with the configuration of `deploy/`, these targets and short intervals.
    #[track_caller]
    fn start(program: &Path, targets: &[String]) -> Prometheus {
        let mut config = read("deploy/prometheus/prometheus.yml");
        let alerts = root().join("deploy/prometheus/alerts.yml").display().to_string();
        for (there, here) in
            [("hourglass:8087", &*targets.join("\", \"")), ("15s", "200ms"), ("- alerts.yml", &format!("- {alerts}"))]
        {
            assert!(config.contains(there), "{there} is to be replaced in prometheus.yml");
            config = config.replace(there, here);
        }
        Prometheus::start_with(program, &config)
    }

    /// Starts it on a free port with this configuration.
    #[track_caller]
    pub fn start_with(program: &Path, config: &str) -> Prometheus {
        for _ in 0..PORT_ATTEMPTS {
            let folder = Folder::new("prometheus");
            std::fs::write(folder.file("prometheus.yml"), config).expect("the configuration can be written");
            let port = free_port();
            let mut command = Command::new(program);
            command.arg(format!("--web.listen-address=127.0.0.1:{port}")).current_dir(folder.path());
            command.args(["--config.file=prometheus.yml", "--storage.tsdb.path=series", "--log.level=warn"]);
            let log = File::create(folder.file("log")).expect("a log can be made");
            let errors = log.try_clone().expect("a file can be shared");
            let process = Process::spawn(&command, log, errors).expect("Prometheus can be started");
            let mut prometheus = Prometheus { process, folder, port };
            if prometheus.is_ready() {
                return prometheus;
            }
        }
        panic!("Prometheus did not get a port {PORT_ATTEMPTS} times in a row");
    }

    /// Returns false if it ended because another process has its port.
    fn is_ready(&mut self) -> bool {
        let url = format!("http://127.0.0.1:{}/-/ready", self.port);
        let ready = poll(PATIENCE, || {
            if self.process.exited().is_some() {
                return Some(false);
            }
            let answer = http::request("GET", &url, b"", &[]).ok()?;
            (answer.status == 200).then_some(true)
        });
        let log = last_lines(&self.folder.file("log"), 20);
        match ready {
            Some(ready) => {
                assert!(ready || log.contains("address already in use"), "Prometheus ended:\n{log}");
                ready
            }
            None => panic!("Prometheus was not ready within {PATIENCE:?}:\n{log}"),
        }
    }

    fn get(&self, path: &str) -> Value {
        let answer = http::get(&format!("http://127.0.0.1:{}{path}", self.port));
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        answer.json()["data"].clone()
    }

    /// Evaluates an expression: its series, or the single sample of a scalar. A series of a range has all its samples.
    #[track_caller]
    pub fn ask(&self, expression: &str) -> Vec<Value> {
        let path = format!("/api/v1/query?query={}", encode(expression));
        let data = self.get(&path);
        match data["resultType"].as_str() {
            Some("scalar") => vec![data.clone()],
            Some("vector" | "matrix") => data["result"].as_array().expect("a vector has a list").clone(),
            other => panic!("{expression} yields {other:?}"),
        }
    }

    /// Waits until all alerts were evaluated; returns expression and state by name.
    fn alerts(&self) -> BTreeMap<String, (String, String)> {
        let evaluated = || {
            let data = self.get("/api/v1/rules?type=alert");
            let groups = data["groups"].as_array().expect("there are groups").iter();
            let rules: Vec<Value> =
                groups.flat_map(|group| group["rules"].as_array().expect("rules").clone()).collect();
            rules.iter().all(|rule| rule["health"] != "unknown").then_some(rules)
        };
        let rules = eventually("every alert is evaluated", evaluated);
        let text = |rule: &Value, key: &str| rule[key].as_str().expect("a text").to_owned();
        for rule in &rules {
            assert_eq!(rule["health"], "ok", "{rule}");
        }
        rules.iter().map(|rule| (text(rule, "name"), (text(rule, "query"), text(rule, "state")))).collect()
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a loopback port can be had");
    listener.local_addr().expect("a listener has an address").port()
}

/// Returns the optional program, or prints that it is missing.
#[track_caller]
pub fn program() -> Option<PathBuf> {
    let found = on_path(Path::new("prometheus"));
    if found.is_none() {
        not_run("needs `prometheus` of the Debian package prometheus (it is not on PATH)");
    }
    found
}

/// Returns both sides of every comparison in an alert; each must have series.
fn sides(expression: &str) -> Vec<&str> {
    let mut depth = 0_u32;
    let mut start = 0;
    let mut sides = Vec::new();
    for (at, byte) in expression.bytes().enumerate() {
        match byte {
            b'(' | b'{' | b'[' => depth += 1,
            b')' | b'}' | b']' => depth -= 1,
            b'<' | b'>' | b'=' | b'!' if depth == 0 => {
                sides.push(expression[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    sides.push(expression[start..].trim());
    // Between the two characters of `==` there is nothing.
    sides.retain(|side| !side.is_empty());
    sides
}

/// Returns the labels that the outermost sum keeps; `le` is consumed by the quantile.
fn kept_labels(expression: &str) -> Vec<&str> {
    let Some((_, after)) = expression.split_once("by (") else { return Vec::new() };
    let labels = after.split(')').next().expect("a split has a first part");
    labels.split(',').map(str::trim).filter(|label| *label != "le").collect()
}

/// Causes every activity of a healthy service.
fn traffic(server: &Server) {
    let lines =
        "climate,sensor=temp-01 temp=21.5 1768485600000000000\nclimate,sensor=temp-02 temp=20.25 1768485660000000000";
    http::post(&server.url("/write"), lines, &[]).expect(204);
    http::post(&server.url("/write"), "climate,sensor=temp-01 temp=\"x\" 1768485600000000000\nbad", &[]).expect(400);
    flush(server);
    http::get(&server.url("/api/v1/readings?sensor=climate,sensor=temp-01")).expect(200);
    http::get(&server.url("/api/v1/summary?sensor=climate,sensor=temp-01")).expect(200);
    http::get(&server.url("/nothing/here")).expect(404);
    http::post(&server.url("/api/v1/backup/completed?began=1768485600000"), "", &[]).expect(204);
}

/// A server for strangers: tokens, quotas, TLS, a TCP listener, and metrics on a separate address.
struct Guarded {
    server: Server,
    certificates: Certificates,
    token: String,
    metrics: String,
}

impl Guarded {
    /// Returns `None` without `openssl`.
    #[track_caller]
    fn start() -> Option<Guarded> {
        let certificates = Certificates::new()?;
        certificates.sign("server", "server", "");
        let config = format!(
            "[server]\nconnections_per_address = 3\n[status]\nlisten = \"127.0.0.1:0\"\n[auth]\nfirst_token = true\n\
             [quota]\ndatabase_readings = 1\n[limits]\nline_bytes = \"1KiB\"\n[tcp]\nlisten = \"127.0.0.1:0\"\n{}",
            certificates.config("")
        );
        let server = Launch::embedded().config(config).start();
        let banner = server.stdout();
        let behind = |what: &str| banner.split(what).nth(1).expect("the banner says it").trim_start();
        let token = behind("\n  token ").lines().next().expect("a token").to_owned();
        let metrics = behind("metrics: http://").split("/metrics").next().expect("an address").to_owned();
        Some(Guarded { server, certificates, token, metrics })
    }

    /// Causes every refusal: strangers, quotas, long lines, an invalid certificate, too many connections.
    fn trouble(&mut self) {
        let url = self.server.url("/write");
        let bearer = format!("Token {}", self.token);
        http::post(&url, "m v=1", &[]).expect(401);
        // A reading a second is allowed, so the next one is refused for minutes, however slow the machine is.
        let thousand: String = (1..=1000).map(|time| format!("m v=1 {time}\n")).collect();
        http::post(&url, thousand, &[("authorization", &bearer)]).expect(204);
        http::post(&url, "m v=1 7", &[("authorization", &bearer)]).expect(429);
        Raw::open(self.server.scheme_address("tcp")).send(format!("auth {}\n{}", self.token, "x".repeat(3000)));
        std::fs::write(self.certificates.file("server.key"), "no key").expect("a file can be written");
        self.server.signal("HUP");
        let crowd: Vec<Raw> = (0..4).map(|_| Raw::open(self.server.address())).collect();
        let url = format!("http://{}/metrics", self.metrics);
        for name in [
            "hourglass_access_denied_total{reason=\"missing\"}",
            "hourglass_access_quota_total{outcome=\"refused\"",
            "hourglass_tcp_lines_dropped_total{reason=\"line_bytes\"}",
            "hourglass_edge_tls_loads_total{outcome=\"refused\"}",
            "hourglass_edge_connections_closed_total{reason=\"address\"}",
        ] {
            wait_until(name, || http::get(&url).text().contains(&format!("\n{name}")));
        }
        drop(crowd);
    }
}

/// Sends 8,000 bytes and returns true if the WAL accepted them.
fn is_taken(server: &Server, time: u64) -> bool {
    let line = format!("filler text=\"{}\" {time}", "x".repeat(8000));
    let status = http::post(&server.url("/write"), line, &[]).status;
    assert!(status == 204 || status == 503, "{status}");
    status == 204
}

/// Writes until the WAL is full, so writes are refused while the store is down.
fn fill_the_log(server: &Server) {
    let mut sent = 0;
    wait_until("the WAL is full", || {
        sent += 1;
        !is_taken(server, sent)
    });
    assert!(sent > 3, "the WAL took {sent} requests");
}

#[test]
fn every_expression_finds_series_and_an_outage_fires_its_alerts() {
    let Some(program) = program() else { return };
    let mut mongod = Mongod::start();
    let config = "[store]\ncommand_timeout = \"500ms\"\n[flush]\ninterval = \"100ms\"\n\
                  [wal]\nsegment_bytes = \"64KiB\"\nbudget_bytes = \"128KiB\"\ncompress = false\n";
    let server = Launch::with_store(mongod.uri("deployed")).config(config).start();
    let Some(mut guarded) = Guarded::start() else { return };
    let prometheus = Prometheus::start(&program, &[server.address().to_string(), guarded.metrics.clone()]);
    traffic(&server);
    wait_until("both are scraped", || {
        let up = prometheus.ask("up{job=\"hourglass\"} == 1");
        up.len() == 2
    });

    // They need a fault of their own; a slow disk may fire others.
    let of_troubles = [
        "Down",
        "StoreDown",
        "LogRefuses",
        "LogDamaged",
        "LogInDoubt",
        "DeadLetters",
        "StoreErrors",
        "Sheds",
        "AnswersFail",
    ];
    let alerts = prometheus.alerts();
    for name in of_troubles {
        assert_eq!(alerts[&format!("Hourglass{name}")].1, "inactive", "{name} of a healthy service");
    }

    // Some expressions have a value only after a fault, so that no expression is exempt.
    guarded.trouble();
    mongod.kill();
    fill_the_log(&server);
    let sides_of_alerts = alerts.values().flat_map(|(expression, _)| sides(expression)).map(str::to_owned);
    for expression in dashboard_expressions().into_iter().chain(sides_of_alerts) {
        let found = eventually(&format!("series for {expression}"), || {
            Some(prometheus.ask(&expression)).filter(|series| !series.is_empty())
        });
        for (label, series) in kept_labels(&expression).iter().flat_map(|label| found.iter().map(move |s| (label, s))) {
            assert!(series["metric"][*label].is_string(), "{expression} yields no label {label}: {series}");
        }
    }

    // With their waiting times they would fire after minutes; alerts_test.yml checks those.
    for name in ["HourglassStoreDown", "HourglassStoreErrors", "HourglassSheds", "HourglassAnswersFail"] {
        wait_until(&format!("{name} wakes"), || {
            assert!(!is_taken(&server, 0), "the WAL is full, and the store is away");
            prometheus.alerts()[name].1 == "pending"
        });
    }
}

#[test]
fn an_expression_is_split_only_at_its_comparison() {
    assert_eq!(sides("up{job=\"a\"} == 0"), ["up{job=\"a\"}", "0"]);
    assert_eq!(sides("sum(a{s=~\"5..\"}) / sum(b) > 0.05"), ["sum(a{s=~\"5..\"}) / sum(b)", "0.05"]);
    assert_eq!(kept_labels("quantile(0.9, sum by (le, route) (rate(a[1m])))"), ["route"]);
}
