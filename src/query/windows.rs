//! Windows of one sensor, filled in time order from summaries or readings.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use super::cache::Hours;
use super::plan::{Source, plan};
use super::summaries::united;
use super::{PAGES_WITH_READINGS, Query, QueryError, Selection, by_hour, hours_of, merged};
use crate::bucket::store::ScannedPage;
use crate::bucket::{Reading, Readings, Summary};
use crate::reading::Hour;

/// One window's summaries by field.
#[derive(Debug, Clone, PartialEq)]
pub struct Window {
    /// From the first nanosecond on and before the last; cut to the range asked for.
    pub span: Range<i64>,
    /// Per numeric field.
    pub fields: BTreeMap<Arc<str>, Summary>,
}

/// Pages that are read at once without their readings.
const PAGES_OF_SUMMARIES: usize = 1000;

impl Query {
    pub(super) async fn read_windows(
        &self,
        selection: &Selection,
        step: i64,
    ) -> Result<Option<Vec<Window>>, QueryError> {
        let mut span = self.span(&selection.range)?;
        let mut windows = Windows::new(step, selection.range.clone(), self.options.windows_max);
        let mut unflushed = self.unflushed(selection, &hours_of(&selection.range)).await?;
        let open: Vec<Hour> = unflushed.keys().copied().collect();
        for (hours, source) in plan(&selection.range, step, &open) {
            match source {
                Source::Readings => self.window_readings(selection, hours, &mut unflushed, &mut windows).await?,
                Source::Summaries => self.window_summaries(selection, hours, &mut windows).await?,
            }
        }
        let windows = windows.finish();
        for window in windows.first().into_iter().chain(windows.last()) {
            span.sees(&window.span)?;
        }
        Ok(if windows.is_empty() && !self.is_known(selection).await? { None } else { Some(windows) })
    }

    async fn window_readings(
        &self,
        selection: &Selection,
        mut hours: Range<Hour>,
        unflushed: &mut BTreeMap<Hour, Readings>,
        windows: &mut Windows,
    ) -> Result<(), QueryError> {
        while hours.start < hours.end {
            let pages = self.scan(selection, &hours, true, PAGES_WITH_READINGS.end).await?;
            let scanned = pages.last().map_or(hours.end, |last| last.hour.next());
            for (_, pages, later) in by_hour(&pages, unflushed, scanned) {
                self.bounded(windows.add_readings(merged(pages, later.as_ref(), selection)), windows)?;
            }
            hours.start = scanned;
        }
        Ok(())
    }

    /// Hours that are wholly in the store: as they are remembered, where all of them are, else as they are read.
    async fn window_summaries(
        &self,
        selection: &Selection,
        mut hours: Range<Hour>,
        windows: &mut Windows,
    ) -> Result<(), QueryError> {
        let fields: Vec<Arc<str>> = selection.fields.iter().map(|field| Arc::from(field.as_str())).collect();
        let wanted = |name: &Arc<str>| fields.is_empty() || fields.contains(name);
        let (database, sensor, changes) = (&*selection.database, &*selection.sensor, self.hot.changes());
        let whole =
            Hours { database, sensor, place: changes.place(database, sensor), hours: hours.clone(), fields: None };
        let cache = self.cache_for(&hours);
        if let Some(cache) = cache {
            let asked = Hours { fields: (!fields.is_empty()).then_some(&fields), ..whole.clone() };
            let mut known = Vec::new();
            let unknown = cache.recall(&asked, &[], (changes, Instant::now()), |hour, fields| {
                let there = |(name, summary): &(Arc<str>, Option<Summary>)| Some((name.clone(), summary.clone()?));
                known
                    .push((hour, fields.iter().filter_map(there).filter(|(name, _)| wanted(name)).collect::<Vec<_>>()));
            });
            if unknown.is_empty() {
                return known
                    .into_iter()
                    .try_for_each(|(hour, summaries)| self.bounded(windows.add_summaries(hour, summaries), windows));
            }
        }
        while hours.start < hours.end {
            let moment = self.moment();
            let pages = self.scan(selection, &hours, false, PAGES_OF_SUMMARIES).await?;
            let scanned = pages.last().map_or(hours.end, |last| last.hour.next());
            let of_hour = |pages: &[ScannedPage]| (pages[0].hour, united(pages, None));
            let read: Vec<_> = pages.chunk_by(|a, b| a.hour == b.hour).map(of_hour).collect();
            for (hour, summaries) in &read {
                let summaries = summaries.iter().filter(|(name, _)| wanted(name)).cloned();
                self.bounded(windows.add_summaries(*hour, summaries), windows)?;
            }
            if let Some(cache) = cache {
                cache.remember(&Hours { hours: hours.start..scanned, ..whole.clone() }, &[], moment, changes, read);
            }
            hours.start = scanned;
        }
        Ok(())
    }

    fn bounded(&self, added: Result<(), usize>, windows: &Windows) -> Result<(), QueryError> {
        added.map_err(|limit| QueryError::TooManyWindows { limit })?;
        let limit = 4 * self.options.answer_bytes;
        if windows.bytes() > limit { Err(QueryError::TooLarge { limit }) } else { Ok(()) }
    }
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

    /// Adds an hour by its summaries. `Err` with the limit when there are too many windows.
    pub fn add_summaries(
        &mut self,
        hour: Hour,
        summaries: impl IntoIterator<Item = (Arc<str>, Summary)>,
    ) -> Result<(), usize> {
        self.add(hour.start_ns().div_euclid(self.step), summaries)
    }

    fn add(&mut self, number: i64, summaries: impl IntoIterator<Item = (Arc<str>, Summary)>) -> Result<(), usize> {
        for (name, summary) in summaries {
            let window = self.filled.entry(number).or_default();
            let known = window.len();
            match window.entry(name) {
                Entry::Occupied(mut sum) => sum.get_mut().unite(&summary),
                Entry::Vacant(place) => _ = place.insert(summary),
            }
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
