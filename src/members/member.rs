//! The task that keeps this WAL's entry in the registry up to date. It publishes the watermark, raises the floor,
//! learns of other instances' deletions, takes over the entries of earlier openings, and compares the clock with the
//! store's.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::cluster_registry::{ClusterChanges, ClusterRegistry};
use super::folder_mark::FolderMark;
use super::positions::WalPositions;
use super::registry_view::{FRESH, RegistryView};
use super::store_time::{note_registry_time, note_sealed_days};
use crate::bucket::deletions::RememberedDeletion;
use crate::bucket::registry::{MemberRegistry, RegistryEntry, settled_before};
use crate::bucket::store::WriteOutcome;
use crate::bucket::{HourVersions, StorageError, Store};
use crate::catalog::Catalog;
use crate::clock::{ClockSample, StampClock, wall_ms};
use crate::reading::duration::show_duration;
use crate::reading::stamp::{first_stamp, stamp_millis};
use crate::reading::{Sensor, Stamp};
use crate::telemetry::Metrics;
use crate::wal::Wal;

/// The time between two updates of the registry in a store that other instances share.
const BEAT: Duration = Duration::from_secs(1);
/// Interval of beats in a store that only this instance uses.
const BEAT_ALONE: Duration = Duration::from_secs(5);
/// Age of an entry above which its member counts as stopped or stalled.
const SILENCE: Duration = Duration::from_secs(15);
/// The number of attempts to change the registry against concurrent writers. Then the next beat tries again.
const ATTEMPTS_MAX: usize = 8;
/// The number of beats between two comparisons of the clock with the store's.
const CLOCK_BEATS: u64 = 10;
/// The number of samples per comparison.
const CLOCK_SAMPLES: usize = 3;
/// Maximum wait of a new member until the others have seen its entry. An instance that has not read the registry for
/// [`FRESH`] assumes that there are new members, so any longer wait is enough.
const SEEN_WAIT_MAX: Duration = Duration::from_millis(2_500);
const SEEN_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The reason why this instance must not ack now.
#[derive(Debug, Clone, thiserror::Error)]
pub enum MemberError {
    /// This instance is not yet in the registry, so the floor does not wait for its WAL.
    #[error(
        "this instance has not registered in MongoDB since it started; it accepts writes as soon as MongoDB answers: retry"
    )]
    NotJoined,
    /// The clock differs too much from the store's, so stamps of different instances cannot be compared.
    #[error(
        "this machine's clock is {offset_ms} ms from the store's, more than {} (clock.max_offset): set the clock",
        show_duration(*limit)
    )]
    Clock {
        /// Positive when the store's clock is ahead.
        offset_ms: i64,
        limit: Duration,
    },
    /// The WAL has stamps that the store's clock has not reached yet.
    #[error(
        "this machine's clock was fast while MongoDB was unreachable: the last stamps of this WAL are {} ahead of MongoDB's \
         clock, more than {} (clock.max_offset); wait until MongoDB's clock has caught up, or stop hourglass with everything \
         stored (exit status 0) and start it with a new data folder",
        show_duration(*ahead),
        show_duration(*limit)
    )]
    Ahead { ahead: Duration, limit: Duration },
}

/// The membership of this process in its store.
pub struct Member {
    pub store: Arc<dyn Store>,
    /// The WAL of the registry entry.
    pub log: Arc<Wal>,
    pub wal_id: u64,
    /// The id of this opening of the WAL.
    pub opening: u64,
    pub positions: Arc<WalPositions>,
    pub registry_view: Arc<RegistryView>,
    /// The source of stamps.
    pub clock: Arc<StampClock>,
    pub catalog: Arc<Catalog>,
    /// Versions of stored hours. All are outdated after a deletion by another instance.
    pub changes: Arc<HourVersions>,
    pub metrics: Metrics,
    /// `wal.horizon`: a WAL that has been silent for this long is dropped from the registry and no longer holds the
    /// floor.
    pub horizon: Duration,
    /// The last record of the WAL when it was opened.
    pub last: Stamp,
    /// The mark in the WAL's folder, which outlives the process.
    pub mark: FolderMark,
    /// Host and process id, for people who inspect the registry.
    pub host: String,
    /// Set once if there is a cluster.
    pub cluster: OnceLock<Arc<dyn ClusterRegistry>>,
}

/// The last beat of a member.
#[derive(Clone, PartialEq, Eq)]
struct MemberBeat {
    opening: u64,
    beat: u64,
}

/// State that one beat leaves for the next.
#[derive(Default)]
struct BeatState {
    beat: u64,
    /// The number of stored readings at the last beat.
    stored: u64,
    /// The error of the last update of the registry, if it failed.
    failure: Option<String>,
}

impl Member {
    /// Checks that this process may ack: the stamps of all instances are comparable, and the floor waits for this WAL.
    ///
    /// # Errors
    /// The reason why it must not ack now.
    pub fn check(&self) -> Result<(), MemberError> {
        let clock = &self.clock;
        if !clock.is_right() {
            return Err(MemberError::Clock { offset_ms: clock.offset_ms(), limit: clock.max_offset() });
        }
        let ahead = self.registry_view.wal_lead();
        if ahead > clock.max_offset() {
            return Err(MemberError::Ahead { ahead, limit: clock.max_offset() });
        }
        if !self.registry_view.is_joined() {
            return Err(MemberError::NotJoined);
        }
        Ok(())
    }

    /// Returns a stamp above every record that this process has logged or knows of. It is for events that are not
    /// records.
    pub fn stamp_now(&self) -> Stamp {
        let logged = self.log.durable().max(self.registry_view.greatest_stamp());
        first_stamp(self.clock.now_ms()).max(logged + 1)
    }

    /// Registers with the other members. Must precede the first ack, because until then the floor does not wait for
    /// this WAL's stamps. Waits at most `timeout`. If the store is away, a later beat registers.
    pub async fn join(&self, timeout: Duration) {
        match tokio::time::timeout(timeout, self.beat(&mut BeatState::default())).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "registry read failed; queries wait for it"),
            Err(_) => tracing::warn!("registry read timed out; queries wait for it"),
        }
    }

    /// Returns the time between two updates of the registry.
    pub fn pause(&self) -> Duration {
        if self.store.has_other_writers() { BEAT } else { BEAT_ALONE }
    }

    /// Keeps the entry up to date until the task is aborted.
    pub async fn run(self: Arc<Self>) {
        let mut state = BeatState::default();
        loop {
            state.beat += 1;
            let failure = self.beat(&mut state).await.err().map(|error| error.to_string());
            // Log only the first failure in a row. Requests that need the store report its absence too.
            if let Some(error) = failure.as_ref().filter(|_| state.failure.is_none()) {
                tracing::warn!(%error, "registry update failed; retrying");
            }
            state.failure = failure;
            // Queries wait for the first read of the registry, so retry faster until then.
            let pause = if self.registry_view.is_known() { self.pause() } else { self.pause() / 10 };
            match self.cluster.get().filter(|_| self.registry_view.is_known()) {
                Some(cluster) => drop(tokio::time::timeout(pause, cluster.wait_for_read()).await),
                None => tokio::time::sleep(pause).await,
            }
        }
    }

    /// Reads the registry, adopts it, and writes this WAL's entry.
    async fn beat(&self, state: &mut BeatState) -> Result<(), StorageError> {
        if self.store.has_other_writers() && (state.beat.is_multiple_of(CLOCK_BEATS) || !self.clock.is_known()) {
            self.check_clock().await;
        }
        self.metrics.clock_doubted(self.clock.trusted_ns().is_err());
        for _ in 0..ATTEMPTS_MAX {
            let cluster = self.cluster.get();
            if let Some(cluster) = cluster {
                cluster.begin_read().await;
            }
            let read = Instant::now();
            let registry = self.store.read_registry().await?;
            if !self.registry_view.is_known() {
                note_sealed_days(&*self.store).await?;
            }
            self.adopt(&registry, read).await;
            if !self.is_clock_right() {
                // With a wrong clock, this process would drop other members' entries or raise the floor too far.
                return Ok(());
            }
            self.note_lead();
            let mut next = registry.clone();
            next.publish(self.entry(state.beat));
            if let Some(cluster) = cluster {
                // Without changes, this opening was given up, and must not write its entry again.
                let Some(changes) = cluster.take(&registry).await else { return Ok(()) };
                self.apply(&mut next, changes);
            }
            if self.store.has_other_writers() {
                next.take_over(self.opening, self.last);
            } else {
                next.take_all_over(self.opening, self.last);
            }
            next.settle(self.clock.now_ms(), millis(self.horizon));
            let is_done = !self.is_worth_writing(&registry, &next, state) || self.write(next).await?;
            if let Some(cluster) = cluster {
                cluster.note_written(is_done).await;
            }
            if is_done {
                return self.wait_until_seen().await;
            }
        }
        Ok(())
    }

    /// Writes the changes of the cluster into a registry that has this opening's entry.
    fn apply(&self, registry: &mut MemberRegistry, changes: ClusterChanges) {
        let ClusterChanges { view, peer, given_up } = changes;
        registry.view = view;
        registry.logs.retain(|log| log.takeover.is_some() || !given_up.contains(&log.folder));
        if let Some(own) = registry.logs.iter_mut().find(|log| log.opening == self.opening) {
            own.peer = Some(peer);
        }
    }

    /// Publishes the watermark now, between two beats.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn publish(&self) -> Result<MemberRegistry, StorageError> {
        for _ in 0..ATTEMPTS_MAX {
            let registry = self.store.read_registry().await?;
            let Some(own) = registry.log(self.opening).filter(|_| self.is_clock_right()) else { return Ok(registry) };
            let mut next = registry.clone();
            next.publish(self.entry(own.beat));
            next.settle(self.clock.now_ms(), millis(self.horizon));
            let is_new = next.log(self.opening).map(|log| log.watermark) != Some(own.watermark);
            if !is_new || self.write(next.clone()).await? {
                return Ok(if is_new { next } else { registry });
            }
        }
        self.store.read_registry().await
    }

    /// Notes the lead of the last stamp over the store's clock. If the clock was fast while the store was away, this
    /// and all later stamps are ahead.
    fn note_lead(&self) {
        if self.store.has_other_writers() {
            let ahead = stamp_millis(self.log.durable()).saturating_sub(self.clock.now_ms());
            self.registry_view.note_wal_lead(Duration::from_millis(ahead));
        }
    }

    fn is_clock_right(&self) -> bool {
        !self.store.has_other_writers() || (self.clock.is_known() && self.clock.is_right())
    }

    /// Returns true if the changed registry must be written. A store that only this instance uses needs no heartbeat: a
    /// write is due only after readings were stored, once when all are settled, because sealing waits for that, and when a
    /// job waits for the floor.
    fn is_worth_writing(&self, before: &MemberRegistry, next: &MemberRegistry, state: &mut BeatState) -> bool {
        if self.store.has_other_writers() || before.log(self.opening).is_none() || !next.deletions.is_empty() {
            return before != next;
        }
        let ledger = self.positions.lag().ledger;
        let stored = ledger.stored + ledger.overwritten + ledger.duplicate;
        let last = self.log.durable();
        let is_settled_now = before.floor < last && last <= next.floor;
        std::mem::replace(&mut state.stored, stored) != stored
            || is_settled_now
            || self.registry_view.is_awaited(before.floor..next.floor)
            || next.floor < before.greatest_watermark()
    }

    /// Marks the folder and, on the first call, waits until every live member has written a beat. A member reads the
    /// registry before each beat, so it has then seen this entry.
    async fn wait_until_seen(&self) -> Result<(), StorageError> {
        if self.registry_view.is_joined() {
            return Ok(());
        }
        if let Err(error) = self.mark.set() {
            tracing::warn!(%error, "cannot write file `joined` in the WAL folder; after a restart without MongoDB, writes will be rejected");
        }
        let start = Instant::now();
        // The last beat of each live member, when this was first looked up.
        let mut first_beats: Option<Vec<MemberBeat>> = None;
        while start.elapsed() < SEEN_WAIT_MAX {
            let registry = self.store.read_registry().await?;
            let oldest_ms = self.clock.now_ms().saturating_sub(millis(2 * FRESH));
            let is_live =
                |log: &&RegistryEntry| log.opening != self.opening && log.takeover.is_none() && log.seen_ms > oldest_ms;
            let live = registry.logs.iter().filter(is_live);
            let beats: Vec<_> = live.map(|log| MemberBeat { opening: log.opening, beat: log.beat }).collect();
            let first_beats = first_beats.get_or_insert_with(|| beats.clone());
            if beats.iter().all(|beat| !first_beats.contains(beat)) {
                break;
            }
            tokio::time::sleep(SEEN_POLL_INTERVAL).await;
        }
        self.registry_view.note_joined();
        Ok(())
    }

    fn entry(&self, beat: u64) -> RegistryEntry {
        RegistryEntry {
            opening: self.opening,
            log: self.wal_id,
            folder: self.mark.id(),
            watermark: self.watermark(),
            beat,
            seen_ms: self.clock.now_ms(),
            takeover: None,
            host: self.host.clone(),
            peer: None,
        }
    }

    /// Returns the watermark: all records of this WAL up to it are stored, and the WAL issues no further stamp at or
    /// below it. It is at most `clock.max_offset` ahead of the clock, because other instances' stamps must exceed it.
    fn watermark(&self) -> Stamp {
        let now_ms = self.clock.now_ms();
        let settled = settled_before(now_ms);
        let mut closed = self.log.close_below(settled);
        if self.store.has_other_writers() {
            closed = closed.min(settled_before(now_ms.saturating_add(millis(self.clock.max_offset()))));
        }
        self.positions.stored_through(closed)
    }

    async fn write(&self, next: MemberRegistry) -> Result<bool, StorageError> {
        let read = Instant::now();
        let is_written = self.store.write_registry(&next).await.applied()?;
        if is_written {
            self.adopt(&MemberRegistry { rev: next.rev + 1, ..next }, read).await;
        }
        Ok(is_written)
    }

    async fn adopt(&self, registry: &MemberRegistry, read: Instant) {
        self.clock.rise_above(registry.floor);
        note_registry_time(registry);
        let new = self.registry_view.adopt(registry, self.opening, read);
        self.registry_view.note_live_folders(self.live(registry).map(|log| log.folder).collect());
        self.metrics.registry(registry.logs.len(), registry.deletions.len(), registry.floor);
        if new.is_empty() {
            return;
        }
        self.changes.note_everything();
        for deletion in new {
            self.catalog.doubt(&deletion.database, None);
            let deleted_before = |sensor: &Sensor| self.registry_view.deleted_before(&deletion.database, sensor);
            self.catalog.cut_meta(&deletion.database, deleted_before);
            if deletion.statement.is_none()
                && let Err(error) = self.store.revisit(&deletion.database).await
            {
                tracing::warn!(database = %deletion.database, %error, "cannot list the collections of a dropped database");
            }
        }
    }

    /// Returns true if this member is the leader, which is the live member with the smallest opening. The leader does
    /// the jobs that one instance does for all.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn leads(&self) -> Result<bool, StorageError> {
        Ok(self.is_leader_in(&self.store.read_registry().await?))
    }

    fn is_leader_in(&self, registry: &MemberRegistry) -> bool {
        self.live(registry).map(|log| log.opening).min() == Some(self.opening)
    }

    fn live<'r>(&self, registry: &'r MemberRegistry) -> impl Iterator<Item = &'r RegistryEntry> {
        let oldest_ms = self.clock.now_ms().saturating_sub(millis(SILENCE));
        let own = self.opening;
        let is_live =
            move |log: &&RegistryEntry| log.takeover.is_none() && (log.seen_ms > oldest_ms || log.opening == own);
        registry.logs.iter().filter(is_live)
    }

    /// Returns true if this member is the one of all live members that does the work with this key. While the registry
    /// cannot be read, others may have taken work over. A member that is not alone then keeps what it has and takes
    /// nothing else.
    #[must_use]
    pub fn owns(&self, key: &str, has_it: bool) -> bool {
        if !self.store.has_other_writers() {
            return true;
        }
        let own = self.mark.id();
        let (live, is_current) = self.registry_view.live_folders(SILENCE);
        if !is_current {
            return has_it || live == [own];
        }
        let rank = |folder: &u64| rapidhash::v3::rapidhash_v3(format!("{folder:016x} {key}").as_bytes());
        live.into_iter().max_by_key(rank) == Some(own)
    }

    /// Returns the remembered deletions that the watermark of every WAL has passed; none unless this member is the
    /// leader.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn passed_deletions(&self) -> Result<Vec<RememberedDeletion>, StorageError> {
        let registry = self.store.read_registry().await?;
        Ok(if self.is_leader_in(&registry) { registry.passed_deletions() } else { Vec::new() })
    }

    /// Removes a remembered deletion from the registry.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn forget(&self, deletion: &RememberedDeletion) -> Result<(), StorageError> {
        for _ in 0..ATTEMPTS_MAX {
            let mut registry = self.store.read_registry().await?;
            registry.forget(std::slice::from_ref(deletion));
            if self.write(registry).await? {
                break;
            }
        }
        Ok(())
    }

    /// Compares the clock with the store's. If the difference exceeds `clock.max_offset`, adopts the wall clock in case
    /// it has been corrected since the start and is now within the limit.
    async fn check_clock(&self) {
        let Some(sample) = self.compare_clocks(|| self.clock.own_ms()).await else { return };
        self.clock.observe(sample);
        if !self.is_clock_right()
            && let Some(sample) = self.compare_clocks(wall_ms).await
            && Duration::from_millis(sample.offset_ms.unsigned_abs()) <= self.clock.max_offset()
        {
            self.clock.set_to_wall(sample);
        }
        self.metrics.clock_offset(self.clock.offset_ms());
    }

    /// Returns the sample with the least uncertainty; `None` if the store does not answer or has no clock of its own.
    async fn compare_clocks(&self, own_ms: impl Fn() -> i64) -> Option<ClockSample> {
        let mut best: Option<ClockSample> = None;
        for _ in 0..CLOCK_SAMPLES {
            let before = own_ms();
            let store = self.store.clock_ms().await.ok().flatten()?;
            let after = own_ms();
            let offset_ms = i64::try_from(store).unwrap_or(i64::MAX) - (before + after) / 2;
            let sample = ClockSample { offset_ms, uncertainty_ms: (after - before) / 2 + 1 };
            best = Some(best.filter(|best| best.uncertainty_ms <= sample.uncertainty_ms).unwrap_or(sample));
        }
        best
    }

    /// Marks this opening as finished in the registry, so that it no longer holds the floor. All readings must be
    /// stored.
    pub async fn leave(&self) {
        if !self.is_clock_right() {
            // After an outage, the stop may come before the first heartbeat.
            self.check_clock().await;
        }
        if !self.is_clock_right() || self.mark.clear().is_err() {
            return;
        }
        for _ in 0..ATTEMPTS_MAX {
            let Ok(mut registry) = self.store.read_registry().await else { return };
            registry.publish(self.entry(u64::MAX >> 1));
            registry.take_over_self(self.opening);
            match self.store.write_registry(&registry).await {
                WriteOutcome::Conflict => {}
                WriteOutcome::Applied | WriteOutcome::Failed(_) => return,
            }
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
