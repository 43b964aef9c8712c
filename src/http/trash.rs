//! What deletions by value removed: lists it, and writes it back.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Extension, Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::App;
use super::delete_values::next_chunk;
use super::errors::{ApiError, Dialect};
use super::influx_query::Address;
use super::parameters::{By, Pairs, Parameters};
use super::params;
use crate::access::{Caller, Event};
use crate::bucket::Readings;
use crate::bucket::settings::named_in_full;
use crate::clock::now_ns;
use crate::faults;
use crate::ingest::Arrival;
use crate::ingest::trash::{TrashChunk, TrashEntry};
use crate::reading::time::write_rfc3339;
use crate::reading::{Hour, Limits, Precision};
use crate::wire::Points;
use crate::wire::line_protocol::{Lines, write_line};

/// How long one request writes back: shorter than clients wait for an answer.
const WORK: Duration = Duration::from_secs(20);
/// How long other instances' writes are not looked for again: waiting for them may take as long as their flushes do.
const FRESH: Duration = Duration::from_secs(1);
/// Hours that are read together.
const HOURS: i64 = 24;
/// Most reasons of rejections in an answer.
const REASONS: usize = 10;

fn shown(entry: &TrashEntry) -> Value {
    let TrashEntry { head, sensors, readings, bytes } = entry;
    let mut at = String::new();
    write_rfc3339(&mut at, head.at);
    json!({
        "id": format!("{:016x}", head.id), "database": head.database, "statement": head.statement, "by": head.by, "at": at,
        "sensors": sensors, "readings": readings, "bytes": bytes,
    })
}

/// `GET /api/v1/trash`: what is in the trash of databases that the caller administers, newest first.
pub async fn list(State(app): State<Arc<App>>, Extension(by): By) -> Response {
    match listed(&app).await {
        Ok(entries) => {
            let managed = entries.iter().rev().filter(|entry| by.may_manage(&entry.head.database));
            Json(json!({ "deletions": managed.map(shown).collect::<Vec<_>>() })).into_response()
        }
        Err(error) => error.respond(Dialect::Native),
    }
}

async fn listed(app: &Arc<App>) -> Result<Vec<TrashEntry>, ApiError> {
    let app = app.clone();
    let listed = tokio::task::spawn_blocking(move || app.ingest.trash().list()).await;
    Ok(listed.map_err(|ended| ApiError::Unreadable(ended.to_string()))??)
}

/// What became of readings in the trash.
#[derive(Debug, Default)]
struct Undone {
    /// Readings of which something was written back.
    written: usize,
    /// Readings that are there as they were, or that were written anew since.
    present: usize,
    rejected: usize,
    reasons: Vec<String>,
    /// Where the next request begins.
    next: Option<u64>,
}

/// `POST /api/v1/trash/ID/undo`: writes back the cells that are still absent: 200 when done; 202 with where to go on.
pub async fn undo(
    State(app): State<Arc<App>>,
    Extension(by): By,
    Extension(address): Address,
    id: Result<Path<String>, PathRejection>,
    query: Pairs,
) -> Response {
    let undone = async {
        let Path(id) = id.map_err(|error| ApiError::Bad(error.body_text()))?;
        let parameters = Parameters::of(&app, query, params::UNDO, by.clone())?;
        let cursor = parameters.get("cursor").filter(|cursor| !cursor.is_empty()).map_or(Ok(0), str::parse);
        let cursor = cursor
            .map_err(|_| ApiError::Bad("parameter cursor is invalid: use the value of `next` unchanged".to_owned()))?;
        let undone = write_back(&app, &by, &id, cursor).await;
        let outcome = undone.as_ref().map_or_else(|error| error.message(), |_| "done".to_owned());
        if let Ok((database, _)) = &undone {
            let statement = format!("UNDO {id}");
            app.audit.note(&Event::Change { by: by.name(), address, statement, database, outcome });
        }
        undone.map(|(_, undone)| undone)
    };
    match undone.await {
        Ok(Undone { written, present, rejected, reasons, next }) => {
            let status = if next.is_some() { StatusCode::ACCEPTED } else { StatusCode::OK };
            let next = next.map(|next| next.to_string());
            let body = json!({
                "written": written, "present": present, "rejected": rejected, "reasons": reasons, "next": next,
            });
            (status, Json(body)).into_response()
        }
        Err(error) => error.respond(Dialect::Native),
    }
}

async fn write_back(app: &Arc<App>, by: &Caller, id: &str, cursor: u64) -> Result<(String, Undone), ApiError> {
    let (entry, mut reading) = app.ingest.trash().open(id)?;
    let database = entry.head.database;
    if !by.may_manage(&database) {
        return Err(ApiError::Forbidden(format!("{} may not manage database {database:?}", by.name())));
    }
    reading.seek(cursor)?;
    let (began, mut undone) = (Instant::now(), Undone::default());
    let mut stored: Option<Instant> = None;
    loop {
        let (back, chunk) = next_chunk(reading).await?;
        reading = back;
        let Some(chunk) = chunk else { return Ok((database, undone)) };
        // What this instance has not stored yet is in its memory; what others have written is found in the store only.
        if app.store.raw().has_other_writers() && stored.is_none_or(|stored| stored.elapsed() >= FRESH) {
            app.ingest.all_stored(app.options.flush_timeout).await?;
            stored = Some(Instant::now());
        }
        write_chunk(app, by, &database, &chunk, &mut undone).await?;
        faults::point("chunk_undone");
        if began.elapsed() >= WORK {
            undone.next = Some(reading.at());
            return Ok((database, undone));
        }
    }
}

/// Writes the cells of a chunk that are absent, as a client would.
async fn write_chunk(
    app: &App,
    by: &Caller,
    database: &str,
    chunk: &TrashChunk,
    undone: &mut Undone,
) -> Result<(), ApiError> {
    let held = held(app, database, chunk).await?;
    let unlimited = Limits { line_bytes: usize::MAX, tags: usize::MAX, fields: usize::MAX, name_bytes: usize::MAX };
    let (mut lines, mut absent) = (String::new(), 0);
    let mut points = Lines::new(&chunk.lines, Precision::Nanoseconds, unlimited);
    while let Some(point) = points.next() {
        let point = point.map_err(|rejection| ApiError::Unreadable(format!("a line in the trash: {rejection:?}")))?;
        let time = point.timestamp.unwrap_or_default();
        let has = |name: &str| held.get(&time).is_some_and(|names| names.contains(name));
        let cells = point.fields.iter().filter(|(name, _)| !has(name));
        let cells: Vec<_> = cells.map(|(name, value)| (&**name, value.clone().into_value())).collect();
        if cells.is_empty() {
            undone.present += 1;
            continue;
        }
        absent += 1;
        write_line(&mut lines, &chunk.sensor.key, cells.iter().map(|(name, value)| (*name, value)), time);
    }
    if absent == 0 {
        return Ok(());
    }
    let named = named_in_full(database);
    let arrival = Arrival {
        database: &named,
        precision: Precision::Nanoseconds,
        declared: true,
        rest: false,
        received: now_ns(),
        partial: true,
        ack: None,
        key: None,
        patient: false,
        by,
        address: None,
    };
    let mut admission = app.ingest.admission();
    admission.grow(lines.len())?;
    let ack =
        app.ingest.take(arrival, |limits| Lines::new(lines.as_bytes(), Precision::Nanoseconds, limits), admission);
    let ack = ack.await?;
    undone.written += ack.accepted;
    undone.rejected += absent - ack.accepted;
    for told in ack.rejected.told {
        let reason = told.reason.to_string();
        if undone.reasons.len() < REASONS && !undone.reasons.contains(&reason) {
            undone.reasons.push(reason);
        }
    }
    Ok(())
}

/// The fields that readings at the times of a chunk have, whether or not they are stored yet.
async fn held(app: &App, database: &str, chunk: &TrashChunk) -> Result<HashMap<i64, HashSet<String>>, ApiError> {
    let mut held: HashMap<i64, HashSet<String>> = HashMap::new();
    let times: HashSet<i64> = chunk.times.iter().copied().collect();
    let mut note = |readings: &Readings| {
        for (place, time) in readings.times().iter().enumerate().filter(|(_, time)| times.contains(time)) {
            let names = readings.fields(place).map(|(name, _)| name.to_string());
            held.entry(*time).or_default().extend(names);
        }
    };
    for hours in ranges(&chunk.times) {
        app.query.each_acked((database, &chunk.sensor.key), &hours, HOURS as usize, &mut note).await?;
    }
    Ok(held)
}

/// The hours of these times, those that follow each other together.
fn ranges(times: &[i64]) -> Vec<Range<Hour>> {
    let hours: BTreeSet<Hour> = times.iter().map(|time| Hour::of(*time)).collect();
    let mut ranges: Vec<Range<Hour>> = Vec::new();
    for hour in hours {
        match ranges.last_mut() {
            Some(last) if last.end == hour && hour.0 - last.start.0 < HOURS => last.end = hour.next(),
            _ => ranges.push(hour..hour.next()),
        }
    }
    ranges
}
