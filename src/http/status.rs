//! What the service says of itself: the endpoints clients probe before they write, health for
//! operators, metrics for Prometheus.

use std::fmt::Write;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::json;

use super::layer::INFLUX_VERSION;
use super::{App, ENDPOINTS, Health};
use crate::reading::time::write_rfc3339;

/// `GET /`: the endpoints, a line each.
pub async fn endpoints() -> String {
    let mut text = format!("hourglass {}\n\n", env!("CARGO_PKG_VERSION"));
    for (endpoint, what) in ENDPOINTS {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{endpoint:24} {what}");
    }
    text
}

/// What `/ping` takes.
#[derive(Debug, Deserialize)]
pub struct PingParameters {
    verbose: Option<String>,
}

/// `GET /ping`: 204; with `?verbose=true` 200 and the version, unless a client asks for that in a
/// header, as EMQX does, which wants 204 all the same.
pub async fn ping(headers: HeaderMap, Query(parameters): Query<PingParameters>) -> Response {
    let verbose = matches!(parameters.verbose.as_deref(), Some("true" | "1"));
    if verbose && !headers.contains_key("verbose") {
        return Json(json!({ "version": INFLUX_VERSION })).into_response();
    }
    StatusCode::NO_CONTENT.into_response()
}

/// `GET /health`: in the shape of `InfluxDB`'s, which clients check before they write.
pub async fn health(State(app): State<Arc<App>>) -> Response {
    let health = app.health.borrow().clone();
    let (status, word, message) = match health {
        Health::Ready => (StatusCode::OK, "pass", "ready for queries and writes".to_owned()),
        Health::StoreAway(reason) => (StatusCode::SERVICE_UNAVAILABLE, "fail", reason),
        Health::Stopping => (StatusCode::SERVICE_UNAVAILABLE, "fail", "shutting down".to_owned()),
    };
    let body = json!({
        "name": "hourglass", "status": word, "message": message, "checks": [],
        "version": env!("CARGO_PKG_VERSION"),
    });
    (status, Json(body)).into_response()
}

/// `GET /ready`: 200 while writes would be acked.
pub async fn ready(State(app): State<Arc<App>>) -> Response {
    let health = app.health.borrow().clone();
    let mut started = String::new();
    write_rfc3339(&mut started, app.started.0);
    let up = format!("{}s", app.started.1.elapsed().as_secs());
    match health {
        Health::Ready => Json(json!({ "status": "ready", "started": started, "up": up })).into_response(),
        Health::StoreAway(reason) => {
            (StatusCode::SERVICE_UNAVAILABLE, Json(json!({ "status": "starting", "message": reason }))).into_response()
        }
        Health::Stopping => (StatusCode::SERVICE_UNAVAILABLE, Json(json!({ "status": "stopping" }))).into_response(),
    }
}

/// `GET /settings`: tells QuestDB's clients to speak version 1 of their line protocol.
pub async fn settings() -> Response {
    Json(json!({ "config": { "line.proto.support.versions": [1] } })).into_response()
}

/// `GET /metrics`.
pub async fn metrics(State(app): State<Arc<App>>) -> Response {
    ([("content-type", "text/plain; version=0.0.4; charset=utf-8")], app.metrics.render()).into_response()
}

/// Any path not known.
pub async fn unknown(uri: Uri) -> Response {
    let path: String = uri.path().chars().take(128).collect();
    (StatusCode::NOT_FOUND, Json(json!({ "error": format!("no endpoint {path:?}: GET / lists them") }))).into_response()
}

/// A known path, asked in a way it does not answer.
pub async fn wrong_method(method: Method, uri: Uri) -> Response {
    let error = format!("{} is not answered to {method}: GET / lists the endpoints", uri.path());
    (StatusCode::METHOD_NOT_ALLOWED, Json(json!({ "error": error }))).into_response()
}
