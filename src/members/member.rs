//! This process as a member of its store: a task that keeps the WAL's entry in the registry up to date. It publishes
//! how far the WAL is stored, raises the floor, learns of other instances' deletions, takes over what earlier openings
//! of the WAL left, and compares the clock with the store's.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::folder_mark::FolderMark;
use super::passed::{note_registry, note_sealed};
use super::positions::WalPositions;
use super::registry_view::{FRESH, RegistryView};
use crate::bucket::deletions::RememberedDeletion;
use crate::bucket::registry::{MemberRegistry, Registered, settled_before};
use crate::bucket::store::Written;
use crate::bucket::{HourVersions, StorageError, Store};
use crate::catalog::Catalog;
use crate::clock::{ClockSample, StampClock, wall_ms};
use crate::reading::Stamp;
use crate::reading::duration::show_duration;
use crate::reading::stamp::{first_of, millis_of};
use crate::telemetry::Metrics;
use crate::wal::Wal;

/// How often the registry is read and written where other instances share the store, and where none does.
const BEAT: Duration = Duration::from_secs(1);
const BEAT_ALONE: Duration = Duration::from_secs(5);
/// A member whose entry is older than this is gone or stalled.
const SILENCE: Duration = Duration::from_secs(15);
/// How often a change of the registry is tried against concurrent writers before it waits for the next beat.
const ATTEMPTS_MAX: usize = 8;
/// Every how many beats the clock is compared with the store's, and how many samples one comparison takes.
const CLOCK_BEATS: u64 = 10;
const CLOCK_LOOKS: usize = 3;
/// How long a new member waits, at most, until the others have seen its entry. An instance that has not read the
/// registry for [`FRESH`] assumes new members by itself, so a wait longer than that is enough.
const SEEN_WITHIN: Duration = Duration::from_millis(2_500);
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// The reason why this instance must not acknowledge now.
#[derive(Debug, Clone, thiserror::Error)]
pub enum MemberError {
    /// This instance is not yet in the registry, so the floor does not wait for its WAL.
    #[error(
        "this instance has not registered in MongoDB since it started, so it accepts no writes yet; it will by itself \
         when MongoDB answers: retry"
    )]
    NotJoined,
    /// The clock is too far from the store's for stamps of different instances to be compared.
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
         clock, more than {} (clock.max_offset); writes resume when MongoDB's clock has caught up, or when you stop \
         hourglass with everything stored (exit status 0) and start it with a new data folder",
        show_duration(*ahead),
        show_duration(*limit)
    )]
    Ahead { ahead: Duration, limit: Duration },
}

pub struct Member {
    pub store: Arc<dyn Store>,
    /// The WAL that the registry entry is about.
    pub log: Arc<Wal>,
    /// The WAL's id, and this opening's.
    pub ids: (u64, u64),
    pub positions: Arc<WalPositions>,
    pub registry_view: Arc<RegistryView>,
    /// The clock that stamps are made from.
    pub clock: Arc<StampClock>,
    pub catalog: Arc<Catalog>,
    /// Versions of stored hours; outdated when another instance has deleted something.
    pub changes: Arc<HourVersions>,
    pub metrics: Metrics,
    /// `wal.horizon`: how long a WAL may be silent before its entry is dropped and no longer holds the floor.
    pub horizon: Duration,
    /// The last record of the WAL when it was opened.
    pub last: Stamp,
    /// What outlives the process: the mark in the WAL's folder.
    pub mark: FolderMark,
    /// Host and process id, for people who look at the registry.
    pub host: String,
}

/// State between two beats.
#[derive(Default)]
struct BeatState {
    beat: u64,
    stored: u64,
    /// Why the last update of the registry failed.
    trouble: Option<String>,
}

impl Member {
    /// This opening, and the time by which it stamps, in milliseconds since the epoch.
    pub fn opening(&self) -> (u64, u64) {
        (self.ids.1, self.clock.now_ms())
    }

    /// Whether this process may ack: its stamps are comparable with others', and the floor waits for them.
    ///
    /// # Errors
    /// Why it may not ack now.
    pub fn check(&self) -> Result<(), MemberError> {
        let clock = &self.clock;
        if !clock.is_right() {
            return Err(MemberError::Clock { offset_ms: clock.offset_ms(), limit: clock.max_offset() });
        }
        let ahead = self.registry_view.ahead();
        if ahead > clock.max_offset() {
            return Err(MemberError::Ahead { ahead, limit: clock.max_offset() });
        }
        if !self.registry_view.is_joined() {
            return Err(MemberError::NotJoined);
        }
        Ok(())
    }

    /// A stamp above every record that this process has logged or knows to be logged, for what is not a record itself.
    pub fn stamp_now(&self) -> Stamp {
        let logged = self.log.durable().max(self.registry_view.greatest());
        first_of(self.clock.now_ms()).max(logged + 1)
    }

    /// Registers with the other members. Must precede the first ack: until then the floor does not wait for this WAL's
    /// stamps. Waits at most `longest`; if the store is away, a later beat registers.
    pub async fn join(&self, longest: Duration) {
        match tokio::time::timeout(longest, self.beat(&mut BeatState::default())).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "registry read failed; queries wait for it"),
            Err(_) => tracing::warn!("registry read timed out; queries wait for it"),
        }
    }

    /// The wait between two updates of the registry.
    pub fn pause(&self) -> Duration {
        match self.store.has_other_writers() {
            true => BEAT,
            false => BEAT_ALONE,
        }
    }

    /// Keeps the entry up to date until the task is aborted.
    pub async fn run(self: Arc<Self>) {
        let mut watch = BeatState::default();
        loop {
            watch.beat += 1;
            let trouble = self.beat(&mut watch).await.err().map(|error| error.to_string());
            // Only the first failure in a row is logged: requests that need the store report its absence too.
            if let Some(error) = trouble.as_ref().filter(|_| watch.trouble.is_none()) {
                tracing::warn!(%error, "registry update failed; retrying");
            }
            watch.trouble = trouble;
            // Queries wait until the registry was read once, so retry faster until then.
            let pause = if self.registry_view.is_known() { self.pause() } else { self.pause() / 10 };
            tokio::time::sleep(pause).await;
        }
    }

    async fn beat(&self, watch: &mut BeatState) -> Result<(), StorageError> {
        if self.store.has_other_writers() && (watch.beat.is_multiple_of(CLOCK_BEATS) || !self.clock.is_known()) {
            self.look_at_clock().await;
        }
        for _ in 0..ATTEMPTS_MAX {
            let read = Instant::now();
            let registry = self.store.read_registry().await?;
            if !self.registry_view.is_known() {
                note_sealed(&*self.store).await?;
            }
            self.adopt(&registry, read).await;
            if !self.is_clock_right() {
                // A wrong "now" would drop other members' entries or raise the floor.
                return Ok(());
            }
            self.look_at_lead();
            let mut next = registry.clone();
            next.publish(self.entry(watch.beat));
            match self.store.has_other_writers() {
                true => next.take_over(self.ids.1, self.last),
                false => next.take_all_over(self.ids.1, self.last),
            }
            next.settle(self.clock.now_ms(), millis(self.horizon));
            if !self.is_worth_writing(&registry, &next, watch) || self.write(next).await? {
                return self.be_seen().await;
            }
        }
        Ok(())
    }

    /// Publishes the watermark now, between two beats.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn publish(&self) -> Result<MemberRegistry, StorageError> {
        for _ in 0..ATTEMPTS_MAX {
            let registry = self.store.read_registry().await?;
            let Some(own) = registry.log(self.ids.1).filter(|_| self.is_clock_right()) else { return Ok(registry) };
            let mut next = registry.clone();
            next.publish(self.entry(own.beat));
            next.settle(self.clock.now_ms(), millis(self.horizon));
            let is_new = next.log(self.ids.1).map(|log| log.watermark) != Some(own.watermark);
            if !is_new || self.write(next.clone()).await? {
                return Ok(if is_new { next } else { registry });
            }
        }
        self.store.read_registry().await
    }

    /// Notes how far the last stamp is ahead of the store's clock. A wrong clock may have made it while the store was
    /// away, and every later stamp lies above it.
    fn look_at_lead(&self) {
        if self.store.has_other_writers() {
            let ahead = millis_of(self.log.durable()).saturating_sub(self.clock.now_ms());
            self.registry_view.note_ahead(Duration::from_millis(ahead));
        }
    }

    fn is_clock_right(&self) -> bool {
        !self.store.has_other_writers() || (self.clock.is_known() && self.clock.is_right())
    }

    /// In a store that nobody shares, no heartbeat is needed: the registry is written only when something was stored, and once
    /// when all of it is settled, since sealing waits for that.
    fn is_worth_writing(&self, before: &MemberRegistry, next: &MemberRegistry, watch: &mut BeatState) -> bool {
        if self.store.has_other_writers() || before.log(self.ids.1).is_none() || !next.deletions.is_empty() {
            return before != next;
        }
        let ledger = self.positions.lag().ledger;
        let stored = ledger.stored + ledger.overwritten + ledger.duplicate;
        let last = self.log.durable();
        let is_settled_now = before.floor < last && last <= next.floor;
        std::mem::replace(&mut watch.stored, stored) != stored || is_settled_now || next.floor < before.greatest()
    }

    /// Marks the folder, and waits, once, until every live member has written a beat since, which follows a read.
    async fn be_seen(&self) -> Result<(), StorageError> {
        if self.registry_view.is_joined() {
            return Ok(());
        }
        if let Err(error) = self.mark.set() {
            tracing::warn!(%error, "cannot write file `joined` in the WAL folder: after a restart without MongoDB, writes would be refused");
        }
        let (start, mut before) = (Instant::now(), None);
        while start.elapsed() < SEEN_WITHIN {
            let registry = self.store.read_registry().await?;
            let lately = self.clock.now_ms().saturating_sub(millis(2 * FRESH));
            let is_awake = |log: &&Registered| log.opening != self.ids.1 && log.taken.is_none() && log.seen_ms > lately;
            let beats = |log: &Registered| (log.opening, log.beat);
            let awake: Vec<(u64, u64)> = registry.logs.iter().filter(is_awake).map(beats).collect();
            let before = before.get_or_insert_with(|| awake.clone());
            if awake.iter().all(|now| !before.contains(now)) {
                break;
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        self.registry_view.note_joined();
        Ok(())
    }

    fn entry(&self, beat: u64) -> Registered {
        let (log, opening) = self.ids;
        let (folder, watermark, seen_ms) = (self.mark.id(), self.watermark(), self.clock.now_ms());
        Registered { opening, log, folder, watermark, beat, seen_ms, taken: None, host: self.host.clone() }
    }

    /// The watermark: all records that this WAL stamped up to it are stored, and the WAL issues no further stamp at or
    /// below it. At most `clock.max_offset` ahead of the clock, because other instances' stamps must exceed it.
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
        note_registry(registry);
        let new = self.registry_view.adopt(registry, self.ids.1, read);
        self.metrics.registry(registry.logs.len(), registry.deletions.len(), registry.floor);
        if new.is_empty() {
            return;
        }
        self.changes.note_everything();
        for deletion in new {
            self.catalog.doubt(&deletion.database, None);
            if deletion.statement.is_none()
                && let Err(error) = self.store.revisit(&deletion.database).await
            {
                tracing::warn!(database = %deletion.database, %error, "cannot look up the collections of a dropped database");
            }
        }
    }

    /// Whether this member does what one does for all: the live one with the least opening.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn leads(&self) -> Result<bool, StorageError> {
        Ok(self.leads_in(&self.store.read_registry().await?))
    }

    fn leads_in(&self, registry: &MemberRegistry) -> bool {
        let lately = self.clock.now_ms().saturating_sub(millis(SILENCE));
        let is_awake = |log: &&Registered| log.taken.is_none() && (log.seen_ms > lately || log.opening == self.ids.1);
        registry.logs.iter().filter(is_awake).map(|log| log.opening).min() == Some(self.ids.1)
    }

    /// The remembered deletions that every WAL has passed; none unless this member does what one does for all.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn passed_deletions(&self) -> Result<Vec<RememberedDeletion>, StorageError> {
        let registry = self.store.read_registry().await?;
        Ok(if self.leads_in(&registry) { registry.passed() } else { Vec::new() })
    }

    /// Forgets a deletion.
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

    /// Compares the clock with the store's. Beyond `clock.max_offset`, the wall clock may have been corrected since the
    /// process read it: the current one is adopted if it fits.
    async fn look_at_clock(&self) {
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

    /// The most certain of several samples; `None` when the store does not answer or has no clock of its own.
    async fn compare_clocks(&self, own_ms: impl Fn() -> i64) -> Option<ClockSample> {
        let mut best: Option<ClockSample> = None;
        for _ in 0..CLOCK_LOOKS {
            let before = own_ms();
            let store = self.store.clock_ms().await.ok().flatten()?;
            let after = own_ms();
            let offset_ms = i64::try_from(store).unwrap_or(i64::MAX) - (before + after) / 2;
            let sample = ClockSample { offset_ms, uncertainty_ms: (after - before) / 2 + 1 };
            best = Some(best.filter(|best| best.uncertainty_ms <= sample.uncertainty_ms).unwrap_or(sample));
        }
        best
    }

    /// Notes in the registry that this opening has nothing left, so that it no longer holds the floor. Requires that
    /// everything is stored.
    pub async fn leave(&self) {
        if !self.is_clock_right() || self.mark.clear().is_err() {
            return;
        }
        for _ in 0..ATTEMPTS_MAX {
            let Ok(mut registry) = self.store.read_registry().await else { return };
            registry.publish(self.entry(u64::MAX >> 1));
            registry.take_over_self(self.ids.1);
            match self.store.write_registry(&registry).await {
                Written::Conflict => {}
                Written::Yes | Written::Failed(_) => return,
            }
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
