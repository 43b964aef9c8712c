//! The outline of a record: its sensors, hours and fields without values. The scan of the backlog uses it.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use rapidhash::fast::RandomState;

use super::{KIND_READINGS, PayloadReader, RecordError};
use crate::reading::varint::unzigzag;
use crate::reading::{Family, Hour, Sensor};

/// The outline of a record of readings.
#[derive(Debug, PartialEq)]
pub struct Outline {
    pub database: String,
    /// The sensors with readings in the record.
    pub sensors: Vec<SensorOutline>,
}

/// The readings of one sensor in a record, without values.
#[derive(Debug, PartialEq)]
pub struct SensorOutline {
    pub sensor: Sensor,
    /// The hours of the readings. Adjacent hours are usually merged, and an hour may occur more than once.
    pub hours: Vec<Range<Hour>>,
    /// The fields with the family of their first value.
    pub fields: Vec<(Arc<str>, Family)>,
}

/// Decodes the outline of a record's payload.
///
/// # Errors
/// If the kind or version is unknown, or the payload is malformed.
pub fn outline(kind: u8, payload: &[u8]) -> Result<Outline, RecordError> {
    PayloadReader::read(kind, KIND_READINGS, payload, PayloadReader::outline)
}

impl PayloadReader<'_> {
    fn outline(&mut self) -> Option<Outline> {
        let database = self.head()?.database;
        let names: Vec<Arc<str>> = self.list(|bytes| bytes.text().map(Arc::from))?;
        let mut sensors: Vec<SensorOutline> =
            self.list(|bytes| Some(SensorOutline { sensor: bytes.sensor()?, hours: Vec::new(), fields: Vec::new() }))?;
        let mut seen: HashSet<(usize, usize), RandomState> = HashSet::default();
        let mut time = 0_i64;
        let rows = usize::try_from(self.varint()?).ok()?;
        for _ in 0..rows {
            let number = usize::try_from(self.varint()?).ok()?;
            let sensor = sensors.get_mut(number)?;
            time = time.wrapping_add(unzigzag(self.varint()?));
            sensor.add_hour(Hour::from_ns(time));
            for index in 0..self.varint()? {
                let head = self.varint()?;
                let name = usize::try_from(head >> 3).ok()?;
                let family = self.skip_value(head & 7)?;
                // Readings of a sensor usually have the same fields in the same order.
                let expected = usize::try_from(index).ok().and_then(|index| sensor.fields.get(index));
                let text = names.get(name)?;
                if expected.is_none_or(|(known, _)| !Arc::ptr_eq(known, text)) && seen.insert((number, name)) {
                    sensor.fields.push((text.clone(), family));
                }
            }
        }
        sensors.retain(|sensor| !sensor.hours.is_empty());
        Some(Outline { database, sensors })
    }

    fn skip_value(&mut self, kind: u64) -> Option<Family> {
        match kind {
            0 => self.take(8).map(|_| Family::Number),
            1 | 2 => self.varint().map(|_| Family::Number),
            3 | 4 => Some(Family::Boolean),
            5 => {
                let length = usize::try_from(self.varint()?).ok()?;
                self.take(length).map(|_| Family::String)
            }
            _ => None,
        }
    }
}

impl SensorOutline {
    fn add_hour(&mut self, hour: Hour) {
        match self.hours.last_mut() {
            Some(last) if last.contains(&hour) => {}
            Some(last) if last.end == hour => last.end = hour.next(),
            Some(last) if hour.next() == last.start => last.start = hour,
            _ => self.hours.push(hour..hour.next()),
        }
    }
}
