//! `hourglass rejections`: lists or exports the rejected lines of a running service, or removes those that are done.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::{Context, bail};
use serde_json::Value;

use super::post::{PostAnswer, Service, Target, escaped};

/// A call of `hourglass rejections`.
#[derive(Debug)]
pub struct RejectionsRequest {
    pub database: String,
    /// Query parameters that choose rejections.
    pub selection: [(&'static str, Option<String>); 4],
    pub service: Service,
    pub task: RejectionsTask,
}

/// What is done with the chosen rejections.
#[derive(Debug)]
pub enum RejectionsTask {
    List,
    Export,
    /// Remove those up to this id.
    Done(u64),
}

/// Carries out the command. Exit status: 0 unless it fails.
#[must_use]
pub fn rejections(request: &RejectionsRequest) -> ExitCode {
    let done = Target::of(&request.service).and_then(|target| match request.task {
        RejectionsTask::List => list(&target, &request.query()),
        RejectionsTask::Export => export(&target, &request.query()),
        RejectionsTask::Done(through) => remove(&target, &request.query(), through),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => crate::app::failed(&error),
    }
}

impl RejectionsRequest {
    fn query(&self) -> String {
        let mut query = format!("db={}", escaped(&self.database));
        for (name, value) in &self.selection {
            if let Some(value) = value {
                // Writing to a String cannot fail.
                let _ = write!(query, "&{name}={}", escaped(value));
            }
        }
        query
    }
}

fn ask(target: &Target, query: &str) -> anyhow::Result<String> {
    let answer = target.get(&format!("/api/v1/rejections?limit=1000&{query}"))?;
    let status = answer.status;
    let text = answer.text()?;
    if status != 200 {
        bail!("the service answered {status}: {}", text.trim());
    }
    Ok(text)
}

fn list(target: &Target, query: &str) -> anyhow::Result<()> {
    let text = ask(target, query)?;
    let body: Value = serde_json::from_str(&text).with_context(|| format!("the answer {text}"))?;
    for (code, count) in body["codes"].as_object().into_iter().flatten() {
        println!("{code}: {count}");
    }
    for line in body["rejections"].as_array().into_iter().flatten() {
        let text = |name: &str| line[name].as_str().unwrap_or("-");
        println!("{}  {}  {}  {}  {}", text("id"), text("time"), text("token"), text("address"), text("code"));
        println!("  {}\n  {}", text("text"), text("reason"));
    }
    Ok(())
}

/// Prints all lines, part by part.
fn export(target: &Target, query: &str) -> anyhow::Result<()> {
    let mut after = "0".to_owned();
    loop {
        let text = ask(target, &format!("{query}&format=lp&after={after}"))?;
        let Some(last) = text.lines().last() else { return Ok(()) };
        let (_, id) = last.rsplit_once(' ').context("the export has no last line")?;
        id.clone_into(&mut after);
        print!("{text}");
    }
}

fn remove(target: &Target, query: &str, through: u64) -> anyhow::Result<()> {
    let answer = target.delete(&format!("/api/v1/rejections?{query}&through={through}"))?;
    let PostAnswer { status: 200, text } = &answer else { bail!("{answer}") };
    let body: Value = serde_json::from_str(text).with_context(|| format!("the answer {text}"))?;
    println!("{} rejections removed", body["removed"]);
    Ok(())
}
