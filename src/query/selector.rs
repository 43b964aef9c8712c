//! The selection of sensors of a query: one by its key, or all that match a measurement and tags.

use std::borrow::Cow;
use std::sync::Arc;

use super::engine::columns::{Passing, SensorList};
use super::engine::directory::meta_text;
use super::pattern::Patterns;
use super::{Budget, QueryError};
use crate::access::Pin;
use crate::bucket::Meta;
use crate::bucket::meta::META_PREFIX;
use crate::reading::Sensor;

/// The sensors of a query.
#[derive(Debug, Clone)]
pub enum Selector {
    /// One sensor.
    Sensor(Arc<Sensor>),
    /// All sensors that pass every filter.
    Matching {
        /// `None` for any measurement.
        measurement: Option<String>,
        tags: Vec<TagFilter>,
        /// Tags that the caller's token requires.
        pins: Vec<Pin>,
    },
}

/// A test of one tag, or of a metadata value if the key has the prefix `meta.`. A missing tag counts as empty.
#[derive(Debug, Clone)]
pub struct TagFilter {
    pub key: String,
    pub test: TagTest,
    /// True if the test is inverted.
    pub is_negated: bool,
}

#[derive(Debug, Clone)]
pub enum TagTest {
    /// Equality.
    Is(String),
    /// A regular expression that may match anywhere in the value.
    Matches(String),
}

impl Selector {
    /// Compiles the patterns of the selector.
    ///
    /// # Errors
    /// If there are too many, or one is too large.
    pub fn compile(&self, budget: &Budget) -> Result<Chooser<'_>, QueryError> {
        let Self::Matching { tags, .. } = self else {
            return Ok(Chooser { selector: self, patterns: Patterns::default() });
        };
        let patterns = tags.iter().filter_map(|filter| match &filter.test {
            TagTest::Matches(pattern) => Some(&**pattern),
            TagTest::Is(_) => None,
        });
        Ok(Chooser { selector: self, patterns: Patterns::compile(patterns, Some(budget))? })
    }
}

/// A selector with compiled patterns.
#[derive(Debug)]
pub struct Chooser<'a> {
    selector: &'a Selector,
    patterns: Patterns,
}

impl Chooser<'_> {
    /// Evaluates each metadata filter for all sensors of a list.
    ///
    /// # Errors
    /// If the budget is exhausted.
    pub async fn meta_tests(&self, budget: &Budget, list: &SensorList) -> Result<Vec<Passing>, QueryError> {
        let Selector::Matching { tags, .. } = self.selector else { return Ok(Vec::new()) };
        let mut passing = Vec::new();
        for filter in tags.iter().filter(|filter| filter.key.starts_with(META_PREFIX)) {
            passing.push(list.passing(budget, &filter.key, |text| self.tests(filter, text) != filter.is_negated)?);
            budget.pause().await?;
        }
        Ok(passing)
    }

    /// The number of comparisons per sensor.
    #[must_use]
    pub fn filters(&self) -> usize {
        if let Selector::Matching { tags, .. } = self.selector { tags.len() } else { 1 }
    }

    /// Returns true if a sensor, given by its shown name, is selected.
    #[must_use]
    pub fn selects(&self, sensor: &Sensor, meta: Option<&Meta>) -> bool {
        match self.selector {
            Selector::Sensor(only) => sensor.key == only.key,
            Selector::Matching { measurement, tags, pins } => {
                measurement.as_ref().is_none_or(|name| *sensor.measurement == **name)
                    && tags.iter().all(|filter| self.passes(filter, sensor, meta))
                    && pins.iter().all(|pin| pin.matches(sensor))
            }
        }
    }

    fn tests(&self, filter: &TagFilter, value: &str) -> bool {
        match &filter.test {
            TagTest::Is(wanted) => value == *wanted,
            TagTest::Matches(pattern) => self.patterns.matches(pattern, value),
        }
    }

    fn passes(&self, filter: &TagFilter, sensor: &Sensor, meta: Option<&Meta>) -> bool {
        let from_meta = || meta.and_then(|meta| meta_text(meta, &filter.key));
        let value = sensor.tag(&filter.key).map(Cow::Borrowed).or_else(from_meta);
        self.tests(filter, &value.unwrap_or_default()) != filter.is_negated
    }
}
