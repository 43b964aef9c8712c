//! The dry run of a write: the outcome of each line, without storing it.

use std::sync::Arc;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use super::write::WriteOptions;
use crate::bucket::bucket_name;
use crate::http::App;
use crate::http::endpoints::Endpoint;
use crate::http::errors::{ApiError, ApiResult, Dialect, REJECTED, is_forbidden};
use crate::http::pairs::Pairs;
use crate::http::parameters::Requester;
use crate::http::render::json;
use crate::http::server::body::{self, BodyLimit};
use crate::ingest::{ExplainedField, ExplainedPoint, Explanation, IngestError};
use crate::mapping;
use crate::reading::time::rfc3339;
use crate::reading::{Hour, Limits, Reason, Rejection};
use crate::wire::json::Items;
use crate::wire::line_protocol::Lines;

/// Maximum size of the body, in bytes.
const BODY_BYTES_MAX: usize = 64 << 10;
/// Memory of an explanation per byte of the body, measured with lines of many short fields that are all rejected.
const MEMORY_PER_BYTE: usize = 800;

/// `POST /api/v1/explain`.
pub async fn explain(
    State(app): State<Arc<App>>,
    Extension(requester): Extension<Requester>,
    Extension(endpoint): Extension<&'static Endpoint>,
    uri: Uri,
    headers: HeaderMap,
    mut body: Body,
) -> Response {
    match explain_body(&app, &requester, endpoint, &uri, &headers, &mut body).await {
        Ok(explained) => Json(explained).into_response(),
        Err(error) => {
            if !matches!(error, ApiError::BodyTimeout) {
                body::discard(&app, &headers, &mut body).await;
            }
            error.respond(Dialect::Native)
        }
    }
}

async fn explain_body(
    app: &App,
    requester: &Requester,
    endpoint: &Endpoint,
    uri: &Uri,
    headers: &HeaderMap,
    body: &mut Body,
) -> ApiResult<Value> {
    let known: Vec<&str> = endpoint.parameters().collect();
    let parameters = Pairs::strict(Pairs::parse_url(uri)?, &known)?;
    // Check the rights before the body: a caller that may not write must learn nothing.
    let options = |dialect| WriteOptions::new(app, &parameters, headers, dialect, &requester.caller, None);
    let lines_options = options(Dialect::V1).await;
    let json_options = options(Dialect::Native).await;
    if let (Err(error), Err(_)) = (&lines_options, &json_options) {
        return Err(error.clone());
    }
    let limit = BodyLimit { bytes: BODY_BYTES_MAX, key: "the maximum of a dry run" };
    let (bytes, mut admission) = body::read_parameters(app, &requester.caller, headers, body, limit).await?;
    admission.grow(bytes.len() * MEMORY_PER_BYTE)?;
    let is_json = is_json(&bytes) || parameters.get("mapping").is_some();
    let options = if is_json { json_options } else { lines_options }?;
    let arrival = options.arrival(&bytes, requester);
    let precision = options.precision;
    let length = bytes.len();
    let explanation = if let Some(mapping) = &options.mapping {
        let topic = options.topic.as_deref();
        let points = |limits| mapping::apply(mapping, topic, &bytes, limits, arrival.received);
        app.ingest.explain(arrival, points, length).await
    } else if is_json {
        app.ingest.explain(arrival, |limits: Limits| Items::new(&bytes, precision, limits), length).await
    } else {
        app.ingest.explain(arrival, |limits: Limits| Lines::new(&bytes, precision, limits), length).await
    };
    match explanation {
        Ok(explanation) => Ok(explanation_json(&explanation, is_json)),
        Err(error @ (IngestError::LinesToExplain { .. } | IngestError::TooLarge { .. })) => Err(error.into()),
        Err(error) => {
            let quota = json!({ "readings": 0, "new_sensors": 0, "passes": false });
            Ok(
                json!({ "write": error_json(&error.into()), "accepted": 0, "quota": quota, "warnings": [], "lines": [] }),
            )
        }
    }
}

/// Returns true if a body is JSON. Line protocol begins with a brace or bracket only if the measurement does.
fn is_json(body: &Bytes) -> bool {
    body.iter().find(|byte| !byte.is_ascii_whitespace()).is_some_and(|byte| matches!(byte, b'{' | b'['))
}

fn error_json(error: &ApiError) -> Value {
    json!({ "status": error.status().as_u16(), "code": error.code(), "error": error.to_string() })
}

/// The explanation, with the status that the write would get.
fn explanation_json(explanation: &Explanation, is_json: bool) -> Value {
    let Explanation { accepted, rejected, refused: error, .. } = explanation;
    let write = match error {
        Some(error) => error_json(&error.clone().into()),
        None if rejected.count == 0 => {
            json!({ "status": if is_json { 200 } else { 204 }, "code": null, "error": null })
        }
        None => {
            let status = if is_forbidden(*accepted, rejected) { 403 } else { 400 };
            json!({ "status": status, "code": REJECTED, "error": format!("{} rejected", rejected.count) })
        }
    };
    let new_sensors = explanation.sensors_charged;
    json!({
        "write": write,
        "database": explanation.database,
        "new_database": explanation.is_new_database,
        "accepted": accepted,
        "rejected": rejected.count,
        "quota": { "readings": accepted, "new_sensors": new_sensors, "passes": error.is_none() },
        "warnings": explanation.warnings,
        "lines": explanation.points.iter().map(|point| line_json(explanation, point)).collect::<Vec<_>>(),
    })
}

fn line_json(explanation: &Explanation, point: &ExplainedPoint) -> Value {
    let rejections = &point.rejections;
    let mut line = json!({
        "line": point.number, "kept": point.time.is_some(), "warnings": point.warnings,
        "rejected": rejections.iter().map(rejection_json).collect::<Vec<_>>(),
    });
    let Some(sensor) = &point.sensor else { return line };
    let is_new = explanation.new_sensors.contains(&sensor.key);
    // A pinned token must not learn if a sensor outside its pins exists.
    let is_outside_pins = rejections.iter().any(|rejection| matches!(rejection.reason, Reason::OtherSensor { .. }));
    let is_known = !is_outside_pins && (is_new || explanation.was_store_asked);
    line["sensor"] = json!(sensor.key);
    line["measurement"] = json!(sensor.measurement);
    line["tags"] = sensor.tags.iter().map(|(key, value)| (key.to_string(), json!(value))).collect::<Map<_, _>>().into();
    line["new_sensor"] = json!(is_known.then_some(is_new));
    line["fields"] = point.fields.iter().map(field_json).collect();
    if let Some(time) = point.time {
        let hour = Hour::from_ns(time);
        let start = rfc3339(hour.start_ns());
        let id = bucket_name(&sensor.key, hour);
        line["time"] = json!(rfc3339(time));
        line["ns"] = json!(time);
        line["undated"] = json!(point.is_undated);
        line["bucket"] = json!({ "database": explanation.database, "hour": start, "id": id });
    }
    line
}

fn rejection_json(rejection: &Rejection) -> Value {
    let Rejection { column, text, reason, .. } = rejection;
    json!({ "column": column, "code": reason.label(), "reason": reason.to_string(), "text": text })
}

fn field_json(field: &ExplainedField) -> Value {
    let ExplainedField { name, value, family: known, is_kept: kept } = field;
    let mut text = String::new();
    json::value(&mut text, value);
    let shown: Value = serde_json::from_str(&text).unwrap_or_default();
    let family = value.family();
    json!({
        "name": name, "value": shown, "type": value.type_name(), "family": family.name(), "kept": kept,
        "known_family": known.map(|known| known.name()), "conflict": known.is_some_and(|known| known != family),
    })
}
