//! Whose quotas a request uses: those of its sender's token, and of its database.

use std::time::Instant;

use super::catalog::Database;
use super::door::Judged;
use super::error::IngestError;
use crate::access::{Caller, Exhausted, Rate, Usage};
use crate::telemetry::Metrics;

/// The quotas that one request uses.
pub struct Payers<'a> {
    usages: [Option<&'a Usage>; 2],
    database: &'a Database,
    metrics: &'a Metrics,
    now: Instant,
}

impl<'a> Payers<'a> {
    /// Of a request that came now.
    pub fn of(by: &'a Caller, database: &'a Database, metrics: &'a Metrics, now: Instant) -> Self {
        let usage_of_database = Some(&database.usage).filter(|usage| !usage.quota().is_none());
        Self { usages: [by.usage(), usage_of_database], database, metrics, now }
    }

    fn usages(&self) -> impl Iterator<Item = &'a Usage> {
        self.usages.into_iter().flatten()
    }

    /// Whether readings may come in at all.
    ///
    /// # Errors
    /// When the ones before have used up more than there was.
    pub fn admit(&self) -> Result<(), IngestError> {
        self.usages().try_for_each(|usage| usage.admit(self.now).map_err(|exhausted| self.refused(usage, exhausted)))
    }

    /// Counts what was judged and let in no more sensors.
    ///
    /// # Errors
    /// When nothing was let in, and nothing is wrong with any of it but that it is of sensors that are new too soon:
    /// waiting mends that.
    pub fn check(&self, judged: &Judged) -> Result<(), IngestError> {
        let Some(exhausted) = &judged.exhausted else { return Ok(()) };
        let Some(usage) = self.usages().find(|usage| exhausted.owner == usage.owner()) else { return Ok(()) };
        let of_hour = exhausted.rate == Rate::NewSensors && judged.accepted == 0;
        let refused = self.refused(usage, exhausted.clone());
        match of_hour && judged.rejected.reasons.keys().all(|reason| *reason == "sensors") {
            true => Err(refused),
            false => Ok(()),
        }
    }

    /// Pays for readings that came in, and adds warnings of what is nearly used up.
    pub fn settle(&self, readings: usize, warnings: &mut Vec<String>) {
        for usage in self.usages() {
            let counted = (usage.scope() == "database").then(|| self.database.known());
            let due = [usage.charge(readings, self.now), usage.sensors_warning(counted, self.now)];
            for warning in due.into_iter().flatten() {
                self.metrics.quota("warned", usage.scope(), warning.rate.label());
                warnings.push(warning.to_string());
            }
        }
    }

    fn refused(&self, usage: &Usage, exhausted: Exhausted) -> IngestError {
        self.metrics.quota("refused", usage.scope(), exhausted.rate.label());
        IngestError::OverQuota(exhausted)
    }
}
