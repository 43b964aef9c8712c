//! HTTP: routes, client-compatible requests and answers, and HTTP connections. Validates no readings itself and does
//! not access the store: it calls `ingest` and `query`.

mod admin;
pub mod api;
mod endpoints;
mod errors;
mod influx;
mod openapi;
mod pairs;
mod parameters;
mod render;
mod server;
mod ui;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, watch};

pub use errors::can_pass;
pub use server::cors::Cors;
pub use server::hosts::Hosts;
pub use server::senders::Senders;
pub use server::service::{HttpService, Serves};
pub use server::{Protocol, serve};

use crate::access::{Audit, TokenRegistry};
use crate::bucket::{GroupRules, StorageError, Unusable};
use crate::config::Settings;
use crate::edits::Edits;
use crate::ingest::Ingest;
use crate::query::Query;
use crate::store::MergedView;
use crate::telemetry::Metrics;
use crate::upkeep::Jobs;

/// Maximum time that a requested flush waits for the store, unless `ingest.ack_timeout` is longer.
pub const FLUSH_TIMEOUT: Duration = Duration::from_secs(300);
/// Maximum time that it waits for an unreachable store, unless `ingest.ack_timeout` is longer.
const FLUSH_AWAY: Duration = Duration::from_secs(15);

/// The state of the service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// Reads and writes work.
    Ready,
    /// The store is unavailable, for this reason; writes are still acked from the WAL.
    StoreAway(String),
    /// The store answers, and cannot be used as it is configured; writes are still acked from the WAL.
    StoreUnusable {
        cause: Unusable,
        /// User, database, hosts and the store's words: only for the operator.
        detail: String,
    },
    Stopping,
}

impl Health {
    /// By the outcome of a check of the store.
    #[must_use]
    pub fn of(check: Result<(), StorageError>) -> Self {
        match check {
            Ok(()) => Self::Ready,
            Err(StorageError::Unusable { cause, detail }) => Self::StoreUnusable { cause, detail },
            Err(error) => Self::StoreAway(error.to_string()),
        }
    }

    /// Whether the store takes nothing at present.
    #[must_use]
    pub fn is_away(&self) -> bool {
        matches!(self, Self::StoreAway(_) | Self::StoreUnusable { .. })
    }
}

/// Whether the sender of a request may see what only the operator is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeesDetails(pub bool);

/// The state shared by all handlers.
#[derive(Debug)]
pub struct App {
    /// They stop before ingest does.
    pub jobs: Jobs,
    pub ingest: Arc<Ingest>,
    pub query: Arc<Query>,
    pub access: Arc<TokenRegistry>,
    pub audit: Arc<Audit>,
    pub metrics: Metrics,
    /// As queries see it; only backups read it here.
    pub store: Arc<MergedView>,
    /// Parts of backups are sent one after the other.
    pub backups: Arc<Semaphore>,
    pub edits: Arc<Edits>,
    /// Updated by `app`.
    pub health: watch::Receiver<Health>,
    pub settings: Arc<Settings>,
    /// The groups of sensors that the settings declare.
    pub groups: GroupRules,
    /// When the service started: nanoseconds since the epoch, and the monotonic clock.
    pub started: (i64, Instant),
}

impl App {
    /// Maximum wait for a requested flush.
    #[must_use]
    pub fn flush_timeout(&self) -> Duration {
        self.settings.ingest.ack_timeout.max(FLUSH_TIMEOUT)
    }

    /// Maximum time that the store may be unavailable during a requested flush.
    #[must_use]
    pub fn flush_away(&self) -> Duration {
        self.settings.ingest.ack_timeout.max(FLUSH_AWAY)
    }

    /// About the memory that sending a backup takes.
    #[must_use]
    pub fn backup_bytes(&self) -> usize {
        self.settings.query.request_bytes / 2
    }
}
