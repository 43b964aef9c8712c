//! `hourglass rename`: sets, lists and removes renames of a running service.

use std::process::ExitCode;

use anyhow::{Context, bail};
use serde_json::{Map, Value};

use super::post::{PostAnswer, Service, Target, escaped};

/// A run of `hourglass rename`.
#[derive(Debug)]
pub struct RenameRequest {
    pub database: String,
    pub service: Service,
    pub task: RenameTask,
}

/// The task, with the texts of the entry by name.
#[derive(Debug)]
pub enum RenameTask {
    Add { entry: Vec<(&'static str, String)>, is_dry: bool },
    List,
    Remove(Vec<(&'static str, String)>),
}

/// Runs the command. Exit status: 0 if it was done.
#[must_use]
pub fn rename(request: &RenameRequest) -> ExitCode {
    let target = Target::of(&request.service);
    crate::app::ended(target.and_then(|target| ask(&target, &escaped(&request.database), &request.task)))
}

fn ask(target: &Target, database: &str, task: &RenameTask) -> anyhow::Result<()> {
    let path = format!("/api/v1/renames?db={database}");
    let told = match task {
        RenameTask::Add { entry, is_dry } => {
            let text = |(name, text): &(&str, String)| ((*name).to_owned(), Value::from(text.as_str()));
            let body = Value::Object(entry.iter().map(text).collect::<Map<_, _>>()).to_string();
            answer(target.send(
                "PUT",
                &format!("{path}&dry_run={is_dry}"),
                Some(("application/json", body.as_bytes())),
            )?)?
        }
        RenameTask::Remove(entry) => {
            let of = entry.iter().map(|(name, text)| format!("&{name}={}", escaped(text))).collect::<String>();
            answer(target.delete(&format!("{path}{of}"))?)?
        }
        RenameTask::List => {
            let listed = target.get(&path)?;
            let listed = answer(PostAnswer { status: listed.status, text: listed.text()? })?;
            listed["renames"].as_array().into_iter().flatten().for_each(|entry| println!("{}", line(entry)));
            return Ok(());
        }
    };
    told["examples"].as_array().into_iter().flatten().for_each(|pair| {
        println!("{} -> {}", text(&pair["from"]), text(&pair["to"]));
    });
    let verb = if told["dry_run"] == true { "would get" } else { "get" };
    println!("{} sensors {verb} another name", told["renamed"]);
    Ok(())
}

/// The body of an answer that says that it was done.
fn answer(answer: PostAnswer) -> anyhow::Result<Value> {
    let PostAnswer { status: 200, text } = &answer else { bail!("{answer}") };
    serde_json::from_str(text).with_context(|| format!("the answer {text}"))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// An entry in one line.
fn line(entry: &Value) -> String {
    let scope = |name: &str| entry[name].as_str().map(|value| format!(" {name} {value}")).unwrap_or_default();
    let (kind, from, to) = (text(&entry["kind"]), text(&entry["from"]), text(&entry["to"]));
    format!("{kind}{}{}: {from} -> {to}", scope("tag"), scope("measurement"))
}
