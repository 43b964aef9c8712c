//! Windows of `GROUP BY time()` and of the summary endpoint, in UTC or in the local time of a zone. Windows are a
//! partition: every time lies in exactly one, also on days when clocks change.

use std::ops::Range;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

/// Windows of one width.
#[derive(Debug, Clone)]
pub struct Windows {
    pub every: Length,
    /// By how much windows start after multiples of their width. Months have no offset.
    pub offset: i64,
    /// The zone in whose local time the multiples are counted.
    pub zone: Option<TimeZone>,
}

const HOUR_NS: i64 = 3_600_000_000_000;
/// The width of windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// Nanoseconds, above zero, counted from the epoch.
    Fixed(i64),
    /// Months of the calendar, from 1 to [`MONTHS_MAX`], counted from January 1970.
    Months(i64),
}

/// The most months of a window: those of 1,000 years.
pub const MONTHS_MAX: i64 = 12_000;
/// The mean length of a month in nanoseconds.
const MONTH: i64 = 2_629_746_000_000_000;
/// The length of the shortest month.
const SHORTEST_MONTH: i64 = 28 * 24 * HOUR_NS;

/// More than any zone has ever changed its clocks by.
const SET_MOST: i64 = 26 * HOUR_NS;

impl Windows {
    /// The window that a time lies in.
    ///
    /// In a zone, a window begins when local clocks first show its start, and ends when they first show the next
    /// window's start. Windows that are no longer than a clock change end at the change, and counting starts anew
    /// there.
    #[must_use]
    pub fn around(&self, time: i64) -> Range<i64> {
        let every = match self.every {
            Length::Fixed(every) => every,
            Length::Months(count) => return self.months_around(count, time),
        };
        let Some(zone) = &self.zone else { return self.plain(every, time, 0) };
        let here = offset(zone, time);
        let plain = self.plain(every, time, here);
        let is_same = |at: i64| offset(zone, at) == here;
        match is_same(plain.start.saturating_sub(SET_MOST)) && is_same(plain.end.saturating_add(SET_MOST)) {
            true => plain,
            false => self.beside_changes(zone, every, time, &plain),
        }
    }

    /// As [`Self::around`], of a time that is likely to lie in the window behind this one.
    #[must_use]
    pub fn behind(&self, window: &Range<i64>, time: i64) -> Range<i64> {
        if let (Length::Fixed(every), None) = (self.every, &self.zone) {
            let next = window.end..window.end.saturating_add(every);
            if next.contains(&time) && next.end < i64::MAX {
                return next;
            }
        }
        self.around(time)
    }

    /// The window of this many months that a time lies in.
    fn months_around(&self, count: i64, time: i64) -> Range<i64> {
        let zone = &self.zone.clone().unwrap_or(TimeZone::UTC);
        let date = zone.to_datetime(timestamp(time));
        let month = (i64::from(date.year()) - 1970) * 12 + i64::from(date.month()) - 1;
        let first = month - month.rem_euclid(count);
        let end = month_start(zone, first + count);
        // Clocks that are set back across midnight show the last hour of a month again.
        if time >= end && end < i64::MAX {
            return end..month_start(zone, first + 2 * count);
        }
        month_start(zone, first)..end
    }

    /// The window that a time lies in, for times in or near a window in which clocks change.
    fn beside_changes(&self, zone: &TimeZone, every: i64, time: i64, plain: &Range<i64>) -> Range<i64> {
        let time = i128::from(time);
        let far = i128::from(SET_MOST) * 2;
        let stretches = stretches(zone, i128::from(plain.start) - far..i128::from(plain.end) + far);
        let counted = uncut(&stretches, every, time);
        let (begin, end) = (counted[0].times.start, counted[counted.len() - 1].times.end);
        // The latest local time shown so far: after clocks are set back they repeat earlier times.
        let past = counted.iter().filter(|stretch| stretch.times.start <= time);
        let shown = past.map(|stretch| time.min(stretch.times.end - 1) + stretch.ahead).max().unwrap_or(time);
        let start = shown - (shown - i128::from(self.offset)).rem_euclid(i128::from(every));
        let first_shown = |clock: i128| {
            let at = |stretch: &Stretch| {
                Some(stretch.times.start.max(clock - stretch.ahead)).filter(|at| *at < stretch.times.end)
            };
            counted.iter().find_map(at).unwrap_or(end)
        };
        clamp(first_shown(start).max(begin))..clamp(first_shown(start + i128::from(every)))
    }

    fn plain(&self, every: i64, time: i64, zone: i64) -> Range<i64> {
        // Nearly always; divisions of 128 bits take several times as long.
        let within_64_bits = || {
            let behind = time.checked_sub(self.offset)?.checked_add(zone)?.rem_euclid(every);
            let start = time.checked_sub(behind)?;
            Some(start..start.checked_add(every)?)
        };
        within_64_bits().unwrap_or_else(|| self.plain_at_the_ends(every, time, zone))
    }

    /// As [`Self::plain`], for times near the ends of what 64 bits hold.
    fn plain_at_the_ends(&self, every: i64, time: i64, zone: i64) -> Range<i64> {
        let shifted = i128::from(time) - i128::from(self.offset) + i128::from(zone);
        let start = i128::from(time) - shifted.rem_euclid(i128::from(every));
        clamp(start)..clamp(start + i128::from(every))
    }

    /// The usual length of a window, in nanoseconds.
    #[must_use]
    pub fn usual_length(&self) -> i64 {
        match self.every {
            Length::Fixed(every) => every,
            Length::Months(count) => count.saturating_mul(MONTH),
        }
    }

    /// Returns true if all windows begin at multiples of this unit, which divides a day, in UTC.
    #[must_use]
    pub fn is_aligned(&self, unit: i64) -> bool {
        let is_utc = self.zone.as_ref().is_none_or(|zone| *zone == TimeZone::UTC);
        is_utc
            && match self.every {
                Length::Fixed(every) => every % unit == 0 && self.offset % unit == 0,
                Length::Months(_) => true,
            }
    }

    /// The earliest time of a range of whole hours from which on no window cuts an hour; `None` if there is none.
    #[must_use]
    pub fn whole_hours_from(&self, range: &Range<i64>) -> Option<i64> {
        if self.around(range.start).end >= range.end {
            return Some(range.start);
        }
        if let Length::Fixed(every) = self.every
            && (every % HOUR_NS != 0 || self.offset % HOUR_NS != 0)
        {
            return None;
        }
        let Some(zone) = &self.zone else { return Some(range.start) };
        let is_whole = |at: i64| offset(zone, at) % HOUR_NS == 0;
        if !is_whole(range.end) {
            return None;
        }
        for change in zone.preceding(timestamp(range.end)) {
            let at = clamp(change.timestamp().as_nanosecond());
            if at <= range.start {
                break;
            }
            if at % HOUR_NS != 0 || !is_whole(at.saturating_sub(1)) {
                return Some(self.around(at).end).filter(|start| *start < range.end);
            }
        }
        Some(range.start)
    }

    /// About how many windows touch a range.
    #[must_use]
    pub fn count(&self, range: Range<i64>) -> usize {
        let shortest = match self.every {
            Length::Fixed(every) => every,
            Length::Months(count) => count.saturating_mul(SHORTEST_MONTH),
        };
        let whole = (i128::from(range.end) - i128::from(range.start)) / i128::from(shortest);
        // Clock changes can add windows.
        usize::try_from(whole.max(0) + 64).unwrap_or(usize::MAX)
    }

    /// The starts of the windows that touch the range, both ends included, in ascending or descending order; at most
    /// `most`.
    #[must_use]
    pub fn starts(&self, from: i64, to: i64, backwards: bool, most: usize) -> Vec<i64> {
        let mut starts = Vec::new();
        let mut window = self.around(if backwards { to } else { from });
        while starts.len() < most && window.start <= to && window.end > from {
            starts.push(window.start);
            let next = self.around(if backwards { window.start.saturating_sub(1) } else { window.end });
            // At the ends of the time range there is no next window.
            if next.start == window.start {
                break;
            }
            window = next;
        }
        starts
    }
}

/// A stretch of time during which a zone's clocks do not change.
#[derive(Debug, Clone)]
struct Stretch {
    times: Range<i128>,
    /// How many nanoseconds local time is ahead of UTC.
    ahead: i128,
}

/// The stretches of a zone within a range that is not empty, in order.
fn stretches(zone: &TimeZone, range: Range<i128>) -> Vec<Stretch> {
    let from = clamp(range.start);
    let mut stretches = vec![Stretch { times: range.clone(), ahead: i128::from(offset(zone, from)) }];
    for change in zone.following(timestamp(from)) {
        let (at, ahead) = (change.timestamp().as_nanosecond(), i128::from(change.offset().seconds()) * 1_000_000_000);
        if at >= range.end {
            break;
        }
        let last = stretches.len() - 1;
        // Some transitions change only the zone's abbreviation.
        if stretches[last].ahead != ahead {
            stretches[last].times.end = at;
            stretches.push(Stretch { times: at..range.end, ahead });
        }
    }
    stretches
}

/// The stretches around `time` that are not separated by a change of at least `every`.
fn uncut(stretches: &[Stretch], every: i64, time: i128) -> &[Stretch] {
    let is_joined = |a: &Stretch, b: &Stretch| (b.ahead - a.ahead).abs() < i128::from(every);
    let mut result_rows = stretches.chunk_by(is_joined);
    result_rows.find(|result_rows| result_rows.iter().any(|stretch| stretch.times.contains(&time))).unwrap_or(stretches)
}

/// The first instant of a month, counted from January 1970.
fn month_start(zone: &TimeZone, month: i64) -> i64 {
    let end = if month < 0 { i64::MIN } else { i64::MAX };
    let start = || {
        let year = i16::try_from(1970 + month.div_euclid(12)).ok()?;
        let number = i8::try_from(month.rem_euclid(12) + 1).ok()?;
        let date = Date::new(year, number, 1).ok()?;
        Some(clamp(date.to_zoned(zone.clone()).ok()?.timestamp().as_nanosecond()))
    };
    start().unwrap_or(end)
}

fn clamp(time: i128) -> i64 {
    i64::try_from(time).unwrap_or(if time < 0 { i64::MIN } else { i64::MAX })
}

fn timestamp(time: i64) -> Timestamp {
    Timestamp::from_nanosecond(i128::from(time)).unwrap_or_default()
}

/// The time zone of this name, if there is one; UTC for an empty name.
#[must_use]
pub fn zone(name: &str) -> Option<TimeZone> {
    match name {
        "" | "UTC" => Some(TimeZone::UTC),
        name => TimeZone::get(name).ok(),
    }
}

/// How many nanoseconds a zone's local time is ahead of UTC.
#[must_use]
pub fn offset(zone: &TimeZone, time: i64) -> i64 {
    i64::from(zone.to_offset(timestamp(time)).seconds()) * 1_000_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = HOUR_NS;

    #[test]
    fn windows_of_a_zone_cut_no_hour_since_a_change_of_its_clocks() {
        let all = i64::MIN..i64::MAX;
        let from = |name: &str, every: i64, offset: i64| {
            let windows = Windows { every: Length::Fixed(every), offset, zone: zone(name) };
            windows.whole_hours_from(&all).inspect(|start| assert_eq!(windows.around(*start).start, *start, "{name}"))
        };
        // Local mean time ended with the first day of April 1893.
        let berlin = from("Europe/Berlin", 24 * HOUR, 0).map(|start| timestamp(start).to_string());
        assert_eq!(berlin.as_deref(), Some("1893-04-01T23:00:00Z"));
        assert_eq!((from("Asia/Kolkata", 24 * HOUR, 0), from("America/St_Johns", HOUR, 0)), (None, None));
        assert_eq!((from("Europe/Berlin", HOUR / 2, 0), from("UTC", HOUR, 1)), (None, None));
        let windows = Windows { every: Length::Fixed(HOUR), offset: 0, zone: None };
        assert_eq!(windows.whole_hours_from(&all), Some(i64::MIN));
        // A day in Newfoundland begins at 2:30 or 3:30 UTC.
        let day = Windows { every: Length::Fixed(24 * HOUR), offset: 0, zone: zone("America/St_Johns") };
        assert_eq!([4, 28].map(|end| day.whole_hours_from(&(4 * HOUR..end * HOUR))), [Some(4 * HOUR), None]);
    }

    #[test]
    fn windows_are_counted_from_the_epoch_and_shifted() {
        let windows = Windows { every: Length::Fixed(HOUR), offset: 0, zone: None };
        assert_eq!(windows.around(0), 0..HOUR);
        assert_eq!(windows.around(-1), -HOUR..0);
        let shifted = Windows { offset: HOUR / 4, ..windows.clone() };
        assert_eq!(shifted.around(0), HOUR / 4 - HOUR..HOUR / 4);
        assert_eq!(shifted.around(HOUR / 4), HOUR / 4..HOUR / 4 + HOUR);
        assert_eq!(windows.starts(1, 2 * HOUR, false, 9), [0, HOUR, 2 * HOUR]);
        assert_eq!(windows.starts(1, 2 * HOUR, true, 2), [2 * HOUR, HOUR]);
    }

    #[test]
    fn a_window_is_the_same_by_both_divisions() {
        for every in [1, HOUR, i64::MAX] {
            for offset in [i64::MIN, -HOUR, 0, 1, i64::MAX] {
                for time in [i64::MIN, i64::MIN + 1, -HOUR - 1, -1, 0, 1, HOUR, i64::MAX - 1, i64::MAX] {
                    let windows = Windows { every: Length::Fixed(every), offset, zone: None };
                    let plain = windows.plain(every, time, HOUR / 2);
                    assert_eq!(plain, windows.plain_at_the_ends(every, time, HOUR / 2), "{every} {offset} {time}");
                }
            }
        }
    }

    #[test]
    fn the_window_behind_another_is_the_same_from_there() {
        let zone = TimeZone::get("Europe/Paris").expect("in the time zone database");
        for zone in [None, Some(zone)] {
            let windows = Windows { every: Length::Fixed(24 * HOUR), offset: HOUR, zone };
            // The day before clocks change.
            let window = windows.around(1_774_694_000 * 1_000_000_000);
            for hours in [-30, 0, 1, 22, 23, 24, 25, 47, 48, 500] {
                let time = window.end + hours * HOUR;
                assert_eq!(windows.behind(&window, time), windows.around(time), "{hours}");
            }
            let last = windows.around(i64::MAX - 30 * HOUR);
            assert_eq!(windows.behind(&last, i64::MAX), windows.around(i64::MAX));
        }
    }

    #[test]
    fn days_of_a_zone_are_23_and_25_hours_long_where_its_clocks_change() {
        let zone = TimeZone::get("Europe/Paris").expect("in the time zone database");
        let days = Windows { every: Length::Fixed(24 * HOUR), offset: 0, zone: Some(zone) };
        // 2026-03-29 and 2026-10-25.
        for (noon, hours) in [(1_774_780_000 * 1_000_000_000, 23), (1_792_925_000 * 1_000_000_000, 25)] {
            let day = days.around(noon);
            assert_eq!((day.end - day.start) / HOUR, hours);
            assert_eq!(days.around(day.start), day, "its first nanosecond is in it");
        }
    }
    /// Readings in the hour that clocks show twice were once counted in two windows: 480 hourly readings over the end
    /// of summer time became 481 in windows of two hours, and more in some others.
    #[test]
    fn windows_are_a_partition_whatever_the_clocks_do() {
        const MINUTE: i64 = HOUR / 60;
        // Clock changes: Berlin forwards and backwards, Lord Howe by half an hour, Samoa by a day, Casablanca twice in
        // a month, St John's.
        let changes = [
            ("Europe/Berlin", 1_774_746_000),
            ("Europe/Berlin", 1_792_890_000),
            ("Australia/Lord_Howe", 1_775_314_800),
            ("Pacific/Apia", 1_325_239_200),
            ("Africa/Casablanca", 1_741_485_600),
            ("America/St_Johns", 1_793_507_400),
        ];
        for (name, change) in changes {
            let zone = TimeZone::get(name).expect("in the time zone database");
            for every in [1, 7, 20, 30, 45, 60, 90, 120, 180, 300, 420, 1440, 10_080, 43_200, 525_600] {
                for offset in [0, 20, -75] {
                    let every = Length::Fixed(every * MINUTE);
                    let windows = Windows { every, offset: offset * MINUTE, zone: Some(zone.clone()) };
                    let from = change * 1_000_000_000 - 3 * HOUR * 24;
                    let mut window = windows.around(from);
                    while window.end < from + 6 * HOUR * 24 {
                        let next = windows.around(window.end);
                        assert_eq!(next.start, window.end, "{name} {every:?} {offset}");
                        for time in [next.start, next.start + (next.end - next.start) / 3, next.end - 1] {
                            assert_eq!(windows.around(time), next, "{name} {every:?} {offset} {time}");
                        }
                        window = next;
                    }
                }
            }
        }
    }

    #[test]
    fn windows_of_a_zone_begin_when_its_clocks_first_show_their_start() {
        let zone = TimeZone::get("Europe/Berlin").expect("in the time zone database");
        let lengths = |every: i64, from: i64| -> Vec<i64> {
            let windows = Windows { every: Length::Fixed(every * HOUR / 60), offset: 0, zone: Some(zone.clone()) };
            let mut starts = windows.starts(from, from + 9 * HOUR, false, 99);
            starts.push(windows.around(starts[starts.len() - 1]).end);
            starts.windows(2).map(|pair| (pair[1] - pair[0]) / (HOUR / 60)).collect()
        };
        // Midnight of the days on which summer time begins and ends.
        let (spring, autumn) = (1_774_738_800 * 1_000_000_000, 1_792_879_200 * 1_000_000_000);
        assert_eq!(lengths(120, spring)[..3], [120, 60, 120]);
        assert_eq!(lengths(120, autumn)[..3], [120, 180, 120]);
        assert_eq!(lengths(90, autumn)[..3], [90, 150, 90]);
        assert_eq!(lengths(60, autumn)[..4], [60; 4]);
        assert_eq!(lengths(45, autumn)[..6], [45, 45, 45, 45, 15, 45]);
    }

    #[test]
    fn windows_of_months_are_a_partition_by_the_calendar() {
        let names = ["UTC", "Europe/Berlin", "America/Havana", "America/Sao_Paulo", "Pacific/Apia", "Asia/Kathmandu"];
        for name in names {
            let zone = TimeZone::get(name).expect("in the time zone database");
            for count in [1, 2, 3, 5, 12, 24, MONTHS_MAX] {
                let windows = Windows { every: Length::Months(count), offset: 0, zone: Some(zone.clone()) };
                // From 1953 to 2025, if windows are short.
                let mut window = windows.around(-540_000_000 * 1_000_000_000);
                for _ in 0..72 * 12 / count {
                    for time in [window.start, window.start + (window.end - window.start) / 3, window.end - 1] {
                        assert_eq!(windows.around(time), window, "{name} {count} {time}");
                    }
                    let shown = zone.to_datetime(timestamp(window.start));
                    assert_eq!(shown.day(), 1, "{name} {count} {shown}");
                    let month = i64::from(shown.year()) * 12 + i64::from(shown.month()) - 1;
                    assert_eq!((month - 1970 * 12) % count, 0, "{name} {count} {shown}");
                    let next = windows.behind(&window, window.end);
                    assert_eq!(next.start, window.end, "{name} {count}");
                    window = next;
                }
            }
        }
    }

    #[test]
    fn windows_of_months_are_clamped_to_64_bits() {
        let windows = Windows { every: Length::Months(1), offset: 0, zone: None };
        for time in [i64::MIN, i64::MAX - 1] {
            assert!(windows.around(time).contains(&time));
        }
        assert_eq!(windows.starts(i64::MAX - 1, i64::MAX - 1, false, 9).len(), 1);
        assert_eq!(windows.starts(0, 366 * 24 * HOUR, false, 99).len(), 13);
        assert!(windows.count(0..366 * 24 * HOUR) >= 13);
    }
}
