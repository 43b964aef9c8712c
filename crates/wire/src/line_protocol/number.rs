//! The parser of unquoted values and timestamps. It checks the grammar; the standard library converts the digits,
//! except those of short decimals.

use super::scanner::{LineEnd, LineFault, Scanner};
use crate::names;
use hourglass_model::reading::value::RawValue;
use hourglass_model::reading::{Precision, Reason};

/// The number or boolean at `start`, and its end: at a comma, a space or the line's end.
#[inline]
pub(super) fn value<'a>(scanner: &Scanner<'a>, start: usize) -> Result<(RawValue<'a>, usize), LineFault> {
    let rest = scanner.bytes(start..scanner.len());
    if let Some((value, length)) = short_decimal(rest) {
        let end = start + length;
        if matches!(scanner.byte(end), Some(b',' | b' ')) {
            return Ok((RawValue::Float(value), end));
        }
    }
    let (kind, length) = leading_number(rest).or_else(|| leading_boolean(rest)).unwrap_or((NumberKind::Float, 0));
    let end = start + length;
    if length == 0 || !(matches!(scanner.byte(end), Some(b',' | b' ')) || scanner.line_ends_at(end).is_some()) {
        return Err(no_value(scanner, start));
    }
    let token = scanner.str(start, end)?;
    let digits = &token[..token.len() - 1];
    let value = match kind {
        NumberKind::Boolean(value) => Some(RawValue::Boolean(value)),
        NumberKind::Integer => digits.parse().ok().map(RawValue::Integer),
        NumberKind::Unsigned => digits.parse().ok().map(RawValue::Unsigned),
        NumberKind::Float => token.parse().ok().filter(|value: &f64| value.is_finite()).map(RawValue::Float),
    };
    match value {
        Some(value) => Ok((value, end)),
        None => Err(LineFault::new(start, Reason::NumberOutOfRange(names::shorten(token)))),
    }
}

/// Parses a decimal with a point and at most 15 digits, which nearly all values are; returns it with its length. This
/// reads the digits once, not once for the grammar and again for the value. The digits and the power of ten are
/// integers that a double represents exactly, so their quotient is the nearest double (Clinger, "How to Read Floating
/// Point Numbers Accurately").
#[inline]
fn short_decimal(text: &[u8]) -> Option<(f64, usize)> {
    const TENS: [f64; 16] = [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];
    let sign = usize::from(text.first() == Some(&b'-'));
    let (whole, point) = gather_digits(text, sign, 0);
    if point == sign || text.get(point) != Some(&b'.') {
        return None;
    }
    let (all, end) = gather_digits(text, point + 1, whole);
    // At most 15 digits and the point.
    if end == point + 1 || end - sign > 16 {
        return None;
    }
    #[expect(clippy::cast_precision_loss, reason = "at most 15 digits")]
    let value = all as f64 / TENS[end - point - 1];
    Some((if sign == 1 { -value } else { value }, end))
}

/// Appends the decimal digits at `position` to `value`; returns the number and the end of the digits. The number is invalid
/// for more than 19 digits.
#[inline]
fn gather_digits(text: &[u8], mut position: usize, mut value: u64) -> (u64, usize) {
    while let Some(digit) = text.get(position).map(|byte| byte.wrapping_sub(b'0')).filter(|digit| *digit < 10) {
        value = value.wrapping_mul(10).wrapping_add(u64::from(digit));
        position += 1;
    }
    (value, position)
}

/// The optional timestamp after the fields, in nanoseconds since the epoch, and the end of the line.
pub(super) fn timestamp(
    scanner: &Scanner<'_>,
    after_fields: usize,
    precision: Precision,
) -> Result<(Option<i64>, LineEnd), LineFault> {
    let start = scanner.skip_spaces(after_fields);
    if let Some(end) = scanner.line_ends_at(start) {
        return Ok((None, end));
    }
    let rest = scanner.bytes(start..scanner.len());
    let sign = usize::from(rest.starts_with(b"-"));
    let (gathered, digits_end) = gather_digits(rest, sign, 0);
    let digits = digits_end - sign;
    let token_end = start + digits_end;
    let after = scanner.skip_spaces(token_end);
    let line_end = scanner.line_ends_at(after);
    if digits == 0 || (after == token_end && line_end.is_none()) {
        return Err(no_timestamp(scanner, start));
    }
    let time = match i64::try_from(gathered) {
        Ok(time) if digits <= 19 => Some(if sign == 1 { -time } else { time }),
        _ => scanner.str(start, token_end)?.parse().ok(),
    };
    match (time.and_then(|time| precision.to_ns(time)), line_end) {
        (None, _) => {
            let text = names::shorten(scanner.str(start, token_end)?);
            Err(LineFault::new(start, Reason::TimeOutOfRange(text)))
        }
        (_, None) => Err(scanner.syntax_fault("the end of the line after the timestamp", after)),
        (timestamp, Some(line_end)) => Ok((timestamp, line_end)),
    }
}

#[derive(Debug, PartialEq)]
enum NumberKind {
    Float,
    Integer,
    Unsigned,
    Boolean(bool),
}

/// The kind of the number at the start of `text`, and its length with the suffix. An unsigned number may have a minus
/// sign, because it is out of range and not malformed.
#[inline]
fn leading_number(text: &[u8]) -> Option<(NumberKind, usize)> {
    let mut position = usize::from(text.starts_with(b"-"));
    let whole = count_digits(&text[position..]);
    position += whole;
    match text.get(position) {
        Some(b'i') if whole > 0 => return Some((NumberKind::Integer, position + 1)),
        Some(b'u') if whole > 0 => return Some((NumberKind::Unsigned, position + 1)),
        Some(b'.') => {
            let fraction = count_digits(&text[position + 1..]);
            if whole + fraction == 0 {
                return None;
            }
            position += 1 + fraction;
        }
        _ if whole == 0 => return None,
        _ => {}
    }
    if let Some(b'e' | b'E') = text.get(position) {
        position += 1 + usize::from(matches!(text.get(position + 1), Some(b'+' | b'-')));
        let exponent = count_digits(&text[position..]);
        if exponent == 0 {
            return None;
        }
        position += exponent;
    }
    Some((NumberKind::Float, position))
}

fn leading_boolean(text: &[u8]) -> Option<(NumberKind, usize)> {
    let length = text.iter().take(6).take_while(|byte| byte.is_ascii_alphabetic()).count();
    let value = match &text[..length] {
        b"t" | b"T" | b"true" | b"True" | b"TRUE" => true,
        b"f" | b"F" | b"false" | b"False" | b"FALSE" => false,
        _ => return None,
    };
    Some((NumberKind::Boolean(value), length))
}

fn count_digits(text: &[u8]) -> usize {
    text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len())
}

#[cold]
fn no_value(scanner: &Scanner<'_>, start: usize) -> LineFault {
    let end = token_end(scanner, start, |byte| matches!(byte, b',' | b' ' | b'\n'));
    if start == end {
        return scanner.syntax_fault("a field value", start);
    }
    bad_token(scanner, start, end, |text| {
        let magnitude = text.strip_prefix(['+', '-']).unwrap_or(text);
        let not_finite = ["nan", "inf", "infinity"].iter().any(|word| magnitude.eq_ignore_ascii_case(word));
        let text = names::shorten(text);
        if not_finite { Reason::NotFinite(text) } else { Reason::InvalidNumber(text) }
    })
}

#[cold]
fn no_timestamp(scanner: &Scanner<'_>, start: usize) -> LineFault {
    let end = token_end(scanner, start, |byte| matches!(byte, b' ' | b'\n'));
    bad_token(scanner, start, end, |text| Reason::InvalidTimestamp(names::shorten(text)))
}

/// The end of an invalid value or timestamp.
fn token_end(scanner: &Scanner<'_>, start: usize, ends: impl Fn(u8) -> bool) -> usize {
    let rest = scanner.bytes(start..scanner.len());
    let length = rest.iter().position(|&byte| ends(byte)).unwrap_or(rest.len());
    // A CR before LF or at the end of the body is part of the line's end.
    let has_return = length > 0 && rest[length - 1] == b'\r' && rest.get(length).is_none_or(|&byte| byte == b'\n');
    start + length - usize::from(has_return)
}

/// The error of an invalid token: invalid UTF-8 first, then control characters, then `reason`.
fn bad_token(scanner: &Scanner<'_>, start: usize, end: usize, reason: impl Fn(&str) -> Reason) -> LineFault {
    let text = match scanner.str(start, end) {
        Ok(text) => text,
        Err(fault) => return fault,
    };
    match names::control_character(text) {
        Some((offset, code)) => LineFault::new(start + offset, Reason::ControlCharacter(code)),
        None => LineFault::new(start, reason(text)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2000, ..ProptestConfig::default() })]

        #[test]
        fn short_decimals_equal_those_of_the_standard_library(text in "-?[0-9]{0,10}\\.[0-9]{0,10}[, e]?") {
            if let Some((value, length)) = short_decimal(text.as_bytes()) {
                let read: f64 = text[..length].parse().expect("a number");
                prop_assert_eq!(value.to_bits(), read.to_bits());
                prop_assert_eq!(leading_number(&text.as_bytes()[..length]), Some((NumberKind::Float, length)));
            }
        }
    }

    #[test]
    fn tokens_have_the_kind_of_the_grammar() {
        use NumberKind::{Boolean, Float, Integer, Unsigned};
        for (token, kind) in [
            ("1", Some(Float)),
            ("-1.5", Some(Float)),
            ("1.", Some(Float)),
            (".5", Some(Float)),
            ("-.5", Some(Float)),
            ("1e4", Some(Float)),
            ("1.e-4", Some(Float)),
            (".5E+6", Some(Float)),
            ("0009i", Some(Integer)),
            ("-1i", Some(Integer)),
            ("1u", Some(Unsigned)),
            ("-1u", Some(Unsigned)),
            ("t", Some(Boolean(true))),
            ("FALSE", Some(Boolean(false))),
            ("tRue", None),
            ("", None),
            ("-", None),
            (".", None),
            ("-.", None),
            (".e1", None),
            ("1e", None),
            ("1e+", None),
            ("1e1.5", None),
            ("1.5i", None),
            ("i", None),
            ("-u", None),
            ("+1", None),
            ("--1", None),
            ("0x10", None),
            ("1_000", None),
            ("1i1", None),
            ("nan", None),
        ] {
            let token = token.as_bytes();
            let whole = leading_number(token).or_else(|| leading_boolean(token)).filter(|(_, end)| *end == token.len());
            assert_eq!(whole.map(|(kind, _)| kind), kind, "{token:?}");
        }
    }
}
