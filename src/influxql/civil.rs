//! Dates and times of the calendar, by hand.

const NS: i128 = 1_000_000_000;
const DAY_SECONDS: i64 = 86_400;

/// A date and a time of day without a zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CivilTime {
    /// 0 to 9999.
    pub year: i32,
    /// From 1.
    pub month: u8,
    /// From 1.
    pub day: u8,
    /// 0 to 23.
    pub hour: u8,
    /// 0 to 59.
    pub minute: u8,
    /// 0 to 59.
    pub second: u8,
    /// The part below a second.
    pub nanosecond: u32,
}

impl CivilTime {
    /// Nanoseconds since 1970 if the time is meant as UTC.
    #[must_use]
    pub fn utc(&self) -> i128 {
        let of_day = i64::from(self.hour) * 3600 + i64::from(self.minute) * 60 + i64::from(self.second);
        let seconds = days_since_1970(self.year, self.month, self.day) * DAY_SECONDS + of_day;
        i128::from(seconds) * NS + i128::from(self.nanosecond)
    }

    fn is_real(&self) -> bool {
        (1..=12).contains(&self.month)
            && (1..=days_of_month(self.year, self.month)).contains(&self.day)
            && self.hour < 24
            && self.minute < 60
            && self.second < 60
    }
}

/// A text that was read as a time.
#[derive(Debug, PartialEq)]
pub(super) enum TimeText {
    /// It says its zone: nanoseconds since 1970.
    Instant(i128),
    /// It does not.
    Civil(CivilTime),
}

/// Whether `text` is to be read as a time: it begins with a date.
pub(super) fn looks_like_time(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() >= 10
        && bytes[..10].iter().enumerate().all(|(index, byte)| match index {
            4 | 7 => *byte == b'-',
            _ => byte.is_ascii_digit(),
        })
        && bytes.get(10) != Some(&b'\n')
}

/// Reads `2024-02-29`, `2024-02-29 12:30:00.5` and RFC 3339.
pub(super) fn parse(text: &str) -> Option<TimeText> {
    let mut digits = Digits(text);
    let (year, month, day) = (digits.fixed(4)?, digits.after('-')?, digits.after('-')?);
    let mut civil = CivilTime {
        year: i32::try_from(year).ok()?,
        month: u8::try_from(month).ok()?,
        day: u8::try_from(day).ok()?,
        hour: 0,
        minute: 0,
        second: 0,
        nanosecond: 0,
    };
    if digits.0.is_empty() {
        return Some(TimeText::Civil(civil)).filter(|_| civil.is_real());
    }
    let zoned = digits.take('T');
    if !zoned && !digits.take(' ') {
        return None;
    }
    civil.hour = u8::try_from(digits.one_or_two()?).ok()?;
    civil.minute = u8::try_from(digits.after(':')?).ok()?;
    civil.second = u8::try_from(digits.after(':')?).ok()?;
    civil.nanosecond = digits.fraction();
    if !civil.is_real() {
        return None;
    }
    if !zoned {
        return Some(TimeText::Civil(civil)).filter(|_| digits.0.is_empty());
    }
    let offset_seconds = digits.zone()?;
    Some(TimeText::Instant(civil.utc() - i128::from(offset_seconds) * NS)).filter(|_| digits.0.is_empty())
}

/// What is left of a text from which numbers are taken.
struct Digits<'t>(&'t str);

impl Digits<'_> {
    fn take(&mut self, wanted: char) -> bool {
        let rest = self.0.strip_prefix(wanted);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    fn fixed(&mut self, count: usize) -> Option<u32> {
        let taken = self.0.get(..count).filter(|taken| taken.bytes().all(|byte| byte.is_ascii_digit()))?;
        self.0 = &self.0[count..];
        taken.parse().ok()
    }

    /// Two digits behind a separator.
    fn after(&mut self, separator: char) -> Option<u32> {
        if self.take(separator) { self.fixed(2) } else { None }
    }

    fn one_or_two(&mut self) -> Option<u32> {
        self.fixed(2).or_else(|| self.fixed(1))
    }

    /// Up to nine digits behind a dot, as nanoseconds; 0 if there are none.
    fn fraction(&mut self) -> u32 {
        let Some(rest) = self.0.strip_prefix('.') else { return 0 };
        let count = rest.bytes().take(9).take_while(u8::is_ascii_digit).count();
        let Ok(value) = rest[..count].parse::<u32>() else { return 0 };
        self.0 = &rest[count..];
        (count..9).fold(value, |value, _| value * 10)
    }

    /// Seconds east of UTC.
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
        let (hours, minutes) = (self.fixed(2)?, self.after(':')?);
        Some(sign * (i64::from(hours) * 3600 + i64::from(minutes) * 60)).filter(|_| hours <= 24 && minutes < 60)
    }
}

fn is_leap(year: i32) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_of_month(year: i32, month: u8) -> u8 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Counted in years that start in March, so that the leap day is the last of its year.
fn days_since_1970(year: i32, month: u8, day: u8) -> i64 {
    let year = i64::from(year) - i64::from(month < 3);
    let from_march = (i64::from(month) + 9) % 12;
    let of_year = (153 * from_march + 2) / 5 + i64::from(day) - 1;
    let leaps = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    // 719,468 days lie between 1 March of the year 0 and 1970.
    year * 365 + leaps + of_year - 719_468
}

/// The date of a day since 1970.
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let month = (from_march + 2) % 12 + 1;
    (era * 400 + year_of_era + i64::from(month < 3), month, of_year - (153 * from_march + 2) / 5 + 1)
}

/// RFC 3339 in UTC, with as many decimal places as it takes.
pub(super) fn rfc3339(nanoseconds: i128) -> String {
    let whole = rfc3339_seconds(nanoseconds);
    let fraction = nanoseconds.rem_euclid(NS);
    if fraction == 0 {
        return whole;
    }
    let places = format!("{fraction:09}");
    format!("{}.{}Z", whole.trim_end_matches('Z'), places.trim_end_matches('0'))
}

/// RFC 3339 in UTC to the second.
pub(super) fn rfc3339_seconds(nanoseconds: i128) -> String {
    // No time that can be written or computed is so far away that its days do not fit.
    let seconds = i64::try_from(nanoseconds.div_euclid(NS)).unwrap_or(0);
    let (year, month, day) = date(seconds.div_euclid(DAY_SECONDS));
    let of_day = seconds.rem_euclid(DAY_SECONDS);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", of_day / 3600, of_day / 60 % 60, of_day % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instant(text: &str) -> Option<i128> {
        parse(text).map(|parsed| match parsed {
            TimeText::Instant(nanoseconds) => nanoseconds,
            TimeText::Civil(civil) => civil.utc(),
        })
    }

    #[test]
    fn texts_become_the_instants_they_name() {
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
    fn days_and_times_that_are_none_are_refused() {
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
    fn every_day_of_eight_centuries_comes_back_from_its_text() {
        for day in (-135_140..157_055).step_by(1) {
            let nanoseconds = i128::from(day) * i128::from(DAY_SECONDS) * NS + 1;
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
