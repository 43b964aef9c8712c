//! Deletions by value. A deletion by value logs a mark, waits until everything older is in the store,
//! resolves its condition to times of sensors in bounded memory, keeps what will go in the trash, and then logs the times part by
//! part.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use super::App;
use super::errors::ApiError;
use crate::access::{Caller, cut};
use crate::backup::read::Part;
use crate::backup::{Parts, ReadBounds};
use crate::bucket::ValueMove;
use crate::faults;
use crate::influxql::Statement;
use crate::ingest::trash::{TrashChunk, TrashError, TrashHead, TrashReading, TrashWriting};
use crate::ingest::{DeletedTimes, IngestError, Mark};
use crate::query::QueryError;
use crate::query::influx::{DeleteTargets, StatementContext, StatementFailure, ValueCondition};
use crate::reading::{Hour, Sensor, Stamp, Value};

/// The memory that an element of a record takes beside a sensor's key, and the bytes of a time, at most.
const SENSOR_BYTES: usize = 64;
const TIME_BYTES: usize = 10;

impl From<TrashError> for ApiError {
    fn from(error: TrashError) -> Self {
        match error {
            TrashError::Full { .. } | TrashError::Unknown { .. } => Self::Bad(error.to_string()),
            TrashError::Io { .. } | TrashError::Damaged { .. } => Self::Unreadable(error.to_string()),
        }
    }
}

pub fn of_statement(failed: StatementFailure) -> ApiError {
    match failed {
        StatementFailure::Query(error) => error.into(),
        failed @ StatementFailure::Forbidden { .. } => ApiError::Forbidden(failed.to_string()),
        failed => ApiError::Bad(failed.to_string()),
    }
}

/// A deletion by value, with all that outlives its request.
pub struct ByValue {
    pub app: Arc<App>,
    pub statement: Statement,
    /// The request's database and policy.
    pub database: Option<String>,
    pub policy: Option<String>,
    pub now: i64,
    pub by: Caller,
    /// Whether what goes is kept in the trash.
    pub undo: bool,
}

/// How much of a database a statement is about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Extent {
    pub sensors: u64,
    pub readings: u64,
    /// Readings that were written while the statement ran, and stay.
    later: u64,
}

impl ByValue {
    /// Runs it to its end, whether or not the client stays; says what was done.
    ///
    /// # Errors
    /// When it failed, or takes longer than a request may: then it goes on.
    pub async fn run(self, targets: Vec<DeleteTargets>) -> Result<Option<String>, ApiError> {
        let timeout = self.app.options.flush_timeout;
        let task = tokio::spawn(async move {
            let mut said = Vec::new();
            for target in targets {
                said.extend(self.delete_in(target).await?);
            }
            Ok((!said.is_empty()).then(|| said.join("; ")))
        });
        match tokio::time::timeout(timeout, task).await {
            Ok(Ok(done)) => done,
            Ok(Err(ended)) if ended.is_panic() => std::panic::resume_unwind(ended.into_panic()),
            Ok(Err(_)) => Err(IngestError::Stopping.into()),
            Err(_) => Err(IngestError::StillDeleting(timeout).into()),
        }
    }

    async fn delete_in(&self, target: DeleteTargets) -> Result<Option<String>, ApiError> {
        let (app, timeout) = (&*self.app, self.app.options.flush_timeout);
        let DeleteTargets { database, values: Some(first), .. } = target else {
            return Err(ApiError::Bad(format!("no deletion by value: {}", self.statement)));
        };
        // One after the other: each takes the memory of a large query, and room in the trash.
        let Ok(_turn) = app.by_value.clone().acquire_owned().await else { return Err(IngestError::Stopping.into()) };
        let mark = app.ingest.mark(&database, self.now, timeout).await?;
        // Everything older is stored now, and every sensor that has some of it is listed.
        let targets = self.targets(first.anywhere()).await?.into_iter();
        let Some((target, values)) = targets.filter(|target| target.database == database).find_map(by_value) else {
            return Ok(None);
        };
        if let Some((name, measurement)) = first.turned(&values) {
            return Err(ApiError::Bad(format!(
                "{name:?} was a field of {measurement:?} in database {database:?} and has become a tag of it: nothing was deleted \
                 there; write \"{name}\"::field or \"{name}\"::tag"
            )));
        }
        let (extent, id) = match self.undo && app.ingest.trash().is_on() {
            true => {
                let (extent, id) = self.keep(&target, &mark).await?;
                self.delete_kept(&target.database, &mark, &id).await?;
                (extent, Some(id))
            }
            false => {
                let mut sink = Sink::Parts(PartsLogged::new((app, self.now), &target.database, &mark, None));
                let extent = resolve(app, &target, mark.stamp, &mut sink).await?;
                if let Sink::Parts(mut parts) = sink {
                    parts.end().await?;
                }
                (extent, None)
            }
        };
        Ok(Some(said(&database, extent, id)))
    }

    async fn targets(&self, before: &BTreeSet<String>) -> Result<Vec<DeleteTargets>, ApiError> {
        let budget = self.app.query.begin(&self.by, "DELETE by value");
        let asked = StatementContext {
            database: self.database.as_deref(),
            policy: self.policy.as_deref(),
            as_stored: false,
            now: self.now,
            budget: &budget,
            by: &self.by,
        };
        let targets = self.app.query.delete_targets(&self.statement, asked, before).await.map_err(of_statement)?;
        Ok(targets.unwrap_or_default())
    }

    /// Keeps all that will go; returns how much that is, and its id.
    async fn keep(&self, target: &DeleteTargets, mark: &Mark) -> Result<(Extent, String), ApiError> {
        let head = TrashHead {
            id: mark.stamp,
            database: target.database.clone(),
            statement: cut(&self.statement.to_string()),
            by: self.by.name().to_owned(),
            at: self.now,
        };
        let mut sink = Sink::Trash(self.app.ingest.trash().begin(head)?);
        let extent = resolve(&self.app, target, mark.stamp, &mut sink).await?;
        if let Sink::Trash(writing) = sink {
            let finished = tokio::task::spawn_blocking(move || writing.finish()).await;
            finished.map_err(|ended| ApiError::Unreadable(ended.to_string()))??;
        }
        faults::point("trash_kept");
        Ok((extent, format!("{:016x}", mark.stamp)))
    }

    /// Deletes what is in the trash.
    async fn delete_kept(&self, database: &str, mark: &Mark, id: &str) -> Result<(), ApiError> {
        let (_, mut reading) = self.app.ingest.trash().open(id)?;
        let mut parts = PartsLogged::new((&self.app, self.now), database, mark, None);
        while let (back, Some(chunk)) = next_chunk(reading).await? {
            parts.add(&chunk.sensor, chunk.times).await?;
            reading = back;
        }
        parts.end().await
    }
}

/// A target that is one by value: without its condition, all of its sensors would go.
fn by_value(target: DeleteTargets) -> Option<(DeleteTargets, Arc<ValueCondition>)> {
    let values = target.values.clone()?;
    Some((target, values))
}

/// The next chunk of a file in the trash, read where it keeps nobody waiting.
pub async fn next_chunk(mut reading: TrashReading) -> Result<(TrashReading, Option<TrashChunk>), ApiError> {
    let read = tokio::task::spawn_blocking(move || {
        let chunk = reading.next_chunk();
        (reading, chunk)
    });
    let (reading, chunk) = read.await.map_err(|ended| ApiError::Unreadable(ended.to_string()))?;
    Ok((reading, chunk?))
}

fn said(database: &str, extent: Extent, id: Option<String>) -> String {
    let Extent { sensors, readings, later } = extent;
    let mut said = format!("deleted {readings} readings of {sensors} sensors in database {database:?}");
    if let Some(id) = id.filter(|_| readings > 0) {
        said += &format!("; `hourglass undo {id}` writes them back");
    }
    if later > 0 {
        said += &format!("; {later} readings were written meanwhile and stay: run it again");
    }
    said
}

/// Where resolved readings go.
pub enum Sink<'a> {
    /// Nowhere: they are only counted, and their sensors' keys are kept.
    Count(HashSet<Box<str>>),
    Trash(TrashWriting),
    Parts(PartsLogged<'a>),
}

/// Reads the sensors of a target, page by page, and passes on the readings that it deletes.
///
/// # Errors
/// If the store does not answer, or the readings find no room where they go.
pub async fn resolve(
    app: &App,
    target: &DeleteTargets,
    before: Stamp,
    sink: &mut Sink<'_>,
) -> Result<Extent, ApiError> {
    let DeleteTargets { database, sensors, range, values, .. } = target;
    let mut extent = Extent::default();
    // Readings that have expired are about to be removed; what is left of them cannot lose single ones.
    let kept_from = app.query.settings().readings_from(database, crate::clock::now_ns());
    let range = &(kept_from.map_or(range.start, |from| from.max(range.start))..range.end);
    if range.is_empty() || sensors.is_empty() {
        return Ok(extent);
    }
    let hours = Hour::of(range.start)..Hour::of(range.end - 1).next();
    let keys: HashSet<Box<str>> = sensors.iter().map(|sensor| sensor.key.clone()).collect();
    let bounds = ReadBounds::of_memory(app.options.backup_bytes);
    let mut parts = Parts::new(&*app.store, database, hours, bounds).pages_of(Arc::new(keys));
    let mut last: Option<Arc<crate::bucket::SensorDocument>> = None;
    while let Some(piece) = parts.next().await.map_err(|error| ApiError::Query(QueryError::Storage(error)))? {
        let Some(Part { of, readings, within }) = piece.readings() else { continue };
        let sensor = &of.sensor;
        let entry = values.as_ref().map(|values| values.entry(sensor));
        let mut places = Vec::new();
        for (place, time) in readings.times().iter().enumerate() {
            if !range.contains(time) || within.as_ref().is_some_and(|within| !within.contains(time)) {
                continue;
            }
            let holds = |value: &dyn Fn(&str) -> Option<Value>| match (values, &entry) {
                (Some(values), Some(entry)) => values.holds(entry, value),
                _ => true,
            };
            // As if what is written meanwhile came later.
            let value = |name: &str| {
                readings.fields_before(place, before).find(|(of, _)| &***of == name).map(|(_, value)| value.clone())
            };
            let has_any = readings.fields_before(place, before).next().is_some();
            if has_any && holds(&value) {
                places.push(place);
                continue;
            }
            let value =
                |name: &str| readings.fields(place).find(|(of, _)| &***of == name).map(|(_, value)| value.clone());
            let is_later = before != Stamp::MAX && values.is_some() && holds(&value);
            extent.later += u64::from(is_later);
        }
        if !places.is_empty() {
            extent.readings += places.len() as u64;
            extent.sensors += u64::from(last.as_ref().is_none_or(|last| last.sensor.key != sensor.key));
            match sink {
                Sink::Count(sensors) => drop(sensors.insert(sensor.key.clone())),
                Sink::Trash(writing) => writing.keep(sensor, readings, &places, before)?,
                Sink::Parts(logged) => {
                    logged.add(sensor, places.iter().map(|place| readings.times()[*place]).collect()).await?;
                }
            }
            last = Some(of.clone());
        }
        tokio::task::yield_now().await;
    }
    Ok(extent)
}

/// Logs times part by part, and waits until each part is carried out.
pub struct PartsLogged<'a> {
    app: &'a App,
    /// When it was asked for, in nanoseconds since the epoch.
    now: i64,
    /// Where values move; without it they are deleted.
    moving: Option<ValueMove>,
    database: &'a str,
    mark: &'a Mark,
    /// Each sensor once.
    waiting: Vec<(Sensor, Vec<i64>)>,
    bytes: usize,
    most: usize,
}

impl<'a> PartsLogged<'a> {
    pub fn new((app, now): (&'a App, i64), database: &'a str, mark: &'a Mark, moving: Option<ValueMove>) -> Self {
        let most = app.ingest.part_bytes();
        Self { app, now, moving, database, mark, waiting: Vec::new(), bytes: 0, most }
    }

    /// Adds times of a sensor. Those of one sensor must come one after the other.
    pub async fn add(&mut self, sensor: &Sensor, times: Vec<i64>) -> Result<(), ApiError> {
        let mut left = &times[..];
        while !left.is_empty() {
            if self.waiting.last().is_none_or(|(of, _)| of.key != sensor.key) {
                let bytes = 2 * sensor.key.len() + SENSOR_BYTES;
                if self.bytes > 0 && self.bytes + bytes + TIME_BYTES > self.most {
                    self.end().await?;
                }
                self.bytes += bytes;
                self.waiting.push((sensor.clone(), Vec::new()));
            }
            let room = (self.most.saturating_sub(self.bytes) / TIME_BYTES).max(1).min(left.len());
            let (some, rest) = left.split_at(room);
            if let Some((_, times)) = self.waiting.last_mut() {
                times.extend(some);
            }
            self.bytes += some.len() * TIME_BYTES;
            left = rest;
            if self.bytes + TIME_BYTES > self.most {
                self.end().await?;
            }
        }
        Ok(())
    }

    /// Logs what is waiting.
    pub async fn end(&mut self) -> Result<(), ApiError> {
        self.bytes = 0;
        let mut sensors = Vec::with_capacity(self.waiting.len());
        for (sensor, mut times) in self.waiting.drain(..) {
            times.sort_unstable();
            times.dedup();
            sensors.push(DeletedTimes { sensor, times: times.into() });
        }
        if !sensors.is_empty() {
            let of = (self.database, self.now);
            match self.moving.clone() {
                None => self.app.ingest.delete_cells(of, sensors, self.mark).await?,
                Some(moving) => self.app.ingest.move_cells(of, (sensors, moving), self.mark).await?,
            }
            faults::point("part_deleted");
        }
        Ok(())
    }
}
