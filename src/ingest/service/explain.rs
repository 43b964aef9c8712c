//! The dry run of a write. It validates the lines as a write does, but on a temporary copy of the sensors and quotas
//! that they concern.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Instant;

use super::write::{kind_warning, time_warnings};
use super::{Arrival, Ingest};
use crate::access::Caller;
use crate::catalog::{CatalogCopy, Database, WantedSensor};
use crate::ingest::admission::quota::QuotaCharge;
use crate::ingest::admission::validate::{ExplainedPoint, RejectionSummary, ValidatedBody, ValidationPass, Validator};
use crate::ingest::admission::write_policy::pin_violation;
use crate::ingest::error::IngestError;
use crate::reading::{Limits, Sensor};
use crate::wire::Points;

/// Maximum number of lines of a dry run.
pub const LINES_EXPLAINED: usize = 1000;

/// The expected outcome of a write.
#[derive(Debug)]
pub struct Explanation {
    /// The database with its retention policy.
    pub database: String,
    /// True if the write would create the database.
    pub is_new_database: bool,
    /// The points in the order of the body.
    pub points: Vec<ExplainedPoint>,
    /// The keys of new sensors, as far as is known.
    pub new_sensors: HashSet<Box<str>>,
    /// The number of new sensors within the limits. These would be charged.
    pub sensors_charged: usize,
    /// False if the store did not answer, so that sensors unknown to this instance may or may not be new.
    pub was_store_asked: bool,
    /// The number of readings that would be kept and charged.
    pub accepted: usize,
    pub rejected: RejectionSummary,
    /// The error for which the write would be refused as a whole.
    pub refused: Option<IngestError>,
    /// The warnings of the write, as in [`super::Ack::warnings`].
    pub warnings: Vec<String>,
}

/// A copy of the catalog for the sensors of one body.
struct SensorsCopy {
    copy: CatalogCopy,
    new: HashSet<Box<str>>,
    was_store_asked: bool,
}

impl Ingest {
    /// Explains what [`Ingest::take`] would do with a body. It adds no sensor, field or database, and changes no quota,
    /// metric or list of rejections.
    ///
    /// # Errors
    /// If the write would be refused before validation, or the body has more than [`LINES_EXPLAINED`] lines.
    pub async fn explain<'b, P: Points<'b>>(
        &self,
        arrival: Arrival<'_>,
        read: impl Fn(Limits) -> P,
        body_bytes: usize,
    ) -> Result<Explanation, IngestError> {
        let name = self.resolve(arrival.database, None).await?;
        let is_new_database = if self.catalog.database(&name).is_some() {
            false
        } else {
            let stored = self.stored_databases(&name).await?;
            let is_new = self.catalog.would_add_database(&name, &stored, self.database_terms(arrival.caller));
            is_new.map_err(|refusal| self.refused_database(&name, refusal))?
        };
        let caller = arrival.caller.copy();
        let arrival = Arrival { database: &name, caller: &caller, ..arrival };
        let mut sensors = list_sensors(read(self.options.reading_limits()), &self.options.reading_limits())?;
        // Do not reveal sensors that the caller may not write.
        let renames = self.retention.settings.now().renames(&name).cloned();
        if let Some(renames) = &renames {
            sensors = self.stored_names(&name, sensors, renames).await?;
        }
        sensors.retain(|sensor| pin_violation(&caller, renames.as_ref(), sensor).is_none());
        let SensorsCopy { copy, new, was_store_asked } = self.copy_sensors(&name, &caller, sensors).await;
        // Check the quotas before validation, as a write does.
        let refused = self.find_refusal(&copy.database, &caller);
        let was_refused = refused.is_some();
        let pass = ValidationPass { is_lookup_done: true, ..self.pass_parameters(&name, arrival, body_bytes) };
        let (points, mut validated) = self.explain_points(&copy, &caller, pass, read);
        if !arrival.is_partial && validated.rejected.count > 0 {
            validated.discard_readings();
        }
        let mut warnings: Vec<String> = time_warnings(&validated, arrival.precision).collect();
        warnings.extend(kind_warning(&validated.kind_faults));
        let quotas = QuotaCharge::new(&caller, &copy.database, None, Instant::now());
        let refused = refused.or_else(|| quotas.check(&validated).err());
        let accepted = if refused.is_some() { 0 } else { validated.accepted };
        if accepted > 0 {
            quotas.settle(accepted, &mut warnings);
        }
        let rejected = validated.rejected;
        let charged = new.iter().filter(|key| copy.catalog.sensor(&copy.database, key).is_some()).count();
        let sensors_charged = if was_refused { 0 } else { charged };
        Ok(Explanation {
            database: name,
            is_new_database,
            points,
            new_sensors: new,
            sensors_charged,
            was_store_asked,
            accepted,
            rejected,
            refused,
            warnings,
        })
    }

    /// Returns the error for which a write would be refused before validation.
    fn find_refusal(&self, copy: &Database, caller: &Caller) -> Option<IngestError> {
        if let Err(error) = self.member.check() {
            return Some(error.into());
        }
        let admitted = QuotaCharge::new(caller, copy, None, Instant::now()).admit();
        admitted.and_then(|()| self.check_share(copy)).err()
    }

    /// Copies the catalog entries of the sensors, and completes them with the documents of the store.
    async fn copy_sensors(&self, name: &str, caller: &Caller, sensors: Vec<Sensor>) -> SensorsCopy {
        let mut copy = self.catalog.copy(name, sensors, &self.options);
        let unknown = std::mem::take(&mut copy.unknown);
        if unknown.is_empty() {
            return SensorsCopy { copy, new: HashSet::new(), was_store_asked: true };
        }
        let keys: Vec<&str> = unknown.iter().map(|sensor| &*sensor.key).collect();
        let mut found = self.lookup.find(copy.database.original(), &keys, self.catalog.sensors_max()).await;
        let was_store_asked = found.counts;
        found.deletions = copy.database.deletions();
        let stored: HashSet<Box<str>> = found.documents.iter().map(|document| document.sensor.key.clone()).collect();
        let new =
            keys.iter().filter(|key| was_store_asked && !stored.contains(**key)).map(|key| Box::from(*key)).collect();
        let wanted =
            unknown.into_iter().map(|sensor| WantedSensor { sensor, allowance: caller.allowance().cloned() }).collect();
        copy.catalog.add_sensors(&copy.database, wanted, found, self.catalog.sensors_max());
        SensorsCopy { copy, new, was_store_asked }
    }

    fn explain_points<'b, P: Points<'b>>(
        &self,
        copy: &CatalogCopy,
        caller: &Caller,
        pass: ValidationPass,
        read: impl Fn(Limits) -> P,
    ) -> (Vec<ExplainedPoint>, ValidatedBody) {
        let renames = self.retention.settings.now().renames(&copy.database.name).cloned();
        let mut validator = Validator::new(&copy.database, &copy.catalog, &self.options, pass, caller, renames);
        let mut points = read(self.options.reading_limits());
        let mut seen = HashMap::new();
        let mut explained = Vec::new();
        loop {
            let Some(point) = points.next() else {
                if points.is_paused() {
                    continue;
                }
                break;
            };
            explained.push(match point {
                Ok(point) => validator.explain(&point, &mut seen),
                Err(rejection) => validator.explain_rejected(rejection),
            });
        }
        (explained, validator.finish())
    }
}

/// Returns the distinct sensors of a body, sorted by key.
fn list_sensors<'b>(mut points: impl Points<'b>, limits: &Limits) -> Result<Vec<Sensor>, IngestError> {
    let mut sensors = BTreeMap::new();
    let mut lines = 0;
    loop {
        let Some(point) = points.next() else {
            if points.is_paused() {
                continue;
            }
            break;
        };
        lines += 1;
        if lines > LINES_EXPLAINED {
            return Err(IngestError::LinesToExplain { limit: LINES_EXPLAINED });
        }
        let Ok(point) = point else { continue };
        if let Ok(sensor) = point.sensor(limits) {
            sensors.entry(sensor.key.clone()).or_insert_with(|| sensor.into_owned());
        }
    }
    Ok(sensors.into_values().collect())
}
