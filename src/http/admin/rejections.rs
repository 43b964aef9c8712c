//! Rejected lines, for those who administer the database that they were sent to: listed, exported as line protocol, and
//! removed when they are done.

use std::collections::{BTreeMap, VecDeque};
use std::ops::{ControlFlow, Range};

use axum::Json;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::access::Caller;
use crate::bucket::settings::owner;
use crate::http::App;
use crate::http::errors::{ApiError, ApiResult};
use crate::http::parameters::{DEFAULT_DATABASE, Parameters};
use crate::ingest::{KeptLine, KeptLines, plain};
use crate::reading::time::rfc3339;

/// Lines per answer: by default, and at most.
const LIMITS: (usize, usize) = (100, 1000);
/// Maximum bytes of an export, after which the next line ends it.
const EXPORT_BYTES: usize = 1 << 20;
/// Maximum number of characters of a listed line.
const TEXT_CHARS: usize = 256;

/// `GET /api/v1/rejections`.
pub async fn list(parameters: Parameters) -> ApiResult<Response> {
    let app = &parameters.app;
    let limit = parameters.limit(LIMITS.0, LIMITS.1)?;
    let selection = Selection::new(&parameters, parameters.get("db"))?;
    let after = id(&parameters, "after")?.unwrap_or_default();
    match parameters.get("format").unwrap_or("json") {
        "json" => {
            let body = on_lines(app, move |lines| listed(lines, after, limit, &selection)).await?;
            Ok(Json(body).into_response())
        }
        "lp" => Ok(on_lines(app, move |lines| exported(lines, after, limit, &selection)).await?.into_response()),
        other => Err(ApiError::Bad(format!("parameter format: {other:?} is neither \"json\" nor \"lp\""))),
    }
}

/// `DELETE /api/v1/rejections`.
pub async fn remove(parameters: Parameters) -> ApiResult<Json<Value>> {
    let database = parameters.get("db").unwrap_or(DEFAULT_DATABASE);
    let selection = Selection::new(&parameters, Some(database))?;
    let through = id(&parameters, "through")?;
    let through = through.ok_or_else(|| ApiError::Bad("parameter through is missing".to_owned()))?;
    let app = &parameters.app;
    let removed = on_lines(app, move |lines| lines.remove(|id, line| id <= through && selection.has(line))).await;
    let outcome = removed.as_ref().map_or_else(ToString::to_string, |removed| format!("{removed} removed"));
    parameters.sender.note(app, "REMOVE REJECTIONS".to_owned(), database, outcome);
    Ok(Json(json!({ "removed": removed? })))
}

/// Reads or changes the kept lines where nobody waits for the disk.
async fn on_lines<T: Send + 'static>(
    app: &App,
    work: impl FnOnce(&KeptLines) -> std::io::Result<T> + Send + 'static,
) -> ApiResult<T> {
    let lines = app.ingest.rejections.lines().clone();
    let done = tokio::task::spawn_blocking(move || work(&lines)).await;
    let unreadable = |error: String| ApiError::Unreadable(format!("the rejected lines: {error}"));
    done.map_err(|ended| unreadable(ended.to_string()))?.map_err(|error| unreadable(error.to_string()))
}

/// The newest lines, and how many there are of each code.
fn listed(lines: &KeptLines, after: u64, limit: usize, selection: &Selection) -> std::io::Result<Value> {
    let mut newest: VecDeque<(u64, KeptLine)> = VecDeque::new();
    let mut codes: BTreeMap<String, u64> = BTreeMap::new();
    lines.read(after, |id, line| {
        if selection.has(&line) {
            *codes.entry(line.code.clone()).or_default() += 1;
            newest.push_back((id, line));
        }
        if newest.len() > limit {
            newest.pop_front();
        }
        ControlFlow::Continue(())
    })?;
    let shown: Vec<Value> = newest.iter().rev().map(|(id, line)| shown(*id, line)).collect();
    Ok(json!({ "codes": codes, "rejections": shown }))
}

/// The oldest lines as line protocol, below comments with the reasons; a last comment has the id of the last line. Empty without
/// any line.
fn exported(lines: &KeptLines, after: u64, limit: usize, selection: &Selection) -> std::io::Result<String> {
    let mut text = String::new();
    let mut count = 0;
    let mut last = 0;
    lines.read(after, |id, line| {
        if selection.has(&line) {
            text.push_str(&line.exported());
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

/// The rejections that a request is about.
struct Selection {
    /// All that the caller administers if `None`.
    database: Option<String>,
    by: Caller,
    received: Range<i64>,
    code: Option<String>,
    measurement: Option<String>,
    contains: Option<String>,
}

impl Selection {
    fn new(parameters: &Parameters, database: Option<&str>) -> ApiResult<Self> {
        let by = parameters.sender.by.clone();
        let database = database.map(str::to_owned);
        let (may_see, what) = match &database {
            Some(database) => (by.may_manage(database), format!("rejections of database {database:?}")),
            None => (by.may_manage_some(), "rejections".to_owned()),
        };
        if !may_see {
            return Err(ApiError::Forbidden(format!(
                "{} may not see {what}: it takes a token created with --admin",
                by.name()
            )));
        }
        let text = |name: &str| parameters.get(name).map(str::to_owned);
        let [code, measurement, contains] = ["code", "measurement", "contains"].map(text);
        Ok(Self { database, by, received: parameters.range()?, code, measurement, contains })
    }

    fn has(&self, line: &KeptLine) -> bool {
        let is_of_database = match &self.database {
            Some(database) => line.database == *database || owner(&line.database) == database,
            None => self.by.may_manage(&line.database),
        };
        is_of_database
            && self.received.contains(&line.received)
            && self.code.as_ref().is_none_or(|code| line.code == *code)
            && self.measurement.as_ref().is_none_or(|name| line.measurement() == *name)
            && self.contains.as_ref().is_none_or(|part| line.text.contains(part) || line.reason.contains(part))
    }
}

fn id(parameters: &Parameters, name: &str) -> ApiResult<Option<u64>> {
    let bad = |_| ApiError::Bad(format!("parameter {name} is not the id of a rejection"));
    parameters.get(name).map(|text| text.parse().map_err(bad)).transpose()
}

fn shown(id: u64, line: &KeptLine) -> Value {
    let KeptLine { received, database, token, address, number, column, text, reason, code, .. } = line;
    json!({
        "id": id.to_string(), "time": rfc3339(*received), "database": database, "token": token, "address": address, "line": number,
        "column": column, "text": plain(text, TEXT_CHARS), "reason": reason, "code": code,
    })
}
