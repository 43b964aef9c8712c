//! Reads and folds: a plan over sensors, hours and fields, answered from stored summaries where these are exact, else
//! from stored readings, with what is acked and not flushed yet laid over. Knows of no language that was asked in.

pub mod aggregates;
mod cache;
pub mod choose;
pub mod directory;
pub mod evaluate;
pub mod fill;
pub mod filter;
mod fold;
pub mod hours;
pub mod limits;
pub mod pattern;
pub mod plan;
pub mod points;
pub mod read;
mod rows;
mod summaries;
mod transform;
pub mod windows;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use self::cache::SummaryCache;
use self::directory::Directory;
use super::Options;
use crate::bucket::{Behind, Store, UnflushedHour, UnflushedReadings};
use crate::faults::{self, Bug};
use crate::reading::Hour;
use crate::telemetry::Metrics;

pub use self::hours::hours_of;

/// What is not in the store of a sensor.
pub type Unflushed = BTreeMap<Hour, UnflushedHour>;

/// What answers are made from.
#[derive(Debug)]
pub struct Engine {
    /// What is stored.
    pub store: Arc<dyn Store>,
    /// What is acked and not stored yet. It is asked first: what is flushed in between is then found in both.
    pub hot: Arc<dyn UnflushedReadings>,
    /// Bounds.
    pub options: Options,
    directory: Directory,
    cache: Option<SummaryCache>,
}

impl Engine {
    /// On this store, and on what is on its way there.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, hot: Arc<dyn UnflushedReadings>, options: Options, metrics: &Metrics) -> Self {
        // Nobody else writes to a store that is not shared.
        let cache_max_age = store.is_shared().then_some(options.cache_max_age);
        let cache = SummaryCache::new(options.cache_bytes, cache_max_age, metrics);
        Self { store, hot, options, directory: Directory::default(), cache }
    }

    /// What of these sensors is not in the store yet, or was not a moment ago; in their order.
    ///
    /// # Errors
    /// When acked readings may be missing from it.
    pub async fn unflushed(
        &self,
        database: &str,
        sensors: &[&str],
        hours: &Range<Hour>,
    ) -> Result<Vec<Unflushed>, Behind> {
        if faults::has(Bug::QueryIgnoresHot) {
            return Ok(vec![BTreeMap::new(); sensors.len()]);
        }
        let unflushed = self.hot.unflushed(database, sensors, hours.clone()).await?;
        let by_hour = |hours: Vec<UnflushedHour>| hours.into_iter().map(|hour| (hour.hour, hour)).collect();
        Ok(unflushed.into_iter().map(by_hour).collect())
    }

    /// As [`Engine::unflushed`], of one sensor.
    ///
    /// # Errors
    /// The same.
    pub async fn unflushed_of(&self, database: &str, sensor: &str, hours: &Range<Hour>) -> Result<Unflushed, Behind> {
        Ok(self.unflushed(database, &[sensor], hours).await?.pop().unwrap_or_default())
    }
}
