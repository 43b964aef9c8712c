//! hourglass: a time-series ingestion service. It accepts sensor readings, stores them in hourly bucket documents with
//! exact summaries, and answers range queries.

pub mod access;
pub mod app;
pub mod bucket;
pub mod cli;
pub mod clock;
pub mod config;
pub mod edge;
pub mod faults;
pub mod http;
pub mod influxql;
pub mod ingest;
pub mod query;
pub mod reading;
pub mod store;
pub mod tcp;
pub mod telemetry;
pub mod verify;
pub mod wal;
pub mod wire;
