//! Windows of `GROUP BY time()`: which window a time lies in, in UTC or in a zone with its own
//! days and daylight saving.

use std::ops::Range;

use jiff::tz::TimeZone;

/// Windows of one width.
#[derive(Debug, Clone)]
pub struct Windows {
    /// Their width in nanoseconds, above zero.
    pub every: i64,
    /// By how much they start behind multiples of their width.
    pub offset: i64,
    /// The zone whose clocks the multiples are counted on.
    pub zone: Option<TimeZone>,
}

impl Windows {
    /// The window that a time lies in. Around a change of the zone's clocks a window is as much
    /// shorter or longer as the change is, where it is less than the window.
    #[must_use]
    pub fn around(&self, time: i64) -> Range<i64> {
        let Some(zone) = &self.zone else { return self.plain(time, 0) };
        let here = offset(zone, time);
        let Range { mut start, mut end } = self.plain(time, here);
        // The last nanosecond: clocks may change with the first one behind it.
        let (at_start, at_end) = (offset(zone, start), offset(zone, end - 1));
        if at_start != here && (at_start - here).abs() < self.every {
            start = start.saturating_add(here - at_start);
        }
        if at_end != here && (at_end - here).abs() < self.every {
            end = end.saturating_add(here - at_end);
        }
        start..end
    }

    fn plain(&self, time: i64, zone: i64) -> Range<i64> {
        let shifted = i128::from(time) - i128::from(self.offset) + i128::from(zone);
        let start = i128::from(time) - shifted.rem_euclid(i128::from(self.every));
        let clamp = |time: i128| i64::try_from(time).unwrap_or(if time < 0 { i64::MIN } else { i64::MAX });
        clamp(start)..clamp(start + i128::from(self.every))
    }

    /// The starts of the windows that touch a range, both ends included, in order; at most so many.
    pub fn starts(&self, from: i64, to: i64, max: usize) -> Result<Vec<i64>, usize> {
        let mut starts = Vec::new();
        let mut window = self.around(from);
        while window.start <= to {
            if starts.len() >= max {
                return Err(max);
            }
            starts.push(window.start);
            let next = self.around(window.end);
            // At the end of time there is none behind.
            if next.start <= window.start {
                break;
            }
            window = next;
        }
        Ok(starts)
    }
}

/// By how many nanoseconds a zone's clocks are ahead of UTC.
#[must_use]
pub fn offset(zone: &TimeZone, time: i64) -> i64 {
    let time = jiff::Timestamp::from_nanosecond(i128::from(time)).unwrap_or_default();
    i64::from(zone.to_offset(time).seconds()) * 1_000_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000_000_000;

    #[test]
    fn windows_are_counted_from_the_epoch_and_shifted() {
        let windows = Windows { every: HOUR, offset: 0, zone: None };
        assert_eq!(windows.around(0), 0..HOUR);
        assert_eq!(windows.around(-1), -HOUR..0);
        let shifted = Windows { offset: HOUR / 4, ..windows.clone() };
        assert_eq!(shifted.around(0), HOUR / 4 - HOUR..HOUR / 4);
        assert_eq!(shifted.around(HOUR / 4), HOUR / 4..HOUR / 4 + HOUR);
        assert_eq!(windows.starts(1, 2 * HOUR, 9), Ok(vec![0, HOUR, 2 * HOUR]));
        assert_eq!(windows.starts(1, 2 * HOUR, 2), Err(2));
    }

    #[test]
    fn days_of_a_zone_are_23_and_25_hours_long_where_its_clocks_change() {
        let zone = TimeZone::get("Europe/Paris").expect("a zone everybody has");
        let days = Windows { every: 24 * HOUR, offset: 0, zone: Some(zone) };
        // 2026-03-29 and 2026-10-25.
        for (noon, hours) in [(1_774_780_000 * 1_000_000_000, 23), (1_792_925_000 * 1_000_000_000, 25)] {
            let day = days.around(noon);
            assert_eq!((day.end - day.start) / HOUR, hours);
            assert_eq!(days.around(day.start), day, "its first nanosecond is in it");
        }
    }
}
