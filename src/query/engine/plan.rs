//! The plan of a question: columns as trees over calls and over parts of one reading, calls over fields.

use super::aggregates::Aggregate;
use crate::influxql::{Expr, Kind, Operator};
use crate::reading::{Family, Value};

/// Most columns of one statement.
pub const COLUMNS_MAX: usize = 4096;

/// A field, as far as its values are of one family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// What its values are.
    pub family: Family,
}

/// Where a field's values are of several families, which of them its name means: numbers before strings, and those
/// before booleans, as in InfluxDB.
#[must_use]
pub fn rank(family: Family) -> u8 {
    match family {
        Family::Number => 0,
        Family::String => 1,
        Family::Boolean => 2,
    }
}

impl Field {
    /// Whether a condition or a column means it.
    #[must_use]
    pub fn is(&self, name: &str, kind: Option<Kind>) -> bool {
        let family = match kind {
            Some(Kind::Tag) => return false,
            Some(Kind::Float | Kind::Integer | Kind::Unsigned) => Some(Family::Number),
            Some(Kind::String) => Some(Family::String),
            Some(Kind::Boolean) => Some(Family::Boolean),
            _ => None,
        };
        self.name == name && family.is_none_or(|family| family == self.family)
    }
}

/// What a reading has by itself.
#[derive(Debug, Clone, PartialEq)]
pub enum Part {
    /// A field, by its number in [`Plan::fields`].
    Field(usize),
    /// A tag, by its key.
    Tag(String),
}

/// A column, computed from the parts of a reading or of a row of calls.
#[derive(Debug, Clone, PartialEq)]
pub enum Node {
    /// Nothing, in every row.
    Nothing,
    /// The same in every row.
    Constant(Value),
    /// A part of the reading, by its number in [`Plan::beside`].
    Part(usize),
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
    /// One of the table.
    Aggregate(&'static Aggregate),
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

/// What is asked, whichever language it was asked in.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The names of the columns, `time` first.
    pub names: Vec<String>,
    /// Each column but time.
    pub columns: Vec<Node>,
    /// What columns need of the reading itself, each part once.
    pub beside: Vec<Part>,
    /// The calls of all columns.
    pub calls: Vec<Call>,
    /// The fields that columns and condition need, each of one family: what else a sensor has of the name is not meant.
    pub fields: Vec<Field>,
    /// How many of them columns need: these come first.
    pub selected: usize,
    /// The tags to group by, in key order.
    pub group_by: Vec<String>,
    /// The condition without time.
    pub condition: Option<Expr>,
}

impl Plan {
    /// Whether readings are shown as they are.
    #[must_use]
    pub fn is_raw(&self) -> bool {
        self.calls.is_empty()
    }

    /// How much is to be done for one reading, in comparisons.
    #[must_use]
    pub fn steps(&self) -> usize {
        let columns = self.columns.iter().map(Node::steps).sum::<usize>();
        1 + self.beside.len() + 4 * self.calls.len() + columns + self.condition.as_ref().map_or(0, steps)
    }

    /// How often columns show the part or the call that they show most often.
    #[must_use]
    pub fn most_used(&self) -> usize {
        let (mut parts, mut calls) = (vec![0; self.beside.len()], vec![0; self.calls.len()]);
        self.columns.iter().for_each(|column| column.count(&mut parts, &mut calls));
        parts.into_iter().chain(calls).max().unwrap_or(0).max(1)
    }

    /// By how many windows before the range a call looks back.
    #[must_use]
    pub fn looks_back(&self) -> bool {
        self.calls.iter().any(Call::looks_back)
    }
}

impl Node {
    fn steps(&self) -> usize {
        if let Self::Binary(_, a, b) = self { 1 + a.steps() + b.steps() } else { 1 }
    }

    fn count(&self, parts: &mut [usize], calls: &mut [usize]) {
        match self {
            Self::Part(part) => parts[*part] += 1,
            Self::Call(call) => calls[*call] += 1,
            Self::Binary(_, a, b) => [a, b].into_iter().for_each(|node| node.count(parts, calls)),
            Self::Nothing | Self::Constant(_) => {}
        }
    }
}

/// How much is to be done to look at a condition, in comparisons.
#[must_use]
pub fn steps(condition: &Expr) -> usize {
    match condition {
        Expr::Binary { left, right, .. } => 1 + steps(left) + steps(right),
        Expr::Paren(inner) => steps(inner),
        _ => 1,
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
