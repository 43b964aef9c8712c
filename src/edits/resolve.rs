//! Resolves the targets of a deletion to stored readings.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use super::{EditError, Edits};
use crate::backup::read::Part;
use crate::backup::{Parts, ReadBounds};
use crate::bucket::SensorDocument;
use crate::clock::expiry_ns;
use crate::query::influx::DeleteTargets;
use crate::reading::{Hour, Stamp, Value};

/// The readings that a deletion removes in one database, read page by page.
pub struct ResolvedReadings<'a> {
    target: &'a DeleteTargets,
    /// Only cells with stamps below this count.
    before: Stamp,
    range: Range<i64>,
    /// `None` if nothing is left to read.
    parts: Option<Parts<'a>>,
    last: Option<Arc<SensorDocument>>,
    /// The number of sensors so far.
    pub sensors: u64,
    /// The number of readings so far.
    pub readings: u64,
    /// The number of matching readings that were written while the statement ran, and stay.
    pub later: u64,
}

impl<'a> ResolvedReadings<'a> {
    /// Resolves a target. Only cells with stamps below `before` count.
    pub fn new(edits: &'a Edits, target: &'a DeleteTargets, before: Stamp) -> Self {
        let DeleteTargets { database, sensors, range, .. } = target;
        // Skip expired readings, which are removed anyway. Single ones cannot be removed from their summaries.
        let kept_from = edits.query.settings().readings_start(database, expiry_ns());
        let range = kept_from.map_or(range.start, |readable_from| readable_from.max(range.start))..range.end;
        let parts = (!range.is_empty() && !sensors.is_empty()).then(|| {
            let hours = Hour::from_ns(range.start)..Hour::from_ns(range.end - 1).next();
            let keys: HashSet<Box<str>> = sensors.iter().map(|sensor| sensor.key.clone()).collect();
            let bounds = ReadBounds::for_memory(edits.read_bytes());
            Parts::new(&edits.store, database, hours, bounds).single_pages(Arc::new(keys))
        });
        Self { target, before, range, parts, last: None, sensors: 0, readings: 0, later: 0 }
    }

    /// Returns the next sensor with timestamps of its readings, or `None` at the end. A sensor can have several
    /// consecutive results.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn next(&mut self) -> Result<Option<(Arc<SensorDocument>, Vec<i64>)>, EditError> {
        let Some(mut parts) = self.parts.take() else { return Ok(None) };
        while let Some(piece) = parts.next().await? {
            tokio::task::yield_now().await;
            let Some(part) = piece.readings() else { continue };
            let times = self.times(part);
            let document = part.document.clone();
            if !times.is_empty() {
                self.readings += times.len() as u64;
                self.sensors += u64::from(self.last.as_ref().is_none_or(|last| last.sensor.key != document.sensor.key));
                self.last = Some(document.clone());
                self.parts = Some(parts);
                return Ok(Some((document, times)));
            }
        }
        Ok(None)
    }

    /// The times of the readings of a part that the deletion removes.
    fn times(&mut self, Part { document, readings, times: part_times }: &Part) -> Vec<i64> {
        let values = self.target.values.as_ref();
        let entry = values.map(|values| values.entry(&document.sensor));
        let mut times = Vec::new();
        for (index, time) in readings.times().iter().enumerate() {
            if !self.range.contains(time) || part_times.as_ref().is_some_and(|part_times| !part_times.contains(time)) {
                continue;
            }
            let is_condition_met = |value: &dyn Fn(&str) -> Option<Value>| match (values, &entry) {
                (Some(values), Some(entry)) => values.holds(entry, value),
                _ => true,
            };
            // Check the condition on older cells only, as if concurrent writes came after the deletion.
            let older_value = |name: &str| {
                let mut fields = readings.fields_before(index, self.before);
                fields.find(|(field, _)| &***field == name).map(|(_, value)| value.clone())
            };
            let has_older = readings.fields_before(index, self.before).next().is_some();
            if has_older && is_condition_met(&older_value) {
                times.push(*time);
                continue;
            }
            let value = |name: &str| {
                let mut fields = readings.fields(index);
                fields.find(|(field, _)| &***field == name).map(|(_, value)| value.clone())
            };
            let is_later = self.before != Stamp::MAX && values.is_some() && is_condition_met(&value);
            self.later += u64::from(is_later);
        }
        times
    }
}
