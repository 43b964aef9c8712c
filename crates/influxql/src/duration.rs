//! Durations of InfluxQL, such as `1h30m`, `500ms` or `2w`.

use hourglass_model::reading::duration::{DurationFault, DurationUnit, parse_duration};

/// The units in nanoseconds, largest first. InfluxDB prints `u` for microseconds.
const UNITS: [DurationUnit; 9] = [
    ("w", 7 * 24 * 3600 * 1_000_000_000),
    ("d", 24 * 3600 * 1_000_000_000),
    ("h", 3600 * 1_000_000_000),
    ("m", 60 * 1_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("u", 1_000),
    ("µ", 1_000),
    ("ns", 1),
];

/// Parses a duration such as `1h30m` to nanoseconds. Errors have InfluxDB's messages.
pub(super) fn parse(text: &str) -> Result<i64, String> {
    let positive = text.strip_prefix('-').unwrap_or(text);
    match parse_duration(positive, &UNITS) {
        Ok(sum) => Ok(if text.starts_with('-') { -sum } else { sum }),
        Err(DurationFault::TooLong { number, unit }) if number.parse::<i64>().is_ok() => {
            Err(format!("overflowed duration {number}{unit}: choose a smaller duration or INF"))
        }
        Err(_) => Err("invalid duration".to_owned()),
    }
}

/// Prints a duration in the largest unit that divides it, as InfluxDB does.
pub(super) fn format(nanoseconds: i64) -> String {
    if nanoseconds == 0 {
        return "0s".to_owned();
    }
    let unit = UNITS.iter().find(|(_, size)| nanoseconds % size == 0);
    unit.map_or_else(String::new, |(name, size)| format!("{}{name}", nanoseconds / size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_sums_of_counts_and_units() {
        for (text, nanoseconds) in [
            ("1ns", 1),
            ("3u", 3_000),
            ("3µ", 3_000),
            ("10ms", 10_000_000),
            ("2s", 2_000_000_000),
            ("1m", 60_000_000_000),
            ("1h30m", 5_400_000_000_000),
            ("1d", 86_400_000_000_000),
            ("2w", 1_209_600_000_000_000),
            ("1672556400000ms", 1_672_556_400_000_000_000),
        ] {
            assert_eq!(parse(text), Ok(nanoseconds), "{text}");
        }
        for text in ["1", "s", "1x", "1n", "1h2", "1mss", "99999999999999999999s"] {
            assert_eq!(parse(text), Err("invalid duration".to_owned()), "{text}");
        }
        let overflow = "overflowed duration 16000w: choose a smaller duration or INF";
        assert_eq!(parse("16000w"), Err(overflow.to_owned()));
    }

    #[test]
    fn durations_print_in_their_largest_whole_unit() {
        for (nanoseconds, text) in [
            (0, "0s"),
            (1, "1ns"),
            (1_500, "1500ns"),
            (3_000, "3u"),
            (90_000_000_000, "90s"),
            (3_600_000_000_000, "1h"),
            (-86_400_000_000_000, "-1d"),
            (1_209_600_000_000_000, "2w"),
            (i64::MIN, "-9223372036854775808ns"),
        ] {
            assert_eq!(format(nanoseconds), text);
        }
    }
}
