//! The queries of the native API: readings of one or many sensors, in parts or thinned for a chart, and windowed
//! aggregates.

pub mod aggregate;
pub mod functions;
pub mod groups;
pub mod histogram;
mod lttb;
pub mod many;
pub mod notices;
pub mod parts;
pub mod readings;
pub mod renames;
pub mod steps;
pub mod thinning;

use std::ops::Range;

/// A selection of readings of one sensor.
#[derive(Debug, Clone)]
pub struct Selection {
    pub database: String,
    /// The canonical sensor key.
    pub sensor: String,
    /// In nanoseconds, half open.
    pub range: Range<i64>,
    /// The fields to read; all if empty.
    pub fields: Vec<String>,
}
