//! Summaries of many sensors for windows of whole days: from the totals of months where there are some, which takes a fraction
//! of reading all their hours.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use super::Engine;
use super::points::PointsQuery;
use super::summaries::{HourSummary, SUMMARIES};
use crate::bucket::{MonthTotals, Summary};
use crate::query::QueryError;
use crate::reading::{Day, Hour, Month};

/// Most months in a range that is answered from totals: those of a century.
const MONTHS: i64 = 1200;

/// Sensors, by their places, that have the same ranges of time to be read by hour, in nanoseconds.
type LeftByHour = BTreeMap<Vec<(i64, i64)>, Vec<usize>>;

impl Engine {
    /// As [`Engine::each_summary`], for windows of whole UTC days: a summary may be that of a day, with the day's first hour. The
    /// summaries of a sensor come in parts that are each in order.
    ///
    /// # Errors
    /// If the answer would be incomplete, `take` fails, or the budget is exhausted.
    pub async fn each_total(
        &self,
        wanted: &PointsQuery<'_>,
        mut take: impl FnMut(usize, &[HourSummary]) -> Result<(), QueryError> + Send,
    ) -> Result<(), QueryError> {
        let days = whole_days(&wanted.range);
        let months = Month::range_from_days(&days);
        if months.is_empty() || months.end.0 - months.start.0 > MONTHS {
            return self.each_summary(wanted, take).await;
        }
        let of_sensor = usize::try_from(days.end.0 - days.start.0).unwrap_or(usize::MAX) * wanted.fields.len().max(1);
        let most = (self.options.request_bytes / 8 / wanted.summary_bytes()).min(SUMMARIES);
        let count = (most / of_sensor).max(1);
        for (batch, sensors) in wanted.sensors.chunks(count).enumerate() {
            let of_batch = PointsQuery { sensors, ..wanted.clone() };
            let _held = wanted.budget.hold(sensors.len() * of_sensor * wanted.summary_bytes())?;
            let left =
                self.totals_of_batch(&of_batch, &days, |place, found| take(batch * count + place, found)).await?;
            for (ranges, places) in left {
                let sensors: Vec<_> = places.iter().map(|place| of_batch.sensors[*place].clone()).collect();
                for (start, end) in ranges {
                    let rest = PointsQuery { sensors: &sensors, range: start..end, ..wanted.clone() };
                    self.each_summary(&rest, |place, found| take(batch * count + places[place], found)).await?;
                }
            }
            wanted.budget.pause().await?;
        }
        Ok(())
    }

    /// Passes the totals that there are to `take`. Returns what is left to be read by hour: sensors by their ranges of time.
    async fn totals_of_batch(
        &self,
        wanted: &PointsQuery<'_>,
        days: &Range<Day>,
        mut take: impl FnMut(usize, &[HourSummary]) -> Result<(), QueryError> + Send,
    ) -> Result<LeftByHour, QueryError> {
        let keys: Vec<&str> = wanted.sensors.iter().map(|sensor| &*sensor.key).collect();
        // Before the months are read; `bucket::totals` says why.
        let hours = days.start.hours().start..days.end.hours().start;
        let unflushed = self.unflushed(wanted.database, &keys, &hours).await?;
        let projection = wanted.summaries(wanted.only_sums);
        let read = self.store.read_months(wanted.database, &keys, Month::range_from_days(days), &projection);
        let mut by_sensor: HashMap<Arc<str>, BTreeMap<Month, MonthTotals>> = HashMap::new();
        for (id, month) in wanted.budget.waiting(read).await? {
            if let Some(totals) = month.totals {
                by_sensor.entry(id.sensor).or_default().insert(id.month, totals);
            }
        }
        let mut left = LeftByHour::new();
        for (place, (key, open)) in keys.iter().zip(&unflushed).enumerate() {
            let mut months = by_sensor.remove(*key).unwrap_or_default();
            for (month, totals) in &mut months {
                let Range { start, end } = month.days();
                let mut by_hour: Vec<Day> = open.keys().map(|hour| Day::from_hour(*hour)).collect();
                if let Some(bounds) = &wanted.bounds {
                    let is_counted = |(_, summary): &(Arc<str>, Summary)| summary.is_counted_by(bounds);
                    let others = totals.days.iter().filter(|(_, summaries)| !summaries.iter().all(is_counted));
                    by_hour.extend(others.map(|(day, _)| *day));
                }
                totals.narrow(&(start.max(days.start)..end.min(days.end)), by_hour);
            }
            let answered = months.values().map(|totals| totals.days.len() as u64).sum();
            self.metrics.query_daily_totals.increment(answered);
            take(place, &summaries(&months, wanted.fields))?;
            left.entry(by_hour(&months, &wanted.range, days)).or_default().push(place);
        }
        Ok(left)
    }
}

fn summaries(months: &BTreeMap<Month, MonthTotals>, fields: &[Arc<str>]) -> Vec<HourSummary> {
    let mut found = Vec::new();
    for (day, of_fields) in months.values().flat_map(|totals| &totals.days) {
        for (name, summary) in of_fields {
            if let Some(field) = fields.iter().position(|field| field == name) {
                found.push(HourSummary { hour: day.hours().start, field, summary: summary.clone() });
            }
        }
    }
    found
}

/// The parts of a range that the totals do not answer.
fn by_hour(months: &BTreeMap<Month, MonthTotals>, range: &Range<i64>, days: &Range<Day>) -> Vec<(i64, i64)> {
    let (mut left, mut from) = (Vec::<(i64, i64)>::new(), range.start);
    let mut leave = |from: i64, until: i64| match left.last_mut() {
        _ if from >= until => {}
        Some((_, end)) if *end == from => *end = until,
        _ => left.push((from, until)),
    };
    for (month, totals) in months {
        let Range { start, end } = month.days();
        let (start, end) = (start.max(days.start), end.min(days.end));
        leave(from, start_of(start));
        // A day of which the month says nothing has no readings.
        totals.overlapping.iter().for_each(|day| leave(start_of(*day), start_of(day.next())));
        from = start_of(end);
    }
    leave(from, range.end);
    left
}

fn start_of(day: Day) -> i64 {
    day.hours().start.start_ns()
}

/// The days that lie wholly in a range of times.
fn whole_days(range: &Range<i64>) -> Range<Day> {
    let day = |time: i64| Day::from_hour(Hour::from_ns(time));
    let start = day(range.start);
    let start = if start_of(start) < range.start { start.next() } else { start };
    start..day(range.end).max(start)
}
