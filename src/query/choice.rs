//! Which sensors a question is about: one by its key, or all that have a measurement and tags.

use std::sync::Arc;

use super::engine::pattern::Patterns;
use super::{Budget, QueryError};
use crate::access::Pin;
use crate::reading::Sensor;

/// Which sensors.
#[derive(Debug, Clone)]
pub enum Choice {
    /// This one.
    Sensor(Arc<Sensor>),
    /// All of a measurement, or of any, that pass every filter.
    Matching {
        /// The measurement.
        measurement: Option<String>,
        /// What their tags must be.
        tags: Vec<TagFilter>,
        /// What they must have for whoever asks to read them.
        pins: Vec<Pin>,
    },
}

/// What one tag must be. A sensor without the tag has it empty.
#[derive(Debug, Clone)]
pub struct TagFilter {
    /// Its key.
    pub key: String,
    /// What its value is compared with.
    pub test: TagTest,
    /// Whether it must not be so.
    pub negated: bool,
}

/// A comparison.
#[derive(Debug, Clone)]
pub enum TagTest {
    /// With a value.
    Is(String),
    /// With a pattern, anywhere in the value.
    Matches(String),
}

impl Choice {
    /// The choice with its patterns compiled.
    ///
    /// # Errors
    /// When these are too many, or too large.
    pub fn compile(&self, budget: &Budget) -> Result<Chooser<'_>, QueryError> {
        let Self::Matching { tags, .. } = self else {
            return Ok(Chooser { choice: self, patterns: Patterns::default() });
        };
        let pattern = |filter: &'_ TagFilter| match &filter.test {
            TagTest::Matches(pattern) => Some(pattern.clone()),
            TagTest::Is(_) => None,
        };
        let patterns: Vec<String> = tags.iter().filter_map(pattern).collect();
        let patterns = Patterns::compile(patterns.iter().map(String::as_str), Some(budget))?;
        Ok(Chooser { choice: self, patterns })
    }
}

/// Tells which sensors are chosen.
#[derive(Debug)]
pub struct Chooser<'a> {
    choice: &'a Choice,
    patterns: Patterns,
}

impl Chooser<'_> {
    /// Whether a sensor is.
    #[must_use]
    pub fn takes(&self, sensor: &Sensor) -> bool {
        match self.choice {
            Choice::Sensor(only) => sensor.key == only.key,
            Choice::Matching { measurement, tags, pins } => {
                measurement.as_ref().is_none_or(|name| *sensor.measurement == **name)
                    && tags.iter().all(|filter| self.passes(filter, sensor))
                    && pins.iter().all(|pin| pin.matches(sensor))
            }
        }
    }

    fn passes(&self, filter: &TagFilter, sensor: &Sensor) -> bool {
        let value = sensor.tag(&filter.key).unwrap_or("");
        let passes = match &filter.test {
            TagTest::Is(wanted) => value == wanted,
            TagTest::Matches(pattern) => self.patterns.matches(pattern, value),
        };
        passes != filter.negated
    }
}
