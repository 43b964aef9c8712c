//! Snippets for other programs are parsed by real parsers: PyYAML, promtool, and a C++ compiler with a fake device.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::support::prelude::*;

use super::snippets::{NAMES, snippets, steers};

const ORIGIN: &str = "https://hourglass.example:8443";

/// Parses snippets as YAML; a tagged scalar becomes an object of its tag.
fn yaml(python: &Path, snippets: &[Snippet]) -> Vec<Value> {
    const READ: &str = "import json, sys, yaml
class Tagged(yaml.SafeLoader): pass
Tagged.add_multi_constructor('!', lambda loader, tag, node: {'!' + tag: loader.construct_scalar(node)})
json.dump([yaml.load(text, Loader=Tagged) for text in json.load(sys.stdin.buffer)], sys.stdout)";
    let texts: Vec<&String> = snippets.iter().map(|snippet| &snippet.text).collect();
    let done =
        run_with_input(Command::new(python).args(["-c", READ]), json!(texts).to_string().as_bytes()).expect_success();
    serde_json::from_str(&done.stdout).unwrap()
}

struct Snippet {
    name: &'static str,
    token: Value,
    text: String,
}

/// Returns the snippets of a kind for each name, without a token, with a token inside, and with an external token.
fn write_snippets(node: &Path, id: &str) -> Vec<Snippet> {
    let tokens = |name: &'static str| [Value::Null, json!(name), json!(false)].map(|token| (name, token));
    let services: Vec<(&str, Value)> = NAMES.iter().flat_map(|name| tokens(name)).collect();
    let service = |(name, token): &(&str, Value)| json!({ "origin": ORIGIN, "database": name, "measurement": name, "sensor": name, "token": token });
    let texts = snippets(node, id, &services.iter().map(service).collect::<Vec<_>>());
    let written = services.into_iter().zip(texts).map(|((name, token), text)| Snippet { name, token, text });
    let written: Vec<Snippet> = written.collect();
    for Snippet { text, .. } in &written {
        assert!(!text.contains(steers), "{id}: what one reads is not what one pastes: {text:?}");
    }
    written
}

#[test]
fn home_assistant_reads_names_as_data() {
    let (Some(node), Some(python)) = (require(Package::Node), require(Package::PyYaml)) else { return };
    let snippets = write_snippets(&node, "home-assistant");
    for (Snippet { name, token, .. }, found) in snippets.iter().zip(yaml(&python, &snippets)) {
        let mut expected = json!({ "api_version": 1, "host": "hourglass.example", "port": 8443, "ssl": true, "database": name, "max_retries": 10 });
        if !token.is_null() {
            expected["username"] = json!("hourglass");
            expected["password"] =
                if token.is_string() { token.clone() } else { json!({ "!secret": "hourglass_token" }) };
        }
        assert_eq!(found, json!({ "influxdb": expected }), "{name:?}");
    }
}

#[test]
fn grafana_reads_names_as_data() {
    let (Some(node), Some(python)) = (require(Package::Node), require(Package::PyYaml)) else { return };
    let snippets = write_snippets(&node, "grafana");
    for (Snippet { name, token, .. }, found) in snippets.iter().zip(yaml(&python, &snippets)) {
        // Grafana reads two dollars as one and expands names after a single one.
        let doubled = name.replace('$', "$$");
        let mut data = json!({ "version": "InfluxQL", "dbName": doubled, "httpMode": "POST" });
        let mut source = json!({ "name": "hourglass", "type": "influxdb", "access": "proxy", "url": ORIGIN });
        if !token.is_null() {
            data["httpHeaderName1"] = json!("Authorization");
            let value =
                if token.is_string() { format!("Token {doubled}") } else { "Token $HOURGLASS_TOKEN".to_owned() };
            source["secureJsonData"] = json!({ "httpHeaderValue1": value });
        }
        source["jsonData"] = data;
        assert_eq!(found, json!({ "apiVersion": 1, "datasources": [source] }), "{name:?}");
    }
}

#[test]
fn promtool_takes_the_configuration_of_prometheus() {
    let (Some(node), Some(python), Some(promtool)) =
        (require(Package::Node), require(Package::PyYaml), require(Package::Promtool))
    else {
        return;
    };
    let folder = Folder::new("prometheus");
    let snippets = write_snippets(&node, "prometheus");
    let mut check = Command::new(&promtool);
    check.args(["check", "config", "--syntax-only"]).current_dir(folder.path());
    for (number, snippet) in snippets.iter().enumerate() {
        let name = format!("{number}.yml");
        fs::write(folder.file(&name), &snippet.text).unwrap();
        check.arg(name);
    }
    run_program(&mut check).expect_success();
    for (Snippet { name, token, .. }, found) in snippets.iter().zip(yaml(&python, &snippets)) {
        let found = &found["scrape_configs"][0];
        assert_eq!(
            (&found["scheme"], &found["static_configs"]),
            (&json!("https"), &json!([{ "targets": ["hourglass.example:8443"] }]))
        );
        let login = match token {
            Value::Null => Value::Null,
            Value::String(_) => json!({ "type": "Token", "credentials": name }),
            _ => json!({ "type": "Token", "credentials_file": "/etc/prometheus/hourglass-token" }),
        };
        assert_eq!(found["authorization"], login, "{name:?}");
    }
}

/// Fake of Arduino and ESP32 libraries: prints the parts of each request.
const DEVICE: &str = r#"#pragma once
#include <cstdio>
#include <string>
struct String {
  std::string text;
  String(const char *text) : text(text) {}
  explicit String(int number) : text(std::to_string(number)) {}
  String &operator+=(const String &other) { text += other.text; return *this; }
};
inline void print(const std::string &text) { fwrite(text.data(), 1, text.size() + 1, stdout); }
enum { WL_CONNECTED = 3 };
struct Network { void begin(const char *, const char *) {} int status() { return WL_CONNECTED; } };
static Network WiFi;
inline void delay(int) {}
inline int analogRead(int) { return 7; }
struct HTTPClient {
  std::string login;
  void begin(const char *url) { print(url); }
  void addHeader(const char *name, const char *value) { if (std::string(name) == "Authorization") login = value; }
  int POST(const String &body) { print(login); print(body.text); return 200; }
  void end() {}
};
using std::to_string;
"#;

/// Compiles the sketches, runs them, and returns the printed parts.
fn run_sketches(compiler: &Path, sketches: &str, runs: &str) -> Vec<String> {
    let folder = Folder::new("device");
    for name in ["WiFi.h", "HTTPClient.h"] {
        let first = if name == "WiFi.h" { DEVICE } else { "#pragma once\n" };
        std::fs::write(folder.file(name), first).unwrap();
    }
    let text = format!("#include <WiFi.h>\n#include <HTTPClient.h>\n{sketches}\nint main() {{\n{runs}}}\n");
    std::fs::write(folder.file("device.cpp"), &text).unwrap();
    // The old standard, which has trigraphs.
    let flags = ["-std=c++11", "-Wall", "-Wno-unused-variable", "-I.", "-o", "device", "device.cpp"];
    let done = Command::new(compiler).args(flags).current_dir(folder.path()).output().unwrap();
    assert!(done.status.success() && done.stderr.is_empty(), "{}\n{text}", String::from_utf8_lossy(&done.stderr));
    let done = Command::new(folder.file("device")).current_dir(folder.path()).output().unwrap();
    assert!(done.status.success() && !folder.file("ran").exists());
    let all = String::from_utf8(done.stdout).unwrap();
    all.split_terminator('\0').map(str::to_owned).collect()
}

fn body(name: &str) -> Value {
    json!({ "measurement": name, "tags": { "sensor": name }, "fields": { "value": 7 } })
}

/// Characters that `encodeURIComponent` encodes.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'!')
    .remove(b'~')
    .remove(b'*')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')');

/// Returns the write URL of a database.
fn address(name: &str) -> String {
    format!("{ORIGIN}/api/v1/readings?db={}", utf8_percent_encode(name, ENCODED))
}

#[test]
fn a_sketch_for_arduino_compiles_and_sends_its_reading() {
    let (Some(node), Some(compiler)) = (require(Package::Node), require(Package::Gxx)) else { return };
    let mut sketches = String::new();
    let mut runs = String::new();
    let mut expected = Vec::new();
    for (number, Snippet { name, token, text }) in write_snippets(&node, "arduino").into_iter().enumerate() {
        sketches.push_str(&format!("namespace n{number} {{\n{text}}}\n"));
        runs.push_str(&format!("n{number}::setup();\nn{number}::loop();\n"));
        let login = match token {
            Value::Null => String::new(),
            Value::String(token) => format!("Token {token}"),
            _ => "Token hg_...".to_owned(),
        };
        expected.push((address(name), login, body(name)));
    }
    let parts = run_sketches(&compiler, &sketches, &runs);
    let found: Vec<(String, String, Value)> = parts
        .chunks(3)
        .map(|part| (part[0].clone(), part[1].clone(), serde_json::from_str(&part[2]).unwrap()))
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn esphome_reads_names_as_data_and_its_lambda_sends_the_reading() {
    let (Some(node), Some(python), Some(compiler)) =
        (require(Package::Node), require(Package::PyYaml), require(Package::Gxx))
    else {
        return;
    };
    let mut lambdas = String::new();
    let mut runs = String::new();
    let mut expected = Vec::new();
    let snippets = write_snippets(&node, "esphome");
    let read = yaml(&python, &snippets);
    for (number, (Snippet { name, token, text }, found)) in snippets.into_iter().zip(read).enumerate() {
        assert!(!text.contains('$') || token.is_string(), "ESPHome would substitute: {text}");
        let sensor = &found["sensor"][0];
        assert_eq!(sensor["name"], name.replace('$', "_"), "{text}");
        let post = &sensor["on_value"]["then"][0]["http_request.post"];
        assert_eq!(post["url"], address(name));
        let login = match token {
            Value::Null => Value::Null,
            Value::String(token) => json!(format!("Token {token}")),
            _ => json!({ "!secret": "hourglass_authorization" }),
        };
        assert_eq!(post["request_headers"]["Authorization"], login);
        let code = post["body"]["!lambda"].as_str().unwrap_or_else(|| panic!("{post}"));
        lambdas.push_str(&format!("static std::string n{number}(float x) {{\n{code}\n}}\n"));
        runs.push_str(&format!("print(n{number}(7));\n"));
        let mut sent = body(name);
        sent["fields"]["value"] = json!(7.0);
        expected.push(sent);
    }
    let parts = run_sketches(&compiler, &lambdas, &runs);
    let found: Vec<Value> = parts.iter().map(|part| serde_json::from_str(part).unwrap()).collect();
    assert_eq!(found, expected);
}
