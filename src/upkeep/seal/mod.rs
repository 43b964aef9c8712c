//! Seals past days: folds the hour pages and chunks of a sensor into one document per day, or per hour if the day is
//! too large, and then removes them. `bucket::day` explains why no reading is lost, doubled or reverted by concurrent
//! writes and deletions, or by an interruption at any step. The next round continues with the days that are left.

mod hourly;
mod lifetimes;
mod lot;
mod months;
mod parts;

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use self::lot::Work;
use super::job::{Job, JobError, Run};
use crate::bucket::day::{CELLS_MAX, HOUR_CELLS_MAX, Unsealable};
use crate::bucket::settings::Settings;
use crate::bucket::{Readings, SealForm, StorageError};
use crate::buffer::deleter::{DatabaseTurns, is_listed};
use crate::buffer::dispatch::Dispatch;
use crate::buffer::flush::task::FlushContext;
use crate::catalog::deletion::ALWAYS;
use crate::reading::{Day, Hour};
use crate::{config, faults};

/// Number of buckets that are listed at once.
const LISTED: usize = 512;
/// Maximum number of days that are sealed together. All their readings are in memory, so fewer are sealed if they do
/// not fit ([`Lot`]).
const DAYS_MOST: usize = 64;
/// Maximum number of retries for unsettled days in a requested run. Readings stay in the WAL until their sensors'
/// documents are written (`sensors.write_interval`).
const SETTLING_MAX: usize = 60;
/// The wait before each retry.
const SETTLING: Duration = Duration::from_secs(2);
/// Maximum wait until all acked readings are stored.
const FLUSHED_WITHIN: Duration = Duration::from_secs(60);
/// Maximum number of days that a round remembers as counted. Beyond it, some count twice.
const COUNTED_MOST: usize = 100_000;
/// The interval of searches for months without totals while no day is sealed.
const MONTHS_PAUSE: Duration = Duration::from_secs(6 * 3600);
/// The time after which a day with an hour that is too large is tried again.
const LARGE_PAUSE: Duration = Duration::from_secs(6 * 3600);

type LargeDays = HashMap<(String, Day, Box<str>), Instant>;

/// The walk that seals days.
pub struct Sealer {
    pub context: Arc<FlushContext>,
    /// Locks by database that exclude sealing during deletions of this instance.
    pub turns: Arc<DatabaseTurns>,
    /// The time for which a day must be over. `None` if days are sealed on request only.
    after: Option<Duration>,
    /// The time without new chunks after which the chunks of a day are folded.
    quiet: Duration,
    /// Maximum cells of a part for an hour.
    hour_cells: usize,
    /// Maximum number of fields with lifetime summaries; 0 for none.
    lifetime_fields: usize,
    /// The number of days sealed since the start.
    days: AtomicU64,
    /// Days with an hour that is too large for a part, by database and sensor, and when that was found. They are tried again
    /// after [`LARGE_PAUSE`].
    large: Mutex<LargeDays>,
    /// True if a failed day was logged and the last round had failed days too.
    is_failure_logged: AtomicBool,
}

/// The schedule of searches for months without totals: after sealing has finished, and at an interval, because
/// deletions and other instances also remove totals.
#[derive(Debug, Default)]
struct MonthsDue {
    /// The time of the last search, with the number of days sealed by then.
    last: Option<(Instant, u64)>,
    /// The number of days sealed by the end of the previous round.
    before: u64,
}

impl MonthsDue {
    /// Returns true if no day was sealed since the last call. `sealed` is the number of days sealed so far.
    fn is_at_rest(&mut self, sealed: u64) -> bool {
        std::mem::replace(&mut self.before, sealed) == sealed
    }

    /// Returns true if a search is due while no day is sealed.
    fn are_due(&self, sealed: u64) -> bool {
        self.last.is_none_or(|(at, then)| then != sealed || at.elapsed() >= MONTHS_PAUSE)
    }

    fn looked(&mut self, sealed: u64) {
        self.last = Some((Instant::now(), sealed));
    }
}

/// The numbers of past days that were not sealed, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Left {
    /// A WAL may still have older values for some of their readings, or another writer has changed them in the
    /// meantime.
    unsettled: u64,
    /// They exceed the size of a sealed day.
    large: u64,
    /// Some documents cannot be read or written, because they are damaged or a newer version wrote them.
    failed: u64,
    /// The number of databases (not days) whose settings turn sealing off.
    off: u64,
}

impl Left {
    fn figures(self) -> [(&'static str, u64); 4] {
        [("unsettled", self.unsettled), ("large", self.large), ("failed", self.failed), ("databases_off", self.off)]
    }

    fn show(self, run: &Run) {
        run.state.update(|status| {
            status.progress.extend(self.figures());
            status.left = Some(self.unsettled + self.failed);
        });
    }

    /// Hides the numbers of the previous run during a run.
    fn hide(run: &Run) {
        run.state.update(|status| {
            for (name, _) in Self::default().figures() {
                status.progress.remove(name);
            }
            status.left = None;
        });
    }
}

impl std::ops::AddAssign for Left {
    fn add_assign(&mut self, other: Self) {
        self.unsettled += other.unsettled;
        self.large += other.large;
        self.failed += other.failed;
        self.off += other.off;
    }
}

/// The results of a round.
#[derive(Debug, Default)]
struct Round {
    days: u64,
    readings: u64,
    /// Maximum number of days in the next lot, which doubles each time.
    together: usize,
    left: Left,
    /// Days of sensors that could not be sealed, and that the round may list again.
    skipped: HashSet<(Day, String)>,
    /// The days that `left` includes, so that a day with pages and chunks counts once. At most [`COUNTED_MOST`].
    counted: HashSet<(Day, String)>,
}

impl Round {
    /// Leaves a day for another round, and counts it.
    fn leave(&mut self, day: Day, sensor: &str, count: impl FnOnce(&mut Left)) {
        if self.counted.len() >= COUNTED_MOST || self.counted.insert((day, sensor.to_owned())) {
            count(&mut self.left);
        }
        self.skip(day, sensor);
    }

    fn skip(&mut self, day: Day, sensor: &str) {
        self.skipped.insert((day, sensor.to_owned()));
    }
}

/// The job that seals days, adds up months, and folds lifetime summaries.
pub struct Seal {
    sealer: Arc<Sealer>,
    /// Flushes acked readings before a requested run.
    dispatch: Arc<Dispatch>,
    /// The form of sealed days in databases without a setting of their own.
    form: SealForm,
    /// The wait between two runs.
    pause: Duration,
    months: MonthsDue,
}

impl Seal {
    #[must_use]
    pub fn new(sealer: Arc<Sealer>, dispatch: Arc<Dispatch>, form: SealForm, pause: Duration) -> Self {
        Self { sealer, dispatch, form, pause, months: MonthsDue::default() }
    }

    /// Flushes all acked readings. Returns a remark for the status if the store did not take them in time.
    async fn unflushed(&self) -> Option<String> {
        let positions = &self.dispatch.positions;
        // Wait for sensors' documents too, because a day is settled only when its records have left the WAL.
        let through = positions.want_truncated_through(u64::MAX);
        self.dispatch.wake();
        let flushed = tokio::time::timeout(FLUSHED_WITHIN, positions.wait_until_flushed(through)).await;
        flushed.is_err().then(|| {
            let seconds = FLUSHED_WITHIN.as_secs();
            format!(
                "not all that was acknowledged is stored, and what is not cannot be sealed: the store has not taken it \
                 within {seconds} s"
            )
        })
    }

    /// Seals the days of all databases. Returns the days that are left.
    async fn seal_all(&self, run: &Run) -> Result<Left, StorageError> {
        let context = &self.sealer.context;
        if !context.registry_view.is_known() {
            return Err(StorageError::Unavailable("the registry was not read yet".to_owned()));
        }
        let trusted = context.trusted_ns();
        let now = trusted.map_err(|doubt| StorageError::Unavailable(doubt.to_string()))?;
        // Read the settings from the store, because no day may be sealed before they are known.
        let by_database = context.store.raw().read_settings().await?.into_iter().collect();
        let settings = Settings { by_database, seal_form: Some(self.form), ..Settings::default() };
        let mut left = Left::default();
        let mut failed = None;
        for database in context.store.raw().databases().await? {
            if settings.seal_form(&database) == SealForm::Off {
                left.off += 1;
                continue;
            }
            let began = Instant::now();
            match self.sealer.seal(&database, now, run).await {
                Ok(round) => {
                    left += round.left;
                    if round.days > 0 {
                        tracing::info!(%database, days = round.days, readings = round.readings, "days sealed");
                    }
                }
                // A failure in one database does not stop the others.
                Err(error) if !error.is_store_unreachable() => failed = Some(error),
                Err(error) => return Err(error),
            }
            run.pause(began).await;
        }
        failed.map_or(Ok(left), Err)
    }
}

impl Job for Seal {
    const NAME: &'static str = "seal";

    fn interval(&self) -> Option<Duration> {
        self.sealer.after.map(|_| self.pause)
    }

    async fn run(&mut self, run: &Run) -> Result<Option<Duration>, JobError> {
        Left::hide(run);
        self.sealer.retry_large(run.is_asked);
        run.note(if run.is_asked { self.unflushed().await } else { None });
        let mut waits = 0;
        loop {
            let left = self.seal_all(run).await?;
            left.show(run);
            if left.failed > 0 {
                run.report(format!("{} days cannot be read or written: hourglass verify lists them", left.failed));
            }
            self.sealer.is_failure_logged.store(left.failed > 0, Ordering::Relaxed);
            if !run.is_asked || left.unsettled == 0 || waits == SETTLING_MAX {
                break;
            }
            waits += 1;
            tokio::time::sleep(SETTLING).await;
        }
        let sealed = self.sealer.days.load(Ordering::Relaxed);
        let lifetimes = &self.sealer.context.lifetimes;
        let is_at_rest = self.months.is_at_rest(sealed) || run.is_asked;
        let are_months_due = run.is_asked || self.months.are_due(sealed);
        let are_lifetimes_due = self.sealer.lifetime_fields > 0 && !lifetimes.is_empty();
        if !is_at_rest || !are_months_due && !are_lifetimes_due {
            return Ok(None);
        }
        self.sealer.sum_up(are_months_due, run).await?;
        if are_months_due {
            self.months.looked(self.sealer.days.load(Ordering::Relaxed));
        }
        Ok(None)
    }
}

impl Sealer {
    #[must_use]
    pub fn new(context: Arc<FlushContext>, turns: Arc<DatabaseTurns>, options: &config::Settings) -> Self {
        Self {
            context,
            turns,
            after: Some(options.seal.after).filter(|after| !after.is_zero()),
            quiet: options.seal.quiet,
            hour_cells: hour_cells(options.flush_bytes()),
            lifetime_fields: options.sensors.lifetime_fields,
            days: AtomicU64::new(0),
            large: Mutex::default(),
            is_failure_logged: AtomicBool::new(false),
        }
    }

    /// Forgets the days that are to be tried again.
    fn retry_large(&self, is_asked: bool) {
        let mut large = self.large.lock();
        let is_full = large.len() >= COUNTED_MOST;
        large.retain(|_, found| !is_asked && !is_full && found.elapsed() < LARGE_PAUSE);
    }

    /// Seals all days of a database that have been over for long enough: first those with hour pages, oldest first,
    /// then those with chunks only.
    async fn seal(&self, database: &str, now: i64, run: &Run) -> Result<Round, StorageError> {
        let after = if run.is_asked { Duration::ZERO } else { self.after.unwrap_or_default() };
        let now = now.saturating_sub(i64::try_from(after.as_nanos()).unwrap_or(i64::MAX));
        self.seal_until(database, Day::from_hour(Hour::from_ns(now)), run).await
    }

    /// Seals all days of a database before `until`, regardless of its settings and of `seal.after`.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn seal_before(&self, database: &str, until: Day, run: &Run) -> Result<(), StorageError> {
        self.seal_until(database, until, run).await.map(drop)
    }

    async fn seal_until(&self, database: &str, until: Day, run: &Run) -> Result<Round, StorageError> {
        let round = Round { together: 1, ..Round::default() };
        let mut sealing = Sealing { sealer: self, context: &self.context, database, run, round };
        sealing.seal_until(until).await?;
        Ok(sealing.round)
    }
}

/// A round of sealing in one database.
struct Sealing<'a> {
    sealer: &'a Sealer,
    context: &'a FlushContext,
    database: &'a str,
    run: &'a Run,
    round: Round,
}

impl Sealing<'_> {
    async fn seal_until(&mut self, until: Day) -> Result<(), StorageError> {
        let mut from = (Hour::from_ns(ALWAYS.start), String::new());
        loop {
            let buckets =
                self.context.store.raw().next_buckets(self.database, &from, until.hours().start, LISTED).await?;
            let Some(last) = buckets.last().cloned() else { break };
            let mut days: Vec<(Day, String)> = Vec::new();
            for (hour, sensor) in buckets {
                let day = (Day::from_hour(hour), sensor);
                if !self.round.skipped.contains(&day) && !days.contains(&day) {
                    days.push(day);
                }
            }
            self.round.skipped.retain(|(day, _)| *day >= Day::from_hour(last.0));
            self.seal_each(&days).await?;
            from = last;
        }
        self.round.skipped.clear();
        let mut from = (Day::from_hour(Hour::from_ns(ALWAYS.start)), String::new());
        loop {
            let days = self.context.store.raw().next_chunks(self.database, &from, until, LISTED).await?;
            let Some(last) = days.last().cloned() else { return Ok(()) };
            self.seal_each(&days).await?;
            from = last;
        }
    }

    async fn seal_each(&mut self, mut days: &[(Day, String)]) -> Result<(), StorageError> {
        faults::halt_at("days_listed").await;
        while !days.is_empty() {
            let lot = &days[..days.len().min(self.round.together)];
            self.round.together = (2 * self.round.together).min(DAYS_MOST);
            let (began, before, left) = (Instant::now(), (self.round.days, self.round.readings), self.round.left);
            let taken = match self.seal_some(lot).await {
                Err(error) if !error.is_away() => {
                    self.round.left = left;
                    self.seal_singly(lot).await?;
                    lot.len()
                }
                taken => taken?,
            };
            self.sealer.days.fetch_add(self.round.days - before.0, Ordering::Relaxed);
            self.run.count("days", self.round.days - before.0);
            self.run.count("readings", self.round.readings - before.1);
            self.run.pause(began).await;
            days = &days[taken..];
        }
        Ok(())
    }

    /// Seals each day by itself, so that a day that cannot be read or written does not stop the others.
    async fn seal_singly(&mut self, days: &[(Day, String)]) -> Result<(), StorageError> {
        for one in days {
            match self.seal_some(std::slice::from_ref(one)).await {
                Ok(_) => {}
                Err(error) if error.is_transient() => {
                    self.round.leave(one.0, &one.1, |left| left.unsettled += 1);
                }
                Err(error) if !error.is_away() => {
                    let (day, sensor) = (one.0.hours().start.start_ns(), &one.1);
                    // Warn once, not in every round.
                    if !self.sealer.is_failure_logged.swap(true, Ordering::Relaxed) {
                        tracing::warn!(database = self.database, sensor, day, %error, "a day could not be sealed; it is tried again");
                    } else {
                        tracing::debug!(database = self.database, sensor, day, %error, "a day could not be sealed; it is tried again");
                    }
                    self.round.leave(one.0, sensor, |left| left.failed += 1);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Seals as many leading days as fit into memory together. Returns their number.
    async fn seal_some(&mut self, days: &[(Day, String)]) -> Result<usize, StorageError> {
        let turn = self.sealer.turns.of(self.database);
        let _turn = turn.lock().await;
        if !is_listed(&**self.context.store.raw(), self.database).await? {
            // The database was dropped after the days were listed. A claim would create it again.
            return Ok(days.len());
        }
        // Read the floor before the deletions, because a merge must know every deletion below its floor.
        let floor = self.context.registry_view.view().floor;
        let mut lot = self.list(days).await?;
        lot.work.retain(|one| {
            let is_settled = one.chunks_are_settled(floor);
            if !is_settled {
                self.round.leave(one.id.day, &one.id.sensor.key, |left| left.unsettled += 1);
            }
            is_settled
        });
        self.weigh(&mut lot).await?;
        faults::halt_at("parts_listed").await;
        self.begin(&mut lot, floor).await?;
        faults::point("claimed");
        if let Err(error) = self.read(&mut lot).await {
            self.give_back_all(&lot.work).await?;
            return Err(error);
        }
        faults::halt_at("pages_read").await;
        let (mut sealed, mut left): (Vec<(Work, Readings)>, Vec<Work>) = (Vec::new(), Vec::new());
        for one in std::mem::take(&mut lot.work) {
            match one.fold(floor) {
                Ok(readings) if !readings.is_empty() => sealed.push((one, readings)),
                Err(Unsealable::Large) => {
                    lot.hourly.push((one.place, one.id.sensor.clone(), one.id.day));
                    left.push(one.without_content());
                }
                Ok(_) | Err(Unsealable::Unsettled) => {
                    self.round.leave(one.id.day, &one.id.sensor.key, |left| left.unsettled += 1);
                    left.push(one.without_content());
                }
            }
        }
        self.give_back_all(&left).await?;
        let written = self.write(&sealed).await?;
        faults::point("sealed");
        let (mut singles, mut chunks) = (Vec::new(), Vec::new());
        for ((one, readings), written) in sealed.into_iter().zip(written) {
            if !written {
                self.round.leave(one.id.day, &one.id.sensor.key, |left| left.unsettled += 1);
                continue;
            }
            self.round.days += 1;
            self.round.readings += readings.len() as u64;
            self.context.lifetimes.note(self.database, &one.id.sensor.key);
            chunks.extend(one.chunks.into_iter().map(|(id, chunk)| (id, chunk.rev)));
            self.remove(one.buckets, &mut singles).await?;
        }
        self.remove_parts(&chunks).await?;
        self.context.store.raw().remove_single_pages(self.database, &singles).await?;
        faults::point("pages_removed");
        for (_, sensor, day) in lot.hourly {
            self.seal_hours(&sensor, day, floor).await?;
        }
        Ok(lot.days)
    }
}

fn hours(day: Day) -> impl Iterator<Item = Hour> {
    let Range { start, end } = day.hours();
    (start.0..end.0).map(Hour)
}

/// Returns the maximum cells of a part for an hour. While it is sealed, some cells are in memory several times.
fn hour_cells(flush_bytes: usize) -> usize {
    const CELL: usize = 24;
    (flush_bytes / CELL).clamp(CELLS_MAX, HOUR_CELLS_MAX)
}
