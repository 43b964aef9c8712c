//! The values of the labels of counters. Each series begins at 0, so that its first event is an increase that alerts see.

use metrics::counter;

/// The metric of a running service that `hourglass doctor` reads.
pub const STORE_FULL_SECONDS: &str = "hourglass_store_full_seconds";

/// A counter with one label.
struct Labelled {
    name: &'static str,
    label: &'static str,
    /// All values, separated by spaces.
    values: &'static str,
}

const fn labelled(name: &'static str, label: &'static str, values: &'static str) -> Labelled {
    Labelled { name, label, values }
}

const COUNTERS: [Labelled; 7] = [
    labelled(
        "hourglass_ingest_readings_rejected_total",
        "reason",
        "syntax number_range not_finite timestamp encoding limit family sensors forbidden window retention unit kind json csv protobuf",
    ),
    labelled(
        "hourglass_ingest_shed_total",
        "limit",
        "ingest.bytes_in_flight ingest.database_share wal.queue_bytes wal.budget_bytes catalog.max_bytes",
    ),
    labelled(
        "hourglass_access_denied_total",
        "reason",
        "missing malformed unknown revoked expired unavailable forbidden origin host certificate_expired certificate_refused",
    ),
    labelled(
        "hourglass_edge_connections_closed_total",
        "reason",
        "address room tls handshake idle head write slow still",
    ),
    labelled("hourglass_edge_tls_loads_total", "outcome", "taken refused"),
    labelled("hourglass_tcp_lines_dropped_total", "reason", "line_bytes quota refused torn"),
    labelled(
        "hourglass_store_errors_total",
        "class",
        "unavailable unknown contended busy failing refused denied unsupported address database large unreadable newer",
    ),
];

/// Creates the series.
pub(super) fn register() {
    for Labelled { name, label, values } in &COUNTERS {
        for value in values.split(' ') {
            counter!(*name, *label => value).increment(0);
        }
    }
    for outcome in ["refused", "warned"] {
        for scope in ["token", "database"] {
            for resource in ["readings", "new_sensors", "sensors", "databases"] {
                counter!("hourglass_access_quota_total", "outcome" => outcome, "scope" => scope, "resource" => resource)
                    .increment(0);
            }
        }
    }
}

/// Increases a counter with one label by `count`.
pub(super) fn count(name: &'static str, value: &'static str, count: u64) {
    let Some(labelled) = COUNTERS.iter().find(|counter| counter.name == name) else { return };
    debug_assert!(labelled.values.split(' ').any(|known| known == value), "{name} has no label value {value}");
    counter!(name, labelled.label => value).increment(count);
}
