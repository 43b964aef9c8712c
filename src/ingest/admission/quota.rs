//! Charges a request to the quotas of its sender's token and of its database.

use std::time::Instant;

use super::validate::ValidatedBody;
use crate::access::{Caller, Exhausted, Rate, Usage};
use crate::catalog::Database;
use crate::ingest::error::IngestError;
use crate::telemetry::Metrics;

/// The quotas that apply to one request.
pub struct QuotaCharge<'a> {
    usages: [Option<&'a Usage>; 2],
    database: &'a Database,
    /// `None` in a dry run.
    metrics: Option<&'a Metrics>,
    now: Instant,
}

impl<'a> QuotaCharge<'a> {
    /// Collects the quotas of a request that was received at `now`.
    pub fn new(caller: &'a Caller, database: &'a Database, metrics: Option<&'a Metrics>, now: Instant) -> Self {
        let token_usage = caller.allowance().map(|usage| &**usage);
        let database_usage = Some(&database.usage).filter(|usage| !usage.quota.is_none());
        Self { usages: [token_usage, database_usage], database, metrics, now }
    }

    fn usages(&self) -> impl Iterator<Item = &'a Usage> {
        self.usages.into_iter().flatten()
    }

    /// Checks the quotas before validation.
    ///
    /// # Errors
    /// If earlier requests have used up a quota.
    pub fn admit(&self) -> Result<(), IngestError> {
        self.usages()
            .try_for_each(|usage| usage.admit(self.now).map_err(|exhausted| self.count_refusal(usage, exhausted)))
    }

    /// Checks the quotas after validation, and counts a refusal if a quota kept sensors out.
    ///
    /// # Errors
    /// If nothing was admitted and the hourly quota of new sensors is the only reason. A later retry can succeed.
    pub fn check(&self, validated: &ValidatedBody) -> Result<(), IngestError> {
        let Some(exhausted) = &validated.exhausted else { return Ok(()) };
        let Some(usage) = self.usages().find(|usage| exhausted.owner == usage.owner) else { return Ok(()) };
        let is_hourly = exhausted.rate == Rate::NewSensors;
        let refused = self.count_refusal(usage, exhausted.clone());
        let has_other_reasons = validated.rejected.reasons.keys().any(|reason| *reason != "sensors");
        if is_hourly && validated.accepted == 0 && !has_other_reasons {
            return Err(refused);
        }
        Ok(())
    }

    /// Charges admitted readings, and adds a warning for each quota that is nearly used up.
    pub fn settle(&self, readings: usize, warnings: &mut Vec<String>) {
        for usage in self.usages() {
            let database_sensors = (usage.scope == "database").then(|| self.database.sensor_count());
            let readings_warning = usage.charge(readings, self.now);
            let sensors_warning = usage.sensors_warning(database_sensors, self.now);
            for warning in readings_warning.into_iter().chain(sensors_warning) {
                self.count("warned", usage, &warning);
                warnings.push(warning.to_string());
            }
        }
    }

    fn count_refusal(&self, usage: &Usage, exhausted: Exhausted) -> IngestError {
        self.count("refused", usage, &exhausted);
        IngestError::OverQuota(exhausted)
    }

    fn count(&self, outcome: &'static str, usage: &Usage, exhausted: &Exhausted) {
        if let Some(metrics) = self.metrics {
            metrics.count_quota(outcome, usage.scope, exhausted.rate.label());
        }
    }
}
