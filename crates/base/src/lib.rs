//! Basics of the service: clocks, measured blocking work, fault injection for tests, and atomic file replacement.
//!
//! Start with [`clock::now_ns`] for the wall clock and [`clock::StampClock`] for the stamps of writes.
//!
//! ```
//! use std::time::Duration;
//!
//! use hourglass_base::clock::{ClockBounds, StampClock};
//!
//! let bounds = ClockBounds { tolerance: Duration::from_millis(250), max_offset: Duration::from_secs(60) };
//! let clock = StampClock::new(bounds, false);
//! let earlier = clock.stamp(7);
//! clock.rise_above(earlier);
//! assert!(clock.stamp(7) > earlier);
//! ```

pub mod blocking;
pub mod clock;
pub mod faults;
pub mod files;
