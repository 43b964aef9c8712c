//! The door: all judging happens here. A line that passes is final; what does not is reported
//! with its place and reason, and never takes a good line with it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use rapidhash::fast::RandomState;

use super::Options;
use super::catalog::{Catalog, Database, Fields, KnownSensor};
use crate::bucket::Row;
use crate::reading::value::RawValue;
use crate::reading::{Reason, Rejection, Sensor, Value};
use crate::wire::json::Item;
use crate::wire::line_protocol::{Line, SeriesError, parse_series};

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
#[derive(Debug)]
pub struct Judged {
    /// Lines kept.
    pub accepted: usize,
    /// What was not.
    pub rejected: Rejected,
    /// The readings, one batch per shard.
    pub batches: Vec<Batch>,
    /// Sensors nobody has met yet. Their lines were left out: judge again once they are known.
    pub unknown: Vec<Sensor>,
}

/// Readings of one request for one shard, flat: no allocation per reading.
#[derive(Debug, Default)]
pub struct Batch {
    /// The sensors they are of.
    pub sensors: Vec<Arc<KnownSensor>>,
    rows: Vec<BatchRow>,
    cells: Vec<(u16, Value)>,
}

#[derive(Debug)]
struct BatchRow {
    sensor: u32,
    time: i64,
    cells: std::ops::Range<u32>,
}

impl Batch {
    /// Whether there is no reading in it.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// How many readings.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// The sensor and time of each reading, in the order they were accepted.
    pub fn readings(&self) -> impl Iterator<Item = (&Arc<KnownSensor>, i64)> {
        self.rows.iter().map(|row| (&self.sensors[row.sensor as usize], row.time))
    }

    /// The reading at `index`, its cells naming fields of `names`.
    pub fn row<'a>(&'a self, index: usize, names: &'a [Arc<str>]) -> Row<'a> {
        let row = &self.rows[index];
        Row { time: row.time, names, cells: &self.cells[row.cells.start as usize..row.cells.end as usize] }
    }
}

/// A sensor as one request uses it.
struct Local {
    known: Arc<KnownSensor>,
    fields: Arc<Fields>,
    /// Its index in its shard's batch, once it has a reading there.
    in_batch: Option<u32>,
}

/// How a spelling of a sensor was judged before in this request.
#[derive(Clone, Copy)]
enum Met {
    Known(usize),
    Unknown,
}

/// Judges the lines of one request.
pub struct Door<'a> {
    database: &'a Arc<Database>,
    catalog: &'a Catalog,
    options: &'a Options,
    received: i64,
    /// Whether all sensors that can be known are: those still unknown are over the limit.
    learnt: bool,
    spellings: HashMap<Box<str>, Met, RandomState>,
    locals: Vec<Local>,
    by_id: HashMap<u32, usize, RandomState>,
    judged: Judged,
}

impl<'a> Door<'a> {
    /// A door for one request, received at that time in nanoseconds.
    pub fn new(
        database: &'a Arc<Database>,
        catalog: &'a Catalog,
        options: &'a Options,
        received: i64,
        learnt: bool,
    ) -> Self {
        let batches = (0..options.shards).map(|_| Batch::default()).collect();
        let judged = Judged { accepted: 0, rejected: Rejected::default(), batches, unknown: Vec::new() };
        let (spellings, by_id) = (HashMap::default(), HashMap::default());
        Self { database, catalog, options, received, learnt, spellings, locals: Vec::new(), by_id, judged }
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

    /// Judges a line of line protocol.
    pub fn line(&mut self, line: &Line<'_, '_>) {
        let refuse = |column: usize, reason: Reason| Rejection::new(line.number, column, line.text, reason);
        let met = match self.spellings.get(line.series) {
            Some(met) => *met,
            None => {
                let met = match self.meet_spelling(line) {
                    Ok(met) => met,
                    Err(error) => return self.reject(line.reject_series(error)),
                };
                self.spellings.insert(line.series.into(), met);
                met
            }
        };
        match met {
            Met::Known(local) => {
                let fields = line.fields.iter().map(|(name, value)| (&**name, value.clone()));
                self.admit(local, line.timestamp, fields, &refuse);
            }
            Met::Unknown if self.learnt => {
                let measurement = line.series.split(',').next().unwrap_or_default().to_owned();
                let limit = self.options.sensors;
                self.reject(refuse(line.series_column, Reason::TooManySensors { measurement, limit }));
            }
            Met::Unknown => {}
        }
    }

    /// Judges a JSON reading.
    pub fn item(&mut self, item: Item<'_>) {
        let Item { number, text, sensor, fields, timestamp } = item;
        let refuse = |column: usize, reason: Reason| Rejection::new(number, column, text, reason);
        let met = match self.spellings.get(&*sensor.key) {
            Some(met) => *met,
            None => {
                let (key, measurement) = (sensor.key.clone(), sensor.measurement.to_string());
                let met = self.meet(sensor);
                self.spellings.insert(key, met);
                if self.learnt && matches!(met, Met::Unknown) {
                    let limit = self.options.sensors;
                    return self.reject(refuse(0, Reason::TooManySensors { measurement, limit }));
                }
                met
            }
        };
        if let Met::Known(local) = met {
            self.admit(local, timestamp, fields.iter().map(|(name, value)| (&**name, value.clone())), &refuse);
        }
    }

    fn meet_spelling(&mut self, line: &Line<'_, '_>) -> Result<Met, SeriesError> {
        if let Some(known) = self.catalog.sensor(self.database, line.series) {
            return Ok(Met::Known(self.local(known)));
        }
        let sensor = parse_series(line.series, &self.options.limits)?;
        let met = self.meet(sensor);
        if let Met::Known(local) = met {
            self.catalog.add_spelling(self.database, line.series, &self.locals[local].known);
        }
        Ok(met)
    }

    fn meet(&mut self, sensor: Sensor) -> Met {
        match self.catalog.sensor(self.database, &sensor.key) {
            Some(known) => Met::Known(self.local(known)),
            None => {
                if !self.learnt {
                    self.judged.unknown.push(sensor);
                }
                Met::Unknown
            }
        }
    }

    fn local(&mut self, known: Arc<KnownSensor>) -> usize {
        *self.by_id.entry(known.id).or_insert_with(|| {
            let fields = known.fields();
            self.locals.push(Local { known, fields, in_batch: None });
            self.locals.len() - 1
        })
    }

    fn admit<'f>(
        &mut self,
        local: usize,
        timestamp: Option<i64>,
        fields: impl Iterator<Item = (&'f str, RawValue<'f>)>,
        refuse: &impl Fn(usize, Reason) -> Rejection,
    ) {
        let shard = self.locals[local].known.shard;
        let start = self.judged.batches[shard].cells.len();
        for (hint, (name, value)) in fields.enumerate() {
            match self.locals[local].field(name, &value, hint) {
                Ok(field) => self.judged.batches[shard].cells.push((field, value.into_value())),
                Err(reason) => self.reject(refuse(0, reason)),
            }
        }
        let Local { known, in_batch, .. } = &mut self.locals[local];
        let batch = &mut self.judged.batches[shard];
        if batch.cells.len() == start {
            // Every field was refused, each for its own reason: nothing is left of the line.
            self.judged.rejected.lines += 1;
            return;
        }
        let sensor = *in_batch.get_or_insert_with(|| {
            batch.sensors.push(known.clone());
            index(batch.sensors.len() - 1)
        });
        let time = timestamp.unwrap_or_else(|| known.stamp(self.received));
        batch.rows.push(BatchRow { sensor, time, cells: index(start)..index(batch.cells.len()) });
        self.judged.accepted += 1;
    }
}

impl Local {
    fn field(&mut self, name: &str, value: &RawValue<'_>, hint: usize) -> Result<u16, Reason> {
        let sent = value.family();
        if self.fields.find(name, hint).is_none() {
            let full = || Reason::Limit {
                what: "fields of one sensor",
                found: self.fields.names.len() + 1,
                limit: self.fields.names.len(),
                key: "limits.sensor_fields",
            };
            self.fields = self.known.add_field(name, sent).ok_or_else(full)?;
        }
        let index = self.fields.find(name, hint).unwrap_or_default();
        let stored = self.fields.families[index];
        if stored != sent {
            let measurement = self.known.sensor.measurement.to_string();
            return Err(Reason::FamilyConflict { field: name.to_owned(), measurement, sent, stored });
        }
        // `limits.sensor_fields` is bounded far below.
        Ok(u16::try_from(index).unwrap_or(u16::MAX))
    }
}

/// Batches are bounded by the body, and a body by `limits.body_bytes`, far below 4 GiB.
fn index(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
