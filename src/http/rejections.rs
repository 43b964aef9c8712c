//! The list of rejected lines, for those who administer the database that they were sent to.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::App;
use super::errors::{ApiError, Dialect};
use super::parameters::{By, Pairs, Parameters};
use super::params;
use crate::access::Caller;
use crate::bucket::settings::owner;
use crate::ingest::KeptRejection;
use crate::reading::time::{TIMESTAMP_MIN, write_rfc3339};

/// Rejections per answer: by default, and at most.
const LIMITS: (usize, usize) = (100, 1000);

/// `GET /api/v1/rejections`.
pub async fn list(State(app): State<Arc<App>>, Extension(by): By, query: Pairs) -> Response {
    match listed(&app, &by, query) {
        Ok(body) => Json(body).into_response(),
        Err(error) => error.respond(Dialect::Native),
    }
}

fn listed(app: &App, by: &Caller, query: Pairs) -> Result<Value, ApiError> {
    let parameters = Parameters::of(app, query, params::REJECTIONS, by.clone())?;
    let limit = parameters.limit(LIMITS.0, LIMITS.1, "fixed")?;
    let database = parameters.get("db");
    if !database.map_or_else(|| by.may_manage_some(), |database| by.may_manage(database)) {
        let what =
            database.map_or_else(|| "rejections".to_owned(), |database| format!("rejections of database {database:?}"));
        return Err(ApiError::Forbidden(format!(
            "{} may not see {what}: it takes a token created with --admin",
            by.name()
        )));
    }
    let may_see = |name: &str| {
        database.map_or_else(|| by.may_manage(name), |database| database == name || database == owner(name))
    };
    let since = parameters.time("since", TIMESTAMP_MIN)?;
    let [code, measurement, contains] = ["code", "measurement", "contains"].map(|name| parameters.get(name));
    let is_wanted = |rejection: &KeptRejection| {
        may_see(&rejection.database)
            && rejection.time >= since
            && code.is_none_or(|code| rejection.code == code)
            && measurement.is_none_or(|measurement| rejection.measurement() == measurement)
            && contains.is_none_or(|part| rejection.text.contains(part) || rejection.reason.contains(part))
    };
    let rejections = app.ingest.rejections().list(is_wanted, limit);
    Ok(json!({ "rejections": rejections.iter().map(|rejection| shown(rejection)).collect::<Vec<_>>() }))
}

fn shown(rejection: &KeptRejection) -> Value {
    let KeptRejection { time, database, token, address, line, column, text, reason, code, count } = rejection;
    let mut received = String::new();
    write_rfc3339(&mut received, *time);
    json!({
        "time": received, "database": database, "token": token, "address": address, "line": line, "column": column,
        "text": text, "reason": reason, "code": code, "count": count,
    })
}
