//! Metadata of sensors: one sensor's as JSON, many as NDJSON or CSV.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use super::write::ack_level;
use crate::access::Caller;
use crate::bucket::Meta;
use crate::clock::now_ns;
use crate::http::errors::{ApiError, ApiResult, WARNING_HEADER, add_texts};
use crate::http::parameters::{InPath, Parameters};
use crate::http::render::json::{end_with_next, pair};
use crate::http::render::text::Text;
use crate::http::server::body;
use crate::ingest::{MetaArrival, MetaOutcome, MetaRefusal, MetaRequest, MetaUpdate};
use crate::kinds::KindFault;
use crate::reading::Sensor;

/// Most refusals that an answer names.
const REASONS: usize = 20;
/// Times the bytes of a body that its parsed lines take, about.
const PARSED: usize = 6;
/// Most bytes of a column's name; `limits.name_bytes` is at most as large.
const NAME_MAX: usize = 16 << 10;
/// The column of a CSV body that names the sensor.
const SENSOR: &str = "sensor";

/// `GET /api/v1/sensors/KEY/meta`.
pub async fn show(InPath(key): InPath<String>, parameters: Parameters) -> ApiResult<Response> {
    let sensor = parameters.pinned(parameters.key(&key)?)?;
    let database = parameters.database()?;
    Ok(told(parameters.app.ingest.sensor_meta(&database, &sensor).await?.json()))
}

/// The answer that tells metadata, with its ETag.
fn told(text: String) -> Response {
    let tag = tag_of(&text);
    let mut response = ([(header::CONTENT_TYPE, "application/json")], text).into_response();
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response
}

fn tag_of(text: &str) -> String {
    format!("\"{:016x}\"", rapidhash::v3::rapidhash_v3(text.as_bytes()))
}

/// Whether metadata is as the request's conditions say; it is without one.
fn is_as_known(headers: &HeaderMap, meta: &Meta) -> bool {
    let tag = tag_of(&meta.json());
    let sent = |name: HeaderName| {
        let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).map(str::trim)
    };
    let is_met =
        !headers.contains_key(header::IF_MATCH) || sent(header::IF_MATCH).any(|sent| sent == "*" || sent == tag);
    let is_other = |sent: &str| sent != tag && (sent != "*" || meta.is_without_values());
    is_met && sent(header::IF_NONE_MATCH).all(is_other)
}

/// Refuses conditions that cannot be judged, or whose answer would tell a caller what it may not read.
fn check_conditions(headers: &HeaderMap, by: &Caller, database: &str) -> ApiResult<()> {
    if let Some(name) =
        [header::IF_MODIFIED_SINCE, header::IF_UNMODIFIED_SINCE].iter().find(|name| headers.contains_key(*name))
    {
        return Err(ApiError::Bad(format!("the header {name} is not supported: send If-Match with an ETag")));
    }
    let has_some = [header::IF_MATCH, header::IF_NONE_MATCH].iter().any(|name| headers.contains_key(name));
    match has_some && !by.may_read(database) {
        true => Err(ApiError::Forbidden(format!("{} may not read database {database:?}, as If-Match asks", by.name()))),
        false => Ok(()),
    }
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
    let by = &parameters.sender.by;
    let sensor = parameters.pinned(parameters.key(&key)?)?;
    let database = writable(&parameters)?;
    check_conditions(&headers, by, &database)?;
    let (bytes, mut admission) = body::read(app, &headers, &mut body).await?;
    let most = app.ingest.meta_text_max();
    if bytes.len() > most {
        return Err(ApiError::Bad(format!("the body has more than {most} bytes")));
    }
    admission.grow(bytes.len().saturating_mul(PARSED)).map_err(ApiError::Ingest)?;
    let Ok(Value::Object(values)) = serde_json::from_slice(&bytes) else {
        return Err(ApiError::Bad("the body is no JSON object: send one such as {\"site\":\"lab\"}".to_owned()));
    };
    let arrival =
        MetaArrival { database: &database, received: now_ns(), by, ack: ack_level(None, &headers)?, is_dry: false };
    let update = if method == Method::PUT { MetaUpdate::Put(values) } else { MetaUpdate::Patch(values) };
    let request = MetaRequest { sensor, update };
    let (may, mut outcome) = (|meta: &Meta| is_as_known(&headers, meta), None);
    app.ingest.change_meta(arrival, std::iter::once((0, Ok(request))), may, |_, of| outcome = Some(of)).await?;
    match outcome {
        Some(Ok(MetaOutcome { values, unlike, .. })) => {
            // Who may only write is not told what there is.
            let response = match by.may_read(&database) {
                true => told(Value::Object(values).to_string()),
                false => StatusCode::NO_CONTENT.into_response(),
            };
            Ok(warned(response, usize::from(unlike.is_some()), unlike.as_ref()))
        }
        Some(Err(refused @ MetaRefusal::Changed { .. })) => Err(ApiError::Changed(refused.to_string())),
        Some(Err(refused @ MetaRefusal::Pinned { .. })) => Err(ApiError::Forbidden(refused.to_string())),
        Some(Err(refused @ MetaRefusal::TooManyRemoved { .. })) => Err(ApiError::Busy(refused.to_string())),
        Some(Err(refused)) => Err(ApiError::Bad(told_to(&refused, by, &database))),
        None => Err(ApiError::Bad("nothing was asked for".to_owned())),
    }
}

/// Adds the warning about metadata that is not as a kind says.
fn warned(mut response: Response, count: usize, first: Option<&KindFault>) -> Response {
    let Some(KindFault { kind, fault }) = first else { return response };
    let text = format!(
        "metadata of {count} sensors is not as their kinds say, of the first one because {fault} (kind {kind})"
    );
    add_texts(&mut response, WARNING_HEADER, &[text]);
    response
}

/// The database of a change, if the caller may write to it.
fn writable(parameters: &Parameters) -> ApiResult<String> {
    let by = &parameters.sender.by;
    let name = parameters.get("db").unwrap_or(crate::http::parameters::DEFAULT_DATABASE);
    match by.may_write(name) {
        true => Ok(name.to_owned()),
        false => Err(ApiError::Forbidden(format!("{} may not write to database {name:?}", by.name()))),
    }
}

/// `POST /api/v1/meta`: patches the metadata of many sensors.
pub async fn import(parameters: Parameters, headers: HeaderMap, mut body: Body) -> ApiResult<Response> {
    let app = &parameters.app;
    let by = &parameters.sender.by;
    let database = writable(&parameters)?;
    let is_dry = parameters.flag("dry_run")?;
    let (bytes, mut admission) = body::read(app, &headers, &mut body).await?;
    admission.grow(bytes.len().saturating_mul(PARSED)).map_err(ApiError::Ingest)?;
    let most = app.ingest.meta_text_max();
    let rows: Box<dyn Iterator<Item = Row> + Send> = match is_csv(&headers) {
        true => Box::new(of_csv(&bytes, most)?),
        false => Box::new(of_lines(&bytes, most)),
    };
    let rows = rows.map(|(line, row)| {
        let request = row.and_then(|(key, values)| {
            let sensor = parameters.key(&key).and_then(|sensor| parameters.pinned(sensor));
            let sensor = sensor.map_err(|error| error.to_string())?;
            Ok(MetaRequest { sensor, update: MetaUpdate::Patch(values) })
        });
        (line, request.map_err(MetaRefusal::Unreadable))
    });
    let arrival = MetaArrival { database: &database, received: now_ns(), by, ack: ack_level(None, &headers)?, is_dry };
    let mut told = Imported::default();
    let tell = |line, outcome| told.add((line, outcome), by, &database);
    app.ingest.change_meta(arrival, rows, |_| true, tell).await?;
    let (unlike, first) = (told.unlike, told.first_unlike.take());
    Ok(warned(told.answer(is_dry, by.may_read(&database)), unlike, first.as_ref()))
}

/// Whether a body is CSV by its type.
fn is_csv(headers: &HeaderMap) -> bool {
    let of = headers.get(header::CONTENT_TYPE).and_then(|of| of.to_str().ok()).unwrap_or_default();
    of.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("text/csv")
}

/// Why metadata is not changed, as the caller may know it: who may only write is not told what there is.
fn told_to(refused: &MetaRefusal, by: &Caller, database: &str) -> String {
    match refused {
        MetaRefusal::TooLarge { sensor, limit, .. } if !by.may_read(database) => {
            format!("the metadata of {sensor} would take more than {limit} bytes")
        }
        other => other.to_string(),
    }
}

/// What became of the lines of an import.
#[derive(Default)]
struct Imported {
    changed: usize,
    new: usize,
    unchanged: usize,
    rejected: usize,
    /// Why, of the first ones by their line.
    reasons: BTreeMap<usize, String>,
    /// Those that are not as their kinds say, and how the first one is not.
    unlike: usize,
    first_unlike: Option<KindFault>,
}

impl Imported {
    fn add(&mut self, (line, outcome): (usize, Result<MetaOutcome, MetaRefusal>), by: &Caller, database: &str) {
        match outcome {
            Ok(MetaOutcome { is_changed, is_new, unlike, .. }) => {
                self.changed += usize::from(is_changed);
                self.unchanged += usize::from(!is_changed);
                self.new += usize::from(is_changed && is_new);
                self.unlike += usize::from(unlike.is_some());
                self.first_unlike = self.first_unlike.take().or(unlike);
            }
            Err(why) => {
                self.rejected += 1;
                self.reasons.insert(line, told_to(&why, by, database));
                if self.reasons.len() > REASONS {
                    self.reasons.pop_last();
                }
            }
        }
    }

    /// Who may only write is not told what there is: all that is taken is changed.
    fn answer(self, is_dry: bool, may_read: bool) -> Response {
        let reasons: Vec<Value> =
            self.reasons.iter().map(|(line, why)| json!({ "line": line, "error": why })).collect();
        let mut told =
            json!({ "dry_run": is_dry, "changed": self.changed, "rejected": self.rejected, "reasons": reasons });
        match may_read {
            true => (told["new"], told["unchanged"]) = (json!(self.new), json!(self.unchanged)),
            false => told["changed"] = json!(self.changed + self.unchanged),
        }
        let mut status = StatusCode::OK;
        if self.rejected > 0 {
            status = StatusCode::BAD_REQUEST;
            let others = if is_dry { "would be taken" } else { "were taken" };
            told["error"] = json!(format!("{} lines were refused; the others {others}", self.rejected));
            told["code"] = json!("invalid");
        }
        (status, axum::Json(told)).into_response()
    }
}

/// A line's number, and its sensor and values.
type Row = (usize, Result<(String, Map<String, Value>), String>);

/// Lines such as `{"sensor":"climate,sensor=s1","meta":{"site":"lab"}}`, of at most so many bytes.
fn of_lines(body: &[u8], most: usize) -> impl Iterator<Item = Row> {
    let row = |line: &[u8]| match serde_json::from_slice(line) {
        Ok(Value::Object(mut of)) if of.len() == 2 => match (of.remove(SENSOR), of.remove("meta")) {
            (Some(Value::String(key)), Some(Value::Object(values))) => Ok((key, values)),
            _ => Err("expected the members \"sensor\", a text, and \"meta\", an object".to_owned()),
        },
        Ok(_) => Err("expected an object with the members \"sensor\" and \"meta\"".to_owned()),
        Err(error) => Err(format!("it is no JSON: {error}")),
    };
    let lines = body.split(|byte| *byte == b'\n').enumerate().filter(|(_, line)| !line.trim_ascii().is_empty());
    lines.map(move |(at, line)| (at + 1, if line.len() > most { Err(too_long(most)) } else { row(line) }))
}

fn too_long(most: usize) -> String {
    format!("it has more than {most} bytes")
}

/// Rows of at most so many bytes below a header of names, of which one is `sensor`. An empty cell says nothing of its name; one that is
/// JSON, but not `null`, is that, everything else is text.
fn of_csv(body: &[u8], most: usize) -> ApiResult<impl Iterator<Item = Row>> {
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(body);
    let names = reader.headers().map_err(|error| ApiError::Bad(format!("the CSV's header: {error}")))?.clone();
    let Some(of_sensor) = names.iter().position(|name| name == SENSOR) else {
        return Err(ApiError::Bad("the CSV has no column named sensor: name the columns in the first line".to_owned()));
    };
    // Each row that has a value of it repeats the name.
    if let Some(name) = names.iter().find(|name| name.len() > NAME_MAX) {
        let start: String = name.chars().take(20).collect();
        return Err(ApiError::Bad(format!("the CSV's header: the name {start:?}… has more than {NAME_MAX} bytes")));
    }
    let mut lines = Lines { body, line: 1, byte: 0 };
    Ok(reader.into_records().map(move |record| {
        let record = match record {
            Ok(record) => record,
            Err(error) => return (lines.at(error.position()), Err(error.to_string())),
        };
        let line = lines.at(record.position());
        if record.as_slice().len() > most {
            return (line, Err(too_long(most)));
        }
        if record.len() != names.len() {
            return (line, Err(format!("it has {} cells, where the header has {}", record.len(), names.len())));
        }
        let cells = names.iter().zip(&record).enumerate();
        let said = cells.filter(|(at, (_, cell))| *at != of_sensor && !cell.is_empty());
        let values = said.map(|(_, (name, cell))| (name.to_owned(), value_of(cell))).collect();
        (line, Ok((record[of_sensor].to_owned(), values)))
    }))
}

/// Counts lines: the reader's own count is one behind where lines end with CR LF.
struct Lines<'a> {
    body: &'a [u8],
    line: usize,
    byte: usize,
}

impl Lines<'_> {
    /// The line of a record that comes later than the one before.
    fn at(&mut self, position: Option<&csv::Position>) -> usize {
        let start = position.and_then(|at| usize::try_from(at.byte()).ok()).unwrap_or(self.byte);
        let is_end = |byte: &&u8| matches!(byte, b'\r' | b'\n');
        let ends = self.body.get(start..).unwrap_or_default().iter().take_while(is_end).count();
        let passed = self.body.get(self.byte..start + ends).unwrap_or_default();
        self.line += passed.iter().filter(|byte| **byte == b'\n').count();
        self.byte = start + ends;
        self.line
    }
}

fn value_of(cell: &str) -> Value {
    match serde_json::from_str(cell) {
        Ok(Value::Null) | Err(_) => Value::from(cell),
        Ok(value) => value,
    }
}

/// The cell of CSV that a value is read from again: text as it is, unless it is empty or would be read as something else. Null, which
/// earlier versions stored, is none.
#[must_use]
pub fn cell_of(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) if !text.is_empty() && value_of(text) == *value => text.clone(),
        other => other.to_string(),
    }
}

/// `GET /api/v1/meta`: the metadata of all sensors that have some, in lines as [`import`] takes them.
pub async fn export(parameters: Parameters) -> ApiResult<Response> {
    let app = &*parameters.app;
    let budget = parameters.budget();
    let max = app.settings.query.sensors_max;
    let database = parameters.database()?;
    let limit = parameters.limit(max, max)?;
    let settings = app.query.settings();
    let shown = |stored: &Arc<Sensor>| {
        let shown = settings.renames(&database).and_then(|renames| renames.shown(stored));
        shown.map_or_else(|| stored.clone(), Arc::new)
    };
    let is_theirs = |sensor: &Sensor| parameters.pins().iter().all(|pin| pin.matches(sensor));
    let takes = |document: &crate::bucket::SensorDocument| {
        !document.meta.is_without_values() && is_theirs(&shown(&document.sensor))
    };
    let after = parameters.get("cursor").map(str::to_owned);
    let all = super::sensors::all_of(app, &budget, (database.clone(), after, limit), takes);
    let (documents, next, mut held) = all.await?;
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
    fn rows_of_csv_are_patches_of_what_they_name() {
        let body = "site,sensor,floor,serial\r\nlab,\"m,s=1\",3,007\n,\"m,s=2\",true,\"a \"\"b\"\"\"\nx,m\n";
        let rows: Vec<Row> = of_csv(body.as_bytes(), 100).unwrap().collect();
        let map = |json: &str| serde_json::from_str::<Map<String, Value>>(json).unwrap();
        assert_eq!(rows[0], (2, Ok(("m,s=1".to_owned(), map(r#"{"site":"lab","floor":3,"serial":"007"}"#)))));
        assert_eq!(rows[1], (3, Ok(("m,s=2".to_owned(), map(r#"{"floor":true,"serial":"a \"b\""}"#)))));
        assert!(rows[2].0 == 4 && rows[2].1.is_err() && rows.len() == 3, "{rows:?}");
        assert!(of_csv(b"site,floor\n", 100).is_err());
        let wide = format!("sensor,{}\nm,1", "n".repeat(NAME_MAX + 1));
        assert!(of_csv(wide.as_bytes(), 10_000).is_err(), "each row would repeat it");
        let long: Vec<Row> = of_csv(b"sensor,site\nm,laboratory\nm,lab", 8).unwrap().collect();
        assert!(long[0].1.is_err() && long[1].1.is_ok(), "{long:?}");
    }

    #[test]
    fn every_value_is_read_from_its_cell_again() {
        let texts =
            ["lab", "007", "7", "true", "null", "", " 7", "\"lab\"", "{}", "[1]", "a\r\nb", "-", "NaN", "\"a \"b\"\""];
        let others = r#"[7, -1.5e300, 0.1, 18446744073709551615, true, {"x":[1,null]}, []]"#;
        let others: Vec<Value> = serde_json::from_str(others).unwrap();
        for value in texts.into_iter().map(Value::from).chain(others) {
            let cell = cell_of(&value);
            assert!(!cell.is_empty() && value_of(&cell) == value, "{value} is written as {cell}");
        }
        let plain =
            ["lab", "007", "null", "a\r\nb", "-", "NaN", "\"a \"b\"\""].map(|text| cell_of(&Value::from(text)) == text);
        assert_eq!(plain, [true; 7], "what is text anyway stays as it is");
    }

    #[test]
    fn a_line_names_a_sensor_and_its_values() {
        let lines = b"{\"sensor\":\"m\",\"meta\":{\"a\":null}}\n\n{\"sensor\":\"m\"}\n{\"sensor\":1,\"meta\":{}}\nx\n";
        let rows: Vec<Row> = of_lines(lines, 100).collect();
        assert_eq!(
            rows.iter().map(|(line, row)| (*line, row.is_ok())).collect::<Vec<_>>(),
            [(1, true), (3, false), (4, false), (5, false)]
        );
    }
}
