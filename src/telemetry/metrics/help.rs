//! The help text of every metric.

use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

/// Registers the help text of every metric.
pub(super) fn describe() {
    let count = |name: &'static str, help: &'static str| describe_counter!(name, Unit::Count, help);
    let level = |name: &'static str, help: &'static str| describe_gauge!(name, help);
    let spread = |name: &'static str, help: &'static str| describe_histogram!(name, help);
    level("hourglass_build_info", "Always 1; the labels are the version and the kind of store");
    level(
        "hourglass_backup_proved_timestamp_seconds",
        "When the last backup began that was restored and compared (hourglass backup create --prove), in seconds since the epoch; 0 if none was",
    );
    level("hourglass_memory_limit_bytes", "Bytes of memory that hourglass may use (server.memory)");
    level("hourglass_memory_part_bytes", "Bytes that a part of hourglass may use at most, by the key that bounds it");
    count("hourglass_http_requests_total", "Requests answered");
    spread("hourglass_http_request_seconds", "Seconds per request, body included");
    count("hourglass_http_body_bytes_total", "Bytes of request bodies as received, before decompression");
    level("hourglass_query_running", "Queries running now");
    level("hourglass_http_connections", "Open connections");
    count(
        "hourglass_edge_connections_closed_total",
        "Connections closed by hourglass at a limit, at a timeout or after a failed TLS handshake, by reason",
    );
    count("hourglass_edge_tls_loads_total", "Reloads of the TLS certificate and key, by outcome");
    level(
        "hourglass_edge_tls_certificate_not_after_timestamp_seconds",
        "When the TLS certificate in use expires, in seconds since the epoch",
    );
    count("hourglass_tcp_bytes_total", "Bytes received on the TCP line listener");
    count("hourglass_tcp_lines_dropped_total", "Lines over TCP that were dropped before validation, by reason");
    count("hourglass_ingest_readings_accepted_total", "Readings written to the WAL, duplicates included");
    count("hourglass_ingest_readings_replayed_total", "Readings replayed from the WAL at the start");
    count("hourglass_ingest_readings_deleted_total", "Readings deleted before they were flushed to the store");
    count(
        "hourglass_ingest_readings_dead_lettered_total",
        "Readings written to the dead-letter file: rejected by the store permanently, or returned after wal.horizon",
    );
    level(
        "hourglass_dead_letters_readings",
        "Readings in the dead-letter file that were not resent, including those from before the start",
    );
    level("hourglass_dead_letters_metadata", "Changes of metadata that the store refused, in their dead-letter file");
    level("hourglass_ingest_readings_pending", "Readings in the WAL that are not yet in the store");
    count("hourglass_wal_records_total", "Records appended to the WAL");
    count("hourglass_wal_appended_bytes_total", "Bytes of the records appended to the WAL, after compression");
    count("hourglass_wal_syncs_total", "Syncs of the WAL to disk");
    count("hourglass_wal_failures_total", "Operations on the WAL's files that failed");
    count(
        "hourglass_wal_damaged_total",
        "Unreadable places in the WAL, by verdict: damaged held acked records, in_doubt may have, torn did not",
    );
    level("hourglass_registry_logs", "WALs registered in the store, including those of processes that have ended");
    level("hourglass_registry_deletions", "Deletions remembered because some WAL may still hold older readings");
    level(
        "hourglass_registry_floor_timestamp_seconds",
        "Time up to which everything acked by any instance is in the store, in seconds since the epoch",
    );
    level("hourglass_clock_offset_seconds", "Seconds by which the store's clock is ahead of this machine's");
    level("hourglass_wal_segments", "Segment files of the WAL");
    level(
        "hourglass_wal_bytes",
        "Bytes of the WAL's segment files on the disk, including preallocated space and the next one",
    );
    level("hourglass_wal_budget_bytes", "Bytes that the segment files of the WAL may take (wal.budget_bytes)");
    level("hourglass_wal_disk_free_bytes", "Bytes free on the disk of the WAL; NaN if that is unknown");
    level("hourglass_wal_waiting_bytes", "Bytes of records that wait to be written to the WAL");
    level("hourglass_wal_writable", "1 if the WAL accepts records, 0 if not");
    level("hourglass_flush_oldest_pending_seconds", "Age of the oldest write that is not yet in the store, in seconds");
    level("hourglass_memtable_bytes", "Bytes of memory used by unflushed readings");
    level("hourglass_dispatch_behind", "1 if some readings are in the WAL but not yet in the memtable, 0 if none are");
    level(
        "hourglass_flush_blocked_buckets",
        "Buckets that cannot be flushed because of one of their own documents, by class of error",
    );
    count("hourglass_ingest_readings_rejected_total", "Rejected lines, or fields of a line, by reason");
    count("hourglass_ingest_readings_stored_total", "Readings stored for the first time");
    count(
        "hourglass_ingest_readings_duplicate_total",
        "Readings that changed nothing: their values were stored already",
    );
    count("hourglass_ingest_readings_overwritten_total", "Readings that changed or added a field of a stored reading");
    count("hourglass_ingest_readings_late_total", "New readings older than the latest one of their bucket");
    spread("hourglass_ingest_request_readings", "Readings per write request");
    spread("hourglass_ingest_ack_seconds", "Seconds from a request's last byte to its ack");
    spread("hourglass_flush_readings", "Readings per flush");
    spread("hourglass_flush_seconds", "Seconds that the page writes of a flush took");
    level("hourglass_ingest_in_flight_bytes", "Bytes of memory used by writes that are admitted and not yet acked");
    count("hourglass_ingest_shed_total", "Requests answered with 503 at a limit, by the limit's config key");
    count("hourglass_ingest_values_drifted_total", "Values of another type than their field's that are kept beside it");
    count(
        "hourglass_ingest_readings_unlike_kind_total",
        "Readings that were kept although they are not as the kind of their sensor says",
    );
    count("hourglass_ingest_timestamps_suspect_total", "Timestamps that look like another unit than the declared one");
    level("hourglass_access_tokens", "Known tokens, including revoked ones");
    level("hourglass_access_tokens_valid", "Valid tokens");
    level(
        "hourglass_access_token_expiry_seconds",
        "Seconds until the first of the valid tokens expires; +Inf if none does",
    );
    level("hourglass_access_token_age_seconds", "Seconds since the oldest of the valid tokens was created");
    level("hourglass_access_token_unused_seconds", "Longest time in which a valid token was not used, in seconds");
    count("hourglass_access_denied_total", "Requests denied, by reason");
    count(
        "hourglass_access_quota_total",
        "Requests refused or warned at a quota, by outcome, by whose quota it is (scope), and by what it limits (of)",
    );
    level("hourglass_ingest_sensors", "Sensors that this process knows");
    level(
        "hourglass_ingest_sensors_silent",
        "Known sensors that have sent no reading for sensors.silent_after, or three intervals of their kind",
    );
    level("hourglass_bucket_cache_buckets", "Buckets in the bucket cache");
    level("hourglass_bucket_cache_bytes", "Bytes of memory used by the bucket cache");
    count("hourglass_store_errors_total", "Store commands that failed, by class");
    level("hourglass_store_bytes", "Bytes that the store takes on its disk; NaN if that is unknown");
    level("hourglass_store_disk_free_bytes", "Bytes free on the disk of the store; NaN if that is unknown");
    level("hourglass_store_databases_failing", "Databases whose writes the store rejects, by class of error");
    level(
        "hourglass_job_last_success_timestamp_seconds",
        "Time of the last successful run of a background job, by its name; 0 before one",
    );
    spread("hourglass_job_duration_seconds", "Seconds per run of a background job, by its name");
    count("hourglass_job_errors_total", "Failed runs of background jobs, by name");
    count("hourglass_store_conflicts_total", "Page writes that found another rev and were merged and written again");
    count("hourglass_store_overflow_pages_total", "Overflow pages written");
    count("hourglass_store_sensor_writes_total", "Sensor documents written");
    count("hourglass_meta_changes_total", "Changes of sensors' metadata that were logged, or may have been");
    count("hourglass_query_points_total", "Readings and windows returned by queries");
    spread("hourglass_query_seconds", "Seconds per query");
    count(
        "hourglass_query_daily_totals_total",
        "Days of a sensor that a query was answered for from the totals of months",
    );
    count("hourglass_query_cache_hits_total", "Hours of a sensor whose summaries a query found in the cache");
    count("hourglass_query_cache_misses_total", "Hours of a sensor whose summaries a query read from the store");
    level("hourglass_query_cache_bytes", "Bytes of memory used by the cache of summaries");
}
