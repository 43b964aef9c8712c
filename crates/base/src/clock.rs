//! The wall clock, for readings without a timestamp, `now()`, displayed times and expiry; and the stamp clock, which
//! orders the writes of all instances. Timeouts use [`std::time::Instant`].

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};

use crate::faults;
use hourglass_model::reading::stamp::opening_stamp;
use hourglass_model::reading::time::MILLI_NS;

/// Nanoseconds since the epoch: 0 before it, `i64::MAX` after the year 2262.
#[must_use]
pub fn now_ns() -> i64 {
    i64::try_from(since_epoch().as_nanos()).unwrap_or(i64::MAX)
}

/// The latest time that has passed according to stored data, in nanoseconds since the epoch.
static PROVEN: AtomicI64 = AtomicI64::new(i64::MIN);

/// Records that a time has passed, in nanoseconds since the epoch, because stored data is from that time.
pub fn note_passed(time: i64) {
    PROVEN.fetch_max(time, Ordering::Relaxed);
}

/// The later of [`now_ns`] and the latest time that has passed according to stored data. A machine's clock may be years
/// behind after a start. Use it only where a time that is too late is harmless.
#[must_use]
pub fn latest_ns() -> i64 {
    now_ns().max(PROVEN.load(Ordering::Relaxed))
}

/// The last trusted time minus the time since boot then, in nanoseconds; `i64::MIN` before the first trusted time.
static TRUSTED_BOOT: AtomicI64 = AtomicI64::new(i64::MIN);

/// The time by which readings have expired, in nanoseconds since the epoch: the last trusted time
/// ([`StampClock::trusted_ns`]) plus the time since, so that a step of the wall clock makes no reading expire. Before the
/// first trusted time the wall clock, so that a start without the store accepts nothing that others have expired.
#[must_use]
pub fn expiry_ns() -> i64 {
    match TRUSTED_BOOT.load(Ordering::Relaxed) {
        i64::MIN => now_ns(),
        boot_ns => boot_ns.saturating_add(nanos(since_boot())),
    }
}

fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

/// Whole seconds since the epoch.
#[must_use]
pub fn now_seconds() -> i64 {
    i64::try_from(since_epoch().as_secs()).unwrap_or(i64::MAX)
}

fn since_epoch() -> Duration {
    let now = SystemTime::now() + faults::later();
    let step = faults::step_ms();
    let now = if step < 0 {
        now - Duration::from_millis(step.unsigned_abs())
    } else {
        now + Duration::from_millis(step.unsigned_abs())
    };
    now.duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// A rev for a new part: milliseconds since the epoch, and 12 random bits of this process. Process ids would not differ
/// between containers.
#[must_use]
pub fn first_rev() -> u64 {
    static PROCESS: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(()));
    let millis = u64::try_from(now_ns() / 1_000_000).unwrap_or_default();
    millis << 20 | *PROCESS << 8 & 0xf_ff00
}

/// The wall clock in milliseconds since the epoch, plus the offset that tests inject.
#[must_use]
pub fn wall_ms() -> i64 {
    wall_ns() / MILLI_NS
}

fn wall_ns() -> i64 {
    now_ns().saturating_add(faults::clock_ms().saturating_mul(MILLI_NS))
}

/// The stamp clock: the wall clock at process start (the anchor), advanced by the time since boot, plus the offset to
/// the store's clock if the store has its own. Later changes of the wall clock do not affect it.
#[derive(Debug)]
pub struct StampClock {
    bounds: ClockBounds,
    /// True if the store has its own clock.
    has_other: bool,
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
    /// The wall clock at the anchor, in nanoseconds. In milliseconds, two instances on one machine could permanently
    /// differ by one.
    anchor_ns: i64,
    /// The time since boot at the anchor.
    anchor: Duration,
    /// The believed offset: the milliseconds by which the store's clock is ahead. `None` before the first sample.
    seen_ms: Option<i64>,
    /// The last such offset within `max_offset`.
    target_ms: Option<i64>,
    /// The part of `target_ms` that stamps use so far.
    applied_ms: i64,
    /// The time of the last change of `applied_ms`, by this machine's clock.
    applied_at_ms: i64,
    /// The believed milliseconds by which the wall clock was set since the anchor.
    set_ms: i64,
    /// A later step of the wall clock that is not believed yet.
    doubted: Option<DoubtedStep>,
    /// True if the doubt about the wall clock was logged.
    is_logged: bool,
}

/// A step of the wall clock that is not believed yet.
#[derive(Debug, Clone, Copy)]
struct DoubtedStep {
    /// The milliseconds by which the wall clock differs from its time at the anchor.
    by_ms: i64,
    /// The time since boot when the step was detected.
    detected: Duration,
}

/// The reason that no data expires and no day is sealed now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockDoubt {
    /// The store's clock was not sampled yet.
    Unknown,
    /// The wall clock is this many milliseconds ahead of the store's clock.
    Off(i64),
    /// The wall clock was set by this many milliseconds while the process ran, and there is no other clock.
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

/// The time after which a step of the wall clock is believed if there is no other clock. A day is enough to notice a
/// wrong clock. It cannot be longer, because machines without a hardware clock start with a wrong time and are set
/// later.
const BELIEVED_AFTER: Duration = Duration::from_secs(24 * 3600);

/// One comparison with the store's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockSample {
    /// The milliseconds by which the store's clock is ahead.
    pub offset_ms: i64,
    /// The maximum error of the offset: half the round trip, plus the store's clock resolution.
    pub uncertainty_ms: i64,
}

/// The clock approaches a new offset by one millisecond per this many milliseconds.
const SLEW: i64 = 8;

impl StampClock {
    /// A clock that follows the wall clock until the first sample of the store's clock, if the store has one
    /// (`has_other`).
    #[must_use]
    pub fn new(bounds: ClockBounds, has_other: bool) -> Self {
        Self { bounds, has_other, state: Mutex::new(State::anchored_at(wall_ns())), floor: AtomicU64::new(0) }
    }

    /// Milliseconds since the epoch by this machine's clock.
    #[must_use]
    pub fn own_ms(&self) -> i64 {
        self.state.lock().own_ms()
    }

    /// Milliseconds since the epoch by the store's clock, or by this machine's clock before the first sample.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        let mut state = self.state.lock();
        let own = state.own_ms();
        let room = (own - state.applied_at_ms).max(0) / SLEW;
        let rest = state.target_ms.unwrap_or_default() - state.applied_ms;
        let step = rest.clamp(-room, room);
        state.applied_ms += step;
        if step != 0 || rest == 0 {
            state.applied_at_ms = own;
        }
        u64::try_from(own.saturating_add(state.applied_ms)).unwrap_or_default()
    }

    /// A lower bound for the next record's stamp, in an opening of a WAL with these random bits.
    #[must_use]
    pub fn stamp(&self, random: u8) -> u64 {
        let now = opening_stamp(self.now_ms(), random);
        now.max(self.floor.load(Ordering::Relaxed) + 1)
    }

    /// Makes every later stamp greater than `floor`.
    pub fn rise_above(&self, floor: u64) {
        self.floor.fetch_max(floor, Ordering::Relaxed);
    }

    /// Processes a sample of the store's clock. An offset that differs from the believed one by more than the tolerance
    /// plus the sample's uncertainty becomes the believed offset. Stamps adopt the first offset within `max_offset`
    /// immediately, and later ones gradually.
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

    /// Returns true if the store's clock was sampled.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.state.lock().seen_ms.is_some()
    }

    /// The believed offset: the milliseconds by which the store's clock is ahead; 0 before the first sample.
    #[must_use]
    pub fn offset_ms(&self) -> i64 {
        self.state.lock().seen_ms.unwrap_or_default()
    }

    /// The offset beyond which writes are rejected (`clock.max_offset`).
    #[must_use]
    pub fn max_offset(&self) -> Duration {
        self.bounds.max_offset
    }

    /// Returns true if the believed offset is within `clock.max_offset`; true before the first sample.
    #[must_use]
    pub fn is_right(&self) -> bool {
        Duration::from_millis(self.offset_ms().unsigned_abs()) <= self.bounds.max_offset
    }

    /// The time for expiry and sealing, in nanoseconds since the epoch. It must be right, because removed data cannot
    /// be restored. If the store has its own clock, the result is the store's time, as long as the wall clock agrees
    /// within `max_offset`. Otherwise it is the wall clock, as long as it was not set by more than `max_offset` since the
    /// start. [`expiry_ns`] continues from the last result.
    ///
    /// # Errors
    /// [`ClockDoubt`] if no clock can be trusted. The first error in a row is logged.
    pub fn trusted_ns(&self) -> Result<i64, ClockDoubt> {
        let now_ms = self.now_ms();
        let mut state = self.state.lock();
        let wall_ns = wall_ns();
        let max_offset = self.bounds.max_offset;
        let boot = since_boot();
        let trusted = if self.has_other {
            state.agreed_ns(i64::try_from(now_ms).unwrap_or(i64::MAX), wall_ns, max_offset)
        } else {
            state.steady_ns(wall_ns, boot, max_offset)
        };
        if let Ok(now) = trusted {
            TRUSTED_BOOT.store(now.saturating_sub(nanos(boot)), Ordering::Relaxed);
        }
        if let Err(doubt) = trusted
            && doubt != ClockDoubt::Unknown
            && !state.is_logged
        {
            tracing::warn!("nothing expires and no day is sealed: {doubt}");
        }
        state.is_logged = trusted.is_err_and(|doubt| doubt != ClockDoubt::Unknown);
        trusted
    }
}

impl State {
    fn anchored_at(anchor_ns: i64) -> Self {
        Self {
            anchor_ns,
            anchor: since_boot(),
            seen_ms: None,
            target_ms: None,
            applied_ms: 0,
            applied_at_ms: anchor_ns / MILLI_NS,
            set_ms: 0,
            doubted: None,
            is_logged: false,
        }
    }

    fn own_ms(&self) -> i64 {
        self.own_ms_at(since_boot())
    }

    fn own_ms_at(&self, boot: Duration) -> i64 {
        let elapsed = boot.saturating_sub(self.anchor);
        self.anchor_ns.saturating_add(nanos(elapsed)) / MILLI_NS
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

    /// The wall clock, if it was not set, or was set long enough ago.
    fn steady_ns(&mut self, wall_ns: i64, boot: Duration, max_offset: Duration) -> Result<i64, ClockDoubt> {
        let by_ms = wall_ns / MILLI_NS - self.own_ms_at(boot);
        let is_close = |other: i64| Duration::from_millis(by_ms.abs_diff(other)) <= max_offset;
        if !is_close(self.set_ms) {
            let detected = self.doubted.filter(|step| is_close(step.by_ms)).map_or(boot, |step| step.detected);
            if boot.saturating_sub(detected) < BELIEVED_AFTER {
                self.doubted = Some(DoubtedStep { by_ms, detected });
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
pub fn since_boot() -> Duration {
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
        let bounds = ClockBounds { tolerance: Duration::from_millis(250), max_offset: Duration::from_secs(60) };
        StampClock::new(bounds, true)
    }

    #[test]
    fn small_offsets_are_ignored_and_larger_ones_are_slewed() {
        let clock = clock();
        clock.observe(ClockSample { offset_ms: 250, uncertainty_ms: 5 });
        assert_eq!(clock.offset_ms(), 0);
        clock.observe(ClockSample { offset_ms: -2_000, uncertainty_ms: 5 });
        assert_eq!(clock.offset_ms(), -2_000);
        let before = clock.now_ms();
        let own = clock.own_ms();
        assert!(before + 100 > u64::try_from(own).unwrap(), "not at once: {before} {own}");
    }

    #[test]
    fn the_first_sample_counts_immediately() {
        let clock = clock();
        clock.observe(ClockSample { offset_ms: -2_000, uncertainty_ms: 5 });
        let now = clock.now_ms();
        let own = clock.own_ms();
        assert!(now + 1_900 < u64::try_from(own).unwrap(), "{now} {own}");
    }

    /// Regression: a device booted with a wrong wall clock, which was corrected while the service ran. Writes were
    /// rejected until the service was restarted.
    #[test]
    fn a_corrected_wall_clock_counts_immediately() {
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

    /// Regression: expiry used the wall clock, and only the stamp clock, which ignores steps, was compared with the
    /// store's. All readings were deleted when a virtual machine was resumed with a clock a year ahead.
    #[test]
    fn a_step_of_the_wall_clock_is_not_trusted_if_the_store_disagrees() {
        let clock = clock();
        let wall = wall_ns();
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

    /// Regression: with the embedded store, a wall clock that jumped while the process ran caused the deletion of all
    /// data. A step is now trusted after a day: a board without a hardware clock gets its time after the start.
    #[test]
    fn without_another_clock_a_step_of_the_wall_clock_is_trusted_after_a_day() {
        let start = 1_768_485_600_000_000_000;
        let boot = Duration::from_secs(1000);
        let mut state = State { anchor: boot, ..State::anchored_at(start) };
        let mut trusted = |seconds: u64, by_ms: i64| {
            let wall = start + i64::try_from(seconds).unwrap() * 1_000_000_000 + by_ms * MILLI_NS;
            state.steady_ns(wall, boot + Duration::from_secs(seconds), MAX).map(|now| now - wall)
        };
        assert_eq!(trusted(10, 59_000), Ok(0));
        assert_eq!(trusted(20, YEAR_MS), Err(ClockDoubt::Set(YEAR_MS)));
        assert_eq!(trusted(86_419, YEAR_MS + 20_000), Err(ClockDoubt::Set(YEAR_MS + 20_000)));
        // Another step starts a new day of doubt, and the original time is trusted immediately.
        assert_eq!(trusted(86_420, -YEAR_MS), Err(ClockDoubt::Set(-YEAR_MS)));
        assert_eq!(trusted(86_430, 0), Ok(0));
        assert_eq!(trusted(90_000, YEAR_MS), Err(ClockDoubt::Set(YEAR_MS)));
        assert_eq!(trusted(90_000 + 86_400, YEAR_MS), Ok(0));
        assert_eq!(trusted(190_000, 0), Err(ClockDoubt::Set(-YEAR_MS)));
        assert_eq!(trusted(190_001, YEAR_MS), Ok(0));
    }

    #[test]
    fn an_uncertain_sample_changes_nothing() {
        let clock = clock();
        clock.observe(ClockSample { offset_ms: 3_000, uncertainty_ms: 4_000 });
        assert_eq!(clock.offset_ms(), 0);
    }
}
