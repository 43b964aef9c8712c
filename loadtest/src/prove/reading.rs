//! What is written, what is read back, and both in the forms of wires.

use std::fmt::Write;

use bytes::Bytes;
use mongodb::bson::{DateTime, Document, doc};

/// The fields of a reading.
pub const FIELDS: [&str; 2] = ["temp", "humidity"];

/// An hour, in milliseconds.
pub const HOUR_MS: i64 = 3_600_000;

/// A reading as it is written: a correction has not all fields.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reading {
    /// Whose.
    pub sensor: u32,
    /// When, in milliseconds since 1970.
    pub time: i64,
    /// Hundredths.
    pub temp: f64,
    /// Whole numbers, of which every sum is exact.
    pub humidity: Option<f64>,
}

/// A value as it is read back.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Whose, as [`sensor_name`] writes it.
    pub sensor: String,
    /// When, in milliseconds since 1970.
    pub time: i64,
    /// Which field.
    pub field: String,
    /// The value.
    pub value: f64,
}

/// What a system says of a field of a sensor in an hour.
#[derive(Debug, Clone, PartialEq)]
pub struct Window {
    /// Whose.
    pub sensor: String,
    /// Where the hour begins, in milliseconds since 1970.
    pub start: i64,
    /// Which field.
    pub field: String,
    /// How many values.
    pub count: f64,
    /// Their sum.
    pub sum: f64,
    /// Their mean.
    pub mean: f64,
}

/// From the one to the other, in milliseconds since 1970.
#[derive(Debug, Clone, Copy)]
pub struct Range {
    /// The first.
    pub from: i64,
    /// After the last.
    pub to: i64,
}

/// What a sensor is called.
pub fn sensor_name(number: u32) -> String {
    format!("s{number:04}")
}

impl Reading {
    /// Its values by field.
    pub fn values(&self) -> impl Iterator<Item = (&'static str, f64)> {
        let [temp, humidity] = FIELDS;
        [Some((temp, self.temp)), self.humidity.map(|value| (humidity, value))].into_iter().flatten()
    }

    /// As it goes into a native time-series collection.
    pub fn document(&self) -> Document {
        let mut document =
            doc! { "ts": DateTime::from_millis(self.time), "meta": { "sensor": sensor_name(self.sensor) } };
        document.extend(self.values().map(|(field, value)| (field.to_owned(), value.into())));
        document
    }
}

/// Line protocol with timestamps in milliseconds.
pub fn lines(readings: &[Reading]) -> Bytes {
    let mut text = String::new();
    for reading in readings {
        let values: Vec<String> = reading.values().map(|(field, value)| format!("{field}={value}")).collect();
        // Writing to a String cannot fail.
        let _ = writeln!(text, "climate,sensor={} {} {}", sensor_name(reading.sensor), values.join(","), reading.time);
    }
    text.into()
}

/// The last midnight (UTC) that is a day ago at least: what lies a day after it is over.
pub fn yesterday() -> i64 {
    let now = jiff::Timestamp::now().as_millisecond();
    now - now.rem_euclid(24 * HOUR_MS) - 24 * HOUR_MS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_correction_has_only_the_field_that_it_is_about() {
        let whole = Reading { sensor: 7, time: 1_768_485_600_000, temp: 22.5, humidity: Some(45.0) };
        let correction = Reading { temp: 21.25, humidity: None, ..whole };
        let text = String::from_utf8(lines(&[whole, correction]).to_vec()).unwrap();
        assert_eq!(
            text,
            "climate,sensor=s0007 temp=22.5,humidity=45 1768485600000\nclimate,sensor=s0007 temp=21.25 1768485600000\n"
        );
        assert!(!correction.document().contains_key("humidity"));
    }
}
