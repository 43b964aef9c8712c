//! Bounds that several keys share.

use std::time::Duration;

pub const TIB: usize = 1 << 40;
pub const ZERO: Duration = Duration::ZERO;
pub const MILLISECOND: Duration = Duration::from_millis(1);
/// The minimum of timeouts. No request could be answered within less.
pub const TICK: Duration = Duration::from_millis(10);
pub const SECOND: Duration = Duration::from_secs(1);
pub const MINUTE: Duration = Duration::from_secs(60);
pub const HOUR: Duration = Duration::from_secs(60 * 60);
pub const DAY: Duration = Duration::from_secs(24 * 60 * 60);
pub const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// 292 years: from 1970 to the first or last timestamp that 64-bit nanoseconds can represent.
pub const SPAN_MAX: Duration = Duration::from_secs(292 * 365 * 24 * 60 * 60);
/// The maximum of quotas. A larger one would not limit anything.
pub const QUOTA_MAX: usize = 1_000_000_000;
