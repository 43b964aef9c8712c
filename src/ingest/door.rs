//! The door: all judging happens here, of points, whatever their format. One that passes is final; what does not is
//! reported with its place and reason, and never takes a good one with it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use rapidhash::fast::RandomState;

use super::Options;
use super::batch::{Batch, index};
use super::catalog::{Catalog, Claims, Database, Fields, KnownSensor, SensorsRead};
use super::terms::{barred, seeming_unit};
use crate::access::{Caller, Exhausted};
use crate::reading::value::RawValue;
use crate::reading::{Precision, Reason, Rejection, Sensor, Value};
use crate::wire::Point;

/// A line with a sensor, a field and a time has no fewer bytes.
const LINE_BYTES: usize = 48;
/// For how many sensors of a request there is room at first, at most.
const SENSORS_EXPECTED: usize = 4096;
/// For how many measurements of a request it is looked into why there is no room for their sensors.
const FULL_MAX: usize = 8;
/// How many rejections of one request are told in full; the rest is only counted.
const REJECTIONS_TOLD: usize = 100;

/// What was not kept of a request.
#[derive(Debug, Default)]
pub struct Rejected {
    /// How many lines, or single fields of lines, in all.
    pub count: usize,
    /// Lines of which nothing was kept.
    pub lines: usize,
    /// The first of them.
    pub told: Vec<Rejection>,
    /// How many by reason.
    pub reasons: BTreeMap<&'static str, u64>,
}

/// What the door made of a body.
#[derive(Debug, Default)]
pub struct Judged {
    /// Lines kept.
    pub accepted: usize,
    /// What was not.
    pub rejected: Rejected,
    /// The readings, one batch per shard.
    pub batches: Vec<Batch>,
    /// Bytes of memory that all of it takes.
    pub memory: usize,
    /// Sensors nobody has met yet. Their lines were left out: judge again once they are known.
    pub unknown: Vec<Sensor>,
    /// A quota of sensors that kept some out.
    pub exhausted: Option<Exhausted>,
    /// New fields, which stay when the readings are logged.
    pub claims: Claims,
    /// How many timestamps look as if they were meant in another unit, and in which the first of them.
    pub suspects: (usize, Option<&'static str>),
}

impl Judged {
    /// Forgets the readings: a request is to be kept whole or not at all, and cannot be whole.
    pub fn keep_nothing(&mut self) {
        self.accepted = 0;
        self.memory = 0;
        self.batches.clear();
        self.claims = Claims::default();
    }
}

/// How a body is judged this time.
#[derive(Debug, Clone, Copy)]
pub struct Pass {
    /// When the request was received, in nanoseconds: the time of undated readings.
    pub received: i64,
    /// The declared unit of timestamps.
    pub precision: Precision,
    /// Whether all sensors that can be known are: those still unknown are over the limit.
    pub learnt: bool,
    /// Whether new fields become known to other requests.
    pub publish: bool,
    /// How much memory the batches may take before judging stops.
    pub budget: usize,
    /// Bytes of the body.
    pub body_bytes: usize,
}

/// A sensor as one request uses it.
struct Local {
    known: Arc<KnownSensor>,
    fields: Arc<Fields>,
    /// The fields before this index stay where they are: they are firm, or claimed by this request.
    claimed: usize,
    /// Its index in its shard's batch, once it has a reading there.
    in_batch: Option<u32>,
    /// Why the sender may not write it.
    barred: Option<Box<Reason>>,
}

impl Local {
    fn is(&self, spelling: &str) -> bool {
        *self.known.sensor.key == *spelling && !self.known.is_superseded()
    }
}

/// The order in which a request's sensors come. It is taken to be that of requests before, for as long as that is so.
struct Order {
    /// The sensor of the line before.
    last: Option<usize>,
    /// How many more guesses may be wrong than were right.
    patience: u8,
}

impl Order {
    const PATIENCE: u8 = 16;

    /// The sensor of that spelling.
    fn find<'s>(
        &mut self,
        sensors: &'s SensorsRead<'_>,
        locals: &[Local],
        spelling: &str,
    ) -> Option<&'s Arc<KnownSensor>> {
        let Some(before) = self.last.map(|last| &*locals[last].known) else { return sensors.get(spelling) };
        if self.patience > 0 {
            let guess = sensors.get_behind(before, spelling);
            if guess.is_some() {
                self.patience = Self::PATIENCE.min(self.patience + 1);
                return guess;
            }
            self.patience -= 1;
        }
        sensors.get(spelling).inspect(|found| before.is_before(found))
    }
}

/// How a spelling of a sensor was judged before in this request.
#[derive(Clone, Copy)]
enum Met {
    Known(usize),
    /// It is to become known before the request is judged again.
    Unknown,
    /// There is no room for it.
    Refused,
    /// The sender may not write it.
    Barred,
}

/// Judges the lines of one request.
pub struct Door<'a> {
    database: &'a Arc<Database>,
    catalog: &'a Catalog,
    options: &'a Options,
    pass: Pass,
    /// The sensors met so far, under a lock that is held from one line to the next.
    sensors: Option<SensorsRead<'a>>,
    /// Spellings that the catalog does not have.
    spellings: HashMap<Box<str>, Met, RandomState>,
    locals: Vec<Local>,
    by_id: HashMap<u32, usize, RandomState>,
    order: Order,
    by: &'a Caller,
    /// Why there is no room for another sensor, of the first measurements for which that was looked into.
    full: Vec<Reason>,
    judged: Judged,
}

impl<'a> Door<'a> {
    /// A door for one request.
    pub fn new(
        database: &'a Arc<Database>,
        catalog: &'a Catalog,
        options: &'a Options,
        pass: Pass,
        by: &'a Caller,
    ) -> Self {
        let batch = |_| Batch::expecting(pass.body_bytes, options.shards.max(1));
        let batches = (0..options.shards).map(batch).collect();
        let judged = Judged { batches, ..Judged::default() };
        // At most as many as there are short lines; where it is fewer, the rest is a few pages that nobody touches.
        let few = (pass.body_bytes / LINE_BYTES).min(SENSORS_EXPECTED);
        let (locals, by_id) = (Vec::with_capacity(few), HashMap::with_capacity_and_hasher(few, RandomState::default()));
        let (spellings, order) = (HashMap::default(), Order { last: None, patience: Order::PATIENCE });
        let (sensors, full) = (None, Vec::new());
        Self { database, catalog, options, pass, sensors, spellings, locals, by_id, order, by, full, judged }
    }

    /// Whether there is memory left to judge more.
    pub fn has_room(&self) -> bool {
        self.judged.memory <= self.pass.budget
    }

    /// What it came to.
    pub fn close(self) -> Judged {
        self.judged
    }

    /// Reports something that is not kept.
    pub fn reject(&mut self, rejection: Rejection) {
        let rejected = &mut self.judged.rejected;
        rejected.count += 1;
        rejected.lines += usize::from(!rejection.reason.keeps_the_rest());
        *rejected.reasons.entry(rejection.reason.label()).or_default() += 1;
        if rejected.told.len() < REJECTIONS_TOLD {
            rejected.told.push(rejection);
        }
    }

    /// Judges a point.
    pub fn point(&mut self, point: &Point<'_, '_>) {
        let met = match self.known(point.spelling()) {
            Some(local) => Met::Known(local),
            None => match self.meet_spelling(point) {
                Ok(met) => met,
                Err(rejection) => return self.reject(rejection),
            },
        };
        match met {
            Met::Known(local) => self.admit(local, point),
            Met::Refused | Met::Barred => match point.sensor(&self.options.limits) {
                Ok(sensor) => {
                    let reason = self.refusal(&sensor);
                    self.reject(point.refuse_sensor(reason));
                }
                Err(rejection) => self.reject(rejection),
            },
            Met::Unknown => {}
        }
    }

    fn remember(&mut self, spelling: Box<str>, met: Met) {
        self.judged.memory += spelling.len() + size_of::<(Box<str>, Met)>() * 2 + size_of::<Local>();
        self.spellings.insert(spelling, met);
    }

    /// The sensor of that spelling, if the catalog has it.
    fn known(&mut self, spelling: &str) -> Option<usize> {
        /// A sensor's place here, in a batch, and among the numbers.
        const PLACES: usize = size_of::<Local>() + size_of::<Arc<KnownSensor>>() + 2 * size_of::<(u32, usize)>();
        let Self { database, sensors, locals, by_id, judged, by, order, .. } = self;
        if let Some(last) = order.last.filter(|last| locals[*last].is(spelling)) {
            return Some(last);
        }
        let known = order.find(sensors.get_or_insert_with(|| database.sensors()), locals, spelling)?;
        let local = *by_id.entry(known.id).or_insert_with(|| {
            judged.memory += PLACES;
            let barred = barred(by, &known.sensor).or_else(|| one_too_many(by, &known.sensor, judged)).map(Box::new);
            let fields = known.fields();
            locals.push(Local { known: known.clone(), claimed: fields.firm, fields, in_batch: None, barred });
            locals.len() - 1
        });
        order.last = Some(local);
        Some(local)
    }

    fn meet_spelling(&mut self, point: &Point<'_, '_>) -> Result<Met, Rejection> {
        let spelling = point.spelling();
        if let Some(met) = self.spellings.get(spelling) {
            return Ok(*met);
        }
        let met = self.meet(&*point.sensor(&self.options.limits)?);
        if let Met::Known(local) = met {
            // Which changes what is read.
            self.sensors = None;
            self.catalog.add_spelling(self.database, spelling, &self.locals[local].known);
        }
        self.remember(spelling.into(), met);
        Ok(met)
    }

    fn meet(&mut self, sensor: &Sensor) -> Met {
        match self.known(&sensor.key) {
            Some(local) => Met::Known(local),
            None if barred(self.by, sensor).is_some() => Met::Barred,
            None if self.pass.learnt || self.judged.unknown.len() >= self.catalog.room() => Met::Refused,
            None => {
                self.judged.memory += 4 * sensor.key.len() + size_of::<Sensor>();
                self.judged.unknown.push(sensor.clone());
                Met::Unknown
            }
        }
    }

    /// Why a sensor that is not known is not to become known either.
    fn refusal(&mut self, new: &Sensor) -> Reason {
        if let Some(reason) = barred(self.by, new) {
            return reason;
        }
        let is_of = |reason: &&Reason| matches!(reason, Reason::TooManySensors { measurement, .. } if **measurement == *new.measurement);
        if let Some(reason) = self.full.iter().find(is_of) {
            return reason.clone();
        }
        let (now, database) = (Instant::now(), self.database);
        // Looked at again rather than remembered from when the sensor was not let in: what matters is what holds now.
        let exhausted =
            database.usage.too_many(database.known()).or_else(|| database.usage.new_sensors_left(now).err());
        let by = self.by;
        let senders = || by.usage()?.sensors_left().err().or_else(|| by.usage()?.new_sensors_left(now).err());
        let exhausted = exhausted.or_else(senders);
        let bound = match &exhausted {
            Some(exhausted) if self.catalog.room() > 0 => exhausted.bound(),
            _ => format!("the limit of {} sensors (limits.sensors)", self.options.sensors),
        };
        self.judged.exhausted = exhausted.filter(|_| self.catalog.room() > 0);
        let sensors = self.sensors.get_or_insert_with(|| database.sensors());
        // A look at many sensors, which a request with many measurements does not get for each.
        let widest_tag = (self.full.len() < FULL_MAX).then(|| widest_tag(sensors, self.by, new)).flatten();
        let reason = Reason::TooManySensors { measurement: new.measurement.to_string(), widest_tag, bound };
        if self.full.len() < FULL_MAX {
            self.full.push(reason.clone());
        }
        reason
    }

    fn admit(&mut self, local: usize, point: &Point<'_, '_>) {
        if let Some(reason) = &self.locals[local].barred {
            return self.reject(point.refuse(0, Reason::clone(reason)));
        }
        if let Some(time) = point.timestamp {
            if let Some(reason) = self.options.window.refusal(time, self.pass.received) {
                return self.reject(point.refuse(0, reason));
            }
            if let Some(unit) = seeming_unit(time, self.pass.precision, self.pass.received) {
                let (count, first) = &mut self.judged.suspects;
                *count += 1;
                first.get_or_insert(unit);
            }
        }
        let shard = self.locals[local].known.shard;
        let start = self.judged.batches[shard].cells();
        for (hint, (name, value)) in point.fields.iter().enumerate() {
            let claims = self.pass.publish.then_some(&mut self.judged.claims);
            match self.locals[local].field(name, value, hint, claims, self.options.sensor_fields) {
                Ok(field) => {
                    self.judged.memory += size_of::<(u16, Value)>() + text_bytes(value);
                    self.judged.batches[shard].push_cell(field, value.clone().into_value());
                }
                Err(reason) => self.reject(point.refuse(0, reason)),
            }
        }
        let Local { known, in_batch, .. } = &mut self.locals[local];
        let batch = &mut self.judged.batches[shard];
        if batch.cells() == start {
            // Every field was refused, each for its own reason: nothing is left of the line.
            self.judged.rejected.lines += 1;
            return;
        }
        let sensor = *in_batch.get_or_insert_with(|| {
            batch.sensors.push(known.clone());
            index(batch.sensors.len() - 1)
        });
        let time = point.timestamp.unwrap_or_else(|| known.stamp(self.pass.received));
        self.judged.memory += Batch::ROW_BYTES;
        batch.push_row(sensor, time, start);
        self.judged.accepted += 1;
    }
}

/// Why a sensor that is known is one more than the sender's quota has room for.
fn one_too_many(by: &Caller, sensor: &Sensor, judged: &mut Judged) -> Option<Reason> {
    let exhausted = by.usage()?.admit_sensor(&sensor.key).err()?;
    let (measurement, bound) = (sensor.measurement.to_string(), exhausted.bound());
    judged.exhausted = Some(exhausted);
    Some(Reason::TooManySensors { measurement, widest_tag: None, bound })
}

/// The tag of a measurement that has most values, as far as some of its sensors tell: mostly the one that should not be
/// a tag.
fn widest_tag(sensors: &SensorsRead<'_>, by: &Caller, new: &Sensor) -> Option<String> {
    const LOOKED_AT: usize = 2000;
    let mut values: HashMap<&str, HashSet<&str>> = HashMap::new();
    let of_measurement = sensors.values().take(LOOKED_AT).filter(|known| {
        // Of others' sensors nothing is told.
        known.sensor.measurement == new.measurement && barred(by, &known.sensor).is_none()
    });
    let tags = of_measurement.flat_map(|known| known.sensor.tags.iter()).chain(new.tags.iter());
    for (key, value) in tags {
        values.entry(&**key).or_default().insert(&**value);
    }
    let widest = values.into_iter().max_by_key(|(key, values)| (values.len(), std::cmp::Reverse(*key)));
    widest.map(|(key, _)| key.to_owned())
}

impl Local {
    fn field(
        &mut self,
        name: &str,
        value: &RawValue<'_>,
        hint: usize,
        claims: Option<&mut Claims>,
        max: usize,
    ) -> Result<u16, Reason> {
        let sent = value.family();
        let found = self.fields.find(name, hint);
        // What is not firm another request may be about to let go: whoever uses it says so.
        if found.is_none_or(|index| index >= self.claimed) {
            let grown = match claims {
                Some(claims) => claims.claim(&self.known, name, sent, max),
                None if found.is_some() => Some(self.fields.clone()),
                None => self.fields.with(name, sent, max).map(Arc::new),
            };
            self.fields = grown.ok_or_else(|| Reason::TooManyFields { field: name.to_owned(), limit: max })?;
            // Mostly a request has its new fields in the same order from one line to the next.
            if self.fields.find(name, self.claimed) == Some(self.claimed) {
                self.claimed += 1;
            }
            self.claimed = self.claimed.max(self.fields.firm);
        }
        let index = self.fields.find(name, hint).unwrap_or_default();
        let stored = self.fields.families[index];
        if stored != sent {
            let measurement = self.known.sensor.measurement.to_string();
            return Err(Reason::FamilyConflict { field: name.to_owned(), measurement, sent, stored });
        }
        // `limits.sensor_fields` is at most `u16::MAX`.
        Ok(u16::try_from(index).unwrap_or(u16::MAX))
    }
}

fn text_bytes(value: &RawValue<'_>) -> usize {
    match value {
        RawValue::String(text) => text.len(),
        _ => 0,
    }
}
