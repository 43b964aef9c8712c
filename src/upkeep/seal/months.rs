//! Totals of past months, for queries about many days. `bucket::totals` explains why they are never used if a part is
//! newer.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use super::lifetimes::LifetimeRules;
use super::{Run, Sealer};
use crate::bucket::store::{Projection, SensorFilter, WriteOutcome};
use crate::bucket::{MonthId, MonthTotals, MonthWrite, SensorDocument, StorageError};
use crate::buffer::deleter::is_listed;
use crate::clock::first_rev;
use crate::faults;
use crate::reading::{Day, Hour, Month};

/// Number of sensors that are listed at once.
const LISTED: usize = 500;
/// Number of sensors whose months are written together. Each write of the embedded store syncs the disk twice, and
/// writes at least 32 KiB for a fast start.
const TOGETHER: usize = 128;
/// Maximum bytes of hours that are read at once.
const HOURS_BYTES: usize = 16 << 20;
/// Number of days for which a month must be over.
const DAYS_OVER: i64 = 1;

/// The latest rev of each sensor's months, by key; the maximum if totals were missing.
type MonthRevs = HashMap<Arc<str>, u64>;

/// Returns the sensor's key, and the range of months with its readings.
fn months_of(document: &SensorDocument) -> Option<(Arc<str>, Range<i64>)> {
    let month = |time: i64| Month::from_day(Day::from_hour(Hour::from_ns(time))).0;
    let (first, last) = (month(document.first_seen?), month(document.last_seen?));
    Some((Arc::from(&*document.sensor.key), first..last + 1))
}

/// Ignores months that cannot be read, because totals only make queries faster.
fn some_at_least(made: Result<u64, StorageError>) -> Result<u64, StorageError> {
    match made {
        Err(error) if !error.is_away() => {
            tracing::debug!(%error, "some months could not be added up; it is tried again");
            Ok(0)
        }
        made => made,
    }
}

impl Sealer {
    /// Adds up the months of all databases, if they are due, and folds outdated lifetime summaries.
    ///
    /// # Errors
    /// If the store fails.
    pub(super) async fn sum_up(&self, are_months_due: bool, run: &Run) -> Result<(), StorageError> {
        let databases = self.context.store.raw().databases().await?;
        self.context.lifetimes.retain(&databases);
        for database in databases {
            let began = Instant::now();
            let made = if are_months_due { self.add_up_months(&database, run).await? } else { 0 };
            if made > 0 {
                tracing::info!(%database, months = made, "months added up");
            }
            self.fold_noted(&database, run).await?;
            run.pause(began).await;
        }
        Ok(())
    }

    /// Computes the missing totals of all past months of a database. Returns their number. Then folds the lifetime
    /// summaries that are outdated.
    ///
    /// # Errors
    /// If the store fails.
    async fn add_up_months(&self, database: &str, run: &Run) -> Result<u64, StorageError> {
        let Ok(now) = self.context.trusted_ns() else { return Ok(0) };
        let rules = LifetimeRules { fields_max: self.lifetime_fields, is_asked: run.is_asked, now };
        let end = Month::from_day(Day(Day::from_hour(Hour::from_ns(now)).0 - DAYS_OVER));
        let (mut filter, mut made) = (SensorFilter { limit: LISTED, ..SensorFilter::default() }, 0);
        loop {
            let sensors = self.context.store.list_sensors(database, &filter).await?;
            let Some(last) = sensors.last().map(|document| document.sensor.key.to_string()) else { return Ok(made) };
            let mut revs = MonthRevs::new();
            // In each month only those that may have readings in it: most fleets are younger than their oldest reading.
            let spans: Vec<(Arc<str>, Range<i64>)> = sensors.iter().filter_map(months_of).collect();
            let first = spans.iter().map(|(_, months)| months.start).min().unwrap_or(end.0);
            let after = spans.iter().map(|(_, months)| months.end).max().unwrap_or(first);
            for month in first..after.min(end.0) {
                let has = |(key, months): &(Arc<str>, Range<i64>)| months.contains(&month).then(|| key.clone());
                let keys: Vec<Arc<str>> = spans.iter().filter_map(has).collect();
                made += some_at_least(self.add_up_month(database, &keys, Month(month), &mut revs, run).await)?;
            }
            let month_rev = |key: &str| revs.get(key).copied().unwrap_or_default();
            let is_outdated = |document: &&SensorDocument| rules.is_outdated(document, month_rev(&document.sensor.key));
            let outdated = sensors.iter().filter(is_outdated).map(|document| document.sensor.key.clone()).collect();
            self.fold_lifetimes(database, outdated, run).await?;
            filter.after = Some(last);
        }
    }

    async fn add_up_month(
        &self,
        database: &str,
        keys: &[Arc<str>],
        month: Month,
        revs: &mut MonthRevs,
        run: &Run,
    ) -> Result<u64, StorageError> {
        let store = &self.context.store;
        let names: Vec<&str> = keys.iter().map(|key| &**key).collect();
        let mut wanted: BTreeSet<usize> = BTreeSet::new();
        let mut in_chunks: BTreeSet<usize> = BTreeSet::new();
        let known = store.read_months(database, &names, month..month.next(), &Projection::without_fields()).await?;
        let known: HashMap<Arc<str>, (u64, bool)> =
            known.into_iter().map(|(id, month)| (id.sensor, (month.rev, month.totals.is_some()))).collect();
        let missing: Vec<usize> =
            (0..keys.len()).filter(|place| !known.get(&keys[*place]).is_some_and(|(_, is_made)| *is_made)).collect();
        let names: Vec<&str> = missing.iter().map(|place| &*keys[*place]).collect();
        for (place, _, part) in store.raw().list_day_parts(database, &names, month.days()).await? {
            // Chunks are about to be folded, which would remove the totals.
            if part.is_chunk() { &mut in_chunks } else { &mut wanted }.insert(missing[place]);
        }
        let wanted: Vec<(MonthId, u64)> = wanted
            .difference(&in_chunks)
            .map(|place| {
                let sensor = keys[*place].clone();
                let rev = known.get(&sensor).map_or(0, |(rev, _)| *rev);
                (MonthId { sensor, month }, rev)
            })
            .collect();
        for (sensor, (rev, _)) in &known {
            let latest = revs.entry(sensor.clone()).or_default();
            *latest = (*latest).max(*rev);
        }
        revs.extend(wanted.iter().map(|(id, _)| (id.sensor.clone(), u64::MAX)));
        faults::halt_at("months_listed").await;
        let (mut made, mut fit) = (0, TOGETHER);
        for some in wanted.chunks(TOGETHER) {
            let began = Instant::now();
            made += some_at_least(self.add_up(database, some, &mut fit).await)?;
            run.pause(began).await;
        }
        Ok(made)
    }

    /// Adds up months of a batch of sensors. Returns the number of totals that were written. `months` have the stored
    /// revs. `fit` is the number of sensors whose hours fit into memory, which is corrected.
    async fn add_up<'a>(
        &self,
        database: &str,
        months: &'a [(MonthId, u64)],
        fit: &mut usize,
    ) -> Result<u64, StorageError> {
        let (store, first) = (&self.context.store, first_rev());
        let turn = self.turns.of(database);
        let _turn = turn.lock().await;
        if !is_listed(&**store.raw(), database).await? {
            // It was dropped since its months were listed.
            return Ok(0);
        }
        // Each has two revs: that of the claim, and the next one.
        let claim =
            |((id, rev), next_rev): (&'a (MonthId, u64), u64)| MonthWrite { id, rev: *rev, next_rev, totals: None };
        let claims: Vec<MonthWrite<'a>> = months.iter().zip((first..).step_by(2)).map(claim).collect();
        let claimed = store.raw().write_months(database, &claims).await;
        faults::halt_at("month_claimed").await;
        faults::point("month_claimed");
        let claimed: Vec<(&'a MonthId, u64)> = claims
            .iter()
            .zip(claimed)
            .filter(|(_, written)| *written == WriteOutcome::Applied)
            .map(|(claim, _)| (claim.id, claim.next_rev))
            .collect();
        let mut totals: BTreeMap<&'a MonthId, MonthTotals> = BTreeMap::new();
        let mut left: Vec<&[(&'a MonthId, u64)]> = claimed.chunks((*fit).max(1)).collect();
        while let Some(some) = left.pop() {
            let Some((first, _)) = some.first() else { continue };
            let days = first.month.days();
            let hours = days.start.hours().start..days.end.hours().start;
            let keys: Vec<&str> = some.iter().map(|(id, _)| &*id.sensor).collect();
            match store.raw().scan_sensor_days(database, &keys, hours, &Projection::SUMMARIES, HOURS_BYTES).await? {
                Some(found) => {
                    totals
                        .extend(some.iter().zip(found).map(|((id, _), pages)| (*id, MonthTotals::from_pages(&pages))));
                }
                // A month of one sensor that is larger is not worth adding up: it stays a claim.
                None if some.len() == 1 => {}
                None => {
                    *fit = some.len() / 2;
                    left.extend(<[_; 2]>::from(some.split_at(*fit)));
                }
            }
        }
        faults::halt_at("month_read").await;
        let fill = |(id, rev): &(&'a MonthId, u64)| {
            Some(MonthWrite { id, rev: *rev, next_rev: rev + 1, totals: Some(totals.get(id)?) })
        };
        let fills: Vec<MonthWrite<'_>> = claimed.iter().filter_map(fill).collect();
        let written = store.raw().write_months(database, &fills).await;
        faults::point("month_filled");
        // A writer that has changed a part in the meantime has removed the claim.
        Ok(written.iter().filter(|written| **written == WriteOutcome::Applied).count() as u64)
    }
}
