//! Mathematical functions over the cells of a row.

use super::filter::number;
use crate::reading::Value;

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
