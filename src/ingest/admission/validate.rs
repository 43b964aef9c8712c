//! Validates points of any format. An accepted point is final; a rejected one is reported with its place and reason and
//! never affects an accepted one.

mod drift;
mod explain;
mod new_sensor;
mod rejected;
mod request_sensor;
mod sensor_order;

pub use self::explain::{ExplainedField, ExplainedPoint};
pub use self::rejected::Rejected;

use std::collections::HashMap;
use std::sync::Arc;

use rapidhash::fast::RandomState;

use self::new_sensor::one_too_many;
use self::request_sensor::RequestSensor;
use self::sensor_order::SensorOrder;
use super::write_policy::{barred, seeming_unit};
use crate::access::{Caller, Exhausted};
use crate::bucket::Renames;
use crate::buffer::record::batch::{Batch, index};
use crate::catalog::{Catalog, Claims, Database, KnownSensor, SensorsRead};
use crate::config::Settings;
use crate::ingest::AcceptedTimes;
use crate::kinds::{KindAction, KindFault};
use crate::reading::value::RawValue;
use crate::reading::{Limits, Precision, Reason, Rejection, Sensor, Value};
use crate::wire::Point;

/// The usual least length of a line with a sensor, a field and a timestamp.
const LINE_BYTES: usize = 48;
/// Most sensors of a request for which room is allocated in advance.
const SENSORS_EXPECTED: usize = 4096;
/// The result of validating a body.
#[derive(Debug, Default)]
pub struct ValidatedBody {
    /// Accepted lines.
    pub accepted: usize,
    pub rejected: Rejected,
    /// The readings, one batch per shard.
    pub batches: Vec<Batch>,
    /// Bytes of memory of all of this.
    pub memory: usize,
    /// Sensors that the catalog does not know. Their lines were skipped: validate again after the lookup.
    pub unknown: Vec<Sensor>,
    /// The quota that kept sensors out, if one did.
    pub exhausted: Option<Exhausted>,
    /// New fields; they stay if the readings are logged.
    pub claims: Claims,
    /// Where a key gives the times of undated readings: the sensors that have some.
    pub undated: Vec<Arc<KnownSensor>>,
    /// The number of the last line with an undated reading.
    pub undated_span: i64,
    /// How many timestamps look as if they were in another unit than declared, and the unit that the first one seems to
    /// be in.
    pub suspects: (usize, Option<&'static str>),
    /// How many values are kept beside their fields, and the name under which the first one is.
    pub drifted: (usize, Option<String>),
    /// How many accepted readings are not as the kinds of their sensors say, and what is wrong with the first one.
    pub unlike: (usize, Option<KindFault>),
}

impl ValidatedBody {
    /// Drops the readings of a request that must be accepted as a whole and cannot be.
    pub fn keep_nothing(&mut self) {
        self.accepted = 0;
        self.memory = 0;
        self.batches.clear();
        self.claims = Claims::default();
        self.drifted = (0, None);
        self.undated.clear();
    }
}

/// The parameters of one validation of a body.
#[derive(Debug, Clone, Copy)]
pub struct ValidationPass {
    /// When the request was received, in nanoseconds since the epoch: the time of undated readings.
    pub received: i64,
    /// Earlier timestamps have expired; and how long the database keeps readings, in nanoseconds.
    pub kept_from: (i64, i64),
    /// The declared unit of timestamps.
    pub precision: Precision,
    /// Whether timestamps that seem to be in another unit are rejected.
    pub refuses_other_units: bool,
    /// Whether a value of another family than its field's is kept beside it.
    pub keeps_drift: bool,
    /// Whether the sensor lookup is done: sensors that are still unknown are over a limit.
    pub looked_up: bool,
    /// Whether new fields are claimed, which makes them visible to other requests.
    pub publish: bool,
    /// Bytes of memory at which validation stops.
    pub budget: usize,
    /// Bytes of the body.
    pub body_bytes: usize,
    /// The time of an undated reading on the body's first line, where a key gives it; on each further line one nanosecond more,
    /// whatever becomes of other lines. `None`: each has the time of its receipt, or the next that the sensor has free.
    pub undated_from: Option<i64>,
}

/// The outcome for a spelling that this request has had before.
#[derive(Clone, Copy)]
enum SpellingState {
    Known(usize),
    /// The sensor is in `unknown`: it is looked up before the request is validated again.
    Unknown,
    /// A limit or quota is reached.
    Refused,
    /// The sender may not write it.
    Barred,
}

/// Validates the lines of one request.
pub struct Validator<'a> {
    database: &'a Arc<Database>,
    catalog: &'a Catalog,
    options: &'a Settings,
    limits: Limits,
    times: AcceptedTimes,
    pass: ValidationPass,
    /// The guard on the database's sensors, held from one line to the next.
    sensors: Option<SensorsRead<'a>>,
    /// Spellings that were not in the catalog when first seen.
    spellings: HashMap<Box<str>, SpellingState, RandomState>,
    locals: Vec<RequestSensor>,
    by_id: HashMap<u32, usize, RandomState>,
    order: SensorOrder,
    by: &'a Caller,
    /// The database's renames: a written name may be the shown one of a stored sensor.
    renames: Option<Renames>,
    /// Why further sensors are refused, for the first measurements where that was determined.
    full: Vec<Reason>,
    validated: ValidatedBody,
}

impl<'a> Validator<'a> {
    pub fn new(
        database: &'a Arc<Database>,
        catalog: &'a Catalog,
        options: &'a Settings,
        pass: ValidationPass,
        by: &'a Caller,
        renames: Option<Renames>,
    ) -> Self {
        database.follow_renames(renames.as_ref());
        let batch = |_| Batch::expecting(pass.body_bytes, options.ingest.shards.max(1));
        let batches = (0..options.ingest.shards).map(batch).collect();
        let validated = ValidatedBody { batches, ..ValidatedBody::default() };
        // At most as many as the body has lines. Pages of memory that stay unused are never touched.
        let few = (pass.body_bytes / LINE_BYTES).min(SENSORS_EXPECTED);
        let (locals, by_id) = (Vec::with_capacity(few), HashMap::with_capacity_and_hasher(few, RandomState::default()));
        let (spellings, order) = (HashMap::default(), SensorOrder { last: None, patience: SensorOrder::PATIENCE });
        let (sensors, full) = (None, Vec::new());
        Self {
            database,
            catalog,
            options,
            limits: options.reading_limits(),
            times: AcceptedTimes::new(&options.limits),
            pass,
            sensors,
            spellings,
            locals,
            by_id,
            order,
            by,
            full,
            validated,
            renames,
        }
    }

    /// Whether the memory budget allows more.
    pub fn has_room(&self) -> bool {
        self.validated.memory <= self.pass.budget
    }

    /// The result.
    pub fn close(self) -> ValidatedBody {
        self.validated
    }

    /// Counts a rejection and keeps it for the answer if there is room.
    pub fn reject(&mut self, rejection: Rejection) {
        self.validated.rejected.note(rejection, self.options.rejections.max_bytes > 0);
    }

    /// Validates a point.
    pub fn point(&mut self, point: &Point<'_, '_>) {
        let state = match self.known(point.spelling(), false) {
            Some(local) => SpellingState::Known(local),
            None => match self.look_up_spelling(point) {
                Ok(state) => state,
                Err(rejection) => return self.reject(rejection),
            },
        };
        match state {
            SpellingState::Known(local) => self.admit(local, point),
            SpellingState::Refused | SpellingState::Barred => match point.sensor(&self.limits) {
                Ok(sensor) => {
                    let reason = self.refusal(&sensor);
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

    /// Returns the sensor of that spelling, if the catalog has it. With renames, a sensor whose readings were all deleted
    /// counts only if `takes_emptied`: the name may mean another one by now.
    fn known(&mut self, spelling: &str, takes_emptied: bool) -> Option<usize> {
        /// Memory of a sensor: here, in a batch, and in the map by id.
        const PLACES: usize =
            size_of::<RequestSensor>() + size_of::<Arc<KnownSensor>>() + 2 * size_of::<(u32, usize)>();
        let Self { database, sensors, locals, by_id, validated, by, order, renames, .. } = self;
        if let Some(last) = order.last.filter(|last| locals[*last].is(spelling)) {
            return Some(last);
        }
        let known = order.find(sensors.get_or_insert_with(|| database.sensors()), locals, spelling)?;
        if renames.is_some() && !takes_emptied && !known.is_listed() {
            return None;
        }
        let local = *by_id.entry(known.id).or_insert_with(|| {
            validated.memory += PLACES;
            let barred = barred(by, renames.as_ref(), &known.sensor)
                .or_else(|| one_too_many(by, &known.sensor, validated))
                .map(Box::new);
            let fields = known.fields();
            locals.push(RequestSensor {
                known: known.clone(),
                claimed: fields.firm,
                fields,
                in_batch: None,
                is_undated: false,
                barred,
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
            // Release the read guard: `add_spelling` writes to the same map.
            self.sensors = None;
            self.catalog.add_spelling(self.database, spelling, &self.locals[local].known, self.renames.as_ref());
        }
        self.remember(spelling.into(), state);
        Ok(state)
    }

    fn look_up(&mut self, sensor: &Sensor) -> SpellingState {
        let names = self.renames.as_ref().map(|renames| renames.written(sensor));
        let new = names.as_ref().and_then(|names| names.last()).unwrap_or(sensor);
        let mut known = match &names {
            Some(names) => names.iter().find_map(|name| self.known(&name.key, false)),
            None => self.known(&sensor.key, true),
        };
        // After the lookup, a sensor without readings is the new one.
        if known.is_none() && self.pass.looked_up {
            known = self.known(&new.key, true);
        }
        match known {
            Some(local) => SpellingState::Known(local),
            None if barred(self.by, self.renames.as_ref(), new).is_some() => SpellingState::Barred,
            None if self.pass.looked_up || self.validated.unknown.len() >= self.catalog.room() => {
                SpellingState::Refused
            }
            None => {
                self.validated.memory += 4 * sensor.key.len() + size_of::<Sensor>();
                self.validated.unknown.push(sensor.clone());
                SpellingState::Unknown
            }
        }
    }

    /// The index of a field of a sensor, which becomes one of it if it is not.
    fn field(&mut self, local: usize, name: &str, value: &RawValue<'_>, hint: usize) -> Result<u16, Reason> {
        let claims = self.pass.publish.then_some(&mut self.validated.claims);
        self.locals[local].field(name, value, hint, claims, (self.catalog, self.options, self.pass.keeps_drift))
    }

    fn admit(&mut self, local: usize, point: &Point<'_, '_>) {
        if let Some(reason) = &self.locals[local].barred {
            // As of a sensor that is not known: the answer does not tell which ones are.
            return self.reject(point.refuse_sensor(Reason::clone(reason)));
        }
        if let Some(time) = point.timestamp {
            if let Some(reason) = self.times.refusal(time, self.pass.received) {
                return self.reject(point.refuse(0, reason));
            }
            let (kept_from, kept) = self.pass.kept_from;
            if time < kept_from {
                let seconds = (kept / 1_000_000_000).unsigned_abs();
                return self.reject(point.refuse(0, Reason::Expired { time, seconds }));
            }
            if let Some(unit) = seeming_unit(time, self.pass.precision, self.pass.received) {
                if self.pass.refuses_other_units {
                    let number = time / self.pass.precision.unit_ns(time);
                    return self.reject(point.refuse(0, Reason::UndeclaredUnit { number, unit }));
                }
                let (count, first) = &mut self.validated.suspects;
                *count += 1;
                first.get_or_insert(unit);
            }
        }
        if let Some(kind) = &self.locals[local].kind
            && let Some(fault) = kind.fault_of_reading(point.fields.iter().map(|(name, value)| (&**name, value)))
        {
            if kind.action == KindAction::Reject {
                return self.reject(point.refuse(0, fault.into()));
            }
            let (count, first) = &mut self.validated.unlike;
            *count += 1;
            first.get_or_insert(fault);
        }
        let shard = self.locals[local].known.shard;
        let start = self.validated.batches[shard].cells();
        let kept_before = self.validated.rejected.kept.len();
        let mut has_beside = false;
        for (hint, (name, value)) in point.fields.iter().enumerate() {
            let found = match self.field(local, name, value, hint) {
                Err(reason) => self.beside(local, name, value, reason).inspect(|_| has_beside = true),
                found => found,
            };
            match found {
                Ok(field) => {
                    self.validated.memory += size_of::<(u16, Value)>() + text_bytes(value);
                    let (value, batch) = (value.clone().into_value(), &mut self.validated.batches[shard]);
                    // The line may name the same field once more: `temp="x",temp@string="y"`.
                    match has_beside {
                        true => batch.set_cell(start, field, value),
                        false => batch.push_cell(field, value),
                    }
                }
                Err(reason) => self.reject(point.refuse(0, reason)),
            }
        }
        let RequestSensor { known, in_batch, is_undated, .. } = &mut self.locals[local];
        let batch = &mut self.validated.batches[shard];
        if batch.cells() == start {
            // Every field was rejected with its own reason: nothing is left of the line.
            self.validated.rejected.lines += 1;
            return;
        }
        let sensor = *in_batch.get_or_insert_with(|| {
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
        let rejected_fields = &mut self.validated.rejected.kept[kept_before..];
        rejected_fields.iter_mut().for_each(|line| line.time = Some(time));
    }
}

/// The time of an undated reading on a line of a request with a key.
fn undated_time(base: i64, number: usize) -> i64 {
    base.saturating_add(i64::try_from(number).unwrap_or(i64::MAX) - 1)
}

fn text_bytes(value: &RawValue<'_>) -> usize {
    match value {
        RawValue::String(text) => text.len(),
        _ => 0,
    }
}
