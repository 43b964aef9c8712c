//! `hourglass rejections`: lists the rejected lines of a running service, or has it fix and write them.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::{Context, bail};
use serde_json::{Map, Value, json};

use super::post::{PostAnswer, Service, Target, escaped};

/// What `hourglass rejections` was asked for.
#[derive(Debug)]
pub struct RejectionsRequest {
    pub database: String,
    /// Query parameters that choose.
    pub wanted: [(&'static str, Option<String>); 4],
    pub service: Service,
    /// `None` to list.
    pub replay: Option<ReplayTask>,
}

/// How lines are changed, and whether they are written.
#[derive(Debug)]
pub struct ReplayTask {
    pub precision: Option<String>,
    /// `OLD=NEW`.
    pub rename: Vec<String>,
    /// `FIELD=TYPE`.
    pub cast: Vec<String>,
    pub write: bool,
}

/// Does what was asked for. Exit status: 0 if every line is taken.
#[must_use]
pub fn rejections(request: &RejectionsRequest) -> ExitCode {
    let target = Target::of(&request.service);
    let done = target.and_then(|target| match &request.replay {
        None => list(&target, request).map(|()| 0),
        Some(task) => replay(&target, request, task),
    });
    match done {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => super::failed(&error),
    }
}

impl RejectionsRequest {
    fn query(&self) -> String {
        let mut query = format!("db={}", escaped(&self.database));
        for (name, value) in &self.wanted {
            if let Some(value) = value {
                // Writing to a String cannot fail.
                let _ = write!(query, "&{name}={}", escaped(value));
            }
        }
        query
    }
}

fn list(target: &Target, request: &RejectionsRequest) -> anyhow::Result<()> {
    let answer = target.get(&format!("/api/v1/rejections?limit=1000&{}", request.query()))?;
    let status = answer.status;
    let text = answer.text()?;
    if status != 200 {
        bail!("the service answered {status}: {}", text.trim());
    }
    let body: Value = serde_json::from_str(&text).with_context(|| format!("the answer {text}"))?;
    for of in body["rejections"].as_array().into_iter().flatten() {
        let text = |name: &str| of[name].as_str().unwrap_or("-");
        println!(
            "{}  {}  {}  {} ({} of the request)",
            text("time"),
            text("token"),
            text("address"),
            text("code"),
            of["count"]
        );
        println!("  {}\n  {}", text("text"), text("reason"));
    }
    Ok(())
}

/// `A=B` pairs as an object.
fn pairs(texts: &[String]) -> anyhow::Result<Map<String, Value>> {
    let pair = |text: &String| match text.rsplit_once('=') {
        Some((name, value)) => Ok((name.to_owned(), json!(value))),
        None => bail!("{text:?}: expected NAME=VALUE"),
    };
    texts.iter().map(pair).collect()
}

/// The number of lines that are not taken.
fn replay(target: &Target, request: &RejectionsRequest, task: &ReplayTask) -> anyhow::Result<u64> {
    let mut rule = Map::from_iter([
        ("rename".to_owned(), pairs(&task.rename)?.into()),
        ("cast".to_owned(), pairs(&task.cast)?.into()),
    ]);
    if let Some(precision) = &task.precision {
        rule.insert("precision".to_owned(), json!(precision));
    }
    let rule = Value::from(rule).to_string();
    let path = format!("/api/v1/rejections/replay?{}&limit=1000&dry_run={}", request.query(), !task.write);
    let (mut cursor, mut taken, mut refused) = (String::new(), 0, 0);
    loop {
        let path = format!("{path}&cursor={}", escaped(&cursor));
        let answer = target.post_as(&path, "application/json", rule.as_bytes())?;
        let PostAnswer { status: 200, text } = &answer else { bail!("{answer}") };
        let body: Value = serde_json::from_str(text).with_context(|| format!("the answer {text}"))?;
        body["lines"].as_array().into_iter().flatten().for_each(|line| print!("{}", told(line)));
        taken += body["taken"].as_u64().unwrap_or_default();
        refused += body["refused"].as_u64().unwrap_or_default();
        match body["next"].as_str() {
            Some(next) => next.clone_into(&mut cursor),
            None => break,
        }
    }
    let (done, hint) = if task.write { ("written", "") } else { ("would be written", "; --write writes them") };
    println!("{taken} lines {done}, {refused} refused{hint}");
    Ok(refused)
}

/// A line before and after, and why it is not taken.
fn told(line: &Value) -> String {
    let text = |name: &str| line[name].as_str().unwrap_or("-");
    let mut told = format!("{}  {}  {}: {}\n", text("time"), text("token"), text("code"), text("reason"));
    // Writing to a String cannot fail.
    let _ = writeln!(told, "  - {}", text("before"));
    if line["after"].is_string() {
        let _ = writeln!(told, "  + {}", text("after"));
    }
    for reason in line["refused"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        let _ = writeln!(told, "  refused: {reason}");
    }
    told
}
