//! Questions in the words of our own API: readings of one sensor or of many, part by part or thinned for a chart, and
//! windows of any functions.

pub mod aggregate;
pub mod many;
pub mod readings;
pub mod thinning;

use std::ops::Range;

/// Which readings: of one sensor, in a half-open range of nanoseconds.
#[derive(Debug, Clone)]
pub struct Selection {
    /// The database's name.
    pub database: String,
    /// The sensor's canonical key.
    pub sensor: String,
    /// From the first on and before the last.
    pub range: Range<i64>,
    /// Only these fields; all when empty.
    pub fields: Vec<String>,
}
