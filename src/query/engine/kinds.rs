//! The InfluxDB types of fields: whether a field's numbers are integers or floats.

use std::collections::HashSet;
use std::sync::Arc;

use super::Engine;
use super::directory::DirectoryEntry;
use super::memory::{CHOOSE, NAME_BYTES};
use crate::bucket::store::{Extent, Order, Projection};
use crate::query::{Budget, HeldBytes, QueryError};
use crate::reading::{Family, Hour, Value};

/// The kinds of numbers seen per measurement and field. Only a sample of the readings is looked at.
#[derive(Debug)]
pub struct Kinds {
    floats: HashSet<(String, String)>,
    wholes: HashSet<(String, String)>,
    held: HeldBytes,
}

/// The number of pages of one sensor that are searched for a field that its first page lacks.
const PAGES_MAX: usize = 200;
/// The memory of these pages.
const PAGES_BYTES_MAX: usize = 1 << 20;

impl Kinds {
    fn note(&mut self, measurement: &str, field: &str, value: &Value) -> Result<(), QueryError> {
        let known = match value {
            Value::Float(_) => &mut self.floats,
            Value::Integer(_) | Value::Unsigned(_) => &mut self.wholes,
            Value::Boolean(_) | Value::String(_) => return Ok(()),
        };
        let is_new = known.insert((measurement.to_owned(), field.to_owned()));
        self.held.grow(if is_new { measurement.len() + field.len() + NAME_BYTES } else { 0 })
    }

    fn knows(&self, measurement: &str, field: &str) -> bool {
        let key = (measurement.to_owned(), field.to_owned());
        self.floats.contains(&key) || self.wholes.contains(&key)
    }

    /// InfluxDB's name for the field's type.
    #[must_use]
    pub fn of(&self, measurement: &str, field: &str, family: Family) -> &'static str {
        let key = (measurement.to_owned(), field.to_owned());
        match family {
            Family::Boolean => "boolean",
            Family::String => "string",
            Family::Number if self.wholes.contains(&key) && !self.floats.contains(&key) => "integer",
            Family::Number => "float",
        }
    }
}

impl Engine {
    /// The kinds of numbers in these sensors' fields: from unflushed readings, and from the summaries of the first page
    /// of a sensor that has the field. Fields of rare readings are searched in more pages.
    ///
    /// # Errors
    /// If the store does not answer, or the budget is exhausted.
    pub async fn field_kinds(
        &self,
        budget: &Budget,
        database: &str,
        entries: &[DirectoryEntry],
    ) -> Result<Kinds, QueryError> {
        let mut kinds = Kinds { floats: HashSet::new(), wholes: HashSet::new(), held: budget.hold(0)? };
        for pages in [1, PAGES_MAX] {
            self.search_kinds(budget, database, entries, pages, &mut kinds).await?;
        }
        Ok(kinds)
    }

    /// Searches this many pages of each sensor for fields of unknown kind.
    async fn search_kinds(
        &self,
        budget: &Budget,
        database: &str,
        entries: &[DirectoryEntry],
        pages: usize,
        kinds: &mut Kinds,
    ) -> Result<(), QueryError> {
        let all = Hour::from_ns(i64::MIN)..Hour::from_ns(i64::MAX).next();
        for (number, entry) in entries.iter().enumerate() {
            if number % CHOOSE == 0 {
                budget.pause().await?;
            }
            let measurement = &entry.sensor.measurement;
            let is_open =
                |(name, family): &&(Arc<str>, Family)| *family == Family::Number && !kinds.knows(measurement, name);
            let open: Vec<Arc<str>> = entry.fields.iter().filter(is_open).map(|(name, _)| name.clone()).collect();
            if open.is_empty() {
                continue;
            }
            let key: &str = &entry.stored.key;
            for hour in self.unflushed_of(database, key, &all).await?.into_values() {
                let readings = hour.readings();
                for name in &open {
                    let values = || readings.cells(name).into_iter().flatten().flatten();
                    let first = |float: bool| values().find(|value| matches!(value, Value::Float(_)) == float);
                    let mut firsts = [true, false].into_iter().filter_map(first);
                    firsts.try_for_each(|value| kinds.note(measurement, name, value))?;
                }
            }
            let extent = Extent { bytes: PAGES_BYTES_MAX, ..Extent::pages(pages) };
            let scan = self.store.scan(database, key, all.clone(), Order::Ascending, &Projection::SUMMARIES, extent);
            for page in budget.waiting(scan).await?.pages {
                let mut summaries = page.summary.iter();
                summaries.try_for_each(|(name, one)| kinds.note(measurement, name, &one.figures().first))?;
            }
            budget.pause().await?;
        }
        Ok(())
    }
}
