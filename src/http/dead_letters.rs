//! What could not be stored, as it lies in this instance's dead-letter file.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::App;
use super::errors::{ApiError, Dialect};
use super::known;
use super::parameters::{Pairs, Parameters};
use super::write::By;
use crate::access::Caller;
use crate::ingest::dead_letters::{Lot, Outstanding};

/// Most bytes of one lot's lines, and of an answer's.
const BYTES: (usize, usize) = (16 << 10, 1 << 20);
/// Most lots of an answer, when nothing else is asked for and at all.
const LOTS: (usize, usize) = (100, 1000);

/// `GET /api/v1/dead-letters`.
pub async fn list(State(app): State<Arc<App>>, Extension(by): By, query: Pairs) -> Response {
    match listed(&app, by, query).await {
        Ok(body) => Json(body).into_response(),
        Err(error) => error.respond(Dialect::V1),
    }
}

async fn listed(app: &App, by: Caller, query: Pairs) -> Result<Value, ApiError> {
    let parameters = Parameters::of(query, known::DEAD_LETTERS, by)?;
    let lots_max = parameters.limit(LOTS.0, LOTS.1, "1000 lots")?;
    let cursor = parameters.get("cursor").filter(|cursor| !cursor.is_empty()).map_or(Ok(0), str::parse);
    let cursor = cursor.map_err(|_| ApiError::Bad("parameter cursor: it is none of ours".to_owned()))?;
    let letters = app.ingest.dead_letters();
    let unreadable = |error: std::io::Error| ApiError::Unreadable(format!("the dead-letter file: {error}"));
    let outstanding = letters.outstanding().await.map_err(unreadable)?;
    let (lots, next) = letters.page(cursor, lots_max, BYTES).await.map_err(unreadable)?;
    Ok(json!({
        "readings": outstanding.readings(),
        "databases": outstanding.0,
        "lots": lots.iter().map(shown).collect::<Vec<_>>(),
        "next": next.map(|next| next.to_string()),
    }))
}

fn shown(lot: &Lot) -> Value {
    // Up to the last whole line, which also keeps a character whole.
    let end = if lot.is_cut {
        lot.lines.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1)
    } else {
        lot.lines.len()
    };
    json!({
        "database": lot.head.database, "readings": lot.head.readings, "kept": lot.head.kept, "reason": lot.head.reason,
        "lines": String::from_utf8_lossy(&lot.lines[..end]), "is_cut": lot.is_cut,
    })
}

/// What a flush is told that brought all to the store but these.
pub fn not_stored(outstanding: &Outstanding) -> Response {
    let error = format!(
        "not all that was acked is in the store: {} are dead letters (GET /api/v1/dead-letters)",
        outstanding.described()
    );
    (StatusCode::CONFLICT, Json(json!({ "error": error, "dead_letters": outstanding.0 }))).into_response()
}
