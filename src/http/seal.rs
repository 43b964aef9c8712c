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
use crate::access::{Caller, Event};
use crate::ingest::{Left, SealingDone};
use crate::reading::time::write_rfc3339;

/// The longest wait for a round in one request: shorter than clients wait for an answer.
const WAIT: Duration = Duration::from_secs(5);

/// `POST /api/v1/seal`: 200 once every day that is over is sealed; 202 with the number of the round while it is under way. With
/// that number as `round`, waits for it again.
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
    let round = round.unwrap_or_else(|| {
        // Without access control it is not audited.
        if let Caller::Holder(_) = by {
            let (statement, outcome) = ("SEAL".to_owned(), "begun".to_owned());
            app.audit.note(&Event::Change { by: by.name(), address, statement, database: "", outcome });
        }
        sealing.ask()
    });
    let ended = sealing.wait(round, WAIT).await;
    let mut body = shown(&sealing.done());
    body["round"] = json!(round.to_string());
    (if ended { StatusCode::OK } else { StatusCode::ACCEPTED }, Json(body)).into_response()
}

/// The parameter `round`.
pub fn round(parameters: &Parameters) -> Result<Option<u64>, ApiError> {
    let invalid = |_| ApiError::Bad("parameter round is invalid: use the value of `round` unchanged".to_owned());
    parameters.get("round").map(str::parse).transpose().map_err(invalid)
}

/// What was sealed since the start.
pub fn shown(done: &SealingDone) -> Value {
    let SealingDone { days, readings, left: Left { unsettled, large, failed, off }, ended, error } = done;
    let ended = ended.map(|at| {
        let mut text = String::new();
        write_rfc3339(&mut text, at);
        text
    });
    json!({
        "days": days, "readings": readings,
        "left": { "unsettled": unsettled, "large": large, "failed": failed, "databases_off": off },
        "ended": ended, "error": error,
    })
}
