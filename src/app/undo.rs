//! `hourglass undo`: lists what deletions by value removed, and has a running service write one of them back.

use std::process::ExitCode;

use anyhow::{Context, bail};
use serde_json::Value;

use super::post::{PostAnswer, Service, Target, escaped};

/// Without an id, lists the deletions in the trash of the service; else undoes one of them. Exit status: 0 if nothing
/// was refused.
#[must_use]
pub fn undo(id: Option<&str>, service: &Service) -> ExitCode {
    let done = Target::of(service).and_then(|target| match id {
        None => list(&target).map(|()| 0),
        Some(id) => write_back(&target, id),
    });
    match done {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => super::failed(&error),
    }
}

fn list(target: &Target) -> anyhow::Result<()> {
    let answer = target.get("/api/v1/trash")?;
    let status = answer.status;
    let text = answer.text()?;
    if status != 200 {
        bail!("the service answered {status}: {}", text.trim());
    }
    let body: Value = serde_json::from_str(&text).with_context(|| format!("the answer {text}"))?;
    for of in body["deletions"].as_array().into_iter().flatten() {
        let text = |name: &str| of[name].as_str().unwrap_or_default();
        println!(
            "{}  {}  {}  {} readings of {} sensors  {}: {}",
            text("id"),
            text("at"),
            text("database"),
            of["readings"],
            of["sensors"],
            text("by"),
            text("statement")
        );
    }
    Ok(())
}

/// The number of readings that the service refused.
fn write_back(target: &Target, id: &str) -> anyhow::Result<u64> {
    let path = format!("/api/v1/trash/{}/undo", escaped(id));
    let (mut cursor, mut totals) = (String::new(), [0; 3]);
    loop {
        let answer = target.post(&format!("{path}?cursor={}", escaped(&cursor)), b"")?;
        let PostAnswer { status: 200 | 202, text } = &answer else { bail!("{answer}") };
        let body: Value = serde_json::from_str(text).with_context(|| format!("the answer {text}"))?;
        for (total, name) in totals.iter_mut().zip(["written", "present", "rejected"]) {
            *total += body[name].as_u64().unwrap_or_default();
        }
        for reason in body["reasons"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            println!("refused: {reason}");
        }
        match body["next"].as_str() {
            Some(next) => next.clone_into(&mut cursor),
            None => break,
        }
    }
    let [written, present, rejected] = totals;
    println!("{written} readings written back, {present} were there, {rejected} refused");
    Ok(rejected)
}
