//! Runs the snippets of README.md and docs/ and compares their output; checks configs, commands, Telegraf's requests,
//! links, and the length of README.

use crate::support::packages;
use crate::support::packed::gzip;
use crate::support::prelude::*;

/// A fenced block: language, text, and the `text` block right after it.
pub(crate) struct Block {
    pub language: String,
    pub text: String,
    pub shows: Option<String>,
}

fn read(document: &str) -> String {
    fs::read_to_string(root().join(document)).unwrap_or_else(|error| panic!("{document}: {error}"))
}

fn handbook() -> Vec<String> {
    let folders = ["docs/", "docs/get-started/", "docs/how-to/", "docs/reference/", "docs/explanation/"];
    folders.iter().flat_map(|folder| documents_in(folder)).collect()
}

/// Returns the documents in a folder, by path from the root.
fn documents_in(folder: &str) -> Vec<String> {
    let names = fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().file_name());
    let names = names.map(|name| format!("{folder}{}", name.to_str().unwrap()));
    let mut documents: Vec<String> = names.filter(|name| name.ends_with(".md")).collect();
    documents.sort();
    documents
}

/// Returns README and `docs/`.
fn documents() -> Vec<String> {
    let documents = [vec!["README.md".to_owned()], handbook()].concat();
    assert!(documents.len() > 5, "{documents:?}");
    documents
}

/// Returns the fenced blocks of a document.
pub(crate) fn blocks(document: &str) -> Vec<Block> {
    let text = read(document);
    let mut blocks: Vec<Block> = Vec::new();
    let mut parts = text.split("\n```");
    parts.next();
    while let (Some(block), after) = (parts.next(), parts.next()) {
        let (language, text) = block.split_once('\n').unwrap();
        if language == "text" {
            let shown = blocks.last_mut().filter(|block| ["sh", "bash", "js", "python"].contains(&&*block.language));
            shown.unwrap_or_else(|| panic!("{document}: nothing prints {text}")).shows = Some(text.to_owned());
        } else {
            blocks.push(Block { language: language.to_owned(), text: text.to_owned(), shows: None });
        }
        assert!(after.is_some(), "{document}: an unclosed block");
    }
    blocks
}

fn only_block(document: &str, language: &str) -> Block {
    let mut found: Vec<Block> = blocks(document).into_iter().filter(|block| block.language == language).collect();
    assert_eq!(found.len(), 1, "{document}: {language} blocks");
    found.remove(0)
}

/// Runs a block, which must succeed and print the shown output.
pub(crate) fn run(mut command: Command, block: &Block) {
    let output = command.output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{stdout}{stderr}", block.text);
    assert_eq!(stdout.trim(), block.shows.as_deref().unwrap_or("").trim(), "{}\n{stderr}", block.text);
}

/// Returns a Python with the imports of a snippet, if any.
fn python_for(block: &Block) -> Option<PathBuf> {
    let is_plain = !block.text.contains("influxdb_client");
    if is_plain { Some(PathBuf::from("python3")) } else { packages::require(Package::InfluxdbClient) }
}

#[test]
fn documented_commands_print_the_documented_output() {
    // The pages of patterns need MongoDB and have their own test.
    let followed = documents().into_iter().filter(|document| !document.starts_with("docs/patterns/"));
    let languages: Vec<String> = followed.flat_map(|document| follow(&document)).collect();
    let block_count = |language: &str| languages.iter().filter(|each| *each == language).count();
    assert!(
        block_count("sh") >= 8 && block_count("python") >= 2 && block_count("toml") >= 3,
        "the snippets are not found: {languages:?}"
    );
}

/// Runs the blocks of a document on its own server; returns their languages.
fn follow(document: &str) -> Vec<String> {
    let server = Server::start("embedded");
    let address = server.address().to_string();
    let with_curl = packages::require(Package::Curl).is_some();
    let folder = Folder::new("follow");
    let programs = Path::new(program().get_program()).parent().unwrap().to_owned();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let mut languages = Vec::new();
    for mut block in blocks(document) {
        let is_command = block.language == "console";
        block.text = if is_command { block.text } else { block.text.replace("127.0.0.1:8086", &address) };
        match block.language.as_str() {
            "sh" if !with_curl => {}
            "sh" => {
                let mut command = Command::new("sh");
                command.args(["-ec", &block.text]).current_dir(folder.path());
                command.env("PATH", &path).env("HOURGLASS_SERVER", server.url(""));
                run(command, &block);
            }
            "python" => {
                if let Some(python) = python_for(&block) {
                    let mut command = Command::new(python);
                    command.args(["-c", &block.text]);
                    run(command, &block);
                }
            }
            "toml" if block.text.contains("outputs.influxdb_v2") => send_like_telegraf(&block.text, &server),
            "toml" => configures(&block.text),
            "console" => block.text.lines().for_each(is_known),
            // Token commands and the page have their own tests; blocks without a language are drawings.
            "bash" | "json" | "js" | "" => {}
            other => panic!("{document}: no test runs {other} blocks:\n{}", block.text),
        }
        languages.push(block.language);
    }
    languages
}

/// Checks the hourglass flags of a command that needs systemd, MongoDB or much time.
fn is_known(line: &str) {
    let line = line.split(" #").next().unwrap().split(" > ").next().unwrap().replace('\'', "");
    for arguments in line.split(" | ").filter_map(|command| command.trim().strip_prefix("hourglass ")) {
        let output = program().args(arguments.split_whitespace()).arg("--help").output().unwrap();
        assert!(output.status.success(), "{line}\n{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn the_readme_is_short_and_starts_with_two_commands() {
    let text = read("README.md");
    let words = text.split_whitespace().count();
    assert!(words <= 900, "{words} words: what is detail belongs into docs/");
    for command in ["cargo run --release -- serve", "cargo test --workspace"] {
        assert!(text.lines().any(|line| line.starts_with(command)), "{command}");
    }
}

/// Returns the anchor that GitHub gives a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase().replace(' ', "-");
    kept.chars().filter(|c| c.is_alphanumeric() || ['-', '_'].contains(c)).collect()
}

fn anchors(document: &Path) -> Vec<String> {
    let text = fs::read_to_string(document).unwrap();
    text.lines().filter(|line| line.starts_with('#')).map(|line| anchor(line.trim_start_matches('#'))).collect()
}

#[test]
fn links_between_documents_resolve() {
    let folders = ["", "deploy/", "benches/", "loadtest/"];
    let mut documents: Vec<String> = folders.iter().flat_map(|folder| documents_in(folder)).collect();
    documents.extend(handbook());
    let mut followed = 0;
    for document in &documents {
        let folder = root().join(document).parent().unwrap().to_owned();
        let text = read(document);
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.contains("://") {
                continue;
            }
            let (path, fragment) = link.split_once('#').map_or((link, None), |(path, part)| (path, Some(part)));
            let target = if path.is_empty() { root().join(document) } else { folder.join(path) };
            assert!(target.exists(), "{document}: {link}");
            let is_there = |part: &str| anchors(&target).iter().any(|anchor| anchor == part);
            assert!(fragment.is_none_or(is_there), "{document}: {link}");
            followed += 1;
        }
    }
    assert!(followed > 40, "{followed} links");
}

/// Sends the request of Telegraf's `outputs.influxdb_v2`: gzip line protocol to `/api/v2/write`.
fn send_like_telegraf(configuration: &str, server: &Server) {
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
    let output = program().args(["config", "check", "--config"]).arg(file.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Runs the token commands on their own server and folder.
#[test]
fn documented_tokens_have_the_documented_rights() {
    if packages::require(Package::Curl).is_none() {
        return;
    }
    let server = Server::start("embedded");
    let block = only_block("docs/how-to/tokens.md", "bash");
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
        // The service checks the file twice a second.
        script += if is_token && line.contains("read-only") { "\nwaits\n" } else { "\n" };
    }
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("bash");
    command.args(["-euc", &script]).current_dir(folder.path());
    run(command, &block);
}

#[test]
fn documented_metrics_exist() {
    let server = Server::start("embedded");
    http::post(&server.url("/write"), "m v=1", &[]).expect(204);
    let metrics = http::get(&server.url("/metrics")).expect(200).text().to_owned();
    let text: String = documents().into_iter().map(|document| read(&document)).collect();
    let names = text.split('`').filter(|part| part.starts_with("hourglass_"));
    let described =
        |name: &str| metrics.contains(&format!("# HELP {name} ")) || metrics.contains(&format!("# TYPE {name} "));
    // Some metrics appear only with their first label, such as an error class.
    let source =
        ["src/telemetry/metrics.rs", "src/telemetry/metrics/mqtt.rs", "src/telemetry/cluster.rs"].map(read).concat();
    for name in names {
        assert!(described(name) || source.contains(&format!("\"{name}\"")), "{name}");
    }
}

#[test]
fn the_documented_page_has_the_fields_of_a_page() {
    let block = only_block("docs/reference/stored-forms.md", "json");
    let shown: serde_json::Value = serde_json::from_str(&block.text).unwrap();
    let source = read("crates/store/src/document/encode.rs");
    for field in shown.as_object().unwrap().keys() {
        assert!(source.contains(&format!("\"{field}\"")), "{field} is not written");
    }
}
