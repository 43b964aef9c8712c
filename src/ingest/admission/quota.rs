//! Quota charges: a request uses the quotas of its sender's token and of its database.

use std::time::Instant;

use super::validate::ValidatedBody;
use crate::access::{Caller, Exhausted, Rate, Usage};
use crate::catalog::Database;
use crate::ingest::error::IngestError;
use crate::telemetry::Metrics;

pub struct QuotaCharge<'a> {
    usages: [Option<&'a Usage>; 2],
    database: &'a Database,
    /// `None` in a dry run.
    metrics: Option<&'a Metrics>,
    now: Instant,
}

impl<'a> QuotaCharge<'a> {
    /// For a request that came `now`.
    pub fn of(by: &'a Caller, database: &'a Database, metrics: Option<&'a Metrics>, now: Instant) -> Self {
        let usage_of_database = Some(&database.usage).filter(|usage| !usage.quota.is_none());
        Self { usages: [by.allowance().map(|usage| &**usage), usage_of_database], database, metrics, now }
    }

    fn usages(&self) -> impl Iterator<Item = &'a Usage> {
        self.usages.into_iter().flatten()
    }

    /// Whether the request may be validated at all.
    ///
    /// # Errors
    /// When earlier requests have used up a quota.
    pub fn admit(&self) -> Result<(), IngestError> {
        self.usages().try_for_each(|usage| usage.admit(self.now).map_err(|exhausted| self.refused(usage, exhausted)))
    }

    /// Counts a refusal when a quota kept sensors out.
    ///
    /// # Errors
    /// When nothing was admitted, and new sensors over the hourly quota are the only reason: retrying later helps.
    pub fn check(&self, validated: &ValidatedBody) -> Result<(), IngestError> {
        let Some(exhausted) = &validated.exhausted else { return Ok(()) };
        let Some(usage) = self.usages().find(|usage| exhausted.owner == usage.owner) else { return Ok(()) };
        let of_hour = exhausted.rate == Rate::NewSensors && validated.accepted == 0;
        let refused = self.refused(usage, exhausted.clone());
        match of_hour && validated.rejected.reasons.keys().all(|reason| *reason == "sensors") {
            true => Err(refused),
            false => Ok(()),
        }
    }

    /// Charges for admitted readings, and adds warnings about quotas that are nearly used up.
    pub fn settle(&self, readings: usize, warnings: &mut Vec<String>) {
        for usage in self.usages() {
            let counted = (usage.scope == "database").then(|| self.database.known());
            let due = [usage.charge(readings, self.now), usage.sensors_warning(counted, self.now)];
            for warning in due.into_iter().flatten() {
                self.count("warned", usage, &warning);
                warnings.push(warning.to_string());
            }
        }
    }

    fn refused(&self, usage: &Usage, exhausted: Exhausted) -> IngestError {
        self.count("refused", usage, &exhausted);
        IngestError::OverQuota(exhausted)
    }

    fn count(&self, what: &'static str, usage: &Usage, exhausted: &Exhausted) {
        if let Some(metrics) = self.metrics {
            metrics.quota(what, usage.scope, exhausted.rate.label());
        }
    }
}
