//! Times and bounds of the protocol.

use crate::registry::Protocol;

/// Times in milliseconds, and the bounds of all queues.
#[derive(Clone, Debug)]
pub struct Config {
    /// The versions that this instance speaks.
    pub protocol: Protocol,
    /// True if this instance has an internal listener.
    pub has_address: bool,
    /// Time from the last byte of a request to its 503.
    pub request_timeout_ms: u64,
    /// The same for `ack=store`, once everything is logged.
    pub ack_timeout_ms: u64,
    /// The most that `not_after` lies ahead of the clock.
    pub not_after_ms: u64,
    /// Pause before a part is sent again to a busy owner.
    pub busy_pause_ms: u64,
    /// Interval of probes to an owner that does not answer.
    pub silent_probe_ms: u64,
    /// Interval of probes to others that were not reached in between.
    pub probe_ms: u64,
    /// Time without an answer after which an opening is suspected.
    pub suspect_ms: u64,
    /// `cluster.grace`: time without an answer after which a folder leaves the view.
    pub grace_ms: u64,
    /// `cluster.query_grace`: time without an answer after which queries leave an opening out.
    pub query_grace_ms: u64,
    /// Time that a question may take.
    pub question_timeout_ms: u64,
    /// Time that a query may take altogether.
    pub query_timeout_ms: u64,
    /// Greatest age of the registry's copy when a question begins.
    pub copy_age_max_ms: u64,
    /// Longest wait for the beats of others.
    pub beat_wait_ms: u64,
    /// A beat moves if it changed within this time.
    pub beat_moving_ms: u64,
    /// Interval of registry reads.
    pub registry_ms: u64,
    /// A pause of the process from which its silence is its own.
    pub pause_ms: u64,
    /// Time from a view change until a leaver refuses parts.
    pub leave_ms: u64,
    /// `wal.horizon`: time of silence after which an entry no longer holds the floor.
    pub horizon_ms: u64,
    /// Time until an unanswered deletion gets 503.
    pub deletion_timeout_ms: u64,
    /// The most that others raise the clock ahead of the store's time.
    pub lead_max_ms: u64,
    /// Maximum number of client requests.
    pub requests_max: usize,
    /// Maximum number of appends that wait for the WAL.
    pub appends_max: usize,
    /// Maximum number of queries.
    pub queries_max: usize,
    /// Maximum number of questions of others that wait for an answer.
    pub questions_max: usize,
    /// Maximum number of bytes that wait for one peer's answer.
    pub peer_bytes_max: usize,
    /// Maximum number of folders whose part numbers are remembered.
    pub folders_max: usize,
    /// Maximum number of deletions in the registry.
    pub deletions_max: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            protocol: Protocol { lowest: 1, highest: 1 },
            has_address: true,
            request_timeout_ms: 2_000,
            ack_timeout_ms: 15_000,
            not_after_ms: 1_000,
            busy_pause_ms: 50,
            silent_probe_ms: 500,
            probe_ms: 1_000,
            suspect_ms: 3_000,
            grace_ms: 45_000,
            query_grace_ms: 10_000,
            question_timeout_ms: 1_500,
            query_timeout_ms: 10_000,
            copy_age_max_ms: 2_000,
            beat_wait_ms: 2_500,
            beat_moving_ms: 5_000,
            registry_ms: 1_000,
            pause_ms: 1_000,
            leave_ms: 3_000,
            horizon_ms: 168 * 3_600_000,
            deletion_timeout_ms: 10_000,
            lead_max_ms: 30_000,
            requests_max: 1_024,
            appends_max: 4_096,
            queries_max: 64,
            questions_max: 256,
            peer_bytes_max: 16 << 20,
            folders_max: 1_024,
            deletions_max: 1_000,
        }
    }
}
