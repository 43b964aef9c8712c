//! Unmodified client libraries write values that are read back here, and report refusals.

use crate::support::prelude::*;

/// Runs a script that prints JSON.
fn script(python: &Path, name: &str, arguments: &[&str]) -> Value {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/clients").join(name);
    let mut command = Command::new(python);
    command.arg("-W").arg("ignore").arg(file).args(arguments).env("NO_PROXY", "*");
    let output = command.output().expect("Python can be run");
    let complaint = || String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{name}: {}", complaint());
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{name}: {error}: {}", complaint()))
}

/// A server and the credentials of its clients.
struct TestServer {
    server: Server,
    token: String,
    requires_token: bool,
}

/// Starts a server without tokens and one with tokens.
fn test_servers() -> [TestServer; 2] {
    let open = TestServer { server: Server::start("embedded"), token: "any".to_owned(), requires_token: false };
    let server = Launch::embedded().env("HOURGLASS_AUTH_FIRST_TOKEN", "true").start();
    let token = server.first_token().expect("a token");
    [open, TestServer { server, token, requires_token: true }]
}

impl TestServer {
    fn readings(&self, database: &str, sensor: &str) -> Vec<Value> {
        let sensor = encode(sensor);
        let path = format!("/api/v1/readings?db={database}&epoch=ns&limit=100000&sensor={sensor}");
        let headers = [("Authorization", &*format!("Bearer {}", self.token))];
        let answer =
            http::request("GET", &self.server.url(&path), b"", &headers).expect("an answer").expect(200).json();
        answer["series"][0]["readings"].as_array().unwrap_or_else(|| panic!("{sensor}: {answer}")).clone()
    }

    /// Returns the answer that a client without a valid token gets.
    fn unauthorized_answer(&self) -> Value {
        json!(if self.requires_token { 401 } else { 200 })
    }
}

fn text<'a>(value: &'a Value, what: &str) -> &'a str {
    value.as_str().unwrap_or_else(|| panic!("{what}: {value}"))
}

/// Regression: a generated client lacked the endpoints that take line protocol, and types with two names.
#[test]
fn a_generated_client_has_all_operations_and_writes_and_reads() {
    let Some(python) = require(Package::OpenapiPythonClient) else { return };
    let server = Server::start("embedded");
    let folder = Folder::new("generated");
    let seen = script(&python, "generated_client.py", &[&server.url(""), folder.path().to_str().expect("UTF-8")]);
    assert_eq!(seen["generated"], seen["operations"]);
    assert_eq!((&seen["ack"], &seen["written"]), (&json!({"accepted": 1, "rejected": []}), &json!(204)));
    assert_eq!(seen["preview"], json!({"dry_run": true, "sensors": 1, "readings": 1, "summaries": 0}));
    assert_eq!(seen["found"]["series"][0]["readings"], json!([{"ts": "2026-01-15T14:00:00Z", "value": 3}]));
    assert_eq!(seen["databases"], json!(["made"]));
}

#[test]
fn the_v2_client_writes_points_and_batches() {
    let Some(python) = require(Package::InfluxdbClient) else { return };
    for target in test_servers() {
        the_v2_client_writes(&python, &target);
    }
}

fn the_v2_client_writes(python: &Path, target: &TestServer) {
    let statements = "CREATE DATABASE v2;CREATE RETENTION POLICY week ON v2 DURATION INF REPLICATION 1";
    let headers = [("Authorization", &*format!("Bearer {}", target.token))];
    let url = target.server.url(&format!("/query?q={}", encode(statements)));
    http::request("POST", &url, b"", &headers).expect("an answer").expect(200);
    let seen = script(python, "v2_client.py", &[&target.server.url(""), "v2", &target.token]);
    assert_eq!(seen["stranger"], target.unauthorized_answer());
    assert_eq!((&seen["ping"], &seen["health"], &seen["ready"]), (&json!(true), &json!("pass"), &json!("ready")));
    assert!(text(&seen["version"], "version").starts_with("1."), "{seen}");

    let first = json!({"ts": START, "temp": 22.1, "count": 42, "on": true, "note": "a \"b\"\\c"});
    assert_eq!(sorted(&target.readings("v2", r"climate,sensor=room\ 1\,\ left,site=a\=b")[0]), sorted(&first));
    let precise: Vec<i64> = [0, 1_000_000, 2_000, 3].map(|offset| START + offset).to_vec();
    let mut found = times(&target.readings("v2", "precise"));
    found.sort_by_key(|time| precise.iter().position(|known| known == time));
    assert_eq!(found, precise);
    let expected: Vec<Value> = (0..300).map(|n| json!({"ts": START + n * MINUTE, "n": n})).collect();
    assert_eq!(target.readings("v2", "many"), expected);

    let rejected = &seen["rejected"];
    assert_eq!(rejected["status"], json!(400));
    let message = text(&rejected["message"], "the client's own message");
    assert!(message.starts_with("partial write: unable to parse 'bad': line 2, column 4: missing fields"), "{message}");
    assert!(message.ends_with(" dropped=1"), "{message}");
    assert_eq!((&rejected["body"]["code"], &rejected["body"]["line"]), (&json!("invalid"), &json!(2)));
    let conflict = &seen["conflict"];
    assert_eq!((&conflict["status"], &conflict["body"]["code"]), (&json!(422), &json!("unprocessable entity")));
    assert!(
        text(&conflict["message"], "conflict").contains("input field \"v\" on measurement \"mixed\" is type string")
    );
    let mixed = [json!({"ts": 1, "v": 1}), json!({"ts": 2, "v": 2}), json!({"ts": 3, "w": 3})];
    assert_eq!(target.readings("v2", "mixed"), mixed);

    assert_eq!(seen["buckets"], json!(["v2", "v2/week"]));
    assert_eq!((&seen["made"], &seen["org"]), (&json!([true, "made", 7200]), &json!("hourglass")));
    assert_eq!((&seen["again"]["status"], &seen["again"]["body"]["code"]), (&json!(409), &json!("conflict")));
    assert_eq!(seen["flux"]["status"], json!([400, "invalid"]));
    assert!(text(&seen["flux"]["message"], "the refusal").contains("InfluxQL to /query"), "{seen}");
    // The deletion covers both ends, and no other policy.
    let gone = |sensor: &str| times(&target.readings("v2", sensor));
    assert_eq!((gone("gone,t=a"), gone("gone,t=b")), (vec![0, 3], vec![0, 1, 2, 3]));
    assert_eq!(times(&target.readings("v2/week", "gone,t=a")), [0]);
    assert_eq!(seen["predicates"], json!(vec!["invalid"; 6]));

    assert_eq!((&seen["batches"], &seen["failed"]), (&json!([500, 500, 500, 500]), &json!([400])));
    for sensor in 0..4_i64 {
        let expected: Vec<Value> =
            (0..500).map(|n| n * 4 + sensor).map(|n| json!({"ts": (n + 1) * 1_000_000, "n": n})).collect();
        assert_eq!(target.readings("v2", &format!("batched,s={sensor}")), expected);
    }
    assert_eq!(target.readings("v2", "batched,s=late"), [json!({"ts": 1, "n": 1})]);
}

#[test]
fn the_v1_client_creates_a_database_and_writes_points_and_batches() {
    let Some(python) = require(Package::Influxdb) else { return };
    for target in test_servers() {
        the_v1_client_writes(&python, &target);
    }
}

fn the_v1_client_writes(python: &Path, target: &TestServer) {
    let host = target.server.address().ip().to_string();
    let port = target.server.address().port().to_string();
    let seen = script(python, "v1_client.py", &[&host, &port, "v1", &target.token]);
    assert_eq!(seen["stranger"], target.unauthorized_answer());
    assert!(text(&seen["ping"], "the version").starts_with("1."), "{seen}");
    assert_eq!(seen["databases"], json!([{"name": "v1"}]));
    assert_eq!(seen["written"], json!(true));
    for form in ["plain", "gzip"] {
        let first = json!({"ts": START, "temp": 22.1, "count": 42, "on": true, "note": "a \"b\""});
        let found = target.readings("v1", &format!(r"climate,form={form},sensor=room\ 1\,\ left"));
        assert_eq!(found.iter().map(sorted).collect::<Vec<_>>(), [sorted(&first)]);
        let precise = target.readings("v1", &format!("precise,form={form}"));
        assert_eq!(precise, [json!({"ts": START, "n": 1})]);
        let expected: Vec<Value> = (1..=1000).map(|n| json!({"ts": n * 1_000_000, "n": n})).collect();
        assert_eq!(target.readings("v1", &format!("many,form={form}")), expected);
        for sensor in ["lines", "mixed"] {
            let found = target.readings("v1", &format!("{sensor},form={form}"));
            assert_eq!(found, [json!({"ts": 1, "v": 1}), json!({"ts": 2, "v": 2})], "{sensor}");
        }
    }
    assert_eq!(seen["rejected"]["code"], json!(400));
    let content: Value = serde_json::from_str(text(&seen["rejected"]["content"], "content")).expect("JSON");
    let error = text(&content["error"], "error");
    assert!(error.starts_with("partial write: unable to parse 'bad': line 2, column 4: "), "{error}");
    assert!(text(&seen["no_policy"]["content"], "content").contains("retention policy not found"), "{seen}");
    assert_eq!(seen["left"], json!(["climate", "lines", "many", "mixed", "precise"]));
    assert_eq!(seen["databases_left"], json!([{"name": "v1"}]));
    let selected = json!([{"time": "2026-01-15T14:00:00Z", "temp": 22.1, "note": "a \"b\""}]);
    assert_eq!(seen["selected"], selected, "{seen}");
}

#[test]
fn the_influx_shell_creates_a_database_and_inserts() {
    let Some(influx) = require(Package::InfluxShell) else { return };
    for target in test_servers() {
        the_influx_shell_inserts(&influx, &target);
    }
}

fn the_influx_shell_inserts(influx: &Path, target: &TestServer) {
    let run_as = |password: &str, arguments: &[&str]| -> (bool, String) {
        let port = target.server.address().port().to_string();
        let mut command = Command::new(influx);
        command.args(["-host", "127.0.0.1", "-port", &port]).args(arguments).env("NO_PROXY", "*");
        command.args(["-username", "somebody", "-password", password]);
        // The shell writes a history file into its home.
        command.env("HOME", target.server.data_dir());
        let Output { status, stdout, stderr } = command.output().expect("influx can be run");
        (status.success(), String::from_utf8([stdout, stderr].concat()).expect("UTF-8"))
    };
    let run = |arguments: &[&str]| run_as(&target.token, arguments);
    let (_, complaint) = run_as("wrong", &["-execute", "show databases"]);
    assert_eq!(complaint.contains("authorization failed"), target.requires_token, "{complaint}");
    let quietly = |arguments: &[&str]| assert_eq!(run(arguments), (true, String::new()), "{arguments:?}");
    quietly(&["-execute", "create database shell"]);
    let (done, listed) = run(&["-execute", "show databases", "-format", "json"]);
    assert!(done, "{listed}");
    let listed: Value = serde_json::from_str(&listed).unwrap_or_else(|error| panic!("{error}: {listed}"));
    assert_eq!(listed["results"][0]["series"][0]["values"], json!([["shell"]]));

    let insert = |line: &str| run(&["-database", "shell", "-execute", &format!("insert {line}")]);
    for line in ["climate,sensor=t1,site=a temp=22.5,on=true,n=3i 1", "climate,site=a,sensor=t1 temp=23 2"] {
        assert_eq!(insert(line), (true, String::new()));
    }
    quietly(&[
        "-database",
        "shell",
        "-precision",
        "s",
        "-execute",
        "insert climate,sensor=t1,site=a temp=24 1768485600",
    ]);
    let expected = [
        json!({"ts": 1, "temp": 22.5, "on": true, "n": 3}),
        json!({"ts": 2, "temp": 23}),
        json!({"ts": START, "temp": 24}),
    ];
    assert_eq!(target.readings("shell", "climate,sensor=t1,site=a"), expected);

    let (_, complaint) = insert("climate,sensor=t1,site=a temp=\"warm\",humidity=45 3");
    assert!(complaint.starts_with("ERR: ") && complaint.contains("field type conflict: input field"), "{complaint}");
    assert_eq!(target.readings("shell", "climate,sensor=t1,site=a").len(), 4);
    let (_, complaint) = run(&["-database", "shell", "-execute", "select * from climate"]);
    assert!(complaint.starts_with("name: climate") && complaint.contains("22.5"), "{complaint}");
}

fn times(readings: &[Value]) -> Vec<i64> {
    readings.iter().map(|reading| reading["ts"].as_i64().expect("a time")).collect()
}

/// Returns the entries sorted by key, because clients send fields in any order.
fn sorted(object: &Value) -> Vec<(String, Value)> {
    let mut entries: Vec<(String, Value)> =
        object.as_object().expect("an object").iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    entries.sort_by(|one, other| one.0.cmp(&other.0));
    entries
}

#[test]
fn the_otlp_exporter_writes_metrics() {
    let Some(python) = require(Package::OtlpExporter) else { return };
    for target in test_servers() {
        let seen = script(&python, "otlp_client.py", &[&target.server.url("/v1/metrics?db=otlp"), &target.token]);
        let stranger = if target.requires_token { "FAILURE" } else { "SUCCESS" };
        assert_eq!(seen, json!({"plain": ["SUCCESS"], "gzip": ["SUCCESS"], "stranger": [stranger]}));
        for form in ["plain", "gzip"] {
            let around = "otel.scope.name=meter,otel.scope.version=1.0";
            let values = |name: &str, tag: &str| {
                let sensor = format!("{name},form={form},{around}{tag},service.name=shop");
                let mut readings = target.readings("otlp", &sensor);
                assert_eq!(readings.len(), 1, "{sensor}: {readings:?}");
                readings[0].as_object_mut().unwrap().remove("ts");
                readings.remove(0)
            };
            assert_eq!(values("orders", ",paid=true"), json!({"value": 5}));
            assert_eq!(values("orders", ",paid=false"), json!({"value": 1}));
            assert_eq!(values("temp", ",room=lab"), json!({"value": 21.5}));
            let sizes = json!({"count": 4, "sum": 62.5, "min": 0.5, "max": 50, "le_1": 1, "le_10": 3});
            assert_eq!(values("sizes", ""), sizes);
        }
    }
}
