//! Parses durations and sizes such as "30s" and "64MiB", and formats sizes.

use std::time::Duration;

use crate::reading::duration::{self, DURATION_UNITS, DurationFault};

/// 1024 bytes.
pub const KIB: usize = 1 << 10;
/// 1024 KiB.
pub const MIB: usize = 1 << 20;
/// 1024 MiB.
pub const GIB: usize = 1 << 30;

/// Units of sizes, in bytes. The binary units, in which sizes are displayed, come first in ascending order.
const SIZE_UNITS: [(&str, u64); 10] = [
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1000),
    ("KB", 1000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
];
const BINARY_UNITS: usize = 5;

/// Parses a duration of whole milliseconds, such as `30s`, `1h30m` or `7d`.
///
/// # Errors
/// If the number or the unit is missing or invalid, or if the duration is too long.
pub fn parse_duration(text: &str) -> Result<Duration, DurationFault> {
    let from_milliseconds = &DURATION_UNITS[4..];
    let nanoseconds = duration::parse_duration(text, from_milliseconds)?;
    Ok(Duration::from_nanos(nanoseconds.unsigned_abs()))
}

/// Parses a size: a whole number of bytes, or a whole number with `B`, `KiB`, `MiB`, `GiB`, `TiB` (powers of 1024) or
/// `KB`, `MB`, `GB`, `TB` (powers of 1000).
///
/// # Errors
/// If the number is missing, the unit is unknown, or the size is too large.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let (number, unit) = text.split_at(text.find(char::is_alphabetic).unwrap_or(text.len()));
    if number.is_empty() {
        return Err("no number before the unit".to_owned());
    }
    if !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("{number:?} is not a whole number"));
    }
    let unit = if unit.is_empty() { "B" } else { unit };
    let Some((_, bytes)) = SIZE_UNITS.iter().find(|(name, _)| *name == unit) else {
        return Err(format!("unknown unit {unit:?} (known are B, KiB, MiB, GiB, TiB, KB, MB, GB, TB)"));
    };
    // `number` is all digits, so parsing fails only if it is too large.
    number.parse::<u64>().ok().and_then(|number| number.checked_mul(*bytes)).ok_or_else(|| "too large".to_owned())
}

/// Formats a size for [`parse_size`], in the largest binary unit that is exact.
#[must_use]
pub fn show_size(bytes: usize) -> String {
    let bytes = bytes as u64;
    let units = &SIZE_UNITS[..BINARY_UNITS];
    let exact = units.iter().rev().find(|(_, factor)| bytes != 0 && bytes.is_multiple_of(*factor));
    let (name, factor) = exact.unwrap_or(&units[0]);
    format!("{}{name}", bytes / factor)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_exactly() {
        let cases = [
            ("0", 0),
            ("4096", 4096),
            ("12B", 12),
            ("512KiB", 524_288),
            ("64MiB", 67_108_864),
            ("1GiB", 1_073_741_824),
            ("2TiB", 2_199_023_255_552),
            ("25MB", 25_000_000),
            ("3kB", 3000),
            ("3KB", 3000),
        ];
        for (text, bytes) in cases {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn errors_of_sizes_state_the_fault() {
        let known = "(known are B, KiB, MiB, GiB, TiB, KB, MB, GB, TB)";
        let cases = [
            ("", "no number before the unit".to_owned()),
            ("MiB", "no number before the unit".to_owned()),
            ("1.5GiB", "\"1.5\" is not a whole number".to_owned()),
            ("64M", format!("unknown unit \"M\" {known}")),
            ("64mib", format!("unknown unit \"mib\" {known}")),
            ("16777216TiB", "too large".to_owned()),
        ];
        for (text, message) in cases {
            assert_eq!(parse_size(text).unwrap_err().to_string(), message, "{text}");
        }
    }

    #[test]
    fn shown_sizes_parse_to_the_same_value() {
        for (bytes, text) in [(0, "0B"), (1000, "1000B"), (1536, "1536B"), (64 * MIB, "64MiB"), (GIB, "1GiB")] {
            assert_eq!(show_size(bytes), text);
            assert_eq!(parse_size(text), Ok(bytes as u64));
        }
    }
}
