//! Deletes what has expired, as if a client had sent `DELETE WHERE time < …`: the deletion is logged, remembered in the
//! registry and thereby hidden at once by every instance, and carried out there once no older reading can arrive any more
//! (the job `sweep`). One instance does it for all, once per day or hour by the wall clock, never by the time
//! of a reading: one from the future expires nothing.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::job::{Job, JobError, Run};
use crate::bucket::settings::{ExpiredReadings, Settings};
use crate::bucket::{DatabaseSettings, Keep, StorageError};
use crate::faults;
use crate::ingest::IngestError;
use crate::ingest::admission::submit::Submitter;
use crate::members::retention::{EXPIRY, Retention};
use crate::reading::duration::show_duration;
use crate::reading::stamp::first_of;
use crate::reading::time::{MILLI_NS, TIMESTAMP_MIN};

/// So long a retention must be known before readings expire by it: every instance that can reach the store refuses older
/// ones by then, so that the deletion comes after those that were still accepted.
const KNOWN_FOR: Duration = Duration::from_secs(3);
/// How long one deletion of expired readings is waited for. It is in the log by then.
const DELETED_WITHIN: Duration = Duration::from_secs(60);
/// The wait before another look at what could not expire yet.
const AGAIN: Duration = Duration::from_secs(1);
/// How often is asked whether earlier requests are logged.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// How long a database keeps readings and summaries, and since when this process knows that.
type KnownSince = ((Keep, Keep), Instant);
/// How long databases keep readings and summaries.
type KeptBy = BTreeMap<String, (Keep, Keep)>;

/// How far what has expired was deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expired {
    All,
    /// The rest is not known by all instances yet, readings validated before are not in the log, or nothing is known at all.
    Some,
}

/// The job that deletes what has expired.
pub struct Expire {
    retention: Arc<Retention>,
    submitter: Arc<Submitter>,
    /// How long each database keeps readings and summaries, and since when this process knows that.
    known: HashMap<String, KnownSince>,
    /// What the last run went by.
    acted_on: Option<KeptBy>,
}

impl Job for Expire {
    const NAME: &'static str = "expire";

    fn interval(&self) -> Option<Duration> {
        Some(self.retention.options.retention.interval)
    }

    fn is_due(&mut self) -> bool {
        self.acted_on.as_ref().is_none_or(|kept| *kept != kept_by(&self.retention.settings.now()))
    }

    async fn run(&mut self, run: &Run) -> Result<Option<Duration>, JobError> {
        let retention = self.retention.clone();
        let Retention { member, store, .. } = &*retention;
        self.acted_on = Some(kept_by(&retention.settings.now()));
        if !retention.is_read() || !member.registry_view.is_known() {
            return Ok(Some(AGAIN));
        }
        if !member.leads().await? {
            return Ok(None);
        }
        // What expires by a wrong time is gone, on every instance.
        let Ok(now) = member.clock.trusted_ns(store.raw().has_other_writers()) else { return Ok(None) };
        let databases = store.raw().databases().await?;
        self.known.retain(|name, _| databases.contains(name));
        let mut next = None;
        let mut failed = None;
        for database in databases {
            let began = Instant::now();
            match self.expire_in(&database, now, run).await {
                Ok(Expired::All) => {}
                Ok(Expired::Some) => next = Some(AGAIN),
                // A failure in one database does not stop the others.
                Err(error) => {
                    tracing::debug!(%database, %error, "expired readings could not be deleted");
                    failed = Some(error);
                }
            }
            run.rest(began).await;
        }
        failed.map_or(Ok(next), |error| Err(error.into()))
    }
}

impl Expire {
    #[must_use]
    pub fn new(retention: Arc<Retention>, submitter: Arc<Submitter>) -> Self {
        Self { retention, submitter, known: HashMap::new(), acted_on: None }
    }

    /// Whether every instance keeps a database's readings and summaries for so long by now.
    fn is_known_by_all(&mut self, database: &str, kept: (Keep, Keep)) -> bool {
        let now = Instant::now();
        let since = self.known.entry(database.to_owned()).or_insert((kept, now));
        if since.0 != kept {
            *since = (kept, now);
        }
        !self.retention.store.raw().has_other_writers() || since.1.elapsed() >= KNOWN_FOR
    }

    async fn expire_in(&mut self, database: &str, now: i64, run: &Run) -> Result<Expired, IngestError> {
        let settings = self.retention.settings.now();
        let (of_readings, kept) = (settings.kept(database), settings.summaries_kept(database));
        if !self.is_known_by_all(database, (of_readings, kept)) {
            return Ok(Expired::Some);
        }
        let held = settings.of(database);
        let mut done = Expired::All;
        if let Some(before) = settings.summaries_only_before(database, now) {
            done = self.expire_readings((database, &held), before, now).await?;
        }
        let Some(cutoff) = settings.gone_before(database, now) else { return Ok(done) };
        // A cutoff in the future is of a clock that was wrong.
        if held.expired.is_some_and(|expired| (cutoff..=now).contains(&expired)) {
            return Ok(done);
        }
        faults::point("before_expiry");
        faults::halt_at("expiring").await;
        // Whoever was answered that more is kept is right.
        if !keeps_as(&held, &self.retention.refresh().await?.of(database)) {
            return Ok(Expired::Some);
        }
        match self.submitter.delete(database, now, &[], EXPIRY, TIMESTAMP_MIN..cutoff, DELETED_WITHIN).await {
            // It is in the log and follows.
            Ok(()) | Err(IngestError::DeletionTimeout(_)) => {}
            Err(error) => return Err(error),
        }
        faults::point("after_expiry");
        // Not if somebody has changed the retention meanwhile: it begins anew then.
        let note = |now: &mut DatabaseSettings| {
            if keeps_as(&held, now) {
                now.expired = Some(cutoff);
            }
        };
        self.retention.change(database, note).await?;
        run.count("deletions", 1);
        let kept = Duration::from_nanos(kept.ns().unsigned_abs());
        tracing::info!(%database, kept = show_duration(kept), before = cutoff, "readings expired");
        Ok(done)
    }

    /// Notes that readings before a time have expired while their summaries stay. From then on no instance takes or shows any;
    /// the job `strip` removes them from the store. Not if somebody has changed the retention meanwhile, which `held` is.
    async fn expire_readings(
        &self,
        (database, held): (&str, &DatabaseSettings),
        before: i64,
        now: i64,
    ) -> Result<Expired, StorageError> {
        // A day in the future is of a clock that was wrong.
        let is_new = |held: &DatabaseSettings| held.expired_readings.is_none_or(|gone| gone.before < before);
        if before > now || !is_new(held) {
            return Ok(Expired::All);
        }
        faults::point("before_expired_readings");
        faults::halt_at("expiring").await;
        let Retention { member, store, .. } = &*self.retention;
        if !store.raw().has_other_writers() && !self.are_earlier_logged().await {
            tracing::debug!(%database, "readings expire once those that were checked before are in the log; it is tried again");
            return Ok(Expired::Some);
        }
        // Others refuse by their own clocks, and know of this after the next refresh.
        let margin =
            if store.raw().has_other_writers() { member.clock.max_offset() + KNOWN_FOR } else { Duration::ZERO };
        let millis = u64::try_from(now / MILLI_NS).unwrap_or_default();
        let latest = first_of(millis.saturating_add(u64::try_from(margin.as_millis()).unwrap_or(u64::MAX >> 20)));
        let stamp = latest.max(member.stamp_now());
        let note = |settings: &mut DatabaseSettings| {
            if is_new(settings) && keeps_as(held, settings) {
                let done = settings.expired_readings.map_or(TIMESTAMP_MIN, |gone| gone.done);
                settings.expired_readings = Some(ExpiredReadings { before, stamp, done });
            }
        };
        self.retention.change(database, note).await?;
        faults::point("after_expired_readings");
        Ok(Expired::All)
    }

    /// Waits until what was validated before is in the log: it may have readings that are refused by now. The log may be full, so
    /// this does not wait for ever; it is tried again at the next look.
    async fn are_earlier_logged(&self) -> bool {
        let in_validation = &self.submitter.in_validation;
        let began = Instant::now();
        in_validation.end_period();
        while !in_validation.are_earlier_done() {
            if began.elapsed() >= self.submitter.ack_timeout {
                return false;
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        true
    }
}

/// Whether a database's settings keep its readings and summaries for as long as others of it say.
fn keeps_as(one: &DatabaseSettings, other: &DatabaseSettings) -> bool {
    (one.readings, one.summaries) == (other.readings, other.summaries)
}

fn kept_by(settings: &Settings) -> KeptBy {
    let kept = |name: &String| (name.clone(), (settings.kept(name), settings.summaries_kept(name)));
    settings.by_database.keys().map(kept).collect()
}
