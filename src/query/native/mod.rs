//! The native API's queries: readings of one or many sensors, in parts or thinned for a chart, and windowed aggregates.

pub mod aggregate;
pub mod groups;
pub mod many;
pub mod notices;
pub mod readings;
pub mod renames;
pub mod thinning;

use std::ops::Range;

/// Which readings of one sensor to read.
#[derive(Debug, Clone)]
pub struct Selection {
    pub database: String,
    /// The canonical key.
    pub sensor: String,
    /// In nanoseconds, half open.
    pub range: Range<i64>,
    /// Only these fields; all if empty.
    pub fields: Vec<String>,
}
