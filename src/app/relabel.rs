//! `hourglass relabel`: makes, lists, takes back and finalizes relabels of a running service.

use std::process::ExitCode;

use anyhow::{Context, bail};
use serde_json::{Map, Value};

use super::post::{PostAnswer, Service, Target, escaped};

/// What `hourglass relabel` was asked for.
#[derive(Debug)]
pub struct RelabelRequest {
    pub database: String,
    pub service: Service,
    pub what: RelabelTask,
}

#[derive(Debug)]
pub enum RelabelTask {
    /// The members of the request's body, and whether only to tell what would happen.
    Make {
        body: Vec<(&'static str, String)>,
        is_dry: bool,
    },
    List,
    Undo(String),
    Finalize(String),
}

/// Does what was asked for. Exit status: 0 if it was done.
#[must_use]
pub fn relabel(request: &RelabelRequest) -> ExitCode {
    let target = Target::of(&request.service);
    match target.and_then(|target| ask(&target, &escaped(&request.database), &request.what)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => super::failed(&error),
    }
}

fn ask(target: &Target, database: &str, what: &RelabelTask) -> anyhow::Result<()> {
    match what {
        RelabelTask::Make { body, is_dry } => {
            let body: Map<String, Value> =
                body.iter().map(|(name, text)| ((*name).to_owned(), Value::from(text.as_str()))).collect();
            let path = format!("/api/v1/relabel?db={database}&dry_run={is_dry}");
            let told =
                answer(target.post_as(&path, "application/json", Value::Object(body).to_string().as_bytes())?)?;
            told["examples"].as_array().into_iter().flatten().for_each(|pair| {
                println!("{} -> {}", text(&pair["from"]), text(&pair["to"]));
            });
            let verb = if *is_dry { "would be shown" } else { "are shown" };
            println!(
                "{} sensors {verb} under another name, {} of them together with others",
                told["renamed"], told["united"]
            );
            if !is_dry {
                println!("`hourglass relabel undo {}` takes it back", text(&told["relabel"]["id"]));
            }
        }
        RelabelTask::List => {
            let listed = target.get(&format!("/api/v1/relabels?db={database}"))?;
            let (status, body) = (listed.status, listed.text()?);
            let listed = answer(PostAnswer { status, text: body })?;
            listed["relabels"].as_array().into_iter().flatten().for_each(|rule| println!("{}", line(rule)));
        }
        RelabelTask::Undo(id) => {
            let path = format!("/api/v1/relabels/{}?db={database}", escaped(id));
            let rule = answer(target.delete(&path)?)?;
            println!("taken back: {}", line(&rule));
        }
        RelabelTask::Finalize(id) => {
            let path = format!("/api/v1/relabels/{}/finalize?db={database}", escaped(id));
            let rule = answer(target.post(&path, b"")?)?;
            println!("final: {}", line(&rule));
        }
    }
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

/// A relabel in one line.
fn line(rule: &Value) -> String {
    let of = |name: &str| rule[name].as_str().map(|value| format!(" {name} {value}")).unwrap_or_default();
    let ends = if rule["final"] == true { " (final)" } else { "" };
    let (id, kind, from, to) = (text(&rule["id"]), text(&rule["kind"]), text(&rule["from"]), text(&rule["to"]));
    format!("{id} {kind}{}{}: {from} -> {to}{}{ends}", of("measurement"), of("tag"), of("since"))
}
