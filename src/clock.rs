//! The wall clock: the time of undated readings, of `now()`, of marks that people read, and of expiry. No waiting depends on
//! it; that has [`std::time::Instant`]. And the clock of stamps, by which "later" is told between instances.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

use crate::faults::{self, Bug};
use crate::reading::stamp::first_for;
use crate::reading::time::MILLI_NS;

/// Nanoseconds since the epoch: 0 before it, the largest number after 2262.
#[must_use]
pub fn now_ns() -> i64 {
    i64::try_from(since_epoch().as_nanos()).unwrap_or(i64::MAX)
}

/// Whole seconds since the epoch.
#[must_use]
pub fn now_seconds() -> i64 {
    i64::try_from(since_epoch().as_secs()).unwrap_or(i64::MAX)
}

fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The wall clock in milliseconds since the epoch, with what tests put it wrong by.
#[must_use]
pub fn wall_ms() -> i64 {
    wall_ns() / MILLI_NS
}

fn wall_ns() -> i64 {
    now_ns().saturating_add(faults::clock_ms().saturating_mul(MILLI_NS))
}

/// The clock of stamps: the wall clock as it was when the process started, and from there on the time since the machine's
/// start, which nobody sets; with the offset to the store's clock, where that is another machine's.
#[derive(Debug)]
pub struct StampClock {
    bounds: ClockBounds,
    state: Mutex<State>,
    /// No stamp is made at or below it.
    floor: AtomicU64,
}

/// `[clock]`: which offsets from the store's clock mean something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockBounds {
    /// Differences up to this are not taken over.
    pub tolerance: Duration,
    /// Beyond this nothing is taken in.
    pub max_offset: Duration,
}

#[derive(Debug)]
struct State {
    /// The wall clock in nanoseconds when it was read, and the time since the machine's start then. In milliseconds two
    /// instances on one machine, which started at other parts of one, would differ by one.
    anchor_ns: i64,
    anchor: Duration,
    /// By how many milliseconds the store's clock is ahead, if it was ever looked at.
    seen_ms: Option<i64>,
    /// The last of these within the bound, if there was one.
    target_ms: Option<i64>,
    /// How much of that counts by now, and since when.
    applied_ms: i64,
    at_ms: i64,
}

/// One look at the store's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockSample {
    /// By how many milliseconds the store's clock is ahead.
    pub offset_ms: i64,
    /// How far off that may be: half of the time that the answer took, and the store's own resolution.
    pub uncertainty_ms: i64,
}

/// The clock moves towards a new offset by one millisecond in so many.
const SLEW: i64 = 8;

impl StampClock {
    /// The wall clock, as long as nothing is known of the store's.
    #[must_use]
    pub fn new(bounds: ClockBounds) -> Self {
        Self { bounds, state: Mutex::new(State::anchored_at(wall_ns())), floor: AtomicU64::new(0) }
    }

    /// Milliseconds since the epoch, without regard to the store.
    #[must_use]
    pub fn own_ms(&self) -> i64 {
        self.lock().own_ms()
    }

    /// Milliseconds since the epoch, by the store's clock as far as it is known.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        let mut state = self.lock();
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

    /// The least stamp that a record gets now, in an opening of a log with these random bits.
    #[must_use]
    pub fn stamp(&self, random: u8) -> u64 {
        let now = first_for(self.now_ms(), random);
        now.max(self.floor.load(Ordering::Relaxed) + 1)
    }

    /// Makes no stamp at or below this one any more.
    pub fn rise_above(&self, floor: u64) {
        self.floor.fetch_max(floor, Ordering::Relaxed);
    }

    /// Takes a look at the store's clock over, if it says something else by more than it may be off, and the tolerance: the
    /// first one within the bound at once, and later ones little by little.
    pub fn observe(&self, sample: ClockSample) {
        let offset_ms = if faults::has(Bug::ClockNotCompared) { 0 } else { sample.offset_ms };
        self.lock().observe(ClockSample { offset_ms, ..sample }, self.bounds);
    }

    /// Goes by the wall clock as somebody has set it since, which a look at the store's was taken by: at once.
    pub fn set_to_wall(&self, sample: ClockSample) {
        self.set(wall_ns(), sample);
    }

    fn set(&self, wall_ns: i64, sample: ClockSample) {
        let mut state = self.lock();
        *state = State::anchored_at(wall_ns);
        state.observe(sample, self.bounds);
    }

    /// Whether the store's clock was looked at.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.lock().seen_ms.is_some()
    }

    /// By how many milliseconds the store's clock is ahead, as last seen; 0 before.
    #[must_use]
    pub fn offset_ms(&self) -> i64 {
        self.lock().seen_ms.unwrap_or_default()
    }

    /// Beyond which offset nothing is taken in.
    #[must_use]
    pub fn max_offset(&self) -> Duration {
        self.bounds.max_offset
    }

    /// Whether the store's clock is closer than the bound, as far as anybody has looked.
    #[must_use]
    pub fn is_right(&self) -> bool {
        Duration::from_millis(self.offset_ms().unsigned_abs()) <= self.bounds.max_offset
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn anchored_at(anchor_ns: i64) -> Self {
        let at_ms = anchor_ns / MILLI_NS;
        Self { anchor_ns, anchor: since_boot(), seen_ms: None, target_ms: None, applied_ms: 0, at_ms }
    }

    fn own_ms(&self) -> i64 {
        let elapsed = since_boot().saturating_sub(self.anchor);
        self.anchor_ns.saturating_add(i64::try_from(elapsed.as_nanos()).unwrap_or(i64::MAX)) / MILLI_NS
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

/// Since the machine started, sleep included.
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

    /// A device came up without the time, and its clock was set while the service ran: writes were refused until it was
    /// started anew.
    #[test]
    fn a_wall_clock_that_was_set_counts_at_once() {
        let clock = clock();
        clock.observe(ClockSample { offset_ms: 1_000_000, uncertainty_ms: 5 });
        let right = clock.own_ms() + 1_000_000;
        clock.set(right * MILLI_NS, ClockSample { offset_ms: 10, uncertainty_ms: 5 });
        assert_eq!((clock.offset_ms(), clock.is_known()), (0, true));
        assert!(clock.now_ms().abs_diff(u64::try_from(right).unwrap()) < 1000);
    }

    /// A store's clock was an hour off and was mended: writes were taken again while the stamps were still on their way back.
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

    #[test]
    fn an_uncertain_look_changes_nothing() {
        let clock = clock();
        clock.observe(ClockSample { offset_ms: 3_000, uncertainty_ms: 4_000 });
        assert_eq!(clock.offset_ms(), 0);
    }
}
