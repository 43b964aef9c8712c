//! `hourglass job`: lists the background jobs of a running service, or runs one now.

use std::fmt::Write;

use anyhow::{Context, bail};
use clap::Subcommand;
use serde_json::Value;

use crate::commands::post::{PostAnswer, Service, Target, url_encode};

#[derive(Debug, Subcommand)]
pub enum JobCommand {
    /// Print each job with its state, its progress, and the times of its last and next run.
    List(Service),
    /// Run a job now and print its progress. Exit status: 0 if it left nothing to do, else 1.
    Run {
        /// The job: seal, expire, strip, sweep, outliers, migrate, compact, refresh, group or index.
        name: String,
        #[command(flatten)]
        service: Service,
    },
}

/// Runs a `job` command. Returns true if the job left nothing to do.
pub fn jobs(command: &JobCommand) -> anyhow::Result<bool> {
    match command {
        JobCommand::List(service) => list(&Target::from_flags(service)?).map(|()| true),
        JobCommand::Run { name, service } => run(&Target::from_flags(service)?, name),
    }
}

/// Starts a job of the service and prints its progress until it is done. Returns true if it left nothing to do.
fn run(target: &Target, name: &str) -> anyhow::Result<bool> {
    let first = format!("/api/v1/jobs/{}/run", url_encode(name));
    let mut path = first.clone();
    let mut printed = String::new();
    loop {
        let answer = target.post(&path, b"")?;
        let PostAnswer { status: status @ (200 | 202), .. } = &answer else { bail!("{answer}") };
        let job = answer.json()?;
        let line = line(&job);
        if line != printed {
            println!("{line}");
            printed = line;
        }
        if *status == 200 {
            if let Some(error) = job["last_error"].as_str() {
                bail!("the job {name} failed: {error}");
            }
            return Ok(job["note"].is_null() && job["left"].as_u64().unwrap_or_default() == 0);
        }
        let run = job["run"].as_str().context("the answer has no run")?;
        path = format!("{first}?run={}", url_encode(run));
    }
}

fn list(target: &Target) -> anyhow::Result<()> {
    let body = target.json("GET", "/api/v1/jobs", None)?;
    for job in body["jobs"].as_array().context("the answer has no jobs")? {
        println!("{}", line(job));
        for time in ["last_success", "next_run"] {
            println!("    {time}: {}", job[time].as_str().unwrap_or("none"));
        }
        if let Some(error) = job["last_error"].as_str() {
            println!("    last_error: {error}");
        }
    }
    Ok(())
}

/// Formats the state and progress of a job as one line.
fn line(job: &Value) -> String {
    let text = |name: &str| job[name].as_str().unwrap_or_default();
    let mut line = format!("{}: {}", text("name"), text("state"));
    let figures = job["progress"].as_object().into_iter().flatten();
    for (name, figure) in figures.map(|(name, figure)| (name.as_str(), figure)).chain([("left", &job["left"])]) {
        if !figure.is_null() {
            // Writing to a String cannot fail.
            let _ = write!(line, ", {name} {figure}");
        }
    }
    if let Some(note) = job["note"].as_str() {
        let _ = write!(line, "; {note}");
    }
    line
}
