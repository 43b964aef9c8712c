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
    if is_on {
        let others = others(app).await?;
        if !others.is_empty() {
            let others = others.join(", ");
            return Err(ApiError::Bad(format!(
                "other instances on the same store would go on taking writes: {others}: stop them first"
            )));
        }
    }
    if let Caller::Holder(_) = by {
        let (statement, outcome) = ("READ ONLY".to_owned(), if is_on { "on" } else { "off" }.to_owned());
        app.audit.note(&Event::Change { by: by.name(), address, statement, database: "", outcome });
    }
    app.ingest.set_read_only(is_on).await?;
    Ok(Json(json!({ "read_only": is_on })).into_response())
}

/// The hosts of other instances that use the store, or were killed and may come back.
async fn others(app: &App) -> Result<Vec<String>, ApiError> {
    if !app.store.is_shared() {
        return Ok(Vec::new());
    }
    let (own, _) = app.ingest.opening();
    let registry = app.store.read_registry().await.map_err(|error| ApiError::Query(QueryError::Storage(error)))?;
    let others = registry.logs.into_iter().filter(|log| log.opening != own && log.taken.is_none());
    Ok(others.map(|log| log.host.to_string()).collect())
}
