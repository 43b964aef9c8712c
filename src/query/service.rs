//! The entry point for queries. Each query waits for its turn, and runs within its timeout and budget.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::budget::Budgets;
use super::engine::Engine;
use super::engine::directory::DirectoryEntry;
use crate::access::Caller;
use crate::bucket::settings::Settings;
use crate::bucket::store::SensorFilter;
use crate::bucket::{KnownSettings, SensorDocument, UnflushedReadings};
use crate::faults;
use crate::store::MergedView;
use crate::telemetry::Metrics;

use super::budget::Budget;
use super::error::QueryError;
use super::wait::Transient;
use super::{influx, wait};
use crate::config::QuerySettings;
use crate::kinds::Kinds;

/// Runs queries.
#[derive(Debug)]
pub struct Query {
    pub(super) engine: Engine,
    pub(super) budgets: Arc<Budgets>,
    /// The callers to whom an answer without a limit is being sent.
    exporting: Arc<Mutex<HashSet<String>>>,
    metrics: Metrics,
}

/// Permission to send an answer without a limit.
#[derive(Debug)]
pub struct ExportPermit {
    exporting: Arc<Mutex<HashSet<String>>>,
    caller: String,
}

impl Drop for ExportPermit {
    fn drop(&mut self) {
        self.exporting.lock().remove(&self.caller);
    }
}

impl Query {
    /// Creates the service for a store and the unflushed readings.
    #[must_use]
    pub fn new(
        store: Arc<MergedView>,
        memtables: Arc<dyn UnflushedReadings>,
        settings: KnownSettings,
        options: QuerySettings,
        metrics: Metrics,
    ) -> Self {
        let budgets = Budgets::new(options.clone());
        Self {
            engine: Engine::new(store, memtables, settings, options, &metrics),
            budgets,
            exporting: Arc::default(),
            metrics,
        }
    }

    /// Sets the kinds that sensors have by their measurement.
    #[must_use]
    pub fn with_kinds(mut self, kinds: Kinds) -> Self {
        self.engine.sensor_kinds = kinds;
        self
    }

    /// Returns the settings of databases as this process knows them.
    #[must_use]
    pub fn settings(&self) -> Arc<Settings> {
        self.engine.settings.now()
    }

    /// Begins a request and returns its budget. The caller and the text are for the slow-query log.
    #[must_use]
    pub fn begin(&self, caller: &Caller, text: &str) -> Budget {
        self.budgets.begin(caller, text)
    }

    /// Permits an answer without a limit; each caller can have one at a time.
    ///
    /// # Errors
    /// [`QueryError::Exporting`]
    pub fn begin_export(&self, caller: &Caller) -> Result<ExportPermit, QueryError> {
        let exporting = self.exporting.clone();
        let caller = caller.name().to_owned();
        if !exporting.lock().insert(caller.clone()) {
            return Err(QueryError::Exporting);
        }
        Ok(ExportPermit { exporting, caller })
    }

    /// Ends a running request. Returns false if the caller sees none with this number.
    #[must_use]
    pub fn kill(&self, id: u64, caller: &Caller) -> bool {
        self.budgets.kill(id, caller)
    }

    /// Returns up to `limit` sensors with readings after a key, in the order of their shown keys.
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
        self.run_once(budget, async {
            let sensors = self.engine.directory(budget, database, self.engine.options.cache_max_age).await?;
            let is_before = |key: &str| after.is_some_and(|after| key <= after);
            let start = sensors.partition_point(|entry| is_before(&entry.sensor.key));
            Ok(sensors[start..].iter().take(limit).cloned().collect())
        })
        .await
    }

    /// Removes and returns the notices about what the answer lacks: expired readings, and results that are too large.
    #[must_use]
    pub fn notices_of(&self, budget: &Budget) -> Vec<String> {
        let expired = budget.take_expired();
        let expired = expired.iter().map(|(database, from)| influx::expired_readings_notice(database, *from));
        let overflow =
            budget.take_overflow().then(|| "a result is beyond the range of doubles and shown as null".to_owned());
        let missing = budget.take_missing();
        let missing = missing.iter().map(|instance| {
            format!("instance {instance} does not answer: what it has acked and not stored is missing")
        });
        missing.chain(expired).chain(overflow).collect()
    }

    /// Returns sensor documents of a database in key order. It does not retry while the store is unavailable; wrap the
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
        self.run_once(budget, async { Ok(self.engine.store.list_sensors(database, filter).await?) }).await
    }

    /// Lists all databases; see `Engine::all_databases`.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn all_databases(&self) -> Result<Vec<String>, QueryError> {
        self.engine.all_databases().await
    }

    /// Retries transient errors for up to `query.wait`.
    ///
    /// # Errors
    /// The last error.
    pub async fn patiently<T, E: Transient, F: Future<Output = Result<T, E>>>(
        &self,
        ask: impl Fn() -> F,
    ) -> Result<T, E> {
        let options = &self.engine.options;
        wait::patiently(options, options.timeout, ask).await
    }

    pub(super) fn count(&self, points: usize) {
        self.metrics.query_points.increment(points as u64);
    }

    /// Runs a query in its turn, and records it in the metrics. Transient errors are retried, each time in a new turn.
    /// `database` is the requested one, for the log.
    pub(super) async fn in_turn<T, E: From<QueryError> + Transient, F: Future<Output = Result<T, E>>>(
        &self,
        budget: &Budget,
        database: &str,
        query: impl Fn() -> F,
    ) -> Result<T, E> {
        budget.note_database(database);
        let started = std::time::Instant::now();
        let left = budget.deadline().saturating_duration_since(Instant::now());
        let answer = wait::patiently(&self.engine.options, left, || self.run_once(budget, query())).await;
        self.metrics.query_seconds.record(started.elapsed());
        if let Some(error) = answer.as_ref().err().and_then(Transient::store_error) {
            self.metrics.store_error(error.class());
            tracing::warn!(%error, database, token = budget.token(), "query failed: store error");
        }
        answer
    }

    /// Runs a query that knows what other instances have added before it began.
    async fn refreshed<T, E: From<QueryError>>(
        &self,
        budget: &Budget,
        query: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let began = std::time::Instant::now();
        self.engine.memtables.refresh().await.map_err(QueryError::from)?;
        let answer = query.await;
        budget.note_missing(self.engine.memtables.left_out(began.elapsed()));
        answer
    }

    /// Waits for a turn, and runs a query once.
    async fn run_once<T, E: From<QueryError> + Transient>(
        &self,
        budget: &Budget,
        query: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        budget.wait_for_turn().await?;
        // The guard is dropped when the query ends or its client disconnects.
        let _running = self.metrics.query_running();
        faults::halt_at("query_runs").await;
        let answer = budget.in_time(self.refreshed(budget, query)).await;
        budget.release_turn();
        answer?
    }
}

/// Answers without notices if they cannot be computed.
pub(super) fn ignore_notice_error(error: QueryError) -> Vec<String> {
    tracing::debug!(%error, "the notices of an answer cannot be computed");
    Vec::new()
}
