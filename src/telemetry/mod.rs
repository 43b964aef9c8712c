//! Metrics for Prometheus, and logs. Every room may use this one; it names only `config` and the crate of the WAL.

mod log_line;
pub mod logs;
pub mod metrics;
mod paint;
pub mod recent;

pub use metrics::{Ledger, Metrics, TokenTerms};
pub use paint::Paint;
