//! Counts the readings and summaries that a deletion would remove, without a change.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use super::resolve::ResolvedReadings;
use super::{EditError, Edits};
use crate::access::Caller;
use crate::backup::ReadBounds;
use crate::bucket::store::{Extent, Order, Projection, ScannedPage};
use crate::clock::expiry_ns;
use crate::ingest::IngestError;
use crate::query::influx::DeleteTargets;
use crate::reading::{Hour, Sensor, Stamp};

/// Maximum number of sensors whose summaries are counted at once.
const BATCH_SENSORS_MAX: usize = 256;
/// Maximum number of pages that are read at once of a sensor that is counted alone.
const BATCH_PAGES_MAX: usize = 1024;

/// The numbers of sensors, readings and summaries that a database would lose.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeletionCount {
    pub database: String,
    pub sensors: u64,
    pub readings: u64,
    /// Hours of sensors that have only summaries.
    pub summaries: u64,
}

impl Edits {
    /// Counts, by database, the acked readings that these targets would remove.
    ///
    /// # Errors
    /// If too many wait, the acked readings cannot be stored and read in time, or the deletion would be refused.
    pub async fn count(&self, caller: &Caller, targets: Vec<DeleteTargets>) -> Result<Vec<DeletionCount>, EditError> {
        let _place = self.enter(caller, targets.first().map_or("", |target| &target.database))?;
        self.ingest.flush(self.options.timeout).await?;
        let mut counts: Vec<DeletionCount> = Vec::new();
        let mut sensors: HashSet<Box<str>> = HashSet::new();
        for target in targets {
            let _turn = self.turn(caller, &target.database).await?;
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

    /// Counts the whole hours with summaries but expired readings that a deletion would remove, and adds their sensors
    /// to `found`. A deletion by value does not remove summaries.
    async fn count_summaries(&self, target: &DeleteTargets, found: &mut HashSet<Box<str>>) -> Result<u64, EditError> {
        let DeleteTargets { database, sensors, range, values, .. } = target;
        let readable_from = self.query.settings().readings_start(database, expiry_ns()).filter(|_| values.is_none());
        let Some(readable_from) = readable_from else { return Ok(0) };
        let first = Hour::from_ns(range.start);
        let first = if first.start_ns() < range.start { first.next() } else { first };
        let hours = first..Hour::from_ns(range.end.min(readable_from));
        if hours.is_empty() {
            return Ok(0);
        }
        let mut count = 0;
        let mut remaining = &sensors[..];
        // Double the batch as long as it fits into memory.
        let mut batch_len = 1;
        while !remaining.is_empty() {
            let (batch, rest) = remaining.split_at(batch_len.min(remaining.len()));
            let Some(counts) = self.hours_with_summaries(database, batch, &hours).await? else {
                batch_len = batch.len() / 2;
                continue;
            };
            for (sensor, hours) in batch.iter().zip(counts).filter(|(_, hours)| *hours > 0) {
                count += hours;
                found.insert(sensor.key.clone());
            }
            remaining = rest;
            batch_len = (batch_len * 2).min(BATCH_SENSORS_MAX);
            tokio::task::yield_now().await;
        }
        Ok(count)
    }

    /// Returns the number of hours with summaries for each sensor, or `None` if the pages of several sensors do not fit
    /// into memory together.
    async fn hours_with_summaries(
        &self,
        database: &str,
        sensors: &[Arc<Sensor>],
        hours: &Range<Hour>,
    ) -> Result<Option<Vec<u64>>, EditError> {
        let bytes = ReadBounds::for_memory(self.read_bytes()).batch_bytes;
        let keys: Vec<&str> = sensors.iter().map(|sensor| &*sensor.key).collect();
        let wanted = Projection::SUMMARIES;
        if let Some(pages) = self.store.scan_sensors(database, &keys, hours.clone(), &wanted, bytes).await? {
            return Ok(Some(pages.iter().map(|pages| count_hours(pages)).collect()));
        }
        let &[key] = &*keys else { return Ok(None) };
        let mut count = 0;
        let mut remaining = hours.clone();
        while !remaining.is_empty() {
            let extent = Extent { pages: BATCH_PAGES_MAX, bytes, hour_bytes: usize::MAX };
            let scanned = self.store.scan(database, key, remaining, Order::Ascending, &wanted, extent).await?;
            count += count_hours(&scanned.pages);
            remaining = scanned.rest;
        }
        Ok(Some(vec![count]))
    }
}

/// Counts the hours with summaries. `pages` must be sorted by hour.
fn count_hours(pages: &[ScannedPage]) -> u64 {
    let has_summary = |hour_pages: &&[ScannedPage]| hour_pages.iter().any(|page| !page.summary.is_empty());
    pages.chunk_by(|a, b| a.hour == b.hour).filter(has_summary).count() as u64
}
