//! Rewrites documents of older forms, now.

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
use super::{params, seal};
use crate::access::Event;
use crate::ingest::MigrationDone;
use crate::reading::time::write_rfc3339;

/// The longest wait for a round in one request: shorter than clients wait for an answer.
const WAIT: Duration = Duration::from_secs(5);

/// `POST /api/v1/migrate`: 200 once no document of an older form is left that can be rewritten; 202 with the number of the
/// round while it is under way. With that number as `round`, waits for it again.
pub async fn migrate(
    State(app): State<Arc<App>>,
    Extension(by): By,
    Extension(address): Address,
    query: Pairs,
) -> Response {
    let parameters = Parameters::of(&app, query, params::MIGRATE, by.clone());
    let round: Result<Option<u64>, ApiError> = parameters.and_then(|parameters| seal::round(&parameters));
    let round = match round {
        Ok(round) => round,
        Err(error) => return error.respond(Dialect::Native),
    };
    let migration = app.ingest.migration();
    let round = round.unwrap_or_else(|| {
        let (statement, outcome) = ("MIGRATE".to_owned(), "begun".to_owned());
        app.audit.note(&Event::Change { by: &by, address, statement, database: "", outcome });
        migration.ask()
    });
    let ended = migration.wait(round, WAIT).await;
    let mut body = shown(&migration.done());
    body["round"] = json!(round.to_string());
    (if ended { StatusCode::OK } else { StatusCode::ACCEPTED }, Json(body)).into_response()
}

/// What was found and rewritten since the start.
pub fn shown(done: &MigrationDone) -> Value {
    let MigrationDone { examined, rewritten, left, newer, ended, error } = done;
    let ended = ended.map(|at| {
        let mut text = String::new();
        write_rfc3339(&mut text, at);
        text
    });
    json!({
        "examined": examined, "rewritten": rewritten, "left": left, "newer": newer, "ended": ended, "error": error,
    })
}
