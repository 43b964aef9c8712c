//! `hourglass indexes`: prints the indexes that a running service's configuration declares, with the queries that use them.

use std::process::ExitCode;

use anyhow::{Context, bail};
use serde_json::Value;

use super::post::{Service, Target};

/// Asks the service and prints. Exit status: 0 if each of them is in the store.
#[must_use]
pub fn indexes(service: &Service) -> ExitCode {
    match Target::of(service).and_then(|target| ask(&target)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => super::failed(&error),
    }
}

/// Whether nothing is missing.
fn ask(target: &Target) -> anyhow::Result<bool> {
    let answer = target.get("/api/v1/indexes")?;
    let (status, text) = (answer.status, answer.text()?);
    if status != 200 {
        bail!("the service answered {status}: {text}");
    }
    let body: Value = serde_json::from_str(&text).with_context(|| format!("the answer {text}"))?;
    let indexes = body["indexes"].as_array().context("the answer has no indexes")?;
    for index in indexes {
        let of = |name: &str| index[name].as_str().unwrap_or_default();
        println!("{} {} {}: {} of {}", of("collection"), of("name"), of("state"), index["keys"], index["only"]);
        println!("    {}", of("query"));
    }
    if indexes.is_empty() {
        println!(
            "no index is declared (index = true in a [[meta.copy]] or a [[kinds]] of the configuration), or \
             there is no database yet, or the service does not use MongoDB"
        );
    }
    Ok(indexes.iter().all(|index| index["state"] == "ready"))
}
