//! Defines all metrics: names (`hourglass_<part>_<what>_<unit>[_total]`), units and labels. `help` has the help texts
//! of metrics with labels. Each label has a small fixed set of values, so the key of a sensor is never a label.

mod help;
mod labels;
mod mqtt;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use metrics::{
    Counter, Gauge, Histogram, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusRecorder};
use parking_lot::{Mutex, MutexGuard, RwLock};
use serde::Serialize;

pub use self::labels::STORE_FULL_SECONDS;
pub use self::mqtt::MqttMetrics;
use super::recent::Recent;
use super::version::{COMMIT, PROFILE};
use crate::blocking;
use crate::clock::now_seconds;
use crate::wal::WalStats;

/// Upper bounds of the histogram buckets for durations, in seconds.
const SECONDS: &[f64] = &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// Upper bounds of the histogram buckets for numbers of readings.
const READINGS: &[f64] = &[1.0, 10.0, 100.0, 500.0, 1_000.0, 5_000.0, 10_000.0, 50_000.0, 100_000.0];

/// Route, method and status.
type RequestLabels = (&'static str, &'static str, u16);

/// Defines [`Metrics`] with a handle for each metric without labels, from its name and help text.
macro_rules! handles {
    (@type counter) => { Counter };
    (@type gauge) => { Gauge };
    (@type histogram) => { Histogram };
    (@describe counter $name:literal $help:literal) => { describe_counter!($name, Unit::Count, $help) };
    (@describe gauge $name:literal $help:literal) => { describe_gauge!($name, $help) };
    (@describe histogram $name:literal $help:literal) => { describe_histogram!($name, $help) };
    ($($visible:vis $field:ident: $kind:ident!($name:literal, $help:literal);)*) => {
        /// Handles of all metrics. Metrics with labels are looked up when used.
        #[derive(Clone)]
        pub struct Metrics {
            recorder: Arc<PrometheusRecorder>,
            /// See [`Metrics::scraping`].
            scraping: Arc<Mutex<()>>,
            process: metrics_process::Collector,
            /// A cache of handles, because looking them up by their labels is slow.
            requests: Arc<RwLock<HashMap<RequestLabels, (Counter, Histogram)>>>,
            /// The samples for `/api/v1/overview`.
            pub recent: Arc<Recent>,
            $($visible $field: handles!(@type $kind),)*
        }

        impl Metrics {
            fn handles(recorder: &Arc<PrometheusRecorder>) -> Self {
                let process = metrics_process::Collector::default();
                process.describe();
                $(handles!(@describe $kind $name $help);)*
                Self {
                    recorder: recorder.clone(),
                    scraping: Arc::default(),
                    process,
                    requests: Arc::default(),
                    recent: Arc::default(),
                    $($field: $kind!($name),)*
                }
            }
        }
    };
}

handles! {
    pub body_bytes: counter!("hourglass_http_body_bytes_total",
        "Bytes of request bodies as received, before decompression");
    pub tcp_bytes: counter!("hourglass_tcp_bytes_total", "Bytes received on the TCP line listener");
    pub late: counter!("hourglass_ingest_readings_late_total",
        "New readings older than the latest one of their bucket");
    pub request_readings: histogram!("hourglass_ingest_request_readings", "Readings per write request");
    pub flush_readings: histogram!("hourglass_flush_readings", "Readings per flush");
    pub ack_seconds: histogram!("hourglass_ingest_ack_seconds", "Seconds from a request's last byte to its ack");
    pub flush_seconds: histogram!("hourglass_flush_seconds", "Seconds that the page writes of a flush took");
    pub bytes_in_flight: gauge!("hourglass_ingest_in_flight_bytes",
        "Bytes of memory used by writes that are admitted and not yet acked");
    pub conflicts: counter!("hourglass_store_conflicts_total",
        "Page writes that found another rev and were merged and written again");
    pub overflow_pages: counter!("hourglass_store_overflow_pages_total", "Overflow pages written");
    pub sensor_writes: counter!("hourglass_store_sensor_writes_total", "Sensor documents written");
    pub meta_changes: counter!("hourglass_meta_changes_total",
        "Changes of sensors' metadata that were logged, or may have been");
    pub sensors: gauge!("hourglass_ingest_sensors", "Sensors that this process knows");
    catalog_bytes: gauge!("hourglass_catalog_bytes",
        "Bytes of memory of known sensors, their fields, and metadata that is not stored yet");
    sensors_silent: gauge!("hourglass_ingest_sensors_silent",
        "Known sensors that have sent no reading for sensors.silent_after, or three intervals of their kind");
    pub query_points: counter!("hourglass_query_points_total", "Readings and windows returned by queries");
    pub query_seconds: histogram!("hourglass_query_seconds", "Seconds per query");
    pub query_daily_totals: counter!("hourglass_query_daily_totals_total",
        "Days of a sensor that a query was answered for from the totals of months");
    pub query_cache_hits: counter!("hourglass_query_cache_hits_total",
        "Hours of a sensor whose summaries a query found in the cache");
    pub query_cache_misses: counter!("hourglass_query_cache_misses_total",
        "Hours of a sensor whose summaries a query read from the store");
    query_cache_bytes: gauge!("hourglass_query_cache_bytes", "Bytes of memory used by the cache of summaries");
    query_running: gauge!("hourglass_query_running", "Queries running now");
    pub connections: gauge!("hourglass_http_connections", "Open connections");
    pub connections_limit: gauge!("hourglass_http_connections_limit",
        "Connections that may be open (server.connections)");
    pub store_full_seconds: gauge!("hourglass_store_full_seconds",
        "Seconds until the disk of the store is full at the growth of the last hours; +Inf if it is not");
    pub store_up: gauge!("hourglass_store_up", "1 while the store answers and can be used as configured, 0 if not");
    pub suspect_timestamps: counter!("hourglass_ingest_timestamps_suspect_total",
        "Timestamps that look like another unit than the declared one");
    pub early: counter!("hourglass_ingest_timestamps_early_total",
        "Timestamps before 2000, as devices without a clock send them");
    pub drifted: counter!("hourglass_ingest_values_drifted_total",
        "Values of another type than their field's that are kept beside it");
    pub unlike_readings: counter!("hourglass_ingest_readings_unlike_kind_total",
        "Readings that were kept although they are not as the kind of their sensor says");
    pub tokens: gauge!("hourglass_access_tokens", "Known tokens, including revoked ones");
}

impl Metrics {
    /// Creates a registry and describes every metric in it.
    ///
    /// # Errors
    /// If a list of histogram bounds is empty, which never happens.
    pub fn new(version: &'static str, store: &'static str) -> Result<Self, BuildError> {
        let recorder = PrometheusBuilder::new()
            .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), SECONDS)?
            .set_buckets_for_metric(Matcher::Suffix("_readings".to_owned()), READINGS)?
            .build_recorder();
        let recorder = Arc::new(recorder);
        let metrics = metrics::with_local_recorder(&*recorder, || {
            labels::register();
            help::describe();
            gauge!("hourglass_build_info",
                "version" => version, "store" => store, "commit" => COMMIT, "profile" => PROFILE)
            .set(1.0);
            Self::handles(&recorder)
        });
        Ok(metrics)
    }

    pub(super) fn with<T>(&self, use_macros: impl FnOnce() -> T) -> T {
        metrics::with_local_recorder(&*self.recorder, use_macros)
    }

    /// Increases a counter with one label.
    fn count(&self, name: &'static str, value: &'static str, count: u64) {
        self.with(|| labels::count(name, value, count));
    }

    /// Counts one answered request. `route` is the pattern of a route, never the path that the client sent.
    pub fn request(&self, route: &'static str, method: &'static str, status: u16, took: Duration) {
        let key = (route, method, status);
        let known = self.requests.read().get(&key).cloned();
        let (count, seconds) = known.unwrap_or_else(|| {
            let handles = self.with(|| {
                let count = counter!("hourglass_http_requests_total",
                    "route" => route, "method" => method, "status" => status.to_string());
                (count, histogram!("hourglass_http_request_seconds", "route" => route))
            });
            self.requests.write().insert(key, handles.clone());
            handles
        });
        count.increment(1);
        seconds.record(took.as_secs_f64());
    }

    /// Creates the series of a background job, so that its first failure shows as an increase.
    pub fn job_added(&self, name: &'static str) {
        self.with(|| {
            counter!("hourglass_job_errors_total", "name" => name).increment(0);
            gauge!("hourglass_job_last_success_timestamp_seconds", "name" => name).set(0);
        });
    }

    /// Records a finished run of a background job.
    pub fn job_ended(&self, name: &'static str, took: Duration, is_success: bool) {
        self.with(|| {
            histogram!("hourglass_job_duration_seconds", "name" => name).record(took.as_secs_f64());
            counter!("hourglass_job_errors_total", "name" => name).increment(u64::from(!is_success));
            if is_success {
                gauge!("hourglass_job_last_success_timestamp_seconds", "name" => name)
                    .set(wide_f64(now_seconds().unsigned_abs()));
            }
        });
    }

    /// Counts rejected lines, by [`crate::reading::Reason::label`].
    pub fn count_rejected(&self, reason: &'static str, count: u64) {
        self.count("hourglass_ingest_readings_rejected_total", reason, count);
    }

    /// Counts one request answered with 503, by the configuration key of the limit.
    pub fn count_shed(&self, limit: &'static str) {
        self.count("hourglass_ingest_shed_total", limit, 1);
    }

    /// Counts one poll of a task that held a thread of a lane too long.
    pub fn count_long_poll(&self, lane: &'static str) {
        self.with(|| counter!("hourglass_lane_long_polls_total", "lane" => lane).increment(1));
    }

    /// Counts one request at a quota. `outcome` is `refused` or `warned`; `scope` is `token` or `database`.
    pub fn count_quota(&self, outcome: &'static str, scope: &'static str, resource: &'static str) {
        self.with(|| {
            counter!("hourglass_access_quota_total", "outcome" => outcome, "scope" => scope, "resource" => resource)
                .increment(1);
        });
    }

    /// Counts one denied request. `reason` is [`crate::access::Denied::label`], `origin`, `host` or `forbidden`.
    pub fn count_denied(&self, reason: &'static str) {
        self.count("hourglass_access_denied_total", reason, 1);
    }

    /// Counts one connection that hourglass closed.
    pub fn connection_closed(&self, reason: &'static str) {
        self.count("hourglass_edge_connections_closed_total", reason, 1);
    }

    /// Counts one reload of the certificate and key.
    pub fn tls_loaded(&self, is_taken: bool) {
        let outcome = if is_taken { "taken" } else { "refused" };
        self.count("hourglass_edge_tls_loads_total", outcome, 1);
    }

    /// Sets the expiry of the certificate in use in seconds since the epoch; NaN if unknown.
    pub fn certificate(&self, not_after: Option<i64>) {
        let seconds = not_after.map_or(f64::NAN, wide_f64);
        self.with(|| gauge!("hourglass_edge_tls_certificate_not_after_timestamp_seconds").set(seconds));
    }

    /// Counts lines over TCP that were dropped before validation.
    pub fn tcp_dropped(&self, reason: &'static str, count: u64) {
        self.count("hourglass_tcp_lines_dropped_total", reason, count);
    }

    /// Counts one store error, by [`crate::bucket::StorageError::class`].
    pub fn store_error(&self, class: &'static str) {
        self.count("hourglass_store_errors_total", class, 1);
    }

    /// Sets the number of buckets that cannot be flushed because of one of their own documents, by
    /// [`crate::bucket::StorageError::class`].
    pub fn buckets_blocked(&self, class: &'static str, count: usize) {
        self.with(|| gauge!("hourglass_flush_blocked_buckets", "class" => class).set(as_f64(count)));
    }

    /// Sets the number of databases whose writes the store rejects, by class of error. `classes` has one entry per such
    /// database.
    pub fn databases_failing(&self, classes: &[&'static str]) {
        /// The values of [`crate::bucket::StorageError::class`] that can concern a single database.
        const CLASSES: [&str; 7] = ["database", "denied", "unknown", "failing", "contended", "refused", "unreadable"];
        self.with(|| {
            for class in CLASSES {
                let count = classes.iter().filter(|failing| **failing == class).count();
                gauge!("hourglass_store_databases_failing", "class" => class).set(as_f64(count));
            }
        });
    }

    /// Sets the size of one shard's bucket cache.
    pub fn cache(&self, shard: usize, buckets: usize, bytes: usize) {
        self.with(|| {
            let shard = shard.to_string();
            gauge!("hourglass_bucket_cache_buckets", "shard" => shard.clone()).set(as_f64(buckets));
            gauge!("hourglass_bucket_cache_bytes", "shard" => shard).set(as_f64(bytes));
        });
    }

    /// Sets the maximum memory of hourglass, in total and by the key that bounds a part of it.
    pub fn memory(&self, memory: usize, parts: &[(&'static str, usize)]) {
        self.with(|| {
            gauge!("hourglass_memory_limit_bytes").set(as_f64(memory));
            for (part, bytes) in parts {
                gauge!("hourglass_memory_part_bytes", "part" => *part).set(as_f64(*bytes));
            }
        });
    }

    /// Sets the size of the catalog.
    pub fn catalog(&self, bytes: usize) {
        self.catalog_bytes.set(as_f64(bytes));
    }

    /// Sets the number of silent sensors.
    pub fn sensors_silent(&self, count: usize) {
        self.sensors_silent.set(as_f64(count));
    }

    /// Sets the size of the cache of summaries.
    pub fn query_cached(&self, bytes: usize) {
        self.query_cache_bytes.set(as_f64(bytes));
    }

    /// Locks out other scrapes while the guard lives, so that [`Metrics::render`] shows values of [`Metrics::ledger`],
    /// [`Metrics::wal`] and [`Metrics::lag`] of the same moment.
    pub fn scraping(&self) -> MutexGuard<'_, ()> {
        self.scraping.lock()
    }

    /// Counts a query as running until the guard is dropped.
    pub fn query_running(&self) -> RunningQuery {
        self.query_running.increment(1.0);
        RunningQuery(self.query_running.clone())
    }

    /// Sets the counters of readings by their outcome.
    pub fn ledger(&self, ledger: &Ledger) {
        self.with(|| {
            counter!("hourglass_ingest_readings_accepted_total").absolute(ledger.accepted);
            counter!("hourglass_ingest_readings_replayed_total").absolute(ledger.replayed);
            counter!("hourglass_ingest_readings_stored_total").absolute(ledger.stored);
            counter!("hourglass_ingest_readings_duplicate_total").absolute(ledger.duplicate);
            counter!("hourglass_ingest_readings_overwritten_total").absolute(ledger.overwritten);
            counter!("hourglass_ingest_readings_deleted_total").absolute(ledger.deleted);
            counter!("hourglass_ingest_readings_dead_lettered_total").absolute(ledger.dead_lettered);
            gauge!("hourglass_ingest_readings_pending").set(wide_f64(ledger.pending));
        });
    }

    /// Sets the numbers of readings and of metadata changes in the dead-letter files; `None` if one cannot be read.
    pub fn dead_letters(&self, readings: Option<u64>, metadata: Option<u64>) {
        self.with(|| {
            gauge!("hourglass_dead_letters_readings").set(readings.map_or(f64::NAN, wide_f64));
            gauge!("hourglass_dead_letters_metadata").set(metadata.map_or(f64::NAN, wide_f64));
        });
    }

    /// Records the time from a write to its ack.
    pub fn note_ack(&self, took: Duration) {
        self.ack_seconds.record(took);
        self.recent.note_ack(took);
    }

    /// Sets the free bytes on the disk of the WAL; `None` if unknown.
    pub fn wal_disk(&self, free: Option<u64>) {
        self.recent.log_disk(free);
        self.with(|| gauge!("hourglass_wal_disk_free_bytes").set(free.map_or(f64::NAN, wide_f64)));
    }

    /// Sets the bytes that the store takes, and the free bytes on its disk; `None` if unknown.
    pub fn store_space(&self, taken: Option<u64>, free: Option<u64>) {
        self.recent.store_space(taken, free, Instant::now());
        self.with(|| {
            gauge!("hourglass_store_bytes").set(taken.map_or(f64::NAN, wide_f64));
            gauge!("hourglass_store_disk_free_bytes").set(free.map_or(f64::NAN, wide_f64));
        });
    }

    /// Sets the starts of the last completed and the last proved backup in milliseconds since the epoch; 0 if there is
    /// none.
    pub fn backups(&self, completed_ms: u64, proved_ms: u64) {
        self.with(|| {
            gauge!("hourglass_backup_completed_timestamp_seconds").set(wide_f64(completed_ms) / 1000.0);
            gauge!("hourglass_backup_proved_timestamp_seconds").set(wide_f64(proved_ms) / 1000.0);
        });
    }

    /// Sets the figures of the registry that all instances on the store share.
    pub fn registry(&self, logs: usize, deletions: usize, floor: u64) {
        self.with(|| {
            gauge!("hourglass_registry_logs").set(as_f64(logs));
            gauge!("hourglass_registry_deletions").set(as_f64(deletions));
            // A stamp without its lowest 20 bits is the milliseconds since the epoch.
            gauge!("hourglass_registry_floor_timestamp_seconds").set(wide_f64(floor >> 20) / 1000.0);
        });
    }

    /// Sets the milliseconds by which the clock of the store is ahead.
    pub fn clock_offset(&self, milliseconds: i64) {
        self.with(|| gauge!("hourglass_clock_offset_seconds").set(wide_f64(milliseconds) / 1000.0));
    }

    /// Sets whether the clock is in doubt, so that nothing expires and no day is sealed.
    pub fn clock_doubted(&self, is_doubted: bool) {
        self.with(|| gauge!("hourglass_clock_doubted").set(f64::from(u8::from(is_doubted))));
    }

    /// Sets the terms of the valid tokens.
    pub fn token_terms(&self, terms: &TokenTerms) {
        self.with(|| {
            gauge!("hourglass_access_tokens_valid").set(as_f64(terms.valid));
            gauge!("hourglass_access_token_expiry_seconds").set(terms.ends_in.map_or(f64::INFINITY, wide_f64));
            gauge!("hourglass_access_token_age_seconds").set(wide_f64(terms.oldest));
            gauge!("hourglass_access_token_unused_seconds").set(wide_f64(terms.unused));
        });
    }

    /// Sets the figures of the WAL.
    pub fn wal(&self, stats: &WalStats, budget_bytes: u64) {
        self.with(|| {
            gauge!("hourglass_wal_segments").set(as_f64(stats.segments));
            gauge!("hourglass_wal_bytes").set(wide_f64(stats.bytes));
            gauge!("hourglass_wal_budget_bytes").set(wide_f64(budget_bytes));
            gauge!("hourglass_wal_waiting_bytes").set(wide_f64(stats.waiting_bytes));
            gauge!("hourglass_wal_writable").set(if stats.unwritable.is_none() { 1.0 } else { 0.0 });
            counter!("hourglass_wal_records_total").absolute(stats.appended_records);
            counter!("hourglass_wal_appended_bytes_total").absolute(stats.appended_bytes);
            counter!("hourglass_wal_syncs_total").absolute(stats.syncs);
            counter!("hourglass_wal_failures_total").absolute(stats.disk_failures);
            let found = &stats.found;
            for (verdict, places) in [("damaged", found.damaged), ("in_doubt", found.in_doubt), ("torn", found.torn)] {
                counter!("hourglass_wal_damaged_total", "verdict" => verdict).absolute(places);
            }
        });
    }

    /// Sets the lag of the store behind the WAL.
    pub fn lag(&self, oldest_seconds: f64, unflushed_bytes: usize, is_behind: bool) {
        self.with(|| {
            gauge!("hourglass_flush_oldest_pending_seconds").set(oldest_seconds);
            gauge!("hourglass_memtable_bytes").set(as_f64(unflushed_bytes));
            gauge!("hourglass_dispatch_behind").set(if is_behind { 1.0 } else { 0.0 });
        });
    }

    /// Returns all metrics in Prometheus' text format 0.0.4, with current figures of the process.
    #[must_use]
    pub fn render(&self) -> String {
        self.with(|| {
            self.process.collect();
            counter!("hourglass_lane_long_polls_total", "lane" => "blocking").absolute(blocking::long_steps());
        });
        self.recorder.handle().render()
    }

    /// Aggregates the recorded samples of histograms, which otherwise accumulate in memory until the next scrape.
    pub fn upkeep(&self) {
        self.recorder.handle().run_upkeep();
    }
}

/// Counts a query as running until it is dropped.
#[derive(Debug)]
pub struct RunningQuery(Gauge);

impl Drop for RunningQuery {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}

/// The number of readings by outcome since the process started. All fields are of one moment, and
/// `accepted + replayed = stored + duplicate + overwritten + deleted + dead_lettered + pending`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Ledger {
    /// Accepted from requests, and durable in the WAL.
    pub accepted: u64,
    /// Read back from the WAL at the start.
    pub replayed: u64,
    /// Stored for the first time.
    pub stored: u64,
    /// Already in the store; nothing changed.
    pub duplicate: u64,
    /// Changed or added a field of a stored reading.
    pub overwritten: u64,
    /// Deleted before they were stored.
    pub deleted: u64,
    /// Refused by the store for good, and written to the dead-letter file.
    pub dead_lettered: u64,
    /// In the WAL and not in the store yet. It is negative for a moment if a reading is stored before it is counted as
    /// accepted.
    pub pending: i64,
}

/// The terms of all valid tokens, in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TokenTerms {
    /// Number of valid tokens.
    pub valid: usize,
    /// Time until the first of them ends, if one has an end.
    pub ends_in: Option<i64>,
    /// Age of the oldest.
    pub oldest: i64,
    /// Longest time since a token was last used, or created if it was never used.
    pub unused: i64,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

#[expect(clippy::cast_precision_loss, reason = "metrics are doubles")]
fn as_f64(value: usize) -> f64 {
    value as f64
}

#[expect(clippy::cast_precision_loss, reason = "metrics are doubles")]
fn wide_f64(value: impl Into<i128>) -> f64 {
    value.into() as f64
}
