//! Lists the dead letters of this instance: readings and metadata that could not be stored.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::http::errors::{ApiError, ApiResult, DEAD_LETTERS};
use crate::http::parameters::Parameters;
use crate::ingest::dead_letters::{DeadLetter, OutstandingLetters};

/// Maximum bytes of the lines of one dead letter.
const LINES_BYTES_MAX: usize = 16 << 10;
/// Approximate maximum size of an answer, in bytes.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// Default number of dead letters per answer.
const LIMIT_DEFAULT: usize = 100;
/// Maximum number of dead letters per answer.
const LIMIT_MAX: usize = 1000;

/// `GET /api/v1/dead-letters`.
pub async fn list(parameters: Parameters) -> ApiResult<Json<Value>> {
    let count_max = parameters.limit(LIMIT_DEFAULT, LIMIT_MAX)?;
    let cursor = parameters.get("cursor").map_or(Ok(0), str::parse);
    let cursor = cursor
        .map_err(|_| ApiError::Bad("parameter cursor is invalid: use the value of `next` unchanged".to_owned()))?;
    let letters = &parameters.app.ingest.flushes.dead_letters;
    let unreadable = |error: std::io::Error| ApiError::Unreadable(format!("the dead letters: {error}"));
    let outstanding = letters.outstanding().await.map_err(unreadable)?;
    let (found, has_more) = letters.page(cursor, count_max, ANSWER_BYTES_MAX).await.map_err(unreadable)?;
    let next = found.last().filter(|_| has_more).map(|(id, _)| id.to_string());
    Ok(Json(json!({
        "readings": outstanding.readings(),
        "databases": outstanding.by_database,
        "metadata": outstanding.metadata,
        "letters": found.iter().map(|(id, letter)| letter_json(*id, letter)).collect::<Vec<_>>(),
        "next": next,
    })))
}

fn letter_json(id: u64, letter: &DeadLetter) -> Value {
    let mut json = match letter {
        DeadLetter::Readings(letter) => {
            let is_cut = letter.lines.len() > LINES_BYTES_MAX;
            // Cut after the last whole line, which never splits a character.
            let end = letter.lines.as_bytes()[..letter.lines.len().min(LINES_BYTES_MAX)]
                .iter()
                .rposition(|byte| *byte == b'\n')
                .map_or(0, |end| end + 1);
            json!({
                "database": letter.database, "readings": letter.readings, "kept": letter.kept, "reason": letter.reason,
                "lines": letter.lines[..end], "is_cut": is_cut,
            })
        }
        DeadLetter::Metadata(letter) => json!(letter),
        DeadLetter::Done(_) => json!({}),
    };
    json["id"] = json!(id.to_string());
    json
}

/// Answers a flush that stored everything except dead letters.
pub fn not_stored(outstanding: &OutstandingLetters) -> Response {
    let error = format!(
        "not all acked readings are in the store: {} are dead letters (GET /api/v1/dead-letters lists them)",
        outstanding.describe()
    );
    let body = json!({ "error": error, "code": DEAD_LETTERS, "dead_letters": outstanding.by_database });
    (StatusCode::CONFLICT, Json(body)).into_response()
}
