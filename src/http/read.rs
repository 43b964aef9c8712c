//! The read endpoints of the native API: parameters in, one call, an answer out.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};

use super::App;
use super::errors::{ApiError, Dialect};
use super::json::{self, Times};
use super::write::{DEFAULT_DATABASE, flag};
use crate::bucket::store::SensorFilter;
use crate::ingest::check_database_name;
use crate::query::Selection;
use crate::reading::Precision;
use crate::reading::time::{TIMESTAMP_MIN, parse_rfc3339};
use crate::wire::line_protocol::parse_series;

type Pairs = Result<Query<Vec<(String, String)>>, axum::extract::rejection::QueryRejection>;

/// Parameters by name, each at most once and each known to the endpoint.
struct Parameters(HashMap<String, String>);

impl Parameters {
    fn of(query: Pairs, known: &[&str]) -> Result<Self, ApiError> {
        let Query(pairs) = query.map_err(|error| ApiError::Bad(error.body_text()))?;
        let mut parameters = HashMap::new();
        for (name, value) in pairs {
            if !known.contains(&name.as_str()) {
                return Err(ApiError::Bad(format!("unknown parameter {name:?}; known are {}", known.join(", "))));
            }
            if parameters.insert(name.clone(), value).is_some() {
                return Err(ApiError::Bad(format!("parameter {name} is there twice")));
            }
        }
        Ok(Self(parameters))
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    fn database(&self) -> Result<String, ApiError> {
        let name = self.get("db").unwrap_or(DEFAULT_DATABASE);
        check_database_name(name)?;
        Ok(name.to_owned())
    }

    fn selection(&self, app: &App) -> Result<Selection, ApiError> {
        let text = self.get("sensor").ok_or_else(|| {
            ApiError::Bad("parameter sensor is missing: give its key, e.g. sensor=climate,sensor=temp-01".to_owned())
        })?;
        let sensor = parse_series(text, &app.options.limits)
            .map_err(|error| ApiError::Bad(format!("parameter sensor, column {}: {}", error.column, error.reason)))?;
        let range = self.time("from", TIMESTAMP_MIN)?..self.time("to", i64::MAX)?;
        if range.start > range.end {
            return Err(ApiError::Bad("parameter from lies after to".to_owned()));
        }
        let fields = self.get("fields").map(|names| names.split(',').map(str::to_owned).collect());
        let sensor = sensor.key.into();
        Ok(Selection { database: self.database()?, sensor, range, fields: fields.unwrap_or_default() })
    }

    fn time(&self, name: &str, default: i64) -> Result<i64, ApiError> {
        let Some(text) = self.get(name) else { return Ok(default) };
        let unit = self.get("precision").unwrap_or("auto");
        let unit = Precision::from_name(unit)
            .ok_or_else(|| ApiError::Bad(format!("invalid precision {unit:?} (use auto, n, u, ms, s, m or h)")))?;
        // A plus in a query string means a space: repair the offset of an RFC 3339 time.
        let time = match text.parse::<i64>() {
            Ok(number) => unit.to_ns(number),
            Err(_) => parse_rfc3339(&text.replace(' ', "+")),
        };
        time.ok_or_else(|| {
            ApiError::Bad(format!(
                "parameter {name}: {text:?} is neither RFC 3339 nor an integer in range (precision={unit:?})"
            ))
        })
    }

    fn limit(&self, default: usize, max: usize, key: &str) -> Result<usize, ApiError> {
        let Some(text) = self.get("limit") else { return Ok(default) };
        match text.parse() {
            Ok(limit) if (1..=max).contains(&limit) => Ok(limit),
            _ => Err(ApiError::Bad(format!("parameter limit: {text:?} is not a number from 1 to {max} ({key})"))),
        }
    }

    fn times(&self) -> Result<Times, ApiError> {
        match self.get("epoch") {
            None => Ok(Times::Text),
            Some("ns" | "n") => Ok(Times::Epoch(1)),
            Some("u" | "us" | "µ") => Ok(Times::Epoch(1_000)),
            Some("ms") => Ok(Times::Epoch(1_000_000)),
            Some("s") => Ok(Times::Epoch(1_000_000_000)),
            Some(other) => Err(ApiError::Bad(format!("parameter epoch: {other:?} is none of ns, u, ms, s"))),
        }
    }
}

fn answer(result: Result<Response, ApiError>) -> Response {
    result.unwrap_or_else(|error| error.respond(Dialect::V1))
}

fn json_body(body: String) -> Response {
    ([("content-type", "application/json")], body).into_response()
}

/// `GET /api/v1/readings`.
pub async fn readings(State(app): State<Arc<App>>, query: Pairs) -> Response {
    answer(read_readings(&app, query).await)
}

async fn read_readings(app: &App, query: Pairs) -> Result<Response, ApiError> {
    let known = ["db", "sensor", "from", "to", "precision", "fields", "limit", "cursor", "format", "epoch"];
    let parameters = Parameters::of(query, &known)?;
    let mut selection = parameters.selection(app)?;
    if let Some(cursor) = parameters.get("cursor") {
        let start = u64::from_str_radix(cursor, 16).ok().map(u64::cast_signed);
        let start = start.filter(|start| selection.range.contains(start));
        let bad = || {
            ApiError::Bad(format!("parameter cursor: {cursor:?} is not of this range: pass next on as it was given"))
        };
        selection.range.start = start.ok_or_else(bad)?;
    }
    let (limit, times) =
        (parameters.limit(app.options.limit_default, app.options.limit_max, "query.limit_max")?, parameters.times()?);
    let ndjson = match parameters.get("format") {
        None | Some("json") => false,
        Some("ndjson") => true,
        Some(other) => return Err(ApiError::Bad(format!("parameter format: {other:?} is neither json nor ndjson"))),
    };
    let part = app.query.readings(&selection, limit).await?;
    // Opaque to clients: the time of the next reading, in hexadecimal.
    let next = part.next.map(|time| format!("{time:x}"));
    let mut out = String::with_capacity(64 + part.readings.len() * 80);
    if ndjson {
        for reading in &part.readings {
            json::reading(&mut out, reading, times);
            out.push('\n');
        }
        let mut response = ([("content-type", "application/x-ndjson")], out).into_response();
        if let Some(next) = next.and_then(|next| next.parse().ok()) {
            response.headers_mut().insert("x-next-cursor", next);
        }
        return Ok(response);
    }
    out.push_str("{\"series\":[");
    if part.known {
        out.push_str("{\"sensor\":");
        json::string(&mut out, &selection.sensor);
        out.push_str(",\"readings\":[");
        json::list(&mut out, &part.readings, |out, reading| json::reading(out, reading, times));
        out.push_str("]}");
    }
    json::end_with_next(&mut out, next.as_deref());
    Ok(json_body(out))
}

/// `GET /api/v1/summary`.
pub async fn summary(State(app): State<Arc<App>>, query: Pairs) -> Response {
    answer(read_summary(&app, query).await)
}

async fn read_summary(app: &App, query: Pairs) -> Result<Response, ApiError> {
    let parameters = Parameters::of(query, &["db", "sensor", "from", "to", "precision", "fields", "step", "epoch"])?;
    let (selection, times) = (parameters.selection(app)?, parameters.times()?);
    let step = step(parameters.get("step").unwrap_or("1h"))?;
    let windows = app.query.summary(&selection, step).await?;
    let mut out = String::from("{\"series\":[");
    if let Some(windows) = windows {
        out.push_str("{\"sensor\":");
        json::string(&mut out, &selection.sensor);
        out.push_str(",\"windows\":[");
        json::list(&mut out, &windows, |out, window| json::window(out, window, times));
        out.push_str("]}");
    }
    out.push_str("]}");
    Ok(json_body(out))
}

/// A step in nanoseconds, from a duration such as `15m`, `1h` or `1d`.
fn step(text: &str) -> Result<i64, ApiError> {
    let bad = || ApiError::Bad(format!("parameter step: {text:?} is not a duration such as 30s, 15m, 1h or 1d"));
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit: i64 = match unit {
        "ns" => 1,
        "u" | "us" | "µs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "d" => 86_400_000_000_000,
        "w" => 604_800_000_000_000,
        _ => return Err(bad()),
    };
    let step = number.parse::<i64>().ok().and_then(|number| number.checked_mul(unit)).filter(|step| *step > 0);
    step.ok_or_else(bad)
}

/// `GET /api/v1/sensors`.
pub async fn sensors(State(app): State<Arc<App>>, query: Pairs) -> Response {
    answer(read_sensors(&app, query).await)
}

async fn read_sensors(app: &App, query: Pairs) -> Result<Response, ApiError> {
    let known = ["db", "outlier", "recent", "limit", "cursor", "epoch"];
    let parameters = Parameters::of(query, &known)?;
    let max = app.options.sensors_max;
    let (limit, times) = (parameters.limit(max, max, "query.sensors_max")?, parameters.times()?);
    let outliers = flag("outlier", parameters.get("outlier"))?.unwrap_or(false);
    let with_recent = flag("recent", parameters.get("recent"))?.unwrap_or(false);
    let database = parameters.database()?;
    let filter = SensorFilter { after: parameters.get("cursor").map(str::to_owned), outliers, limit };
    let stored = app.query.sensors(&database, &filter).await?;
    let stored_last = stored.last().filter(|_| stored.len() == limit).map(|last| last.sensor.key.clone());
    let mut documents = app.ingest.sensors(&database, &filter, stored).await?;
    let full = documents.len() == limit;
    let next = documents.last().filter(|_| full).map(|last| last.sensor.key.clone()).or(stored_last);
    // A mark that has expired is still stored until the document is written again.
    documents.retain(|document| !outliers || document.outlier.is_some());
    let mut out = String::from("{\"sensors\":[");
    json::list(&mut out, &documents, |out, document| json::sensor(out, document, times, with_recent));
    json::end_with_next(&mut out, next.as_deref());
    Ok(json_body(out))
}
