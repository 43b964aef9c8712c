//! Checks that need more than the line itself: the sender's permission to write the sensor, and timestamps that look as
//! if they were in another unit than declared.

use crate::access::{Caller, Pin};
use crate::bucket::Renames;
use crate::reading::{Precision, Reason, Sensor};

/// Timestamps closer to now than this, in nanoseconds, are plausible: ten years. Others are checked for a wrong unit.
const PLAUSIBLE_NS: u64 = 10 * 365 * 24 * 3600 * 1_000_000_000;

/// Returns the reason for which a caller may not write a stored sensor: its token pins a tag to a value that the stored
/// or the shown name does not have.
pub fn pin_violation(caller: &Caller, renames: Option<&Renames>, stored: &Sensor) -> Option<Reason> {
    if caller.pins().is_empty() {
        return None;
    }
    let shown = renames.and_then(|renames| renames.shown_sensor(stored));
    let is_violated = |pin: &&Pin| !pin.matches(stored) || shown.as_ref().is_some_and(|shown| !pin.matches(shown));
    let pin = caller.pins().iter().find(is_violated)?;
    Some(Reason::OtherSensor { tag: pin.key.clone(), required: pin.value.clone() })
}

/// Guesses the unit of a timestamp. Returns a unit if the timestamp is far from now in the declared unit and close to
/// now in that one.
#[must_use]
pub fn seeming_unit(time: i64, declared: Precision, received: i64) -> Option<&'static str> {
    if time.abs_diff(received) < PLAUSIBLE_NS || declared == Precision::Auto {
        return None;
    }
    let number = time / declared.unit_ns(time);
    let units = [
        ("s", Precision::Seconds),
        ("ms", Precision::Milliseconds),
        ("us", Precision::Microseconds),
        ("ns", Precision::Nanoseconds),
    ];
    let is_plausible = |unit: &Precision| unit.to_ns(number).is_some_and(|time| time.abs_diff(received) < PLAUSIBLE_NS);
    units.into_iter().find(|(_, unit)| *unit != declared && is_plausible(unit)).map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::ingest::AcceptedTimes;

    const SECOND: i64 = 1_000_000_000;
    const NOW: i64 = 1_700_000_000 * SECOND;

    #[test]
    fn bounds_are_inclusive() {
        let window = AcceptedTimes { past: Some(10 * SECOND), future: Some(SECOND) };
        assert_eq!(window.refusal(NOW - 10 * SECOND, NOW), None);
        assert_eq!(window.refusal(NOW + SECOND, NOW), None);
        let old = window.refusal(NOW - 10 * SECOND - 1, NOW);
        assert_eq!(old, Some(Reason::OutsideWindow { time: NOW - 10 * SECOND - 1, ahead: false, seconds: 10 }));
        assert!(matches!(window.refusal(NOW + SECOND + 1, NOW), Some(Reason::OutsideWindow { ahead: true, .. })));
        assert_eq!(AcceptedTimes::default().refusal(i64::MIN, NOW), None);
        assert!(window.refusal(i64::MIN, i64::MIN).is_none() && window.refusal(i64::MAX, i64::MAX).is_none());
    }

    #[test]
    fn wrong_units_are_detected_but_old_data_is_not() {
        let ns = Precision::Nanoseconds;
        let ms = Precision::Milliseconds;
        let s = Precision::Seconds;
        let cases = [
            (1_700_000_000, ns, Some("s")),
            (1_700_000_000_000, ns, Some("ms")),
            (1_700_000_000_000_000, ns, Some("us")),
            (NOW, ns, None),
            // 1990-01-01.
            (631_152_000 * SECOND, ns, None),
            // Seconds declared as milliseconds: three weeks after 1970.
            (1_700_000_000 * 1_000_000, ms, Some("s")),
            (1_700_000_000 * SECOND, s, None),
            (0, ns, None),
            (1_700_000_000, Precision::Auto, None),
        ];
        for (time, declared, seeming) in cases {
            assert_eq!(seeming_unit(time, declared, NOW), seeming, "{time} {declared:?}");
        }
    }
}
