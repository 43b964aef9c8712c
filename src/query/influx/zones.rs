//! Time zones by name.

use crate::influxql::{CivilTime, utc};
use crate::query::engine::windows::{offset, zone};

/// Returns true if a time zone of this name exists.
#[must_use]
pub fn is_zone(name: &str) -> bool {
    zone(name).is_some()
}

/// Returns the instant of a local time in a zone. If clocks show the time twice, it is the later one. If clocks skip
/// the time, the offset before the change applies.
pub fn resolve(name: &str, civil: CivilTime) -> i128 {
    let instant = || zone(name)?.to_ambiguous_timestamp(civil).later().ok();
    instant().map_or_else(|| utc(civil), |instant| instant.as_nanosecond())
}

/// Returns the offset of a zone from UTC in nanoseconds, or zero for an unknown zone.
#[must_use]
pub fn zone_offset(name: &str, time: i64) -> i64 {
    zone(name).map_or(0, |zone| offset(&zone, time))
}
