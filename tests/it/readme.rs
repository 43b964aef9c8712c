//! Every snippet of the README does what it says: shell and Python blocks are run, in order, on one
//! server, and print what the `text` block after them shows; configuration is checked;
//! Telegraf's is taken as the requests that it sends.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::http;
use crate::support::packages::{self, Package};
use crate::support::packed::gzip;
use crate::support::server::{Server, program};

/// A fenced block: its language, its text, and the text of a `text` block right after it.
struct Block {
    language: String,
    text: String,
    shows: Option<String>,
}

fn readme() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap()
}

fn blocks() -> Vec<Block> {
    let text = readme();
    let mut blocks: Vec<Block> = Vec::new();
    let mut parts = text.split("\n```");
    parts.next();
    while let (Some(block), after) = (parts.next(), parts.next()) {
        let (language, text) = block.split_once('\n').unwrap();
        let is_output = language == "text";
        if is_output {
            blocks.last_mut().unwrap().shows = Some(text.to_owned());
        } else {
            blocks.push(Block { language: language.to_owned(), text: text.to_owned(), shows: None });
        }
        assert!(after.is_some(), "an unclosed block");
    }
    let of = |language: &str| blocks.iter().filter(|block| block.language == language).count();
    assert!(of("sh") >= 4 && of("python") >= 2 && of("toml") >= 2, "the README's snippets are not found");
    blocks
}

fn run(mut command: Command, block: &Block) {
    let output = command.output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{stdout}{stderr}", block.text);
    assert_eq!(stdout.trim(), block.shows.as_deref().unwrap_or("").trim(), "{}\n{stderr}", block.text);
}

#[test]
fn what_the_readme_shows_is_what_happens() {
    let server = Server::start("embedded");
    let address = server.address().to_string();
    let with_curl = packages::require(Package::Curl).is_some();
    for mut block in blocks() {
        block.text = block.text.replace("127.0.0.1:8086", &address);
        match block.language.as_str() {
            "sh" if !with_curl => continue,
            "sh" => {
                let mut command = Command::new("sh");
                command.args(["-ec", &block.text]);
                run(command, &block);
            }
            "python" => {
                let python = if block.text.contains("influxdb_client") {
                    match packages::require(Package::InfluxdbClient) {
                        Some(python) => python,
                        None => continue,
                    }
                } else {
                    PathBuf::from("python3")
                };
                let mut command = Command::new(python);
                command.args(["-c", &block.text]);
                run(command, &block);
            }
            "toml" if block.text.contains("outputs.influxdb_v2") => as_telegraf_does(&block.text, &server),
            "toml" => configures(&block.text),
            // The two commands and the one for MongoDB are run by CI and by every other test here;
            // the page is compared below.
            "console" | "json" => {}
            // On a server of its own, below.
            "bash" => {}
            other => panic!("nobody runs {other} blocks:\n{}", block.text),
        }
    }
}

/// Telegraf's `outputs.influxdb_v2` POSTs line protocol, compressed unless told otherwise, to
/// `/api/v2/write` with the bucket and organisation of its configuration.
fn as_telegraf_does(configuration: &str, server: &Server) {
    let table: toml::Table = configuration.parse().unwrap();
    let output = &table["outputs"]["influxdb_v2"][0];
    let text = |key: &str| output[key].as_str().unwrap().to_owned();
    let url = format!(
        "{}/api/v2/write?bucket={}&org={}&precision=ns",
        output["urls"][0].as_str().unwrap(),
        text("bucket"),
        text("organization")
    );
    let token = format!("Token {}", text("token"));
    let lines = "cpu,cpu=cpu-total,host=gateway-1 usage_idle=97.5,usage_user=1i 1768485600000000000\n";
    let headers = [
        ("Authorization", token.as_str()),
        ("Content-Type", "text/plain; charset=utf-8"),
        ("Content-Encoding", "gzip"),
        ("User-Agent", "Telegraf/1.35.0"),
    ];
    http::post(&url, gzip(lines.as_bytes(), 1), &headers).expect(204);
    let read = format!("/api/v1/readings?db={}&sensor=cpu,cpu=cpu-total,host=gateway-1", text("bucket"));
    let back = http::get(&server.url(&read)).expect(200).text().to_owned();
    assert!(back.contains(r#"{"ts":"2026-01-15T14:00:00Z","usage_idle":97.5,"usage_user":1}"#), "{back}");
}

fn configures(text: &str) {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), text).unwrap();
    let output = program().args(["check-config", "--config"]).arg(file.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Its commands about tokens, on a server and in a folder of their own.
#[test]
fn the_tokens_it_makes_may_do_what_it_says() {
    if packages::require(Package::Curl).is_none() {
        return;
    }
    let server = Server::start("embedded");
    let block = blocks().into_iter().find(|block| block.language == "bash").expect("the commands about tokens");
    let data = server.data_dir().display().to_string();
    let hourglass = format!("{} token", program().get_program().display());
    let mut script = String::from("waits() { for i in $(seq 100); do sleep 0.1; \\\n  ");
    script += &format!(
        "[ $(curl -s -o /dev/null -w '%{{http_code}}' http://{}/metrics) = 401 ] && return; done; }}\n",
        server.address()
    );
    for line in block.text.replace("127.0.0.1:8086", &server.address().to_string()).lines() {
        let is_token = line.starts_with("hourglass token");
        let line = line.replace("hourglass token", &hourglass).replace(" > ", &format!(" --data-dir {data} > "));
        let line = if line.contains(" revoke ") { format!("{line} --data-dir {data} 2> /dev/null") } else { line };
        script += &line;
        // The service looks at the file twice a second.
        script += if is_token && line.contains("read-only") { "\nwaits\n" } else { "\n" };
    }
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("bash");
    command.args(["-euc", &script]).current_dir(folder.path());
    run(command, &block);
}

#[test]
fn the_metrics_it_names_are_there() {
    let server = Server::start("embedded");
    http::post(&server.url("/write"), "m v=1", &[]).expect(204);
    let metrics = http::get(&server.url("/metrics")).expect(200).text().to_owned();
    let text = readme();
    let names = text.split('`').filter(|part| part.starts_with("hourglass_"));
    let described =
        |name: &str| metrics.contains(&format!("# HELP {name} ")) || metrics.contains(&format!("# TYPE {name} "));
    // Some appear with their first label only: an error that never happened has no class yet.
    let source = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/telemetry/metrics.rs")).unwrap();
    for name in names {
        assert!(described(name) || source.contains(&format!("\"{name}\"")), "{name}");
    }
}

#[test]
fn the_page_it_shows_has_the_fields_of_a_page() {
    let block = blocks().into_iter().find(|block| block.language == "json").unwrap();
    let shown: serde_json::Value = serde_json::from_str(&block.text).unwrap();
    let source =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store/document/encode.rs")).unwrap();
    for field in shown.as_object().unwrap().keys() {
        assert!(source.contains(&format!("\"{field}\"")), "{field} is not written");
    }
}
