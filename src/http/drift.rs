//! Moves values of other types, which are kept beside a field (`ingest.drift`), into one field. As a deletion by value: a mark is
//! logged, everything older is stored, what moves is resolved to times of sensors in bounded memory, and the times are logged
//! part by part. A part moves the values within their pages and days, each in one write, with the stamps they have.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use axum::Json;
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::App;
use super::delete_values::PartsLogged;
use super::errors::{ApiError, Dialect};
use super::influx_query::Address;
use super::parameters::{By, DEFAULT_DATABASE, Pairs, Parameters};
use super::params;
use super::write::flag;
use crate::access::Event;
use crate::backup::read::{Part, Piece};
use crate::backup::{Parts, ReadBounds};
use crate::bucket::store::SensorFilter;
use crate::bucket::{FieldMove, Relabels, SensorDocument, ValueMove};
use crate::clock::now_ns;
use crate::ingest::{IngestError, Mark};
use crate::query::QueryError;
use crate::reading::time::{TIMESTAMP_MAX, TIMESTAMP_MIN};
use crate::reading::{Family, Hour, Sensor, Stamp, ValueType};

/// Sensors that are looked at together.
const SENSORS: usize = 500;

/// What is to be moved.
struct Task {
    app: Arc<App>,
    database: String,
    measurement: String,
    field: String,
    to: ValueType,
    is_dry: bool,
    now: i64,
}

/// What was moved, or would be.
#[derive(Debug, Default)]
struct Moved {
    sensors: u64,
    readings: u64,
    /// Readings that keep a value of another type: it says nothing as this one, there is a value already, or it is newer.
    left: u64,
}

/// `POST /api/v1/drift/resolve`.
pub async fn resolve(
    State(app): State<Arc<App>>,
    Extension(by): By,
    Extension(address): Address,
    query: Pairs,
) -> Response {
    let resolved = async {
        let parameters = Parameters::of(&app, query, params::DRIFT, by.clone())?;
        let text = |name: &'static str| match parameters.get(name) {
            Some(text) if !text.is_empty() => Ok(text.to_owned()),
            _ => Err(ApiError::Bad(format!("parameter {name} is missing"))),
        };
        let named = parameters.get("db").unwrap_or(DEFAULT_DATABASE);
        if !by.may_manage(named) {
            return Err(ApiError::Forbidden(format!("{} may not manage database {named:?}", by.name())));
        }
        let database = app.query.settings().resolve(named, None);
        let database = database.map_err(|unknown| ApiError::Bad(unknown.to_string()))?;
        let (measurement, field, to) = (text("measurement")?, text("field")?, text("to")?);
        let unknown = || ApiError::Bad(format!("unknown type {to:?} (use float, integer, boolean or string)"));
        let to = ValueType::from_name(&to).ok_or_else(unknown)?;
        let is_dry = flag("dry_run", parameters.get("dry_run"))?.unwrap_or(true);
        let statement = format!("RESOLVE DRIFT {measurement}.{field} TO {}", to.name());
        let task = Task { app: app.clone(), database: database.clone(), measurement, field, to, is_dry, now: now_ns() };
        let resolved = task.run().await;
        if !is_dry {
            let outcome =
                resolved.as_ref().map_or_else(ApiError::message, |moved| format!("{} moved", moved["readings"]));
            app.audit.note(&Event::Change { by: by.name(), address, statement, database: &database, outcome });
        }
        resolved
    };
    match resolved.await {
        Ok(moved) => Json(moved).into_response(),
        Err(error) => error.respond(Dialect::Native),
    }
}

impl Task {
    /// Runs to its end, whether or not the client stays.
    async fn run(self) -> Result<Value, ApiError> {
        let timeout = self.app.options.flush_timeout;
        let is_dry = self.is_dry;
        let moved = match tokio::time::timeout(timeout, tokio::spawn(async move { self.resolve().await })).await {
            Ok(Ok(moved)) => moved?,
            Ok(Err(ended)) if ended.is_panic() => std::panic::resume_unwind(ended.into_panic()),
            Ok(Err(_)) => return Err(IngestError::Stopping.into()),
            Err(_) => return Err(IngestError::StillDeleting(timeout).into()),
        };
        let Moved { sensors, readings, left } = moved;
        Ok(json!({ "dry_run": is_dry, "sensors": sensors, "readings": readings, "left": left }))
    }

    async fn resolve(&self) -> Result<Moved, ApiError> {
        let (app, timeout) = (&*self.app, self.app.options.flush_timeout);
        // As deletions by value, one after the other.
        let Ok(_turn) = app.by_value.clone().acquire_owned().await else { return Err(IngestError::Stopping.into()) };
        let mark = match self.is_dry {
            true => {
                app.ingest.flush(timeout).await?;
                None
            }
            false => Some(app.ingest.mark(&self.database, self.now, timeout).await?),
        };
        let (mut moved, mut after) = (Moved::default(), None);
        loop {
            let filter = SensorFilter { after, outliers: false, limit: SENSORS };
            let documents = app.store.list_sensors(&self.database, &filter).await;
            let documents = documents.map_err(|error| ApiError::Query(QueryError::Storage(error)))?;
            after = documents.last().map(|document| document.sensor.key.to_string());
            let mut sensors: BTreeMap<Arc<str>, HashSet<Box<str>>> = BTreeMap::new();
            let settings = app.query.settings();
            let relabels = settings.relabels(&self.database);
            for document in &documents {
                if let Some(moving) = self.moving(document, relabels) {
                    sensors.entry(moving.into).or_default().insert(document.sensor.key.clone());
                }
            }
            for (into, keys) in sensors {
                let moving = FieldMove { field: self.field.clone(), into, to: self.to };
                self.move_of(keys, moving, mark.as_ref(), &mut moved).await?;
            }
            if after.is_none() {
                return Ok(moved);
            }
        }
    }

    /// Where values of a sensor move, if it has any beside the field. It is meant by the name that it is stored under, and by each that
    /// it is shown under.
    fn moving(&self, document: &SensorDocument, relabels: Option<&Relabels>) -> Option<FieldMove> {
        let is_meant = |sensor: &Sensor| *sensor.measurement == *self.measurement;
        let is_shown = || relabels.map(|relabels| relabels.names_of(&document.sensor));
        if !is_meant(&document.sensor) && !is_shown().into_iter().flatten().any(|(_, name)| is_meant(&name)) {
            return None;
        }
        let is_beside = |name: &str| Family::kept_beside(name).is_some_and(|(field, _)| field == self.field);
        let (_, family) = document.fields.iter().find(|(name, _)| **name == *self.field)?;
        let moving = FieldMove::new(&self.field, *family, self.to);
        let has_target = document.fields.iter().any(|(name, _)| *name == moving.into);
        let has_others = document.fields.iter().any(|(name, _)| is_beside(name));
        // Only a write makes a new field known.
        (has_target && has_others).then_some(moving)
    }

    /// Moves values of sensors whose values go to the same field.
    async fn move_of(
        &self,
        keys: HashSet<Box<str>>,
        moving: FieldMove,
        mark: Option<&Mark>,
        moved: &mut Moved,
    ) -> Result<(), ApiError> {
        let app = &*self.app;
        // Readings that have expired are about to be removed.
        let kept_from = app.query.settings().readings_from(&self.database, now_ns()).unwrap_or(TIMESTAMP_MIN);
        let hours = Hour::of(kept_from)..Hour::of(TIMESTAMP_MAX).next();
        let bounds = ReadBounds::of_memory(app.options.backup_bytes);
        let before = mark.map_or(Stamp::MAX, |mark| mark.stamp);
        // By the field that they are in.
        let mut logged: BTreeMap<Arc<str>, PartsLogged<'_>> = BTreeMap::new();
        let mut parts = Parts::new(&*app.store, &self.database, hours, bounds).pages_of(Arc::new(keys));
        let mut last: Option<Arc<SensorDocument>> = None;
        while let Some(part) = parts.next().await.map_err(|error| ApiError::Query(QueryError::Storage(error)))? {
            // Of readings that have expired only summaries are left.
            let Piece::Readings(Part { of, readings, within }) = &part else { continue };
            let mut times: BTreeMap<Arc<str>, (ValueMove, Vec<i64>)> = BTreeMap::new();
            for (index, time) in readings.times().iter().enumerate() {
                if *time < kept_from || within.as_ref().is_some_and(|within| !within.contains(time)) {
                    continue;
                }
                match moving.choose(readings, index, before) {
                    Some(of) => times.entry(of.from.clone()).or_insert_with(|| (of, Vec::new())).1.push(*time),
                    None => moved.left += u64::from(moving.has_drifted(readings, index)),
                }
            }
            if !times.is_empty() {
                moved.readings += times.values().map(|(_, times)| times.len() as u64).sum::<u64>();
                moved.sensors += u64::from(last.as_ref().is_none_or(|last| last.sensor.key != of.sensor.key));
                for (from, (moving, times)) in times {
                    let Some(mark) = mark else { continue };
                    let new = || PartsLogged::new((app, self.now), &self.database, mark, Some(moving));
                    logged.entry(from).or_insert_with(new).add(&of.sensor, times).await?;
                }
                last = Some(of.clone());
            }
            tokio::task::yield_now().await;
        }
        for mut logged in logged.into_values() {
            logged.end().await?;
        }
        Ok(())
    }
}
