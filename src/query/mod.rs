//! Queries of the native API and InfluxQL.
//!
//! One engine answers both. It merges the store with acked readings that are not flushed yet, and accesses them only
//! through the traits of `bucket`. This room does not depend on HTTP.

mod budget;
mod engine;
mod error;
pub mod influx;
pub mod native;
mod options;
mod pattern;
pub mod selector;
mod service;
mod wait;

pub use self::budget::{Budget, HeldBytes};
pub use self::engine::directory::{first_batch, next_batch};
pub use self::engine::evaluate::Position;
pub use self::engine::fill::Fill;
pub use self::engine::memory::document_bytes;
pub use self::engine::windows::Windows;
pub use self::error::QueryError;
pub use self::service::{ExportPermit, Query};
pub use self::wait::Transient;
