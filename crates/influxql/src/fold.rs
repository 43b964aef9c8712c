//! Constant folding in conditions and columns: `now() - 1h`, `2 * 3`, `'2024-01-01' + 1d`. The rules are InfluxDB's: an
//! integer next to a duration or a time is in nanoseconds, division by zero yields zero, and integers wrap.

use super::ast::{Expr, Literal, Operator};
use super::civil::{self, CivilTime, TimeText};
use super::error::{StatementError, fault};
use crate::civil::{MAX_TIME, MIN_TIME};

/// The current time and the zone for a statement's times.
#[derive(Clone, Copy)]
pub struct Clock<'a> {
    /// `now()` in nanoseconds since 1970.
    pub now: i64,
    /// The zone of the statement's `tz()`.
    pub zone: Option<&'a str>,
    /// Converts a local time in a zone to nanoseconds since 1970, including times that do not exist or occur twice.
    /// Called only for zones of `tz()` that [`ParseOptions::is_known_zone`](super::ParseOptions::is_known_zone) accepted.
    pub resolve: &'a dyn Fn(&str, CivilTime) -> i128,
}

impl<'a> Clock<'a> {
    /// The same clock for a statement in `zone`.
    #[must_use]
    pub fn in_zone(self, zone: Option<&'a str>) -> Self {
        Self { zone, ..self }
    }

    /// Parses a text that starts with a date to nanoseconds since 1970; `None` for any other text, `Err` for an invalid
    /// time.
    pub(super) fn instant(&self, text: &str) -> Option<Result<i128, StatementError>> {
        if !civil::looks_like_time(text) {
            return None;
        }
        Some(match (civil::parse(text), self.zone) {
            (None, _) => fault("invalid timestamp string"),
            (Some(TimeText::Instant(nanoseconds)), _) => Ok(nanoseconds),
            (Some(TimeText::Civil(civil)), Some(zone)) => Ok((self.resolve)(zone, civil)),
            (Some(TimeText::Civil(civil)), None) => Ok(civil::utc(civil)),
        })
    }
}

/// Folds constants and removes outer parentheses. Without a clock, `now()` stays and times without a zone are UTC.
#[must_use]
pub fn fold(expr: &Expr, clock: Option<&Clock<'_>>) -> Expr {
    match inner(expr, clock) {
        Expr::Paren(inner) => *inner,
        other => other,
    }
}

/// As [`fold`], but keeps the outer parentheses.
pub(super) fn inner(expr: &Expr, clock: Option<&Clock<'_>>) -> Expr {
    match expr {
        Expr::Binary { operator, left, right } => join(*operator, inner(left, clock), inner(right, clock), clock),
        Expr::Paren(within) => match inner(within, clock) {
            binary @ Expr::Binary { .. } => Expr::Paren(Box::new(binary)),
            other => other,
        },
        Expr::Call { name, args } if name == "now" && args.is_empty() => match clock {
            Some(clock) => Expr::Literal(Literal::Time(clock.now.into())),
            None => expr.clone(),
        },
        Expr::Call { name, args } => {
            Expr::Call { name: name.clone(), args: args.iter().map(|arg| inner(arg, clock)).collect() }
        }
        other => other.clone(),
    }
}

/// Returns `left operator right`, computed if possible.
pub(super) fn join(operator: Operator, left: Expr, right: Expr, clock: Option<&Clock<'_>>) -> Expr {
    if let Some(decided) = logical(operator, &left, &right) {
        return decided;
    }
    if let (Expr::Literal(a), Expr::Literal(b)) = (&left, &right)
        && let Some(literal) = literals(operator, a, b, clock)
    {
        return Expr::Literal(literal);
    }
    Expr::binary(operator, left, right)
}

/// Computes AND and OR with a boolean constant on either side.
fn logical(operator: Operator, left: &Expr, right: &Expr) -> Option<Expr> {
    let deciding = match operator {
        Operator::And => false,
        Operator::Or => true,
        _ => return None,
    };
    match (left, right) {
        (Expr::Literal(Literal::Boolean(value)), _) | (_, Expr::Literal(Literal::Boolean(value)))
            if *value == deciding =>
        {
            Some(Expr::Literal(Literal::Boolean(deciding)))
        }
        (Expr::Literal(Literal::Boolean(_)), other) | (other, Expr::Literal(Literal::Boolean(_))) => {
            Some(other.clone())
        }
        _ => None,
    }
}

#[expect(clippy::cast_precision_loss, reason = "an integer beside a float becomes one")]
fn literals(operator: Operator, left: &Literal, right: &Literal, clock: Option<&Clock<'_>>) -> Option<Literal> {
    use Literal::{Boolean, Duration, Integer, Number, String, Time, Unsigned};
    match (left, right) {
        (Boolean(a), Boolean(b)) => booleans(operator, *a, *b),
        (Integer(a), Integer(b)) => integers(operator, *a, *b),
        (Integer(a), Unsigned(b)) => mixed_integers(operator, *a, *b, false),
        (Unsigned(a), Integer(b)) => mixed_integers(operator, *b, *a, true),
        (Unsigned(a), Unsigned(b)) => unsigned_integers(operator, *a, *b),
        (Number(a), Number(b)) => numbers(operator, *a, *b),
        (Number(a), Integer(b)) => numbers(operator, *a, *b as f64),
        (Integer(a), Number(b)) => numbers(operator, *a as f64, *b),
        (Number(a), Unsigned(b)) => numbers(operator, *a, *b as f64),
        (Unsigned(a), Number(b)) => numbers(operator, *a as f64, *b),
        (Duration(a), Duration(b)) => durations(operator, *a, *b),
        (Duration(a), Integer(b)) => scale(operator, *a, *b),
        #[expect(clippy::cast_possible_truncation, reason = "InfluxDB drops the fraction, too")]
        (Duration(a), Number(b)) => scale(operator, *a, *b as i64),
        (Integer(a), Duration(b)) => shift(operator, i128::from(*a), *b),
        (Integer(a) | Duration(a), Time(b)) if operator == Operator::Add => Some(Time(i128::from(*a) + b)),
        (Time(a), Duration(b) | Integer(b)) => shift(operator, *a, *b),
        (Time(a), Time(b)) => times(operator, *a, *b),
        (String(a), String(b)) => strings(operator, a, b, clock),
        (String(a), Duration(_) | Time(_) | Integer(_)) => literals(operator, &Time(instant(a, clock)?), right, clock),
        (Duration(_) | Time(_) | Integer(_), String(b)) => literals(operator, left, &Time(instant(b, clock)?), clock),
        _ => None,
    }
}

fn instant(text: &str, clock: Option<&Clock<'_>>) -> Option<i128> {
    let utc = Clock { now: 0, zone: None, resolve: &|_, civil| civil::utc(civil) };
    clock.unwrap_or(&utc).instant(text)?.ok()
}

fn compare<T: PartialOrd>(operator: Operator, a: &T, b: &T) -> Option<Literal> {
    Some(Literal::Boolean(match operator {
        Operator::Eq => a == b,
        Operator::NotEq => a != b,
        Operator::Less => a < b,
        Operator::LessEq => a <= b,
        Operator::Greater => a > b,
        Operator::GreaterEq => a >= b,
        _ => return None,
    }))
}

fn booleans(operator: Operator, a: bool, b: bool) -> Option<Literal> {
    Some(Literal::Boolean(match operator {
        Operator::Eq => a == b,
        Operator::NotEq | Operator::BitXor => a != b,
        Operator::And | Operator::BitAnd => a && b,
        Operator::Or | Operator::BitOr => a || b,
        _ => return None,
    }))
}

#[expect(clippy::cast_precision_loss, reason = "a division gives a float")]
fn integers(operator: Operator, a: i64, b: i64) -> Option<Literal> {
    Some(Literal::Integer(match operator {
        Operator::Add => a.wrapping_add(b),
        Operator::Sub => a.wrapping_sub(b),
        Operator::Mul => a.wrapping_mul(b),
        Operator::Div if b == 0 => return Some(Literal::Number(0.0)),
        Operator::Div => return Some(Literal::Number(a as f64 / b as f64)),
        Operator::Mod if b == 0 => 0,
        Operator::Mod => a.wrapping_rem(b),
        Operator::BitAnd => a & b,
        Operator::BitOr => a | b,
        Operator::BitXor => a ^ b,
        _ => return compare(operator, &a, &b),
    }))
}

/// Computes an operation on an integer and an unsigned integer; `is_swapped` if the integer is on the right. A negative
/// integer is less than all unsigned ones.
fn mixed_integers(operator: Operator, integer: i64, other: u64, is_swapped: bool) -> Option<Literal> {
    let is_less = matches!(operator, Operator::Less | Operator::LessEq);
    if integer < 0 && (is_less || matches!(operator, Operator::Greater | Operator::GreaterEq)) {
        return Some(Literal::Boolean(is_less != is_swapped));
    }
    let cast = integer.cast_unsigned();
    if is_swapped { unsigned_integers(operator, other, cast) } else { unsigned_integers(operator, cast, other) }
}

fn unsigned_integers(operator: Operator, a: u64, b: u64) -> Option<Literal> {
    Some(Literal::Unsigned(match operator {
        Operator::Add => a.wrapping_add(b),
        Operator::Sub => a.wrapping_sub(b),
        Operator::Mul => a.wrapping_mul(b),
        Operator::Div => a.checked_div(b).unwrap_or(0),
        Operator::Mod => a.checked_rem(b).unwrap_or(0),
        _ => return compare(operator, &a, &b),
    }))
}

fn numbers(operator: Operator, a: f64, b: f64) -> Option<Literal> {
    Some(Literal::Number(match operator {
        Operator::Add => a + b,
        Operator::Sub => a - b,
        Operator::Mul => a * b,
        Operator::Div if b == 0.0 => 0.0,
        Operator::Div => a / b,
        Operator::Mod => a % b,
        _ => return compare(operator, &a, &b),
    }))
}

fn durations(operator: Operator, a: i64, b: i64) -> Option<Literal> {
    match operator {
        Operator::Add => Some(Literal::Duration(a.wrapping_add(b))),
        Operator::Sub => Some(Literal::Duration(a.wrapping_sub(b))),
        _ => compare(operator, &a, &b),
    }
}

fn scale(operator: Operator, duration: i64, factor: i64) -> Option<Literal> {
    match operator {
        Operator::Mul => Some(Literal::Duration(duration.wrapping_mul(factor))),
        Operator::Div if factor == 0 => Some(Literal::Duration(0)),
        Operator::Div => Some(Literal::Duration(duration.wrapping_div(factor))),
        _ => None,
    }
}

fn shift(operator: Operator, time: i128, offset: i64) -> Option<Literal> {
    match operator {
        Operator::Add => Some(Literal::Time(time + i128::from(offset))),
        Operator::Sub => Some(Literal::Time(time - i128::from(offset))),
        _ => None,
    }
}

fn times(operator: Operator, a: i128, b: i128) -> Option<Literal> {
    if operator == Operator::Sub {
        // Clamp a difference that does not fit a duration.
        let difference = (a - b).clamp(i64::MIN.into(), i64::MAX.into());
        return i64::try_from(difference).ok().map(Literal::Duration);
    }
    compare(operator, &a, &b)
}

fn strings(operator: Operator, a: &str, b: &str, clock: Option<&Clock<'_>>) -> Option<Literal> {
    match operator {
        Operator::Add => Some(Literal::String(format!("{a}{b}"))),
        Operator::Eq | Operator::NotEq => match (instant(a, clock), instant(b, clock)) {
            (Some(a), Some(b)) => compare(operator, &a, &b),
            _ => compare(operator, &a, &b),
        },
        _ => times(operator, instant(a, clock)?, instant(b, clock)?),
    }
}

/// Returns true if InfluxDB accepts the time. It reserves the lowest numbers.
pub(super) fn in_range(time: i128) -> bool {
    (i128::from(MIN_TIME) + 1..=i128::from(MAX_TIME)).contains(&time)
}
