//! Has this process take no changes, for the end of a copy, or take them again.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::App;
use super::errors::{ApiError, Dialect};
use super::influx_query::Address;
use super::parameters::{By, Pairs, Parameters};
use super::params;
use crate::access::{Caller, Event};
use crate::bucket::registry::Registered;
use crate::query::QueryError;

/// `POST /api/v1/read-only`.
pub async fn set(State(app): State<Arc<App>>, Extension(by): By, address: Address, query: Pairs) -> Response {
    done(&app, by, address, query).await.unwrap_or_else(|error| error.respond(Dialect::Native))
}

async fn done(app: &App, by: Caller, Extension(address): Address, query: Pairs) -> Result<Response, ApiError> {
    let parameters = Parameters::of(app, query, params::READ_ONLY, by.clone())?;
    let is_on = match parameters.get("state") {
        Some("on") => true,
        Some("off") => false,
        _ => return Err(ApiError::Bad("parameter state is missing: on or off".to_owned())),
    };
    // To take changes again, no store is needed.
    let others = if is_on { others(app).await? } else { Vec::new() };
    let awake: Vec<&str> = others.iter().filter(|log| log.taken.is_none()).map(|log| &*log.host).collect();
    if !awake.is_empty() {
        let awake = awake.join(", ");
        return Err(ApiError::Bad(format!(
            "other instances on the same store would go on taking writes: {awake}: stop them first"
        )));
    }
    if let Caller::Holder(_) = by {
        let (statement, outcome) = ("READ ONLY".to_owned(), if is_on { "on" } else { "off" }.to_owned());
        app.audit.note(&Event::Change { by: by.name(), address, statement, database: "", outcome });
    }
    let turns = app.ingest.set_read_only(is_on).await?;
    // Who asks again and gets the same answer, with no instance that was not there, knows that nobody took changes in between.
    let others = others.iter().map(|log| format!("{:016x}", log.opening)).collect::<Vec<_>>();
    let opening = format!("{:016x}", app.ingest.opening().0);
    Ok(Json(json!({ "read_only": is_on, "opening": opening, "turns": turns, "others": others })).into_response())
}

/// The other openings on the store, those that ended a while ago, too.
async fn others(app: &App) -> Result<Vec<Registered>, ApiError> {
    if !app.store.raw().has_other_writers() {
        return Ok(Vec::new());
    }
    let (own, _) = app.ingest.opening();
    let registry =
        app.store.raw().read_registry().await.map_err(|error| ApiError::Query(QueryError::Storage(error)))?;
    Ok(registry.logs.into_iter().filter(|log| log.opening != own).collect())
}
