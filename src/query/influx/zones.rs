//! Time zones by name.

use crate::influxql::{CivilTime, utc};
use crate::query::engine::windows::{offset, zone};

#[must_use]
pub fn is_zone(name: &str) -> bool {
    zone(name).is_some()
}

/// The instant of a local time in a zone: the later one if clocks show the time twice. If the local time does not exist,
/// since clocks were set forward, the offset from before the change counts.
pub fn resolve(name: &str, civil: CivilTime) -> i128 {
    let instant = || zone(name)?.to_ambiguous_timestamp(civil).later().ok();
    instant().map_or_else(|| utc(civil), |instant| instant.as_nanosecond())
}

/// How far a zone's local time is ahead of UTC, in nanoseconds; zero for an unknown zone.
#[must_use]
pub fn zone_offset(name: &str, time: i64) -> i64 {
    zone(name).map_or(0, |zone| offset(&zone, time))
}
