//! The state of background jobs, and runs on demand.

use std::time::Duration;

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::http::App;
use crate::http::errors::{ApiError, ApiResult};
use crate::http::parameters::{InPath, Parameters};
use crate::query::QueryError;
use crate::reading::time::rfc3339;
use crate::upkeep::{JobState, JobStatus, Jobs};

/// Maximum wait for a run in one request, shorter than the timeouts of clients.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// The sensors in a list of outdated copies, by default and at most.
const OUTDATED_LIMIT: (usize, usize) = (100, 1000);
/// Number of sensors examined per step, and maximum number of steps in a request.
const STEP_SENSORS: usize = 1000;
const STEPS_MAX: usize = 20;

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

/// `GET /api/v1/jobs/refresh/outdated`: sensors whose copies of metadata are outdated, in key order. An answer with `next` is
/// not the last one, even if it names no sensor.
pub async fn outdated(parameters: Parameters) -> ApiResult<Json<Value>> {
    let database = parameters.database()?;
    let (usual, most) = OUTDATED_LIMIT;
    let limit = parameters.limit(usual, most)?;
    let extras = parameters.app.store.raw().clone().mongo_extras().filter(|extras| extras.keeps_copies());
    let mut sensors: Vec<String> = Vec::new();
    // Without copies, none is outdated.
    let mut next = extras.as_ref().map(|_| parameters.get("cursor").unwrap_or_default().to_owned());
    for _ in 0..STEPS_MAX {
        let (Some(extras), Some(after)) = (&extras, &next) else { break };
        let step = extras.next_stale_copies(&database, after, STEP_SENSORS).await.map_err(QueryError::from)?;
        sensors.extend(step.sensors);
        next = step.last_key;
        if sensors.len() > limit {
            sensors.truncate(limit);
            next = sensors.last().cloned();
            break;
        }
    }
    let sensors: Vec<Value> = sensors.into_iter().map(|sensor| json!({ "sensor": sensor })).collect();
    Ok(Json(json!({ "sensors": sensors, "next": next })))
}

fn find_job<'a>(app: &'a App, name: &str) -> ApiResult<&'a JobState> {
    let job = app.jobs.find(name);
    job.map(|job| &**job)
        .ok_or_else(|| ApiError::NotFound(format!("unknown job {name:?}: list the jobs with GET /api/v1/jobs")))
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
