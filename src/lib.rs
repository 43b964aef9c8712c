//! hourglass: a time-series ingestion service. It accepts sensor readings, stores them in hourly bucket documents with
//! exact summaries, and answers range queries.

pub mod access;
pub mod app;
pub mod backup;
pub mod buffer;
pub(crate) mod catalog;
pub mod cli;
pub mod cluster;
pub mod commands;
pub mod config;
pub mod dispatch;
pub mod edge;
pub mod edits;
pub mod http;
pub mod ingest;
pub mod kinds;
pub mod lanes;
pub mod members;
mod memory;
pub mod mqtt;
pub mod query;
pub(crate) mod side_file;
pub mod tcp;
pub mod telemetry;
pub mod upkeep;
pub mod verify;

pub use hourglass_base::{blocking, clock, faults, files};
pub use hourglass_influxql as influxql;
pub use hourglass_mapping as mapping;
pub use hourglass_model::reading;
pub use hourglass_store as store;
pub use hourglass_wal as wal;
pub use hourglass_wire as wire;

/// Buckets, and the traits of the stores that hold them.
pub mod bucket {
    pub use hourglass_model::bucket::*;
    pub use hourglass_store_api as store;
    pub use hourglass_store_api::walks as raw;
    pub use hourglass_store_api::{StorageError, Store, StoreSpace, Unusable};
}

/// The amount of work of slow tests.
#[cfg(test)]
#[path = "../tests/it/support/scale.rs"]
mod scale;
