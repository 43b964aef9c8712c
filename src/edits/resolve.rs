//! Resolves the targets of a deletion to stored readings.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use super::{EditError, Edits};
use crate::backup::read::Part;
use crate::backup::{Parts, ReadBounds};
use crate::bucket::SensorDocument;
use crate::clock::now_ns;
use crate::query::influx::DeleteTargets;
use crate::reading::{Hour, Stamp, Value};

/// The readings that a deletion removes in one database, read page by page.
pub struct ResolvedReadings<'a> {
    target: &'a DeleteTargets,
    before: Stamp,
    range: Range<i64>,
    /// `None` if there is nothing to read.
    parts: Option<Parts<'a>>,
    last: Option<Arc<SensorDocument>>,
    /// The number of sensors so far.
    pub sensors: u64,
    /// The number of readings so far.
    pub readings: u64,
    /// The number of readings that were written while the statement ran, and stay.
    pub later: u64,
}

impl<'a> ResolvedReadings<'a> {
    /// Readings of a target with cells whose stamps are below `before`.
    pub fn new(edits: &'a Edits, target: &'a DeleteTargets, before: Stamp) -> Self {
        let DeleteTargets { database, sensors, range, .. } = target;
        // Readings that have expired are about to be removed; what is left of them cannot lose single ones.
        let kept_from = edits.query.settings().readings_from(database, now_ns());
        let range = kept_from.map_or(range.start, |from| from.max(range.start))..range.end;
        let parts = (!range.is_empty() && !sensors.is_empty()).then(|| {
            let hours = Hour::of(range.start)..Hour::of(range.end - 1).next();
            let keys: HashSet<Box<str>> = sensors.iter().map(|sensor| sensor.key.clone()).collect();
            let bounds = ReadBounds::of_memory(edits.options.read_bytes);
            Parts::new(&edits.store, database, hours, bounds).pages_of(Arc::new(keys))
        });
        Self { target, before, range, parts, last: None, sensors: 0, readings: 0, later: 0 }
    }

    /// The next sensor and times of its readings; those of one sensor come one after the other. `None` at the end.
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
    fn times(&mut self, Part { document, readings, within }: &Part) -> Vec<i64> {
        let values = self.target.values.as_ref();
        let entry = values.map(|values| values.entry(&document.sensor));
        let mut times = Vec::new();
        for (place, time) in readings.times().iter().enumerate() {
            if !self.range.contains(time) || within.as_ref().is_some_and(|within| !within.contains(time)) {
                continue;
            }
            let holds = |value: &dyn Fn(&str) -> Option<Value>| match (values, &entry) {
                (Some(values), Some(entry)) => values.holds(entry, value),
                _ => true,
            };
            // As if what is written meanwhile came later.
            let value = |name: &str| {
                let mut fields = readings.fields_before(place, self.before);
                fields.find(|(of, _)| &***of == name).map(|(_, value)| value.clone())
            };
            let has_any = readings.fields_before(place, self.before).next().is_some();
            if has_any && holds(&value) {
                times.push(*time);
                continue;
            }
            let value =
                |name: &str| readings.fields(place).find(|(of, _)| &***of == name).map(|(_, value)| value.clone());
            let is_later = self.before != Stamp::MAX && values.is_some() && holds(&value);
            self.later += u64::from(is_later);
        }
        times
    }
}
