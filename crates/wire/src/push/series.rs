//! The sensor of a pushed reading: its measurement and tags as decoded, and the checks that all formats have.

use std::borrow::Cow;

use hourglass_model::reading::value::RawValue;
use hourglass_model::reading::{Limits, Reason, Rejection, Sensor};

use crate::names;
use crate::point::line_text;

/// Decoded tags. Memory is bounded, because tags beyond `limits.tags` are only counted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tags<'a> {
    list: Vec<(&'a str, Cow<'a, str>)>,
    count: usize,
}

impl<'a> Tags<'a> {
    /// Adds a tag. An empty value means that the tag is absent.
    pub fn push(&mut self, key: &'a str, value: impl Into<Cow<'a, str>>, limits: &Limits) {
        let value = value.into();
        if value.is_empty() {
            return;
        }
        self.count += 1;
        if self.list.len() <= limits.tags {
            self.list.push((key, value));
        }
    }

    /// Adds a tag, or replaces the value of the tag with this key.
    pub fn set(&mut self, key: &'a str, value: Cow<'a, str>, limits: &Limits) {
        match self.list.iter_mut().find(|(known, _)| *known == key) {
            Some((_, known)) if !value.is_empty() => *known = value,
            Some(_) => {}
            None => self.push(key, value, limits),
        }
    }

    /// Returns the bytes of all keys and values.
    pub fn bytes(&self) -> usize {
        self.list.iter().map(|(key, value)| key.len() + value.len()).sum()
    }

    /// Makes the sensor with this measurement.
    pub fn sensor(&self, measurement: &str, limits: &Limits) -> Result<Sensor, RefusedSensor> {
        let refuse = |key: &str, reason| RefusedSensor { key: key.into(), reason };
        let found = measurement.len() + self.bytes();
        let limit = limits.line_bytes;
        if found > limit {
            let reason = Reason::Limit { what: "bytes of one series", found, limit, key: "limits.line_bytes" };
            return Err(refuse(&names::shorten(measurement), reason));
        }
        names::check_tags(self.count, limits).map_err(|reason| refuse(measurement, reason))?;
        let tags = self.list.iter().map(|(key, value)| (*key, &**value));
        let sensor = Sensor::new(measurement, tags).map_err(|key| refuse(measurement, Reason::DuplicateTag(key)))?;
        check_names(&sensor, limits).map_err(|reason| refuse(&sensor.key, reason))?;
        Ok(sensor)
    }
}

fn check_names(sensor: &Sensor, limits: &Limits) -> Result<(), Reason> {
    names::MEASUREMENT.check(&sensor.measurement, limits)?;
    for (key, value) in &sensor.tags {
        names::TAG_KEY.check(key, limits)?;
        names::TAG_VALUE.check(value, limits)?;
    }
    Ok(())
}

/// An invalid sensor.
#[derive(Debug)]
pub(crate) struct RefusedSensor {
    /// The start of the line that a rejection quotes.
    key: Box<str>,
    reason: Reason,
}

impl RefusedSensor {
    /// A rejection of one reading of the sensor.
    pub fn reject(&self, number: usize, fields: &[(Cow<'_, str>, RawValue<'_>)], timestamp: Option<i64>) -> Rejection {
        let line = line_text(&self.key, fields, timestamp);
        Rejection::new(number, 0, line.as_bytes(), self.reason.clone())
    }
}
