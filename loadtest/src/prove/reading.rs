//! The readings that are written and read back, and their wire formats.

use std::fmt::Write;

use bytes::Bytes;
use mongodb::bson::{DateTime, Document, doc};

/// The fields of a reading.
pub const FIELDS: [&str; 2] = ["temp", "humidity"];

/// An hour, in milliseconds.
pub const HOUR_MS: i64 = 3_600_000;

/// A reading to write. A correction lacks some fields.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reading {
    pub sensor: u32,
    /// In milliseconds since 1970.
    pub time: i64,
    /// Hundredths.
    pub temp: f64,
    /// Whole numbers, of which every sum is exact.
    pub humidity: Option<f64>,
}

/// A value that was read back.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// As [`sensor_name`] writes it.
    pub sensor: String,
    /// In milliseconds since 1970.
    pub time: i64,
    pub field: String,
    pub value: f64,
}

/// The aggregates of a field of a sensor in an hour.
#[derive(Debug, Clone, PartialEq)]
pub struct Window {
    pub sensor: String,
    /// The start of the hour, in milliseconds since 1970.
    pub start: i64,
    pub field: String,
    pub count: f64,
    pub sum: f64,
    pub mean: f64,
}

/// A time range, in milliseconds since 1970.
#[derive(Debug, Clone, Copy)]
pub struct Range {
    /// Inclusive.
    pub from: i64,
    /// Exclusive.
    pub to: i64,
}

/// Returns the tag of a sensor.
pub fn sensor_name(number: u32) -> String {
    format!("s{number:04}")
}

impl Reading {
    /// The values by field.
    pub fn values(&self) -> impl Iterator<Item = (&'static str, f64)> {
        let [temp, humidity] = FIELDS;
        [Some((temp, self.temp)), self.humidity.map(|value| (humidity, value))].into_iter().flatten()
    }

    /// The document for a time-series collection.
    pub fn document(&self) -> Document {
        let mut document =
            doc! { "ts": DateTime::from_millis(self.time), "meta": { "sensor": sensor_name(self.sensor) } };
        document.extend(self.values().map(|(field, value)| (field.to_owned(), value.into())));
        document
    }
}

/// Formats readings as line protocol.
pub fn lines(readings: &[Reading]) -> Bytes {
    let mut text = String::new();
    for reading in readings {
        let values: Vec<String> = reading.values().map(|(field, value)| format!("{field}={value}")).collect();
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "climate,sensor={} {} {}000000",
            sensor_name(reading.sensor),
            values.join(","),
            reading.time
        );
    }
    text.into()
}

/// Returns the last midnight (UTC) that is at least a day ago, so that the day after it is past.
pub fn yesterday() -> i64 {
    let now = jiff::Timestamp::now().as_millisecond();
    now - now.rem_euclid(24 * HOUR_MS) - 24 * HOUR_MS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_correction_has_only_the_corrected_field() {
        let whole = Reading { sensor: 7, time: 1_768_485_600_000, temp: 22.5, humidity: Some(45.0) };
        let correction = Reading { temp: 21.25, humidity: None, ..whole };
        let text = String::from_utf8(lines(&[whole, correction]).to_vec()).unwrap();
        assert_eq!(
            text,
            "climate,sensor=s0007 temp=22.5,humidity=45 1768485600000000000\nclimate,sensor=s0007 temp=21.25 1768485600000000000\n"
        );
        assert!(!correction.document().contains_key("humidity"));
    }
}
