//! Every metric's name, unit, help and labels, and nowhere else:
//! `hourglass_<part>_<what>_<unit>[_total]`. Labels have small fixed sets of values; a sensor's key
//! is never one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use metrics::{
    Counter, Gauge, Histogram, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusRecorder};

/// Upper bounds of duration buckets, in seconds.
const SECONDS: &[f64] = &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// Upper bounds of buckets that count readings.
const READINGS: &[f64] = &[1.0, 10.0, 100.0, 500.0, 1_000.0, 5_000.0, 10_000.0, 50_000.0, 100_000.0];

/// Route, method and status.
type RequestLabels = (&'static str, &'static str, u16);

/// Handles of all metrics. Hot ones are taken once; those with labels are looked up when used.
#[derive(Clone)]
pub struct Metrics {
    recorder: Arc<PrometheusRecorder>,
    /// Held by whoever sets figures for an answer and renders it.
    scraping: Arc<Mutex<()>>,
    process: metrics_process::Collector,
    /// By route, method and status, as many as there are of those: looking them up by their labels takes longer.
    requests: Arc<RwLock<HashMap<RequestLabels, (Counter, Histogram)>>>,
    /// Request bodies' bytes, as they came over the wire.
    pub body_bytes: Counter,
    /// Bytes of lines over TCP.
    pub tcp_bytes: Counter,
    /// New readings that lay before the latest of their bucket.
    pub late: Counter,
    /// Readings per request.
    pub request_readings: Histogram,
    /// Readings per flight of page writes.
    pub flush_readings: Histogram,
    /// Seconds from the end of a request's body to its ack.
    pub ack_seconds: Histogram,
    /// Seconds that a flight's page writes took.
    pub flush_seconds: Histogram,
    /// Bytes of request bodies admitted and not yet acked.
    pub bytes_in_flight: Gauge,
    /// Page writes that found another rev.
    pub conflicts: Counter,
    /// Pages written beyond a bucket's first.
    pub overflow_pages: Counter,
    /// Sensor documents written.
    pub sensor_writes: Counter,
    /// Sensors this process knows.
    pub sensors: Gauge,
    /// Readings and windows that queries returned.
    pub query_points: Counter,
    /// Seconds per query.
    pub query_seconds: Histogram,
    /// Hours of a sensor whose summaries were remembered.
    pub query_cache_hits: Counter,
    /// Hours of a sensor whose summaries had to be read.
    pub query_cache_misses: Counter,
    query_cache_bytes: Gauge,
    query_running: Gauge,
    /// Open connections.
    pub connections: Gauge,
    /// Timestamps that look as if they were meant in another unit than was declared.
    pub suspect_timestamps: Counter,
    /// Tokens that are known, revoked ones included.
    pub tokens: Gauge,
}

impl Metrics {
    /// A registry of its own, with every metric described.
    ///
    /// # Errors
    /// None in practice: only for bucket bounds that are empty.
    pub fn new(version: &'static str, store: &'static str) -> Result<Self, BuildError> {
        let recorder = PrometheusBuilder::new()
            .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), SECONDS)?
            .set_buckets_for_metric(Matcher::Suffix("_readings".to_owned()), READINGS)?
            .build_recorder();
        let recorder = Arc::new(recorder);
        let metrics = metrics::with_local_recorder(&*recorder, || {
            describe();
            gauge!("hourglass_build_info", "version" => version, "store" => store).set(1.0);
            Self::handles(&recorder)
        });
        Ok(metrics)
    }

    fn handles(recorder: &Arc<PrometheusRecorder>) -> Self {
        let process = metrics_process::Collector::default();
        process.describe();
        Self {
            recorder: recorder.clone(),
            scraping: Arc::default(),
            process,
            requests: Arc::default(),
            body_bytes: counter!("hourglass_http_body_bytes_total"),
            tcp_bytes: counter!("hourglass_tcp_bytes_total"),
            late: counter!("hourglass_ingest_readings_late_total"),
            request_readings: histogram!("hourglass_ingest_request_readings"),
            flush_readings: histogram!("hourglass_flush_readings"),
            ack_seconds: histogram!("hourglass_ingest_ack_seconds"),
            flush_seconds: histogram!("hourglass_flush_seconds"),
            bytes_in_flight: gauge!("hourglass_ingest_in_flight_bytes"),
            conflicts: counter!("hourglass_store_conflicts_total"),
            overflow_pages: counter!("hourglass_store_overflow_pages_total"),
            sensor_writes: counter!("hourglass_store_sensor_writes_total"),
            sensors: gauge!("hourglass_ingest_sensors"),
            query_points: counter!("hourglass_query_points_total"),
            query_seconds: histogram!("hourglass_query_seconds"),
            query_cache_hits: counter!("hourglass_query_cache_hits_total"),
            query_cache_misses: counter!("hourglass_query_cache_misses_total"),
            query_cache_bytes: gauge!("hourglass_query_cache_bytes"),
            query_running: gauge!("hourglass_query_running"),
            connections: gauge!("hourglass_http_connections"),
            suspect_timestamps: counter!("hourglass_ingest_timestamps_suspect_total"),
            tokens: gauge!("hourglass_access_tokens"),
        }
    }

    fn with<T>(&self, use_macros: impl FnOnce() -> T) -> T {
        metrics::with_local_recorder(&*self.recorder, use_macros)
    }

    /// One answered request. `route` is a route's pattern, never a path as sent.
    pub fn request(&self, route: &'static str, method: &'static str, status: u16, took: Duration) {
        let key = (route, method, status);
        let known = self.requests.read().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        let (count, seconds) = known.unwrap_or_else(|| {
            let handles = self.with(|| {
                let count = counter!("hourglass_http_requests_total",
                    "route" => route, "method" => method, "status" => status.to_string());
                (count, histogram!("hourglass_http_request_seconds", "route" => route))
            });
            self.requests.write().unwrap_or_else(PoisonError::into_inner).insert(key, handles.clone());
            handles
        });
        count.increment(1);
        seconds.record(took.as_secs_f64());
    }

    /// Lines not kept, by [`crate::reading::Reason::label`].
    pub fn rejected(&self, reason: &'static str, count: u64) {
        self.with(|| counter!("hourglass_ingest_readings_rejected_total", "reason" => reason).increment(count));
    }

    /// Requests answered 503, by the limit that was reached.
    pub fn shed(&self, limit: &'static str) {
        self.with(|| counter!("hourglass_ingest_shed_total", "limit" => limit).increment(1));
    }

    /// A quota by which a request was refused, or warned of: `refused` or `warned`, of a `token` or a `database`.
    pub fn quota(&self, outcome: &'static str, scope: &'static str, of: &'static str) {
        self.with(|| {
            counter!("hourglass_access_quota_total", "outcome" => outcome, "scope" => scope, "of" => of).increment(1);
        });
    }

    /// A request that was turned away, by [`crate::access::Denied::label`], `origin` or `forbidden`.
    pub fn denied(&self, reason: &'static str) {
        self.with(|| counter!("hourglass_access_denied_total", "reason" => reason).increment(1));
    }

    /// A connection that we closed, by why.
    pub fn connection_closed(&self, reason: &'static str) {
        self.with(|| counter!("hourglass_edge_connections_closed_total", "reason" => reason).increment(1));
    }

    /// Certificate and key were looked at anew, and taken or not.
    pub fn tls_loaded(&self, taken: bool) {
        let outcome = if taken { "taken" } else { "refused" };
        self.with(|| counter!("hourglass_edge_tls_loads_total", "outcome" => outcome).increment(1));
    }

    /// The certificate in use ends at this second since the epoch, when it says so.
    pub fn certificate(&self, not_after: Option<i64>) {
        let seconds = not_after.map_or(f64::NAN, signed_f64);
        self.with(|| gauge!("hourglass_edge_tls_certificate_not_after_timestamp_seconds").set(seconds));
    }

    /// Lines over TCP that were dropped before anybody judged them, by why.
    pub fn tcp_dropped(&self, reason: &'static str, count: u64) {
        if count > 0 {
            self.with(|| counter!("hourglass_tcp_lines_dropped_total", "reason" => reason).increment(count));
        }
    }

    /// A store error, by [`crate::bucket::StorageError::class`].
    pub fn store_error(&self, class: &'static str) {
        self.with(|| counter!("hourglass_store_errors_total", "class" => class).increment(1));
    }

    /// Buckets whose readings wait for a document of their own, by [`crate::bucket::StorageError::class`].
    pub fn buckets_blocked(&self, class: &'static str, count: usize) {
        self.with(|| gauge!("hourglass_flush_blocked_buckets", "class" => class).set(as_f64(count)));
    }

    /// The databases that the store fails on, by the class of its errors; all of them, each time.
    pub fn databases_failing(&self, classes: &[&'static str]) {
        /// Of [`crate::bucket::StorageError::class`] those that a database can have alone.
        const CLASSES: [&str; 7] = ["database", "denied", "unknown", "failing", "contended", "refused", "unreadable"];
        self.with(|| {
            for class in CLASSES {
                let count = classes.iter().filter(|failing| **failing == class).count();
                gauge!("hourglass_store_databases_failing", "class" => class).set(as_f64(count));
            }
        });
    }

    /// What one shard holds in memory.
    pub fn hot(&self, shard: usize, buckets: usize, bytes: usize) {
        self.with(|| {
            let shard = shard.to_string();
            gauge!("hourglass_hot_buckets", "shard" => shard.clone()).set(as_f64(buckets));
            gauge!("hourglass_hot_bytes", "shard" => shard).set(as_f64(bytes));
        });
    }

    /// What the summaries take that queries remember.
    pub fn query_cached(&self, bytes: usize) {
        self.query_cache_bytes.set(as_f64(bytes));
    }

    /// For as long as it is held no other scrape sets [`Metrics::account`] or [`Metrics::backlog`], so
    /// that what [`Metrics::render`] shows of them is all of one moment.
    pub fn scraping(&self) -> MutexGuard<'_, ()> {
        self.scraping.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A query is at work for as long as it is held.
    pub fn query_running(&self) -> Running {
        self.query_running.increment(1.0);
        Running(self.query_running.clone())
    }

    /// The account of every reading, all of one moment.
    pub fn account(&self, account: &Account) {
        self.with(|| {
            counter!("hourglass_ingest_readings_accepted_total").absolute(account.accepted);
            counter!("hourglass_ingest_readings_replayed_total").absolute(account.replayed);
            counter!("hourglass_ingest_readings_stored_total").absolute(account.stored);
            counter!("hourglass_ingest_readings_duplicate_total").absolute(account.duplicate);
            counter!("hourglass_ingest_readings_overwritten_total").absolute(account.overwritten);
            counter!("hourglass_ingest_readings_deleted_total").absolute(account.deleted);
            counter!("hourglass_ingest_readings_dead_lettered_total").absolute(account.dead_lettered);
            gauge!("hourglass_ingest_readings_pending").set(signed_f64(account.pending));
        });
    }

    /// Readings in the dead-letter file; nothing when it cannot be read.
    pub fn dead_letters(&self, readings: Option<u64>) {
        self.with(|| gauge!("hourglass_dead_letters_readings").set(readings.map_or(f64::NAN, wide_f64)));
    }

    /// What the members of the store have agreed on.
    pub fn registry(&self, logs: usize, deletions: usize, floor: u64) {
        self.with(|| {
            gauge!("hourglass_registry_logs").set(as_f64(logs));
            gauge!("hourglass_registry_deletions").set(as_f64(deletions));
            // A stamp has its milliseconds in the upper bits.
            gauge!("hourglass_registry_floor_timestamp_seconds").set(wide_f64(floor >> 20) / 1000.0);
        });
    }

    /// By how many milliseconds the store's clock is ahead.
    pub fn clock_offset(&self, milliseconds: i64) {
        self.with(|| gauge!("hourglass_clock_offset_seconds").set(signed_f64(milliseconds) / 1000.0));
    }

    /// How far the store is behind the log.
    pub fn backlog(&self, backlog: &Backlog) {
        self.with(|| {
            gauge!("hourglass_log_segments").set(as_f64(backlog.log_segments));
            gauge!("hourglass_log_bytes").set(wide_f64(backlog.log_bytes));
            gauge!("hourglass_log_waiting_bytes").set(wide_f64(backlog.waiting_bytes));
            gauge!("hourglass_log_writable").set(if backlog.writable { 1.0 } else { 0.0 });
            gauge!("hourglass_flush_oldest_pending_seconds").set(backlog.oldest_pending_seconds);
            gauge!("hourglass_flush_unflushed_bytes").set(as_f64(backlog.unflushed_bytes));
            gauge!("hourglass_flush_behind").set(if backlog.behind { 1.0 } else { 0.0 });
            counter!("hourglass_log_records_total").absolute(backlog.appended_records);
            counter!("hourglass_log_appended_bytes_total").absolute(backlog.appended_bytes);
            counter!("hourglass_log_syncs_total").absolute(backlog.syncs);
            counter!("hourglass_log_failures_total").absolute(backlog.disk_failures);
            for (verdict, places) in
                [("damaged", backlog.damaged), ("in_doubt", backlog.in_doubt), ("torn", backlog.torn)]
            {
                counter!("hourglass_log_damaged_total", "verdict" => verdict).absolute(places);
            }
        });
    }

    /// Everything as Prometheus' text format 0.0.4, the process' own figures made anew.
    #[must_use]
    pub fn render(&self) -> String {
        self.with(|| self.process.collect());
        self.recorder.handle().render()
    }

    /// Folds what histograms have gathered; without it they grow until the next scrape.
    pub fn upkeep(&self) {
        self.recorder.handle().run_upkeep();
    }
}

/// Counts a query as running until it is dropped.
#[derive(Debug)]
pub struct Running(Gauge);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}

/// What became of every reading since the process started:
/// `accepted + replayed = stored + duplicate + overwritten + deleted + dead_lettered + pending`.
#[derive(Debug, Clone, Copy, Default)]
#[expect(missing_docs, reason = "the metrics' helps say it")]
pub struct Account {
    pub accepted: u64,
    pub replayed: u64,
    pub stored: u64,
    pub duplicate: u64,
    pub overwritten: u64,
    pub deleted: u64,
    pub dead_lettered: u64,
    pub pending: i64,
}

/// How far the store is behind the log, and how the log does.
#[derive(Debug, Clone, Copy, Default)]
#[expect(missing_docs, reason = "the metrics' helps say it")]
pub struct Backlog {
    pub log_segments: usize,
    pub log_bytes: u64,
    pub waiting_bytes: u64,
    pub writable: bool,
    pub oldest_pending_seconds: f64,
    pub unflushed_bytes: usize,
    pub behind: bool,
    pub appended_records: u64,
    pub appended_bytes: u64,
    pub syncs: u64,
    pub disk_failures: u64,
    pub damaged: u64,
    pub in_doubt: u64,
    pub torn: u64,
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
fn wide_f64(value: u64) -> f64 {
    value as f64
}

#[expect(clippy::cast_precision_loss, reason = "metrics are doubles")]
fn signed_f64(value: i64) -> f64 {
    value as f64
}

fn describe() {
    let count = |name: &'static str, help: &'static str| describe_counter!(name, Unit::Count, help);
    let level = |name: &'static str, help: &'static str| describe_gauge!(name, help);
    let spread = |name: &'static str, help: &'static str| describe_histogram!(name, help);
    level("hourglass_build_info", "Always 1; the labels tell the version and the kind of store");
    count("hourglass_http_requests_total", "Requests answered");
    spread("hourglass_http_request_seconds", "Seconds per request, body included");
    count("hourglass_http_body_bytes_total", "Bytes of request bodies, as they came over the wire");
    level("hourglass_query_running", "Queries at work");
    level("hourglass_http_connections", "Open connections");
    count(
        "hourglass_edge_connections_closed_total",
        "Connections that were closed to make room, for a deadline or for a TLS handshake that failed, by reason",
    );
    count("hourglass_edge_tls_loads_total", "Times that certificate and key were loaded anew, by outcome");
    level(
        "hourglass_edge_tls_certificate_not_after_timestamp_seconds",
        "Seconds since the epoch until which the certificate in use is valid",
    );
    count("hourglass_tcp_bytes_total", "Bytes of lines that came over plain TCP");
    count("hourglass_tcp_lines_dropped_total", "Lines over plain TCP that were dropped unjudged, by reason");
    count("hourglass_ingest_readings_accepted_total", "Readings kept in the log, duplicates included");
    count("hourglass_ingest_readings_replayed_total", "Readings read back from the log at the start");
    count("hourglass_ingest_readings_deleted_total", "Readings deleted before they were stored");
    count(
        "hourglass_ingest_readings_dead_lettered_total",
        "Readings that the store refused for good or that came back too late to be judged, kept in the dead-letter file",
    );
    level(
        "hourglass_dead_letters_readings",
        "Readings in the dead-letter file that were not sent again, those from before the start too",
    );
    level("hourglass_ingest_readings_pending", "Readings in the log and not in the store yet");
    count("hourglass_log_records_total", "Requests made durable in the log");
    count("hourglass_log_appended_bytes_total", "Bytes of them, after compression");
    count("hourglass_log_syncs_total", "Syncs of the log");
    count("hourglass_log_failures_total", "Operations of the log that the disk refused");
    count(
        "hourglass_log_damaged_total",
        "Places of the log that hold no record though something was written there, by verdict: damaged were acked, in_doubt may have been, torn were not",
    );
    level("hourglass_registry_logs", "Logs that are registered with the store, those of ended processes included");
    level("hourglass_registry_deletions", "Deletions that are remembered until every log has passed them");
    level(
        "hourglass_registry_floor_timestamp_seconds",
        "Seconds since the epoch up to which everything acked anywhere is in the store",
    );
    level("hourglass_clock_offset_seconds", "Seconds by which the store's clock is ahead of this machine's");
    level("hourglass_log_segments", "Segment files of the log");
    level("hourglass_log_bytes", "Bytes of the log's segment files, with what is preallocated");
    level("hourglass_log_waiting_bytes", "Bytes of requests that wait for the disk");
    level("hourglass_log_writable", "Whether the log takes requests: 1 or 0");
    level(
        "hourglass_flush_oldest_pending_seconds",
        "Seconds since the oldest request was received that is not in the store",
    );
    level("hourglass_flush_unflushed_bytes", "Bytes of memory that readings take which are not in the store");
    level("hourglass_flush_behind", "Whether readings are in the log that no memory holds yet: 1 or 0");
    level("hourglass_flush_blocked_buckets", "Buckets whose readings wait for a document of their own, by class");
    count("hourglass_ingest_readings_rejected_total", "Lines, or fields of a line, not kept, by reason");
    count("hourglass_ingest_readings_stored_total", "Readings stored for the first time");
    count("hourglass_ingest_readings_duplicate_total", "Readings that changed no value, being stored already");
    count("hourglass_ingest_readings_overwritten_total", "Readings that changed or added a field of a stored one");
    count("hourglass_ingest_readings_late_total", "New readings before the latest one of their bucket");
    spread("hourglass_ingest_request_readings", "Readings per write request");
    spread("hourglass_ingest_ack_seconds", "Seconds from a request's last byte to its ack");
    spread("hourglass_flush_readings", "Readings per flight of page writes");
    spread("hourglass_flush_seconds", "Seconds that the page writes of a flight took");
    level("hourglass_ingest_in_flight_bytes", "Bytes of request bodies admitted and not yet acked");
    count("hourglass_ingest_shed_total", "Requests answered 503 at a limit, by the limit's key");
    count("hourglass_ingest_timestamps_suspect_total", "Timestamps that look like another unit than was declared");
    level("hourglass_access_tokens", "Tokens known, revoked ones included");
    count("hourglass_access_denied_total", "Requests turned away, by reason");
    count(
        "hourglass_access_quota_total",
        "Requests refused or warned at a quota, by its owner's kind and what it is of",
    );
    level("hourglass_ingest_sensors", "Sensors that this process has seen");
    level("hourglass_hot_buckets", "Open buckets held in memory");
    level("hourglass_hot_bytes", "Bytes of memory that open buckets take");
    count("hourglass_store_errors_total", "Store commands that failed, by class");
    level("hourglass_store_databases_failing", "Databases whose readings the store does not take, by class of error");
    count("hourglass_store_conflicts_total", "Page writes that found another writer's rev and were merged again");
    count("hourglass_store_overflow_pages_total", "Pages written beyond a bucket's first");
    count("hourglass_store_sensor_writes_total", "Sensor documents written");
    count("hourglass_query_points_total", "Readings and windows returned by queries");
    spread("hourglass_query_seconds", "Seconds per query");
    count("hourglass_query_cache_hits_total", "Hours of a sensor whose summaries a query found in memory");
    count("hourglass_query_cache_misses_total", "Hours of a sensor whose summaries a query read from the store");
    level("hourglass_query_cache_bytes", "Bytes of memory that the summaries take which queries remember");
}
