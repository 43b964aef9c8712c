//! `hourglass drift resolve`: has a running service move values of other types into one field.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use serde_json::Value;

use super::post::{PostAnswer, Target, escaped};

/// What is to be moved.
#[derive(Debug)]
pub struct DriftTask {
    pub database: String,
    pub measurement: String,
    pub field: String,
    pub to: String,
    /// Otherwise it is only counted.
    pub write: bool,
}

/// Has the service at `url` do it. Exit status: 0 if no value of another type is left.
#[must_use]
pub fn resolve_drift(task: &DriftTask, url: &str, token: Option<String>, token_file: Option<&Path>) -> ExitCode {
    match Target::of(url, token, token_file).and_then(|target| ask(&target, task)) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => super::failed(&error),
    }
}

/// The number of readings that keep a value of another type.
fn ask(target: &Target, task: &DriftTask) -> anyhow::Result<u64> {
    let DriftTask { database, measurement, field, to, write } = task;
    let [db, of, name, kind] = [database, measurement, field, to].map(|text| escaped(text));
    let path = format!("/api/v1/drift/resolve?db={db}&measurement={of}&field={name}&to={kind}&dry_run={}", !write);
    let answer = target.post(&path, b"")?;
    let PostAnswer { status: 200, text } = &answer else { bail!("{answer}") };
    let told: Value = serde_json::from_str(text).with_context(|| format!("the answer {text}"))?;
    let done = if *write { "moved" } else { "would move" };
    println!(
        "{} readings of {} sensors {done}; {} keep a value of another type{}",
        told["readings"],
        told["sensors"],
        told["left"],
        if *write { "" } else { "; --write moves them" }
    );
    Ok(told["left"].as_u64().unwrap_or_default())
}
