//! Windows of a summary query, filled in time order from summaries or readings.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use crate::bucket::store::ScannedPage;
use crate::bucket::{Reading, Summary};

/// One window's summaries by field.
#[derive(Debug, Clone, PartialEq)]
pub struct Window {
    /// From the first nanosecond on and before the last; cut to the range asked for.
    pub span: Range<i64>,
    /// Per numeric field.
    pub fields: BTreeMap<Arc<str>, Summary>,
}

/// Windows being filled.
pub struct Windows {
    step: i64,
    range: Range<i64>,
    max: usize,
    /// By the number of steps since the epoch.
    filled: BTreeMap<i64, BTreeMap<Arc<str>, Summary>>,
    /// Summaries in all windows.
    summaries: usize,
}

impl Windows {
    /// Windows of `step` nanoseconds over a range, at most `max` of them.
    pub fn new(step: i64, range: Range<i64>, max: usize) -> Self {
        Self { step, range, max, filled: BTreeMap::new(), summaries: 0 }
    }

    /// Adds an hour's readings, in time order. `Err` with the limit when there are too many windows.
    pub fn add_readings(&mut self, readings: Vec<Reading>) -> Result<(), usize> {
        let step = self.step;
        for group in readings.chunk_by(|a, b| a.time.div_euclid(step) == b.time.div_euclid(step)) {
            let Some(first) = group.first() else { continue };
            let mut values: BTreeMap<&Arc<str>, Vec<_>> = BTreeMap::new();
            for (name, value) in group.iter().flat_map(|reading| &reading.fields) {
                values.entry(name).or_default().push(value);
            }
            let folds = values.into_iter().filter_map(|(name, values)| {
                let summary = Summary::fold(values.into_iter())?;
                Some((name.clone(), summary))
            });
            self.add(first.time.div_euclid(step), folds.collect::<Vec<_>>())?;
        }
        Ok(())
    }

    /// Adds an hour's pages by their summaries. `Err` with the limit when there are too many windows.
    pub fn add_summaries(&mut self, pages: &[ScannedPage], fields: &[String]) -> Result<(), usize> {
        let wanted = |name: &str| fields.is_empty() || fields.iter().any(|field| field == name);
        for page in pages {
            let twice = page.number > 0 && crate::faults::has(crate::faults::Bug::CountOverflowTwice);
            for _ in 0..=usize::from(twice) {
                let summaries = page.summary.iter().filter(|(name, _)| wanted(name)).cloned();
                self.add(page.hour.start_ns().div_euclid(self.step), summaries)?;
            }
        }
        Ok(())
    }

    fn add(&mut self, number: i64, summaries: impl IntoIterator<Item = (Arc<str>, Summary)>) -> Result<(), usize> {
        for (name, summary) in summaries {
            let window = self.filled.entry(number).or_default();
            let known = window.len();
            window.entry(name).and_modify(|sum| *sum = sum.union(summary)).or_insert(summary);
            self.summaries += window.len() - known;
        }
        if self.filled.len() > self.max { Err(self.max) } else { Ok(()) }
    }

    /// Bytes of memory that they take, about.
    pub fn bytes(&self) -> usize {
        self.summaries * (size_of::<Summary>() + size_of::<Arc<str>>()) * 2
    }

    /// The windows that hold something, in time order.
    pub fn finish(self) -> Vec<Window> {
        let Self { step, range, filled, .. } = self;
        let span = |number: i64| {
            let (start, end) = (number.saturating_mul(step), (number + 1).saturating_mul(step));
            start.max(range.start)..end.min(range.end)
        };
        filled.into_iter().map(|(number, fields)| Window { span: span(number), fields }).collect()
    }
}
