//! Timestamps (`i64` nanoseconds since the epoch), hours and precisions. Nothing here reads a clock.

use std::fmt::Write;
use std::ops::Range;

use jiff::Span;
use jiff::civil::Date;

/// The first day.
const EPOCH: Date = Date::constant(1970, 1, 1);
/// Nanoseconds in an hour.
const HOUR_NS: i64 = 3_600_000_000_000;
/// Nanoseconds in a millisecond: the resolution of a BSON date.
pub const MILLI_NS: i64 = 1_000_000;

/// The least valid timestamp, in nanoseconds: the same bound as `InfluxDB`'s (`models/time.go`).
pub const TIMESTAMP_MIN: i64 = i64::MIN + 2;
/// The greatest valid timestamp, in nanoseconds.
pub const TIMESTAMP_MAX: i64 = i64::MAX - 1;

/// A bucket's hour, counted from the epoch; start inclusive, end exclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hour(pub i64);

impl Hour {
    /// The hour that contains a timestamp. Rounds down: -1 ns is in hour -1.
    #[must_use]
    pub const fn from_ns(timestamp_ns: i64) -> Self {
        Self(timestamp_ns.div_euclid(HOUR_NS))
    }

    /// The first nanosecond of the hour; saturates if it does not fit into an `i64`.
    #[must_use]
    pub fn start_ns(self) -> i64 {
        self.0.saturating_mul(HOUR_NS)
    }

    /// The first nanosecond after the hour; saturates as [`Hour::start_ns`] does.
    #[must_use]
    pub fn end_ns(self) -> i64 {
        (self.0 + 1).saturating_mul(HOUR_NS)
    }

    /// The hour's start in milliseconds since the epoch. Unlike [`Hour::start_ns`] it is exact for every hour.
    #[must_use]
    pub fn start_ms(self) -> i64 {
        self.0 * (HOUR_NS / MILLI_NS)
    }

    /// The hour that contains this time, in milliseconds since the epoch.
    #[must_use]
    pub fn from_ms(start_ms: i64) -> Self {
        Self(start_ms.div_euclid(HOUR_NS / MILLI_NS))
    }

    /// The next hour.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// A UTC day, counted from the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day(pub i64);

impl Day {
    /// Hours of a day.
    const HOURS: i64 = 24;

    /// The day that contains an hour.
    #[must_use]
    pub const fn from_hour(hour: Hour) -> Self {
        Self(hour.0.div_euclid(Self::HOURS))
    }

    /// The days that overlap a range of hours.
    #[must_use]
    pub fn range_from_hours(hours: &Range<Hour>) -> Range<Self> {
        if hours.start >= hours.end {
            return Self(0)..Self(0);
        }
        Self::from_hour(hours.start)..Self::from_hour(Hour(hours.end.0 - 1)).next()
    }

    /// The day's hours.
    #[must_use]
    pub fn hours(self) -> Range<Hour> {
        Hour(self.0 * Self::HOURS)..Hour((self.0 + 1) * Self::HOURS)
    }

    /// The next day.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// A UTC month, counted from January 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Month(pub i64);

impl Month {
    /// The month that contains a day. Days outside the years -9999 to 9999 count as part of the first or last of these
    /// months.
    #[must_use]
    pub fn from_day(day: Day) -> Self {
        let days = Span::new().try_days(day.0).unwrap_or_default();
        let date = EPOCH.saturating_add(days);
        Self((i64::from(date.year()) - i64::from(EPOCH.year())) * 12 + i64::from(date.month()) - 1)
    }

    /// The months that overlap a range of days.
    #[must_use]
    pub fn range_from_days(days: &Range<Day>) -> Range<Self> {
        if days.start >= days.end {
            return Self(0)..Self(0);
        }
        Self::from_day(days.start)..Self::from_day(Day(days.end.0 - 1)).next()
    }

    /// The month's days.
    #[must_use]
    pub fn days(self) -> Range<Day> {
        self.first()..self.next().first()
    }

    /// The next month.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }

    fn first(self) -> Day {
        let first = EPOCH.saturating_add(Span::new().try_months(self.0).unwrap_or_default());
        Day(first.duration_since(EPOCH).as_hours() / Day::HOURS)
    }
}

/// Formats a month as `2026-01`.
impl std::fmt::Display for Month {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:04}-{:02}", 1970 + self.0.div_euclid(12), self.0.rem_euclid(12) + 1)
    }
}

/// The unit of an integer timestamp in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    /// `n`, `ns`.
    Nanoseconds,
    /// `u`, `us`, `µ`.
    Microseconds,
    /// `ms`.
    Milliseconds,
    /// `s`.
    Seconds,
    /// `m`.
    Minutes,
    /// `h`.
    Hours,
    /// `auto`: by magnitude, as `InfluxDB` 3 does.
    Auto,
}

impl Precision {
    /// Parses a precision name as used in requests.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "n" | "ns" | "nanosecond" => Self::Nanoseconds,
            "u" | "us" | "µ" | "\u{3bc}" | "microsecond" => Self::Microseconds,
            "ms" | "millisecond" => Self::Milliseconds,
            "s" | "second" => Self::Seconds,
            "m" => Self::Minutes,
            "h" => Self::Hours,
            "auto" => Self::Auto,
            _ => return None,
        })
    }

    /// The shortest unambiguous name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Nanoseconds => "ns",
            Self::Microseconds => "us",
            Self::Milliseconds => "ms",
            Self::Seconds => "s",
            Self::Minutes => "m",
            Self::Hours => "h",
            Self::Auto => "auto",
        }
    }

    /// The nanoseconds of one unit. [`Precision::Auto`] chooses the unit by the magnitude of `value`: below 5e9
    /// seconds, below 5e12 milliseconds, below 5e15 microseconds, otherwise nanoseconds (as in
    /// `influxdb3_types/src/write.rs`).
    #[must_use]
    pub fn unit_ns(self, value: i64) -> i64 {
        match self {
            Self::Nanoseconds => 1,
            Self::Microseconds => 1_000,
            Self::Milliseconds => MILLI_NS,
            Self::Seconds => 1_000_000_000,
            Self::Minutes => 60_000_000_000,
            Self::Hours => HOUR_NS,
            Self::Auto => match value.unsigned_abs() / 1_000_000_000 {
                0..5 => 1_000_000_000,
                5..5_000 => MILLI_NS,
                5_000..5_000_000 => 1_000,
                _ => 1,
            },
        }
    }

    /// Converts `value` to nanoseconds; `None` if the result is out of range.
    #[must_use]
    pub fn to_ns(self, value: i64) -> Option<i64> {
        let ns = value.checked_mul(self.unit_ns(value))?;
        (TIMESTAMP_MIN..=TIMESTAMP_MAX).contains(&ns).then_some(ns)
    }
}

/// Appends a timestamp as RFC 3339 in UTC, with as many fractional digits as needed (none, 3, 6 or 9).
pub fn write_rfc3339(out: &mut String, timestamp_ns: i64) {
    let fraction = timestamp_ns.rem_euclid(1_000_000_000);
    write_seconds(out, timestamp_ns.div_euclid(1_000_000_000));
    // Writing to a String cannot fail.
    let _ = match fraction {
        0 => Ok(()),
        f if f % 1_000_000 == 0 => write!(out, ".{:03}", f / 1_000_000),
        f if f % 1_000 == 0 => write!(out, ".{:06}", f / 1_000),
        f => write!(out, ".{f:09}"),
    };
    out.push('Z');
}

/// A timestamp as RFC 3339 in UTC.
#[must_use]
pub fn rfc3339(timestamp_ns: i64) -> String {
    let mut text = String::new();
    write_rfc3339(&mut text, timestamp_ns);
    text
}

/// Appends seconds since the epoch as `2026-01-15T14:00:00`, in UTC and without a zone.
pub fn write_seconds(out: &mut String, seconds: i64) {
    let instant = jiff::Timestamp::from_second(seconds).unwrap_or_default();
    let time = jiff::tz::Offset::UTC.to_datetime(instant);
    // Writing to a String cannot fail.
    let _ = write!(out, "{:04}-{:02}-{:02}T", time.year(), time.month(), time.day());
    let _ = write!(out, "{:02}:{:02}:{:02}", time.hour(), time.minute(), time.second());
}

/// Parses an RFC 3339 text to nanoseconds; `None` if it is invalid or out of range. Any offset is accepted; more than
/// nine fractional digits are not.
#[must_use]
pub fn parse_rfc3339(text: &str) -> Option<i64> {
    let timestamp: jiff::Timestamp = text.parse().ok()?;
    let ns = i64::try_from(timestamp.as_nanosecond()).ok()?;
    (TIMESTAMP_MIN..=TIMESTAMP_MAX).contains(&ns).then_some(ns)
}

/// Converts a date or date-time without a time zone to RFC 3339, taking it as UTC; `None` for any other text.
#[must_use]
pub fn as_if_in_utc(text: &str) -> Option<String> {
    // jiff ignores a zone in brackets without an offset, as in `2026-01-15T14:00:00[Europe/Berlin]`.
    if text.contains('[') {
        return None;
    }
    let local: jiff::civil::DateTime = text.parse().ok()?;
    let instant = jiff::tz::Offset::UTC.to_timestamp(local).ok()?;
    let ns = i64::try_from(instant.as_nanosecond()).ok()?;
    Some(rfc3339(ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_floor_at_every_boundary() {
        for (ns, hour) in [
            (-HOUR_NS - 1, -2),
            (-HOUR_NS, -1),
            (-1, -1),
            (0, 0),
            (1, 0),
            (HOUR_NS - 1, 0),
            (HOUR_NS, 1),
            (i64::MAX, i64::MAX / HOUR_NS),
        ] {
            assert_eq!(Hour::from_ns(ns), Hour(hour), "{ns}");
            assert!(Hour::from_ns(ns).start_ns() <= ns);
            assert_eq!(Hour::from_ms(Hour(hour).start_ms()), Hour(hour));
        }
        assert_eq!(Hour::from_ns(i64::MIN).start_ns(), i64::MIN, "saturates");
    }

    #[test]
    fn months_are_a_partition_of_days() {
        let mut day = Day::from_hour(Hour::from_ns(i64::MIN));
        assert_eq!((Month::from_day(Day(0)), Month(0).days()), (Month(0), Day(0)..Day(31)));
        assert_eq!(Month::from_day(Day(-1)).days(), Day(-31)..Day(0));
        // 2024 and 2000 have a leap day, 2100 has none.
        let lengths = |month: i64| Month(month).days().end.0 - Month(month).days().start.0;
        assert_eq!([54 * 12 + 1, 55 * 12 + 1, 30 * 12 + 1, 130 * 12 + 1].map(lengths), [29, 28, 29, 28]);
        while day < Day::from_hour(Hour::from_ns(i64::MAX)) {
            let month = Month::from_day(day);
            assert!(month.days().contains(&day));
            assert_eq!(Month::range_from_days(&month.days()), month..month.next());
            day = month.days().end;
            assert_eq!(Month::from_day(day), month.next());
        }
    }

    #[test]
    fn auto_precision_goes_by_magnitude() {
        for (value, ns) in [
            (1_700_000_000, 1_700_000_000_000_000_000),
            (4_999_999_999, 4_999_999_999_000_000_000),
            (1_700_000_000_000, 1_700_000_000_000_000_000),
            (1_700_000_000_000_000, 1_700_000_000_000_000_000),
            (1_700_000_000_000_000_000, 1_700_000_000_000_000_000),
            (-5_000_000_000, -5_000_000_000_000_000),
        ] {
            assert_eq!(Precision::Auto.to_ns(value), Some(ns), "{value}");
        }
        assert_eq!(Precision::Seconds.to_ns(i64::MAX / 1000), None);
    }

    #[test]
    fn rfc3339_round_trips() {
        for (ns, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59.999999999Z"),
            (1_768_485_600_000_000_000, "2026-01-15T14:00:00Z"),
            (1_768_485_600_250_000_000, "2026-01-15T14:00:00.250Z"),
            (1_709_164_800_000_001_000, "2024-02-29T00:00:00.000001Z"),
        ] {
            let mut out = String::new();
            write_rfc3339(&mut out, ns);
            assert_eq!(out, text);
            assert_eq!(parse_rfc3339(text), Some(ns));
        }
        assert_eq!(parse_rfc3339("2026-01-15T15:00:00+01:00"), Some(1_768_485_600_000_000_000));
        assert_eq!(parse_rfc3339("yesterday"), None);
    }

    #[test]
    fn times_without_a_zone_are_taken_as_utc() {
        for (text, in_utc) in [
            ("2026-01-15T14:00:00", Some("2026-01-15T14:00:00Z")),
            ("2026-01-15 14:00:00.25", Some("2026-01-15T14:00:00.250Z")),
            ("2026-01-15T14:00", Some("2026-01-15T14:00:00Z")),
            ("2026-01-15", Some("2026-01-15T00:00:00Z")),
            ("2026-01-15T14:00:00[Europe/Berlin]", None),
            ("2026-02-30", None),
            ("9999-12-31", None),
            ("yesterday", None),
            ("", None),
        ] {
            assert_eq!(as_if_in_utc(text).as_deref(), in_utc, "{text}");
        }
    }
}
