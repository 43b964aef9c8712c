//! The sensor of a pushed reading: its measurement and tags as decoded, and the checks that all formats have.

use std::borrow::Cow;

use hourglass_model::reading::value::RawValue;
use hourglass_model::reading::{Limits, Reason, Rejection, Sensor};

use crate::names;
use crate::point::line_text;

/// Maximum bytes of a refused sensor's key in a rejection, because each reading of a few bytes repeats it.
const QUOTED_KEY_BYTES_MAX: usize = 1 << 10;

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
        let refuse = RefusedSensor::new;
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
    /// True if only the start of the key is kept.
    is_cut: bool,
    reason: Reason,
}

impl RefusedSensor {
    fn new(key: &str, reason: Reason) -> Self {
        let is_cut = key.len() > QUOTED_KEY_BYTES_MAX;
        let end = (0..=QUOTED_KEY_BYTES_MAX).rev().find(|end| key.is_char_boundary(*end)).unwrap_or_default();
        let key = if is_cut { format!("{}…", &key[..end]).into() } else { key.into() };
        Self { key, is_cut, reason }
    }

    /// A rejection of one reading of the sensor.
    pub fn reject(&self, number: usize, fields: &[(Cow<'_, str>, RawValue<'_>)], timestamp: Option<i64>) -> Rejection {
        if self.is_cut {
            // With fields it would be the line of another sensor, which could be sent again.
            return Rejection::new(number, 0, self.key.as_bytes(), self.reason.clone());
        }
        let line = line_text(&self.key, fields, timestamp);
        Rejection::new(number, 0, line.as_bytes(), self.reason.clone())
    }
}
