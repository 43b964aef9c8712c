//! The ingest service: builds the parts of the ingest path and passes requests through them.

mod by_value;
mod databases;
mod drain;
mod explain;
mod listing;
mod mappings;
mod meta;
mod policies;
mod rename;
mod retry;
mod start;
#[cfg(test)]
mod tests;
mod write;

pub use self::databases::check_database_name;
pub use self::explain::{Explanation, LINES_EXPLAINED};
pub(crate) use self::listing::merge_sensors;
pub use self::mappings::MappingRefusal;
pub use self::meta::{MetaArrival, MetaOutcome, MetaRefusal, MetaRequest, MetaUpdate};

use self::mappings::ParsedMappings;
use self::meta::MetaTurns;
pub use self::policies::{PolicyError, PolicyTerms, SetSettings, SettingChange, check_new_name};
pub use self::rename::RenameRefusal;
pub use self::retry::{FirstTime, Retry};
pub use self::write::{Ack, Arrival, Turn};

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::access::Caller;
use crate::bucket::settings::policy_database;
use crate::buffer::deleter::Deleter;
use crate::buffer::dispatch::Dispatch;
use crate::buffer::flush::failing::FailingDatabase;
use crate::buffer::flush::task::FlushContext;
use crate::catalog::Catalog;
use crate::catalog::lookup::SensorLookup;
use crate::clock::ClockDoubt;
use crate::config::Settings;
use crate::ingest::admission::bytes_in_flight::BytesInFlight;
use crate::ingest::admission::submit::{Deleted, DeletionWait, Submitter};
use crate::ingest::error::{FLUSH_DEADLINE, IngestError};
use crate::ingest::rejections::Rejections;
use crate::ingest::request_keys::RequestKeys;
use crate::members::member::Member;
use crate::members::positions::Lag;
use crate::members::retention::Retention;
use crate::reading::Sensor;
use crate::store::MergedView;
use crate::telemetry::Metrics;

/// The ingest service. It takes writes, deletions and changes of metadata and settings.
pub struct Ingest {
    pub(crate) options: Arc<Settings>,
    pub(crate) store: Arc<MergedView>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) lookup: SensorLookup,
    pub(crate) submitter: Arc<Submitter>,
    pub(crate) retention: Arc<Retention>,
    pub(crate) dispatch: Arc<Dispatch>,
    pub(crate) flushes: Arc<FlushContext>,
    pub(crate) rejections: Arc<Rejections>,
    request_keys: RequestKeys,
    mappings: ParsedMappings,
    bytes: Arc<Semaphore>,
    metrics: Metrics,
    pub(crate) member: Arc<Member>,
    pub(crate) deleter: Arc<Deleter>,
    /// Serialize the metadata changes of each database: held from the read of the stored metadata until the change is
    /// logged.
    meta_turns: MetaTurns,
    tasks: Vec<JoinHandle<()>>,
}

impl std::fmt::Debug for Ingest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ingest").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Drop for Ingest {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Ingest {
    /// Registers with the other instances of the store. Waits at most `longest`.
    pub async fn join(&self, longest: Duration) {
        self.member.join(longest).await;
        // Read the settings before the first write, because they determine its retention policy.
        if !matches!(tokio::time::timeout(longest, self.retention.refresh()).await, Ok(Ok(_))) {
            tracing::warn!("cannot read the settings of databases; the last known ones apply until the store answers");
        }
    }

    /// Returns the lag of the store behind the WAL.
    #[must_use]
    pub fn lag(&self) -> Lag {
        self.dispatch.positions.lag()
    }

    /// Returns the databases that the store fails on while it accepts others, by name.
    #[must_use]
    pub fn failing(&self) -> Vec<FailingDatabase> {
        let mut failing = self.flushes.failing.list();
        failing.iter_mut().for_each(|failing| failing.wal_bytes = self.wal_bytes(failing));
        failing
    }

    /// Returns the bytes of the WAL from the oldest unflushed reading of the database on.
    fn wal_bytes(&self, failing: &FailingDatabase) -> u64 {
        failing.first.map_or(0, |first| self.submitter.wal.pinned_bytes(first))
    }

    /// Returns the maximum bytes of the WAL on its disk (`wal.budget_bytes`).
    #[must_use]
    pub fn wal_budget(&self) -> u64 {
        self.options.wal.budget_bytes as u64
    }

    /// Returns the reason for which all writes are refused at present, if there is one.
    #[must_use]
    pub fn refusal(&self) -> Option<String> {
        let Some(cause) = self.submitter.wal.stats().unwritable else {
            return self.member.check().err().map(|error| error.to_string());
        };
        Some(format!("the WAL in {} is not writable: {cause}", self.options.wal_dir().display()))
    }

    /// Returns the reason for which nothing expires at present, if there is one.
    #[must_use]
    pub fn clock_doubt(&self) -> Option<ClockDoubt> {
        self.member.clock.trusted_ns().err()
    }

    /// Returns an empty reservation of bytes in flight for a sender.
    #[must_use]
    pub fn admission(&self, sender: &Caller) -> BytesInFlight {
        BytesInFlight {
            permit: None,
            bytes: self.bytes.clone(),
            limit: self.options.ingest.bytes_in_flight,
            in_flight: self.metrics.bytes_in_flight.clone(),
            sender: sender.allowance().cloned(),
        }
    }

    /// Checks that all deletions of a statement can be logged, before any of them is. Each item has the database, the
    /// range in nanoseconds, and the bytes of the statement.
    ///
    /// # Errors
    /// If the registry has no room to remember them, or if one cuts an hour of which only summaries are left.
    pub fn check_deletions<'d>(
        &self,
        deletions: impl Iterator<Item = (&'d str, &'d Range<i64>, usize)>,
    ) -> Result<(), IngestError> {
        let mut count = 0;
        let mut statement_bytes = 0;
        for (database, range, bytes) in deletions {
            self.retention.check_deletion(database, range)?;
            count += 1;
            statement_bytes += bytes;
            self.submitter.check_room(database, count, statement_bytes)?;
        }
        Ok(())
    }

    /// Deletes the readings of `sensors` in a range of nanoseconds, and the sensors that have none left. A concurrent
    /// write is ordered either before or after the deletion. See [`DeletionWait`].
    ///
    /// `statement` lets other instances find the sensors that this one does not know.
    ///
    /// # Errors
    /// If the deletion is not complete in time. A deletion that is in the WAL by then is carried out later.
    pub async fn delete(
        &self,
        database: &str,
        received: i64,
        sensors: &[Arc<Sensor>],
        statement: &str,
        range: Range<i64>,
        wait: DeletionWait,
    ) -> Result<Deleted, IngestError> {
        self.retention.check_deletion(database, &range)?;
        self.submitter.delete(database, received, sensors, statement, range, wait).await
    }

    /// Deletes a database with its readings, sensors, settings and retention policies.
    ///
    /// # Errors
    /// If the deletion is not complete within `timeout`. A deletion that is in the WAL by then is carried out later.
    pub async fn drop_database(&self, database: &str, received: i64, timeout: Duration) -> Result<(), IngestError> {
        // If the store is away, log the drop with the settings known here. It is carried out later.
        let settings = self.settings_now().await.unwrap_or_else(|_| self.retention.settings.now());
        let policies = settings.policies(database).map(|(policy, _)| policy_database(database, policy));
        let mut dropped = Ok(());
        for name in policies.chain([database.to_owned()]) {
            match self.drop_one(&name, received, timeout).await {
                // This drop is in the WAL. Log the others too before failing.
                Err(error @ IngestError::DeletionTimeout(_)) => dropped = Err(error),
                other => other?,
            }
        }
        dropped
    }

    /// Flushes everything that is acked by now, and waits until the store has it.
    ///
    /// # Errors
    /// If that takes longer than `timeout`.
    pub async fn flush(&self, timeout: Duration) -> Result<(), IngestError> {
        let late = || IngestError::StoreTimeout { waited: timeout, key: FLUSH_DEADLINE };
        let others = async {
            match self.submitter.owners.get() {
                Some(owners) => owners.flush_others(timeout).await,
                None => true,
            }
        };
        let (own, others) = tokio::join!(self.flush_own(timeout), others);
        own.and_then(|()| others.then_some(()).ok_or_else(late))
    }

    /// As [`Ingest::flush`], without the other instances of a cluster.
    ///
    /// # Errors
    /// The same.
    pub async fn flush_own(&self, timeout: Duration) -> Result<(), IngestError> {
        let through = self.dispatch.positions.make_due();
        self.dispatch.wake();
        let flushed = self.dispatch.positions.wait_until_flushed(through);
        tokio::time::timeout(timeout, flushed)
            .await
            .map_err(|_| IngestError::StoreTimeout { waited: timeout, key: FLUSH_DEADLINE })
    }
}
