//! Metrics for Prometheus, and logs. Every module may use this one; it uses only `config`.

mod log_line;
pub mod logs;
pub mod metrics;
mod paint;
pub mod recent;

pub use metrics::{Account, LagMetrics, Metrics, TokenMetrics};
pub use paint::Paint;
