//! Checks a SELECT before data is read. It finds InfluxDB's errors in InfluxDB's order, and computes the time range,
//! condition, windows and tags. The types of fields are unknown here, so a `sum` of strings passes.

mod functions;

pub use functions::math_arguments;

use super::ast::{Expr, Fill, FromSource, Literal, Operator, Select};
use super::conditions::{TimeRange, split};
use super::error::{StatementError, fault};
use super::fold::{Clock, fold};
use crate::civil::{MAX_TIME, MIN_TIME};

type Check<T> = Result<T, StatementError>;

/// The clauses of a SELECT, checked and computed.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckedSelect {
    /// The first time, inclusive.
    pub min: i64,
    /// The last time, inclusive. Without a stated end, it is now if there are windows, or else the latest possible
    /// time.
    pub max: i64,
    /// The condition without its time range.
    pub condition: Option<Expr>,
    /// The dimensions.
    pub grouping: Grouping,
    /// The content of empty windows. In a subquery with windows, `fill(null)` becomes `fill(none)`.
    pub fill: Fill,
    /// The checked subqueries among the sources, in order. A subquery's range is within this one's, and a subquery
    /// without windows inherits these.
    pub subqueries: Vec<CheckedSelect>,
}

/// The dimensions of a GROUP BY.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Grouping {
    /// The width of a window in nanoseconds; 0 without windows.
    pub every: i64,
    /// The offset of windows from multiples of their width; less than the width, and possibly negative.
    pub offset: i64,
    /// True if the windows are inherited from the outer statement.
    pub is_inherited: bool,
    /// The references, wildcards and regexes that name tags.
    pub tags: Vec<Expr>,
}

/// Checks a SELECT and its subqueries. The clock's zone is ignored, because each SELECT has its own.
///
/// # Errors
/// The [`StatementError`] that InfluxDB would report first.
pub fn check(select: &Select, clock: &Clock<'_>) -> Check<CheckedSelect> {
    compile(select, prepare(select, clock)?, clock)
}

/// Checks the condition and the dimensions.
fn prepare(select: &Select, clock: &Clock<'_>) -> Check<CheckedSelect> {
    let clock = clock.in_zone(select.zone.as_deref());
    let (range, condition) = split(select.condition.as_ref(), &clock)?;
    condition.as_ref().map_or(Ok(()), check_condition)?;
    let grouping = grouping(select, &clock)?;
    let TimeRange { min, max } = range;
    let latest = if grouping.every == 0 { MAX_TIME } else { clock.now };
    Ok(CheckedSelect {
        min: min.unwrap_or(MIN_TIME),
        max: max.unwrap_or(latest),
        condition,
        grouping,
        fill: select.fill,
        subqueries: Vec::new(),
    })
}

/// Checks the columns, then the subqueries, which inherit from this SELECT.
fn compile(select: &Select, mut checked: CheckedSelect, clock: &Clock<'_>) -> Check<CheckedSelect> {
    let folded: Vec<Expr> = select
        .columns
        .iter()
        .filter(|column| !matches!(&column.expr, Expr::Reference { name, .. } if name == "time"))
        .map(|column| fold(&column.expr, None))
        .collect();
    if folded.is_empty() {
        return fault("at least 1 non-time field must be queried");
    }
    let mut columns = ColumnKinds::new(select, &checked);
    for expr in &folded {
        columns.can_have_wildcard = true;
        columns.expression(expr)?;
    }
    columns.check_combination()?;
    for source in &select.sources {
        let FromSource::Subquery(inner) = source else { continue };
        let mut subquery = prepare(inner, clock)?;
        if inner.ascending.is_some() && inner.is_descending() != select.is_descending() {
            return fault("subqueries must be ordered in the same direction as the query itself");
        }
        subquery.min = subquery.min.max(checked.min);
        subquery.max = subquery.max.min(checked.max);
        if subquery.grouping.every == 0 && checked.grouping.every != 0 {
            let Grouping { every, offset, .. } = checked.grouping;
            subquery.grouping = Grouping { every, offset, is_inherited: true, ..subquery.grouping };
        }
        let mut subquery = compile(inner, subquery, clock)?;
        if subquery.grouping.every != 0 && subquery.fill == Fill::Null {
            subquery.fill = Fill::None;
        }
        checked.subqueries.push(subquery);
    }
    Ok(checked)
}

/// Checks that a condition calls no function.
fn check_condition(condition: &Expr) -> Check<()> {
    match condition {
        // `a =~ /x/ + 1` parses; InfluxDB panics on it.
        Expr::Binary { operator: Operator::EqRegex | Operator::NotEqRegex, right, .. }
            if !matches!(right.as_ref(), Expr::Literal(Literal::Regex(_))) =>
        {
            fault(format!("invalid condition expression: {condition}"))
        }
        Expr::Binary { left, right, .. } => check_condition(left).and_then(|()| check_condition(right)),
        Expr::Call { .. } => fault(format!("invalid function call in condition: {condition}")),
        _ => Ok(()),
    }
}

fn grouping(select: &Select, clock: &Clock<'_>) -> Check<Grouping> {
    let mut grouping = Grouping::default();
    for dimension in &select.group_by {
        match fold(dimension, None) {
            time if time.is_time() => return fault("time() is a function and expects at least one argument"),
            tag @ (Expr::Reference { .. } | Expr::Wildcard(_) | Expr::Literal(Literal::Regex(_))) => {
                grouping.tags.push(tag);
            }
            Expr::Call { name, .. } if name != "time" => return fault("only time() calls allowed in dimensions"),
            Expr::Call { args, .. } if !(1..=2).contains(&args.len()) => {
                return fault("time dimension expected 1 or 2 arguments");
            }
            Expr::Call { args, .. } => {
                let Expr::Literal(Literal::Duration(every)) = args[0] else {
                    return fault("time dimension must have duration argument");
                };
                if grouping.every != 0 {
                    return fault("multiple time dimensions not allowed");
                }
                // InfluxDB also makes a single window if the width is negative.
                grouping.every = every.max(0);
                if let Some(offset) = args.get(1) {
                    grouping.offset = window_offset(offset, grouping.every, clock)?;
                }
            }
            _ => return fault("only time and tag dimensions allowed"),
        }
    }
    Ok(grouping)
}

fn window_offset(offset: &Expr, every: i64, clock: &Clock<'_>) -> Check<i64> {
    match offset {
        Expr::Literal(Literal::Duration(offset)) => Ok(offset.checked_rem(every).unwrap_or(0)),
        Expr::Literal(Literal::Time(time)) => Ok(since_window_start(*time, every)),
        Expr::Literal(Literal::String(text)) => match clock.instant(text) {
            Some(time) => Ok(since_window_start(time?, every)),
            None => fault("time dimension offset must be duration or now()"),
        },
        Expr::Call { name, .. } if name != "now" => fault("time dimension offset function must be now()"),
        Expr::Call { args, .. } if !args.is_empty() => {
            fault("time dimension offset now() function requires no arguments")
        }
        Expr::Call { .. } => Ok(since_window_start(clock.now.into(), every)),
        _ => fault("time dimension offset must be duration or now()"),
    }
}

/// The distance of `time` from the last multiple of `every`, counted from the first day of the year 1, as Go's
/// `time.Truncate` does.
fn since_window_start(time: i128, every: i64) -> i64 {
    const YEAR_ONE: i128 = -62_135_596_800 * 1_000_000_000;
    if every == 0 {
        return 0;
    }
    i64::try_from((time - YEAR_ONE).rem_euclid(every.into())).unwrap_or(0)
}

/// The findings about the columns of a SELECT so far.
#[expect(clippy::struct_excessive_bools, reason = "independent findings")]
struct ColumnKinds<'s> {
    select: &'s Select,
    checked: &'s CheckedSelect,
    calls: usize,
    /// True if all functions are selectors, which choose a reading.
    has_only_selectors: bool,
    /// True if there is a `distinct` that is not an argument of another function.
    has_distinct: bool,
    /// The name of the call of `top` or `bottom`, if there is one.
    top_bottom: Option<&'s str>,
    /// True if there is a field or a tag outside functions.
    has_bare_field: bool,
    /// True if the current column can contain a wildcard, which is not allowed inside arithmetic.
    can_have_wildcard: bool,
}

impl<'s> ColumnKinds<'s> {
    fn new(select: &'s Select, checked: &'s CheckedSelect) -> Self {
        Self {
            select,
            checked,
            calls: 0,
            has_only_selectors: true,
            has_distinct: false,
            top_bottom: None,
            has_bare_field: false,
            can_have_wildcard: true,
        }
    }

    /// Returns true if the SELECT needs functions because it has windows of its own.
    fn has_own_windows(&self) -> bool {
        self.checked.grouping.every != 0 && !self.checked.grouping.is_inherited
    }

    fn expression(&mut self, expr: &'s Expr) -> Check<()> {
        match expr {
            Expr::Reference { .. } => self.has_bare_field = true,
            Expr::Wildcard(_) | Expr::Literal(Literal::Regex(_)) if self.can_have_wildcard => {
                self.has_bare_field = true
            }
            Expr::Wildcard(_) => return fault("unable to use wildcard in a binary expression"),
            Expr::Literal(Literal::Regex(_)) => return fault("unable to use regex in a binary expression"),
            Expr::Literal(_) => return fault("field must contain at least one variable"),
            Expr::Call { name, args } => return self.call(name, args),
            Expr::Distinct(_) => {
                self.calls += 1;
                self.has_distinct = true;
                self.has_only_selectors = false;
            }
            Expr::Paren(inner) => return self.expression(inner),
            Expr::Binary { left, right, .. } => {
                self.can_have_wildcard = false;
                return match (left.as_ref(), right.as_ref()) {
                    (Expr::Literal(_), Expr::Literal(_)) => fault("cannot perform a binary expression on two literals"),
                    (Expr::Literal(_), variable) | (variable, Expr::Literal(_)) => self.expression(variable),
                    (left, right) => self.expression(left).and_then(|()| self.expression(right)),
                };
            }
        }
        Ok(())
    }

    /// Checks the combination of columns.
    fn check_combination(&self) -> Check<()> {
        if let Some(name) = self.top_bottom.filter(|_| self.calls > 1) {
            return fault(format!("selector function {name}() cannot be combined with other functions"));
        }
        if self.calls == 0 {
            match self.checked.fill {
                Fill::None => return fault("fill(none) must be used with a function"),
                Fill::Linear => return fault("fill(linear) must be used with a function"),
                _ => {}
            }
            if self.has_own_windows() {
                return fault("GROUP BY requires at least one aggregate function");
            }
        }
        if self.has_distinct && (self.calls != 1 || self.has_bare_field) {
            return fault("aggregate function distinct() cannot be combined with other functions or fields");
        }
        if self.has_bare_field && !self.has_only_selectors {
            return fault("mixing aggregate and non-aggregate queries is not supported");
        }
        if self.has_bare_field && self.calls > 1 {
            return fault("mixing multiple selector functions with tags or fields is not supported");
        }
        Ok(())
    }
}
