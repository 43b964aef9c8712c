//! The plan of a query: columns are trees over calls and over parts of one reading; calls are over fields.

use std::sync::Arc;

use super::condition::Condition;
use super::number::{Arithmetic, MathFunction};
use crate::bucket::meta::META_PREFIX;
use crate::reading::{Family, Value};

/// A field, restricted to values of one family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedField {
    pub name: String,
    pub family: Family,
}

/// A field name may have values of several families. The name alone means the first of them, as in InfluxDB: numbers
/// before strings before booleans.
pub const BY_RANK: [Family; 3] = [Family::Number, Family::String, Family::Boolean];

/// A family's place in [`BY_RANK`].
#[must_use]
pub fn rank(family: Family) -> usize {
    match family {
        Family::Number => 0,
        Family::String => 1,
        Family::Boolean => 2,
    }
}

/// A part of a reading that is not the result of a call.
#[derive(Debug, Clone, PartialEq)]
pub enum ReadingExpr {
    /// A field, as an index into [`Plan::fields`].
    Field(usize),
    /// A tag, by its key.
    Tag(String),
}

/// A column, computed from parts of a reading or from the results of calls.
#[derive(Debug, Clone, PartialEq)]
pub enum Node {
    /// Null in every row.
    Nothing,
    /// The same value in every row.
    Constant(Value),
    /// A part of the reading, as an index into [`Plan::beside`].
    Part(usize),
    /// A call, as an index into [`Plan::calls`].
    Call(usize),
    /// Arithmetic.
    Binary(Arithmetic, Box<Node>, Box<Node>),
    /// A mathematical function of one or two cells.
    Math(&'static MathFunction, Box<Node>, Option<Box<Node>>),
}

/// A function that makes one or several values of each window's readings, or a value of each reading and those before
/// it.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    pub function: Function,
    pub input: Input,
}

/// The argument of a call.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// A field, as an index into [`Plan::fields`].
    Field(usize),
    /// The results of another call, one per window.
    Call(Box<Call>),
}

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
    /// The most frequent value.
    Mode,
    Percentile(f64),
    /// Counts by these bounds, then the number of values without counts, as parts of a row.
    Histogram(Arc<[f64]>),
    Distinct,
    /// The unit in nanoseconds.
    Integral(i64),
    /// How many values, and the tags of which each combination gives its best one.
    Top(usize, Vec<String>),
    Bottom(usize, Vec<String>),
    /// The unit in nanoseconds, and whether negative rates are left out.
    Derivative(Option<i64>, bool),
    Difference(bool),
    MovingAverage(usize),
    CumulativeSum,
    Elapsed(i64),
    /// The increase of a counter since the last reading before the window. The total over all sensors of the group.
    Increase,
    /// The same per second of the time between both readings.
    Rate,
}

impl Function {
    /// The function of one field, without further arguments, that both languages know by a name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "count" => Self::Count,
            "sum" => Self::Sum,
            "mean" => Self::Mean,
            "min" => Self::Min,
            "max" => Self::Max,
            "first" => Self::First,
            "last" => Self::Last,
            "stddev" => Self::Stddev,
            "median" => Self::Median,
            "mode" => Self::Mode,
            _ => return None,
        })
    }

    /// Whether the function picks readings as they are.
    #[must_use]
    pub fn is_selector(&self) -> bool {
        matches!(self, Self::Min | Self::Max | Self::First | Self::Last | Self::Percentile(_)) || self.is_ranking()
    }

    #[must_use]
    pub fn is_ranking(&self) -> bool {
        matches!(self, Self::Top(..) | Self::Bottom(..))
    }

    /// Whether the function goes from value to value.
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

    /// Returns true if the function follows each sensor from reading to reading.
    #[must_use]
    pub fn is_counter(&self) -> bool {
        matches!(self, Self::Increase | Self::Rate)
    }

    /// Whether summaries answer it exactly, as long as the reading's own time is not wanted; see [`Function::is_end`].
    #[must_use]
    pub fn is_summarized(&self) -> bool {
        self.is_total() || self.is_end() || matches!(self, Self::Histogram(_))
    }

    /// Returns true if the function needs the times and values of all readings of a group at once.
    #[must_use]
    pub fn needs_series(&self) -> bool {
        self.is_transformation() || matches!(self, Self::Integral(_))
    }

    /// Whether it follows from the summaries of any parts of the readings, in any order.
    #[must_use]
    pub fn is_total(&self) -> bool {
        matches!(self, Self::Count | Self::Sum | Self::Mean | Self::Min | Self::Max | Self::Spread)
    }

    /// Whether it is the value at an end of the window. Summaries answer it as long as no two of them are about the same
    /// hour: they do not tell the value's time.
    #[must_use]
    pub fn is_end(&self) -> bool {
        matches!(self, Self::First | Self::Last)
    }
}

/// What a query computes, independent of its language.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The names of the columns, `time` first.
    pub names: Vec<String>,
    /// Each column except time.
    pub columns: Vec<Node>,
    /// The parts of a reading that columns use, each once.
    pub beside: Vec<ReadingExpr>,
    /// The calls of all columns, in column order.
    pub calls: Vec<Call>,
    /// The fields that columns and condition use. Values of a field that are of another family are ignored.
    pub fields: Vec<PlannedField>,
    /// How many of `fields` the columns use; these come first.
    pub selected: usize,
    /// The tags to group by, in key order.
    pub group_by: Vec<String>,
    /// The condition without its time range.
    pub condition: Option<Condition>,
}

impl Plan {
    /// Whether the query shows readings as they are.
    #[must_use]
    pub fn is_raw(&self) -> bool {
        self.calls.is_empty()
    }

    /// The approximate work per reading, in comparisons.
    #[must_use]
    pub fn steps(&self) -> usize {
        let columns = self.columns.iter().map(Node::steps).sum::<usize>();
        1 + self.beside.len() + 4 * self.calls.len() + columns + self.condition.as_ref().map_or(0, Condition::steps)
    }

    /// How many columns show the part or call that is shown most often.
    #[must_use]
    pub fn most_used(&self) -> usize {
        let (mut parts, mut calls) = (vec![0; self.beside.len()], vec![0; self.calls.len()]);
        self.columns.iter().for_each(|column| column.count(&mut parts, &mut calls));
        parts.into_iter().chain(calls).max().unwrap_or(0).max(1)
    }

    /// Whether a call is about the first or the last value of each window.
    #[must_use]
    pub fn has_ends(&self) -> bool {
        self.calls.iter().any(|call| call.innermost().0.is_end())
    }

    /// Whether counts and sums are all that the calls need of summaries.
    #[must_use]
    pub fn needs_only_sums(&self) -> bool {
        self.calls.iter().all(|call| matches!(call.function, Function::Count | Function::Sum | Function::Mean))
    }

    /// The bounds of a histogram.
    #[must_use]
    pub fn bounds(&self) -> Option<Arc<[f64]>> {
        self.calls.iter().find_map(|call| match &call.function {
            Function::Histogram(bounds) => Some(bounds.clone()),
            _ => None,
        })
    }

    /// Returns true if a call needs readings before the range.
    #[must_use]
    pub fn looks_back(&self) -> bool {
        self.calls.iter().any(Call::looks_back)
    }

    /// The names of metadata that the query groups by, shows, or has in its condition, each once.
    pub fn meta_names(&self) -> impl Iterator<Item = &str> {
        let mut names: Vec<&str> = self.group_by.iter().map(|name| &**name).collect();
        names.extend(self.beside.iter().filter_map(|part| match part {
            ReadingExpr::Tag(name) => Some(&**name),
            ReadingExpr::Field(_) => None,
        }));
        for call in &self.calls {
            if let Function::Top(_, tags) | Function::Bottom(_, tags) = &call.function {
                names.extend(tags.iter().map(|name| &**name));
            }
        }
        self.condition.iter().for_each(|condition| condition.tags(&mut |name| names.push(name)));
        names.sort_unstable();
        names.dedup();
        names.into_iter().filter(|name| name.starts_with(META_PREFIX))
    }
}

impl Node {
    fn steps(&self) -> usize {
        match self {
            Self::Binary(_, a, b) => 1 + a.steps() + b.steps(),
            Self::Math(_, a, b) => 1 + a.steps() + b.as_ref().map_or(0, |node| node.steps()),
            _ => 1,
        }
    }

    fn count(&self, parts: &mut [usize], calls: &mut [usize]) {
        match self {
            // A histogram has more parts than the plan.
            Self::Part(part) => parts.get_mut(*part).into_iter().for_each(|count| *count += 1),
            Self::Call(call) => calls[*call] += 1,
            Self::Binary(_, a, b) => [a, b].into_iter().for_each(|node| node.count(parts, calls)),
            Self::Math(_, a, b) => {
                [Some(a), b.as_ref()].into_iter().flatten().for_each(|node| node.count(parts, calls))
            }
            Self::Nothing | Self::Constant(_) => {}
        }
    }
}

impl Call {
    /// Returns true if it needs readings before the range.
    #[must_use]
    pub fn looks_back(&self) -> bool {
        let is_nested = matches!(self.input, Input::Call(_));
        let looks_back = self.function.is_transformation() && self.function != Function::CumulativeSum;
        self.innermost().0.is_counter() || (is_nested && looks_back)
    }

    /// Returns the function that is applied to readings, and its field.
    #[must_use]
    pub fn innermost(&self) -> (&Function, usize) {
        match &self.input {
            Input::Field(field) => (&self.function, *field),
            Input::Call(inner) => inner.innermost(),
        }
    }
}
