//! The state of background jobs, and runs on demand.

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

/// Maximum wait for a run in one request, shorter than the timeouts of clients.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// `GET /api/v1/jobs`.
pub async fn list(parameters: Parameters) -> Json<Value> {
    Json(json!({ "jobs": list_json(&parameters.app.jobs) }))
}

/// `GET /api/v1/jobs/NAME`.
pub async fn show(parameters: Parameters, InPath(name): InPath<String>) -> ApiResult<Json<Value>> {
    Ok(Json(job_json(find_job(&parameters.app, &name)?)))
}

/// `POST /api/v1/jobs/NAME/run`: 200 once the run has ended, or 202 with its number while it is in progress. A call
/// with that number as `run` waits for the same run.
pub async fn run(parameters: Parameters, InPath(name): InPath<String>) -> ApiResult<Response> {
    let invalid = |_| ApiError::Bad("parameter run is invalid: use the value of `run` unchanged".to_owned());
    let run: Option<u64> = parameters.get("run").map(str::parse).transpose().map_err(invalid)?;
    let job = find_job(&parameters.app, &name)?;
    let run = run.unwrap_or_else(|| {
        parameters.requester.note(&parameters.app, format!("RUN JOB {}", job.name), "", "begun");
        job.ask()
    });
    let has_ended = job.wait(run, WAIT_MAX).await;
    let mut body = job_json(job);
    body["run"] = json!(run.to_string());
    Ok((if has_ended { StatusCode::OK } else { StatusCode::ACCEPTED }, Json(body)).into_response())
}

fn find_job<'a>(app: &'a App, name: &str) -> ApiResult<&'a JobState> {
    let job = app.jobs.find(name);
    job.map(|job| &**job)
        .ok_or_else(|| ApiError::Bad(format!("unknown job {name:?}: list the jobs with GET /api/v1/jobs")))
}

/// The state of all jobs.
pub fn list_json(jobs: &Jobs) -> Vec<Value> {
    jobs.states().iter().map(|job| job_json(job)).collect()
}

fn job_json(job: &JobState) -> Value {
    let time = |time: Option<i64>| time.map(rfc3339);
    let JobStatus { progress, left, note, last_success, last_error, problem, next_run } = job.status();
    let state = match &last_error {
        _ if job.is_running() => "running",
        Some(_) => "failing",
        None => "waiting",
    };
    json!({
        "name": job.name, "state": state, "progress": progress, "left": left, "note": note,
        "last_success": time(last_success), "last_error": last_error, "problem": problem, "next_run": time(next_run),
    })
}
