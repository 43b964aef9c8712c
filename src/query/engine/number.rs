//! Arithmetic, order and mathematical functions of values.

use std::cmp::Ordering;

use crate::reading::Value;

/// An operator between two values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arithmetic {
    Add,
    Sub,
    Mul,
    Div,
    Mod,
    BitAnd,
    BitOr,
    BitXor,
}

/// The order of two values of one family. Numbers compare exactly, also an integer with a double.
#[must_use]
pub fn order(a: &Value, b: &Value) -> Option<Ordering> {
    match (a, b) {
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        (Value::Boolean(a), Value::Boolean(b)) => Some(a.cmp(b)),
        _ => match (whole(a), whole(b)) {
            (Some(a), Some(b)) => Some(a.cmp(&b)),
            (Some(a), None) => order_of_whole(a, number(b)?),
            (None, Some(b)) => order_of_whole(b, number(a)?).map(Ordering::reverse),
            (None, None) => number(a)?.partial_cmp(&number(b)?),
        },
    }
}

/// The order of an integer of 64 bits and a double. Rounding to the nearest double keeps the order, except that it can
/// make both equal.
#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "a double near 64 bits fits 128 bits")]
fn order_of_whole(whole: i128, float: f64) -> Option<Ordering> {
    match (whole as f64).partial_cmp(&float)? {
        Ordering::Equal => Some(whole.cmp(&(float as i128))),
        order => Some(order),
    }
}

/// The value of an integer.
#[must_use]
pub fn whole(value: &Value) -> Option<i128> {
    match value {
        Value::Integer(v) => Some(i128::from(*v)),
        Value::Unsigned(v) => Some(i128::from(*v)),
        _ => None,
    }
}

/// The double nearest to a number.
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

/// Arithmetic as in InfluxDB 1.6: integer division gives a float, division by zero gives zero, and a result that is not
/// finite is null. Unlike there, integers that exceed 64 bits become the nearest float.
#[must_use]
pub fn arithmetic(operator: Arithmetic, a: &Value, b: &Value) -> Option<Value> {
    match (a, b) {
        (Value::Integer(a), Value::Integer(b)) if operator != Arithmetic::Div => integers(operator, *a, *b),
        (Value::Boolean(a), Value::Boolean(b)) => Some(Value::Boolean(match operator {
            Arithmetic::BitAnd => a & b,
            Arithmetic::BitOr => a | b,
            Arithmetic::BitXor => a ^ b,
            _ => return None,
        })),
        _ => {
            let (a, b) = (number(a)?, number(b)?);
            let result = match operator {
                Arithmetic::Add => a + b,
                Arithmetic::Sub => a - b,
                Arithmetic::Mul => a * b,
                Arithmetic::Div if b == 0.0 => 0.0,
                Arithmetic::Div => a / b,
                Arithmetic::Mod => a % b,
                _ => return None,
            };
            result.is_finite().then_some(Value::Float(result))
        }
    }
}

fn integers(operator: Arithmetic, a: i64, b: i64) -> Option<Value> {
    let whole = match operator {
        Arithmetic::Add => a.checked_add(b),
        Arithmetic::Sub => a.checked_sub(b),
        Arithmetic::Mul => a.checked_mul(b),
        Arithmetic::Mod if b == 0 => Some(0),
        Arithmetic::Mod => Some(a.wrapping_rem(b)),
        Arithmetic::BitAnd => Some(a & b),
        Arithmetic::BitOr => Some(a | b),
        Arithmetic::BitXor => Some(a ^ b),
        Arithmetic::Div => return None,
    };
    if let Some(whole) = whole {
        return Some(Value::Integer(whole));
    }
    let [a, b] = [a, b].map(|value| number(&Value::Integer(value)).map(Value::Float));
    arithmetic(operator, &a?, &b?)
}

/// A function of one or two numbers.
#[derive(Debug)]
pub struct MathFunction {
    /// In lower case.
    pub name: &'static str,
    /// The result for an integer, of functions that keep integers.
    integer: Option<fn(i64) -> Option<i64>>,
    /// The result for numbers. The second one is NaN for a function of one number.
    float: fn(f64, f64) -> f64,
}

static FUNCTIONS: &[MathFunction] = &[
    keeping("abs", i64::checked_abs, |x, _| x.abs()),
    keeping("ceil", Some, |x, _| x.ceil()),
    keeping("floor", Some, |x, _| x.floor()),
    keeping("round", Some, |x, _| x.round()),
    function("acos", |x, _| x.acos()),
    function("asin", |x, _| x.asin()),
    function("atan", |x, _| x.atan()),
    function("atan2", f64::atan2),
    function("cos", |x, _| x.cos()),
    function("exp", |x, _| x.exp()),
    function("ln", |x, _| x.ln()),
    function("log", |x, base| x.ln() / base.ln()),
    function("log10", |x, _| x.log10()),
    function("log2", |x, _| x.log2()),
    function("pow", f64::powf),
    function("sin", |x, _| x.sin()),
    function("sqrt", |x, _| x.sqrt()),
    function("tan", |x, _| x.tan()),
];

const fn keeping(name: &'static str, integer: fn(i64) -> Option<i64>, float: fn(f64, f64) -> f64) -> MathFunction {
    MathFunction { name, integer: Some(integer), float }
}

const fn function(name: &'static str, float: fn(f64, f64) -> f64) -> MathFunction {
    MathFunction { name, integer: None, float }
}

impl PartialEq for MathFunction {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl MathFunction {
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        FUNCTIONS.iter().find(|function| function.name == name)
    }

    /// Returns the result; `None` if an argument is not a number, or the result is none.
    pub(super) fn apply(&self, first: &Value, second: Option<&Value>) -> Option<Value> {
        match (first, self.integer) {
            (Value::Integer(value), Some(integer)) => integer(*value).map(Value::Integer),
            (Value::Unsigned(value), Some(_)) => Some(Value::Unsigned(*value)),
            _ => {
                let second = second.map_or(Some(f64::NAN), number)?;
                Some((self.float)(number(first)?, second)).filter(|value| value.is_finite()).map(Value::Float)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: an integer and a double were compared as doubles, so that 2^53 and 2^53 + 1 were equal.
    #[test]
    fn integers_and_doubles_compare_exactly() {
        let beyond = Value::Integer((1 << 53) + 1);
        let float = Value::Float(2f64.powi(53));
        assert_eq!(order(&beyond, &float), Some(Ordering::Greater));
        assert_eq!(order(&float, &beyond), Some(Ordering::Less));
        assert_eq!(order(&Value::Integer(1 << 53), &float), Some(Ordering::Equal));
        assert_eq!(order(&Value::Unsigned(u64::MAX), &Value::Float(2f64.powi(64))), Some(Ordering::Less));
        assert_eq!(order(&Value::Integer(1), &Value::Float(1.5)), Some(Ordering::Less));
        assert_eq!(order(&Value::Float(f64::MAX), &Value::Integer(i64::MAX)), Some(Ordering::Greater));
    }
}
