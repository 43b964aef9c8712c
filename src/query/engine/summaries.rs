//! Hourly summaries of many sensors, batch by batch: from the cache where its entries are current, else from the store.
//! Hours with unflushed readings are folded from readings.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use super::cache::{FoundHour, HourSummaries, Hours, ReadMoment, SummaryCache};
use super::points::{PointCursor, PointsQuery};
use super::{Engine, hours_of};
use crate::bucket::Summary;
use crate::bucket::store::{Extent, Order, PageSummaries, ScanResult, ScannedPage};
use crate::faults;
use crate::query::QueryError;
use crate::reading::Hour;

#[derive(Debug, Clone)]
pub struct HourSummary {
    pub hour: Hour,
    /// The index of the field among those wanted.
    pub field: usize,
    /// Over all numbers of the field in that hour.
    pub summary: Summary,
}

/// Most summaries read at a time.
pub(super) const SUMMARIES: usize = 24_000;
/// Most stored bytes of pages without readings per batch.
const BATCH_BYTES: usize = 16 << 20;
/// The longest range that is cached: 31 days. In a range without a start most hours are empty, and one year of one
/// sensor would displace a day of many.
const REMEMBERED_HOURS: usize = 31 * 24;

impl Engine {
    /// Passes the summaries of all hours in the range to `take`, with the sensor's index: each sensor's in hour order.
    /// The range must consist of whole hours, and every wanted field must be numeric.
    ///
    /// # Errors
    /// If the answer would be incomplete, `take` fails, or the budget is exhausted.
    pub async fn each_summary(
        &self,
        wanted: &PointsQuery<'_>,
        mut take: impl FnMut(usize, &[HourSummary]) -> Result<(), QueryError> + Send,
    ) -> Result<(), QueryError> {
        let most = (self.options.request_bytes / 8 / wanted.summary_bytes()).min(SUMMARIES);
        let hours = most / wanted.fields.len().max(1);
        let (count, cache) = (hours / span(&hours_of(&wanted.range)), self.cache_for(wanted));
        for (batch, sensors) in wanted.sensors.chunks(count.max(1)).enumerate() {
            let wanted = PointsQuery { sensors, ..wanted.clone() };
            let _held = wanted.budget.hold(expected(&wanted).min(most) * wanted.summary_bytes())?;
            let found = if count > 0 { self.summaries_of_batch(&wanted, cache).await? } else { None };
            match found {
                Some(found) => {
                    for (place, found) in found.iter().enumerate() {
                        take(batch * count + place, found)?;
                    }
                }
                None => {
                    self.summaries_one_by_one(&wanted, hours.max(1), |place, found| {
                        take(batch * count.max(1) + place, found)
                    })
                    .await?
                }
            }
            wanted.budget.pause().await?;
        }
        Ok(())
    }

    /// Reads sensor by sensor, a limited number of hours at a time: how many hours a range without a start has is
    /// unknown.
    async fn summaries_one_by_one(
        &self,
        wanted: &PointsQuery<'_>,
        pages: usize,
        mut take: impl FnMut(usize, &[HourSummary]) -> Result<(), QueryError> + Send,
    ) -> Result<(), QueryError> {
        let projection = wanted.summaries(wanted.only_sums);
        for (place, sensor) in wanted.sensors.iter().enumerate() {
            let mut hours = hours_of(&wanted.range);
            let one = std::slice::from_ref(sensor);
            let unflushed = self.unflushed_of(wanted.database, &sensor.key, &hours).await?;
            let unflushed: BTreeSet<Hour> = unflushed.into_keys().collect();
            while hours.start < hours.end {
                let extent = Extent { pages, bytes: BATCH_BYTES, hour_bytes: usize::MAX };
                let stored =
                    self.store.scan(wanted.database, &sensor.key, hours.clone(), Order::Ascending, &projection, extent);
                let ScanResult { pages: mut stored, rest } = wanted.budget.waiting(stored).await?;
                let mut open: Vec<Hour> = unflushed.range(hours.start..rest.start).copied().collect();
                let mut found = [Vec::new()];
                take_known(wanted, &mut stored, (&mut open, &mut found[0]), |_, _| {});
                self.fold_open(&PointsQuery { sensors: one, ..wanted.clone() }, &[open], &mut found).await?;
                found[0].sort_by_key(|one| (one.hour, one.field));
                take(place, &found[0])?;
                hours = rest;
                wanted.budget.pause().await?;
            }
        }
        Ok(())
    }

    /// `None` if the pages are too large for one batch.
    async fn summaries_of_batch(
        &self,
        wanted: &PointsQuery<'_>,
        cache: Option<&SummaryCache>,
    ) -> Result<Option<Vec<Vec<HourSummary>>>, QueryError> {
        let hours = hours_of(&wanted.range);
        let keys: Vec<&str> = wanted.sensors.iter().map(|sensor| &*sensor.key).collect();
        // Before the cache and the store are read; `HourVersions` says why.
        let unflushed = self.unflushed(wanted.database, &keys, &hours).await?;
        let mut open: Vec<Vec<Hour>> = unflushed.into_iter().map(|hours| hours.into_keys().collect()).collect();
        let mut found: Vec<Vec<HourSummary>> = vec![Vec::new(); wanted.sensors.len()];
        let mut unknown: BTreeMap<(Hour, Hour), Vec<usize>> = BTreeMap::new();
        let now = Instant::now();
        for (place, found) in found.iter_mut().enumerate() {
            let asked = self.hours_asked(wanted, place, &hours);
            let take = |hour, known: &HourSummaries| {
                for (field, name) in wanted.fields.iter().enumerate() {
                    if let Some((_, Some(summary))) = known.iter().find(|(known, _)| known == name) {
                        found.push(HourSummary { hour, field, summary: summary.clone() });
                    }
                }
            };
            let rest = match cache {
                Some(cache) => cache.recall(&asked, &open[place], (self.memtables.changes(), now), take),
                None => hours.clone(),
            };
            if rest.start < rest.end {
                unknown.entry((rest.start, rest.end)).or_default().push(place);
            }
        }
        for ((start, end), places) in unknown {
            if !self.read_summaries(wanted, cache, &places, &(start..end), &mut open, &mut found).await? {
                return Ok(None);
            }
        }
        self.fold_open(wanted, &open, &mut found).await?;
        // Cached, read and folded summaries come in order again.
        found.iter_mut().for_each(|found| found.sort_by_key(|one| (one.hour, one.field)));
        Ok(Some(found))
    }

    fn hours_asked<'a>(&self, wanted: &PointsQuery<'a>, place: usize, hours: &Range<Hour>) -> Hours<'a> {
        let (database, sensor) = (wanted.database, &*wanted.sensors[place].key);
        let at = self.memtables.changes().hash(database, sensor);
        Hours { database, sensor, place: at, hours: hours.clone(), fields: wanted.fields, ends: wanted.ends }
    }

    /// The cache, unless the range is too long to be cached, or the answer takes more than it holds: then every hour would
    /// displace another one of the same answer.
    fn cache_for(&self, wanted: &PointsQuery<'_>) -> Option<&SummaryCache> {
        if wanted.bounds.is_some() {
            // The cache has no distributions.
            return None;
        }
        let is_short = span(&hours_of(&wanted.range)) <= REMEMBERED_HOURS;
        let bytes = expected(wanted).saturating_mul(wanted.summary_bytes());
        self.cache.as_ref().filter(|cache| is_short && bytes <= cache.bytes_max())
    }

    async fn read_summaries(
        &self,
        wanted: &PointsQuery<'_>,
        cache: Option<&SummaryCache>,
        places: &[usize],
        hours: &Range<Hour>,
        open: &mut [Vec<Hour>],
        found: &mut [Vec<HourSummary>],
    ) -> Result<bool, QueryError> {
        // Another question may ask the cache for the other figures.
        let projection = wanted.summaries(wanted.only_sums && cache.is_none());
        let keys: Vec<&str> = places.iter().map(|place| &*wanted.sensors[*place].key).collect();
        let moment = ReadMoment { changes: self.memtables.changes().now(), at: Instant::now() };
        let stored = self.store.scan_sensors(wanted.database, &keys, hours.clone(), &projection, BATCH_BYTES);
        let Some(stored) = wanted.budget.waiting(stored).await? else { return Ok(false) };
        faults::halt_at("summaries_read").await;
        for (place, mut pages) in places.iter().zip(stored) {
            let (open, found) = (&mut open[*place], &mut found[*place]);
            found.reserve(pages.len() * wanted.fields.len());
            let Some(cache) = cache else {
                take_known(wanted, &mut pages, (open, found), |_, _| {});
                continue;
            };
            let mut new = Vec::with_capacity(span(hours).min(REMEMBERED_HOURS));
            take_known(wanted, &mut pages, (open, found), |page, has_ends| {
                let summaries = with_shared_names(&page.summary, wanted.fields);
                new.push(FoundHour { hour: page.hour, has_ends, summaries });
            });
            let asked = self.hours_asked(wanted, *place, hours);
            cache.remember(&asked, open, moment, self.memtables.changes(), new);
        }
        Ok(true)
    }

    /// Folds the hours that have unflushed readings; sensors with the same such hour are read together. For distributions
    /// there may be many hours in a row, which are read at once.
    async fn fold_open(
        &self,
        wanted: &PointsQuery<'_>,
        open: &[Vec<Hour>],
        found: &mut [Vec<HourSummary>],
    ) -> Result<(), QueryError> {
        let mut places: BTreeMap<(Hour, Hour), Vec<usize>> = BTreeMap::new();
        for (place, hours) in open.iter().enumerate() {
            for run in hours.chunk_by(|hour, next| wanted.bounds.is_some() && hour.next() == *next) {
                places.entry((run[0], run[run.len() - 1])).or_default().push(place);
            }
        }
        for ((first, last), places) in places {
            let sensors: Vec<_> = places.iter().map(|place| wanted.sensors[*place].clone()).collect();
            let within = PointsQuery { sensors: &sensors, range: first.start_ns()..last.end_ns(), ..wanted.clone() };
            let mut scan = self.points(&within)?;
            while let Some((place, points)) = scan.next().await? {
                fold(&points, wanted.bounds.as_ref(), &mut found[places[place]]);
            }
        }
        Ok(())
    }
}

/// Upper bound on the number of summaries.
fn expected(wanted: &PointsQuery<'_>) -> usize {
    let span = span(&hours_of(&wanted.range));
    wanted.sensors.len().saturating_mul(span).saturating_mul(wanted.fields.len())
}

/// Adds the summaries of the hours that are not open. Passes on each hour as one page, and whether its first and last values are
/// the hour's; the pages are in order of hours, and lose their summaries. Hours whose readings must be read become open.
fn take_known(
    wanted: &PointsQuery<'_>,
    pages: &mut [ScannedPage],
    (open, found): (&mut Vec<Hour>, &mut Vec<HourSummary>),
    mut pass: impl FnMut(&ScannedPage, bool),
) {
    let (number, mut unclear) = (|name: &Arc<str>| wanted.fields.iter().position(|field| field == name), Vec::new());
    for of_hour in pages.chunk_by_mut(|a, b| a.hour == b.hour) {
        let Some((page, others)) = of_hour.split_first_mut() else { continue };
        // Counts by other bounds are replaced by those of the readings, where there are any.
        let must_count = wanted.bounds.as_ref().is_some_and(|bounds| {
            let summaries = std::iter::once(&*page).chain(&*others).flat_map(|page| &page.summary);
            !page.is_expired && summaries.into_iter().any(|(_, summary)| !summary.is_counted_by(bounds))
        });
        others.iter_mut().for_each(|other| unite(&mut page.summary, &mut other.summary));
        let has_ends = others.is_empty();
        pass(page, has_ends);
        let hour = page.hour;
        if must_count || wanted.ends && !has_ends {
            unclear.push(hour);
        } else if open.binary_search(&hour).is_err() {
            for (name, summary) in page.summary.drain(..) {
                if let Some(field) = number(&name) {
                    found.push(HourSummary { hour, field, summary });
                }
            }
        }
    }
    if !unclear.is_empty() {
        open.extend(unclear);
        open.sort_unstable();
        open.dedup();
    }
}

fn span(hours: &Range<Hour>) -> usize {
    usize::try_from(hours.end.0.saturating_sub(hours.start.0)).unwrap_or(usize::MAX).max(1)
}

/// Adds the summaries of the hours of these readings.
fn fold(points: &PointCursor, bounds: Option<&Arc<[f64]>>, found: &mut Vec<HourSummary>) {
    let mut start = 0;
    for times in points.times.chunk_by(|a, b| Hour::from_ns(*a) == Hour::from_ns(*b)) {
        let rows = start..start + times.len();
        for (field, column) in points.columns.iter().enumerate() {
            let cells = column.get(rows.start..rows.end.min(column.len())).unwrap_or_default();
            let summary = Summary::fold_within(cells.iter().flatten(), bounds);
            found.extend(summary.map(|summary| HourSummary { hour: Hour::from_ns(times[0]), field, summary }));
        }
        start = rows.end;
    }
}

/// Adds the summaries of another page of an hour, which loses them.
fn unite(all: &mut PageSummaries, of_page: &mut PageSummaries) {
    for (name, summary) in of_page.drain(..) {
        match all.iter_mut().find(|(held, _)| *held == name) {
            Some((_, held)) => held.unite(&summary),
            None => all.push((name, summary)),
        }
    }
}

/// The summaries of these fields, whose names all hours share. Without spare capacity, because the cache keeps the list.
fn with_shared_names(all: &[(Arc<str>, Summary)], fields: &[Arc<str>]) -> Vec<(Arc<str>, Summary)> {
    let mut shared = Vec::with_capacity(fields.len());
    for (name, summary) in all {
        if let Some(field) = fields.iter().find(|field| *field == name) {
            shared.push((field.clone(), summary.clone()));
        }
    }
    shared
}
