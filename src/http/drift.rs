//! Moves values of other types, which are kept beside a field (`ingest.drift`), into one field. As a deletion by value: a mark is
//! logged, everything older is stored, what moves is resolved to times of sensors in bounded memory, and the times are logged
//! part by part. A part moves the values within their pages and days, each in one write, with the stamps they have. Before all that,
//! sensors whose field has values of another family get the new one.

use std::collections::{BTreeMap, HashMap, HashSet};
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
use crate::bucket::{FieldMove, ReadingMoves, Renames, SensorDocument, ValueMove};
use crate::clock::now_ns;
use crate::ingest::{IngestError, Mark};
use crate::query::QueryError;
use crate::reading::time::{TIMESTAMP_MAX, TIMESTAMP_MIN};
use crate::reading::{Family, Hour, Stamp, ValueType};

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
    /// Sensors whose field gets another family.
    families: u64,
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
        let Moved { sensors, families, readings, left } = moved;
        Ok(json!({
            "dry_run": is_dry, "sensors": sensors, "families": families, "readings": readings, "left": left,
        }))
    }

    async fn resolve(&self) -> Result<Moved, ApiError> {
        let (app, timeout) = (&*self.app, self.app.options.flush_timeout);
        // As deletions by value, one after the other.
        let Ok(_turn) = app.by_value.clone().acquire_owned().await else { return Err(IngestError::Stopping.into()) };
        app.ingest.flush(timeout).await?;
        let mut moved = Moved::default();
        // First: what is acked from here on goes to the right place, so that the mark covers all of what does not.
        let mut lots = Lots::new(self);
        while let Some(documents) = lots.next().await? {
            moved.families += self.set_families(&documents).await?;
        }
        let mark = match self.is_dry {
            true => None,
            false => Some(app.ingest.mark(&self.database, self.now, timeout).await?),
        };
        let mut lots = Lots::new(self);
        while let Some(documents) = lots.next().await? {
            let mut keys: HashSet<Box<str>> = HashSet::new();
            for document in documents.iter().filter(|document| self.has_others(document)) {
                keys.insert(document.sensor.key.clone());
            }
            if !keys.is_empty() {
                self.move_of(keys, mark.as_ref(), &mut moved).await?;
            }
        }
        Ok(moved)
    }

    /// Gives the field of these sensors the family of the type, where it has another one; returns how many those are.
    async fn set_families(&self, documents: &[SensorDocument]) -> Result<u64, ApiError> {
        let (longest, mut keys) = (self.app.options.limits.name_bytes, Vec::new());
        for document in documents {
            let Some(family) = self.family(document).filter(|family| *family != self.to.family()) else { continue };
            let beside = family.beside(&self.field);
            if beside.len() > longest {
                return Err(ApiError::Bad(format!(
                    "{beside:?} has more than {longest} bytes (limits.name_bytes): what says nothing as {} would have no place",
                    self.to.name()
                )));
            }
            keys.push(&*document.sensor.key);
        }
        if !self.is_dry && !keys.is_empty() {
            self.app.ingest.set_family(&self.database, &keys, (&self.field, self.to.family())).await?;
        }
        Ok(keys.len() as u64)
    }

    /// Returns true if a stored sensor has the field and is shown under the measurement.
    fn is_meant(&self, document: &SensorDocument, renames: Option<&Renames>) -> bool {
        let shown = renames.and_then(|renames| renames.shown(&document.sensor));
        let measurement = shown.as_ref().map_or(&document.sensor.measurement, |shown| &shown.measurement);
        self.family(document).is_some() && **measurement == *self.measurement
    }

    /// The family of the field's values.
    fn family(&self, document: &SensorDocument) -> Option<Family> {
        document.fields.iter().find(|(name, _)| **name == *self.field).map(|(_, family)| *family)
    }

    /// Whether a sensor may have values of other families. A dry run leaves sensors their family.
    fn has_others(&self, document: &SensorDocument) -> bool {
        let is_beside = |name: &str| Family::kept_beside(name).is_some_and(|(field, _)| field == self.field);
        self.family(document) != Some(self.to.family()) || document.fields.iter().any(|(name, _)| is_beside(name))
    }

    /// Moves values of sensors, in two passes: what is in the way of another value goes aside first.
    async fn move_of(&self, keys: HashSet<Box<str>>, mark: Option<&Mark>, moved: &mut Moved) -> Result<(), ApiError> {
        let before = mark.map_or(Stamp::MAX, |mark| mark.stamp);
        let moving = FieldMove::new(&self.field, self.to);
        let mut parts = PartsBySource::new(self, mark);
        let mut unblocked: HashSet<Box<str>> = HashSet::new();
        let mut last: Option<Arc<SensorDocument>> = None;
        let mut stored = self.stored(keys);
        while let Some((part, times)) = stored.next().await? {
            let (counted, mut all) = (moved.readings, TimesOfMoves::new());
            for (index, time) in times {
                let ReadingMoves { aside, inward } = moving.choose(&part.readings, index, before);
                match &inward {
                    Some(_) => moved.readings += 1,
                    None => moved.left += u64::from(moving.has_drifted(&part.readings, index)),
                }
                if aside.is_some() && inward.is_some() {
                    unblocked.insert(part.of.sensor.key.clone());
                }
                note(&mut all, aside.or(inward), time);
            }
            if moved.readings > counted {
                moved.sensors += u64::from(last.as_ref().is_none_or(|last| last.sensor.key != part.of.sensor.key));
                last = Some(part.of.clone());
            }
            parts.add(&part.of, all).await?;
        }
        parts.end().await?;
        if mark.is_none() || unblocked.is_empty() {
            return Ok(());
        }
        let mut parts = PartsBySource::new(self, mark);
        let mut stored = self.stored(unblocked);
        while let Some((part, times)) = stored.next().await? {
            let mut all = TimesOfMoves::new();
            for (index, time) in times {
                note(&mut all, moving.choose(&part.readings, index, before).inward, time);
            }
            parts.add(&part.of, all).await?;
        }
        parts.end().await
    }

    fn stored(&self, keys: HashSet<Box<str>>) -> Stored<'_> {
        let app = &*self.app;
        // Readings that have expired are about to be removed.
        let kept_from = app.query.settings().readings_from(&self.database, now_ns()).unwrap_or(TIMESTAMP_MIN);
        let hours = Hour::of(kept_from)..Hour::of(TIMESTAMP_MAX).next();
        let bounds = ReadBounds::of_memory(app.options.backup_bytes);
        let parts = Parts::new(&*app.store, &self.database, hours, bounds).pages_of(Arc::new(keys));
        Stored { parts, kept_from }
    }
}

/// Everything that is stored of some sensors, part by part.
struct Stored<'a> {
    parts: Parts<'a>,
    kept_from: i64,
}

impl Stored<'_> {
    /// The next part, with the places and times of its readings; `None` at the end.
    async fn next(&mut self) -> Result<Option<(Part, Vec<(usize, i64)>)>, ApiError> {
        tokio::task::yield_now().await;
        while let Some(piece) = self.parts.next().await.map_err(|error| ApiError::Query(QueryError::Storage(error)))? {
            // Of readings that have expired only summaries are left.
            let Piece::Readings(part) = piece else { continue };
            let is_within = |time: i64| part.within.as_ref().is_none_or(|within| within.contains(&time));
            let is_kept = |(_, time): &(usize, i64)| *time >= self.kept_from && is_within(*time);
            let times = part.readings.times().iter().copied().enumerate().filter(is_kept).collect();
            return Ok(Some((part, times)));
        }
        Ok(None)
    }
}

/// Times of a sensor by what moves there.
type TimesOfMoves = HashMap<Arc<str>, (ValueMove, Vec<i64>)>;

/// Notes that a value moves.
fn note(all: &mut TimesOfMoves, moving: Option<ValueMove>, time: i64) {
    let Some(moving) = moving else { return };
    // From the field, values go into it or beside it, of the one family or the other.
    let name = format!("{} {}", moving.from, moving.into);
    all.entry(name.into()).or_insert_with(|| (moving, Vec::new())).1.push(time);
}

/// Parts, by the fields that values leave and go to.
struct PartsBySource<'a> {
    task: &'a Task,
    /// Without one nothing is logged.
    mark: Option<&'a Mark>,
    logged: BTreeMap<Arc<str>, PartsLogged<'a>>,
}

impl<'a> PartsBySource<'a> {
    fn new(task: &'a Task, mark: Option<&'a Mark>) -> Self {
        Self { task, mark, logged: BTreeMap::new() }
    }

    async fn add(&mut self, of: &SensorDocument, all: TimesOfMoves) -> Result<(), ApiError> {
        let Some(mark) = self.mark else { return Ok(()) };
        let Task { app, database, now, .. } = self.task;
        for (name, (moving, times)) in all {
            let new = || PartsLogged::new((app, *now), database, mark, Some(moving));
            self.logged.entry(name).or_insert_with(new).add(&of.sensor, times).await?;
        }
        Ok(())
    }

    async fn end(self) -> Result<(), ApiError> {
        for mut logged in self.logged.into_values() {
            logged.end().await?;
        }
        Ok(())
    }
}

/// The documents of the sensors that are meant, lot by lot.
struct Lots<'a> {
    task: &'a Task,
    after: Option<String>,
    is_first: bool,
}

impl<'a> Lots<'a> {
    fn new(task: &'a Task) -> Self {
        Self { task, after: None, is_first: true }
    }

    /// The next ones, perhaps none; `None` at the end.
    async fn next(&mut self) -> Result<Option<Vec<SensorDocument>>, ApiError> {
        if self.after.is_none() && !self.is_first {
            return Ok(None);
        }
        self.is_first = false;
        let Task { app, database, .. } = self.task;
        let filter = SensorFilter { after: self.after.take(), outliers: false, limit: SENSORS };
        let documents = app.store.list_sensors(database, &filter).await;
        let mut documents = documents.map_err(|error| ApiError::Query(QueryError::Storage(error)))?;
        self.after = documents.last().map(|document| document.sensor.key.to_string());
        let settings = app.query.settings();
        let renames = settings.renames(database);
        documents.retain(|document| self.task.is_meant(document, renames));
        Ok(Some(documents))
    }
}
