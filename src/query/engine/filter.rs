//! Evaluates expressions for one reading: arithmetic of columns, and conditions. A condition can also be evaluated for
//! a sensor whose field values are not known yet, so that sensors that cannot match are not read.

use crate::influxql::{Expr, Literal, Operator};
use crate::query::pattern::Patterns;
use crate::reading::Value;

/// One side of an operator: what a reference or an expression stands for.
#[derive(Debug, Clone)]
pub enum Operand {
    /// A field's value; `None` if the reading has none.
    Field(Option<Value>),
    /// A tag's value; empty if the sensor has no such tag.
    Tag(String),
    /// A field whose value is not known yet.
    Unknown,
}

/// Resolves references.
pub trait Lookup {
    fn find(&self, name: &str, kind: Option<crate::influxql::ReferenceKind>) -> Operand;
}

/// Whether a condition holds; `None` if that depends on unknown values.
pub fn holds(condition: &Expr, lookup: &impl Lookup, patterns: &Patterns) -> Option<bool> {
    match condition {
        Expr::Paren(inner) => holds(inner, lookup, patterns),
        Expr::Literal(Literal::Boolean(value)) => Some(*value),
        Expr::Binary { operator: operator @ (Operator::And | Operator::Or), left, right } => {
            // The value of either side that decides the result alone.
            let decides = Some(*operator == Operator::Or);
            let left = holds(left, lookup, patterns);
            if left == decides {
                return decides;
            }
            match (left, holds(right, lookup, patterns)) {
                (_, right) if right == decides => decides,
                (None, _) | (_, None) => None,
                (_, right) => right,
            }
        }
        Expr::Binary { operator, left, right } => compare(*operator, left, right, lookup, patterns),
        _ => Some(false),
    }
}

fn compare(operator: Operator, left: &Expr, right: &Expr, lookup: &impl Lookup, patterns: &Patterns) -> Option<bool> {
    if let Expr::Literal(Literal::Regex(pattern)) = right {
        let matches = match operand(left, lookup) {
            Operand::Unknown => return None,
            Operand::Tag(text) => patterns.matches(pattern, &text),
            Operand::Field(Some(Value::String(text))) => patterns.matches(pattern, &text),
            Operand::Field(_) => return Some(false),
        };
        return Some(matches == (operator == Operator::EqRegex));
    }
    match (operand(left, lookup), operand(right, lookup)) {
        (Operand::Unknown, _) | (_, Operand::Unknown) => None,
        // A tag is a text that can only be compared for equality.
        (Operand::Tag(a), Operand::Field(Some(Value::String(b)))) => Some(equal(operator, &*a, &*b)),
        (Operand::Field(Some(Value::String(a))), Operand::Tag(b)) => Some(equal(operator, &*a, &*b)),
        // Two tags that are both absent are not equal.
        (Operand::Tag(a), Operand::Tag(b)) => {
            let same = a == b && !a.is_empty();
            Some(same == (operator == Operator::Eq))
        }
        (Operand::Field(Some(a)), Operand::Field(Some(b))) => Some(values(operator, &a, &b)),
        _ => Some(false),
    }
}

fn equal<T: PartialEq + ?Sized>(operator: Operator, a: &T, b: &T) -> bool {
    match operator {
        Operator::Eq => a == b,
        Operator::NotEq => a != b,
        _ => false,
    }
}

fn values(operator: Operator, a: &Value, b: &Value) -> bool {
    use std::cmp::Ordering::{Equal, Greater, Less};
    let order = match (a, b) {
        (Value::String(a), Value::String(b)) => return equal(operator, a, b),
        (Value::Boolean(a), Value::Boolean(b)) => return equal(operator, a, b),
        _ => order(a, b),
    };
    match (operator, order) {
        (_, None) => false,
        (Operator::Eq, order) => order == Some(Equal),
        (Operator::NotEq, order) => order != Some(Equal),
        (Operator::Less, order) => order == Some(Less),
        (Operator::LessEq, order) => order != Some(Greater),
        (Operator::Greater, order) => order == Some(Greater),
        (Operator::GreaterEq, order) => order != Some(Less),
        _ => false,
    }
}

/// The order of two values of one family. Integers compare exactly, other numbers as doubles.
#[must_use]
pub fn order(a: &Value, b: &Value) -> Option<std::cmp::Ordering> {
    match (a, b) {
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        (Value::Boolean(a), Value::Boolean(b)) => Some(a.cmp(b)),
        _ => match (whole(a), whole(b)) {
            (Some(a), Some(b)) => Some(a.cmp(&b)),
            _ => number(a)?.partial_cmp(&number(b)?),
        },
    }
}

fn whole(value: &Value) -> Option<i128> {
    match value {
        Value::Integer(v) => Some(i128::from(*v)),
        Value::Unsigned(v) => Some(i128::from(*v)),
        _ => None,
    }
}

#[must_use]
#[expect(clippy::cast_precision_loss, reason = "InfluxDB computes with doubles, too")]
pub fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Float(v) => Some(*v),
        Value::Integer(v) => Some(*v as f64),
        Value::Unsigned(v) => Some(*v as f64),
        Value::Boolean(_) | Value::String(_) => None,
    }
}

/// The value of a literal; `None` for a regular expression or a time.
#[must_use]
pub fn value_of(literal: &Literal) -> Option<Value> {
    Some(match literal {
        Literal::Integer(v) | Literal::Duration(v) => Value::Integer(*v),
        Literal::Unsigned(v) => Value::Unsigned(*v),
        Literal::Number(v) => Value::Float(*v),
        Literal::String(v) => Value::String(v.as_str().into()),
        Literal::Boolean(v) => Value::Boolean(*v),
        Literal::Regex(_) | Literal::Time(_) => return None,
    })
}

fn operand(expr: &Expr, lookup: &impl Lookup) -> Operand {
    match expr {
        Expr::Paren(inner) => operand(inner, lookup),
        Expr::Reference { name, kind } => lookup.find(name, *kind),
        Expr::Literal(literal) => Operand::Field(value_of(literal)),
        Expr::Binary { operator, left, right } => match (operand(left, lookup), operand(right, lookup)) {
            (Operand::Unknown, _) | (_, Operand::Unknown) => Operand::Unknown,
            (Operand::Field(Some(a)), Operand::Field(Some(b))) => Operand::Field(arithmetic(*operator, &a, &b)),
            _ => Operand::Field(None),
        },
        _ => Operand::Field(None),
    }
}

/// Arithmetic as in InfluxDB 1.6: integer division gives a float, division by zero gives zero, and a result that is not
/// finite is null.
#[must_use]
pub fn arithmetic(operator: Operator, a: &Value, b: &Value) -> Option<Value> {
    match (a, b) {
        (Value::Integer(a), Value::Integer(b)) if operator != Operator::Div => integers(operator, *a, *b),
        (Value::Boolean(a), Value::Boolean(b)) => Some(Value::Boolean(match operator {
            Operator::BitAnd => a & b,
            Operator::BitOr => a | b,
            Operator::BitXor => a ^ b,
            _ => return None,
        })),
        _ => {
            let (a, b) = (number(a)?, number(b)?);
            let result = match operator {
                Operator::Add => a + b,
                Operator::Sub => a - b,
                Operator::Mul => a * b,
                Operator::Div if b == 0.0 => 0.0,
                Operator::Div => a / b,
                Operator::Mod => a % b,
                _ => return None,
            };
            result.is_finite().then_some(Value::Float(result))
        }
    }
}

fn integers(operator: Operator, a: i64, b: i64) -> Option<Value> {
    Some(Value::Integer(match operator {
        Operator::Add => a.wrapping_add(b),
        Operator::Sub => a.wrapping_sub(b),
        Operator::Mul => a.wrapping_mul(b),
        Operator::Mod if b == 0 => 0,
        Operator::Mod => a.wrapping_rem(b),
        Operator::BitAnd => a & b,
        Operator::BitOr => a | b,
        Operator::BitXor => a ^ b,
        _ => return None,
    }))
}
