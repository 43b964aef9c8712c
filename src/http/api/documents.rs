//! `GET /api/v1/documents`: what the store has of one sensor, as documents. Unlike all other answers, it does not hide
//! deleted or expired readings that the store still has, so it is for administrators of the database.

use axum::http::header;
use axum::response::{IntoResponse, Response};

use crate::bucket::store::ShownDocument;
use crate::http::errors::{ApiError, ApiResult};
use crate::http::parameters::Parameters;
use crate::http::render::json::{Times, list, pair, reading};
use crate::query::QueryError;
use crate::query::selector::Selector;
use crate::reading::Hour;

/// Documents per collection, by default and at most.
const LIMIT: (usize, usize) = (10, 100);
/// Memory that is held for the documents before they are read, in bytes.
const HELD: usize = 4 << 20;

/// `GET /api/v1/documents`.
pub async fn documents(parameters: Parameters) -> ApiResult<Response> {
    let database = parameters.database()?;
    let (usual, most) = LIMIT;
    let limit = parameters.limit(usual, most)?;
    let range = parameters.range()?;
    let hours = Hour::from_ns(range.start)..Hour::from_ns(range.end.saturating_sub(1)).next();
    let budget = parameters.budget();
    let Selector::Sensor(shown) = parameters.selector(&budget).await?.selector else {
        return Err(ApiError::Bad("parameter sensor: give the key of one sensor".to_owned()));
    };
    let settings = parameters.app.query.settings();
    let stored =
        settings.renames(&database).map_or_else(|| vec![(*shown).clone()], |renames| renames.stored_sensors(&shown));
    let _reserved = budget.hold(HELD)?;
    let mut documents = Vec::new();
    let store = parameters.app.ingest.store.raw();
    for sensor in &stored {
        documents.extend(store.show(&database, sensor, hours.clone(), limit).await.map_err(QueryError::from)?);
    }
    let _held = budget.hold(documents.iter().map(|document| 2 * document.json.len()).sum())?;
    let mut out = String::from("{");
    pair(&mut out, "database", &database);
    out.push_str(",\"documents\":[");
    list(&mut out, &documents, put_document);
    out.push_str("]}");
    budget.finish();
    Ok(([(header::CONTENT_TYPE, "application/json")], out).into_response())
}

fn put_document(out: &mut String, shown: &ShownDocument) {
    let ShownDocument { collection, json, packed } = shown;
    out.push('{');
    pair(out, "collection", collection);
    out.push_str(",\"document\":");
    out.push_str(json);
    if let Some(packed) = packed {
        out.push_str(",\"decoded\":[");
        list(out, &packed.first, |out, one| reading(out, one, Times::Text));
        out.push_str(&format!("],\"decoded_of\":{}", packed.count));
    }
    out.push('}');
}
