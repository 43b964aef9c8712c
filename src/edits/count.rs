//! Counts what a deletion would remove, without any change.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use super::resolve::ResolvedReadings;
use super::{EditError, Edits};
use crate::backup::ReadBounds;
use crate::bucket::store::{Extent, Order, Projection, ScannedPage};
use crate::clock::now_ns;
use crate::ingest::IngestError;
use crate::query::influx::DeleteTargets;
use crate::reading::{Hour, Sensor, Stamp};

/// Sensors whose summaries are counted together, and pages of one that is counted alone.
const SENSORS_TOGETHER: usize = 256;
const PAGES: usize = 1024;

/// The number of sensors, readings and summaries that a database would lose.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeletionCount {
    pub database: String,
    pub sensors: u64,
    pub readings: u64,
    /// Hours of sensors of which there are only summaries.
    pub summaries: u64,
}

impl Edits {
    /// Counts by database what these targets would remove of everything that is acked by now.
    ///
    /// # Errors
    /// If not all of it can be stored and read, or the deletion would be refused.
    pub async fn count(&self, targets: Vec<DeleteTargets>) -> Result<Vec<DeletionCount>, EditError> {
        let Ok(_turn) = self.turn.acquire().await else { return Err(IngestError::Stopping.into()) };
        self.ingest.flush(self.options.timeout).await?;
        let mut counts: Vec<DeletionCount> = Vec::new();
        let mut sensors: HashSet<Box<str>> = HashSet::new();
        for target in targets {
            if target.values.is_none() {
                let checked = self.ingest.retention.check_deletion(&target.database, &target.range);
                checked.map_err(IngestError::from)?;
            }
            if counts.last().is_none_or(|count| count.database != target.database) {
                counts.push(DeletionCount { database: target.database.clone(), ..DeletionCount::default() });
                sensors.clear();
            }
            let mut found = ResolvedReadings::new(self, &target, Stamp::MAX);
            while let Some((document, _)) = found.next().await? {
                sensors.insert(document.sensor.key.clone());
            }
            let readings = found.readings;
            let summaries = self.count_summaries(&target, &mut sensors).await?;
            if let Some(count) = counts.last_mut() {
                count.readings += readings;
                count.summaries += summaries;
                count.sensors = sensors.len() as u64;
            }
        }
        Ok(counts)
    }

    /// Counts the whole hours of sensors whose readings have expired and whose summaries a deletion takes; adds the sensors that
    /// have some. One by value takes none.
    async fn count_summaries(&self, target: &DeleteTargets, found: &mut HashSet<Box<str>>) -> Result<u64, EditError> {
        let DeleteTargets { database, sensors, range, values, .. } = target;
        let from = self.query.settings().readings_from(database, now_ns()).filter(|_| values.is_none());
        let Some(from) = from else { return Ok(0) };
        let first = Hour::of(range.start);
        let first = if first.start_ns() < range.start { first.next() } else { first };
        let hours = first..Hour::of(range.end.min(from));
        let mut count = 0;
        let mut left = if hours.is_empty() { &[][..] } else { &sensors[..] };
        let mut together = 1;
        while !left.is_empty() {
            let (some, rest) = left.split_at(together.min(left.len()));
            let Some(counts) = self.hours_with_summaries(database, some, &hours).await? else {
                together = some.len() / 2;
                continue;
            };
            for (sensor, hours) in some.iter().zip(counts).filter(|(_, hours)| *hours > 0) {
                count += hours;
                found.insert(sensor.key.clone());
            }
            left = rest;
            together = (together * 2).min(SENSORS_TOGETHER);
            tokio::task::yield_now().await;
        }
        Ok(count)
    }

    /// The number of hours with summaries, by sensor; `None` if they are too much to be read together.
    async fn hours_with_summaries(
        &self,
        database: &str,
        sensors: &[Arc<Sensor>],
        hours: &Range<Hour>,
    ) -> Result<Option<Vec<u64>>, EditError> {
        let bytes = ReadBounds::of_memory(self.options.read_bytes).batch_bytes;
        let keys: Vec<&str> = sensors.iter().map(|sensor| &*sensor.key).collect();
        let wanted = Projection::SUMMARIES;
        if let Some(pages) = self.store.scan_sensors(database, &keys, hours.clone(), &wanted, bytes).await? {
            return Ok(Some(pages.iter().map(|pages| hours_of(pages)).collect()));
        }
        let &[key] = &*keys else { return Ok(None) };
        let mut count = 0;
        let mut left = hours.clone();
        while !left.is_empty() {
            let extent = Extent { pages: PAGES, bytes, hour_bytes: usize::MAX };
            let scanned = self.store.scan(database, key, left, Order::Ascending, &wanted, extent).await?;
            count += hours_of(&scanned.pages);
            left = scanned.rest;
        }
        Ok(Some(vec![count]))
    }
}

/// The number of hours that have summaries, of pages in order of hours.
fn hours_of(pages: &[ScannedPage]) -> u64 {
    let has_any = |of_hour: &&[ScannedPage]| of_hour.iter().any(|page| !page.summary.is_empty());
    pages.chunk_by(|a, b| a.hour == b.hour).filter(has_any).count() as u64
}
