//! Seals every day that is over, now.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::App;
use super::errors::{ApiError, Dialect};
use super::influx_query::Address;
use super::parameters::{By, Pairs, Parameters};
use super::params;
use super::write::flushed;
use crate::access::Event;
use crate::ingest::{Left, Sealing, SealingDone};
use crate::reading::time::write_rfc3339;

/// The longest wait for a round in one request: shorter than clients wait for an answer.
const WAIT: Duration = Duration::from_secs(5);

/// The longest wait until what was acked is stored.
const STORED_WITHIN: Duration = Duration::from_secs(60);

/// `POST /api/v1/seal`: has the store take everything acked before, and tells in `unflushed` why it did not; then 200 once every day that is over is sealed, or 202 with the
/// number of the round while it is under way. With that number as `round`, waits for it again.
pub async fn seal(
    State(app): State<Arc<App>>,
    Extension(by): By,
    Extension(address): Address,
    query: Pairs,
) -> Response {
    let round = match Parameters::of(&app, query, params::SEAL, by.clone()).and_then(|parameters| round(&parameters)) {
        Ok(round) => round,
        Err(error) => return error.respond(Dialect::Native),
    };
    let sealing = app.ingest.sealing();
    // One database that cannot be stored keeps no other from being sealed.
    let unflushed = if round.is_none() { unflushed(&app).await } else { None };
    let round = round.unwrap_or_else(|| {
        let (statement, outcome) = ("SEAL".to_owned(), "begun".to_owned());
        app.audit.note(&Event::Change { by: &by, address, statement, database: "", outcome });
        sealing.ask()
    });
    let ended = sealing.wait(round, WAIT).await;
    let done = sealing.done();
    let left = if ended { done.left } else { sealing.left() };
    let mut body = shown(&done, !ended, left);
    (body["round"], body["unflushed"]) = (json!(round.to_string()), json!(unflushed));
    (if ended { StatusCode::OK } else { StatusCode::ACCEPTED }, Json(body)).into_response()
}

/// Has the store take everything acked before; why it did not.
async fn unflushed(app: &App) -> Option<String> {
    match tokio::time::timeout(STORED_WITHIN, flushed(app)).await {
        Ok(flushed) => flushed.err().map(|error| error.to_string()),
        Err(_) => Some(format!("the store has not taken all of it within {} s", STORED_WITHIN.as_secs())),
    }
}

/// The parameter `round`.
pub fn round(parameters: &Parameters) -> Result<Option<u64>, ApiError> {
    let invalid = |_| ApiError::Bad("parameter round is invalid: use the value of `round` unchanged".to_owned());
    parameters.get("round").map(str::parse).transpose().map_err(invalid)
}

/// What was sealed since the start, and where the round under way is.
pub fn shown_now(sealing: &Sealing) -> Value {
    shown(&sealing.done(), sealing.is_running(), sealing.left())
}

fn shown(done: &SealingDone, running: bool, left: Option<Left>) -> Value {
    let SealingDone { days, readings, ended, error, .. } = done;
    let left = left.map(|Left { unsettled, large, failed, off }| {
        json!({ "unsettled": unsettled, "large": large, "failed": failed, "databases_off": off })
    });
    let ended = ended.map(|at| {
        let mut text = String::new();
        write_rfc3339(&mut text, at);
        text
    });
    json!({
        "running": running, "days": days, "readings": readings, "left": left, "ended": ended, "error": error,
    })
}
