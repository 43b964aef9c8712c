//! Counts and sums of sent readings, to compare with what the service has.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::reading::Family;
use crate::reading::value::RawValue;
use crate::wire::Point;

/// The readings of one database by measurement, which is spelled as in line protocol.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Totals(pub BTreeMap<String, MeasurementTotals>);

#[derive(Debug, Serialize, Deserialize)]
pub struct MeasurementTotals {
    /// The times of the first and the last reading.
    pub first: i64,
    pub last: i64,
    pub fields: Vec<FieldTotals>,
}

/// The values of a field.
#[derive(Debug, Serialize, Deserialize)]
pub struct FieldTotals {
    pub name: String,
    pub count: u64,
    pub sum: f64,
    /// A bit for each family of values: numbers, booleans, strings.
    pub families: u8,
}

impl Totals {
    /// Counts a point. A point without a timestamp is not counted, because the service chooses its time.
    pub fn add(&mut self, point: &Point<'_, '_>) {
        let Some(time) = point.timestamp else { return };
        let series = point.spelling();
        let name = &series[..measurement_end(series)];
        if !self.0.contains_key(name) {
            self.0.insert(name.to_owned(), MeasurementTotals { first: time, last: time, fields: Vec::new() });
        }
        let Some(measurement) = self.0.get_mut(name) else { return };
        measurement.first = measurement.first.min(time);
        measurement.last = measurement.last.max(time);
        for (index, (name, value)) in point.fields.iter().enumerate() {
            let field = measurement.field(index, name);
            field.count += 1;
            field.families |= 1 << value.family() as u8;
            field.sum += number(value);
        }
    }

    /// Adds the totals of another batch.
    pub fn merge(&mut self, other: &Self) {
        for (name, more) in &other.0 {
            let new = || MeasurementTotals { first: more.first, last: more.last, fields: Vec::new() };
            let measurement = self.0.entry(name.clone()).or_insert_with(new);
            measurement.first = measurement.first.min(more.first);
            measurement.last = measurement.last.max(more.last);
            for (index, more) in more.fields.iter().enumerate() {
                let field = measurement.field(index, &more.name);
                field.count += more.count;
                field.sum += more.sum;
                field.families |= more.families;
            }
        }
    }
}

impl FieldTotals {
    /// Returns true if all values are numbers.
    pub fn is_number(&self) -> bool {
        self.families == 1 << Family::Number as u8
    }

    /// Returns true if values have different families, as those of different sensors may.
    pub fn is_mixed(&self) -> bool {
        self.families.count_ones() > 1
    }
}

impl MeasurementTotals {
    /// Returns the totals of a field, which is probably at this index.
    fn field(&mut self, index: usize, name: &str) -> &mut FieldTotals {
        let is_there = self.fields.get(index).is_some_and(|field| field.name == name);
        let found = if is_there { Some(index) } else { self.fields.iter().position(|field| field.name == name) };
        let index = found.unwrap_or_else(|| {
            self.fields.push(FieldTotals { name: name.to_owned(), count: 0, sum: 0.0, families: 0 });
            self.fields.len() - 1
        });
        &mut self.fields[index]
    }
}

/// Returns the length of the measurement at the start of a sensor key.
fn measurement_end(series: &str) -> usize {
    let bytes = series.as_bytes();
    memchr::memchr_iter(b',', bytes).find(|&comma| comma == 0 || bytes[comma - 1] != b'\\').unwrap_or(bytes.len())
}

fn number(value: &RawValue<'_>) -> f64 {
    match value {
        RawValue::Float(number) => *number,
        RawValue::Integer(number) => *number as f64,
        RawValue::Unsigned(number) => *number as f64,
        RawValue::Boolean(_) | RawValue::String(_) => 0.0,
    }
}
