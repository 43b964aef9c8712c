//! Validates points of any format. An accepted point is final. A rejected point is reported with its position and
//! reason, and never affects an accepted one.

mod drift;
mod explain;
mod new_sensor;
mod rejected;
mod request_sensor;
mod sensor_order;

pub use self::explain::{ExplainedField, ExplainedPoint};
pub use self::rejected::RejectionSummary;

use std::collections::HashMap;
use std::sync::Arc;

use rapidhash::fast::RandomState;

use self::new_sensor::sensor_quota_violation;
use self::request_sensor::{FieldRules, RequestSensor};
use self::sensor_order::SensorOrder;
use super::write_policy::{pin_violation, seeming_unit};
use crate::access::{Caller, Exhausted};
use crate::bucket::Renames;
use crate::buffer::record::batch::{Batch, index};
use crate::catalog::{Catalog, Claims, Database, KnownSensor, SensorsRead};
use crate::config::Settings;
use crate::ingest::AcceptedTimes;
use crate::kinds::{KindAction, KindFault};
use crate::reading::value::RawValue;
use crate::reading::{Limits, Precision, Reason, Rejection, Sensor, Value};
use crate::wire::{Point, Points};

/// The expected minimum length of a line with a sensor, a field and a timestamp.
const LINE_BYTES: usize = 48;
/// Maximum number of sensors for which a request allocates room in advance.
const SENSORS_EXPECTED: usize = 4096;

/// The year 2000. Earlier timestamps usually come from devices that have no time yet, and count from 1970.
const PLAUSIBLE_FROM: i64 = 946_684_800_000_000_000;

/// The number of findings of one kind in a request, and the first of them.
#[derive(Debug)]
pub struct Tally<T> {
    pub count: usize,
    pub first: Option<T>,
}

impl<T> Default for Tally<T> {
    fn default() -> Self {
        Self { count: 0, first: None }
    }
}

impl<T> Tally<T> {
    /// Counts a finding, and keeps it if it is the first.
    pub fn note(&mut self, finding: T) {
        self.count += 1;
        self.first.get_or_insert(finding);
    }
}

/// The result of validating a body.
#[derive(Debug, Default)]
pub struct ValidatedBody {
    /// The number of accepted lines.
    pub accepted: usize,
    pub rejected: RejectionSummary,
    /// The readings, one batch per shard.
    pub batches: Vec<Batch>,
    /// Bytes of memory that the result takes.
    pub memory: usize,
    /// Sensors that the catalog does not know. Their lines were skipped: validate again after the lookup.
    pub unknown: Vec<Sensor>,
    /// The quota for which sensors were rejected.
    pub exhausted: Option<Exhausted>,
    /// New fields. They stay if the readings are logged.
    pub claims: Claims,
    /// The sensors with undated readings, if the request has a key that determines their times.
    pub undated: Vec<Arc<KnownSensor>>,
    /// The number of the last line with an undated reading.
    pub undated_span: i64,
    /// Timestamps that look as if they were in another unit than declared, with the likely unit.
    pub suspect_units: Tally<&'static str>,
    /// Timestamps before [`PLAUSIBLE_FROM`], in nanoseconds since the epoch.
    pub early_times: Tally<i64>,
    /// Values that are kept in drift fields, with the names of these fields.
    pub drifted_values: Tally<String>,
    /// Accepted readings that do not conform to the kinds of their sensors.
    pub kind_faults: Tally<KindFault>,
}

impl ValidatedBody {
    /// Drops the readings of a request that must be accepted as a whole but has rejected lines.
    pub fn discard_readings(&mut self) {
        self.accepted = 0;
        self.memory = 0;
        self.batches.clear();
        self.claims = Claims::default();
        self.drifted_values = Tally::default();
        self.undated.clear();
    }
}

/// The parameters of one validation pass over a body.
#[derive(Debug, Clone, Copy)]
pub struct ValidationPass {
    /// The time of receipt, in nanoseconds since the epoch. Undated readings get this time.
    pub received: i64,
    /// The start of the retention period, in nanoseconds since the epoch. Earlier timestamps have expired.
    pub retention_start: i64,
    /// The length of the retention period in nanoseconds.
    pub retention_ns: i64,
    /// The declared unit of timestamps.
    pub precision: Precision,
    /// Reject timestamps that seem to be in another unit.
    pub rejects_other_units: bool,
    /// Keep a value of another family than its field's in a drift field.
    pub keeps_drift: bool,
    /// The sensor lookup is done, so sensors that are still unknown are over a limit.
    pub is_lookup_done: bool,
    /// Claim new fields, which makes them visible to other requests.
    pub claims_fields: bool,
    /// Bytes of memory at which validation stops.
    pub budget: usize,
    /// Bytes of the body.
    pub body_bytes: usize,
    /// For a request with a key, the time of an undated reading on line 1. Each further line adds one nanosecond,
    /// whether its reading is accepted or not. `None` stands for the time of receipt, or the next free time of the
    /// sensor.
    pub undated_from: Option<i64>,
}

/// The lookup result of a spelling that occurred earlier in this request.
#[derive(Clone, Copy)]
enum SpellingState {
    Known(usize),
    /// The sensor is in [`ValidatedBody::unknown`].
    Unknown,
    /// A limit or quota is reached.
    Refused,
    /// The sender may not write the sensor.
    Forbidden,
}

/// Validates the lines of one request.
pub struct Validator<'a> {
    database: &'a Arc<Database>,
    catalog: &'a Catalog,
    options: &'a Settings,
    limits: Limits,
    times: AcceptedTimes,
    pass: ValidationPass,
    /// The read guard on the database's sensors, held across lines.
    sensors: Option<SensorsRead<'a>>,
    /// Spellings that were not in the catalog when first seen.
    spellings: HashMap<Box<str>, SpellingState, RandomState>,
    /// The known sensors of this request.
    locals: Vec<RequestSensor>,
    /// The index in `locals` by sensor id.
    by_id: HashMap<u32, usize, RandomState>,
    order: SensorOrder,
    caller: &'a Caller,
    /// The renames of the database. A written name may be the shown name of a stored sensor.
    renames: Option<Renames>,
    /// The reasons to reject new sensors, for the first few measurements of which a sensor was rejected.
    full: Vec<Reason>,
    validated: ValidatedBody,
}

impl<'a> Validator<'a> {
    pub fn new(
        database: &'a Arc<Database>,
        catalog: &'a Catalog,
        options: &'a Settings,
        pass: ValidationPass,
        caller: &'a Caller,
        renames: Option<Renames>,
    ) -> Self {
        database.follow_renames(renames.as_ref());
        let batch = |_| Batch::expecting(pass.body_bytes, options.ingest.shards.max(1));
        let batches = (0..options.ingest.shards).map(batch).collect();
        let validated = ValidatedBody { batches, ..ValidatedBody::default() };
        // Reserve room for one sensor per line. Unused memory pages are never touched.
        let capacity = (pass.body_bytes / LINE_BYTES).min(SENSORS_EXPECTED);
        Self {
            database,
            catalog,
            options,
            limits: options.reading_limits(),
            times: AcceptedTimes::new(&options.limits),
            pass,
            sensors: None,
            spellings: HashMap::default(),
            locals: Vec::with_capacity(capacity),
            by_id: HashMap::with_capacity_and_hasher(capacity, RandomState::default()),
            order: SensorOrder { last: None, patience: SensorOrder::PATIENCE },
            caller,
            full: Vec::new(),
            validated,
            renames,
        }
    }

    /// Returns true if the memory budget allows more points.
    pub fn has_room(&self) -> bool {
        self.validated.memory <= self.pass.budget
    }

    pub fn finish(self) -> ValidatedBody {
        self.validated
    }

    /// Counts a rejection, and keeps it for the response if there is room.
    pub fn reject(&mut self, rejection: Rejection) {
        self.validated.rejected.note(rejection, self.options.rejections.max_bytes > 0);
    }

    /// Validates at most `most` lines. Returns true if there may be more.
    pub fn validate_lines<'b>(&mut self, points: &mut impl Points<'b>, most: usize) -> bool {
        for _ in 0..most {
            let Some(point) = points.next().filter(|_| self.has_room()) else {
                self.sensors = None;
                return points.is_paused() && self.has_room();
            };
            match point {
                Ok(point) => self.validate(&point),
                Err(rejection) => self.reject(rejection),
            }
        }
        self.sensors = None;
        true
    }

    /// Validates a point.
    pub fn validate(&mut self, point: &Point<'_, '_>) {
        let state = match self.find_sensor(point.spelling(), false) {
            Some(local) => SpellingState::Known(local),
            None => match self.look_up_spelling(point) {
                Ok(state) => state,
                Err(rejection) => return self.reject(rejection),
            },
        };
        match state {
            SpellingState::Known(local) => self.admit(local, point),
            SpellingState::Refused | SpellingState::Forbidden => match point.sensor(&self.limits) {
                Ok(sensor) => {
                    let reason = self.rejection_reason(&sensor);
                    self.reject(point.refuse_sensor(reason));
                }
                Err(rejection) => self.reject(rejection),
            },
            SpellingState::Unknown => {}
        }
    }

    fn remember(&mut self, spelling: Box<str>, state: SpellingState) {
        self.validated.memory +=
            spelling.len() + size_of::<(Box<str>, SpellingState)>() * 2 + size_of::<RequestSensor>();
        self.spellings.insert(spelling, state);
    }

    /// Returns the index in `locals` of the sensor with that spelling, if the catalog has it. In a database with
    /// renames, a sensor whose readings were all deleted is found only if `includes_emptied`, because its name may
    /// stand for another sensor by now.
    fn find_sensor(&mut self, spelling: &str, includes_emptied: bool) -> Option<usize> {
        /// Bytes of memory of a sensor: in `locals`, in a batch, and in `by_id`.
        const LOCAL_BYTES: usize =
            size_of::<RequestSensor>() + size_of::<Arc<KnownSensor>>() + 2 * size_of::<(u32, usize)>();
        let Self { database, sensors, locals, by_id, validated, caller, order, renames, .. } = self;
        if let Some(last) = order.last.filter(|last| locals[*last].has_spelling(spelling)) {
            return Some(last);
        }
        let known = order.find(sensors.get_or_insert_with(|| database.sensors()), locals, spelling)?;
        if renames.is_some() && !includes_emptied && !known.is_listed() {
            return None;
        }
        let local = *by_id.entry(known.id).or_insert_with(|| {
            validated.memory += LOCAL_BYTES;
            let forbidden = pin_violation(caller, renames.as_ref(), &known.sensor)
                .or_else(|| sensor_quota_violation(caller, &known.sensor, validated))
                .map(Box::new);
            let fields = known.fields();
            locals.push(RequestSensor {
                known: known.clone(),
                claimed: fields.firm,
                fields,
                batch_index: None,
                is_undated: false,
                forbidden,
                kind: known.kind().filter(|kind| kind.fields.is_some()).cloned(),
            });
            locals.len() - 1
        });
        order.last = Some(local);
        Some(local)
    }

    fn look_up_spelling(&mut self, point: &Point<'_, '_>) -> Result<SpellingState, Rejection> {
        let spelling = point.spelling();
        if let Some(state) = self.spellings.get(spelling) {
            return Ok(*state);
        }
        let state = self.look_up(&*point.sensor(&self.limits)?);
        if let SpellingState::Known(local) = state {
            // Release the read guard, because `add_spelling` writes to the same map.
            self.sensors = None;
            self.catalog.add_spelling(self.database, spelling, &self.locals[local].known, self.renames.as_ref());
        }
        self.remember(spelling.into(), state);
        Ok(state)
    }

    fn look_up(&mut self, sensor: &Sensor) -> SpellingState {
        let names = self.renames.as_ref().map(|renames| renames.stored_candidates(sensor));
        let new = names.as_ref().and_then(|names| names.last()).unwrap_or(sensor);
        let mut known = match &names {
            Some(names) => names.iter().find_map(|name| self.find_sensor(&name.key, false)),
            None => self.find_sensor(&sensor.key, true),
        };
        // After the lookup, a sensor without readings is the new sensor itself.
        if known.is_none() && self.pass.is_lookup_done {
            known = self.find_sensor(&new.key, true);
        }
        match known {
            Some(local) => SpellingState::Known(local),
            None if pin_violation(self.caller, self.renames.as_ref(), new).is_some() => SpellingState::Forbidden,
            None if self.pass.is_lookup_done || self.validated.unknown.len() >= self.catalog.room() => {
                SpellingState::Refused
            }
            None => {
                self.validated.memory += 4 * sensor.key.len() + size_of::<Sensor>();
                self.validated.unknown.push(sensor.clone());
                SpellingState::Unknown
            }
        }
    }

    /// Returns the index of a field of a sensor. Adds the field to the sensor if it is new.
    fn resolve_field(&mut self, local: usize, name: &str, value: &RawValue<'_>, hint: usize) -> Result<u16, Reason> {
        let claims = self.pass.claims_fields.then_some(&mut self.validated.claims);
        let fields_max = self.options.limits.sensor_fields;
        let allowance = self.caller.allowance().map(|usage| &**usage);
        let rules = FieldRules { catalog: self.catalog, allowance, fields_max, keeps_drift: self.pass.keeps_drift };
        self.locals[local].resolve_field(name, value, hint, claims, &rules)
    }

    fn admit(&mut self, local: usize, point: &Point<'_, '_>) {
        if let Some(reason) = &self.locals[local].forbidden {
            // Reject it as an unknown sensor would be rejected, so that the response does not reveal which sensors
            // exist.
            return self.reject(point.refuse_sensor(Reason::clone(reason)));
        }
        if let Some(time) = point.timestamp {
            if let Some(reason) = self.times.refusal(time, self.pass.received) {
                return self.reject(point.refuse(0, reason));
            }
            if time < self.pass.retention_start {
                let seconds = (self.pass.retention_ns / 1_000_000_000).unsigned_abs();
                return self.reject(point.refuse(0, Reason::Expired { time, seconds }));
            }
            let declared = (!point.has_unit).then_some(self.pass.precision);
            if let Some(unit) = declared.and_then(|unit| seeming_unit(time, unit, self.pass.received)) {
                if self.pass.rejects_other_units {
                    let number = time / self.pass.precision.unit_ns(time);
                    return self.reject(point.refuse(0, Reason::UndeclaredUnit { number, unit }));
                }
                self.validated.suspect_units.note(unit);
            } else if time < PLAUSIBLE_FROM {
                self.validated.early_times.note(time);
            }
        }
        if let Some(kind) = &self.locals[local].kind
            && let Some(fault) = kind.fault_of_reading(point.fields.iter().map(|(name, value)| (&**name, value)))
        {
            if kind.action == KindAction::Reject {
                return self.reject(point.refuse(0, fault.into()));
            }
            self.validated.kind_faults.note(fault);
        }
        let shard = self.locals[local].known.shard;
        let start = self.validated.batches[shard].cells();
        let kept_before = self.validated.rejected.kept_lines.len();
        let mut has_drift = false;
        let mut quoted = None;
        for (hint, (name, value)) in point.fields.iter().enumerate() {
            let found = match self.resolve_field(local, name, value, hint) {
                Err(reason) => self.drift_field(local, name, value, reason).inspect(|_| has_drift = true),
                found => found,
            };
            match found {
                Ok(field) => {
                    self.validated.memory += size_of::<(u16, Value)>() + text_bytes(value);
                    let value = value.clone().into_value();
                    let batch = &mut self.validated.batches[shard];
                    // The line may also name the drift field itself: `temp="x",temp@string="y"`.
                    if has_drift {
                        batch.set_cell(start, field, value);
                    } else {
                        batch.push_cell(field, value);
                    }
                }
                Err(reason) => self.reject(point.refuse_quoting(&mut quoted, 0, reason)),
            }
        }
        let RequestSensor { known, batch_index, is_undated, .. } = &mut self.locals[local];
        let batch = &mut self.validated.batches[shard];
        if batch.cells() == start {
            // Every field was rejected, each with a reason of its own.
            self.validated.rejected.line_count += 1;
            return;
        }
        let sensor = *batch_index.get_or_insert_with(|| {
            known.note_reading(self.pass.received);
            batch.sensors.push(known.clone());
            index(batch.sensors.len() - 1)
        });
        let time = match (point.timestamp, self.pass.undated_from) {
            (Some(time), _) => time,
            (None, None) => known.stamp(self.pass.received),
            (None, Some(base)) => {
                if !std::mem::replace(is_undated, true) {
                    self.validated.undated.push(known.clone());
                }
                let number = i64::try_from(point.number).unwrap_or(i64::MAX);
                self.validated.undated_span = self.validated.undated_span.max(number);
                undated_time(base, point.number)
            }
        };
        self.validated.memory += Batch::ROW_BYTES;
        batch.push_row(sensor, time, start);
        self.validated.accepted += 1;
        let rejected_fields = &mut self.validated.rejected.kept_lines[kept_before..];
        rejected_fields.iter_mut().for_each(|line| line.time = Some(time));
    }
}

/// Returns the time of an undated reading on line `number`, from 1, of a request with a key.
fn undated_time(base: i64, number: usize) -> i64 {
    base.saturating_add(i64::try_from(number).unwrap_or(i64::MAX) - 1)
}

fn text_bytes(value: &RawValue<'_>) -> usize {
    match value {
        RawValue::String(text) => text.len(),
        _ => 0,
    }
}
