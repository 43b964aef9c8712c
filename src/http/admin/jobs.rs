//! Background jobs: their state, and runs on demand.

use std::time::Duration;

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::http::App;
use crate::http::errors::{ApiError, ApiResult};
use crate::http::parameters::{InPath, Parameters};
use crate::reading::time::rfc3339;
use crate::upkeep::{JobState, JobStatus, Jobs};

/// The longest wait for a run in one request: shorter than clients wait for an answer.
const WAIT: Duration = Duration::from_secs(5);

/// `GET /api/v1/jobs`.
pub async fn list(parameters: Parameters) -> Json<Value> {
    Json(json!({ "jobs": all(&parameters.app.jobs) }))
}

/// `GET /api/v1/jobs/NAME`.
pub async fn show(parameters: Parameters, InPath(name): InPath<String>) -> ApiResult<Json<Value>> {
    Ok(Json(shown(find(&parameters.app, &name)?)))
}

/// `POST /api/v1/jobs/NAME/run`: 200 once the run has ended; 202 with its number while it is under way. With that number as
/// `run`, waits for it again.
pub async fn run(parameters: Parameters, InPath(name): InPath<String>) -> ApiResult<Response> {
    let invalid = |_| ApiError::Bad("parameter run is invalid: use the value of `run` unchanged".to_owned());
    let run: Option<u64> = parameters.get("run").map(str::parse).transpose().map_err(invalid)?;
    let job = find(&parameters.app, &name)?;
    let run = run.unwrap_or_else(|| {
        parameters.sender.note(&parameters.app, format!("RUN JOB {}", job.name), "", "begun");
        job.ask()
    });
    let has_ended = job.wait(run, WAIT).await;
    let mut body = shown(job);
    body["run"] = json!(run.to_string());
    Ok((if has_ended { StatusCode::OK } else { StatusCode::ACCEPTED }, Json(body)).into_response())
}

fn find<'a>(app: &'a App, name: &str) -> ApiResult<&'a JobState> {
    let job = app.jobs.find(name);
    job.map(|job| &**job)
        .ok_or_else(|| ApiError::Bad(format!("there is no job {name:?}: GET /api/v1/jobs lists those that there are")))
}

/// The state of all jobs.
pub fn all(jobs: &Jobs) -> Vec<Value> {
    jobs.all().iter().map(|job| shown(job)).collect()
}

fn shown(job: &JobState) -> Value {
    let time = |time: Option<i64>| time.map(rfc3339);
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
