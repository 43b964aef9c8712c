//! Rejected lines, for administrators of the database: lists, exports as line protocol, and removes them.

use std::collections::{BTreeMap, VecDeque};
use std::ops::{ControlFlow, Range};

use axum::Json;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::access::{Caller, Effect};
use crate::blocking;
use crate::bucket::settings::owner;
use crate::http::App;
use crate::http::errors::{ApiError, ApiResult};
use crate::http::parameters::{DEFAULT_DATABASE, Parameters};
use crate::ingest::{KeptLine, KeptLines, plain};
use crate::reading::time::rfc3339;

/// Default number of lines per answer.
const LIMIT_DEFAULT: usize = 100;
/// Maximum number of lines per answer.
const LIMIT_MAX: usize = 1000;
/// An export ends with the first line that brings it to this many bytes.
const EXPORT_BYTES: usize = 1 << 20;
/// Maximum number of characters of a listed line.
const TEXT_CHARS_MAX: usize = 256;

/// `GET /api/v1/rejections`.
pub async fn list(parameters: Parameters) -> ApiResult<Response> {
    let app = &parameters.app;
    let limit = parameters.limit(LIMIT_DEFAULT, LIMIT_MAX)?;
    let selection = Selection::new(&parameters, parameters.get("db"))?;
    let after = parse_id(&parameters, "after")?.unwrap_or_default();
    match parameters.get("format").unwrap_or("json") {
        "json" => {
            let body = with_lines(app, move |lines| list_json(lines, after, limit, &selection)).await?;
            Ok(Json(body).into_response())
        }
        "lp" => Ok(with_lines(app, move |lines| export(lines, after, limit, &selection)).await?.into_response()),
        other => Err(ApiError::Bad(format!("parameter format: {other:?} is neither \"json\" nor \"lp\""))),
    }
}

/// `DELETE /api/v1/rejections`.
pub async fn remove(parameters: Parameters) -> ApiResult<Json<Value>> {
    let database = parameters.get("db").unwrap_or(DEFAULT_DATABASE);
    let selection = Selection::new(&parameters, Some(database))?;
    let through = parse_id(&parameters, "through")?;
    let through = through.ok_or_else(|| ApiError::Bad("parameter through is missing".to_owned()))?;
    let app = &parameters.app;
    let removed = with_lines(app, move |lines| lines.remove(|id, line| id <= through && selection.has(line))).await;
    let outcome = removed.as_ref().map_or_else(ToString::to_string, |removed| format!("{removed} removed"));
    parameters.requester.note(app, "REMOVE REJECTIONS".to_owned(), database, outcome);
    Ok(Json(json!({ "removed": removed? })))
}

/// Runs file work on the rejected lines on a blocking thread.
async fn with_lines<T: Send + 'static>(
    app: &App,
    work: impl FnOnce(&KeptLines) -> std::io::Result<T> + Send + 'static,
) -> ApiResult<T> {
    let lines = app.ingest.rejections.lines().clone();
    let done = blocking::spawn(move || work(&lines)).await;
    let unreadable = |error: String| ApiError::Unreadable(format!("the rejected lines: {error}"));
    done.map_err(|ended| unreadable(ended.to_string()))?.map_err(|error| unreadable(error.to_string()))
}

/// The number of lines by code, and the newest lines.
fn list_json(lines: &KeptLines, after_id: u64, limit: usize, selection: &Selection) -> std::io::Result<Value> {
    let mut newest: VecDeque<(u64, KeptLine)> = VecDeque::new();
    let mut codes: BTreeMap<String, u64> = BTreeMap::new();
    lines.read(after_id, |id, line| {
        if selection.has(&line) {
            *codes.entry(line.code.clone()).or_default() += 1;
            newest.push_back((id, line));
        }
        if newest.len() > limit {
            newest.pop_front();
        }
        ControlFlow::Continue(())
    })?;
    let shown: Vec<Value> = newest.iter().rev().map(|(id, line)| line_json(*id, line)).collect();
    Ok(json!({ "codes": codes, "rejections": shown }))
}

/// Exports the oldest lines as line protocol, each after a comment with the reason. The last comment has the id of the
/// last line. Empty without lines.
fn export(lines: &KeptLines, after_id: u64, limit: usize, selection: &Selection) -> std::io::Result<String> {
    let mut text = String::new();
    let mut count = 0;
    let mut last = 0;
    lines.read(after_id, |id, line| {
        if selection.has(&line) {
            text.push_str(&line.to_line_protocol());
            count += 1;
            last = id;
        }
        if count == limit || text.len() >= EXPORT_BYTES { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    if count > 0 {
        text.push_str(&format!("# {count} lines through {last}\n"));
    }
    Ok(text)
}

/// The rejections that a request selects.
struct Selection {
    /// `None` selects all databases that the caller administers.
    database: Option<String>,
    caller: Caller,
    received: Range<i64>,
    code: Option<String>,
    measurement: Option<String>,
    contains: Option<String>,
}

impl Selection {
    fn new(parameters: &Parameters, database: Option<&str>) -> ApiResult<Self> {
        let caller = parameters.requester.caller.clone();
        let database = database.map(str::to_owned);
        let text = |name: &str| parameters.get(name).map(str::to_owned);
        let [code, measurement, contains] = ["code", "measurement", "contains"].map(text);
        Ok(Self { database, caller, received: parameters.range()?, code, measurement, contains })
    }

    fn has(&self, line: &KeptLine) -> bool {
        let is_in_database = match &self.database {
            Some(database) => line.database == *database || owner(&line.database) == database,
            None => self.caller.allows(Effect::Administer, Some(&line.database)),
        };
        is_in_database
            && self.received.contains(&line.received)
            && self.code.as_ref().is_none_or(|code| line.code == *code)
            && self.measurement.as_ref().is_none_or(|name| line.measurement() == *name)
            && self.contains.as_ref().is_none_or(|part| line.text.contains(part) || line.reason.contains(part))
    }
}

fn parse_id(parameters: &Parameters, name: &str) -> ApiResult<Option<u64>> {
    let bad = |_| ApiError::Bad(format!("parameter {name} is not the id of a rejection"));
    parameters.get(name).map(|text| text.parse().map_err(bad)).transpose()
}

fn line_json(id: u64, line: &KeptLine) -> Value {
    let KeptLine { received, database, token, address, number, column, text, reason, code, mapping, topic, .. } = line;
    let mut shown = json!({
        "id": id.to_string(), "time": rfc3339(*received), "database": database, "token": token, "address": address, "line": number,
        "column": column, "text": plain(text, TEXT_CHARS_MAX), "reason": reason, "code": code,
    });
    if let Some(mapping) = mapping {
        shown["mapping"] = json!(mapping);
        shown["topic"] = json!(topic);
    }
    shown
}
