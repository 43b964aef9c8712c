//! Keeps the resident memory below `server.memory`.
//!
//! A budget counts the bytes that its owner holds. It counts neither what the allocator keeps for later, nor what exists
//! for a moment while data changes its form. So the resident memory is watched, and while it is near the limit, every
//! budget is smaller.

#[cfg(feature = "faults")]
pub mod growth;
/// Without the feature `faults`, nothing is counted.
#[cfg(not(feature = "faults"))]
pub mod growth {
    #[derive(Debug, Clone, Copy)]
    pub struct Growth;

    impl Growth {
        pub fn current() -> Option<Self> {
            None
        }

        pub fn excess(self, _charged: usize) -> Option<isize> {
            None
        }
    }

    pub fn start() {}

    pub fn counted<F: Future>(request: F) -> F {
        request
    }
}

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

/// Interval between two looks at the resident memory.
const INTERVAL: Duration = Duration::from_millis(20);
/// The last part of `server.memory`, in which budgets become smaller.
const MARGIN_DIVISOR: usize = 4;
/// The part of a budget that always stays.
const REST_DIVISOR: usize = 4;
/// The value of [`PRESSURE`] at `server.memory` and above.
const PRESSURE_MAX: usize = 1 << 10;

/// How much smaller budgets are now, of [`PRESSURE_MAX`]. There is one resident memory, so this is global.
static PRESSURE: AtomicUsize = AtomicUsize::new(0);

/// Returns what is left of a budget at present: all of it, or a quarter once the memory has reached its limit.
#[must_use]
pub fn left_of(budget: usize) -> usize {
    let pressure = PRESSURE.load(Ordering::Relaxed);
    if pressure == 0 {
        return budget;
    }
    budget - (budget - budget / REST_DIVISOR) / PRESSURE_MAX * pressure
}

/// Watches the resident memory for ever.
pub async fn watch(limit: usize) {
    growth::start();
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let resident = resident_bytes().unwrap_or(0);
        PRESSURE.store(pressure(resident, limit), Ordering::Relaxed);
    }
}

fn pressure(resident: usize, limit: usize) -> usize {
    let margin = (limit / MARGIN_DIVISOR).max(1);
    let excess = resident.saturating_sub(limit - margin).min(margin);
    excess * PRESSURE_MAX / margin
}

/// Returns the resident memory of this process in bytes, if the system reports it.
#[must_use]
pub fn resident_bytes() -> Option<usize> {
    let fields = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: usize = fields.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_shrink_in_the_last_quarter_of_the_limit() {
        let limit = 800;
        let shown = [0, 600, 700, 800, 5_000].map(|resident| pressure(resident, limit));
        assert_eq!(shown, [0, 0, PRESSURE_MAX / 2, PRESSURE_MAX, PRESSURE_MAX]);
    }

    #[test]
    fn the_system_reports_the_resident_memory() {
        let resident = resident_bytes().expect("a figure of the system");
        assert!(resident > 1 << 20, "{resident}");
    }
}
