//! Checks function calls: how many arguments each function takes, and of what kind.

use super::super::ast::{Expr, Literal};
use super::super::conditions::kind_name;
use super::super::duration;
use super::super::error::StatementError;
use super::{Check, ColumnKinds};

/// Functions of single values. They are allowed anywhere and aggregate nothing.
const MATH: [&str; 18] = [
    "abs", "sin", "cos", "tan", "asin", "acos", "atan", "atan2", "exp", "log", "ln", "log2", "log10", "sqrt", "pow",
    "floor", "ceil", "round",
];

pub(super) fn is_math(name: &str) -> bool {
    MATH.contains(&name)
}

pub(super) fn math_arguments(name: &str, args: &[Expr]) -> Check<()> {
    exactly(name, if matches!(name, "atan2" | "pow" | "log") { 2 } else { 1 }, args)
}

fn exactly(name: &str, expected: usize, args: &[Expr]) -> Check<()> {
    if args.len() == expected { Ok(()) } else { Err(count(name, expected.to_string(), args)) }
}

fn between(name: &str, least: usize, most: usize, args: &[Expr]) -> Check<()> {
    if (least..=most).contains(&args.len()) {
        return Ok(());
    }
    Err(count(name, format!("at least {least} but no more than {most}"), args))
}

fn count(name: &str, expected: String, args: &[Expr]) -> StatementError {
    StatementError::ArgumentCount { name: name.to_owned(), expected, got: args.len() }
}

fn fault(text: impl Into<String>) -> Check<()> {
    Err(StatementError::Argument(text.into()))
}

fn integer(arg: &Expr) -> Option<i64> {
    match arg {
        Expr::Literal(Literal::Integer(value)) => Some(*value),
        _ => None,
    }
}

/// Checks a unit, which is a duration above zero. `not_one` makes the error for any other argument.
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
        if is_math(name) {
            math_arguments(name, args)?;
            let variables: Vec<_> = args.iter().filter(|arg| !matches!(arg, Expr::Literal(_))).collect();
            if variables.is_empty() {
                return fault("field must contain at least one variable");
            }
            return variables.into_iter().try_for_each(|arg| self.expression(arg));
        }
        self.calls += 1;
        match name {
            "max" | "min" | "first" | "last" => self.aggregate(name, args),
            "count" | "sum" | "mean" | "stddev" | "spread" => {
                self.only_selectors = false;
                self.aggregate(name, args)
            }
            "percentile" => self.percentile(args),
            "sample" => self.sample(args),
            "distinct" => self.distinct_call(args, false),
            "top" | "bottom" => self.top_bottom(name, args),
            "derivative" | "non_negative_derivative" | "elapsed" => {
                between(name, 1, 2, args)?;
                unit(args.get(1), |kind| {
                    format!("second argument to {name} must be a duration, got *influxql.{kind}")
                })?;
                self.over_windows(name, &args[0])
            }
            "difference" | "non_negative_difference" | "cumulative_sum" => {
                exactly(name, 1, args)?;
                self.over_windows(name, &args[0])
            }
            "moving_average" => self.moving_average(name, args),
            "exponential_moving_average"
            | "double_exponential_moving_average"
            | "triple_exponential_moving_average"
            | "relative_strength_index"
            | "triple_exponential_derivative"
            | "chande_momentum_oscillator" => self.technical(name, args, 4),
            "kaufmans_efficiency_ratio" | "kaufmans_adaptive_moving_average" => self.technical(name, args, 3),
            "integral" => {
                between(name, 1, 2, args)?;
                unit(args.get(1), |_| "second argument must be a duration".to_owned())?;
                self.only_selectors = false;
                self.symbol(name, &args[0])
            }
            "holt_winters" | "holt_winters_with_fit" => self.holt_winters(name, args),
            name if (self.is_aggregate)(name) => {
                self.only_selectors = false;
                self.aggregate(name, args)
            }
            _ => Err(StatementError::UndefinedFunction { name: name.to_owned() }),
        }
    }

    fn aggregate(&mut self, name: &str, args: &'s [Expr]) -> Check<()> {
        exactly(name, 1, args)?;
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
            Expr::Wildcard(_) | Expr::Literal(Literal::Regex(_)) if self.wildcard => self.only_selectors = false,
            Expr::Wildcard(_) => return fault(format!("unsupported expression with wildcard: {name}()")),
            Expr::Literal(Literal::Regex(_)) => {
                return fault(format!("unsupported expression with regex field: {name}()"));
            }
            _ => return fault(format!("expected field argument in {name}()")),
        }
        Ok(())
    }

    fn percentile(&mut self, args: &[Expr]) -> Check<()> {
        exactly("percentile", 2, args)?;
        if !matches!(args[1], Expr::Literal(Literal::Integer(_) | Literal::Number(_))) {
            return fault("expected float argument in percentile()");
        }
        self.symbol("percentile", &args[0])
    }

    fn sample(&mut self, args: &[Expr]) -> Check<()> {
        exactly("sample", 2, args)?;
        match integer(&args[1]) {
            None => fault("expected integer argument in sample()"),
            Some(size) if size <= 0 => fault(format!("sample window must be greater than 1, got {size}")),
            Some(_) => self.symbol("sample", &args[0]),
        }
    }

    fn distinct_call(&mut self, args: &[Expr], nested: bool) -> Check<()> {
        match args {
            [] => fault("distinct function requires at least one argument"),
            [Expr::Reference { .. }] => {
                self.distinct |= !nested;
                self.only_selectors = false;
                Ok(())
            }
            [_] => fault("expected field argument in distinct()"),
            _ => fault("distinct function can only have one argument"),
        }
    }

    fn top_bottom(&mut self, name: &'s str, args: &'s [Expr]) -> Check<()> {
        if let Some(other) = self.top_bottom {
            return Err(StatementError::NotCombinable { name: other.to_owned() });
        }
        let [field, tags @ .., size] = args else { return Err(count(name, "at least 2".to_owned(), args)) };
        match integer(size) {
            None => return fault(format!("expected integer as last argument in {name}(), found {size}")),
            Some(size) if size <= 0 => {
                return fault(format!("limit ({size}) in {name} function must be at least 1"));
            }
            Some(size) if self.limit > 0 && size.unsigned_abs() > self.limit => {
                return fault(format!(
                    "limit ({size}) in {name} function can not be larger than the LIMIT ({}) in the select statement",
                    self.limit
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
            self.bare |= !self.into;
        }
        self.top_bottom = Some(name);
        Ok(())
    }

    /// Checks the first argument of a transformation: an aggregate if there are windows, else a field.
    fn over_windows(&mut self, name: &str, arg: &'s Expr) -> Check<()> {
        self.only_selectors = false;
        match arg {
            Expr::Call { .. } if !self.windows => Err(StatementError::NeedsInterval { name: name.to_owned() }),
            Expr::Call { name: inner, args } if inner == "distinct" => self.distinct_call(args, true),
            Expr::Call { .. } => self.expression(arg),
            _ if self.windows && !self.inherited => Err(StatementError::NeedsAggregate { name: name.to_owned() }),
            _ => self.symbol(name, arg),
        }
    }

    fn moving_average(&mut self, name: &str, args: &'s [Expr]) -> Check<()> {
        exactly(name, 2, args)?;
        match integer(&args[1]) {
            None => {
                fault(format!("second argument for {name} must be an integer, got *influxql.{}", kind_name(&args[1])))
            }
            Some(size) if size <= 1 => fault(format!("{name} window must be greater than 1, got {size}")),
            Some(_) => self.over_windows(name, &args[0]),
        }
    }

    /// Checks a technical-analysis function: a period, a hold period and a warm-up type.
    fn technical(&mut self, name: &str, args: &'s [Expr], most: usize) -> Check<()> {
        between(name, 2, most, args)?;
        match integer(&args[1]) {
            None => return fault(format!("{name} period must be an integer")),
            Some(period) if period < 1 => {
                return fault(format!("{name} period must be greater than or equal to 1"));
            }
            Some(_) => {}
        }
        if let Some(hold) = args.get(2) {
            let least = i64::from(name == "triple_exponential_derivative");
            match integer(hold) {
                None => return fault(format!("{name} hold period must be an integer")),
                Some(hold) if hold < least && hold != -1 => {
                    return fault(format!("{name} hold period must be greater than or equal to {least}"));
                }
                Some(_) => {}
            }
        }
        let ways: &[&str] = if name == "chande_momentum_oscillator" {
            &["none", "exponential", "simple"]
        } else {
            &["exponential", "simple"]
        };
        match args.get(3) {
            None => {}
            Some(Expr::Literal(Literal::String(way))) if ways.contains(&way.as_str()) => {}
            Some(Expr::Literal(Literal::String(_))) => {
                let ways: Vec<_> = ways.iter().map(|way| format!("'{way}'")).collect();
                return fault(format!("{name} warmup type must be one of: {}", ways.join(" ")));
            }
            Some(_) => return fault(format!("{name} warmup type must be a string")),
        }
        self.over_windows(name, &args[0])
    }

    fn holt_winters(&mut self, name: &str, args: &'s [Expr]) -> Check<()> {
        exactly(name, 3, args)?;
        match integer(&args[1]) {
            None => return fault(format!("expected integer argument as second arg in {name}")),
            Some(value) if value <= 0 => {
                return fault(format!("second arg to {name} must be greater than 0, got {value}"));
            }
            Some(_) => {}
        }
        match integer(&args[2]) {
            None => return fault(format!("expected integer argument as third arg in {name}")),
            Some(value) if value < 0 => {
                return fault(format!("third arg to {name} cannot be negative, got {value}"));
            }
            Some(_) => {}
        }
        if !matches!(args[0], Expr::Call { .. }) {
            return fault(format!("must use aggregate function with {name}"));
        }
        self.over_windows(name, &args[0])
    }
}
