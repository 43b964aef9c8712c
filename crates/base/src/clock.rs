//! The wall clock, used for readings without a timestamp, `now()`, displayed times and expiry (timeouts use
//! [`std::time::Instant`]); and the stamp clock, which orders the writes of all instances.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};

use crate::faults;
use hourglass_model::reading::stamp::first_for;
use hourglass_model::reading::time::MILLI_NS;

/// Nanoseconds since the epoch: 0 before it, `i64::MAX` after the year 2262.
#[must_use]
pub fn now_ns() -> i64 {
    i64::try_from(since_epoch().as_nanos()).unwrap_or(i64::MAX)
}

/// The latest time that what is stored proves to have come, in nanoseconds since the epoch.
static PROVEN: AtomicI64 = AtomicI64::new(i64::MIN);

/// Notes that a time has come, in nanoseconds since the epoch: something stored is of it.
pub fn note_passed(time: i64) {
    PROVEN.fetch_max(time, Ordering::Relaxed);
}

/// As [`now_ns`], or the latest time that what is stored proves to have come: a machine may start years behind. For questions
/// where a time that is too late only costs something.
#[must_use]
pub fn latest_ns() -> i64 {
    now_ns().max(PROVEN.load(Ordering::Relaxed))
}

/// Whole seconds since the epoch.
#[must_use]
pub fn now_seconds() -> i64 {
    i64::try_from(since_epoch().as_secs()).unwrap_or(i64::MAX)
}

fn since_epoch() -> Duration {
    let (now, step) = (SystemTime::now() + faults::later(), faults::step_ms());
    let now = if step < 0 {
        now - Duration::from_millis(step.unsigned_abs())
    } else {
        now + Duration::from_millis(step.unsigned_abs())
    };
    now.duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The first rev of a part that is not stored: no other moment of this process chooses the same, and in the same millisecond one
/// of 4096 others. Process ids would not do: in containers, all may be 1.
#[must_use]
pub fn first_rev() -> u64 {
    static OF_PROCESS: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(()));
    let millis = u64::try_from(now_ns() / 1_000_000).unwrap_or_default();
    millis << 20 | *OF_PROCESS << 8 & 0xf_ff00
}

/// The wall clock in milliseconds since the epoch, plus the offset that tests inject.
#[must_use]
pub fn wall_ms() -> i64 {
    wall_ns() / MILLI_NS
}

fn wall_ns() -> i64 {
    now_ns().saturating_add(faults::clock_ms().saturating_mul(MILLI_NS))
}

/// The stamp clock: the wall clock at process start (the anchor), advanced by the time since boot, which later changes
/// of the wall clock do not affect, plus the offset to the store's clock if the store has its own.
#[derive(Debug)]
pub struct StampClock {
    bounds: ClockBounds,
    state: Mutex<State>,
    /// Every new stamp is above this.
    floor: AtomicU64,
}

/// Bounds for offsets from the store's clock, from the config section `[clock]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockBounds {
    /// `clock.tolerance`: offset changes up to this are ignored.
    pub tolerance: Duration,
    /// `clock.max_offset`: beyond this offset, writes are rejected and stamps do not follow it.
    pub max_offset: Duration,
}

#[derive(Debug)]
struct State {
    /// The wall clock when it was read, in nanoseconds. Rounded to milliseconds, two instances on one machine could
    /// differ by a millisecond for good.
    anchor_ns: i64,
    /// The time since boot when the wall clock was read.
    anchor: Duration,
    /// The believed offset: how many milliseconds the store's clock is ahead. `None` before the first sample.
    seen_ms: Option<i64>,
    /// The last such offset within `max_offset`.
    target_ms: Option<i64>,
    /// The part of `target_ms` that stamps use so far, and since when (by the own clock).
    applied_ms: i64,
    at_ms: i64,
    /// By how many milliseconds the wall clock was set since it was read, as far as that is believed.
    set_ms: i64,
    /// By how many it seems to have been set otherwise, and since when, by the time since boot.
    doubted: Option<(i64, Duration)>,
    /// Whether the doubt about the wall clock was told.
    told: bool,
}

/// Why nothing expires and no day is sealed now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockDoubt {
    /// The store's clock was not sampled yet.
    Unknown,
    /// The wall clock is so many milliseconds ahead of the store's.
    Off(i64),
    /// The wall clock was set while the process ran, by so many milliseconds, and nothing else knows the time.
    Set(i64),
}

impl std::fmt::Display for ClockDoubt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let seconds = |ms: &i64| *ms / 1000;
        match self {
            Self::Unknown => f.write_str("the store's clock was not read yet"),
            Self::Off(ms) => write!(
                f,
                "this machine's clock is {} s ahead of the store's, more than clock.max_offset: set it",
                seconds(ms)
            ),
            Self::Set(ms) => write!(
                f,
                "this machine's clock was set by {} s while hourglass ran, more than clock.max_offset: set it back, or, if it is right \
                 now, restart hourglass, or wait {} hours",
                seconds(ms),
                BELIEVED_AFTER.as_secs() / 3600
            ),
        }
    }
}

/// How long the wall clock must have gone on as it was set before it is believed where nothing else knows the time: a day for
/// somebody to see that it is wrong, and no longer, since machines without a clock of their own start with a wrong time and
/// are set later.
const BELIEVED_AFTER: Duration = Duration::from_secs(24 * 3600);

/// One comparison with the store's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockSample {
    /// How many milliseconds the store's clock is ahead.
    pub offset_ms: i64,
    /// The maximum error of the offset: half the round trip, plus the store's clock resolution.
    pub uncertainty_ms: i64,
}

/// The clock approaches a new offset by one millisecond per this many milliseconds.
const SLEW: i64 = 8;

impl StampClock {
    /// A clock that follows the wall clock until the first sample of the store's clock.
    #[must_use]
    pub fn new(bounds: ClockBounds) -> Self {
        Self { bounds, state: Mutex::new(State::anchored_at(wall_ns())), floor: AtomicU64::new(0) }
    }

    /// Milliseconds since the epoch by this machine's clock.
    #[must_use]
    pub fn own_ms(&self) -> i64 {
        self.state.lock().own_ms()
    }

    /// Milliseconds since the epoch by the store's clock, as far as it is known.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        let mut state = self.state.lock();
        let own = state.own_ms();
        let room = (own - state.at_ms).max(0) / SLEW;
        let rest = state.target_ms.unwrap_or_default() - state.applied_ms;
        let step = rest.clamp(-room, room);
        state.applied_ms += step;
        if step != 0 || rest == 0 {
            state.at_ms = own;
        }
        u64::try_from(own.saturating_add(state.applied_ms)).unwrap_or_default()
    }

    /// A lower bound for the next record's stamp, in an opening of a WAL with these random bits.
    #[must_use]
    pub fn stamp(&self, random: u8) -> u64 {
        let now = first_for(self.now_ms(), random);
        now.max(self.floor.load(Ordering::Relaxed) + 1)
    }

    /// Makes every later stamp greater than `floor`.
    pub fn rise_above(&self, floor: u64) {
        self.floor.fetch_max(floor, Ordering::Relaxed);
    }

    /// Processes a sample of the store's clock. An offset that differs from the believed one by more than the tolerance
    /// plus the sample's uncertainty becomes the believed offset. Stamps adopt the first offset within `max_offset` at
    /// once, and later ones gradually.
    pub fn observe(&self, sample: ClockSample) {
        self.state.lock().observe(sample, self.bounds);
    }

    /// Restarts from the current wall clock, after it was corrected. `sample` must compare that wall clock with the
    /// store's.
    pub fn set_to_wall(&self, sample: ClockSample) {
        self.set(wall_ns(), sample);
    }

    fn set(&self, wall_ns: i64, sample: ClockSample) {
        let mut state = self.state.lock();
        *state = State::anchored_at(wall_ns);
        state.observe(sample, self.bounds);
    }

    /// Whether the store's clock was ever sampled.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.state.lock().seen_ms.is_some()
    }

    /// The believed offset: how many milliseconds the store's clock is ahead; 0 before the first sample.
    #[must_use]
    pub fn offset_ms(&self) -> i64 {
        self.state.lock().seen_ms.unwrap_or_default()
    }

    /// The offset beyond which writes are rejected (`clock.max_offset`).
    #[must_use]
    pub fn max_offset(&self) -> Duration {
        self.bounds.max_offset
    }

    /// Whether the believed offset is within `clock.max_offset`; true before the first sample.
    #[must_use]
    pub fn is_right(&self) -> bool {
        Duration::from_millis(self.offset_ms().unsigned_abs()) <= self.bounds.max_offset
    }

    /// The time that expiry and sealing go by, in nanoseconds since the epoch: what is removed by a wrong time is gone for all.
    /// `has_other`: whether the store has a clock of its own. Its time it is then, as long as the wall clock agrees within
    /// `max_offset`; otherwise it is the wall clock's, as long as nobody has set it by more than that since the start.
    ///
    /// # Errors
    /// Why there is none that can be trusted. The first time in a row, that is logged.
    pub fn trusted_ns(&self, has_other: bool) -> Result<i64, ClockDoubt> {
        let now_ms = self.now_ms();
        let mut state = self.state.lock();
        let wall_ns = wall_ns();
        let trusted = match has_other {
            true => state.agreed_ns(i64::try_from(now_ms).unwrap_or(i64::MAX), wall_ns, self.bounds.max_offset),
            false => state.steady_ns(wall_ns, since_boot(), self.bounds.max_offset),
        };
        if let Err(doubt) = trusted
            && doubt != ClockDoubt::Unknown
            && !state.told
        {
            tracing::warn!("nothing expires and no day is sealed: {doubt}");
        }
        state.told = trusted.is_err_and(|doubt| doubt != ClockDoubt::Unknown);
        trusted
    }
}

impl State {
    fn anchored_at(anchor_ns: i64) -> Self {
        let at_ms = anchor_ns / MILLI_NS;
        Self {
            anchor_ns,
            anchor: since_boot(),
            seen_ms: None,
            target_ms: None,
            applied_ms: 0,
            at_ms,
            set_ms: 0,
            doubted: None,
            told: false,
        }
    }

    fn own_ms(&self) -> i64 {
        self.own_ms_at(since_boot())
    }

    fn own_ms_at(&self, boot: Duration) -> i64 {
        let elapsed = boot.saturating_sub(self.anchor);
        self.anchor_ns.saturating_add(i64::try_from(elapsed.as_nanos()).unwrap_or(i64::MAX)) / MILLI_NS
    }

    /// The store's time, if the wall clock agrees.
    fn agreed_ns(&self, now_ms: i64, wall_ns: i64, max_offset: Duration) -> Result<i64, ClockDoubt> {
        let Some(seen_ms) = self.seen_ms else { return Err(ClockDoubt::Unknown) };
        if Duration::from_millis(seen_ms.unsigned_abs()) > max_offset {
            return Err(ClockDoubt::Off(-seen_ms));
        }
        let ahead_ms = wall_ns / MILLI_NS - now_ms;
        if Duration::from_millis(ahead_ms.unsigned_abs()) > max_offset {
            return Err(ClockDoubt::Off(ahead_ms));
        }
        Ok(now_ms.saturating_mul(MILLI_NS))
    }

    /// The wall clock, if it has gone on as it was.
    fn steady_ns(&mut self, wall_ns: i64, boot: Duration, max_offset: Duration) -> Result<i64, ClockDoubt> {
        let by_ms = wall_ns / MILLI_NS - self.own_ms_at(boot);
        let is_as = |other: i64| Duration::from_millis(by_ms.abs_diff(other)) <= max_offset;
        if !is_as(self.set_ms) {
            let (_, since) = self.doubted.filter(|(doubted, _)| is_as(*doubted)).unwrap_or((by_ms, boot));
            if boot.saturating_sub(since) < BELIEVED_AFTER {
                self.doubted = Some((by_ms, since));
                return Err(ClockDoubt::Set(by_ms - self.set_ms));
            }
            self.set_ms = by_ms;
        }
        self.doubted = None;
        Ok(wall_ns)
    }

    fn observe(&mut self, sample: ClockSample, bounds: ClockBounds) {
        let uncertainty = Duration::from_millis(sample.uncertainty_ms.unsigned_abs());
        let before = self.seen_ms.unwrap_or_default();
        let is_other = Duration::from_millis(before.abs_diff(sample.offset_ms)) > bounds.tolerance + uncertainty;
        let seen = if is_other { sample.offset_ms } else { before };
        self.seen_ms = Some(seen);
        if Duration::from_millis(seen.unsigned_abs()) <= bounds.max_offset {
            if self.target_ms.is_none() {
                self.applied_ms = seen;
            }
            self.target_ms = Some(seen);
        }
    }
}

/// The time since boot; on Linux it includes suspend.
fn since_boot() -> Duration {
    #[cfg(target_os = "linux")]
    let clock = ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    let clock = ClockId::Monotonic;
    let time = clock_gettime(clock);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or_default(), u32::try_from(time.tv_nsec).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock() -> StampClock {
        StampClock::new(ClockBounds { tolerance: Duration::from_millis(250), max_offset: Duration::from_secs(60) })
    }

    #[test]
    fn an_offset_within_the_tolerance_is_not_taken_over_and_a_larger_one_is_slewed() {
        let clock = clock();
        clock.observe(ClockSample { offset_ms: 250, uncertainty_ms: 5 });
        assert_eq!(clock.offset_ms(), 0);
        clock.observe(ClockSample { offset_ms: -2_000, uncertainty_ms: 5 });
        assert_eq!(clock.offset_ms(), -2_000);
        let (before, own) = (clock.now_ms(), clock.own_ms());
        assert!(before + 100 > u64::try_from(own).unwrap(), "not at once: {before} {own}");
    }

    #[test]
    fn the_first_look_counts_at_once() {
        let clock = clock();
        clock.observe(ClockSample { offset_ms: -2_000, uncertainty_ms: 5 });
        let (now, own) = (clock.now_ms(), clock.own_ms());
        assert!(now + 1_900 < u64::try_from(own).unwrap(), "{now} {own}");
    }

    /// Regression: a device booted with a wrong wall clock, which was corrected while the service ran. Writes were
    /// rejected until the service was restarted.
    #[test]
    fn a_wall_clock_that_was_set_counts_at_once() {
        let clock = clock();
        clock.observe(ClockSample { offset_ms: 1_000_000, uncertainty_ms: 5 });
        let right = clock.own_ms() + 1_000_000;
        clock.set(right * MILLI_NS, ClockSample { offset_ms: 10, uncertainty_ms: 5 });
        assert_eq!((clock.offset_ms(), clock.is_known()), (0, true));
        assert!(clock.now_ms().abs_diff(u64::try_from(right).unwrap()) < 1000);
    }

    /// Regression: a store's clock was an hour off and was then corrected. Writes were accepted again while the stamps
    /// were still slewing back.
    #[test]
    fn an_offset_beyond_the_bound_moves_no_stamp() {
        let clock = clock();
        let wild = ClockSample { offset_ms: 3_600_000, uncertainty_ms: 5 };
        clock.observe(wild);
        assert_eq!((clock.offset_ms(), clock.is_right()), (3_600_000, false));
        assert!(clock.now_ms().abs_diff(u64::try_from(clock.own_ms()).unwrap()) < 1000);
        clock.observe(ClockSample { offset_ms: 2_000, uncertainty_ms: 5 });
        clock.observe(wild);
        clock.observe(ClockSample { offset_ms: 2_000, uncertainty_ms: 5 });
        let ahead = i64::try_from(clock.now_ms()).unwrap() - clock.own_ms();
        assert!(clock.is_right() && (1_900..2_100).contains(&ahead), "{ahead}");
    }

    const MAX: Duration = Duration::from_secs(60);
    const YEAR_MS: i64 = 365 * 86_400_000;

    /// Regression: expiry went by the wall clock, and only the clock of stamps, which notices no step, was compared with the
    /// store's. A virtual machine that was resumed with a clock a year ahead had all readings deleted.
    #[test]
    fn a_wall_clock_that_was_set_is_not_trusted_beside_the_stores() {
        let (clock, wall) = (clock(), wall_ns());
        let own = |state: &State| state.own_ms();
        let trusted = |by_ms: i64| {
            let state = clock.state.lock();
            state.agreed_ns(own(&state), wall + by_ms * MILLI_NS, MAX)
        };
        assert_eq!(trusted(0), Err(ClockDoubt::Unknown));
        clock.observe(ClockSample { offset_ms: 10, uncertainty_ms: 5 });
        assert!(clock.is_right() && trusted(0).is_ok_and(|now| now.abs_diff(wall) < 1_000_000_000));
        for by_ms in [YEAR_MS, -YEAR_MS, 62_000, -62_000] {
            assert!(clock.is_right());
            assert!(matches!(trusted(by_ms), Err(ClockDoubt::Off(told)) if told.abs_diff(by_ms) < 1000), "{by_ms}");
        }
        assert!(trusted(-30_000).is_ok_and(|now| now.abs_diff(wall) < 1_000_000_000), "the store's time");
        clock.observe(ClockSample { offset_ms: 120_000, uncertainty_ms: 5 });
        assert_eq!(trusted(0), Err(ClockDoubt::Off(-120_000)));
    }

    /// Regression: with the embedded store, a wall clock that jumped while the process ran had everything deleted at the next
    /// look. Now it is trusted once it has gone on so for a day: a board that has no clock gets its time after the start.
    #[test]
    fn a_wall_clock_that_was_set_is_trusted_after_a_day_where_nothing_else_knows_the_time() {
        let (start, boot) = (1_768_485_600_000_000_000, Duration::from_secs(1000));
        let mut state = State { anchor: boot, ..State::anchored_at(start) };
        let mut trusted = |seconds: u64, by_ms: i64| {
            let wall = start + i64::try_from(seconds).unwrap() * 1_000_000_000 + by_ms * MILLI_NS;
            state.steady_ns(wall, boot + Duration::from_secs(seconds), MAX).map(|now| now - wall)
        };
        assert_eq!(trusted(10, 59_000), Ok(0));
        assert_eq!(trusted(20, YEAR_MS), Err(ClockDoubt::Set(YEAR_MS)));
        assert_eq!(trusted(86_419, YEAR_MS + 20_000), Err(ClockDoubt::Set(YEAR_MS + 20_000)));
        // Another step begins anew, and the first time is right at once.
        assert_eq!(trusted(86_420, -YEAR_MS), Err(ClockDoubt::Set(-YEAR_MS)));
        assert_eq!(trusted(86_430, 0), Ok(0));
        assert_eq!(trusted(90_000, YEAR_MS), Err(ClockDoubt::Set(YEAR_MS)));
        assert_eq!(trusted(90_000 + 86_400, YEAR_MS), Ok(0));
        assert_eq!(trusted(190_000, 0), Err(ClockDoubt::Set(-YEAR_MS)));
        assert_eq!(trusted(190_001, YEAR_MS), Ok(0));
    }

    #[test]
    fn an_uncertain_look_changes_nothing() {
        let clock = clock();
        clock.observe(ClockSample { offset_ms: 3_000, uncertainty_ms: 4_000 });
        assert_eq!(clock.offset_ms(), 0);
    }
}
