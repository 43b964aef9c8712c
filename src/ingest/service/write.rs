//! Write requests: validates the lines of a body, charges quotas, and submits the accepted readings to the WAL.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

use super::Ingest;
use crate::access::Caller;
use crate::bucket::Renames;
use crate::bucket::settings::Drift;
use crate::buffer::flush::failing::FailingDatabase;
use crate::catalog::Database;
use crate::clock::expiry_ns;
use crate::config::{AckLevel, UndeclaredUnit};
use crate::faults;
use crate::ingest::admission::bytes_in_flight::BytesInFlight;
use crate::ingest::admission::quota::QuotaCharge;
use crate::ingest::admission::validate::{RejectionSummary, Tally, ValidatedBody, ValidationPass, Validator};
use crate::ingest::error::IngestError;
use crate::ingest::service::retry::Retry;
use crate::kinds::KindFault;
use crate::lanes::{SMALL_BODY_BYTES, Slice};
use crate::reading::time::rfc3339;
use crate::reading::{Limits, Precision};
use crate::wire::Points;

/// Lines of a large body that are validated without a pause.
const LINES_PER_SLICE: usize = 16;

/// The result of a write request, whose accepted readings are durable.
#[derive(Debug)]
pub struct Ack {
    /// The number of accepted readings, including duplicates.
    pub accepted: usize,
    pub rejected: RejectionSummary,
    /// The ack level that the accepted readings have reached.
    pub level: AckLevel,
    /// Warnings about quotas that are nearly used up, suspicious timestamps, and readings that do not conform to their
    /// kind.
    pub warnings: Vec<String>,
}

/// The parameters of one write request.
#[derive(Debug, Clone, Copy)]
pub struct Arrival<'a> {
    pub database: &'a str,
    /// The unit of integer timestamps.
    pub precision: Precision,
    /// True if the sender declared that unit, false if it is the default.
    pub is_precision_declared: bool,
    /// The time of receipt, in nanoseconds since the epoch. Undated readings get this time.
    pub received: i64,
    /// Keep the accepted lines of a body that also has rejected ones.
    pub is_partial: bool,
    /// The ack level. `None` stands for `ingest.ack`.
    pub ack: Option<AckLevel>,
    /// Wait for the WAL without the limit `ingest.ack_timeout`. TCP needs this, because it resends refused lines, and a
    /// timeout does not tell whether they were refused.
    pub is_patient: bool,
    /// A retry of this body gives its undated readings the same times.
    pub retry: Option<Retry<'a>>,
    /// The sender.
    pub caller: &'a Caller,
    /// The address of the sender.
    pub address: Option<IpAddr>,
    /// The mapping of a device's messages, if the body has such.
    pub mapping: Option<&'a str>,
    /// The topic of the messages.
    pub topic: Option<&'a str>,
    /// The turn of the body among others whose order counts.
    pub turn: Option<&'a Turn>,
}

/// A turn, which ends when the body is on its way into the WAL: later bodies come after it from then on.
#[derive(Debug)]
pub struct Turn(Mutex<Option<OwnedMutexGuard<()>>>);

impl Turn {
    #[must_use]
    pub fn new(guard: OwnedMutexGuard<()>) -> Self {
        Self(Mutex::new(Some(guard)))
    }

    pub(in crate::ingest) fn end(&self) {
        drop(self.0.lock().take());
    }
}

impl Ingest {
    /// Writes a body of any format. `read` is called once per validation pass, and parses the body from its start. On
    /// return, the accepted readings have reached the ack level.
    ///
    /// # Errors
    /// If some accepted readings are not durable, or not known to be durable.
    pub async fn take<'b, P: Points<'b> + Send>(
        &self,
        arrival: Arrival<'_>,
        read: impl Fn(Limits) -> P + Send + Sync,
        admission: BytesInFlight,
    ) -> Result<Ack, IngestError> {
        self.member.check()?;
        let name = self.resolve(arrival.database, None).await?;
        let arrival = Arrival { database: &name, ..arrival };
        let database = self.database(&name, arrival.caller).await?;
        let ack = self.take_into(&database, arrival, read, admission).await;
        if !ack.as_ref().is_ok_and(|ack| ack.accepted > 0) {
            self.catalog.forget_unused(database);
        }
        ack
    }

    async fn take_into<'b, P: Points<'b> + Send>(
        &self,
        database: &Arc<Database>,
        arrival: Arrival<'_>,
        read: impl Fn(Limits) -> P + Send + Sync,
        mut admission: BytesInFlight,
    ) -> Result<Ack, IngestError> {
        let started = Instant::now();
        let quotas = QuotaCharge::new(arrival.caller, database, Some(&self.metrics), started);
        quotas.admit()?;
        self.check_share(database)?;
        let guard = self.submitter.in_validation.begin();
        let (mut validated, _begun) = match arrival.retry {
            None => (self.validate(database, arrival, None, admission.size(), read).await?, None),
            Some(retry) => {
                // Box the future, because it would make the future of every request larger.
                let retried = Box::pin(self.validate_retried(database, arrival, retry, admission.size(), read)).await?;
                (retried.validated, Some(retried.begun))
            }
        };
        // The batches, like the body, stay in memory until they are acked.
        admission.grow(validated.memory)?;
        quotas.check(&validated)?;
        let level = arrival.ack.unwrap_or(self.options.ingest.ack);
        self.metrics.suspect_timestamps.increment(validated.suspect_units.count as u64);
        let mut warnings: Vec<String> = time_warnings(&validated, arrival.precision).collect();
        if validated.early_times.count > 0 {
            let count = validated.early_times.count as u64;
            self.metrics.early.increment(count);
            self.metrics.recent.note_early(arrival.caller.name(), count);
        }
        if let Some(warning) = drift_warning(&validated.drifted_values) {
            self.metrics.drifted.increment(validated.drifted_values.count as u64);
            warnings.push(warning);
        }
        self.metrics.unlike_readings.increment(validated.kind_faults.count as u64);
        warnings.extend(kind_warning(&validated.kind_faults));
        let accepted = validated.accepted;
        let mut rejected = std::mem::take(&mut validated.rejected);
        for (reason, count) in &rejected.reasons {
            self.metrics.count_rejected(reason, *count);
        }
        if accepted > 0 {
            let submitted = self.submitter.submit(database, &arrival, validated, guard, admission, level).await;
            // Do not charge readings that are not durable, because the sender sends them again.
            if matches!(submitted, Ok(()) | Err(IngestError::StoreTimeout { .. })) {
                quotas.settle(accepted, &mut warnings);
            }
            submitted?;
        }
        self.rejections.note(&arrival, &mut rejected);
        let ack = Ack { accepted, rejected, level, warnings };
        self.metrics.request_readings.record(u32::try_from(ack.accepted).unwrap_or(u32::MAX));
        self.metrics.note_ack(started.elapsed());
        Ok(ack)
    }

    /// Refuses writes to a database that the store fails on, once its unflushed readings exceed
    /// `ingest.database_share`.
    pub(super) fn check_share(&self, database: &Database) -> Result<(), IngestError> {
        let Some(mut failing) = self.flushes.failing.get(&database.name) else { return Ok(()) };
        // The share protects other databases. It is pointless if there are none, or if the store is away altogether.
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
    /// once in the life of a sensor. A request that must be accepted as a whole is first validated without claiming
    /// fields.
    pub(super) async fn validate<'b, P: Points<'b> + Send>(
        &self,
        database: &Arc<Database>,
        arrival: Arrival<'_>,
        undated_from: Option<i64>,
        body_bytes: usize,
        read: impl Fn(Limits) -> P + Send + Sync,
    ) -> Result<ValidatedBody, IngestError> {
        let parameters = ValidationPass { undated_from, ..self.pass_parameters(&database.name, arrival, body_bytes) };
        let renames = self.retention.settings.now().renames(&database.name).cloned();
        let first = ValidationPass { claims_fields: arrival.is_partial, ..parameters };
        let second = ValidationPass { is_lookup_done: true, ..first };
        let mut validated = self.pass(database, first, arrival.caller, &renames, &read).await?;
        if !validated.unknown.is_empty() {
            // Free the result before the lookup, because it does not count as bytes in flight.
            let unknown = std::mem::take(&mut validated.unknown);
            drop(validated);
            let unknown = match &renames {
                Some(renames) => self.stored_names(&database.name, unknown, renames).await?,
                None => unknown,
            };
            self.lookup.look_up(database, unknown, &arrival.caller.allowance().cloned()).await;
            validated = self.pass(database, second, arrival.caller, &renames, &read).await?;
        }
        if arrival.is_partial {
            return Ok(validated);
        }
        if validated.rejected.count == 0 {
            let third = ValidationPass { claims_fields: true, ..second };
            validated = self.pass(database, third, arrival.caller, &renames, &read).await?;
        }
        if validated.rejected.count > 0 {
            validated.discard_readings();
        }
        Ok(validated)
    }

    /// Validates all lines once.
    async fn pass<'b, P: Points<'b> + Send>(
        &self,
        database: &Arc<Database>,
        pass: ValidationPass,
        caller: &Caller,
        renames: &Option<Renames>,
        read: impl Fn(Limits) -> P + Send + Sync,
    ) -> Result<ValidatedBody, IngestError> {
        let budget = self.bytes.available_permits();
        let body_bytes = pass.body_bytes;
        let pass = ValidationPass { budget, ..pass };
        let mut validator = Validator::new(database, &self.catalog, &self.options, pass, caller, renames.clone());
        let mut points = read(self.options.reading_limits());
        let validated = if body_bytes <= SMALL_BODY_BYTES && !P::IS_SLOW {
            validator.validate_lines(&mut points, usize::MAX);
            validator.finish()
        } else {
            // Boxed, because it would make the futures of small requests larger.
            Box::pin(validate_in_slices(validator, points)).await
        };
        if validated.memory <= budget {
            return Ok(validated);
        }
        let limit = self.options.ingest.bytes_in_flight;
        let key = "ingest.bytes_in_flight";
        // The request does not fit even if it is the only one, so a retry is useless.
        if validated.memory + body_bytes > limit {
            return Err(IngestError::TooLarge { limit, key });
        }
        Err(IngestError::Overloaded { limit, key })
    }

    /// Returns the parameters that are the same for all validation passes over a body.
    pub(super) fn pass_parameters(&self, database: &str, arrival: Arrival<'_>, body_bytes: usize) -> ValidationPass {
        let Arrival { received, precision, is_precision_declared, .. } = arrival;
        let settings = self.retention.settings.now();
        let retention_start = settings.accepted_start(database, expiry_ns());
        let rejects_other_units =
            self.options.limits.undeclared_unit == UndeclaredUnit::Refuse && !is_precision_declared;
        ValidationPass {
            received,
            retention_start: retention_start.unwrap_or(i64::MIN),
            retention_ns: retention_start.map_or(0, |_| settings.readings_retention(database).ns()),
            precision,
            rejects_other_units,
            keeps_drift: settings.drift(database) == Drift::Keep,
            is_lookup_done: false,
            claims_fields: false,
            budget: usize::MAX,
            body_bytes,
            undated_from: None,
        }
    }
}

/// Validates all lines, and lets other tasks run in between. The sensors are locked for a few lines at a time, because
/// small bodies wait for them in another lane.
async fn validate_in_slices<'b, P: Points<'b> + Send>(mut validator: Validator<'_>, mut points: P) -> ValidatedBody {
    let lines = if P::IS_SLOW { 1 } else { LINES_PER_SLICE };
    let mut slice = Slice::begin();
    while validator.validate_lines(&mut points, lines) {
        faults::point("large_body");
        slice.pause().await;
    }
    validator.finish()
}

/// Returns the warning about values that are kept in drift fields.
fn drift_warning(drifted_values: &Tally<String>) -> Option<String> {
    let Tally { count, first } = drifted_values;
    let first = first.as_ref()?;
    Some(format!(
        "{count} values of another type than their field's are kept beside it, such as {first:?} (ingest.drift)"
    ))
}

/// Returns the warning about readings that do not conform to the kinds of their sensors.
pub(super) fn kind_warning(kind_faults: &Tally<KindFault>) -> Option<String> {
    let KindFault { kind, fault } = kind_faults.first.as_ref()?;
    let count = kind_faults.count;
    let are = if count == 1 { "reading is" } else { "readings are" };
    Some(format!("{count} {are} not as the kind {kind} says, the first one because field {fault}"))
}

/// Returns the warnings about timestamps that look as if they were in another unit than declared, or are implausible.
pub(super) fn time_warnings(validated: &ValidatedBody, declared: Precision) -> impl Iterator<Item = String> {
    let ValidatedBody { suspect_units, early_times, .. } = validated;
    let unit = suspect_units.first.map(|unit| {
        let count = suspect_units.count;
        format!("{count} timestamps look like {unit}, but {} was declared (precision=)", declared.name())
    });
    let early = early_times.first.map(|first| {
        let count = early_times.count;
        let first = rfc3339(first);
        format!("{count} timestamps are before 2000, the first is {first}: a device without a clock sends no timestamp")
    });
    unit.into_iter().chain(early)
}
