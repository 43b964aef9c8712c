//! The instances of a cluster, and answers that lack what one of them has not stored.

use std::time::Instant;

use axum::Json;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use serde_json::{Value, json};

use crate::bucket::UnflushedError;
use crate::cluster::{Cluster, Member};
use crate::http::App;
use crate::http::errors::{ApiError, ApiResult, Dialect};
use crate::http::parameters::{InPath, Parameters};
use crate::query::QueryError;

/// In a request, `refuse` asks for 503 instead of an answer that lacks readings. In an answer, the instances that did not
/// answer.
pub const INCOMPLETE_HEADER: &str = "x-hourglass-incomplete";

/// `GET /api/v1/instances`.
pub async fn list(parameters: Parameters) -> Json<Value> {
    let members = parameters.app.cluster.as_deref().map(Cluster::members).unwrap_or_default();
    Json(json!({ "instances": members.iter().map(instance).collect::<Vec<Value>>() }))
}

/// `POST /api/v1/instances/drain`: the answer precedes the end of the process.
pub async fn drain(parameters: Parameters) -> ApiResult<StatusCode> {
    cluster(&parameters.app)?.drain();
    parameters.requester.note(&parameters.app, "DRAIN INSTANCE".to_owned(), "", "begun");
    Ok(StatusCode::ACCEPTED)
}

/// `DELETE /api/v1/instances/ID`: gives up an instance that is gone.
pub async fn retire(parameters: Parameters, InPath(id): InPath<String>) -> ApiResult<StatusCode> {
    let unknown = || ApiError::NotFound(format!("there is no instance {id:?}: list them with GET /api/v1/instances"));
    let folder = u64::from_str_radix(&id, 16).map_err(|_| unknown())?;
    let is_retired = cluster(&parameters.app)?.retire(folder).await.ok_or_else(unknown)?;
    parameters.requester.note(
        &parameters.app,
        format!("RETIRE INSTANCE {id}"),
        "",
        if is_retired { "done" } else { "refused" },
    );
    if is_retired {
        return Ok(StatusCode::NO_CONTENT);
    }
    Err(ApiError::Conflict(format!("instance {id} is alive, or was until a moment ago: stop it, wait, and try again")))
}

fn cluster(app: &App) -> ApiResult<&Cluster> {
    let none = || ApiError::Conflict("this instance is in no cluster: set cluster.listen".to_owned());
    app.cluster.as_deref().ok_or_else(none)
}

fn instance(member: &Member) -> Value {
    let Member { folder, start, address, is_self, is_active, is_left_out, suspected_by } = member;
    let hex = |folder: &u64| format!("{folder:016x}");
    let state = match (is_left_out, is_active, address) {
        (true, ..) => "missing",
        (_, true, _) => "active",
        (_, false, Some(_)) => "joining",
        (_, false, None) => "alone",
    };
    json!({
        "id": hex(folder), "start": start, "address": address, "self": is_self, "state": state,
        "suspected_by": suspected_by.iter().map(hex).collect::<Vec<_>>(),
    })
}

/// Returns true if a request asks for 503 instead of an incomplete answer.
pub fn refuses_incomplete(headers: &HeaderMap) -> bool {
    headers.get(INCOMPLETE_HEADER).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"refuse"))
}

/// Names the instances that were left out of an answer that began at `began`, or replaces it if the client refuses
/// incomplete ones.
pub fn mark_incomplete(
    cluster: &Cluster,
    mut response: Response,
    (began, refuses, dialect): (Instant, bool, Dialect),
) -> Response {
    let missing = cluster.left_out(began.elapsed()).join(", ");
    if missing.is_empty() || !response.status().is_success() {
        return response;
    }
    if refuses {
        return ApiError::from(QueryError::from(UnflushedError::Missing(missing))).respond(dialect);
    }
    let headers = response.headers_mut();
    headers.remove(header::ETAG);
    if let Ok(value) = HeaderValue::from_str(&missing) {
        headers.insert(INCOMPLETE_HEADER, value);
    }
    response
}
