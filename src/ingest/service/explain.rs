//! The dry run of a write: its lines are judged as a write would judge them, on a copy of what this process knows of their
//! sensors and quotas, and the copy is dropped.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Instant;

use super::write::{suspected, unlike};
use super::{Arrival, Ingest};
use crate::access::Caller;
use crate::catalog::{CatalogCopy, Database, WantedSensor};
use crate::ingest::admission::quota::QuotaCharge;
use crate::ingest::admission::validate::{ExplainedPoint, Rejected, ValidatedBody, ValidationPass, Validator};
use crate::ingest::admission::write_policy::barred;
use crate::ingest::error::IngestError;
use crate::reading::{Limits, Sensor};
use crate::wire::Points;

/// Most lines of a body that is explained.
pub const LINES_EXPLAINED: usize = 1000;

/// What a write would come to.
#[derive(Debug)]
pub struct Explanation {
    /// The database with its retention policy.
    pub database: String,
    /// Whether the write would create it.
    pub new_database: bool,
    /// In the order sent.
    pub points: Vec<ExplainedPoint>,
    /// The keys of sensors that would be new, as far as is known.
    pub new_sensors: HashSet<Box<str>>,
    /// How many of them would be charged: the others are over a limit.
    pub sensors_charged: usize,
    /// Whether the store was asked about the sensors that are not known here: if it does not answer, nobody knows
    /// whether they are new.
    pub store_asked: bool,
    /// Readings that would be kept and charged.
    pub accepted: usize,
    pub rejected: Rejected,
    /// Why the write would be refused as a whole, if it would be.
    pub refused: Option<IngestError>,
    /// As a write's.
    pub warnings: Vec<String>,
}

/// What was found of the sensors of a body.
struct Copied {
    copy: CatalogCopy,
    new: HashSet<Box<str>>,
    store_asked: bool,
}

impl Ingest {
    /// Says what [`Ingest::take`] would do with a body. Nothing of it stays: no sensor, field or database becomes known, and
    /// no quota, metric or list of rejections changes.
    ///
    /// # Errors
    /// When the write would be refused before its lines are looked at, and for bodies of more than [`LINES_EXPLAINED`] lines.
    pub async fn explain<'b, P: Points<'b>>(
        &self,
        arrival: Arrival<'_>,
        read: impl Fn(Limits) -> P,
        body_bytes: usize,
    ) -> Result<Explanation, IngestError> {
        let name = self.resolve(arrival.database, None).await?;
        let new_database = match self.catalog.database(&name) {
            Some(_) => false,
            None => {
                let stored = self.stored_databases(&name).await?;
                let is_new = self.catalog.would_add_database(&name, &stored, self.database_terms(arrival.by));
                is_new.map_err(|refusal| self.refused_database(&name, refusal))?
            }
        };
        let by = arrival.by.copy();
        let arrival = Arrival { database: &name, by: &by, ..arrival };
        let mut sensors = sensors_of(read(self.options.reading_limits()), &self.options.reading_limits())?;
        // Whoever may not write a sensor learns nothing of it.
        let renames = self.retention.settings.now().renames(&name).cloned();
        if let Some(renames) = &renames {
            sensors = self.stored_names(&name, sensors, renames).await?;
        }
        sensors.retain(|sensor| barred(&by, renames.as_ref(), sensor).is_none());
        let Copied { copy, new, store_asked } = self.copied(&name, &by, sensors).await;
        // Before the lines are judged, as a write is.
        let refused = self.refused(&copy.database, &by);
        let was_refused = refused.is_some();
        let pass = ValidationPass { looked_up: true, ..self.terms(&name, arrival, body_bytes) };
        let (points, mut judged) = self.judge(&copy, &by, pass, read);
        if !arrival.partial && judged.rejected.count > 0 {
            judged.keep_nothing();
        }
        let mut warnings: Vec<String> = suspected(judged.suspects, arrival.precision).into_iter().collect();
        warnings.extend(unlike(&judged.unlike));
        let quotas = QuotaCharge::of(&by, &copy.database, None, Instant::now());
        let refused = refused.or_else(|| quotas.check(&judged).err());
        let accepted = if refused.is_some() { 0 } else { judged.accepted };
        if accepted > 0 {
            quotas.settle(accepted, &mut warnings);
        }
        let rejected = judged.rejected;
        let charged = new.iter().filter(|key| copy.catalog.sensor(&copy.database, key).is_some()).count();
        let sensors_charged = if was_refused { 0 } else { charged };
        Ok(Explanation {
            database: name,
            new_database,
            points,
            new_sensors: new,
            sensors_charged,
            store_asked,
            accepted,
            rejected,
            refused,
            warnings,
        })
    }

    /// Why a write would be refused before its lines are looked at.
    fn refused(&self, copy: &Database, by: &Caller) -> Option<IngestError> {
        let checked = self
            .member
            .check()
            .map_err(IngestError::from)
            .and_then(|()| QuotaCharge::of(by, copy, None, Instant::now()).admit());
        checked.and_then(|()| self.check_share(copy)).err()
    }

    /// A copy of what is known of the sensors, the store's documents included.
    async fn copied(&self, name: &str, by: &Caller, sensors: Vec<Sensor>) -> Copied {
        let mut copy = self.catalog.copy(name, sensors, &self.options);
        let unknown = std::mem::take(&mut copy.unknown);
        if unknown.is_empty() {
            return Copied { copy, new: HashSet::new(), store_asked: true };
        }
        let keys: Vec<&str> = unknown.iter().map(|sensor| &*sensor.key).collect();
        let mut found = self.lookup.find(copy.database.original(), &keys, self.catalog.sensors_max()).await;
        let store_asked = found.counts;
        found.deletions = copy.database.deletions();
        let stored: HashSet<Box<str>> = found.documents.iter().map(|document| document.sensor.key.clone()).collect();
        let new = keys.iter().filter(|key| store_asked && !stored.contains(**key)).map(|key| Box::from(*key)).collect();
        let wanted =
            unknown.into_iter().map(|sensor| WantedSensor { sensor, allowance: by.allowance().cloned() }).collect();
        copy.catalog.add_sensors(&copy.database, wanted, found, self.catalog.sensors_max());
        Copied { copy, new, store_asked }
    }

    fn judge<'b, P: Points<'b>>(
        &self,
        copy: &CatalogCopy,
        by: &Caller,
        pass: ValidationPass,
        read: impl Fn(Limits) -> P,
    ) -> (Vec<ExplainedPoint>, ValidatedBody) {
        let renames = self.retention.settings.now().renames(&copy.database.name).cloned();
        let mut validator = Validator::new(&copy.database, &copy.catalog, &self.options, pass, by, renames);
        let (mut points, mut seen) = (read(self.options.reading_limits()), HashMap::new());
        let mut explained = Vec::new();
        while let Some(point) = points.next() {
            explained.push(match point {
                Ok(point) => validator.explain(&point, &mut seen),
                Err(rejection) => validator.explain_rejected(rejection),
            });
        }
        (explained, validator.close())
    }
}

/// The distinct sensors of a body, in order of their keys.
fn sensors_of<'b>(mut points: impl Points<'b>, limits: &Limits) -> Result<Vec<Sensor>, IngestError> {
    let (mut sensors, mut lines) = (BTreeMap::new(), 0);
    while let Some(point) = points.next() {
        lines += 1;
        if lines > LINES_EXPLAINED {
            return Err(IngestError::LinesToExplain { limit: LINES_EXPLAINED });
        }
        if let Ok(sensor) = point.as_ref().map_err(|_| ()).and_then(|point| point.sensor(limits).map_err(|_| ())) {
            sensors.entry(sensor.key.clone()).or_insert_with(|| sensor.into_owned());
        }
    }
    Ok(sensors.into_values().collect())
}
