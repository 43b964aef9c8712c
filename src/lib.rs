//! hourglass: a time-series ingestion service. It accepts sensor readings, stores them in hourly bucket documents with
//! exact summaries, and answers range queries.

pub mod access;
pub mod app;
pub mod backup;
pub mod cli;
pub mod clock;
pub mod config;
pub mod edge;
pub mod faults;
pub mod http;
pub mod ingest;
pub mod kinds;
pub mod query;
pub mod store;
pub mod tcp;
pub mod telemetry;
pub mod upkeep;
pub mod verify;

pub use hourglass_influxql as influxql;
pub use hourglass_model::{bucket, reading};
pub use hourglass_wal as wal;
pub use hourglass_wire as wire;
