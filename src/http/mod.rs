//! HTTP: routes, what clients send and expect byte by byte, and the connections. Judges nothing of
//! a reading itself and reaches no store: it calls ingest and query.

mod answer;
mod body;
mod csv;
mod errors;
mod format;
mod influx_query;
mod influx_render;
mod json;
mod layer;
mod lists;
mod parameters;
mod readings;
mod sensors;
mod series;
mod server;
mod status;
mod summary;
mod write;

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};
use tokio::sync::watch;

pub use server::{Connections, serve};

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
    /// The registry behind `/metrics`.
    pub metrics: Metrics,
    /// Kept up to date by `app`.
    pub health: watch::Receiver<Health>,
    /// Bounds on requests.
    pub options: Options,
    /// When the service started, by the clock and monotonically.
    pub started: (i64, Instant),
}

/// Every endpoint, with what `GET /` says of it.
const ENDPOINTS: &[(&str, &str)] = &[
    ("POST /api/v1/readings", "write JSON readings: one object, an array, or NDJSON (?db=&precision=)"),
    (
        "GET  /api/v1/readings",
        "raw readings (?db=&sensor=, or measurement= and tag.KEY=; from=&to=&fields=&order=&limit=&cursor=&max_points=&format=json|ndjson|csv)",
    ),
    (
        "GET  /api/v1/summary",
        "windows (?db=&sensor=, or measurement= and tag.KEY=; from=&to=&step=1h&tz=&fields=&agg=&group_by=&fill=&format=)",
    ),
    (
        "GET  /api/v1/sensors",
        "sensors with their fields, latest reading and outlier mark (?db=&outlier=true&recent=true&limit=&cursor=)",
    ),
    ("GET  /api/v1/latest", "the latest reading of each sensor (?db=&measurement=&tag.KEY=&limit=&cursor=&format=)"),
    ("GET  /api/v1/measurements", "measurements with how many sensors they have (?db=&tag.KEY=)"),
    ("GET  /api/v1/tags", "tag keys; /api/v1/tags/KEY: their values (?db=&measurement=&tag.KEY=)"),
    ("GET  /api/v1/fields", "fields with the type of their values (?db=&measurement=&tag.KEY=)"),
    ("POST /api/v1/flush", "204 when all that was acked before is in the store"),
    ("GET  /api/v1/status", "how far the store is behind: readings, seconds, bytes of the log"),
    ("POST /write", "line protocol, as InfluxDB 1.x takes it (?db=&precision=)"),
    ("POST /api/v2/write", "line protocol, as InfluxDB 2.x takes it (?bucket=&precision=)"),
    ("POST /api/v3/write_lp", "line protocol, as InfluxDB 3 takes it (?db=&precision=&accept_partial=)"),
    ("GET  /query", "InfluxQL: SELECT, SHOW; by POST also CREATE DATABASE (?db=&q=)"),
    ("GET  /ping", "204, or the version with ?verbose=true"),
    ("GET  /health", "whether writes are acked, and how the store does"),
    ("GET  /ready", "200 while writes are acked, 503 otherwise"),
    ("GET  /settings", "what QuestDB's clients ask before they write"),
    ("GET  /metrics", "metrics for Prometheus"),
];

/// All routes.
pub fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/", get(status::endpoints))
        .route("/write", post(write::v1))
        .route("/api/v2/write", post(write::v2))
        .route("/api/v3/write_lp", post(write::v3))
        .route("/api/v1/readings", post(write::native).get(readings::readings))
        .route("/api/v1/summary", get(summary::summary))
        .route("/api/v1/sensors", get(sensors::sensors))
        .route("/api/v1/latest", get(sensors::latest))
        .route("/api/v1/measurements", get(lists::measurements))
        .route("/api/v1/tags", get(lists::tags))
        .route("/api/v1/tags/{key}", get(lists::tag_values))
        .route("/api/v1/fields", get(lists::fields))
        .route("/api/v1/flush", post(write::flush))
        .route("/api/v1/status", get(status::status))
        .route("/query", get(influx_query::by_get).post(influx_query::by_post))
        .route("/ping", get(status::ping))
        .route("/health", get(status::health))
        .route("/ready", get(status::ready))
        .route("/settings", get(status::settings))
        .route("/metrics", get(status::metrics))
        .fallback(status::unknown)
        .method_not_allowed_fallback(status::wrong_method)
        .layer(from_fn_with_state(app.clone(), layer::around))
        .with_state(app)
}
