//! Parses and prints durations: `1h30m`, `500ms`, `2w`.

/// The units from the largest, in nanoseconds. InfluxDB prints `u` for microseconds.
const UNITS: [(i64, &str); 8] = [
    (7 * 24 * 3600 * 1_000_000_000, "w"),
    (24 * 3600 * 1_000_000_000, "d"),
    (3600 * 1_000_000_000, "h"),
    (60 * 1_000_000_000, "m"),
    (1_000_000_000, "s"),
    (1_000_000, "ms"),
    (1_000, "u"),
    (1, "ns"),
];

/// The nanoseconds of a duration such as `1h30m`, or InfluxDB's error.
pub(super) fn parse(text: &str) -> Result<i64, String> {
    let invalid = || "invalid duration".to_owned();
    let mut rest = text.strip_prefix('-').unwrap_or(text);
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut sum: i64 = 0;
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|found: char| found.is_ascii_digit()).len();
        let count: i64 = rest[..digits].parse().map_err(|_| invalid())?;
        rest = &rest[digits..];
        let (length, unit) = unit_at(rest).ok_or_else(invalid)?;
        let (size, _) = UNITS.iter().find(|(_, name)| *name == unit).ok_or_else(invalid)?;
        sum = count.checked_mul(*size).and_then(|part| sum.checked_add(part)).ok_or_else(|| {
            format!("overflowed duration {count}{}: choose a smaller duration or INF", &rest[..length])
        })?;
        rest = &rest[length..];
    }
    Ok(if text.starts_with('-') { -sum } else { sum })
}

/// The unit that `text` starts with: its length in bytes and its name in [`UNITS`].
fn unit_at(text: &str) -> Option<(usize, &'static str)> {
    for (written, name) in
        [("ns", "ns"), ("ms", "ms"), ("u", "u"), ("µ", "u"), ("m", "m"), ("s", "s"), ("h", "h"), ("d", "d"), ("w", "w")]
    {
        if text.starts_with(written) {
            return Some((written.len(), name));
        }
    }
    None
}

/// Prints a duration in the largest unit that divides it, as InfluxDB does.
pub(super) fn format(nanoseconds: i64) -> String {
    if nanoseconds == 0 {
        return "0s".to_owned();
    }
    let unit = UNITS.iter().find(|(size, _)| nanoseconds % size == 0);
    unit.map_or_else(String::new, |(size, name)| format!("{}{name}", nanoseconds / size))
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
