//! The functions of the native API: aggregates of a window, and functions that compare a window with those before it.

use std::borrow::Cow;
use std::sync::Arc;

use crate::query::engine::plan::{Call, Function, Input};
use crate::query::engine::windows::Windows;
use crate::reading::Family;
use crate::reading::duration::{DURATION_UNITS, parse_duration};

/// The unit of `derivative` without an argument.
const SECOND: i64 = 1_000_000_000;
/// The most windows of a moving average.
const WINDOWS_MAX: usize = 1_000;

/// A function by its name in the native API.
#[derive(Debug, Clone, PartialEq)]
pub struct NativeAggregate {
    pub name: Cow<'static, str>,
    /// The function of the readings of a window.
    pub(super) function: Function,
    /// The function that is applied to its results, from window to window.
    then: Option<Function>,
}

impl NativeAggregate {
    pub const COUNT: Self = Self { name: Cow::Borrowed("count"), function: Function::Count, then: None };
    pub(super) const LAST: Self = Self { name: Cow::Borrowed("last"), function: Function::Last, then: None };

    /// Returns the functions of a list such as `avg,moving_average(avg,5)`.
    ///
    /// # Errors
    /// The first name that is not known.
    pub fn parse_list(list: &str) -> Result<Vec<Self>, &str> {
        let mut depth = 0_usize;
        let is_end = |letter: char| {
            match letter {
                '(' => depth += 1,
                ')' => depth = depth.saturating_sub(1),
                _ => {}
            }
            letter == ',' && depth == 0
        };
        list.split(is_end).map(|name| Self::from_name(name).ok_or(name)).collect()
    }

    /// Returns the function of this name. `avg` is an alias of `mean`. `p95` and `p99.9` are percentiles.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        if let Some((outer, arguments)) = name.strip_suffix(')').and_then(|name| name.split_once('(')) {
            let (inner, argument) = match arguments.split_once(',') {
                Some((inner, argument)) => (inner, Some(argument)),
                None => (arguments, None),
            };
            // Only one level: a URL has room for 16,000.
            if inner.contains('(') {
                return None;
            }
            let inner = Self::from_name(inner)?;
            let then = Some(transformation(outer, argument)?);
            return Some(Self { name: name.to_owned().into(), then, ..inner });
        }
        let function = match name {
            "avg" => Some(Function::Mean),
            "increase" => Some(Function::Increase),
            "rate" => Some(Function::Rate),
            name => Function::from_name(name),
        };
        if let Some(function) = function {
            return Some(Self { name: name.to_owned().into(), function, then: None });
        }
        let number = name.strip_prefix('p')?;
        let is_decimal = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        let percent: f64 = number.parse().ok().filter(|percent| is_decimal && *percent > 0.0 && *percent < 100.0)?;
        Some(Self { name: format!("p{percent}").into(), function: Function::Percentile(percent), then: None })
    }

    /// A histogram with these bounds. Its columns are the counts by range, and the number of values without counts. No
    /// other function can be beside it.
    #[must_use]
    pub fn histogram(bounds: Arc<[f64]>) -> Self {
        Self { name: "histogram".into(), function: Function::Histogram(bounds), then: None }
    }

    /// Returns the default functions of the summary endpoint.
    #[must_use]
    pub fn usual() -> Vec<Self> {
        ["count", "min", "max", "sum", "avg"].into_iter().filter_map(Self::from_name).collect()
    }

    /// Returns true if the function accepts values of a family.
    pub(super) fn accepts(&self, family: Family) -> bool {
        match &self.function {
            Function::Count => true,
            Function::First | Function::Last | Function::Mode if self.then.is_none() => true,
            _ => family == Family::Number,
        }
    }

    /// Returns the call for a field.
    pub(super) fn call(&self, field: usize) -> Call {
        let call = Call { function: self.function.clone(), input: Input::Field(field) };
        match &self.then {
            Some(function) => Call { function: function.clone(), input: Input::Call(Box::new(call)) },
            None => call,
        }
    }

    /// Returns the function of single windows, without the comparison with other windows.
    #[must_use]
    pub fn of_window(&self) -> Self {
        Self { then: None, ..self.clone() }
    }

    /// Returns true if the function compares a window with those before it.
    pub(super) fn looks_back(&self) -> bool {
        self.windows_before() > 0
    }

    fn windows_before(&self) -> usize {
        let then = match self.then {
            None => 0,
            Some(Function::MovingAverage(count)) => count - 1,
            Some(_) => 1,
        };
        then + usize::from(self.function.is_counter())
    }
}

fn transformation(name: &str, argument: Option<&str>) -> Option<Function> {
    match (name, argument) {
        ("difference", None) => Some(Function::Difference(false)),
        ("derivative", None) => Some(Function::Derivative(Some(SECOND), false)),
        ("derivative", Some(unit)) => {
            let unit = parse_duration(unit, &DURATION_UNITS).ok().filter(|unit| *unit > 0)?;
            Some(Function::Derivative(Some(unit), false))
        }
        ("moving_average", Some(count)) => {
            let count = count.parse().ok().filter(|count| (2..=WINDOWS_MAX).contains(count))?;
            Some(Function::MovingAverage(count))
        }
        _ => None,
    }
}

/// Returns how much earlier than a time the windows begin that these functions read before it, in nanoseconds.
pub(super) fn lead(functions: &[NativeAggregate], windows: &Windows, start: i64) -> i64 {
    let count = functions.iter().map(NativeAggregate::windows_before).max().unwrap_or(0);
    if count == 0 {
        return 0;
    }
    let mut first = windows.around(start).start;
    for _ in 0..count {
        first = windows.around(first.saturating_sub(1)).start;
    }
    start.saturating_sub(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_have_calls_with_arguments() {
        let functions = NativeAggregate::parse_list("avg,derivative(last,1m),rate,moving_average(p99.9,5)").unwrap();
        let names: Vec<&str> = functions.iter().map(|function| &*function.name).collect();
        assert_eq!(names, ["avg", "derivative(last,1m)", "rate", "moving_average(p99.9,5)"]);
        let before: Vec<usize> = functions.iter().map(NativeAggregate::windows_before).collect();
        assert_eq!(before, [0, 1, 1, 4]);
        for bad in [
            "",
            "avg,",
            "difference",
            "difference()",
            "difference(avg,1)",
            "difference(difference(avg))",
            "derivative(avg,0s)",
        ] {
            assert!(NativeAggregate::parse_list(bad).is_err(), "{bad}");
        }
        for bad in ["moving_average(avg)", "moving_average(avg,1)", "moving_average(avg,1001)", "avg(last)", "rate)"] {
            assert_eq!(NativeAggregate::parse_list(bad), Err(bad));
        }
    }
}
