//! Questions: ranges of readings and windows of summaries, for one sensor. Answered from the store
//! and from what is acked and not there yet, which is asked for first. Reaches both only through the
//! traits that `bucket` declares; knows nothing of HTTP.

pub mod aggregate;
mod cache;
pub mod choice;
mod directory;
pub mod influx;
mod limits;
pub mod many;
mod plan;
mod points;
pub mod range;
mod summaries;
mod thinning;
mod wait;
mod windows;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

pub use self::wait::Passing;
pub use self::windows::Window;

use self::cache::SummaryCache;
use self::directory::Directory;
use crate::bucket::store::{ScannedPage, SensorFilter};
use crate::bucket::{Behind, Reading, Readings, SensorDocument, StorageError, Store, UnflushedReadings};
use crate::reading::Hour;
use crate::telemetry::Metrics;

/// How queries are bounded. Config section `[query]`.
#[derive(Debug, Clone)]
pub struct Options {
    /// Most windows in one answer.
    pub windows_max: usize,
    /// Bytes of readings, as stored, after which a part ends early.
    pub answer_bytes: usize,
    /// Most queries at a time.
    pub concurrent: usize,
    /// Most readings that one statement keeps in memory.
    pub points_max: usize,
    /// Longest range that a question may be about.
    pub span_max: Duration,
    /// Most sensors that one question may be about.
    pub series_max: usize,
    /// How old what is known of other instances' sensors and of what they stored may be.
    pub cache_max_age: Duration,
    /// Bytes of memory for summaries that are remembered; none are with zero.
    pub cache_bytes: usize,
    /// How long a query waits for what is read back from the log, and for a store that is away.
    pub wait: Duration,
    /// Longest time for one query, the wait for its turn included.
    pub timeout: Duration,
}

/// Why a query was not answered.
#[derive(Debug, Clone, thiserror::Error)]
pub enum QueryError {
    /// The store failed: an answer could not be complete, so there is none.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// Acked readings that the answer must have are still to be read back from the log.
    #[error(transparent)]
    Behind(#[from] Behind),
    /// The answer would have more windows than the limit.
    #[error(
        "the range has more than {limit} windows of this step (query.windows_max): take a longer step or a shorter range"
    )]
    TooManyWindows {
        /// The limit's value.
        limit: usize,
    },
    /// The answer would take too much memory.
    #[error(
        "the answer has more than {limit} bytes (four times query.answer_bytes): take a longer step, a shorter range or fewer fields"
    )]
    TooLarge {
        /// The limit's value.
        limit: usize,
    },
    /// The statement needs too many readings at a time.
    #[error(
        "the query needs more than {limit} readings at a time (query.points_max): take a shorter range or fewer sensors"
    )]
    TooManyPoints {
        /// The limit's value.
        limit: usize,
    },
    /// The range is too long.
    #[error("the query is about more than {limit:?} (query.span_max): take a shorter range")]
    TooLong {
        /// The limit's value.
        limit: Duration,
    },
    /// Too many sensors are chosen.
    #[error("the query is about {count} sensors, more than {limit} (query.series_max): choose fewer by their tags")]
    TooManySensors {
        /// How many there are.
        count: usize,
        /// The limit's value.
        limit: usize,
    },
    /// It took too long.
    #[error("the query took longer than {limit:?} (query.timeout): take a shorter range or a lower limit")]
    Timeout {
        /// The limit's value.
        limit: Duration,
    },
    /// Too many queries at a time.
    #[error("more than {limit} queries at a time (query.concurrent)")]
    Overloaded {
        /// The limit's value.
        limit: usize,
    },
}

/// Which readings: of one sensor, in a half-open range of nanoseconds.
#[derive(Debug, Clone)]
pub struct Selection {
    /// The database's name.
    pub database: String,
    /// The sensor's canonical key.
    pub sensor: String,
    /// From the first on and before the last.
    pub range: Range<i64>,
    /// Only these fields; all when empty.
    pub fields: Vec<String>,
}

/// Answers questions from the store and the hot buckets.
#[derive(Debug)]
pub struct Query {
    store: Arc<dyn Store>,
    hot: Arc<dyn UnflushedReadings>,
    options: Options,
    turns: Semaphore,
    directory: Directory,
    cache: Option<SummaryCache>,
    metrics: Metrics,
}

/// Bounds on the pages read at once with their readings.
const PAGES_WITH_READINGS: Range<usize> = 4..24;

impl Query {
    /// Queries on this store, and on what is on its way there.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, hot: Arc<dyn UnflushedReadings>, options: Options, metrics: Metrics) -> Self {
        // Nobody else writes to a store that is not shared.
        let cache_max_age = store.is_shared().then_some(options.cache_max_age);
        Self {
            cache: SummaryCache::new(options.cache_bytes, cache_max_age, &metrics),
            turns: Semaphore::new(options.concurrent),
            directory: Directory::default(),
            store,
            hot,
            options,
            metrics,
        }
    }

    /// Summaries of a selection by windows of `step` nanoseconds, counted from the epoch and cut
    /// to the range; windows without readings are left out. `None` for an unknown sensor.
    ///
    /// # Errors
    /// When the answer cannot be complete, or would be too large.
    pub async fn summary(&self, selection: &Selection, step: i64) -> Result<Option<Vec<Window>>, QueryError> {
        let windows = self.in_turn(|| self.read_windows(selection, step)).await?;
        self.metrics.query_points.increment(windows.as_ref().map_or(0, Vec::len) as u64);
        Ok(windows)
    }

    /// The documents of a database's sensors, in key order. A store that is away is not waited for: whoever lists
    /// sensors does so with [`Query::patiently`].
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn sensors(&self, database: &str, filter: &SensorFilter) -> Result<Vec<SensorDocument>, QueryError> {
        let deadline = tokio::time::Instant::now() + self.options.timeout;
        self.turn(deadline, async { Ok(self.store.list_sensors(database, filter).await?) }).await
    }

    /// The databases, in name order.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn databases(&self) -> Result<Vec<String>, QueryError> {
        self.in_turn(|| async { Ok::<_, QueryError>(self.store.databases().await?) }).await
    }

    /// Answers a query in its turn; where it fails for what passes by itself, in another turn.
    async fn in_turn<T, E: From<QueryError> + Passing, F: Future<Output = Result<T, E>>>(
        &self,
        query: impl Fn() -> F,
    ) -> Result<T, E> {
        let started = std::time::Instant::now();
        let deadline = tokio::time::Instant::now() + self.options.timeout;
        let answer = self.patiently(|| self.turn(deadline, query())).await;
        self.metrics.query_seconds.record(started.elapsed());
        if let Some(error) = answer.as_ref().err().and_then(Passing::of_store) {
            self.metrics.store_error(error.class());
            tracing::warn!(%error, "a query was not answered");
        }
        answer
    }

    /// Answers a query once, when it is its turn.
    async fn turn<T, E: From<QueryError> + Passing>(
        &self,
        deadline: tokio::time::Instant,
        query: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let turn = tokio::time::timeout_at(deadline, self.turns.acquire()).await;
        let Ok(Ok(_turn)) = turn else { return Err(QueryError::Overloaded { limit: self.options.concurrent }.into()) };
        // Counted down when the query ends, and when whoever asked is gone.
        let _running = self.metrics.query_running();
        let timeout = |_| QueryError::Timeout { limit: self.options.timeout };
        tokio::time::timeout_at(deadline, query).await.map_err(timeout)?
    }

    /// What of the selection's sensor is not in the store yet, or was not a moment ago.
    async fn unflushed(&self, selection: &Selection, hours: &Range<Hour>) -> Result<BTreeMap<Hour, Readings>, Behind> {
        if crate::faults::has(crate::faults::Bug::QueryIgnoresHot) {
            return Ok(BTreeMap::new());
        }
        let unflushed = self.hot.unflushed(&selection.database, &[&selection.sensor], hours.clone()).await?;
        Ok(unflushed.into_iter().flatten().collect())
    }

    async fn scan(
        &self,
        selection: &Selection,
        hours: &Range<Hour>,
        with_readings: bool,
        pages_max: usize,
    ) -> Result<Vec<ScannedPage>, StorageError> {
        self.store.scan(&selection.database, &selection.sensor, hours.clone(), with_readings, pages_max).await
    }

    async fn is_known(&self, selection: &Selection) -> Result<bool, QueryError> {
        // Before the store is asked: what is flushed in between is then found there.
        let unflushed = self.unflushed(selection, &(Hour(i64::MIN)..Hour(i64::MAX))).await;
        let is_unflushed = unflushed.as_ref().is_ok_and(|unflushed| !unflushed.is_empty());
        if is_unflushed || !self.store.read_sensors(&selection.database, &[&selection.sensor]).await?.is_empty() {
            return Ok(true);
        }
        // Of hours that nobody asked about something may still be read back: where the store knows the sensor it does
        // not matter.
        Ok(unflushed.map(|_| false)?)
    }
}

/// The hours that a range of nanoseconds touches.
fn hours_of(range: &Range<i64>) -> Range<Hour> {
    if range.is_empty() {
        return Hour(0)..Hour(0);
    }
    Hour::of(range.start)..Hour::of(range.end - 1).next()
}

/// The hours before `scanned` of stored pages and of unflushed readings, in order, each with what
/// there is of either; the unflushed ones are taken out.
fn by_hour<'a>(
    pages: &'a [ScannedPage],
    unflushed: &mut BTreeMap<Hour, Readings>,
    scanned: Hour,
) -> Vec<(Hour, &'a [ScannedPage], Option<Readings>)> {
    let rest = unflushed.split_off(&scanned);
    let taken = std::mem::replace(unflushed, rest);
    beside(pages, taken)
}

/// Stored pages, an hour's together, and unflushed readings: in order of the hours, each with what there is of either.
fn beside(
    pages: &[ScannedPage],
    mut unflushed: BTreeMap<Hour, Readings>,
) -> Vec<(Hour, &[ScannedPage], Option<Readings>)> {
    let mut hours: Vec<_> = pages
        .chunk_by(|a, b| a.hour == b.hour)
        .map(|pages| (pages[0].hour, pages, unflushed.remove(&pages[0].hour)))
        .collect();
    hours.extend(unflushed.into_iter().map(|(hour, readings)| (hour, &pages[..0], Some(readings))));
    hours.sort_by_key(|(hour, ..)| *hour);
    hours
}

/// The readings of one hour in time order, cut to the selection: those of its pages, merged with what is not flushed yet.
/// Pages share no timestamp; should a page have been split while they were read, the later page's copy counts.
fn merged(pages: &[ScannedPage], unflushed: Option<&Readings>, selection: &Selection) -> Vec<Reading> {
    let wanted = |name: &str| selection.fields.is_empty() || selection.fields.iter().any(|field| field == name);
    let mut sets: Vec<&Readings> = pages.iter().filter_map(|page| page.readings.as_ref()).collect();
    let together;
    if let Some(unflushed) = unflushed {
        let mut all = sets.first().map_or_else(Readings::default, |first| (*first).clone());
        for set in sets.iter().skip(1) {
            all.merge_set(set);
        }
        all.merge_set(unflushed);
        together = all;
        sets = vec![&together];
    }
    let mut places: BTreeMap<i64, (usize, usize)> = BTreeMap::new();
    for (p, readings) in sets.iter().enumerate() {
        let in_range = readings.times().iter().enumerate().filter(|(_, time)| selection.range.contains(time));
        places.extend(in_range.map(|(i, time)| (*time, (p, i))));
    }
    let cut = |readings: &Readings, time: i64, i: usize| {
        let fields = readings.fields(i).filter(|(name, _)| wanted(name));
        Reading { time, fields: fields.map(|(name, value)| (name.clone(), value.clone())).collect() }
    };
    places
        .into_iter()
        .map(|(time, (p, i))| cut(sets[p], time, i))
        .filter(|reading| !reading.fields.is_empty())
        .collect()
}
