//! Hourly summaries of many sensors, lot by lot: what is remembered of them where that counts, else what
//! the store says; hours with unflushed readings are folded from readings.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use super::cache::{Hours, Moment, SummaryCache};
use super::points::{Points, Wanted};
use super::{Engine, hours_of};
use crate::bucket::Summary;
use crate::bucket::store::ScannedPage;
use crate::faults::{self, Bug};
use crate::query::QueryError;
use crate::reading::{Hour, Value};

/// An hour's summary of one field.
#[derive(Debug, Clone)]
pub struct HourSummary {
    /// Which hour.
    pub hour: Hour,
    /// The field's number among those wanted.
    pub field: usize,
    /// Over all its numbers.
    pub summary: Summary,
}

/// Pages of summaries that are read at a time.
const PAGES: usize = 24_000;
/// Hours of the longest range of which anything is remembered, 31 days: of a range without a beginning
/// most hours are empty, and a year of one sensor would take the place of a day of all.
const REMEMBERED_HOURS: usize = 31 * 24;

impl Engine {
    /// Gives the summaries of all whole hours in the range to `take`, with the sensor's place: each
    /// sensor's at once, in hour order. The range must be of whole hours, and every field wanted a number.
    ///
    /// # Errors
    /// When the answer cannot be complete.
    pub async fn each_summary(
        &self,
        wanted: &Wanted<'_>,
        mut take: impl FnMut(usize, &[HourSummary]) + Send,
    ) -> Result<(), QueryError> {
        let count = (PAGES / span(&hours_of(&wanted.range))).max(1);
        for (lot, sensors) in wanted.sensors.chunks(count).enumerate() {
            let found = self.summaries_of_lot(&Wanted { sensors, ..wanted.clone() }).await?;
            for (place, found) in found.iter().enumerate() {
                take(lot * count + place, found);
            }
        }
        Ok(())
    }

    async fn summaries_of_lot(&self, wanted: &Wanted<'_>) -> Result<Vec<Vec<HourSummary>>, QueryError> {
        let hours = hours_of(&wanted.range);
        let keys: Vec<&str> = wanted.sensors.iter().map(|sensor| &*sensor.key).collect();
        // Before what is remembered and what is stored: see `Changes`.
        let unflushed = self.unflushed(wanted.database, &keys, &hours).await?;
        let open: Vec<Vec<Hour>> = unflushed.into_iter().map(|hours| hours.into_keys().collect()).collect();
        let mut found: Vec<Vec<HourSummary>> = vec![Vec::new(); wanted.sensors.len()];
        let mut unknown: BTreeMap<(Hour, Hour), Vec<usize>> = BTreeMap::new();
        let now = Instant::now();
        for (place, found) in found.iter_mut().enumerate() {
            let asked = self.hours_asked(wanted, place, &hours);
            let rest = self.recall(&asked, &open[place], now, |hour, field, summary| {
                found.push(HourSummary { hour, field, summary: summary.clone() });
            });
            if rest.start < rest.end {
                unknown.entry((rest.start, rest.end)).or_default().push(place);
            }
        }
        for ((start, end), places) in unknown {
            self.read_summaries(wanted, &places, &(start..end), &open, &mut found).await?;
        }
        self.fold_open(wanted, &open, &mut found).await?;
        // What was remembered, read and folded comes in order again.
        found.iter_mut().for_each(|found| found.sort_by_key(|one| (one.hour, one.field)));
        Ok(found)
    }

    fn hours_asked<'a>(&self, wanted: &Wanted<'a>, place: usize, hours: &Range<Hour>) -> Hours<'a> {
        let (database, sensor) = (wanted.database, &*wanted.sensors[place].key);
        let at = self.hot.changes().place(database, sensor);
        Hours { database, sensor, place: at, hours: hours.clone(), fields: Some(wanted.fields) }
    }

    /// As [`SummaryCache::recall`], field by field with the number of each.
    fn recall(
        &self,
        asked: &Hours<'_>,
        open: &[Hour],
        now: Instant,
        mut take: impl FnMut(Hour, usize, &Summary),
    ) -> Range<Hour> {
        let Some(cache) = self.cache_for(&asked.hours) else { return asked.hours.clone() };
        let fields = asked.fields.unwrap_or_default();
        cache.recall(asked, open, (self.hot.changes(), now), |hour, known| {
            for (number, field) in fields.iter().enumerate() {
                if let Some((_, Some(summary))) = known.iter().find(|(name, _)| name == field) {
                    take(hour, number, summary);
                }
            }
        })
    }

    /// The cache, unless the range is too long to be remembered.
    pub fn cache_for(&self, hours: &Range<Hour>) -> Option<&SummaryCache> {
        self.cache.as_ref().filter(|_| span(hours) <= REMEMBERED_HOURS)
    }

    /// What a read that begins now may be remembered by.
    pub fn moment(&self) -> Moment {
        Moment { changes: self.hot.changes().now(), at: Instant::now() }
    }

    async fn read_summaries(
        &self,
        wanted: &Wanted<'_>,
        places: &[usize],
        hours: &Range<Hour>,
        open: &[Vec<Hour>],
        found: &mut [Vec<HourSummary>],
    ) -> Result<(), QueryError> {
        let fields: Vec<&str> = wanted.fields.iter().map(|field| &**field).collect();
        let keys: Vec<&str> = places.iter().map(|place| &*wanted.sensors[*place].key).collect();
        let moment = self.moment();
        let stored = self.store.scan_sensors(wanted.database, &keys, hours.clone(), false, Some(&fields)).await?;
        for (place, pages) in places.iter().zip(stored) {
            let (open, found) = (&open[*place], &mut found[*place]);
            let of_hour = |pages: &[ScannedPage]| (pages[0].hour, united(pages, Some(wanted.fields)));
            let read: Vec<_> = pages.chunk_by(|a, b| a.hour == b.hour).map(of_hour).collect();
            for (hour, summaries) in read.iter().filter(|(hour, _)| open.binary_search(hour).is_err()) {
                let number = |name: &Arc<str>| wanted.fields.iter().position(|field| field == name);
                found.extend(summaries.iter().filter_map(|(name, summary)| {
                    Some(HourSummary { hour: *hour, field: number(name)?, summary: summary.clone() })
                }));
            }
            if let Some(cache) = self.cache_for(hours) {
                let asked = self.hours_asked(wanted, *place, hours);
                cache.remember(&asked, open, moment, self.hot.changes(), read);
            }
        }
        Ok(())
    }

    /// Folds the hours that are not wholly in the store, those of one hour together.
    async fn fold_open(
        &self,
        wanted: &Wanted<'_>,
        open: &[Vec<Hour>],
        found: &mut [Vec<HourSummary>],
    ) -> Result<(), QueryError> {
        let mut places: BTreeMap<Hour, Vec<usize>> = BTreeMap::new();
        for (place, hours) in open.iter().enumerate() {
            hours.iter().for_each(|hour| places.entry(*hour).or_default().push(place));
        }
        for (hour, places) in places {
            let sensors: Vec<_> = places.iter().map(|place| wanted.sensors[*place].clone()).collect();
            let within = Wanted { sensors: &sensors, range: hour.start_ns()..hour.end_ns(), ..wanted.clone() };
            let fold = |place: usize, points: &Points| {
                found[places[place]].extend(fold(points).into_iter().map(|(field, summary)| HourSummary {
                    hour,
                    field,
                    summary,
                }));
                Ok(())
            };
            self.each_points(&within, fold).await?;
        }
        Ok(())
    }
}

fn span(hours: &Range<Hour>) -> usize {
    usize::try_from(hours.end.0.saturating_sub(hours.start.0)).unwrap_or(usize::MAX).max(1)
}

fn fold(points: &Points) -> Vec<(usize, Summary)> {
    let fold = |(field, cells): (usize, &Vec<Option<Value>>)| Some((field, Summary::fold(cells.iter().flatten())?));
    points.columns.iter().enumerate().filter_map(fold).collect()
}

/// One hour's summaries over all its pages, of these fields or of all.
pub fn united(pages: &[ScannedPage], fields: Option<&[Arc<str>]>) -> Vec<(Arc<str>, Summary)> {
    let wanted = |name: &Arc<str>| match fields {
        // One name for all hours, where there is one.
        Some(fields) => fields.iter().find(|field| *field == name).cloned(),
        None => Some(name.clone()),
    };
    if let [page] = pages {
        return page.summary.iter().filter_map(|(name, summary)| Some((wanted(name)?, summary.clone()))).collect();
    }
    let mut united: BTreeMap<Arc<str>, Summary> = BTreeMap::new();
    for page in pages {
        let twice = page.number > 0 && faults::has(Bug::CountOverflowTwice);
        for (name, summary) in std::iter::repeat_n(&page.summary, 1 + usize::from(twice)).flatten() {
            if let Some(name) = wanted(name) {
                united.entry(name).and_modify(|sum| sum.unite(summary)).or_insert_with(|| summary.clone());
            }
        }
    }
    united.into_iter().collect()
}
