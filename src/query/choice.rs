//! Which sensors a question is about: one by its key, or all that have a measurement and tags.

use regex::Regex;

use super::directory::Entry;
use super::{Query, QueryError};
use crate::reading::Sensor;

/// Which sensors.
#[derive(Debug, Clone)]
pub enum Choice {
    /// The one with this key.
    Sensor(String),
    /// All of a measurement, or of any, that pass every filter.
    Matching {
        /// The measurement.
        measurement: Option<String>,
        /// What their tags must be.
        tags: Vec<TagFilter>,
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
    Matches(Regex),
}

impl TagTest {
    /// A pattern.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn pattern(text: &str) -> Result<Self, String> {
        super::influx::pattern::compile(text).map(Self::Matches).map_err(|error| error.to_string())
    }
}

impl TagFilter {
    /// Whether a sensor is as it says.
    #[must_use]
    pub fn passes(&self, sensor: &Sensor) -> bool {
        let tag = sensor.tags.iter().find(|(key, _)| **key == *self.key);
        let value = tag.map_or("", |(_, value)| &**value);
        let passes = match &self.test {
            TagTest::Is(wanted) => value == wanted,
            TagTest::Matches(pattern) => pattern.is_match(value),
        };
        passes != self.negated
    }
}

impl Choice {
    /// Whether a sensor is among those chosen.
    #[must_use]
    pub fn takes(&self, sensor: &Sensor) -> bool {
        match self {
            Self::Sensor(key) => *sensor.key == **key,
            Self::Matching { measurement, tags } => {
                measurement.as_ref().is_none_or(|name| *sensor.measurement == **name)
                    && tags.iter().all(|filter| filter.passes(sensor))
            }
        }
    }
}

impl Query {
    /// The sensors chosen, in key order.
    pub(super) async fn choose(&self, database: &str, choice: &Choice) -> Result<Vec<Entry>, QueryError> {
        let sensors = self.directory(database, self.options.cache_max_age).await?;
        Ok(sensors.iter().filter(|entry| choice.takes(&entry.sensor)).cloned().collect())
    }
}
