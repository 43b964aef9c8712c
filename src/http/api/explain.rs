//! The dry run of a write: what would become of each line, without keeping any.

use std::sync::Arc;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use super::write::WriteTerms;
use crate::bucket::bucket_name;
use crate::http::App;
use crate::http::endpoints::Endpoint;
use crate::http::errors::{ApiError, ApiResult, Dialect, REJECTED, is_forbidden};
use crate::http::pairs::Pairs;
use crate::http::parameters::Sender;
use crate::http::render::json;
use crate::http::server::body;
use crate::ingest::{ExplainedField, ExplainedPoint, Explanation, IngestError};
use crate::reading::time::rfc3339;
use crate::reading::{Hour, Limits, Reason, Rejection};
use crate::wire::json::Items;
use crate::wire::line_protocol::Lines;

/// Most bytes of a body that is explained.
const BODY_BYTES: usize = 256 << 10;
/// The memory of an explanation per byte of its body, measured with lines of very many short fields.
const MEMORY_PER_BYTE: usize = 48;

/// `POST /api/v1/explain`.
pub async fn explain(
    State(app): State<Arc<App>>,
    Extension(sender): Extension<Sender>,
    Extension(endpoint): Extension<&'static Endpoint>,
    uri: Uri,
    headers: HeaderMap,
    mut body: Body,
) -> Response {
    match explained(&app, &sender, endpoint, &uri, &headers, &mut body).await {
        Ok(explained) => Json(explained).into_response(),
        Err(error) => {
            if !matches!(error, ApiError::BodyTimeout) {
                body::discard(&app, &headers, body).await;
            }
            error.respond(Dialect::Native)
        }
    }
}

async fn explained(
    app: &App,
    sender: &Sender,
    endpoint: &Endpoint,
    uri: &Uri,
    headers: &HeaderMap,
    body: &mut Body,
) -> ApiResult<Value> {
    let known: Vec<&str> = endpoint.parameters().collect();
    let parameters = Pairs::only_known(Pairs::of_url(uri)?, &known)?;
    // Whoever may not write learns nothing, whatever the body is.
    let of_lines = WriteTerms::new(&parameters, headers, Dialect::V1, &sender.by);
    let of_json = WriteTerms::new(&parameters, headers, Dialect::Native, &sender.by);
    if let (Err(error), Err(_)) = (&of_lines, &of_json) {
        return Err(error.clone());
    }
    let (bytes, mut admission) = body::read(app, headers, body).await?;
    if bytes.len() > BODY_BYTES {
        let key = "what a dry run explains at once";
        return Err(IngestError::TooLarge { limit: BODY_BYTES, key }.into());
    }
    admission.grow(bytes.len() * MEMORY_PER_BYTE)?;
    let is_json = is_json(&bytes);
    let terms = if is_json { of_json } else { of_lines }?;
    let (arrival, precision, length) = (terms.arrival(&bytes, sender), terms.precision, bytes.len());
    let explanation = match is_json {
        true => app.ingest.explain(arrival, |limits: Limits| Items::new(&bytes, precision, limits), length).await,
        false => app.ingest.explain(arrival, |limits: Limits| Lines::new(&bytes, precision, limits), length).await,
    };
    match explanation {
        Ok(explanation) => Ok(shown(&explanation, is_json)),
        Err(error @ (IngestError::LinesToExplain { .. } | IngestError::TooLarge { .. })) => Err(error.into()),
        Err(error) => {
            let charge = json!({ "readings": 0, "new_sensors": 0, "passes": false });
            Ok(json!({ "write": refused(&error.into()), "accepted": 0, "quota": charge, "warnings": [], "lines": [] }))
        }
    }
}

/// Whether a body is JSON: one of line protocol begins with a brace only if somebody has named a measurement so.
fn is_json(body: &Bytes) -> bool {
    body.iter().find(|byte| !byte.is_ascii_whitespace()).is_some_and(|byte| matches!(byte, b'{' | b'['))
}

fn refused(error: &ApiError) -> Value {
    json!({ "status": error.status().as_u16(), "code": error.code(), "error": error.to_string() })
}

/// The explanation, with the status that the write would be answered with.
fn shown(explanation: &Explanation, is_json: bool) -> Value {
    let Explanation { accepted, rejected, refused: error, .. } = explanation;
    let write = match error {
        Some(error) => refused(&error.clone().into()),
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
        "new_database": explanation.new_database,
        "accepted": accepted,
        "rejected": rejected.count,
        "quota": { "readings": accepted, "new_sensors": new_sensors, "passes": error.is_none() },
        "warnings": explanation.warnings,
        "lines": explanation.points.iter().map(|point| line(explanation, point)).collect::<Vec<_>>(),
    })
}

fn line(explanation: &Explanation, point: &ExplainedPoint) -> Value {
    let rejections = &point.rejections;
    let mut line = json!({
        "line": point.number, "kept": point.time.is_some(), "warnings": point.warnings,
        "rejected": rejections.iter().map(rejection).collect::<Vec<_>>(),
    });
    let Some(sensor) = &point.sensor else { return line };
    let is_new = explanation.new_sensors.contains(&sensor.key);
    let is_barred = rejections.iter().any(|rejection| matches!(rejection.reason, Reason::OtherSensor { .. }));
    let is_told = !is_barred && (is_new || explanation.store_asked);
    line["sensor"] = json!(sensor.key);
    line["measurement"] = json!(sensor.measurement);
    line["tags"] = sensor.tags.iter().map(|(key, value)| (key.to_string(), json!(value))).collect::<Map<_, _>>().into();
    line["new_sensor"] = json!(is_told.then_some(is_new));
    line["fields"] = point.fields.iter().map(field).collect();
    if let Some(time) = point.time {
        let hour = Hour::of(time);
        let start = rfc3339(hour.start_ns());
        let id = bucket_name(&sensor.key, hour);
        line["time"] = json!(rfc3339(time));
        line["ns"] = json!(time);
        line["undated"] = json!(point.undated);
        line["bucket"] = json!({ "database": explanation.database, "hour": start, "id": id });
    }
    line
}

fn rejection(rejection: &Rejection) -> Value {
    let Rejection { column, text, reason, .. } = rejection;
    json!({ "column": column, "code": reason.label(), "reason": reason.to_string(), "text": text })
}

fn field(field: &ExplainedField) -> Value {
    let ExplainedField { name, value, known, kept } = field;
    let mut text = String::new();
    json::value(&mut text, value);
    let shown: Value = serde_json::from_str(&text).unwrap_or_default();
    let family = value.family();
    json!({
        "name": name, "value": shown, "type": value.type_name(), "family": family.name(), "kept": kept,
        "known_family": known.map(|known| known.name()), "conflict": known.is_some_and(|known| known != family),
    })
}
