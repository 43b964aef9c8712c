//! The help texts of the metrics that have no handle of their own.

use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

/// Registers the help texts.
pub(super) fn describe() {
    let count = |name: &'static str, help: &'static str| describe_counter!(name, Unit::Count, help);
    let level = |name: &'static str, help: &'static str| describe_gauge!(name, help);
    let spread = |name: &'static str, help: &'static str| describe_histogram!(name, help);
    level(
        "hourglass_build_info",
        "Always 1; the labels are the version, the commit and profile of the build, and the kind of store",
    );
    level(
        "hourglass_backup_completed_timestamp_seconds",
        "When the last backup began that was written completely (hourglass backup create), in seconds since the epoch; 0 if none was",
    );
    level(
        "hourglass_backup_proved_timestamp_seconds",
        "When the last backup began that was restored and compared (hourglass backup create --prove), in seconds since the epoch; 0 if none was",
    );
    level("hourglass_memory_limit_bytes", "Bytes of memory that hourglass may use (server.memory)");
    level("hourglass_memory_part_bytes", "Bytes that a part of hourglass may use at most, by the key that bounds it");
    count("hourglass_http_requests_total", "Requests answered");
    spread("hourglass_http_request_seconds", "Seconds per request, body included");
    count(
        "hourglass_edge_connections_closed_total",
        "Connections closed by hourglass at a limit, at a timeout or after a failed TLS handshake, by reason",
    );
    count("hourglass_edge_tls_loads_total", "Reloads of the TLS certificate and key, by outcome");
    level(
        "hourglass_edge_tls_certificate_not_after_timestamp_seconds",
        "When the TLS certificate in use expires, in seconds since the epoch",
    );
    count(
        "hourglass_mqtt_messages_total",
        "Messages of an MQTT broker by outcome: stored, skipped because they have no reading, or rejected in part or whole",
    );
    level("hourglass_mqtt_connected", "1 while this instance is connected to the broker with this client_id");
    level("hourglass_mqtt_in_flight", "Messages that are received from the broker and not acknowledged yet");
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
    level("hourglass_clock_doubted", "1 while the clock is in doubt, so that nothing expires and no day is sealed");
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
    count("hourglass_lane_long_polls_total", "Steps that held a thread for over 20 ms of CPU time, by lane");
    count("hourglass_ingest_shed_total", "Requests answered with 503 at a limit, by the limit's config key");
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
        "Requests refused or warned at a quota, by outcome, by the owner of the quota (scope), and by resource",
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
}
