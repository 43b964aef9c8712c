//! `hourglass explain`: has a running service say what would become of lines, without keeping them.

use std::fmt::Write as _;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use serde_json::Value;

use super::post::{PostAnswer, Service, Target, escaped};

/// More than a service explains at once.
const BODY_BYTES: u64 = 1 << 20;

/// What `hourglass explain` was asked for.
#[derive(Debug)]
pub struct ExplainRequest {
    /// `None` or `-` for the standard input.
    pub file: Option<PathBuf>,
    pub database: String,
    pub policy: Option<String>,
    pub precision: Option<String>,
    /// Whether to print the answer as it is.
    pub as_json: bool,
    pub service: Service,
}

/// Prints what would become of each line. Exit status: 0 if all would be accepted.
#[must_use]
pub fn explain(request: &ExplainRequest) -> ExitCode {
    match Target::of(&request.service).and_then(|target| ask(request, &target)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => super::failed(&error),
    }
}

fn body(file: Option<&Path>) -> anyhow::Result<Vec<u8>> {
    let mut body = Vec::new();
    match file.filter(|file| *file != Path::new("-")) {
        Some(file) => {
            let opened = std::fs::File::open(file).with_context(|| format!("opening {}", file.display()))?;
            opened.take(BODY_BYTES).read_to_end(&mut body).with_context(|| format!("reading {}", file.display()))?;
        }
        None => {
            std::io::stdin().take(BODY_BYTES).read_to_end(&mut body).context("reading the standard input")?;
        }
    }
    Ok(body)
}

fn ask(request: &ExplainRequest, target: &Target) -> anyhow::Result<bool> {
    let mut path = format!("/api/v1/explain?db={}", escaped(&request.database));
    for (name, value) in [("rp", &request.policy), ("precision", &request.precision)] {
        if let Some(value) = value {
            // Writing to a String cannot fail.
            let _ = write!(path, "&{name}={}", escaped(value));
        }
    }
    let answer = target.post(&path, &body(request.file.as_deref())?)?;
    let PostAnswer { status: 200, text } = &answer else { bail!("{answer}") };
    let explained: Value = serde_json::from_str(text).with_context(|| format!("the answer {text}"))?;
    if request.as_json {
        println!("{text}");
    } else {
        explained["lines"].as_array().into_iter().flatten().for_each(|line| print!("{}", told(line)));
        let write = &explained["write"];
        let error = write["error"].as_str().map(|error| format!(": {error}")).unwrap_or_default();
        println!(
            "the write would be answered {}{error}; {} readings and {} new sensors would be charged",
            write["status"], explained["quota"]["readings"], explained["quota"]["new_sensors"]
        );
        texts(&explained["warnings"]).for_each(|warning| println!("warning: {warning}"));
    }
    Ok(matches!(explained["write"]["status"].as_u64(), Some(200 | 204)))
}

fn texts(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// One line of the body, as several lines of text.
fn told(line: &Value) -> String {
    let outcome = if line["kept"] == true { "kept" } else { "rejected" };
    let mut text = format!("line {}: {outcome}", line["line"]);
    if let Some(sensor) = line["sensor"].as_str() {
        let new = if line["new_sensor"] == true { " (new sensor)" } else { "" };
        let _ = write!(text, "  {sensor}{new}");
    }
    if let Some(time) = line["time"].as_str() {
        let undated = if line["undated"] == true { " (time of receipt)" } else { "" };
        let _ = write!(text, "  {time}{undated}  bucket {:?}", line["bucket"]["id"].as_str().unwrap_or_default());
    }
    text.push('\n');
    for field in line["fields"].as_array().into_iter().flatten() {
        let known = field["known_family"]
            .as_str()
            .map_or_else(|| "a new field".to_owned(), |known| format!("known as {known}"));
        let kept = if field["kept"] == true { "" } else { ", not kept" };
        let name = field["name"].as_str().unwrap_or_default();
        let kind = field["type"].as_str().unwrap_or_default();
        let _ = writeln!(text, "  {name} = {} ({kind}; {known}{kept})", field["value"]);
    }
    texts(&line["warnings"]).for_each(|warning| {
        let _ = writeln!(text, "  warning: {warning}");
    });
    for rejection in line["rejected"].as_array().into_iter().flatten() {
        let text_of = |name: &str| rejection[name].as_str().unwrap_or_default();
        let _ = writeln!(text, "  {}: {}", text_of("code"), text_of("reason"));
    }
    text
}
