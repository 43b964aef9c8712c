//! Metrics for Prometheus, and logs. Every module may use this one; it uses only `config`.

pub mod logs;
pub mod metrics;

pub use metrics::{Account, LagMetrics, Metrics};
