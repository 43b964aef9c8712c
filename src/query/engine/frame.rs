//! The frame of a SELECT: its times and windows, and what is collected for each group.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::fill::Fill;
use super::fold::OpenWindow;
use super::memory::text_bytes;
use super::windows::Windows;
use crate::reading::Value;

/// A series of readings: those of a sensor, or of a group of a subquery.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ReadingSource {
    pub name: Arc<str>,
    /// In key order.
    pub tags: Vec<(String, String)>,
}

impl ReadingSource {
    /// A tag's value; empty if there is none.
    #[must_use]
    pub fn tag(&self, key: &str) -> &str {
        self.tags.iter().find(|(name, _)| name == key).map_or("", |(_, value)| value)
    }
}

#[derive(Debug, Clone)]
pub struct Frame {
    /// The first time, inclusive; the earliest possible one if the query states none.
    pub min: i64,
    /// The last time, inclusive.
    pub max: i64,
    /// Whether the query states a first time.
    pub has_min: bool,
    pub windows: Option<Windows>,
    pub fill: Fill,
    /// True if the columns of a group are filled together: from the first window of any of them, and numbers only with
    /// numbers. If false, each column is filled by itself, as in InfluxDB.
    pub fills_together: bool,
    pub descending: bool,
    /// Most rows per group, including those that `OFFSET` skips; `None` without a limit.
    pub rows_max: Option<usize>,
}

pub type ResultRow = (i64, Vec<Option<Value>>);

#[derive(Debug, Clone, Default)]
pub struct GroupRows {
    /// Measurement, and the tags grouped by.
    pub member: ReadingSource,
    pub rows: Vec<ResultRow>,
    /// Integer sums that exceed `i64`, for which the rows hold the nearest double: the row's time, the call's index,
    /// the exact sum.
    pub wide: Vec<(i64, usize, i128)>,
}

/// What is collected for a group.
#[derive(Debug, Default)]
pub struct GroupContent {
    /// Readings shown as they are: a time, and a cell per [`Plan::beside`](super::plan::Plan::beside) part.
    pub rows: Vec<ResultRow>,
    /// Per call, the windows that it owns, by their start.
    pub windows: Vec<BTreeMap<i64, OpenWindow>>,
    /// Per call, the values that a transformation or an integral is computed from.
    pub values: Vec<Vec<(i64, Value)>>,
}

/// The time shown in a window's row.
pub fn label(start: i64, frame: &Frame) -> i64 {
    match (&frame.windows, frame.has_min) {
        (Some(_), _) => start,
        (None, true) => frame.min,
        (None, false) => 0,
    }
}

/// The memory of a row.
pub fn row_bytes((_, cells): &ResultRow) -> usize {
    size_of::<ResultRow>()
        + cells.capacity() * size_of::<Option<Value>>()
        + cells.iter().flatten().map(text_bytes).sum::<usize>()
}
