//! A SELECT made ready to run: wildcards expanded against the schema, columns as trees over fields,
//! tags and calls.

use std::collections::{BTreeMap, BTreeSet};

use super::StatementFailure;
use super::pattern::Patterns;
use crate::influxql::{Checked, column_names, fold};
use crate::influxql::{Column, Expr, Kind, Literal, Operator, Select, WildcardKind};
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

/// Columns without wildcards and patterns.
fn expand(
    select: &Select,
    schema: &Schema,
    group_by: &[String],
    patterns: &Patterns,
) -> Result<Vec<Column>, StatementFailure> {
    let mut expanded = Vec::new();
    for column in &select.columns {
        if column.expr.is_time() {
            continue;
        }
        match &column.expr {
            Expr::Wildcard(kind) => {
                let grouped = |name: &&String| !group_by.contains(name);
                let fields = schema.fields.keys().filter(|_| *kind != WildcardKind::Tag);
                let tags = schema.tags.iter().filter(grouped).filter(|_| *kind != WildcardKind::Field);
                let fields = fields.map(|name| (name, Kind::Field));
                let names: BTreeSet<(&String, bool)> = fields
                    .chain(tags.map(|name| (name, Kind::Tag)))
                    .map(|(name, kind)| (name, kind == Kind::Tag))
                    .collect();
                expanded.extend(names.into_iter().map(|(name, is_tag)| plain(name, is_tag)));
            }
            Expr::Literal(Literal::Regex(pattern)) => {
                let tags = schema.tags.iter().filter(|tag| !group_by.contains(tag)).map(|name| (name, true));
                let names: BTreeSet<(&String, bool)> =
                    schema.fields.keys().map(|name| (name, false)).chain(tags).collect();
                let matching = names.into_iter().filter(|(name, _)| patterns.matches(pattern, name));
                expanded.extend(matching.map(|(name, is_tag)| plain(name, is_tag)));
            }
            Expr::Call { .. } if has_pattern(&column.expr) => expand_call(column, schema, patterns, &mut expanded),
            _ => expanded.push(column.clone()),
        }
    }
    Ok(expanded)
}

fn plain(name: &str, is_tag: bool) -> Column {
    let kind = Some(if is_tag { Kind::Tag } else { Kind::Field });
    Column { expr: Expr::Reference { name: name.to_owned(), kind }, alias: None }
}

fn has_pattern(expr: &Expr) -> bool {
    let Expr::Call { args, .. } = expr else { return false };
    match args.first() {
        Some(Expr::Wildcard(_) | Expr::Literal(Literal::Regex(_))) => true,
        Some(inner @ Expr::Call { .. }) => has_pattern(inner),
        _ => false,
    }
}

/// `mean(*)` as `mean_a`, `mean_b` of the fields that the innermost function is for.
fn expand_call(column: &Column, schema: &Schema, patterns: &Patterns, expanded: &mut Vec<Column>) {
    let (mut innermost, mut path) = (&column.expr, Vec::new());
    while let Expr::Call { name, args } = innermost {
        path.push(name.as_str());
        let Some(first) = args.first() else { return };
        innermost = first;
    }
    let function = path.last().copied().unwrap_or_default();
    let wanted = |field: &str| match innermost {
        Expr::Literal(Literal::Regex(pattern)) => patterns.matches(pattern, field),
        _ => true,
    };
    for (field, family) in &schema.fields {
        if !takes(function, *family) || !wanted(field) {
            continue;
        }
        let outer = column.alias.as_deref().unwrap_or(path[0]);
        let alias = Some(format!("{outer}_{field}"));
        expanded.push(Column { expr: with_innermost(&column.expr, field), alias });
    }
}

fn with_innermost(expr: &Expr, field: &str) -> Expr {
    match expr {
        Expr::Call { name, args } => {
            let first = args.first().map(|first| with_innermost(first, field));
            Expr::Call { name: name.clone(), args: first.into_iter().chain(args.iter().skip(1).cloned()).collect() }
        }
        _ => Expr::reference(field),
    }
}

/// Whether a function is for values of a family.
fn takes(function: &str, family: Family) -> bool {
    match function {
        "count" | "first" | "last" | "mode" | "distinct" | "elapsed" => true,
        "min" | "max" | "top" | "bottom" => {
            family != Family::String && (family != Family::Boolean || function.starts_with('m'))
        }
        "percentile" => family == Family::Number,
        _ => family == Family::Number,
    }
}

struct Builder<'a> {
    schema: &'a Schema,
    fields: Vec<String>,
    calls: Vec<Call>,
}

impl Builder<'_> {
    fn field(&mut self, name: &str) -> usize {
        if let Some(at) = self.fields.iter().position(|field| field == name) {
            return at;
        }
        self.fields.push(name.to_owned());
        self.fields.len() - 1
    }

    fn node(&mut self, expr: &Expr) -> Result<Node, StatementFailure> {
        Ok(match expr {
            Expr::Reference { name, kind } => {
                let is_tag = *kind == Some(Kind::Tag)
                    || (kind.is_none() && !self.schema.fields.contains_key(name) && self.schema.tags.contains(name));
                if is_tag {
                    return Ok(Node::Tag(name.clone()));
                }
                let family = self.schema.fields.get(name).copied().unwrap_or(Family::Number);
                let fits = match kind {
                    Some(Kind::String) => family == Family::String,
                    Some(Kind::Boolean) => family == Family::Boolean,
                    Some(Kind::Float | Kind::Integer | Kind::Unsigned) => family == Family::Number,
                    _ => true,
                };
                if fits { Node::Field(self.field(name)) } else { Node::Nothing }
            }
            Expr::Literal(Literal::Duration(_)) => Node::Nothing,
            Expr::Literal(literal) => Node::Constant(constant(literal)?),
            Expr::Paren(inner) => self.node(inner)?,
            Expr::Binary { operator, left, right } => {
                self.fitting(*operator, left, right)?;
                let (left, right) = (self.node(left)?, self.node(right)?);
                Node::Binary(*operator, Box::new(left), Box::new(right))
            }
            Expr::Distinct(name) => {
                let args = vec![Expr::reference(name)];
                self.node(&Expr::Call { name: "distinct".to_owned(), args })?
            }
            Expr::Call { .. } => {
                let call = self.call(expr)?;
                let at = self.calls.iter().position(|known| *known == call).unwrap_or_else(|| {
                    self.calls.push(call);
                    self.calls.len() - 1
                });
                Node::Call(at)
            }
            Expr::Wildcard(_) => {
                return Err(StatementFailure::Unsupported("a wildcard inside of an expression".to_owned()));
            }
        })
    }

    fn call(&mut self, expr: &Expr) -> Result<Call, StatementFailure> {
        let Expr::Call { name, args } = expr else {
            return Err(StatementFailure::Unsupported(format!("{expr} where a function is wanted")));
        };
        let function = function(name, args)?;
        match (args.first(), &function) {
            (Some(Expr::Distinct(field) | Expr::Reference { name: field, .. }), Function::Count)
                if matches!(args.first(), Some(Expr::Distinct(_))) =>
            {
                Ok(Call { function: Function::CountDistinct, input: Input::Field(self.field(field)) })
            }
            (Some(Expr::Call { name: inner, args: within }), Function::Count) if inner == "distinct" => {
                let Some(Expr::Reference { name: field, .. }) = within.first() else {
                    return Err(StatementFailure::Unsupported(format!("{expr}")));
                };
                Ok(Call { function: Function::CountDistinct, input: Input::Field(self.field(field)) })
            }
            (Some(inner @ Expr::Call { .. }), _) => {
                let inner = self.call(inner)?;
                if let Some(family) = self.family_of(&inner).filter(|family| !takes(name, *family)) {
                    return Err(StatementFailure::WrongKind { function: name.clone(), family });
                }
                Ok(Call { function, input: Input::Call(Box::new(inner)) })
            }
            (Some(Expr::Reference { name: field, .. }), _) => {
                if let Some(family) = self.schema.fields.get(field).filter(|family| !takes(name, **family)) {
                    return Err(StatementFailure::WrongKind { function: name.clone(), family: *family });
                }
                Ok(Call { function, input: Input::Field(self.field(field)) })
            }
            _ => Err(StatementFailure::Unsupported(format!("{expr}"))),
        }
    }

    /// The family of what a call gives, where it is not simply numbers.
    fn family_of(&self, call: &Call) -> Option<Family> {
        match (&call.input, &call.function) {
            (Input::Field(field), function)
                if function.is_selector() || matches!(function, Function::Mode | Function::Distinct) =>
            {
                self.schema.fields.get(&self.fields[*field]).copied()
            }
            _ => None,
        }
    }

    /// Whether arithmetic of these is possible, by InfluxDB's rules and in its words.
    fn fitting(&self, operator: Operator, left: &Expr, right: &Expr) -> Result<(), StatementFailure> {
        let (Some((a, a_text)), Some((b, b_text))) = (self.kind_of(left), self.kind_of(right)) else { return Ok(()) };
        let is_number = |kind: &str| kind == "float" || kind == "integer";
        let bits = matches!(operator, Operator::BitAnd | Operator::BitOr | Operator::BitXor);
        if (is_number(a) && is_number(b)) || (bits && a == "boolean" && b == "boolean") {
            return Ok(());
        }
        let expression = format!("{a_text} {} {b_text}", operator.as_str());
        Err(StatementFailure::Types { expression, left: a, right: b })
    }

    /// What kind of thing an operand is, and how InfluxDB writes it.
    fn kind_of(&self, expr: &Expr) -> Option<(&'static str, String)> {
        match expr {
            Expr::Reference { name, kind: None } => match self.schema.fields.get(name) {
                Some(Family::Number) => Some(("float", format!("{name}::float"))),
                Some(Family::Boolean) => Some(("boolean", format!("{name}::boolean"))),
                Some(Family::String) => Some(("string", format!("{name}::string"))),
                None if self.schema.tags.contains(name) => Some(("tag", format!("{name}::tag"))),
                None => None,
            },
            Expr::Literal(Literal::Integer(_)) => Some(("integer", expr.to_string())),
            Expr::Literal(Literal::Number(_)) => Some(("float", expr.to_string())),
            Expr::Literal(Literal::String(_)) => Some(("string", expr.to_string())),
            Expr::Literal(Literal::Boolean(_)) => Some(("boolean", expr.to_string())),
            _ => None,
        }
    }

    fn condition(&mut self, expr: &Expr) {
        match expr {
            // A name that nobody has is an absent tag.
            Expr::Reference { name, .. } if self.schema.fields.contains_key(name) => {
                self.field(name);
            }
            Expr::Binary { left, right, .. } => {
                self.condition(left);
                self.condition(right);
            }
            Expr::Paren(inner) => self.condition(inner),
            _ => {}
        }
    }
}

fn constant(literal: &Literal) -> Result<Value, StatementFailure> {
    Ok(match literal {
        Literal::Integer(v) => Value::Integer(*v),
        Literal::Unsigned(v) => Value::Unsigned(*v),
        Literal::Number(v) => Value::Float(*v),
        Literal::String(v) => Value::String(v.as_str().into()),
        Literal::Boolean(v) => Value::Boolean(*v),
        Literal::Duration(v) => Value::Integer(*v),
        Literal::Time(_) | Literal::Regex(_) => {
            return Err(StatementFailure::Unsupported(format!("{} as a column", Expr::Literal(literal.clone()))));
        }
    })
}

fn function(name: &str, args: &[Expr]) -> Result<Function, StatementFailure> {
    const SECOND: i64 = 1_000_000_000;
    let number = |at: usize| match args.get(at) {
        Some(Expr::Literal(Literal::Integer(v))) => Some(*v),
        _ => None,
    };
    let count = |at: usize| number(at).and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
    let unit = match args.get(1) {
        Some(Expr::Literal(Literal::Duration(unit))) => Some(*unit),
        _ => None,
    };
    let tags = || {
        let tag = |arg: &Expr| match arg {
            Expr::Reference { name, .. } => Some(name.clone()),
            _ => None,
        };
        args[1..args.len().saturating_sub(1).max(1)].iter().filter_map(tag).collect()
    };
    Ok(match name {
        "count" => Function::Count,
        "sum" => Function::Sum,
        "mean" => Function::Mean,
        "min" => Function::Min,
        "max" => Function::Max,
        "spread" => Function::Spread,
        "first" => Function::First,
        "last" => Function::Last,
        "stddev" => Function::Stddev,
        "median" => Function::Median,
        "mode" => Function::Mode,
        "distinct" => Function::Distinct,
        "percentile" => match args.get(1) {
            Some(Expr::Literal(Literal::Number(p))) => Function::Percentile(*p),
            #[expect(clippy::cast_precision_loss, reason = "a percentage is a small number")]
            Some(Expr::Literal(Literal::Integer(p))) => Function::Percentile(*p as f64),
            _ => return Err(StatementFailure::Unsupported("a percentile of no number".to_owned())),
        },
        "integral" => Function::Integral(unit.unwrap_or(SECOND)),
        "top" => Function::Top(count(args.len() - 1), tags()),
        "bottom" => Function::Bottom(count(args.len() - 1), tags()),
        "derivative" => Function::Derivative(unit, false),
        "non_negative_derivative" => Function::Derivative(unit, true),
        "difference" => Function::Difference(false),
        "non_negative_difference" => Function::Difference(true),
        "moving_average" => Function::MovingAverage(count(1)),
        "cumulative_sum" => Function::CumulativeSum,
        "elapsed" => Function::Elapsed(unit.unwrap_or(1)),
        other => return Err(StatementFailure::Unsupported(format!("the function {other}()"))),
    })
}
