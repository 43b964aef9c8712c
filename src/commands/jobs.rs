//! `hourglass job`: lists the background jobs of a running service, and runs one now.

use std::fmt::Write;
use std::process::ExitCode;

use anyhow::{Context, bail};
use serde_json::Value;

use super::post::{PostAnswer, Service, Target, escaped};

/// Prints all jobs.
#[must_use]
pub fn list_jobs(service: &Service) -> ExitCode {
    crate::app::ended(Target::of(service).and_then(|target| list(&target)))
}

/// Has the service run a job, and prints how far it is until it is done. Exit status: 0 if nothing is left to do.
#[must_use]
pub fn run_job(service: &Service, name: &str) -> ExitCode {
    let ran = Target::of(service).and_then(|target| {
        let mut said = String::new();
        let on_progress = |job: &Value| {
            let line = line(job);
            // What is as it was is not said again.
            if line != said {
                println!("{line}");
                said = line;
            }
            true
        };
        run(&target, name, on_progress)
    });
    match ran {
        Ok(job) if job["note"].is_null() && job["left"].as_u64().unwrap_or_default() == 0 => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => crate::app::failed(&error),
    }
}

/// Runs a job until it is done, or `on_progress` says no; returns its last state.
pub fn run(target: &Target, name: &str, mut on_progress: impl FnMut(&Value) -> bool) -> anyhow::Result<Value> {
    let first = format!("/api/v1/jobs/{}/run", escaped(name));
    let mut path = first.clone();
    loop {
        let answer = target.post(&path, b"")?;
        let PostAnswer { status: status @ (200 | 202), text } = &answer else { bail!("{answer}") };
        let job: Value = serde_json::from_str(text).with_context(|| format!("the answer {text}"))?;
        let goes_on = on_progress(&job);
        if *status == 200 {
            if let Some(error) = job["last_error"].as_str() {
                bail!("the job {name} failed: {error}");
            }
            return Ok(job);
        }
        if !goes_on {
            return Ok(job);
        }
        let run = job["run"].as_str().context("the answer has no run")?;
        path = format!("{first}?run={}", escaped(run));
    }
}

fn list(target: &Target) -> anyhow::Result<()> {
    let answer = target.get("/api/v1/jobs")?;
    let status = answer.status;
    let text = answer.text()?;
    if status != 200 {
        bail!("the service answered {status}: {text}");
    }
    let body: Value = serde_json::from_str(&text).with_context(|| format!("the answer {text}"))?;
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
