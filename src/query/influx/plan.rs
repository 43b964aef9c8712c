//! A SELECT made ready to run: wildcards expanded against the schema, columns as trees over fields,
//! tags and calls.

use std::collections::{BTreeMap, BTreeSet};

use super::StatementFailure;
use super::build::Builder;
use super::expand::expand;
use super::pattern::Patterns;
use crate::influxql::{Checked, column_names, fold};
use crate::influxql::{Expr, Literal, Operator, Select};
use crate::reading::{Family, Value};

/// What the sources of a SELECT have.
#[derive(Debug, Clone, Default)]
pub struct Schema {
    /// Field names with the family of their values.
    pub fields: BTreeMap<String, Family>,
    /// Tag keys.
    pub tags: BTreeSet<String>,
}

/// A column, computed from the parts of a reading or of a row of calls.
#[derive(Debug, Clone, PartialEq)]
pub enum Node {
    /// Nothing, in every row.
    Nothing,
    /// The same in every row.
    Constant(Value),
    /// A field, by its number in [`Plan::fields`].
    Field(usize),
    /// A tag, by its key.
    Tag(String),
    /// A call, by its number in [`Plan::calls`].
    Call(usize),
    /// Arithmetic.
    Binary(Operator, Box<Node>, Box<Node>),
}

/// A function that makes one value, or a few, of a window's readings; or of each reading and those before it.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// Which.
    pub function: Function,
    /// Of what.
    pub input: Input,
}

/// What a call is of.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// A field, by its number.
    Field(usize),
    /// What another call gives, window by window.
    Call(Box<Call>),
}

/// The functions.
#[derive(Debug, Clone, PartialEq)]
pub enum Function {
    Count,
    CountDistinct,
    Sum,
    Mean,
    Min,
    Max,
    Spread,
    First,
    Last,
    Stddev,
    Median,
    Mode,
    Percentile(f64),
    Distinct,
    /// The unit in nanoseconds.
    Integral(i64),
    /// How many, and best of each combination of these tags.
    Top(usize, Vec<String>),
    Bottom(usize, Vec<String>),
    /// The unit in nanoseconds, and whether what falls is left out.
    Derivative(Option<i64>, bool),
    Difference(bool),
    MovingAverage(usize),
    CumulativeSum,
    Elapsed(i64),
}

impl Function {
    /// Whether it picks readings as they are.
    #[must_use]
    pub fn is_selector(&self) -> bool {
        matches!(self, Self::Min | Self::Max | Self::First | Self::Last | Self::Percentile(_)) || self.is_ranking()
    }

    /// `top` or `bottom`.
    #[must_use]
    pub fn is_ranking(&self) -> bool {
        matches!(self, Self::Top(..) | Self::Bottom(..))
    }

    /// Whether it goes from reading to reading.
    #[must_use]
    pub fn is_transformation(&self) -> bool {
        matches!(
            self,
            Self::Derivative(..)
                | Self::Difference(_)
                | Self::MovingAverage(_)
                | Self::CumulativeSum
                | Self::Elapsed(_)
        )
    }

    /// Whether summaries tell it exactly, when no time is asked for.
    #[must_use]
    pub fn is_summarized(&self) -> bool {
        matches!(self, Self::Count | Self::Sum | Self::Mean | Self::Min | Self::Max | Self::Spread)
    }
}

/// A SELECT made ready.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The names of the columns, `time` first.
    pub names: Vec<String>,
    /// Each column but time.
    pub columns: Vec<Node>,
    /// The calls of all columns.
    pub calls: Vec<Call>,
    /// The fields that columns and condition need.
    pub fields: Vec<String>,
    /// How many of them columns need: these come first.
    pub selected: usize,
    /// The tags to group by, in key order.
    pub group_by: Vec<String>,
    /// The condition without time.
    pub condition: Option<Expr>,
}

impl Plan {
    /// Plans a SELECT over this schema, grouped also by `outer` tags. `None` when nothing that is
    /// selected exists.
    ///
    /// # Errors
    /// Of kinds of fields that a function is not for, and what is not supported.
    pub fn new(
        select: &Select,
        checked: &Checked,
        schema: &Schema,
        outer: &[String],
        patterns: &Patterns,
    ) -> Result<Option<Self>, StatementFailure> {
        let group_by = dimensions(checked, schema, outer, patterns);
        let mut builder = Builder { schema, fields: Vec::new(), calls: Vec::new() };
        let expanded = expand(select, schema, &group_by, patterns)?;
        let mut columns = Vec::new();
        for column in &expanded {
            columns.push(builder.node(&fold(&column.expr, None))?);
            if let Expr::Call { name, args } = &column.expr
                && matches!(name.as_str(), "top" | "bottom")
            {
                for tag in &args[1..args.len() - 1] {
                    columns.push(builder.node(tag)?);
                }
            }
        }
        if !builder.fields.iter().any(|field| schema.fields.contains_key(field)) {
            return Ok(None);
        }
        let selected = builder.fields.len();
        if let Some(condition) = &checked.condition {
            builder.condition(condition);
        }
        let time = select.columns.iter().find(|column| column.expr.is_time()).and_then(|column| column.alias.clone());
        let mut names = vec![time.unwrap_or_else(|| "time".to_owned())];
        names.extend(column_names(&expanded));
        let Builder { fields, calls, .. } = builder;
        let condition = checked.condition.clone();
        Ok(Some(Self { names, columns, calls, fields, selected, group_by, condition }))
    }

    /// Whether readings are shown as they are.
    #[must_use]
    pub fn is_raw(&self) -> bool {
        self.calls.is_empty()
    }

    /// By how many windows before the range a call looks back.
    #[must_use]
    pub fn looks_back(&self) -> bool {
        self.calls.iter().any(Call::looks_back)
    }
}

impl Call {
    /// Whether it needs the window before the range.
    #[must_use]
    pub fn looks_back(&self) -> bool {
        self.function.is_transformation()
            && !matches!(self.function, Function::CumulativeSum)
            && matches!(self.input, Input::Call(_))
    }
}

/// The tags grouped by, in key order.
fn dimensions(checked: &Checked, schema: &Schema, outer: &[String], patterns: &Patterns) -> Vec<String> {
    let mut tags: BTreeSet<String> = outer.iter().cloned().collect();
    for dimension in &checked.grouping.tags {
        match dimension {
            Expr::Reference { name, .. } => drop(tags.insert(name.clone())),
            Expr::Wildcard(_) => tags.extend(schema.tags.iter().cloned()),
            Expr::Literal(Literal::Regex(pattern)) => {
                tags.extend(schema.tags.iter().filter(|tag| patterns.matches(pattern, tag)).cloned());
            }
            _ => {}
        }
    }
    tags.into_iter().collect()
}
