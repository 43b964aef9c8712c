//! Metrics for Prometheus, and logs. All rooms may use this one. It depends only on `config` and the crate of the WAL.

mod cluster;
mod log_line;
pub mod logs;
pub mod metrics;
mod paint;
pub mod recent;
pub mod version;

pub use metrics::{Ledger, Metrics, MqttMetrics, TokenTerms};
pub use paint::Paint;
