//! The format of a request's WAL record. It contains every decision of admission, so a replay never validates, stamps
//! or admits again.
//!
//! ```text
//! record   := version:u8 (1)  request:text (reserved, empty)  received:varint (zigzag ns)  database:text
//!             count:varint name:text…            the field names of this record
//!             count:varint sensor…               the sensors of this record
//!             count:varint row…
//! sensor   := measurement:text  count:varint (key:text value:text)…
//! row      := sensor:varint  time:varint (zigzag ns, delta to the previous row)  count:varint cell…
//! cell     := name:varint (index << 3 | type)  value
//! value    := 0 float: 8 bytes, little endian | 1 integer: zigzag varint | 2 unsigned: varint
//!           | 3 false | 4 true | 5 text
//! text     := length:varint bytes (UTF-8)        varint := LEB128, 7 bits a byte, low bits first
//! ```

pub mod batch;
pub mod deletion;
pub mod meta;
pub mod outline;

use std::collections::HashMap;
use std::sync::Arc;

use rapidhash::fast::RandomState;

use super::record::batch::Batch;
use crate::bucket::columns::PackedBytes;
use crate::catalog::SensorFields;
use crate::reading::varint::{put_varint, unzigzag, zigzag};
use crate::reading::{Sensor, Value};

/// The record kind of readings. The WAL stores it beside the payload.
pub const KIND_READINGS: u8 = 1;
/// The version of all kinds.
const VERSION: u8 = 1;

/// A decoded record.
#[derive(Debug, PartialEq)]
pub struct DecodedRecord {
    /// The time at which the request was received, in nanoseconds since the epoch.
    pub received: i64,
    pub database: String,
    /// Field names. Cells refer to them by index.
    pub names: Vec<Arc<str>>,
    /// Sensors. Rows refer to them by index.
    pub sensors: Vec<Sensor>,
    /// The readings in the order in which they were accepted, shard by shard.
    pub rows: Vec<RecordReading>,
}

/// A reading of a record.
#[derive(Debug, PartialEq)]
pub struct RecordReading {
    /// Index into the record's sensors.
    pub sensor: usize,
    /// Nanoseconds since the epoch.
    pub time: i64,
    /// Values with the index of their field in the record's names.
    pub cells: Vec<(usize, Value)>,
}

/// The reason why a record cannot be decoded. The WAL's checksums match, so another program wrote it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// A later version probably wrote the record.
    #[error("unknown WAL record (kind {kind}, version {version}): start a version of hourglass that can read it")]
    Unknown { kind: u8, version: u8 },
    /// The payload does not follow the format.
    #[error("malformed WAL record: cannot decode its payload at byte {offset}")]
    Malformed {
        /// In the payload.
        offset: usize,
    },
    /// This process has no free index for a sensor or a field of the record.
    #[error("cannot index a sensor or field of a WAL record, because this process has no free index: {name}")]
    Unnumbered {
        /// The sensor's key, or the field's name.
        name: String,
    },
}

/// Encodes the batches of a request as a record's payload.
#[inline(never)] // a stage of benches/callgrind.sh
pub fn encode(database: &str, received: i64, batches: &[Batch]) -> Vec<u8> {
    let RecordNames { names, indices } = RecordNames::new(batches);
    let readings = batches.iter().map(Batch::len).sum::<usize>();
    let mut out = Vec::with_capacity(64 + readings * 32);
    put_head(&mut out, received, database);
    put_length(&mut out, names.len());
    names.iter().for_each(|name| put_text(&mut out, name));
    put_length(&mut out, batches.iter().map(|batch| batch.sensors.len()).sum());
    batches.iter().flat_map(|batch| &batch.sensors).for_each(|known| put_sensor(&mut out, &known.sensor));
    put_length(&mut out, readings);
    let mut last_time = 0;
    let mut first_sensor = 0;
    let mut left = readings;
    for batch in batches {
        for reading in batch.readings().take(left) {
            let sensor = first_sensor + reading.sensor as usize;
            put_length(&mut out, sensor);
            put_varint(&mut out, zigzag(reading.time.wrapping_sub(last_time)));
            last_time = reading.time;
            put_length(&mut out, reading.cells.len());
            for (field, value) in reading.cells {
                put_cell(&mut out, indices[sensor][usize::from(*field)], value);
            }
        }
        left -= batch.len().min(left);
        first_sensor += batch.sensors.len();
    }
    out
}

/// The index of each of a sensor's fields in the record's names. Sensors with the same fields share it.
type FieldIndices = Arc<Vec<usize>>;

/// The field names of a record.
struct RecordNames {
    names: Vec<Arc<str>>,
    /// The indices of each sensor's fields, one entry per sensor.
    indices: Vec<FieldIndices>,
}

impl RecordNames {
    fn new(batches: &[Batch]) -> Self {
        let mut names: Vec<Arc<str>> = Vec::new();
        let mut known: HashMap<Arc<str>, usize, RandomState> = HashMap::default();
        let mut all_indices: Vec<FieldIndices> =
            Vec::with_capacity(batches.iter().map(|batch| batch.sensors.len()).sum());
        let mut last: Option<(Arc<SensorFields>, FieldIndices)> = None;
        for sensor in batches.iter().flat_map(|batch| &batch.sensors) {
            let fields = sensor.fields();
            // Sensors of one request usually share their fields.
            if let Some((_, indices)) = last.as_ref().filter(|(last_fields, _)| Arc::ptr_eq(last_fields, &fields)) {
                all_indices.push(indices.clone());
                continue;
            }
            let find_index = |name: &Arc<str>| {
                *known.entry(name.clone()).or_insert_with(|| {
                    names.push(name.clone());
                    names.len() - 1
                })
            };
            let indices: FieldIndices = Arc::new(fields.names.iter().map(find_index).collect());
            all_indices.push(indices.clone());
            last = Some((fields, indices));
        }
        Self { names, indices: all_indices }
    }
}

fn put_cell(out: &mut Vec<u8>, name: usize, value: &Value) {
    let mut head = |kind: u64| put_varint(out, (name as u64) << 3 | kind);
    match value {
        Value::Float(v) => {
            head(0);
            out.extend(v.to_le_bytes());
        }
        Value::Integer(v) => {
            head(1);
            put_varint(out, zigzag(*v));
        }
        Value::Unsigned(v) => {
            head(2);
            put_varint(out, *v);
        }
        Value::Boolean(v) => head(3 + u64::from(*v)),
        Value::String(v) => {
            head(5);
            put_text(out, v);
        }
    }
}

/// Writes the head of a payload of any kind.
pub(crate) fn put_head(out: &mut Vec<u8>, received: i64, database: &str) {
    out.push(VERSION);
    put_text(out, "");
    put_varint(out, zigzag(received));
    put_text(out, database);
}

pub(crate) fn put_sensor(out: &mut Vec<u8>, sensor: &Sensor) {
    put_text(out, &sensor.measurement);
    put_length(out, sensor.tags.len());
    for (key, value) in &sensor.tags {
        put_text(out, key);
        put_text(out, value);
    }
}

pub(crate) fn put_text(out: &mut Vec<u8>, text: &str) {
    put_length(out, text.len());
    out.extend(text.as_bytes());
}

pub(crate) fn put_length(out: &mut Vec<u8>, length: usize) {
    put_varint(out, length as u64);
}

/// Decodes a record's payload.
///
/// # Errors
/// If the kind or version is unknown, or the payload is malformed.
pub fn decode(kind: u8, payload: &[u8]) -> Result<DecodedRecord, RecordError> {
    PayloadReader::read(kind, KIND_READINGS, payload, PayloadReader::request)
}

/// The head of a payload of any kind.
pub(crate) struct RecordHead {
    /// The time at which the request was received, in nanoseconds since the epoch.
    pub(crate) received: i64,
    pub(crate) database: String,
}

/// A payload and the read position. Counts above the number of remaining bytes are rejected, which bounds allocations.
pub(crate) struct PayloadReader<'a> {
    bytes: PackedBytes<'a>,
}

impl<'a> PayloadReader<'a> {
    /// Decodes a complete payload with `read`, if `kind` is `known_kind`.
    pub(crate) fn read<T>(
        kind: u8,
        known_kind: u8,
        payload: &'a [u8],
        read: impl FnOnce(&mut Self) -> Option<T>,
    ) -> Result<T, RecordError> {
        let version = payload.first().copied().unwrap_or_default();
        if kind != known_kind || version != VERSION {
            return Err(RecordError::Unknown { kind, version });
        }
        let mut reader = Self { bytes: PackedBytes::new(payload.get(1..).unwrap_or_default()) };
        match (read(&mut reader), reader.bytes.unread_len()) {
            (Some(whole), 0) => Ok(whole),
            (_, left) => Err(RecordError::Malformed { offset: payload.len() - left }),
        }
    }

    pub(crate) fn head(&mut self) -> Option<RecordHead> {
        // Skip the reserved text.
        self.text()?;
        Some(RecordHead { received: unzigzag(self.varint()?), database: self.text()?.to_owned() })
    }

    fn request(&mut self) -> Option<DecodedRecord> {
        let RecordHead { received, database } = self.head()?;
        let names = self.list(|bytes| bytes.text().map(Arc::from))?;
        let sensors = self.list(Self::sensor)?;
        let mut last_time = 0_i64;
        let rows = self.list(|bytes| {
            let row = bytes.row(last_time, names.len(), sensors.len())?;
            last_time = row.time;
            Some(row)
        })?;
        Some(DecodedRecord { received, database, names, sensors, rows })
    }

    pub(crate) fn sensor(&mut self) -> Option<Sensor> {
        let measurement = self.text()?.to_owned();
        let tags = self.list(|bytes| Some((bytes.text()?.to_owned(), bytes.text()?.to_owned())))?;
        Sensor::new(&measurement, tags).ok()
    }

    /// Reads a row of a record with this many names and sensors.
    fn row(&mut self, last_time: i64, names: usize, sensors: usize) -> Option<RecordReading> {
        let sensor = usize::try_from(self.varint()?).ok().filter(|sensor| *sensor < sensors)?;
        let time = last_time.wrapping_add(unzigzag(self.varint()?));
        let cells = self.list(|bytes| {
            let head = bytes.varint()?;
            let name = usize::try_from(head >> 3).ok().filter(|name| *name < names)?;
            Some((name, bytes.value(head & 7)?))
        })?;
        Some(RecordReading { sensor, time, cells })
    }

    fn value(&mut self, kind: u64) -> Option<Value> {
        Some(match kind {
            0 => Value::Float(f64::from_le_bytes(self.take(8)?.try_into().ok()?)),
            1 => Value::Integer(unzigzag(self.varint()?)),
            2 => Value::Unsigned(self.varint()?),
            3 => Value::Boolean(false),
            4 => Value::Boolean(true),
            5 => Value::String(self.text()?.into()),
            _ => return None,
        })
    }

    pub(crate) fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = usize::try_from(self.varint()?).ok().filter(|count| *count <= self.bytes.unread_len())?;
        (0..count).map(|_| item(self)).collect()
    }

    pub(crate) fn text(&mut self) -> Option<&'a str> {
        self.bytes.text().ok()
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        self.bytes.take(length).ok()
    }

    pub(crate) fn varint(&mut self) -> Option<u64> {
        self.bytes.varint().ok()
    }
}

#[cfg(test)]
mod tests;
