//! Questions, in the words of our own API or of InfluxQL: one engine answers both, from the store and from what is acked
//! and not there yet. Reaches both only through the traits that `bucket` declares; knows nothing of HTTP.

mod budget;
pub mod choice;
mod engine;
pub mod influx;
pub mod native;
mod wait;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use self::budget::Budgets;
use self::choice::Choice;
use self::engine::Engine;
use self::engine::pattern::PATTERNS_MAX;
use self::engine::plan::COLUMNS_MAX;
use self::influx::{Answer, Asked, Doomed, StatementFailure};
use self::native::Selection;
use self::native::aggregate::{Aggregated, Aggregation};
use self::native::many::{ManyReadings, ManySelection, Vocabulary};
use self::native::readings::{Order, Part};
use self::native::thinning::Thinned;
use crate::access::Caller;
use crate::bucket::store::SensorFilter;
use crate::bucket::{Behind, SensorDocument, StorageError, Store, UnflushedReadings};
use crate::influxql::Statement;
use crate::telemetry::Metrics;

pub use self::budget::{Budget, Held};
pub use self::engine::directory::{document_bytes, first_lot, next_lot};
pub use self::wait::Passing;

/// The names of the functions that stand in the engine's table alone; both languages know them.
pub fn aggregates() -> impl Iterator<Item = &'static str> {
    engine::aggregates::AGGREGATES.iter().map(|aggregate| aggregate.name)
}

/// How queries are bounded. Config section `[query]`.
#[derive(Debug, Clone)]
pub struct Options {
    /// Most bytes of memory that one request may take, its answer included.
    pub request_bytes: usize,
    /// That all may take together.
    pub bytes: usize,
    /// That those of one token may take together.
    pub token_bytes: usize,
    /// Most queries at a time.
    pub concurrent: usize,
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
    /// Longest time for one request, the wait for its turn included.
    pub timeout: Duration,
    /// How long a request takes that is worth a line in the log.
    pub log_after: Duration,
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
    /// The request would take too much memory.
    #[error(
        "the request needs more than {limit} bytes of memory (query.request_bytes): take a shorter range, a longer step, fewer sensors or fields, or a LIMIT"
    )]
    TooLarge {
        /// The limit's value.
        limit: usize,
    },
    /// All requests together would.
    #[error("all queries together need more than {limit} bytes of memory at present (query.bytes)")]
    Full {
        /// The limit's value.
        limit: usize,
    },
    /// Those of one token would.
    #[error("the queries of this token need more than {limit} bytes of memory at present (query.token_bytes)")]
    TokenFull {
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
    /// There are more columns in it than are computed for one statement.
    #[error("the query has more than {COLUMNS_MAX} columns: name those that you need")]
    TooManyColumns,
    /// There are more regular expressions in it than are compiled for one query.
    #[error(
        "the query has more than {PATTERNS_MAX} regular expressions; lists such as ^(a|b|c)$ count as none, so join those that you can"
    )]
    TooManyPatterns,
    /// A regular expression is too large.
    #[error("a regular expression of the query is too large: {detail}")]
    Pattern {
        /// What the compiler says.
        detail: String,
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

/// Answers questions, each in its turn and in its time.
#[derive(Debug)]
pub struct Query {
    engine: Engine,
    budgets: Arc<Budgets>,
    metrics: Metrics,
}

impl Query {
    /// Queries on this store, and on what is on its way there.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, hot: Arc<dyn UnflushedReadings>, options: Options, metrics: Metrics) -> Self {
        let budgets = Budgets::new(options.clone());
        Self { engine: Engine::new(store, hot, options, &metrics), budgets, metrics }
    }

    /// The budget of a request that begins now: who asks, and what.
    #[must_use]
    pub fn begin(&self, by: &Caller, text: &str) -> Budget {
        self.budgets.begin(by, text)
    }

    /// As [`native::readings::readings`].
    ///
    /// # Errors
    /// When the answer cannot be complete.
    pub async fn readings(
        &self,
        budget: &Budget,
        selection: &Selection,
        order: Order,
        limit: usize,
    ) -> Result<Part, QueryError> {
        let read = || native::readings::readings(&self.engine, budget, selection, order, limit);
        let part = self.in_turn(budget, read).await?;
        self.count(part.readings.len());
        Ok(part)
    }

    /// As [`native::many::many_readings`].
    ///
    /// # Errors
    /// When the answer cannot be complete.
    pub async fn many_readings(
        &self,
        budget: &Budget,
        selection: &ManySelection,
        limit: usize,
    ) -> Result<ManyReadings, QueryError> {
        let read = || native::many::many_readings(&self.engine, budget, selection, limit);
        let part = self.in_turn(budget, read).await?;
        self.count(part.series.iter().map(|(_, readings)| readings.len()).sum());
        Ok(part)
    }

    /// As [`native::thinning::thinned`].
    ///
    /// # Errors
    /// When the answer cannot be complete, or would be too large.
    pub async fn thinned(
        &self,
        budget: &Budget,
        selection: &ManySelection,
        points_max: usize,
    ) -> Result<Thinned, QueryError> {
        let read = || native::thinning::thinned(&self.engine, budget, selection, points_max);
        let thinned = self.in_turn(budget, read).await?;
        self.count(thinned.series.iter().map(|(_, readings)| readings.len()).sum());
        Ok(thinned)
    }

    /// As [`native::aggregate::aggregate`].
    ///
    /// # Errors
    /// When the answer cannot be complete, or would be too large.
    pub async fn aggregate(&self, budget: &Budget, asked: &Aggregation) -> Result<Aggregated, QueryError> {
        let found = self.in_turn(budget, || native::aggregate::aggregate(&self.engine, budget, asked)).await?;
        self.count(found.series.iter().map(|series| series.windows.len()).sum());
        Ok(found)
    }

    /// As [`native::many::vocabulary`].
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn vocabulary(&self, budget: &Budget, database: &str, choice: &Choice) -> Result<Vocabulary, QueryError> {
        self.in_turn(budget, || native::many::vocabulary(&self.engine, budget, database, choice)).await
    }

    /// The series that a statement which changes nothing comes to; `None` for one that does.
    ///
    /// # Errors
    /// Why it has no result.
    pub async fn statement(&self, statement: &Statement, asked: Asked<'_>) -> Result<Option<Answer>, StatementFailure> {
        self.in_turn(asked.budget, || influx::run(&self.engine, statement, asked)).await
    }

    /// As [`influx::doomed`].
    ///
    /// # Errors
    /// Why it cannot be said.
    pub async fn doomed(&self, statement: &Statement, asked: Asked<'_>) -> Result<Option<Doomed>, StatementFailure> {
        self.in_turn(asked.budget, || influx::doomed(&self.engine, statement, asked)).await
    }

    /// The documents of a database's sensors, in key order. A store that is away is not waited for: whoever lists
    /// sensors does so with [`Query::patiently`].
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn sensors(
        &self,
        budget: &Budget,
        database: &str,
        filter: &SensorFilter,
    ) -> Result<Vec<SensorDocument>, QueryError> {
        self.turn(budget, async { Ok(self.engine.store.list_sensors(database, filter).await?) }).await
    }

    /// The databases in the store, in name order.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn databases(&self) -> Result<Vec<String>, QueryError> {
        let budget = self.begin(&Caller::Anybody, "databases");
        self.in_turn(&budget, || async { Ok::<_, QueryError>(self.engine.store.databases().await?) }).await
    }

    /// As [`Engine::all_databases`].
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn all_databases(&self) -> Result<Vec<String>, QueryError> {
        self.engine.all_databases().await
    }

    /// Asks until it is answered, or fails for good, or `query.wait` is over: then with the last error.
    ///
    /// # Errors
    /// Those of what is asked.
    pub async fn patiently<T, E: Passing, F: Future<Output = Result<T, E>>>(
        &self,
        ask: impl Fn() -> F,
    ) -> Result<T, E> {
        let options = &self.engine.options;
        wait::patiently(options, options.timeout, ask).await
    }

    fn count(&self, points: usize) {
        self.metrics.query_points.increment(points as u64);
    }

    /// Answers a query in its turn; where it fails for what passes by itself, in another turn.
    async fn in_turn<T, E: From<QueryError> + Passing, F: Future<Output = Result<T, E>>>(
        &self,
        budget: &Budget,
        query: impl Fn() -> F,
    ) -> Result<T, E> {
        let started = std::time::Instant::now();
        let left = budget.deadline().saturating_duration_since(Instant::now());
        let answer = wait::patiently(&self.engine.options, left, || self.turn(budget, query())).await;
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
        budget: &Budget,
        query: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        budget.turn().await?;
        // Counted down when the query ends, and when whoever asked is gone.
        let _running = self.metrics.query_running();
        let limit = self.engine.options.timeout;
        let answer = timeout_at(budget.deadline(), query).await.map_err(|_| QueryError::Timeout { limit });
        budget.rest();
        answer?
    }
}
