//! Parses and formats durations such as `90s`, `1h30m` or `30d`. The config, the command line, the API and InfluxQL
//! share this grammar, with different lists of units.

use std::time::Duration;

/// A unit's name and its length in nanoseconds.
pub type DurationUnit = (&'static str, i64);

/// The units of durations outside InfluxQL, shortest first.
pub const DURATION_UNITS: [DurationUnit; 10] = [
    ("ns", 1),
    ("u", 1_000),
    ("us", 1_000),
    ("µs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60 * 1_000_000_000),
    ("h", 3600 * 1_000_000_000),
    ("d", 24 * 3600 * 1_000_000_000),
    ("w", 7 * 24 * 3600 * 1_000_000_000),
];

/// The units of formatted durations, in milliseconds, longest first.
const FORMAT_UNITS: [(&str, u64); 4] = [("h", 60 * 60 * 1000), ("m", 60 * 1000), ("s", 1000), ("ms", 1)];

/// The reason that a text is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DurationFault {
    /// The part before a unit is empty or not all digits, such as `1.5` or `-3`.
    #[error("{}", not_whole(.0))]
    NotWhole(String),
    /// A number without a unit.
    #[error("no unit ({0})")]
    NoUnit(String),
    /// An unknown unit. Units are case-sensitive and follow the number without a space.
    #[error("unknown unit {unit:?} (known are {known})")]
    UnknownUnit {
        /// The unknown unit.
        unit: String,
        /// The known units, comma-separated.
        known: String,
    },
    /// More than 63 bits of nanoseconds, some 292 years.
    #[error("too large")]
    TooLong {
        /// The number at which the sum exceeded the limit.
        number: String,
        /// Its unit.
        unit: String,
    },
}

/// Parses whole numbers, each followed by one of `units`. Returns the sum in nanoseconds.
///
/// # Errors
/// [`DurationFault`] if a number or unit is missing or unknown, or the sum does not fit an `i64`.
pub fn parse_duration(text: &str, units: &[DurationUnit]) -> Result<i64, DurationFault> {
    let mut sum: i64 = 0;
    let mut rest = text;
    loop {
        let (number, from_unit) = rest.split_at(rest.find(char::is_alphabetic).unwrap_or(rest.len()));
        // The error for "30 s" quotes the number as "30 ", to show the space.
        if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(DurationFault::NotWhole(number.to_owned()));
        }
        let (unit, after) =
            from_unit.split_at(from_unit.find(|found: char| !found.is_alphabetic()).unwrap_or(from_unit.len()));
        if unit.is_empty() {
            return Err(DurationFault::NoUnit(names(units)));
        }
        let Some((_, length)) = units.iter().find(|(name, _)| *name == unit) else {
            return Err(DurationFault::UnknownUnit { unit: unit.to_owned(), known: names(units) });
        };
        // `number` is all digits, so parsing fails only if it is too large.
        let part = number.parse::<i64>().ok().and_then(|number| number.checked_mul(*length));
        sum = part
            .and_then(|part| sum.checked_add(part))
            .ok_or_else(|| DurationFault::TooLong { number: number.to_owned(), unit: unit.to_owned() })?;
        rest = after;
        if rest.is_empty() {
            return Ok(sum);
        }
    }
}

/// Formats a duration in whole milliseconds for [`parse_duration`], in the longest unit up to hours that is exact.
#[must_use]
pub fn show_duration(duration: Duration) -> String {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let exact = FORMAT_UNITS.iter().find(|(_, length)| millis != 0 && millis.is_multiple_of(*length));
    exact.map_or_else(|| "0s".to_owned(), |(unit, length)| format!("{}{unit}", millis / length))
}

fn not_whole(number: &str) -> String {
    match number {
        "" => "no number before the unit".to_owned(),
        number => format!("{number:?} is not a whole number"),
    }
}

fn names(units: &[DurationUnit]) -> String {
    units.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    #[test]
    fn durations_are_sums_of_numbers_with_units() {
        for (text, nanoseconds) in [
            ("0s", 0),
            ("1ns", 1),
            ("3µs", 3_000),
            ("5ms", 5_000_000),
            ("007s", 7 * SECOND),
            ("1h30m", 5400 * SECOND),
            ("30d", 30 * 86_400 * SECOND),
            ("2w", 14 * 86_400 * SECOND),
            ("9223372036854775807ns", i64::MAX),
        ] {
            assert_eq!(parse_duration(text, &DURATION_UNITS), Ok(nanoseconds), "{text}");
        }
    }

    #[test]
    fn formatted_durations_parse() {
        for (millis, text) in
            [(0, "0s"), (2, "2ms"), (1500, "1500ms"), (60_000, "1m"), (90_000, "90s"), (36_500 * 86_400_000, "876000h")]
        {
            let duration = Duration::from_millis(millis);
            assert_eq!(show_duration(duration), text);
            assert_eq!(parse_duration(text, &DURATION_UNITS).map(i64::unsigned_abs), Ok(millis * 1_000_000));
        }
    }

    #[test]
    fn errors_name_the_reason() {
        let cases = [
            ("", "no number before the unit"),
            ("s", "no number before the unit"),
            ("30", "no unit (ms, s, m, h, d, w)"),
            ("1h30", "no unit (ms, s, m, h, d, w)"),
            ("1.5s", "\"1.5\" is not a whole number"),
            ("-3s", "\"-3\" is not a whole number"),
            ("1h-3s", "\"-3\" is not a whole number"),
            ("30 s", "\"30 \" is not a whole number"),
            ("5S", "unknown unit \"S\" (known are ms, s, m, h, d, w)"),
            ("5us", "unknown unit \"us\" (known are ms, s, m, h, d, w)"),
            ("9223372036854775808ms", "too large"),
            ("9223372036854ms775807ms1s", "too large"),
            ("18446744073709551616ms", "too large"),
        ];
        for (text, message) in cases {
            assert_eq!(parse_duration(text, &DURATION_UNITS[4..]).unwrap_err().to_string(), message, "{text}");
        }
    }
}
