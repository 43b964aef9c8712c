//! Checks the totals of months against the parts of their days.

use std::time::Duration;

use super::finding::{FindingKind, Findings};
use super::walk::DatabaseCheck;
use crate::bucket::raw::{Cursor, RawSensor};
use crate::bucket::store::{Extent, Order, Projection, WriteOutcome};
use crate::bucket::{MonthId, MonthTotals, MonthWrite, StorageError, StoredMonth};
use crate::clock::now_ns;
use crate::reading::{Day, Hour, Month};

/// Number of sensors in a batch.
const BATCH_SENSORS: usize = 50;
/// Maximum number of reads of a month that looks wrong. An instance may have written a part of the month and not
/// removed its totals yet.
const ATTEMPTS_MAX: usize = 10;
/// Pause between two reads of a month.
const RETRY_PAUSE: Duration = Duration::from_millis(200);
/// Maximum number of characters of printed totals.
const SHOWN_MAX: usize = 400;

impl DatabaseCheck<'_> {
    /// Checks all months of a database that have totals. A repair removes wrong totals; they are computed again when
    /// needed.
    pub(super) async fn check_months(&mut self) -> Result<(), StorageError> {
        let mut cursor: Option<Cursor> = None;
        loop {
            let part = self.store.walk_sensors(&self.report.name, cursor.as_ref(), BATCH_SENSORS).await?;
            // FindingKind cannot be read is told elsewhere.
            let seen = |sensor: &RawSensor| sensor.document.as_ref().ok()?.first_seen;
            if let Some(first) = part.found.iter().filter_map(seen).min() {
                let months = Month::from_day(Day::from_hour(Hour::from_ns(first)))
                    ..Month::from_day(Day::from_hour(Hour::from_ns(now_ns()))).next();
                let keys: Vec<&str> = part.found.iter().map(|sensor| &*sensor.key).collect();
                let stored = self.store.read_months(&self.report.name, &keys, months, &Projection::SUMMARIES).await?;
                for (id, month) in stored {
                    self.check_month(&id, month).await?;
                }
            }
            cursor = part.next;
            if cursor.is_none() {
                return Ok(());
            }
        }
    }

    async fn check_month(&mut self, id: &MonthId, mut month: StoredMonth) -> Result<(), StorageError> {
        let mut findings = Findings::default();
        for attempt in 0..ATTEMPTS_MAX {
            let Some(found) = month.totals.take().map(sort) else { return Ok(()) };
            let expected = self.compute_totals(id).await?;
            if found == expected {
                return Ok(());
            }
            if !self.store.has_other_writers() || attempt + 1 == ATTEMPTS_MAX {
                let shown = |totals: &MonthTotals| format!("{totals:?}").chars().take(SHOWN_MAX).collect::<String>();
                let key = format!("{} {}", id.month, id.sensor);
                findings.differs(&key, FindingKind::Totals, shown(&expected), shown(&found));
                break;
            }
            tokio::time::sleep(RETRY_PAUSE).await;
            let months = id.month..id.month.next();
            let again =
                self.store.read_months(&self.report.name, &[&id.sensor], months, &Projection::SUMMARIES).await?;
            let Some((_, again)) = again.into_iter().next() else { return Ok(()) };
            month = again;
        }
        if self.options.repair && !findings.differences.is_empty() {
            let claim = MonthWrite { id, rev: month.rev, next_rev: month.rev + 1, totals: None };
            match self.store.write_months(&self.report.name, &[claim]).await.pop() {
                Some(WriteOutcome::Failed(error)) => return Err(error),
                // On a conflict, another instance has removed or rewritten the month.
                _ => self.report.repaired.add(findings.differences.drain(..)),
            }
        }
        self.report.add(findings);
        Ok(())
    }

    async fn compute_totals(&self, id: &MonthId) -> Result<MonthTotals, StorageError> {
        let days = id.month.days();
        let hours = days.start.hours().start..days.end.hours().start;
        let database = &self.report.name;
        let projection = Projection::SUMMARIES;
        let scanned =
            self.store.scan_days(database, &id.sensor, hours, Order::Ascending, &projection, Extent::ALL).await?;
        Ok(sort(MonthTotals::from_pages(&scanned.pages)))
    }
}

fn sort(mut totals: MonthTotals) -> MonthTotals {
    totals.days.iter_mut().for_each(|(_, fields)| fields.sort_by(|(one, _), (other, _)| one.cmp(other)));
    totals
}
