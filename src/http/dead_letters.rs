//! Lists this instance's dead-letter file: readings that could not be stored.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::App;
use super::errors::{ApiError, DEAD_LETTERS, Dialect};
use super::parameters::{Pairs, Parameters};
use super::params;
use crate::access::Caller;
use crate::http::parameters::By;
use crate::ingest::dead_letters::{Chunk, Outstanding};

/// Most bytes of lines per chunk, and per answer.
const BYTES: (usize, usize) = (16 << 10, 1 << 20);
/// Chunks per answer: by default, and at most.
const LOTS: (usize, usize) = (100, 1000);

/// `GET /api/v1/dead-letters`.
pub async fn list(State(app): State<Arc<App>>, Extension(by): By, query: Pairs) -> Response {
    match listed(&app, by, query).await {
        Ok(body) => Json(body).into_response(),
        Err(error) => error.respond(Dialect::Native),
    }
}

async fn listed(app: &App, by: Caller, query: Pairs) -> Result<Value, ApiError> {
    let parameters = Parameters::of(app, query, params::DEAD_LETTERS, by)?;
    let chunks_max = parameters.limit(LOTS.0, LOTS.1)?;
    let cursor = parameters.get("cursor").filter(|cursor| !cursor.is_empty()).map_or(Ok(0), str::parse);
    let cursor = cursor
        .map_err(|_| ApiError::Bad("parameter cursor is invalid: use the value of `next` unchanged".to_owned()))?;
    let letters = app.ingest.dead_letters();
    let unreadable = |error: std::io::Error| ApiError::Unreadable(format!("the dead-letter file: {error}"));
    let outstanding = letters.outstanding().await.map_err(unreadable)?;
    let (chunks, next) = letters.page(cursor, chunks_max, BYTES).await.map_err(unreadable)?;
    Ok(json!({
        "readings": outstanding.readings(),
        "databases": outstanding.0,
        "lots": chunks.iter().map(shown).collect::<Vec<_>>(),
        "next": next.map(|next| next.to_string()),
    }))
}

fn shown(chunk: &Chunk) -> Value {
    // Cut after the last whole line, so never inside a character.
    let end = if chunk.is_cut {
        chunk.lines.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1)
    } else {
        chunk.lines.len()
    };
    json!({
        "database": chunk.head.database, "readings": chunk.head.readings, "kept": chunk.head.kept, "reason": chunk.head.reason,
        "lines": String::from_utf8_lossy(&chunk.lines[..end]), "is_cut": chunk.is_cut,
    })
}

/// The answer to a flush that stored everything except dead letters.
pub fn not_stored(outstanding: &Outstanding) -> Response {
    let error = format!(
        "not all acked readings are in the store: {} are dead letters (GET /api/v1/dead-letters lists them)",
        outstanding.described()
    );
    (StatusCode::CONFLICT, Json(json!({ "error": error, "code": DEAD_LETTERS, "dead_letters": outstanding.0 })))
        .into_response()
}
