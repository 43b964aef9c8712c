//! The engine: runs a plan over sensors, hours and fields. It answers from stored summaries where they are exact, else
//! from stored readings, and merges in readings that are acked but not flushed. It knows no query language.

mod cache;
pub mod choose;
pub mod columns;
pub mod condition;
pub mod directory;
pub mod evaluate;
pub mod fill;
mod fold;
pub mod frame;
pub mod hours;
mod kept;
pub mod kinds;
pub mod memory;
pub mod number;
pub mod plan;
pub mod points;
pub mod read;
mod rows;
mod sensor_cache;
mod sensors;
mod summaries;
mod totals;
mod transform;
pub mod windows;

use std::ops::Range;
use std::sync::Arc;

use self::cache::SummaryCache;
use self::directory::Directory;
use self::hours::within;
use self::sensor_cache::SensorCache;
use super::{Budget, QueryError};
use crate::bucket::{KnownSettings, UnflushedError, UnflushedHour, UnflushedReadings};
use crate::clock::expiry_ns;
use crate::config::QuerySettings;
use crate::kinds::Kinds;
use crate::lanes::Turns;
use crate::reading::Hour;
use crate::store::MergedView;
use crate::telemetry::Metrics;

pub use self::hours::{UnflushedSensor, hours_of};

/// The sensor cache gets one part in so many of `query.cache_bytes`.
const SENSORS_SHARE: usize = 8;

/// What queries read from.
#[derive(Debug)]
pub struct Engine {
    pub store: Arc<MergedView>,
    /// Unflushed readings. Read them before the store: readings flushed in between are then found in both, never in
    /// neither.
    pub memtables: Arc<dyn UnflushedReadings>,
    /// The databases' retention policies.
    pub settings: KnownSettings,
    pub options: QuerySettings,
    /// The kinds that sensors have by their measurement.
    pub sensor_kinds: Kinds,
    directory: Directory,
    /// The turns to read the list of sensors of a database.
    directory_turns: Turns,
    sensors: SensorCache,
    cache: Option<SummaryCache>,
    metrics: Metrics,
}

impl Engine {
    /// An engine on this store and these unflushed readings.
    #[must_use]
    pub fn new(
        store: Arc<MergedView>,
        memtables: Arc<dyn UnflushedReadings>,
        settings: KnownSettings,
        options: QuerySettings,
        metrics: &Metrics,
    ) -> Self {
        // A store that is not shared has no other writers: summaries in the cache do not age.
        let cache_max_age = store.raw().has_other_writers().then_some(options.cache_max_age);
        let sensor_bytes = options.cache_bytes / SENSORS_SHARE;
        let sensors = SensorCache::new(sensor_bytes, options.cache_max_age);
        let cache = SummaryCache::new(options.cache_bytes - sensor_bytes, cache_max_age, metrics);
        Self {
            store,
            memtables,
            settings,
            options,
            sensor_kinds: Kinds::default(),
            directory: Directory::default(),
            directory_turns: Turns::default(),
            sensors,
            cache,
            metrics: metrics.clone(),
        }
    }

    /// The part of a range of times, in nanoseconds, of which a database may have readings. What it has only summaries of is
    /// left out, and the request's budget notes that, unless the range has no start that somebody asked for.
    pub fn with_readings(&self, budget: &Budget, database: &str, range: &Range<i64>, has_start: bool) -> Range<i64> {
        match self.settings.now().readings_start(database, expiry_ns()).filter(|from| range.start < *from) {
            Some(from) => {
                if has_start && !range.is_empty() {
                    budget.note_expired(database, from);
                }
                from.min(range.end).max(range.start)..range.end
            }
            None => range.clone(),
        }
    }

    /// The unflushed readings of these stored sensors, in the order of `sensors`. Some may have been flushed a moment ago.
    ///
    /// # Errors
    /// If acked readings may be missing from them.
    pub async fn unflushed(
        &self,
        database: &str,
        sensors: &[&str],
        hours: &Range<Hour>,
    ) -> Result<Vec<UnflushedSensor>, UnflushedError> {
        let by_hour = |hours: Vec<UnflushedHour>| hours.into_iter().map(|hour| (hour.hour, hour)).collect();
        let unflushed = self.memtables.unflushed(database, sensors, hours.clone()).await?;
        Ok(unflushed.into_iter().map(by_hour).collect())
    }

    /// As [`Engine::unflushed`], for one sensor.
    ///
    /// # Errors
    /// The same.
    pub async fn unflushed_of(
        &self,
        database: &str,
        sensor: &str,
        hours: &Range<Hour>,
    ) -> Result<UnflushedSensor, UnflushedError> {
        Ok(self.unflushed(database, &[sensor], hours).await?.pop().unwrap_or_default())
    }

    /// As [`Engine::unflushed`], for a range of times in nanoseconds.
    ///
    /// # Errors
    /// If acked readings may be missing from them, or the budget is exhausted.
    pub async fn unflushed_within(
        &self,
        budget: &Budget,
        database: &str,
        sensors: &[&str],
        range: &Range<i64>,
    ) -> Result<Vec<UnflushedSensor>, QueryError> {
        let unflushed = self.unflushed(database, sensors, &hours_of(range)).await?;
        let bytes = unflushed.iter().flat_map(UnflushedSensor::values).map(UnflushedHour::memory).sum();
        let _whole_hours = budget.hold(bytes)?;
        Ok(unflushed.into_iter().map(|hours| within(hours, range)).collect())
    }
}
