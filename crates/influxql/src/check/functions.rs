//! Checks the number and the kind of the arguments of function calls.

use super::super::ast::{Expr, Literal};
use super::super::conditions::kind_name;
use super::super::duration;
use super::super::error::fault;
use super::{Check, ColumnKinds};

/// The functions of InfluxDB that hourglass does not support.
const UNSUPPORTED: &str = "exponential_moving_average double_exponential_moving_average \
    triple_exponential_moving_average relative_strength_index triple_exponential_derivative chande_momentum_oscillator \
    kaufmans_efficiency_ratio kaufmans_adaptive_moving_average holt_winters holt_winters_with_fit";

/// The number of arguments of a mathematical function, or `None` for other functions.
#[must_use]
pub fn math_arguments(name: &str) -> Option<usize> {
    match name {
        "abs" | "acos" | "asin" | "atan" | "ceil" | "cos" | "exp" | "floor" | "ln" | "log10" | "log2" | "round"
        | "sin" | "sqrt" | "tan" => Some(1),
        "atan2" | "log" | "pow" => Some(2),
        _ => None,
    }
}

fn check_exact_count(name: &str, expected: usize, args: &[Expr]) -> Check<()> {
    if args.len() == expected { Ok(()) } else { wrong_count(name, &expected.to_string(), args) }
}

fn check_count(name: &str, min: usize, max: usize, args: &[Expr]) -> Check<()> {
    if (min..=max).contains(&args.len()) {
        return Ok(());
    }
    wrong_count(name, &format!("at least {min} but no more than {max}"), args)
}

fn wrong_count(name: &str, expected: &str, args: &[Expr]) -> Check<()> {
    fault(format!("invalid number of arguments for {name}, expected {expected}, got {}", args.len()))
}

fn integer(arg: &Expr) -> Option<i64> {
    match arg {
        Expr::Literal(Literal::Integer(value)) => Some(*value),
        _ => None,
    }
}

/// Checks a unit, which must be a duration above zero. `not_one` returns the error for any other argument.
fn unit(arg: Option<&Expr>, not_one: impl Fn(&str) -> String) -> Check<()> {
    match arg {
        Some(Expr::Literal(Literal::Duration(unit))) if *unit <= 0 => {
            fault(format!("duration argument must be positive, got {}", duration::format(*unit)))
        }
        None | Some(Expr::Literal(Literal::Duration(_))) => Ok(()),
        Some(other) => fault(not_one(kind_name(other))),
    }
}

impl<'s> ColumnKinds<'s> {
    pub(super) fn call(&mut self, name: &'s str, args: &'s [Expr]) -> Check<()> {
        if let Some(count) = math_arguments(name) {
            return self.math(name, count, args);
        }
        self.calls += 1;
        match name {
            "max" | "min" | "first" | "last" => self.aggregate(name, args),
            "count" | "sum" | "mean" | "median" | "mode" | "stddev" | "spread" => {
                self.has_only_selectors = false;
                self.aggregate(name, args)
            }
            "percentile" => self.percentile(args),
            "distinct" => self.distinct_call(args, false),
            "top" | "bottom" => self.top_bottom(name, args),
            "derivative" | "non_negative_derivative" | "elapsed" => {
                check_count(name, 1, 2, args)?;
                unit(args.get(1), |kind| {
                    format!("second argument to {name} must be a duration, got *influxql.{kind}")
                })?;
                self.over_windows(name, &args[0])
            }
            "difference" | "non_negative_difference" | "cumulative_sum" => {
                check_exact_count(name, 1, args)?;
                self.over_windows(name, &args[0])
            }
            "moving_average" => self.moving_average(name, args),
            "integral" => {
                check_count(name, 1, 2, args)?;
                unit(args.get(1), |_| "second argument must be a duration".to_owned())?;
                self.has_only_selectors = false;
                self.symbol(name, &args[0])
            }
            "sample" => fault("not supported: the function sample(); GROUP BY time() with first() thins out readings"),
            _ if UNSUPPORTED.split_whitespace().any(|other| other == name) => fault(format!(
                "not supported: the function {name}(); there are no forecasts and no smoothing but moving_average()"
            )),
            _ => fault(format!("undefined function {name}()")),
        }
    }

    /// Checks a mathematical function, which combines columns as arithmetic does.
    fn math(&mut self, name: &str, count: usize, args: &'s [Expr]) -> Check<()> {
        check_exact_count(name, count, args)?;
        if args.iter().all(|arg| matches!(arg, Expr::Literal(_))) {
            return fault("field must contain at least one variable");
        }
        args.iter().filter(|arg| !matches!(arg, Expr::Literal(_))).try_for_each(|arg| self.expression(arg))
    }

    fn aggregate(&mut self, name: &str, args: &'s [Expr]) -> Check<()> {
        check_exact_count(name, 1, args)?;
        match &args[0] {
            Expr::Call { name: inner, args } if name == "count" && inner == "distinct" => {
                self.distinct_call(args, true)
            }
            Expr::Distinct(_) if name == "count" => Ok(()),
            arg => self.symbol(name, arg),
        }
    }

    /// Checks an argument that names fields.
    fn symbol(&mut self, name: &str, arg: &Expr) -> Check<()> {
        match arg {
            Expr::Reference { .. } => {}
            Expr::Wildcard(_) | Expr::Literal(Literal::Regex(_)) if self.can_have_wildcard => {
                self.has_only_selectors = false
            }
            Expr::Wildcard(_) => return fault(format!("unsupported expression with wildcard: {name}()")),
            Expr::Literal(Literal::Regex(_)) => {
                return fault(format!("unsupported expression with regex field: {name}()"));
            }
            _ => return fault(format!("expected field argument in {name}()")),
        }
        Ok(())
    }

    fn percentile(&mut self, args: &[Expr]) -> Check<()> {
        check_exact_count("percentile", 2, args)?;
        if !matches!(args[1], Expr::Literal(Literal::Integer(_) | Literal::Number(_))) {
            return fault("expected float argument in percentile()");
        }
        self.symbol("percentile", &args[0])
    }

    fn distinct_call(&mut self, args: &[Expr], is_nested: bool) -> Check<()> {
        match args {
            [] => fault("distinct function requires at least one argument"),
            [Expr::Reference { .. }] => {
                self.has_distinct |= !is_nested;
                self.has_only_selectors = false;
                Ok(())
            }
            [_] => fault("expected field argument in distinct()"),
            _ => fault("distinct function can only have one argument"),
        }
    }

    fn top_bottom(&mut self, name: &'s str, args: &'s [Expr]) -> Check<()> {
        if let Some(other) = self.top_bottom {
            return fault(format!("selector function {other}() cannot be combined with other functions"));
        }
        let [field, tags @ .., size] = args else { return wrong_count(name, "at least 2", args) };
        match integer(size) {
            None => return fault(format!("expected integer as last argument in {name}(), found {size}")),
            Some(size) if size <= 0 => {
                return fault(format!("limit ({size}) in {name} function must be at least 1"));
            }
            Some(size) if self.select.limit > 0 && size.unsigned_abs() > self.select.limit => {
                return fault(format!(
                    "limit ({size}) in {name} function can not be larger than the LIMIT ({}) in the select statement",
                    self.select.limit
                ));
            }
            Some(_) => {}
        }
        if !matches!(field, Expr::Reference { .. }) {
            return fault(format!("expected first argument to be a field in {name}(), found {field}"));
        }
        for tag in tags {
            if !matches!(tag, Expr::Reference { .. }) {
                return fault(format!("only fields or tags are allowed in {name}(), found {tag}"));
            }
            // A tag becomes a column, except with INTO, where it stays a tag.
            self.has_bare_field |= self.select.into.is_none();
        }
        self.top_bottom = Some(name);
        Ok(())
    }

    /// Checks the first argument of a transformation: an aggregate if there are windows, else a field.
    fn over_windows(&mut self, name: &str, arg: &'s Expr) -> Check<()> {
        self.has_only_selectors = false;
        match arg {
            Expr::Call { .. } if self.checked.grouping.every == 0 => {
                fault(format!("{name} aggregate requires a GROUP BY interval"))
            }
            Expr::Call { name: inner, args } if inner == "distinct" => self.distinct_call(args, true),
            Expr::Call { .. } => self.expression(arg),
            _ if self.has_own_windows() => fault(format!("aggregate function required inside the call to {name}")),
            _ => self.symbol(name, arg),
        }
    }

    fn moving_average(&mut self, name: &str, args: &'s [Expr]) -> Check<()> {
        check_exact_count(name, 2, args)?;
        match integer(&args[1]) {
            None => {
                fault(format!("second argument for {name} must be an integer, got *influxql.{}", kind_name(&args[1])))
            }
            Some(size) if size <= 1 => fault(format!("{name} window must be greater than 1, got {size}")),
            Some(_) => self.over_windows(name, &args[0]),
        }
    }
}
