//! Snippets for programs that are not here are read by their languages' own readers: YAML by PyYAML, Prometheus's configuration by promtool, C++ by a
//! compiler, with a device that prints what it would send. Names come back as data, and nothing else is there.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::support::prelude::*;

use super::snippets::{NAMES, snippet, steers};

const ORIGIN: &str = "https://hourglass.example:8443";

/// Reads a snippet as YAML; a tagged scalar becomes an object of its tag.
fn yaml(python: &Path, text: &str) -> Value {
    const READ: &str = "import json, sys, yaml
class Tagged(yaml.SafeLoader): pass
Tagged.add_multi_constructor('!', lambda loader, tag, node: {'!' + tag: loader.construct_scalar(node)})
json.dump(yaml.load(sys.stdin.buffer.read().decode(), Loader=Tagged), sys.stdout)";
    let done = ran_with(Command::new(python).args(["-c", READ]), text.as_bytes());
    assert_eq!(done.status, Some(0), "{}\n{text}", done.stderr);
    serde_json::from_str(&done.stdout).unwrap()
}

/// Three services: one that needs no token, one whose token stands in the snippet, and one whose token is read from elsewhere.
fn tokens(name: &str) -> [Value; 3] {
    [Value::Null, json!(name), json!(false)]
}

fn to(name: &str, token: &Value) -> Value {
    json!({ "origin": ORIGIN, "database": name, "measurement": name, "sensor": name, "token": token })
}

fn written(node: &Path, id: &str, (name, token): (&str, &Value)) -> String {
    let text = snippet(node, id, &to(name, token));
    assert!(!text.contains(steers), "{id}: what one reads is not what one pastes: {text:?}");
    text
}

#[test]
fn home_assistant_and_grafana_read_names_as_data() {
    let (Some(node), Some(python)) = (require(Package::Node), require(Package::PyYaml)) else { return };
    for name in NAMES {
        for token in tokens(name) {
            let found = yaml(&python, &written(&node, "home-assistant", (name, &token)));
            let mut expected = json!({ "api_version": 1, "host": "hourglass.example", "port": 8443, "ssl": true, "database": name, "max_retries": 10 });
            if !token.is_null() {
                expected["username"] = json!("hourglass");
                expected["password"] =
                    if token.is_string() { token.clone() } else { json!({ "!secret": "hourglass_token" }) };
            }
            assert_eq!(found, json!({ "influxdb": expected }), "{name:?}");
            let found = yaml(&python, &written(&node, "grafana", (name, &token)));
            // Grafana takes two dollars for one, and replaces what stands behind one alone.
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
}

#[test]
fn promtool_takes_the_configuration_of_prometheus() {
    let (Some(node), Some(python), Some(promtool)) =
        (require(Package::Node), require(Package::PyYaml), require(Package::Promtool))
    else {
        return;
    };
    let folder = Folder::new("prometheus");
    for name in NAMES {
        for token in tokens(name) {
            let text = written(&node, "prometheus", (name, &token));
            std::fs::write(folder.file("prometheus.yml"), &text).unwrap();
            let arguments = ["check", "config", "--syntax-only", "prometheus.yml"];
            let done = ran(Command::new(&promtool).args(arguments).current_dir(folder.path()));
            assert_eq!(done.status, Some(0), "{}\n{text}", done.stderr);
            let found = yaml(&python, &text)["scrape_configs"][0].clone();
            assert_eq!(
                (&found["scheme"], &found["static_configs"]),
                (&json!("https"), &json!([{ "targets": ["hourglass.example:8443"] }]))
            );
            let login = match &token {
                Value::Null => Value::Null,
                Value::String(_) => json!({ "type": "Token", "credentials": name }),
                _ => json!({ "type": "Token", "credentials_file": "/etc/prometheus/hourglass-token" }),
            };
            assert_eq!(found["authorization"], login, "{name:?}");
        }
    }
}

/// What the sketches use of Arduino and of the ESP32, on this machine: each request is printed, its parts apart.
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

/// The parts that a program of these sketches prints, run one by one.
fn printed(compiler: &Path, (sketches, runs): (&str, &str)) -> Vec<String> {
    let folder = Folder::new("device");
    for name in ["WiFi.h", "HTTPClient.h"] {
        let first = if name == "WiFi.h" { DEVICE } else { "#pragma once\n" };
        std::fs::write(folder.file(name), first).unwrap();
    }
    let text = format!("#include <WiFi.h>\n#include <HTTPClient.h>\n{sketches}\nint main() {{\n{runs}}}\n");
    std::fs::write(folder.file("device.cpp"), &text).unwrap();
    // Of the old standard, in which three characters may stand for one.
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

/// All but what `encodeURIComponent` leaves as it is.
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

/// Where readings of a database are sent.
fn address(name: &str) -> String {
    format!("{ORIGIN}/api/v1/readings?db={}", utf8_percent_encode(name, ENCODED))
}

#[test]
fn a_sketch_for_arduino_compiles_and_sends_its_reading() {
    let (Some(node), Some(compiler)) = (require(Package::Node), require(Package::Gxx)) else { return };
    let (mut sketches, mut runs, mut expected) = (String::new(), String::new(), Vec::new());
    for (at, name) in NAMES.iter().enumerate() {
        for (which, token) in tokens(name).iter().enumerate() {
            let text = written(&node, "arduino", (name, token));
            sketches.push_str(&format!("namespace n{at}_{which} {{\n{text}}}\n"));
            runs.push_str(&format!("n{at}_{which}::setup();\nn{at}_{which}::loop();\n"));
            let login = match token {
                Value::Null => String::new(),
                Value::String(token) => format!("Token {token}"),
                _ => "Token hg_...".to_owned(),
            };
            expected.push((address(name), login, body(name)));
        }
    }
    let parts = printed(&compiler, (&sketches, &runs));
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
    let (mut lambdas, mut runs, mut expected) = (String::new(), String::new(), Vec::new());
    for (at, name) in NAMES.iter().enumerate() {
        for (which, token) in tokens(name).iter().enumerate() {
            let text = written(&node, "esphome", (name, token));
            assert!(!text.contains('$') || token.is_string(), "ESPHome would substitute: {text}");
            let found = yaml(&python, &text);
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
            lambdas.push_str(&format!("static std::string n{at}_{which}(float x) {{\n{code}\n}}\n"));
            runs.push_str(&format!("print(n{at}_{which}(7));\n"));
            let mut sent = body(name);
            sent["fields"]["value"] = json!(7.0);
            expected.push(sent);
        }
    }
    let parts = printed(&compiler, (&lambdas, &runs));
    let found: Vec<Value> = parts.iter().map(|part| serde_json::from_str(part).unwrap()).collect();
    assert_eq!(found, expected);
}
