//! Splits a condition into its time range and the rest.
//!
//! As in InfluxDB, a statement has one time range. Every condition on time narrows it, joined by AND or by OR, so that
//! `time < 10 OR time > 20` is an empty range.

use super::ast::{Expr, Literal, Operator};
use super::civil;
use super::civil::MAX_TIME;
use super::error::{StatementError, fault};
use super::fold::{self, Clock, fold, in_range};

/// A range of times in nanoseconds, both ends inclusive. An end is `None` if the condition does not state it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TimeRange {
    /// The first time.
    pub min: Option<i64>,
    /// The last time.
    pub max: Option<i64>,
}

impl TimeRange {
    /// The intersection of two ranges.
    #[must_use]
    pub fn intersect(self, other: Self) -> Self {
        let min = self.min.max(other.min);
        let max = match (self.max, other.max) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        Self { min, max }
    }
}

/// Returns the time range of a condition and the rest with constants folded. The rest is `None` if it is empty or
/// always true.
///
/// # Errors
/// As in InfluxDB, for a part that is not a condition, for `time` compared with a value that is not a time, and for
/// `time !=`.
pub fn split(condition: Option<&Expr>, clock: &Clock<'_>) -> Result<(TimeRange, Option<Expr>), StatementError> {
    let Some(condition) = condition else { return Ok((TimeRange::default(), None)) };
    let (range, rest) = part(condition, clock)?;
    let rest = match rest {
        Some(Expr::Paren(inner)) => Some(*inner),
        rest => rest,
    };
    if let Some(constant @ Expr::Literal(literal)) = &rest
        && !matches!(literal, Literal::Boolean(_))
    {
        return fault(format!("invalid condition expression: {constant}"));
    }
    Ok((range, rest.filter(|rest| *rest != Expr::Literal(Literal::Boolean(true)))))
}

fn part(condition: &Expr, clock: &Clock<'_>) -> Result<(TimeRange, Option<Expr>), StatementError> {
    match condition {
        Expr::Binary { operator: operator @ (Operator::And | Operator::Or), left, right } => {
            let (left_range, left) = part(left, clock)?;
            let (right_range, right) = part(right, clock)?;
            let rest = match (left, right) {
                (Some(left), Some(right)) => Some(fold::join(*operator, left, right, None)),
                (left, right) => left.or(right),
            };
            Ok((left_range.intersect(right_range), rest))
        }
        Expr::Binary { operator, left, right } if left.is_time() => Ok((range(*operator, right, clock)?, None)),
        Expr::Binary { operator, left, right } if right.is_time() => {
            Ok((range(swap_operands(*operator), left, clock)?, None))
        }
        Expr::Binary { .. } => Ok((TimeRange::default(), Some(fold::inner(condition, Some(clock))))),
        Expr::Paren(inner) => {
            let (range, rest) = part(inner, clock)?;
            Ok((range, rest.map(|rest| fold::inner(&Expr::Paren(Box::new(rest)), None))))
        }
        Expr::Literal(Literal::Boolean(_)) => Ok((TimeRange::default(), Some(condition.clone()))),
        _ => fault(format!("invalid condition expression: {condition}")),
    }
}

/// The operator for exchanged operands.
fn swap_operands(operator: Operator) -> Operator {
    match operator {
        Operator::Greater => Operator::Less,
        Operator::Less => Operator::Greater,
        Operator::GreaterEq => Operator::LessEq,
        Operator::LessEq => Operator::GreaterEq,
        other => other,
    }
}

/// The range of `time operator value`.
fn range(operator: Operator, value: &Expr, clock: &Clock<'_>) -> Result<TimeRange, StatementError> {
    let value = match value {
        Expr::Literal(Literal::String(text)) => match clock.instant(text) {
            Some(instant) => Expr::Literal(Literal::Time(instant?)),
            None => value.clone(),
        },
        value => fold(value, Some(clock)),
    };
    let time = match &value {
        Expr::Literal(Literal::Time(time)) if in_range(*time) => i64::try_from(*time).unwrap_or(MAX_TIME),
        Expr::Literal(Literal::Time(time)) => {
            let direction = if *time > 0 { "overflows" } else { "underflows" };
            return fault(format!("time {} {direction} time literal", civil::rfc3339_seconds(*time)));
        }
        Expr::Literal(Literal::Duration(time) | Literal::Integer(time)) => *time,
        #[expect(clippy::cast_possible_truncation, reason = "InfluxDB drops the fraction, too")]
        Expr::Literal(Literal::Number(time)) => *time as i64,
        other => {
            let kind = kind_name(other);
            return fault(format!("invalid operation: time and *influxql.{kind} are not compatible"));
        }
    };
    let (min, max) = match operator {
        Operator::Greater => (Some(time.saturating_add(1)), None),
        Operator::GreaterEq => (Some(time), None),
        Operator::Less => (None, Some(time.saturating_sub(1))),
        Operator::LessEq => (None, Some(time)),
        Operator::Eq => (Some(time), Some(time)),
        other => return fault(format!("invalid time comparison operator: {}", other.as_str())),
    };
    Ok(TimeRange { min, max })
}

/// InfluxDB's name for a kind of expression.
pub(super) fn kind_name(expr: &Expr) -> &'static str {
    match expr {
        Expr::Reference { .. } => "VarRef",
        Expr::Literal(literal) => match literal {
            Literal::Integer(_) => "IntegerLiteral",
            Literal::Unsigned(_) => "UnsignedLiteral",
            Literal::Number(_) => "NumberLiteral",
            Literal::String(_) => "StringLiteral",
            Literal::Boolean(_) => "BooleanLiteral",
            Literal::Duration(_) => "DurationLiteral",
            Literal::Regex(_) => "RegexLiteral",
            Literal::Time(_) => "TimeLiteral",
        },
        Expr::Binary { .. } => "BinaryExpr",
        Expr::Paren(_) => "ParenExpr",
        Expr::Call { .. } => "Call",
        Expr::Wildcard(_) => "Wildcard",
        Expr::Distinct(_) => "Distinct",
    }
}
