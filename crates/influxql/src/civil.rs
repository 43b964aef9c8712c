//! Parses and prints times of InfluxQL: a date with an optional time of day, or RFC 3339.

use jiff::SignedDuration;
use jiff::civil::DateTime;

const NS: i128 = 1_000_000_000;
/// 1970-01-01 00:00:00.
const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

/// The earliest time at which a range can start.
pub const MIN_TIME: i64 = i64::MIN + 2;
/// The latest time at which a range can end.
pub const MAX_TIME: i64 = i64::MAX - 1;

/// A date and a time of day without a zone.
pub type CivilTime = DateTime;

/// Nanoseconds since 1970, taking the time as UTC.
#[must_use]
pub fn utc(civil: CivilTime) -> i128 {
    civil.duration_since(EPOCH).as_nanos()
}

/// The date and time of an instant in UTC, clamped to the range of [`DateTime`].
fn date_time(nanoseconds: i128) -> DateTime {
    let seconds =
        i64::try_from(nanoseconds.div_euclid(NS)).unwrap_or(if nanoseconds < 0 { i64::MIN } else { i64::MAX });
    let rest = i32::try_from(nanoseconds.rem_euclid(NS)).unwrap_or_default();
    EPOCH.saturating_add(SignedDuration::from_secs(seconds).saturating_add(SignedDuration::new(0, rest)))
}

/// A parsed time.
#[derive(Debug, PartialEq)]
pub(super) enum TimeText {
    /// A time with a zone, in nanoseconds since 1970.
    Instant(i128),
    /// A time without a zone.
    Civil(CivilTime),
}

/// Returns true if `text` must be parsed as a time: it starts with a date.
pub(super) fn looks_like_time(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() >= 10
        && bytes[..10].iter().enumerate().all(|(index, byte)| match index {
            4 | 7 => *byte == b'-',
            _ => byte.is_ascii_digit(),
        })
        && bytes.get(10) != Some(&b'\n')
}

/// Parses `2024-02-29`, `2024-02-29 12:30:00.5` and RFC 3339.
pub(super) fn parse(text: &str) -> Option<TimeText> {
    let mut digits = Digits(text);
    let year = digits.take_digits(4)?;
    let month = digits.take_after('-')?;
    let day = digits.take_after('-')?;
    let date =
        jiff::civil::Date::new(i16::try_from(year).ok()?, i8::try_from(month).ok()?, i8::try_from(day).ok()?).ok()?;
    if digits.0.is_empty() {
        return Some(TimeText::Civil(date.into()));
    }
    let zoned = digits.take('T');
    if !zoned && !digits.take(' ') {
        return None;
    }
    let hour = digits.take_one_or_two()?;
    let minute = digits.take_after(':')?;
    let second = digits.take_after(':')?;
    let part = |number: u32| i8::try_from(number).ok();
    let nanosecond = i32::try_from(digits.fraction()).ok()?;
    let time = jiff::civil::Time::new(part(hour)?, part(minute)?, part(second)?, nanosecond).ok()?;
    let civil = date.to_datetime(time);
    if !zoned {
        return Some(TimeText::Civil(civil)).filter(|_| digits.0.is_empty());
    }
    let offset_seconds = digits.zone()?;
    Some(TimeText::Instant(utc(civil) - i128::from(offset_seconds) * NS)).filter(|_| digits.0.is_empty())
}

/// The unread rest of a text, from which numbers are parsed.
struct Digits<'t>(&'t str);

impl Digits<'_> {
    fn take(&mut self, wanted: char) -> bool {
        let rest = self.0.strip_prefix(wanted);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    fn take_digits(&mut self, count: usize) -> Option<u32> {
        let taken = self.0.get(..count).filter(|taken| taken.bytes().all(|byte| byte.is_ascii_digit()))?;
        self.0 = &self.0[count..];
        taken.parse().ok()
    }

    /// Reads a separator and two digits.
    fn take_after(&mut self, separator: char) -> Option<u32> {
        if self.take(separator) { self.take_digits(2) } else { None }
    }

    fn take_one_or_two(&mut self) -> Option<u32> {
        self.take_digits(2).or_else(|| self.take_digits(1))
    }

    /// Reads a dot and up to nine digits as nanoseconds; 0 if there are none.
    fn fraction(&mut self) -> u32 {
        let Some(rest) = self.0.strip_prefix('.') else { return 0 };
        let count = rest.bytes().take(9).take_while(u8::is_ascii_digit).count();
        let Ok(value) = rest[..count].parse::<u32>() else { return 0 };
        self.0 = &rest[count..];
        (count..9).fold(value, |value, _| value * 10)
    }

    /// Reads a zone offset, in seconds east of UTC.
    fn zone(&mut self) -> Option<i64> {
        if self.take('Z') {
            return Some(0);
        }
        let sign = if self.take('+') {
            1
        } else if self.take('-') {
            -1
        } else {
            return None;
        };
        let hours = self.take_digits(2)?;
        let minutes = self.take_after(':')?;
        Some(sign * (i64::from(hours) * 3600 + i64::from(minutes) * 60)).filter(|_| hours <= 24 && minutes < 60)
    }
}

/// Formats a time as RFC 3339 in UTC, with as many decimal places as needed.
pub(super) fn rfc3339(nanoseconds: i128) -> String {
    format!("{}Z", date_time(nanoseconds))
}

/// Formats a time as RFC 3339 in UTC, rounded down to seconds.
pub(super) fn rfc3339_seconds(nanoseconds: i128) -> String {
    rfc3339(nanoseconds.div_euclid(NS).saturating_mul(NS))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instant(text: &str) -> Option<i128> {
        parse(text).map(|parsed| match parsed {
            TimeText::Instant(nanoseconds) => nanoseconds,
            TimeText::Civil(civil) => utc(civil),
        })
    }

    #[test]
    fn texts_parse_to_instants() {
        for (text, seconds) in [
            ("1970-01-01", 0),
            ("1969-12-31 23:59:59", -1),
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29", 951_782_400),
            ("2000-02-29T23:59:59Z", 951_868_799),
            ("2000-03-01", 951_868_800),
            ("1900-02-28", -2_203_977_600),
            ("1900-03-01", -2_203_891_200),
            ("2023-02-28T23:59:59Z", 1_677_628_799),
            ("2023-03-01", 1_677_628_800),
            ("2023-01-31", 1_675_123_200),
            ("2023-12-31 23:59:59", 1_704_067_199),
            ("2024-01-01T00:00:00+01:00", 1_704_063_600),
            ("2024-01-01T00:00:00-05:30", 1_704_087_000),
            ("2023-01-01 7:00:00", 1_672_556_400),
            ("2262-04-11 23:47:16", 9_223_372_036),
            ("1677-09-21 00:12:44", -9_223_372_036),
            ("0000-01-01", -62_167_219_200),
            ("9999-12-31", 253_402_214_400),
        ] {
            assert_eq!(instant(text), Some(seconds * NS), "{text}");
        }
    }

    #[test]
    fn fractions_are_read_to_the_nanosecond() {
        for (text, nanoseconds) in [
            ("1970-01-01 00:00:01.5", 1_500_000_000),
            ("1970-01-01 00:00:00.000001", 1_000),
            ("1970-01-01T00:00:00.123456789Z", 123_456_789),
            ("1969-12-31 23:59:59.999999999", -1),
        ] {
            assert_eq!(instant(text), Some(nanoseconds), "{text}");
        }
    }

    #[test]
    fn invalid_days_and_times_are_rejected() {
        for text in [
            "2023-02-29",
            "1900-02-29",
            "2023-04-31",
            "2023-00-01",
            "2023-13-01",
            "2023-01-00",
            "2023-01-32",
            "2023-01-01 24:00:00",
            "2023-01-01 00:60:00",
            "2023-01-01 00:00:60",
            "2023-01-01 00:00",
            "2023-01-01T00:00:00",
            "2023-01-01T00:00:00+1",
            "2023-01-01T00:00:00+01:60",
            "2023-01-01 00:00:00Z",
            "2023-01-01 00:00:00.",
            "2023-01-01 00:00:00.1234567891",
            "2023-01-01x",
            "2023-1-01",
            "today",
            "",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn every_day_of_eight_centuries_round_trips() {
        for day in (-135_140..157_055).step_by(1) {
            let nanoseconds = i128::from(day) * 86_400 * NS + 1;
            let text = rfc3339(nanoseconds);
            assert_eq!(instant(&text), Some(nanoseconds), "{text}");
        }
    }

    #[test]
    fn instants_print_with_the_places_they_need() {
        for (nanoseconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59.999999999Z"),
            (1_500_000_000, "1970-01-01T00:00:01.5Z"),
            (951_868_799 * NS, "2000-02-29T23:59:59Z"),
        ] {
            assert_eq!(rfc3339(nanoseconds), text);
        }
        assert_eq!(rfc3339_seconds(-1), "1969-12-31T23:59:59Z");
    }
}
