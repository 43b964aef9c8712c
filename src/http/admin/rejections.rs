//! Rejected lines, for those who administer the database that they were sent to: listed, exported as line protocol, and
//! removed when they are done.

use std::collections::{BTreeMap, VecDeque};
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use axum::Json;
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::access::{Caller, Event};
use crate::bucket::settings::owner;
use crate::http::errors::{ApiError, Dialect};
use crate::http::influx::query::Address;
use crate::http::parameters::{By, DEFAULT_DATABASE, Pairs, Parameters};
use crate::http::{App, params};
use crate::ingest::{KeptLine, KeptLines, plain};
use crate::reading::time::write_rfc3339;

/// Lines per answer: by default, and at most.
const LIMITS: (usize, usize) = (100, 1000);
/// Maximum bytes of an export, after which the next line ends it.
const EXPORT_BYTES: usize = 1 << 20;
/// Maximum number of characters of a listed line.
const TEXT_CHARS: usize = 256;

/// `GET /api/v1/rejections`.
pub async fn list(State(app): State<Arc<App>>, Extension(by): By, query: Pairs) -> Response {
    let listed = async {
        let parameters = Parameters::of(&app, query, params::REJECTIONS, by.clone())?;
        let limit = parameters.limit(LIMITS.0, LIMITS.1)?;
        let selection = Selection::new(&parameters, by, parameters.get("db").map(str::to_owned))?;
        let after = id(&parameters, "after")?.unwrap_or_default();
        match parameters.get("format").unwrap_or("json") {
            "json" => on_lines(&app, move |lines| listed(lines, after, limit, &selection))
                .await
                .map(Json)
                .map(Json::into_response),
            "lp" => {
                let text = on_lines(&app, move |lines| exported(lines, after, limit, &selection)).await?;
                Ok(([("content-type", "text/plain; charset=utf-8")], text).into_response())
            }
            other => Err(ApiError::Bad(format!("parameter format: {other:?} is neither \"json\" nor \"lp\""))),
        }
    };
    listed.await.unwrap_or_else(|error| error.respond(Dialect::Native))
}

/// `DELETE /api/v1/rejections`.
pub async fn remove(
    State(app): State<Arc<App>>,
    Extension(by): By,
    Extension(address): Address,
    query: Pairs,
) -> Response {
    let removed = async {
        let parameters = Parameters::of(&app, query, params::REJECTIONS_DONE, by.clone())?;
        let database = parameters.get("db").unwrap_or(DEFAULT_DATABASE).to_owned();
        let selection = Selection::new(&parameters, by.clone(), Some(database.clone()))?;
        let through = id(&parameters, "through")?;
        let through = through.ok_or_else(|| ApiError::Bad("parameter through is missing".to_owned()))?;
        let removed = on_lines(&app, move |lines| lines.remove(|id, line| id <= through && selection.has(line))).await;
        let outcome = removed.as_ref().map_or_else(ApiError::message, |removed| format!("{removed} removed"));
        let statement = "REMOVE REJECTIONS".to_owned();
        app.audit.note(&Event::Change { by: &by, address, statement, database: &database, outcome });
        removed
    };
    match removed.await {
        Ok(removed) => Json(json!({ "removed": removed })).into_response(),
        Err(error) => error.respond(Dialect::Native),
    }
}

/// Reads or changes the kept lines where nobody waits for the disk.
async fn on_lines<T: Send + 'static>(
    app: &App,
    work: impl FnOnce(&KeptLines) -> std::io::Result<T> + Send + 'static,
) -> Result<T, ApiError> {
    let lines = app.ingest.rejections().lines().clone();
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
    fn new(parameters: &Parameters, by: Caller, database: Option<String>) -> Result<Self, ApiError> {
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

fn id(parameters: &Parameters, name: &str) -> Result<Option<u64>, ApiError> {
    let bad = |_| ApiError::Bad(format!("parameter {name} is not the id of a rejection"));
    parameters.get(name).map(|text| text.parse().map_err(bad)).transpose()
}

fn shown(id: u64, line: &KeptLine) -> Value {
    let KeptLine { received, database, token, address, number, column, text, reason, code, .. } = line;
    let mut time = String::new();
    write_rfc3339(&mut time, *received);
    json!({
        "id": id.to_string(), "time": time, "database": database, "token": token, "address": address, "line": number,
        "column": column, "text": plain(text, TEXT_CHARS), "reason": reason, "code": code,
    })
}
