//! Deletes expired readings as if a client had sent `DELETE WHERE time < …`. The deletion is logged and remembered in
//! the registry, so every instance hides the readings at once. The job `sweep` repeats the deletion once no older
//! reading can arrive. One instance runs this for all, once per day or hour of the wall clock. Timestamps of readings
//! do not matter, so a reading from the future does not cause an expiry.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::job::{Job, JobError, Run};
use crate::bucket::settings::{ExpiredReadings, Settings};
use crate::bucket::{DatabaseSettings, Keep, StorageError};
use crate::faults;
use crate::ingest::IngestError;
use crate::ingest::admission::submit::{DeletionWait, Submitter};
use crate::members::retention::{EXPIRY, Retention};
use crate::reading::duration::show_duration;
use crate::reading::stamp::first_stamp;
use crate::reading::time::{MILLI_NS, TIMESTAMP_MIN};

/// Time for which a retention must be known before readings expire by it. By then, every instance that reaches the
/// store refuses older readings, so the deletion comes after the last accepted one.
const KNOWN_FOR: Duration = Duration::from_secs(3);
/// Maximum wait for one deletion of expired readings, which is in the WAL by then.
const DELETE_TIMEOUT: Duration = Duration::from_secs(60);
/// The wait before another attempt to expire readings that could not expire yet.
const RETRY: Duration = Duration::from_secs(1);
/// The interval of checks that earlier requests are logged.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The retention of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct KeptTimes {
    readings: Keep,
    summaries: Keep,
}

/// A retention, with the time at which this instance learnt it.
#[derive(Debug, Clone, Copy)]
struct KnownRetention {
    kept: KeptTimes,
    learnt: Instant,
}

/// The result of an expiry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExpiryOutcome {
    Complete,
    /// Another attempt is needed: the retention is not known by all instances yet, or readings that were validated
    /// earlier are not in the WAL.
    Retry,
}

/// The job that deletes expired readings.
pub struct Expire {
    retention: Arc<Retention>,
    submitter: Arc<Submitter>,
    /// The retention by database.
    known: HashMap<String, KnownRetention>,
    /// The retention by database that the last run applied.
    applied: Option<BTreeMap<String, KeptTimes>>,
}

impl Job for Expire {
    const NAME: &'static str = "expire";

    fn interval(&self) -> Option<Duration> {
        Some(self.retention.options.retention.interval)
    }

    fn is_due(&mut self) -> bool {
        self.applied.as_ref().is_none_or(|applied| *applied != kept_by_database(&self.retention.settings.now()))
    }

    async fn run(&mut self, run: &Run) -> Result<Option<Duration>, JobError> {
        let retention = self.retention.clone();
        let Retention { member, store, .. } = &*retention;
        self.applied = Some(kept_by_database(&retention.settings.now()));
        if !retention.is_read() || !member.registry_view.is_known() {
            return Ok(Some(RETRY));
        }
        if !member.leads().await? {
            return Ok(None);
        }
        // Do not expire anything by a wrong clock, because it would be lost on every instance.
        let Ok(now) = member.clock.trusted_ns() else { return Ok(Some(RETRY)) };
        let databases = store.raw().databases().await?;
        self.known.retain(|name, _| databases.contains(name));
        let mut next = None;
        let mut failed = None;
        for database in databases {
            let began = Instant::now();
            match self.expire_in(&database, now, run).await {
                Ok(ExpiryOutcome::Complete) => {}
                Ok(ExpiryOutcome::Retry) => next = Some(RETRY),
                // A failure in one database does not stop the others.
                Err(error) => {
                    tracing::debug!(%database, %error, "cannot delete expired readings");
                    failed = Some(error);
                }
            }
            run.pause(began).await;
        }
        failed.map_or(Ok(next), |error| Err(error.into()))
    }
}

impl Expire {
    #[must_use]
    pub fn new(retention: Arc<Retention>, submitter: Arc<Submitter>) -> Self {
        Self { retention, submitter, known: HashMap::new(), applied: None }
    }

    /// Returns true if every instance knows this retention of a database by now.
    fn is_known_by_all(&mut self, database: &str, kept: KeptTimes) -> bool {
        let new = KnownRetention { kept, learnt: Instant::now() };
        let known = self.known.entry(database.to_owned()).or_insert(new);
        if known.kept != kept {
            *known = new;
        }
        !self.retention.store.raw().has_other_writers() || known.learnt.elapsed() >= KNOWN_FOR
    }

    async fn expire_in(&mut self, database: &str, now: i64, run: &Run) -> Result<ExpiryOutcome, IngestError> {
        let settings = self.retention.settings.now();
        let kept = KeptTimes {
            readings: settings.readings_retention(database),
            summaries: settings.summaries_retention(database),
        };
        if !self.is_known_by_all(database, kept) {
            return Ok(ExpiryOutcome::Retry);
        }
        let present = settings.for_database(database);
        let mut done = ExpiryOutcome::Complete;
        if let Some(before) = settings.summaries_only_cutoff(database, now) {
            done = self.expire_readings(database, &present, before, now).await?;
        }
        let Some(cutoff) = settings.cutoff(database, now) else { return Ok(done) };
        // Ignore an earlier cutoff in the future, which comes from a wrong clock.
        if present.expired.is_some_and(|expired| (cutoff..=now).contains(&expired)) {
            return Ok(done);
        }
        faults::point("before_expiry");
        faults::halt_at("expiring").await;
        // Read the settings again, because a client may have been told that more is kept.
        if !has_same_retention(&present, &self.retention.refresh().await?.for_database(database)) {
            return Ok(ExpiryOutcome::Retry);
        }
        let expired = TIMESTAMP_MIN..cutoff;
        let wait = DeletionWait { longest: DELETE_TIMEOUT, for_removal: Duration::ZERO };
        match self.submitter.delete(database, now, &[], EXPIRY, expired, wait).await {
            // After a timeout, the deletion is in the WAL and is carried out later.
            Ok(_) | Err(IngestError::DeletionTimeout(_)) => {}
            Err(error) => return Err(error),
        }
        faults::point("after_expiry");
        // Do not note the cutoff if the retention has changed in the meantime: the next run applies the new one.
        let note = |settings: &mut DatabaseSettings| {
            if has_same_retention(&present, settings) {
                settings.expired = Some(cutoff);
            }
        };
        self.retention.change(database, note).await?;
        run.count("deletions", 1);
        let kept = Duration::from_nanos(kept.summaries.ns().unsigned_abs());
        tracing::info!(%database, kept = show_duration(kept), before = cutoff, "readings expired");
        Ok(done)
    }

    /// Notes that readings before a time have expired while their summaries stay. From then on no instance accepts or
    /// shows such readings, and the job `strip` removes them from the store. Does nothing if the retention is no longer
    /// that of `present`.
    async fn expire_readings(
        &self,
        database: &str,
        present: &DatabaseSettings,
        cutoff: i64,
        now: i64,
    ) -> Result<ExpiryOutcome, StorageError> {
        let is_new = |settings: &DatabaseSettings| settings.expired_readings.is_none_or(|gone| gone.before < cutoff);
        // Ignore a day in the future, which comes from a wrong clock.
        if cutoff > now || !is_new(present) {
            return Ok(ExpiryOutcome::Complete);
        }
        faults::point("before_expired_readings");
        faults::halt_at("expiring").await;
        let Retention { member, store, .. } = &*self.retention;
        if !store.raw().has_other_writers() && !self.are_earlier_logged().await {
            tracing::debug!(%database, "readings cannot expire before earlier requests are in the WAL; it is tried again");
            return Ok(ExpiryOutcome::Retry);
        }
        // Other instances refuse readings by their own clocks, and learn of this expiry with their next refresh.
        let margin =
            if store.raw().has_other_writers() { member.clock.max_offset() + KNOWN_FOR } else { Duration::ZERO };
        let millis = u64::try_from(now / MILLI_NS).unwrap_or_default();
        let latest = first_stamp(millis.saturating_add(u64::try_from(margin.as_millis()).unwrap_or(u64::MAX >> 20)));
        let stamp = latest.max(member.stamp_now());
        let note = |settings: &mut DatabaseSettings| {
            if is_new(settings) && has_same_retention(present, settings) {
                let done = settings.expired_readings.map_or(TIMESTAMP_MIN, |gone| gone.done);
                settings.expired_readings = Some(ExpiredReadings { before: cutoff, stamp, done });
            }
        };
        self.retention.change(database, note).await?;
        faults::point("after_expired_readings");
        Ok(ExpiryOutcome::Complete)
    }

    /// Waits until requests that were validated earlier are in the WAL, because they may have readings that are refused
    /// by now. Returns false on a timeout, because the WAL may be full.
    async fn are_earlier_logged(&self) -> bool {
        let in_validation = &self.submitter.in_validation;
        let began = Instant::now();
        in_validation.end_period();
        while !in_validation.are_earlier_done() {
            if began.elapsed() >= self.submitter.ack_timeout {
                return false;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        true
    }
}

fn has_same_retention(one: &DatabaseSettings, other: &DatabaseSettings) -> bool {
    one.readings == other.readings && one.summaries == other.summaries
}

fn kept_by_database(settings: &Settings) -> BTreeMap<String, KeptTimes> {
    let kept = |name: &str| KeptTimes {
        readings: settings.readings_retention(name),
        summaries: settings.summaries_retention(name),
    };
    settings.by_database.keys().map(|name| (name.clone(), kept(name))).collect()
}
