//! Background jobs: their state, and runs on demand.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Extension, Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::access::Event;
use crate::http::errors::{ApiError, Dialect};
use crate::http::influx::query::Address;
use crate::http::parameters::{By, Pairs, Parameters};
use crate::http::{App, params};
use crate::reading::time::write_rfc3339;
use crate::upkeep::{JobState, JobStatus, Jobs};

/// The longest wait for a run in one request: shorter than clients wait for an answer.
const WAIT: Duration = Duration::from_secs(5);

/// `GET /api/v1/jobs`.
pub async fn list(State(app): State<Arc<App>>, Extension(by): By, query: Pairs) -> Response {
    match Parameters::of(&app, query, &[], by) {
        Ok(_) => Json(json!({ "jobs": all(&app.jobs) })).into_response(),
        Err(error) => error.respond(Dialect::Native),
    }
}

/// `GET /api/v1/jobs/NAME`.
pub async fn show(
    State(app): State<Arc<App>>,
    Extension(by): By,
    name: Result<Path<String>, PathRejection>,
    query: Pairs,
) -> Response {
    match Parameters::of(&app, query, &[], by).and_then(|_| find(&app, name)) {
        Ok(job) => Json(shown(job)).into_response(),
        Err(error) => error.respond(Dialect::Native),
    }
}

/// `POST /api/v1/jobs/NAME/run`: 200 once the run has ended; 202 with its number while it is under way. With that number as
/// `run`, waits for it again.
pub async fn run(
    State(app): State<Arc<App>>,
    Extension(by): By,
    Extension(address): Address,
    name: Result<Path<String>, PathRejection>,
    query: Pairs,
) -> Response {
    let asked = Parameters::of(&app, query, params::JOB_RUN, by.clone()).and_then(|parameters| {
        let invalid = |_| ApiError::Bad("parameter run is invalid: use the value of `run` unchanged".to_owned());
        let run: Option<u64> = parameters.get("run").map(str::parse).transpose().map_err(invalid)?;
        Ok((find(&app, name)?, run))
    });
    let (job, run) = match asked {
        Ok(asked) => asked,
        Err(error) => return error.respond(Dialect::Native),
    };
    let run = run.unwrap_or_else(|| {
        let statement = format!("RUN JOB {}", job.name);
        app.audit.note(&Event::Change { by: &by, address, statement, database: "", outcome: "begun".to_owned() });
        job.ask()
    });
    let has_ended = job.wait(run, WAIT).await;
    let mut body = shown(job);
    body["run"] = json!(run.to_string());
    (if has_ended { StatusCode::OK } else { StatusCode::ACCEPTED }, Json(body)).into_response()
}

fn find(app: &App, name: Result<Path<String>, PathRejection>) -> Result<&JobState, ApiError> {
    let Path(name) = name.map_err(|error| ApiError::Bad(error.body_text()))?;
    let job = app.jobs.find(&name);
    job.map(|job| &**job)
        .ok_or_else(|| ApiError::Bad(format!("there is no job {name:?}: GET /api/v1/jobs lists those that there are")))
}

/// The state of all jobs.
pub fn all(jobs: &Jobs) -> Vec<Value> {
    jobs.all().iter().map(|job| shown(job)).collect()
}

fn shown(job: &JobState) -> Value {
    let time = |time: Option<i64>| {
        time.map(|time| {
            let mut text = String::new();
            write_rfc3339(&mut text, time);
            text
        })
    };
    let JobStatus { progress, left, note, last_success, last_error, next_run } = job.status();
    let state = match &last_error {
        _ if job.is_running() => "running",
        Some(_) => "failing",
        None => "waiting",
    };
    json!({
        "name": job.name, "state": state, "progress": progress, "left": left, "note": note,
        "last_success": time(last_success), "last_error": last_error, "next_run": time(next_run),
    })
}
