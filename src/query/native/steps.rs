//! Steps of the native API: durations such as `15m`, and weeks, months, quarters and years of the calendar.

use crate::query::engine::windows::{Length, MONTHS_MAX, Windows, zone};
use crate::reading::duration::{DURATION_UNITS, parse_duration};

const DAY: i64 = 24 * 3_600_000_000_000;
/// Monday, 5 January 1970, from which weeks are counted.
const MONDAY: i64 = 4 * DAY;

/// Parses a step such as `15m`, `1d`, `1w`, `3mo`, `1q` or `1y` to windows, which are on the clocks of a zone if it is
/// named. Weeks begin on Monday. Durations are counted from the epoch, months from January 1970.
#[must_use]
pub fn parse_step(step: &str, zone_name: Option<&str>) -> Option<Windows> {
    let (every, offset) = match calendar_step(step) {
        Some(step) => step?,
        None => (Length::Fixed(parse_duration(step, &DURATION_UNITS).ok().filter(|step| *step > 0)?), 0),
    };
    Some(Windows { every, offset, zone: zone_name.and_then(zone) })
}

/// Returns the length and the offset of a step of the calendar. The outer option is `None` if the text is no number of
/// such a unit; the inner one if the number is out of range.
fn calendar_step(step: &str) -> Option<Option<(Length, i64)>> {
    let (number, unit) = step.split_at(step.find(|letter: char| !letter.is_ascii_digit())?);
    let months = match unit {
        "w" => 0,
        "mo" => 1,
        "q" => 3,
        "y" => 12,
        _ => return None,
    };
    let number = number.parse::<i64>().ok().filter(|number| *number > 0);
    Some(number.and_then(|number| {
        if months == 0 {
            return Some((Length::Fixed(number.checked_mul(7 * DAY)?), MONDAY));
        }
        let count = number.checked_mul(months).filter(|count| *count <= MONTHS_MAX)?;
        Some((Length::Months(count), 0))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_durations_or_parts_of_the_calendar() {
        let parsed = |step: &str| parse_step(step, None).map(|windows| (windows.every, windows.offset));
        assert_eq!(parsed("15m"), Some((Length::Fixed(900_000_000_000), 0)));
        assert_eq!(parsed("7d"), Some((Length::Fixed(7 * DAY), 0)));
        assert_eq!(parsed("2w"), Some((Length::Fixed(14 * DAY), MONDAY)));
        assert_eq!(parsed("1mo"), Some((Length::Months(1), 0)));
        assert_eq!(parsed("2q"), Some((Length::Months(6), 0)));
        assert_eq!(parsed("1000y"), Some((Length::Months(MONTHS_MAX), 0)));
        for bad in ["", "w", "0mo", "-1q", "1001y", "99999999999999999999y", "20000w", "1.5mo", "1 y", "1M", "1y6mo"] {
            assert_eq!(parsed(bad), None, "{bad}");
        }
    }
}
