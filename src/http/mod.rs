//! The HTTP API: endpoints, encodings, and the compatibility with InfluxDB clients. Validates no readings and does not
//! access the store, except for backups: it calls `ingest` and `query`.

mod admin;
pub mod api;
mod cursor;
mod endpoints;
mod errors;
mod export;
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
pub use server::client_policy::ClientPolicy;
pub use server::cors::Cors;
pub use server::hosts::Hosts;
pub use server::service::{EndpointSet, HttpService};
pub use server::{Protocol, serve};

use crate::access::{Audit, TokenRegistry};
use crate::bucket::{GroupRules, Keep, StorageError, Unusable};
use crate::cluster::Cluster;
use crate::config::Settings;
use crate::edits::Edits;
use crate::ingest::Ingest;
use crate::lanes::Lanes;
use crate::mqtt::SubscriberState;
use crate::query::Query;
use crate::store::MergedView;
use crate::telemetry::Metrics;
use crate::upkeep::Jobs;

/// Maximum time that a requested flush waits for the store, unless `ingest.ack_timeout` is longer.
pub const FLUSH_TIMEOUT: Duration = Duration::from_secs(300);
/// Maximum time that a requested flush waits for an unavailable store, unless `ingest.ack_timeout` is longer.
const FLUSH_AWAY_TIMEOUT: Duration = Duration::from_secs(15);

/// The state of the service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// Reads and writes work.
    Ready,
    /// The store is unavailable, for this reason; writes are still acked from the WAL.
    StoreAway(String),
    /// The store answers but cannot be used with this configuration; writes are still acked from the WAL.
    StoreUnusable {
        cause: Unusable,
        /// User, database, hosts and the error of the store. Shown only to operators.
        detail: String,
    },
    Stopping,
}

impl Health {
    /// Maps the result of a store check.
    #[must_use]
    pub fn from_check(check: Result<(), StorageError>) -> Self {
        match check {
            Ok(()) => Self::Ready,
            Err(StorageError::Unusable { cause, detail }) => Self::StoreUnusable { cause, detail },
            Err(error) => Self::StoreAway(error.to_string()),
        }
    }

    /// Returns true if the store is unavailable or unusable.
    #[must_use]
    pub fn is_away(&self) -> bool {
        matches!(self, Self::StoreAway(_) | Self::StoreUnusable { .. })
    }
}

/// Request extension of `/health`: true if the sender may see the details for operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CanSeeDetails(pub bool);

/// The time when the service started.
#[derive(Debug, Clone, Copy)]
pub struct StartTime {
    /// Nanoseconds since the epoch.
    pub wall_ns: i64,
    pub monotonic: Instant,
}

/// The state shared by all handlers.
#[derive(Debug)]
pub struct App {
    pub lanes: Lanes,
    /// Stopped before `ingest`.
    pub jobs: Jobs,
    pub ingest: Arc<Ingest>,
    /// `None` without `cluster.listen`.
    pub cluster: Option<Arc<Cluster>>,
    /// The subscribers of MQTT brokers.
    pub mqtt: Vec<Arc<SubscriberState>>,
    pub query: Arc<Query>,
    pub access: Arc<TokenRegistry>,
    pub audit: Arc<Audit>,
    pub metrics: Metrics,
    /// The merged view. In this module, only backups read it.
    pub store: Arc<MergedView>,
    /// One permit: parts of backups are sent one after the other.
    pub backups: Arc<Semaphore>,
    pub edits: Arc<Edits>,
    /// Updated by the health check in `app`.
    pub health: watch::Receiver<Health>,
    pub settings: Arc<Settings>,
    /// The sensor groups of the configuration.
    pub groups: GroupRules,
    pub started: StartTime,
}

impl App {
    /// The maximum duration of a requested flush.
    #[must_use]
    pub fn flush_timeout(&self) -> Duration {
        self.settings.ingest.ack_timeout.max(FLUSH_TIMEOUT)
    }

    /// The maximum time that the store may be unavailable during a requested flush.
    #[must_use]
    pub fn flush_away_timeout(&self) -> Duration {
        self.settings.ingest.ack_timeout.max(FLUSH_AWAY_TIMEOUT)
    }

    /// Estimates the days until the disk of the store is full at its recent growth. Returns `None` if it does not grow,
    /// or if the retention of every known database ends the growth before.
    #[must_use]
    pub fn store_days_left(&self) -> Option<f64> {
        let days = self.metrics.recent.days_left()?;
        let settings = self.query.settings();
        let grows_until_then = |name: &str| match settings.readings_retention(name) {
            Keep::Forever => true,
            Keep::For(ns) => Duration::from_nanos(ns.unsigned_abs()).as_secs_f64() > days * 86_400.0,
        };
        self.ingest.catalog.databases().iter().any(|database| grows_until_then(&database.name)).then_some(days)
    }

    /// Returns the reason for which the service does not answer all requests at present.
    #[must_use]
    pub fn waiting(&self) -> Option<String> {
        let health = self.health.borrow().clone();
        if let Some(reason) = api::status::refusal(self, &health) {
            return Some(format!("writes are answered with 503 until this ends: {reason}"));
        }
        let reason = match health {
            Health::StoreAway(reason) => reason,
            Health::StoreUnusable { cause, .. } => api::status::unusable_text(cause),
            Health::Ready | Health::Stopping => return None,
        };
        Some(format!("writes are kept, and queries are answered with 503 until the store answers: {reason}"))
    }

    /// The approximate memory for sending a part of a backup, in bytes.
    #[must_use]
    pub fn backup_bytes(&self) -> usize {
        self.settings.query.request_bytes / 2
    }
}
