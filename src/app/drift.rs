//! `hourglass drift resolve`: has a running service move values of other types into one field.

use std::process::ExitCode;

use anyhow::{Context, bail};
use serde_json::Value;

use super::post::{PostAnswer, Service, Target, escaped};

/// What is to be moved.
#[derive(Debug)]
pub struct DriftTask {
    pub database: String,
    pub measurement: String,
    pub field: String,
    /// The type as which values move.
    pub kind: String,
    /// Otherwise it is only counted.
    pub write: bool,
}

/// Has the service do it. Exit status: 0 if no value of another type is left.
#[must_use]
pub fn resolve_drift(task: &DriftTask, service: &Service) -> ExitCode {
    match Target::of(service).and_then(|target| ask(&target, task)) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => super::failed(&error),
    }
}

/// The number of readings that keep a value of another type.
fn ask(target: &Target, task: &DriftTask) -> anyhow::Result<u64> {
    let DriftTask { database, measurement, field, kind, write } = task;
    let [db, of, name, kind] = [database, measurement, field, kind].map(|text| escaped(text));
    let path = format!("/api/v1/drift/resolve?db={db}&measurement={of}&field={name}&to={kind}&dry_run={}", !write);
    let answer = target.post(&path, b"")?;
    let PostAnswer { status: 200, text } = &answer else { bail!("{answer}") };
    let told: Value = serde_json::from_str(text).with_context(|| format!("the answer {text}"))?;
    let done = if *write { "moved" } else { "would move" };
    let families = match told["families"].as_u64().unwrap_or_default() {
        0 => String::new(),
        count if *write => format!("; the field of {count} sensors is {kind} now"),
        count => format!("; the field of {count} sensors would become {kind}"),
    };
    println!(
        "{} readings of {} sensors {done}; {} keep a value of another type{families}{}",
        told["readings"],
        told["sensors"],
        told["left"],
        if *write { "" } else { "; --write moves them" }
    );
    Ok(told["left"].as_u64().unwrap_or_default())
}
