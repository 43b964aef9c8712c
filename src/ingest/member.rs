//! This process as a member of its store: its log's entry in the registry, kept up to date for as long as it lives. It
//! publishes how far the log is stored, raises the floor, learns what others deleted, takes over what earlier openings of
//! the log left, looks at the store's clock, and sweeps up after deletions.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::agreed::{Agreed, FRESH};
use super::catalog::Catalog;
use super::deletion::Deleter;
use super::membership::Mark;
use super::progress::Progress;
use crate::bucket::deletions::Remembered;
use crate::bucket::registry::{Registered, Registry, settled_before};
use crate::bucket::store::Written;
use crate::bucket::{Changes, StorageError, Store};
use crate::clock::{ClockSample, StampClock, wall_ms};
use crate::faults::{self, Bug};
use crate::log::Log;
use crate::reading::Stamp;
use crate::reading::stamp::{SETTLED, millis_of};
use crate::telemetry::Metrics;

/// How often a member looks at the registry, where others write to it, and where nobody else does.
const BEAT: Duration = Duration::from_secs(1);
const BEAT_ALONE: Duration = Duration::from_secs(5);
/// A member that was seen so long ago is gone or stalled.
const SILENCE: Duration = Duration::from_secs(15);
/// How often others may be faster before a change of the registry waits for the next beat.
const ATTEMPTS_MAX: usize = 8;
/// How often the store's clock is looked at, and how many looks make one.
const CLOCK_BEATS: u64 = 10;
const CLOCK_LOOKS: usize = 3;
/// How long a member that is new waits for the others to have seen it, at most: who has not read the registry for
/// [`FRESH`] counts with members that are new.
const SEEN_WITHIN: Duration = Duration::from_millis(2_500);
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// This process as a member.
pub struct Member {
    /// Where the registry is.
    pub store: Arc<dyn Store>,
    /// Whose entry it is.
    pub log: Arc<Log>,
    /// The log's id, and this opening's.
    pub ids: (u64, u64),
    /// How far its readings have come.
    pub progress: Arc<Progress>,
    /// What is known of the registry.
    pub agreed: Arc<Agreed>,
    /// What stamps are made by.
    pub clock: Arc<StampClock>,
    /// What is known of sensors.
    pub catalog: Arc<Catalog>,
    /// What is remembered of stored hours.
    pub changes: Arc<Changes>,
    /// Counters.
    pub metrics: Metrics,
    /// How long a log may be silent before its readings hold the floor no more.
    pub horizon: Duration,
    /// The last record of its log when it was opened.
    pub last: Stamp,
    /// What of the membership outlives the process.
    pub mark: Mark,
    /// For people who look at the registry.
    pub host: String,
    /// Removes once more what a deletion was about, before it is forgotten.
    pub deleter: Arc<Deleter>,
}

/// What a member knows from one beat to the next.
#[derive(Default)]
struct Watch {
    beat: u64,
    stored: u64,
    /// Why the registry could not be brought up to date the last time.
    trouble: Option<String>,
}

impl Member {
    /// Joins the others, before anything is acked: until then nobody knows what this log's stamps must lie above. Not waited
    /// for longer than this: a store that is away is joined when it is there.
    pub async fn join(&self, longest: Duration) {
        match tokio::time::timeout(longest, self.beat(&mut Watch::default())).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the registry cannot be read yet; queries wait for it"),
            Err(_) => tracing::warn!("the registry was not read in time; queries wait for it"),
        }
    }

    /// Works until it is aborted.
    pub async fn run(self: Arc<Self>) {
        tokio::join!(self.beats(), self.sweeps());
    }

    fn pause(&self) -> Duration {
        match self.store.is_shared() {
            true => BEAT,
            false => BEAT_ALONE,
        }
    }

    async fn beats(&self) {
        let mut watch = Watch::default();
        loop {
            watch.beat += 1;
            let trouble = self.beat(&mut watch).await.err().map(|error| error.to_string());
            // Told once: whoever needs the store notices too that it is away.
            if let Some(error) = trouble.as_ref().filter(|_| watch.trouble.is_none()) {
                tracing::warn!(%error, "the registry cannot be brought up to date; it is tried again");
            }
            watch.trouble = trouble;
            // Until something is known queries wait for it.
            let pause = if self.agreed.is_known() { self.pause() } else { self.pause() / 10 };
            tokio::time::sleep(pause).await;
        }
    }

    async fn beat(&self, watch: &mut Watch) -> Result<(), StorageError> {
        if self.store.is_shared() && (watch.beat.is_multiple_of(CLOCK_BEATS) || !self.clock.is_known()) {
            self.look_at_clock().await;
        }
        for _ in 0..ATTEMPTS_MAX {
            let read = Instant::now();
            let registry = self.store.read_registry().await?;
            self.learn(&registry, read).await;
            if !self.is_clock_right() {
                // What it says of now must not drop others or raise the floor.
                return Ok(());
            }
            self.look_at_lead();
            let mut next = registry.clone();
            next.publish(self.entry(watch.beat));
            match self.store.is_shared() {
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

    /// Stamps that a wrong clock made while the store was away are ahead of all others, and what comes now would be too.
    fn look_at_lead(&self) {
        if self.store.is_shared() {
            let ahead = millis_of(self.log.durable()).saturating_sub(self.clock.now_ms());
            self.agreed.note_ahead(Duration::from_millis(ahead));
        }
    }

    fn is_clock_right(&self) -> bool {
        !self.store.is_shared() || (self.clock.is_known() && self.clock.is_right())
    }

    /// Where nobody else reads it, the registry need not say that nothing happened.
    fn is_worth_writing(&self, before: &Registry, next: &Registry, watch: &mut Watch) -> bool {
        if self.store.is_shared() || before.log(self.ids.1).is_none() || !next.deletions.is_empty() {
            return before != next;
        }
        let ledger = self.progress.lag().ledger;
        let stored = ledger.stored + ledger.overwritten + ledger.duplicate;
        std::mem::replace(&mut watch.stored, stored) != stored || next.floor < before.greatest()
    }

    /// Waits, once, until the others know that this one writes, and marks the folder.
    async fn be_seen(&self) -> Result<(), StorageError> {
        if self.agreed.is_joined() {
            return Ok(());
        }
        if let Err(error) = self.mark.set() {
            tracing::warn!(%error, "the log's folder cannot be marked; a start without MongoDB will take no writes");
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
        self.agreed.note_joined();
        Ok(())
    }

    fn entry(&self, beat: u64) -> Registered {
        let (log, opening) = self.ids;
        let (folder, watermark, seen_ms) = (self.mark.id(), self.watermark(), self.clock.now_ms());
        Registered { opening, log, folder, watermark, beat, seen_ms, taken: None, host: self.host.clone() }
    }

    /// A stamp at or below which everything is stored that this log gave out, and none will be given out any more. Not
    /// ahead of the clock by more than that may be off: others' stamps rise above it.
    fn watermark(&self) -> Stamp {
        let now_ms = self.clock.now_ms();
        let settled = if faults::has(Bug::StampsCountOn) { SETTLED } else { settled_before(now_ms) };
        let mut closed = self.log.close_below(settled);
        if self.store.is_shared() {
            closed = closed.min(settled_before(now_ms.saturating_add(millis(self.clock.max_offset()))));
        }
        if faults::has(Bug::WatermarkIgnoresUnflushed) {
            return closed;
        }
        self.progress.stored_through(closed)
    }

    async fn write(&self, next: Registry) -> Result<bool, StorageError> {
        let read = Instant::now();
        match self.store.write_registry(&next).await {
            Written::Yes => {
                self.learn(&Registry { rev: next.rev + 1, ..next }, read).await;
                Ok(true)
            }
            Written::Conflict => Ok(false),
            Written::Failed(error) => Err(error),
        }
    }

    async fn learn(&self, registry: &Registry, read: Instant) {
        self.clock.rise_above(registry.floor);
        let new = self.agreed.learn(registry, self.ids.1, read);
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
                tracing::warn!(database = %deletion.database, %error, "the collections of a dropped database could not be looked at");
            }
        }
    }

    async fn sweeps(&self) {
        loop {
            tokio::time::sleep(self.pause()).await;
            if self.agreed.remembered() > 0
                && let Err(error) = self.sweep().await
            {
                tracing::debug!(%error, "a deletion cannot be forgotten at present");
            }
        }
    }

    /// Removes once more what deletions were about that every log has passed, and forgets them. Of the members that are
    /// awake the one whose opening comes first does it for all. What fails for one database stays its own.
    async fn sweep(&self) -> Result<(), StorageError> {
        let registry = self.store.read_registry().await?;
        let lately = self.clock.now_ms().saturating_sub(millis(SILENCE));
        let is_awake = |log: &&Registered| log.taken.is_none() && (log.seen_ms > lately || log.opening == self.ids.1);
        if registry.logs.iter().filter(is_awake).map(|log| log.opening).min() != Some(self.ids.1) {
            return Ok(());
        }
        let mut failed = Ok(());
        for deletion in registry.passed() {
            match self.deleter.sweep(&deletion).await {
                Ok(()) => self.forget(&deletion).await?,
                Err(error) => failed = Err(error),
            }
        }
        failed
    }

    async fn forget(&self, deletion: &Remembered) -> Result<(), StorageError> {
        for _ in 0..ATTEMPTS_MAX {
            let mut registry = self.store.read_registry().await?;
            registry.forget(std::slice::from_ref(deletion));
            if self.write(registry).await? {
                break;
            }
        }
        Ok(())
    }

    /// Looks at the store's clock. Where this machine's is too far off, somebody may have set it since it was read.
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

    /// The most certain of some looks; `None` when the store cannot be asked, or has no clock of its own.
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

    /// Says that this opening has nothing left, once everything is stored: it holds the floor no more.
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
