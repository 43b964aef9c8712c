//! HTTP: routes, what clients send and expect byte by byte, and the connections. Judges nothing of
//! a reading itself and reaches no store: it calls ingest and query.

mod answer;
mod auth;
mod body;
mod connection;
mod cors;
mod csv;
mod dead_letters;
mod decompress;
mod endpoints;
mod errors;
mod format;
mod head;
mod influx_query;
mod influx_render;
mod json;
mod known;
mod lists;
mod openapi;
mod parameters;
mod readings;
mod sensors;
mod series;
mod server;
mod service;
mod status;
mod summary;
mod text;
mod write;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;

pub use cors::Cors;
pub use server::{Protocol, serve};
pub use service::{Serves, Service};

use crate::access::{Audit, Registry};
use crate::ingest::Ingest;
use crate::query::Query;
use crate::telemetry::Metrics;

/// How requests are bounded. From the config sections `[server]`, `[limits]` and `[query]`.
#[derive(Debug, Clone)]
pub struct Options {
    /// Longest wait for a request's body.
    pub body_timeout: Duration,
    /// Longest wait for a flush that was asked for.
    pub flush_timeout: Duration,
    /// How long the store may stay away during such a flush.
    pub flush_away: Duration,
    /// Most bytes of a body, on the wire and again after decompression.
    pub body_bytes: usize,
    /// Readings in an answer when the query states no limit.
    pub limit_default: usize,
    /// Most readings in an answer.
    pub limit_max: usize,
    /// Most sensors in an answer.
    pub sensors_max: usize,
    /// Bounds on the names in a sensor's key.
    pub limits: crate::reading::Limits,
}

/// What the service can say of itself at any moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// Reads and writes are answered.
    Ready,
    /// The store does not answer, for this reason; writes are acked from the log.
    StoreAway(String),
    /// The service is stopping.
    Stopping,
}

/// What every handler is given.
#[derive(Debug)]
pub struct App {
    /// The write path.
    pub ingest: Arc<Ingest>,
    /// The read path.
    pub query: Query,
    /// Who may ask for what.
    pub access: Arc<Registry>,
    /// Where it is written down who did what.
    pub audit: Arc<Audit>,
    /// The registry behind `/metrics`.
    pub metrics: Metrics,
    /// Kept up to date by `app`.
    pub health: watch::Receiver<Health>,
    /// Bounds on requests.
    pub options: Options,
    /// When the service started, by the clock and monotonically.
    pub started: (i64, Instant),
}
