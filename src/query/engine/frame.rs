//! The frame of a SELECT: its times and windows, and what is collected for each group.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::fill::Fill;
use super::fold::OpenWindow;
use super::memory::text_bytes;
use super::plan::{Function, Plan};
use super::transform::Counters;
use super::windows::Windows;
use crate::query::Budget;
use crate::reading::Value;

/// Rows beyond LIMIT that a group holds at least before it drops them.
const ROWS: usize = 1024;

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
    /// The time before the range that calls read if they look back, in nanoseconds; in descending order, the time after
    /// it.
    pub lead: i64,
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
    /// Per call, the counters that it follows.
    pub counters: Vec<Counters>,
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

impl GroupContent {
    /// A group without readings, for so many calls.
    pub fn new(calls: usize) -> Self {
        let windows = (0..calls).map(|_| BTreeMap::new()).collect();
        let counters = (0..calls).map(|_| Counters::default()).collect();
        Self { rows: Vec::new(), windows, values: vec![Vec::new(); calls], counters }
    }

    /// Drops the rows beyond LIMIT once they are at least as many as the rows within it. Returns the bytes freed.
    pub fn keep_first(&mut self, frame: &Frame, budget: &Budget) -> usize {
        let Some(most) = frame.rows_max.filter(|_| !frame.fill.fills_rows()) else { return 0 };
        if self.rows.len() < most.saturating_mul(2).max(ROWS) {
            return 0;
        }
        budget.run_unpaused(self.rows.len(), || {
            self.rows.sort_by_key(|(time, _)| *time);
            let left_out = if frame.descending { 0..self.rows.len() - most } else { most..self.rows.len() };
            self.rows.drain(left_out).map(|row| row_bytes(&row)).sum()
        })
    }

    /// The memory of all text values.
    pub fn text_bytes(&self) -> usize {
        let rows = self.rows.iter().flat_map(|(_, cells)| cells.iter().flatten());
        let values = self.values.iter().flatten().map(|(_, value)| value);
        let picked = self.windows.iter().flat_map(BTreeMap::values).map(OpenWindow::text_bytes).sum::<usize>();
        rows.chain(values).map(text_bytes).sum::<usize>() + picked
    }

    /// Upper bound on the number of rows.
    pub fn rows_most(&self, frame: &Frame) -> usize {
        let kept = self.windows.iter().flat_map(BTreeMap::values).map(OpenWindow::len).sum::<usize>();
        let counted = self.counters.iter().map(Counters::len).sum::<usize>();
        let values = counted + self.values.iter().map(Vec::len).sum::<usize>();
        let filled = match (&frame.windows, frame.fill) {
            (None, _) | (_, Fill::None) => 0,
            (Some(grid), _) => {
                let first = self.windows.iter().filter_map(|windows| windows.keys().next().copied());
                let first = first.chain(self.counters.iter().filter_map(Counters::first)).min();
                let from = if frame.has_min { frame.min } else { first.unwrap_or(frame.max) };
                grid.count(from..frame.max).min(frame.rows_max.unwrap_or(usize::MAX))
            }
        };
        (self.rows.len() + kept + values).max(filled)
    }

    /// Integer sums that exceed `i64`: the window's time, the call's index, the exact sum.
    pub fn wide_sums(&self, plan: &Plan, frame: &Frame, gathered_by: &[usize]) -> Vec<(i64, usize, i128)> {
        let mut wide = Vec::new();
        for (number, (call, by)) in plan.calls.iter().zip(gathered_by).enumerate() {
            if call.function == Function::Sum {
                let sum =
                    |(start, window): (&i64, &OpenWindow)| Some((label(*start, frame), number, window.wide_sum()?));
                wide.extend(self.windows[*by].iter().filter_map(sum));
            }
        }
        wide
    }
}
