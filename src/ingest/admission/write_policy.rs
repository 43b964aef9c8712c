//! Checks that need more than the line itself: whether the sender may write the sensor, and whether the timestamp looks
//! as if it were in another unit than declared.

use crate::access::{Caller, Pin};
use crate::bucket::Renames;
use crate::reading::{Precision, Reason, Sensor};

/// Timestamps further from now than this, in nanoseconds, are checked for a wrong unit: ten years.
const FAR: u64 = 10 * 365 * 24 * 3600 * 1_000_000_000;

/// The reason for which a sender may not write a stored sensor, if there is one: a tag that its token pins differs, in the
/// stored name or in the shown one.
pub fn barred(by: &Caller, renames: Option<&Renames>, stored: &Sensor) -> Option<Reason> {
    if by.pins().is_empty() {
        return None;
    }
    let shown = renames.and_then(|renames| renames.shown(stored));
    let has_other = |pin: &&Pin| !pin.matches(stored) || shown.as_ref().is_some_and(|shown| !pin.matches(shown));
    let pin = by.pins().iter().find(has_other)?;
    Some(Reason::OtherSensor { tag: pin.key.clone(), required: pin.value.clone() })
}

/// The unit that a timestamp seems to be in, if it is not the declared one: in the declared unit it is far from now, in
/// the other one near.
#[must_use]
pub fn seeming_unit(time: i64, declared: Precision, received: i64) -> Option<&'static str> {
    if time.abs_diff(received) < FAR || declared == Precision::Auto {
        return None;
    }
    let number = time / declared.unit_ns(time);
    let units = [
        ("s", Precision::Seconds),
        ("ms", Precision::Milliseconds),
        ("us", Precision::Microseconds),
        ("ns", Precision::Nanoseconds),
    ];
    let near = |unit: &Precision| unit.to_ns(number).is_some_and(|time| time.abs_diff(received) < FAR);
    units.into_iter().find(|(_, unit)| *unit != declared && near(unit)).map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::ingest::AcceptedTimes;

    const SECOND: i64 = 1_000_000_000;
    const NOW: i64 = 1_700_000_000 * SECOND;

    #[test]
    fn a_window_takes_its_ends() {
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
    fn what_was_meant_in_another_unit_is_noticed_and_old_data_is_not_blamed() {
        let (ns, ms, s) = (Precision::Nanoseconds, Precision::Milliseconds, Precision::Seconds);
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
