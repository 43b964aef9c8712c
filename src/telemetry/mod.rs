//! What the service says about itself: metrics for Prometheus, logs for people. A leaf: every
//! room may use it, it uses none.

pub mod logs;
pub mod metrics;

pub use metrics::{Account, Backlog, Metrics};
