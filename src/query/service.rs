//! The entry point for queries: each waits for its turn and runs within its time and its budget.

use std::sync::Arc;

use tokio::time::Instant;

use super::budget::Budgets;
use super::engine::Engine;
use super::engine::directory::DirectoryEntry;
use crate::access::Caller;
use crate::bucket::settings::Settings;
use crate::bucket::store::SensorFilter;
use crate::bucket::{KnownSettings, SensorDocument, UnflushedReadings};
use crate::store::MergedView;
use crate::telemetry::Metrics;

use super::budget::Budget;
use super::error::QueryError;
use super::wait::Passing;
use super::{influx, wait};
use crate::config::QuerySettings;
/// Runs queries.
#[derive(Debug)]
pub struct Query {
    pub(super) engine: Engine,
    budgets: Arc<Budgets>,
    metrics: Metrics,
}

impl Query {
    /// Queries on this store and on the unflushed readings.
    #[must_use]
    pub fn new(
        store: Arc<MergedView>,
        memtables: Arc<dyn UnflushedReadings>,
        settings: KnownSettings,
        options: QuerySettings,
        metrics: Metrics,
    ) -> Self {
        let budgets = Budgets::new(options.clone());
        Self { engine: Engine::new(store, memtables, settings, options, &metrics), budgets, metrics }
    }

    /// The databases' retention policies, as this process knows them.
    #[must_use]
    pub fn settings(&self) -> Arc<Settings> {
        self.engine.settings.now()
    }

    /// The budget of a request that begins now; the caller and the text go into the slow-query log.
    #[must_use]
    pub fn begin(&self, by: &Caller, text: &str) -> Budget {
        self.budgets.begin(by, text)
    }

    /// The sensors that come after a key, in the order of their shown keys, as far as they have readings.
    ///
    /// # Errors
    /// If the store does not answer, or acked readings are still being read back.
    pub async fn sensors_after(
        &self,
        budget: &Budget,
        database: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<DirectoryEntry>, QueryError> {
        self.turn(budget, async {
            let sensors = self.engine.directory(budget, database, self.engine.options.cache_max_age).await?;
            let is_before = |key: &str| after.is_some_and(|after| key <= after);
            let from = sensors.partition_point(|entry| is_before(&entry.sensor.key));
            Ok(sensors[from..].iter().take(limit).cloned().collect())
        })
        .await
    }

    /// What an answer says of readings that it needed and that have expired. Says it once.
    #[must_use]
    pub fn readings_expired(&self, budget: &Budget) -> Vec<String> {
        budget.take_expired().iter().map(|(database, from)| influx::readings_expired(database, *from)).collect()
    }

    /// The documents of a database's sensors, in key order. Does not retry while the store is unavailable; wrap the
    /// call in [`Query::patiently`] for that.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn sensors(
        &self,
        budget: &Budget,
        database: &str,
        filter: &SensorFilter,
    ) -> Result<Vec<SensorDocument>, QueryError> {
        self.turn(budget, async { Ok(self.engine.store.list_sensors(database, filter).await?) }).await
    }

    /// See [`Engine::all_databases`].
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn all_databases(&self) -> Result<Vec<String>, QueryError> {
        self.engine.all_databases().await
    }

    /// Retries errors that may pass by themselves, for up to `query.wait`.
    ///
    /// # Errors
    /// The last error.
    pub async fn patiently<T, E: Passing, F: Future<Output = Result<T, E>>>(
        &self,
        ask: impl Fn() -> F,
    ) -> Result<T, E> {
        let options = &self.engine.options;
        wait::patiently(options, options.timeout, ask).await
    }

    pub(super) fn count(&self, points: usize) {
        self.metrics.query_points.increment(points as u64);
    }

    /// Runs a query in its turn, and records it in the metrics. An error that may pass by itself is retried, in a new
    /// turn each time. `database` is the one that the request names, for the log.
    pub(super) async fn in_turn<T, E: From<QueryError> + Passing, F: Future<Output = Result<T, E>>>(
        &self,
        budget: &Budget,
        database: &str,
        query: impl Fn() -> F,
    ) -> Result<T, E> {
        let started = std::time::Instant::now();
        let left = budget.deadline().saturating_duration_since(Instant::now());
        let answer = wait::patiently(&self.engine.options, left, || self.turn(budget, query())).await;
        self.metrics.query_seconds.record(started.elapsed());
        if let Some(error) = answer.as_ref().err().and_then(Passing::of_store) {
            self.metrics.store_error(error.class());
            tracing::warn!(%error, database, token = budget.token(), "query failed: store error");
        }
        answer
    }

    /// Runs a query once, when it is its turn.
    async fn turn<T, E: From<QueryError> + Passing>(
        &self,
        budget: &Budget,
        query: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        budget.turn().await?;
        // Counts down when the query ends or its client disconnects.
        let _running = self.metrics.query_running();
        let answer = budget.in_time(query).await;
        budget.rest();
        answer?
    }
}

pub(super) fn without_notices(error: QueryError) -> Vec<String> {
    tracing::debug!(%error, "an answer's notices are not known");
    Vec::new()
}
