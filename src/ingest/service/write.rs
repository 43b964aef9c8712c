//! Write requests: validates the lines of a body, charges quotas, and submits what is accepted to the WAL.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use super::Ingest;
use crate::access::Caller;
use crate::bucket::settings::Drift;
use crate::buffer::flush::failing::FailingDatabase;
use crate::catalog::Database;
use crate::config::{AckLevel, UndeclaredUnit};
use crate::ingest::admission::bytes_in_flight::BytesInFlight;
use crate::ingest::admission::quota::QuotaCharge;
use crate::ingest::admission::validate::{Rejected, ValidatedBody, ValidationPass, Validator};
use crate::ingest::error::IngestError;
use crate::ingest::request_keys::RequestKey;
use crate::kinds::KindFault;
use crate::reading::{Limits, Precision};
use crate::wire::Points;

/// The result of a write request: `accepted` readings are durable.
#[derive(Debug)]
pub struct Ack {
    /// Accepted readings, duplicates included.
    pub accepted: usize,
    pub rejected: Rejected,
    /// Where the accepted readings are durable.
    pub level: AckLevel,
    /// Warnings about quotas that are nearly used up, timestamps that look wrong, and readings that are not as their kind says.
    pub warnings: Vec<String>,
}

/// The parameters of one write request.
#[derive(Debug, Clone, Copy)]
pub struct Arrival<'a> {
    pub database: &'a str,
    /// The unit of integer timestamps.
    pub precision: Precision,
    /// Whether the sender declared that unit, or it is a default.
    pub declared: bool,
    /// When it was received, in nanoseconds since the epoch: the time of undated readings.
    pub received: i64,
    /// Whether good lines are kept when others are rejected.
    pub partial: bool,
    /// The ack level; `None` for `ingest.ack`.
    pub ack: Option<AckLevel>,
    /// Whether to wait for the WAL without the limit `ingest.ack_timeout`: the TCP sender resends only what was refused,
    /// and a timeout would not tell whether it was.
    pub patient: bool,
    /// What a retry of it has in common with it, if the sender says so.
    pub key: Option<RequestKey<'a>>,
    /// The sender.
    pub by: &'a Caller,
    /// Where the sender is.
    pub address: Option<IpAddr>,
}

impl Ingest {
    /// Writes a body of any format. `read` is called once per validation pass and parses from the start. On return the accepted readings are
    /// durable as the ack level promises.
    ///
    /// # Errors
    /// When some accepted readings are not durable, or not known to be.
    pub async fn take<'b, P: Points<'b>>(
        &self,
        arrival: Arrival<'_>,
        read: impl Fn(Limits) -> P,
        admission: BytesInFlight,
    ) -> Result<Ack, IngestError> {
        self.member.check()?;
        let name = self.resolve(arrival.database, None).await?;
        let arrival = Arrival { database: &name, ..arrival };
        let database = self.database(&name, arrival.by).await?;
        let ack = self.take_into(&database, arrival, read, admission).await;
        if !ack.as_ref().is_ok_and(|ack| ack.accepted > 0) {
            self.catalog.forget_unused(database);
        }
        ack
    }

    async fn take_into<'b, P: Points<'b>>(
        &self,
        database: &Arc<Database>,
        arrival: Arrival<'_>,
        read: impl Fn(Limits) -> P,
        mut admission: BytesInFlight,
    ) -> Result<Ack, IngestError> {
        let started = Instant::now();
        let quotas = QuotaCharge::of(arrival.by, database, Some(&self.metrics), started);
        quotas.admit()?;
        self.check_share(database)?;
        let judged = self.submitter.under_way.begin();
        let (mut validated, _in_flight) = match arrival.key {
            None => (self.validate(database, arrival, None, admission.size(), read).await?, None),
            Some(key) => {
                // In a box of its own: what it waits for would make the future of every request larger.
                let keyed = Box::pin(self.validate_keyed(database, arrival, key, admission.size(), read)).await?;
                (keyed.0, Some(keyed.1))
            }
        };
        // The batches stay in memory until they are acked, as the body does.
        admission.grow(validated.memory)?;
        quotas.check(&validated)?;
        let level = arrival.ack.unwrap_or(self.options.ingest.ack);
        self.metrics.suspect_timestamps.increment(validated.suspects.0 as u64);
        let mut warnings: Vec<String> = suspected(validated.suspects, arrival.precision).into_iter().collect();
        if let (count, Some(first)) = &validated.drifted {
            self.metrics.drifted.increment(*count as u64);
            warnings.push(drift_warning(*count, first));
        }
        self.metrics.unlike_readings.increment(validated.unlike.0 as u64);
        warnings.extend(unlike(&validated.unlike));
        let accepted = validated.accepted;
        let mut rejected = std::mem::take(&mut validated.rejected);
        for (reason, count) in &rejected.reasons {
            self.metrics.rejected(reason, *count);
        }
        if accepted > 0 {
            let submitted = self.submitter.submit(database, &arrival, validated, judged, admission, level).await;
            // Readings that are not kept are not charged: the sender sends them again.
            if matches!(submitted, Ok(()) | Err(IngestError::StoreTimeout { .. })) {
                quotas.settle(accepted, &mut warnings);
            }
            submitted?;
        }
        self.rejections.note(&arrival, &mut rejected);
        let ack = Ack { accepted, rejected, level, warnings };
        self.metrics.request_readings.record(u32::try_from(ack.accepted).unwrap_or(u32::MAX));
        self.metrics.acked(started.elapsed());
        Ok(ack)
    }

    /// Refuses writes to a database that the store fails on, once its unflushed readings exceed
    /// `ingest.database_share`.
    pub(super) fn check_share(&self, database: &Database) -> Result<(), IngestError> {
        let Some(mut failing) = self.flushes.failing.get(&database.name) else { return Ok(()) };
        // The share protects other databases: it is pointless without any, or while the store is away for all.
        if self.lookup.presence.is_away() || self.catalog.databases().len() < 2 {
            return Ok(());
        }
        failing.wal_bytes = self.wal_bytes(&failing);
        let percent = self.options.ingest.database_share;
        if failing.has_room(self.wal_budget(), self.options.memtable.max_bytes, percent) {
            return Ok(());
        }
        let FailingDatabase { name, cause, .. } = failing;
        Err(IngestError::DatabaseFailing { name: name.into(), percent, cause })
    }

    /// Validates all lines. If there are unknown sensors, looks them up and validates the body once more, which happens
    /// once per sensor. A request that must be accepted as a whole is first validated without claiming fields.
    pub(super) async fn validate<'b, P: Points<'b>>(
        &self,
        database: &Arc<Database>,
        arrival: Arrival<'_>,
        undated_from: Option<i64>,
        body_bytes: usize,
        read: impl Fn(Limits) -> P,
    ) -> Result<ValidatedBody, IngestError> {
        let terms = ValidationPass { undated_from, ..self.terms(&database.name, arrival, body_bytes) };
        let renames = self.retention.settings.now().renames(&database.name).cloned();
        let pass = |looked_up: bool, publish: bool| {
            let budget = self.bytes.available_permits();
            let pass = ValidationPass { looked_up, publish, budget, ..terms };
            let mut validator =
                Validator::new(database, &self.catalog, &self.options, pass, arrival.by, renames.clone());
            let mut points = read(self.options.reading_limits());
            while let Some(point) = points.next().filter(|_| validator.has_room()) {
                match point {
                    Ok(point) => validator.point(&point),
                    Err(rejection) => validator.reject(rejection),
                }
            }
            let validated = validator.close();
            match validated.memory {
                memory if memory <= budget => Ok(validated),
                // It would not fit even if there were no other request: retrying is useless.
                memory if memory + body_bytes > self.options.ingest.bytes_in_flight => {
                    let limit = self.options.ingest.bytes_in_flight;
                    Err(IngestError::TooLarge { limit, key: "ingest.bytes_in_flight" })
                }
                _ => Err(self.overloaded()),
            }
        };
        let mut validated = pass(false, arrival.partial)?;
        if !validated.unknown.is_empty() {
            // The result does not count as bytes in flight: free it before waiting for the lookup.
            let unknown = std::mem::take(&mut validated.unknown);
            drop(validated);
            let unknown = match &renames {
                Some(renames) => self.stored_names(&database.name, unknown, renames).await?,
                None => unknown,
            };
            self.lookup.look_up(database, unknown, &arrival.by.allowance().cloned()).await;
            validated = pass(true, arrival.partial)?;
        }
        if arrival.partial {
            return Ok(validated);
        }
        if validated.rejected.count == 0 {
            validated = pass(true, true)?;
        }
        if validated.rejected.count > 0 {
            validated.keep_nothing();
        }
        Ok(validated)
    }

    /// The parameters of the validation of a body that are the same in each pass.
    pub(super) fn terms(&self, database: &str, arrival: Arrival<'_>, body_bytes: usize) -> ValidationPass {
        let Arrival { received, precision, declared, .. } = arrival;
        let settings = self.retention.settings.now();
        let from = settings.accepted_from(database, received);
        let kept_from = from.map_or((i64::MIN, 0), |from| (from, settings.kept(database).ns()));
        let refuses_other_units = self.options.limits.undeclared_unit == UndeclaredUnit::Refuse && !declared;
        ValidationPass {
            received,
            kept_from,
            precision,
            refuses_other_units,
            keeps_drift: settings.drift(database) == Drift::Keep,
            looked_up: false,
            publish: false,
            budget: usize::MAX,
            body_bytes,
            undated_from: None,
        }
    }

    fn overloaded(&self) -> IngestError {
        IngestError::Overloaded { limit: self.options.ingest.bytes_in_flight, key: "ingest.bytes_in_flight" }
    }
}

/// The warning about values that are kept beside their fields.
fn drift_warning(count: usize, first: &str) -> String {
    format!("{count} values of another type than their field's are kept beside it, such as {first:?} (ingest.drift)")
}

/// The warning about readings that are not as the kinds of their sensors say.
pub(super) fn unlike((count, first): &(usize, Option<KindFault>)) -> Option<String> {
    let KindFault { kind, fault } = first.as_ref()?;
    let are = if *count == 1 { "reading is" } else { "readings are" };
    Some(format!("{count} {are} not as the kind {kind} says, the first one because field {fault}"))
}

/// The warning about timestamps that look as if they were in another unit than declared.
pub(super) fn suspected((count, unit): (usize, Option<&'static str>), declared: Precision) -> Option<String> {
    unit.map(|unit| format!("{count} timestamps look like {unit}, but {} was declared (precision=)", declared.name()))
}
