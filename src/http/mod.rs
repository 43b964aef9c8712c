//! HTTP: routes, client-compatible requests and answers, and HTTP connections. Validates no readings itself and does
//! not access the store: it calls `ingest` and `query`.

mod answer;
mod auth;
mod backup;
mod body;
mod common_headers;
mod compact;
mod connection;
mod cors;
mod csv;
mod databases;
mod dead_letters;
mod decompress;
mod delete_values;
mod drift;
mod endpoints;
mod errors;
mod explain;
mod format;
mod groups;
mod guard;
mod head;
mod hosts;
mod indexes;
mod influx_query;
mod influx_render;
mod json;
mod lists;
pub mod meta;
mod named_sensors;
mod openapi;
mod overview;
mod parameters;
mod params;
mod preview;
mod read_only;
mod readings;
mod rejections;
mod relabel;
mod replay;
mod seal;
mod senders;
mod sensors;
mod series;
mod server;
mod service;
mod status;
mod summary;
mod tail;
mod text;
mod tokens;
mod trash;
mod ui;
mod unknown_parameters;
mod write;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, watch};

pub use compact::{CompactRound, Compacting, SpaceOf};
pub use cors::Cors;
pub use hosts::Hosts;
pub use senders::{Senders, Told};
pub use server::{Protocol, serve};
pub use service::{HttpService, Serves};

use crate::access::{Audit, TokenRegistry};
use crate::bucket::{GroupRules, StorageError, Unusable};
use crate::ingest::Ingest;
use crate::kinds::Kinds;
use crate::query::Query;
use crate::store::MergedView;
use crate::telemetry::Metrics;

/// Limits of requests. From the config sections `[server]`, `[limits]` and `[query]`.
#[derive(Debug, Clone)]
pub struct HttpOptions {
    /// Longest wait for a request's body.
    pub body_timeout: Duration,
    /// Longest wait for a requested flush.
    pub flush_timeout: Duration,
    /// Longest time the store may be unavailable during such a flush.
    pub flush_away: Duration,
    /// Most bytes of a body, on the wire and separately after decompression.
    pub body_bytes: usize,
    /// Default number of readings in an answer.
    pub limit_default: usize,
    /// Most readings in an answer.
    pub limit_max: usize,
    /// Most sensors in an answer.
    pub sensors_max: usize,
    /// What sensors' readings and metadata must be.
    pub kinds: Kinds,
    /// By what sensors belong together.
    pub groups: GroupRules,
    /// How long a sensor may be without a reading before it is listed as silent; zero for ever.
    pub silent_after: Duration,
    /// Limits of the names in a sensor's key.
    pub limits: crate::reading::Limits,
    /// About the memory that sending a backup takes.
    pub backup_bytes: usize,
    /// Where the time of the last proved backup is kept.
    pub data_dir: std::path::PathBuf,
    /// Most bytes that wait for a client that listens to acked readings.
    pub tail_bytes: usize,
    /// Whether browsers get a page.
    pub ui: bool,
    /// `server.memory`.
    pub memory: usize,
}

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
    pub ingest: Arc<Ingest>,
    pub query: Query,
    pub access: Arc<TokenRegistry>,
    pub audit: Arc<Audit>,
    pub metrics: Metrics,
    /// As queries see it; only backups read it here.
    pub store: Arc<MergedView>,
    /// Shared with the task of `app` that compacts.
    pub compacting: Compacting,
    /// Parts of backups are sent one after the other.
    pub backups: Arc<Semaphore>,
    /// Deletions by value are carried out one after the other.
    pub by_value: Arc<Semaphore>,
    /// Updated by `app`.
    pub health: watch::Receiver<Health>,
    pub options: HttpOptions,
    /// When the service started: nanoseconds since the epoch, and the monotonic clock.
    pub started: (i64, Instant),
}
