//! Metadata of sensors: of one sensor as JSON, of many as NDJSON or CSV.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use super::sensors::{DocumentPage, find_documents};
use super::write::ack_level;
use crate::access::{Caller, Effect};
use crate::bucket::Meta;
use crate::clock::now_ns;
use crate::http::endpoints::is_csv;
use crate::http::errors::{ApiError, ApiResult, WARNING_HEADER, add_texts};
use crate::http::parameters::{InPath, Parameters};
use crate::http::render::json::{end_with_next, pair};
use crate::http::render::text::Text;
use crate::http::server::body::{self, BodyLimit};
use crate::ingest::{MetaArrival, MetaOutcome, MetaRefusal, MetaRequest, MetaUpdate};
use crate::kinds::KindFault;
use crate::reading::Sensor;

/// Maximum number of refused lines in an answer.
const REASONS_MAX: usize = 20;
/// Estimated memory of parsed lines per byte of the body.
const PARSED_FACTOR: usize = 6;
/// Maximum length of a column name, in bytes. `limits.name_bytes` is not larger.
const NAME_BYTES_MAX: usize = 16 << 10;
/// The CSV column, and JSON member, with the sensor key.
const SENSOR: &str = "sensor";

/// `GET /api/v1/sensors/KEY/meta`.
pub async fn show(InPath(key): InPath<String>, parameters: Parameters) -> ApiResult<Response> {
    let sensor = parameters.check_pins(parameters.key(&key)?)?;
    let database = parameters.database()?;
    Ok(meta_response(parameters.app.ingest.sensor_meta(&database, &sensor).await?.json()))
}

/// Makes an answer with metadata and its ETag.
fn meta_response(text: String) -> Response {
    let tag = etag(&text);
    let mut response = ([(header::CONTENT_TYPE, "application/json")], text).into_response();
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response
}

fn etag(text: &str) -> String {
    format!("\"{:016x}\"", rapidhash::v3::rapidhash_v3(text.as_bytes()))
}

/// Returns true if metadata meets the conditions `If-Match` and `If-None-Match` of a request.
fn meets_conditions(headers: &HeaderMap, meta: &Meta) -> bool {
    let tag = etag(&meta.json());
    let sent = |name: HeaderName| {
        let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).map(str::trim)
    };
    let is_matched =
        !headers.contains_key(header::IF_MATCH) || sent(header::IF_MATCH).any(|sent| sent == "*" || sent == tag);
    let is_other = |sent: &str| sent != tag && (sent != "*" || meta.is_without_values());
    is_matched && sent(header::IF_NONE_MATCH).all(is_other)
}

/// Refuses unsupported conditions, and conditions of a caller that may not read the metadata: the answer would reveal
/// it.
fn check_conditions(headers: &HeaderMap, caller: &Caller, database: &str) -> ApiResult<()> {
    if let Some(name) =
        [header::IF_MODIFIED_SINCE, header::IF_UNMODIFIED_SINCE].iter().find(|name| headers.contains_key(*name))
    {
        return Err(ApiError::Bad(format!("the header {name} is not supported: send If-Match with an ETag")));
    }
    let has_some = [header::IF_MATCH, header::IF_NONE_MATCH].iter().any(|name| headers.contains_key(name));
    if has_some && !caller.allows(Effect::Read, Some(database)) {
        let text = format!("{} may not read database {database:?}: send no If-Match or If-None-Match", caller.name());
        return Err(ApiError::Forbidden(text));
    }
    Ok(())
}

/// `PUT /api/v1/sensors/KEY/meta` replaces the metadata, `PATCH` takes a merge patch (RFC 7396).
pub async fn change(
    method: Method,
    InPath(key): InPath<String>,
    parameters: Parameters,
    headers: HeaderMap,
    mut body: Body,
) -> ApiResult<Response> {
    let app = &parameters.app;
    let caller = &parameters.requester.caller;
    let sensor = parameters.check_pins(parameters.key(&key)?)?;
    let database = parameters.stored_database()?;
    check_conditions(&headers, caller, &database)?;
    let limit = BodyLimit { bytes: app.ingest.meta_text_max(), key: "the maximum of metadata" };
    let (bytes, mut admission) = body::read_parameters(app, caller, &headers, &mut body, limit).await?;
    admission.grow(bytes.len().saturating_mul(PARSED_FACTOR)).map_err(ApiError::Ingest)?;
    let Ok(Value::Object(values)) = serde_json::from_slice(&bytes) else {
        return Err(ApiError::Bad("the body is not a JSON object: send one such as {\"site\":\"lab\"}".to_owned()));
    };
    let arrival =
        MetaArrival { database: &database, received: now_ns(), caller, ack: ack_level(None, &headers)?, is_dry: false };
    let update = if method == Method::PUT { MetaUpdate::Put(values) } else { MetaUpdate::Patch(values) };
    let request = MetaRequest { sensor, update };
    let is_allowed = |meta: &Meta| meets_conditions(&headers, meta);
    let mut outcome = None;
    let on_result = |_, result| outcome = Some(result);
    app.ingest.change_meta(arrival, std::iter::once((0, Ok(request))), is_allowed, on_result).await?;
    match outcome {
        Some(Ok(MetaOutcome { values, unlike, .. })) => {
            // A write-only token must not learn stored values.
            let response = if caller.allows(Effect::Read, Some(&database)) {
                meta_response(Value::Object(values).to_string())
            } else {
                StatusCode::NO_CONTENT.into_response()
            };
            Ok(with_kind_warning(response, usize::from(unlike.is_some()), unlike.as_ref()))
        }
        Some(Err(refused @ MetaRefusal::Changed { .. })) => Err(ApiError::Changed(refused.to_string())),
        Some(Err(refused @ MetaRefusal::Pinned { .. })) => Err(ApiError::Forbidden(refused.to_string())),
        Some(Err(refused @ MetaRefusal::TooManyRemoved { .. })) => Err(ApiError::Busy(refused.to_string())),
        Some(Err(refused)) => Err(ApiError::Bad(refusal_text(&refused, caller, &database))),
        None => Err(ApiError::Bad("the request has no change".to_owned())),
    }
}

/// Adds a warning about metadata that violates the schema of a kind.
fn with_kind_warning(mut response: Response, count: usize, first: Option<&KindFault>) -> Response {
    let Some(KindFault { kind, fault }) = first else { return response };
    let text = format!(
        "metadata of {count} sensors violates the schema of their kind; the first because {fault} (kind {kind})"
    );
    add_texts(&mut response, WARNING_HEADER, &[text]);
    response
}

/// `POST /api/v1/meta`: patches the metadata of many sensors.
pub async fn import(parameters: Parameters, headers: HeaderMap, mut body: Body) -> ApiResult<Response> {
    let app = &parameters.app;
    let caller = &parameters.requester.caller;
    let database = parameters.stored_database()?;
    let is_dry = parameters.flag("dry_run")?;
    let (bytes, mut admission) = body::read(app, caller, &headers, &mut body).await?;
    admission.grow(bytes.len().saturating_mul(PARSED_FACTOR)).map_err(ApiError::Ingest)?;
    let row_bytes_max = app.ingest.meta_text_max();
    let rows: Box<dyn Iterator<Item = Row> + Send> = if is_csv(&headers) {
        Box::new(parse_csv(&bytes, row_bytes_max)?)
    } else {
        Box::new(parse_lines(&bytes, row_bytes_max))
    };
    let rows = rows.map(|(line, row)| {
        let request = row.and_then(|(key, values)| {
            let sensor = parameters.key(&key).and_then(|sensor| parameters.check_pins(sensor));
            let sensor = sensor.map_err(|error| error.to_string())?;
            Ok(MetaRequest { sensor, update: MetaUpdate::Patch(values) })
        });
        (line, request.map_err(MetaRefusal::Unreadable))
    });
    let arrival =
        MetaArrival { database: &database, received: now_ns(), caller, ack: ack_level(None, &headers)?, is_dry };
    let mut imported = ImportOutcome::default();
    let tell = |line, outcome| imported.add(line, outcome, caller, &database);
    app.ingest.change_meta(arrival, rows, |_| true, tell).await?;
    let faulty = imported.faulty;
    let first_fault = imported.first_fault.take();
    Ok(with_kind_warning(
        imported.respond(is_dry, caller.allows(Effect::Read, Some(&database))),
        faulty,
        first_fault.as_ref(),
    ))
}

/// Returns the text of a refusal. A write-only token must not learn the size of stored metadata.
fn refusal_text(refused: &MetaRefusal, caller: &Caller, database: &str) -> String {
    match refused {
        MetaRefusal::TooLarge { sensor, limit, .. } if !caller.allows(Effect::Read, Some(database)) => {
            format!("metadata of {sensor} exceeds the limit of {limit} bytes")
        }
        other => other.to_string(),
    }
}

/// The outcome of an import.
#[derive(Default)]
struct ImportOutcome {
    changed: usize,
    new: usize,
    unchanged: usize,
    rejected: usize,
    /// Reasons of the first rejected lines, by line number.
    reasons: BTreeMap<usize, String>,
    /// Sensors whose metadata violates the schema of their kind.
    faulty: usize,
    first_fault: Option<KindFault>,
}

impl ImportOutcome {
    fn add(&mut self, line: usize, outcome: Result<MetaOutcome, MetaRefusal>, caller: &Caller, database: &str) {
        match outcome {
            Ok(MetaOutcome { is_changed, is_new, unlike, .. }) => {
                self.changed += usize::from(is_changed);
                self.unchanged += usize::from(!is_changed);
                self.new += usize::from(is_changed && is_new);
                self.faulty += usize::from(unlike.is_some());
                self.first_fault = self.first_fault.take().or(unlike);
            }
            Err(refusal) => {
                self.rejected += 1;
                self.reasons.insert(line, refusal_text(&refusal, caller, database));
                if self.reasons.len() > REASONS_MAX {
                    self.reasons.pop_last();
                }
            }
        }
    }

    /// Makes the answer. A write-only token must not learn if the metadata existed, so all accepted lines count as
    /// changed.
    fn respond(self, is_dry: bool, can_read: bool) -> Response {
        let reasons: Vec<Value> =
            self.reasons.iter().map(|(line, reason)| json!({ "line": line, "error": reason })).collect();
        let mut body =
            json!({ "dry_run": is_dry, "changed": self.changed, "rejected": self.rejected, "reasons": reasons });
        if can_read {
            body["new"] = json!(self.new);
            body["unchanged"] = json!(self.unchanged);
        } else {
            body["changed"] = json!(self.changed + self.unchanged);
        }
        let mut status = StatusCode::OK;
        if self.rejected > 0 {
            status = StatusCode::BAD_REQUEST;
            let others = if is_dry { "would be accepted" } else { "were accepted" };
            body["error"] = json!(format!("{} lines were rejected; the others {others}", self.rejected));
            body["code"] = json!("invalid");
        }
        (status, axum::Json(body)).into_response()
    }
}

/// A line number, and the sensor and values of the line or its error.
type Row = (usize, Result<(String, Map<String, Value>), String>);

/// Parses lines such as `{"sensor":"climate,sensor=s1","meta":{"site":"lab"}}`, of at most `row_bytes_max` bytes.
fn parse_lines(body: &[u8], row_bytes_max: usize) -> impl Iterator<Item = Row> {
    let row = |line: &[u8]| match serde_json::from_slice(line) {
        Ok(Value::Object(mut object)) if object.len() == 2 => match (object.remove(SENSOR), object.remove("meta")) {
            (Some(Value::String(key)), Some(Value::Object(values))) => Ok((key, values)),
            _ => Err("expected the members \"sensor\" (a string) and \"meta\" (an object)".to_owned()),
        },
        Ok(_) => Err("expected an object with the members \"sensor\" and \"meta\"".to_owned()),
        Err(error) => Err(format!("invalid JSON: {error}")),
    };
    let lines = body.split(|byte| *byte == b'\n').enumerate().filter(|(_, line)| !line.trim_ascii().is_empty());
    lines.map(move |(index, line)| {
        let row = if line.len() > row_bytes_max { Err(too_long(row_bytes_max)) } else { row(line) };
        (index + 1, row)
    })
}

fn too_long(row_bytes_max: usize) -> String {
    format!("the line has more than {row_bytes_max} bytes")
}

/// Parses CSV rows of at most `row_bytes_max` bytes. The header row has the metadata names and one column `sensor`. An
/// empty cell leaves its name unchanged. A cell with valid JSON other than `null` is that value; all others are
/// strings.
fn parse_csv(body: &[u8], row_bytes_max: usize) -> ApiResult<impl Iterator<Item = Row>> {
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(body);
    let names = reader.headers().map_err(|error| ApiError::Bad(format!("the CSV's header: {error}")))?.clone();
    let Some(sensor_column) = names.iter().position(|name| name == SENSOR) else {
        return Err(ApiError::Bad("the CSV has no column named sensor: name the columns in the first line".to_owned()));
    };
    // Parsed rows repeat the names, so limit their memory.
    if let Some(name) = names.iter().find(|name| name.len() > NAME_BYTES_MAX) {
        let start: String = name.chars().take(20).collect();
        return Err(ApiError::Bad(format!(
            "the CSV's header: the name {start:?}… has more than {NAME_BYTES_MAX} bytes"
        )));
    }
    let mut lines = LineCounter { body, line: 1, byte: 0 };
    Ok(reader.into_records().map(move |record| {
        let record = match record {
            Ok(record) => record,
            Err(error) => return (lines.line_number(error.position()), Err(error.to_string())),
        };
        let line = lines.line_number(record.position());
        if record.as_slice().len() > row_bytes_max {
            return (line, Err(too_long(row_bytes_max)));
        }
        if record.len() != names.len() {
            return (line, Err(format!("the row has {} cells, but the header has {}", record.len(), names.len())));
        }
        let cells = names.iter().zip(&record).enumerate();
        let set = cells.filter(|(column, (_, cell))| *column != sensor_column && !cell.is_empty());
        let values = set.map(|(_, (name, cell))| (name.to_owned(), parse_cell(cell))).collect();
        (line, Ok((record[sensor_column].to_owned(), values)))
    }))
}

/// Computes line numbers. Those of the CSV reader are off by one if lines end with CR LF.
struct LineCounter<'a> {
    body: &'a [u8],
    line: usize,
    byte: usize,
}

impl LineCounter<'_> {
    /// Returns the line of a record. Positions must increase from call to call.
    fn line_number(&mut self, position: Option<&csv::Position>) -> usize {
        let start = position.and_then(|position| usize::try_from(position.byte()).ok()).unwrap_or(self.byte);
        let is_end = |byte: &&u8| matches!(byte, b'\r' | b'\n');
        let ends = self.body.get(start..).unwrap_or_default().iter().take_while(is_end).count();
        let passed = self.body.get(self.byte..start + ends).unwrap_or_default();
        self.line += passed.iter().filter(|byte| **byte == b'\n').count();
        self.byte = start + ends;
        self.line
    }
}

/// Parses a CSV cell.
fn parse_cell(cell: &str) -> Value {
    match serde_json::from_str(cell) {
        Ok(Value::Null) | Err(_) => Value::from(cell),
        Ok(value) => value,
    }
}

/// Formats a value as a CSV cell that parses to the same value: strings without quotes, unless they are empty or would
/// parse as another value. Null, which earlier versions stored, is an empty cell.
#[must_use]
pub fn format_cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) if !text.is_empty() && parse_cell(text) == *value => text.clone(),
        other => other.to_string(),
    }
}

/// `GET /api/v1/meta`: the metadata of all sensors, in the format of [`import`].
pub async fn export(parameters: Parameters) -> ApiResult<Response> {
    let app = &*parameters.app;
    let budget = parameters.budget();
    let max = app.settings.query.sensors_max;
    let database = parameters.database()?;
    let limit = parameters.limit(max, max)?;
    let settings = app.query.settings();
    let shown = |stored: &Arc<Sensor>| {
        let shown = settings.renames(&database).and_then(|renames| renames.shown_sensor(stored));
        shown.map_or_else(|| stored.clone(), Arc::new)
    };
    let is_readable = |sensor: &Sensor| parameters.pins().iter().all(|pin| pin.matches(sensor));
    let is_match = |document: &crate::bucket::SensorDocument| {
        !document.meta.is_without_values() && is_readable(&shown(&document.sensor))
    };
    let cursor = parameters.get("cursor");
    let page = find_documents(app, &budget, &database, cursor, limit, is_match).await?;
    let DocumentPage { documents, next, mut held } = page;
    let metas: Vec<(Arc<Sensor>, Meta)> =
        documents.into_iter().map(|document| (shown(&document.sensor), document.meta)).collect();
    held.grow(metas.iter().map(|(sensor, meta)| sensor.key.len() + meta.memory()).sum())?;
    let mut text = Text::list(&budget, "sensors")?;
    for (sensor, meta) in &metas {
        text.item(|out| {
            out.push('{');
            pair(out, SENSOR, &sensor.key);
            out.push_str(",\"meta\":");
            out.push_str(&meta.json());
            out.push('}');
        })
        .await?;
    }
    end_with_next(&mut text.out, next.as_deref(), &[]);
    Ok(text.respond_json(&budget)?)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn csv_rows_are_patches() {
        let body = "site,sensor,floor,serial\r\nlab,\"m,s=1\",3,007\n,\"m,s=2\",true,\"a \"\"b\"\"\"\nx,m\n";
        let rows: Vec<Row> = parse_csv(body.as_bytes(), 100).unwrap().collect();
        let map = |json: &str| serde_json::from_str::<Map<String, Value>>(json).unwrap();
        assert_eq!(rows[0], (2, Ok(("m,s=1".to_owned(), map(r#"{"site":"lab","floor":3,"serial":"007"}"#)))));
        assert_eq!(rows[1], (3, Ok(("m,s=2".to_owned(), map(r#"{"floor":true,"serial":"a \"b\""}"#)))));
        assert!(rows[2].0 == 4 && rows[2].1.is_err() && rows.len() == 3, "{rows:?}");
        assert!(parse_csv(b"site,floor\n", 100).is_err());
        let wide = format!("sensor,{}\nm,1", "n".repeat(NAME_BYTES_MAX + 1));
        assert!(parse_csv(wide.as_bytes(), 10_000).is_err(), "the name is too long");
        let long: Vec<Row> = parse_csv(b"sensor,site\nm,laboratory\nm,lab", 8).unwrap().collect();
        assert!(long[0].1.is_err() && long[1].1.is_ok(), "{long:?}");
    }

    #[test]
    fn every_value_survives_a_cell() {
        let texts =
            ["lab", "007", "7", "true", "null", "", " 7", "\"lab\"", "{}", "[1]", "a\r\nb", "-", "NaN", "\"a \"b\"\""];
        let others = r#"[7, -1.5e300, 0.1, 18446744073709551615, true, {"x":[1,null]}, []]"#;
        let others: Vec<Value> = serde_json::from_str(others).unwrap();
        for value in texts.into_iter().map(Value::from).chain(others) {
            let cell = format_cell(&value);
            assert!(!cell.is_empty() && parse_cell(&cell) == value, "{value} is written as {cell}");
        }
        let plain = ["lab", "007", "null", "a\r\nb", "-", "NaN", "\"a \"b\"\""]
            .map(|text| format_cell(&Value::from(text)) == text);
        assert_eq!(plain, [true; 7], "plain strings are not quoted");
    }

    #[test]
    fn a_line_names_a_sensor_and_its_values() {
        let lines = b"{\"sensor\":\"m\",\"meta\":{\"a\":null}}\n\n{\"sensor\":\"m\"}\n{\"sensor\":1,\"meta\":{}}\nx\n";
        let rows: Vec<Row> = parse_lines(lines, 100).collect();
        assert_eq!(
            rows.iter().map(|(line, row)| (*line, row.is_ok())).collect::<Vec<_>>(),
            [(1, true), (3, false), (4, false), (5, false)]
        );
    }
}
