//! On what terms readings are taken in, beyond what a line says by itself: whose sensors its sender may write, how old
//! or how far ahead a reading may be, and whether its timestamp looks as if it were meant in another unit.

use crate::access::Caller;
use crate::reading::{Precision, Reason, Sensor};

/// A time further from now than this is looked at twice: ten years of nanoseconds.
const FAR: u64 = 10 * 365 * 24 * 3600 * 1_000_000_000;
const SECOND: i64 = 1_000_000_000;

/// Which times are taken, relative to when a request was received.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Window {
    /// Nanoseconds before it; nothing for any.
    pub past: Option<i64>,
    /// Nanoseconds after it; nothing for any.
    pub future: Option<i64>,
}

impl Window {
    /// Why a time is not taken.
    #[must_use]
    pub fn refusal(&self, time: i64, received: i64) -> Option<Reason> {
        let outside =
            |bound: i64, ahead: bool| Reason::OutsideWindow { time, ahead, seconds: (bound / SECOND).unsigned_abs() };
        match (self.past, self.future) {
            (Some(past), _) if time < received.saturating_sub(past) => Some(outside(past, false)),
            (_, Some(future)) if time > received.saturating_add(future) => Some(outside(future, true)),
            _ => None,
        }
    }
}

/// Why a sender may not write this sensor, or bring it in.
pub fn barred(by: &Caller, sensor: &Sensor) -> Option<Reason> {
    let pin = by.pins().iter().find(|pin| !pin.matches(sensor))?;
    Some(Reason::OtherSensor { tag: pin.key.clone(), required: pin.value.clone() })
}

/// The unit that a timestamp seems to be in, if that is another than was declared: it lies far from now as it was
/// declared, and near to it in the other.
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

    const NOW: i64 = 1_700_000_000 * SECOND;

    #[test]
    fn a_window_takes_its_ends() {
        let window = Window { past: Some(10 * SECOND), future: Some(SECOND) };
        assert_eq!(window.refusal(NOW - 10 * SECOND, NOW), None);
        assert_eq!(window.refusal(NOW + SECOND, NOW), None);
        let old = window.refusal(NOW - 10 * SECOND - 1, NOW);
        assert_eq!(old, Some(Reason::OutsideWindow { time: NOW - 10 * SECOND - 1, ahead: false, seconds: 10 }));
        assert!(matches!(window.refusal(NOW + SECOND + 1, NOW), Some(Reason::OutsideWindow { ahead: true, .. })));
        assert_eq!(Window::default().refusal(i64::MIN, NOW), None);
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
            // The first of January 1990.
            (631_152_000 * SECOND, ns, None),
            // Seconds that were declared as milliseconds: three weeks after 1970.
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
