//! Conditions on readings, with their names resolved to fields and tags. A condition can also be evaluated for a sensor
//! whose field values are not known yet, so that sensors that cannot match are not read.

use std::borrow::Cow;
use std::cmp::Ordering;

use super::number::{Arithmetic, arithmetic, number, whole};
use crate::query::pattern::Patterns;
use crate::reading::Value;

/// The work of a pattern on a text field, which may have 64 KiB.
const FIELD_PATTERN_STEPS: usize = 1 << 12;

#[derive(Debug, Clone, PartialEq)]
pub enum Condition {
    Constant(bool),
    /// True if all terms are true.
    And(Vec<Condition>),
    /// True if one term is true.
    Or(Vec<Condition>),
    Compare(Comparison, Term, Term),
    /// True if the text matches the pattern, or with `is_negated` if it does not.
    Matches {
        term: Term,
        pattern: String,
        is_negated: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// A side of a comparison.
#[derive(Debug, Clone, PartialEq)]
pub enum Term {
    /// A field, by its index.
    Field(usize),
    /// A tag, by its key; empty if the sensor has no such tag.
    Tag(String),
    Value(Value),
    /// The value of a field that does not exist.
    Nothing,
    Arithmetic(Arithmetic, Box<Term>, Box<Term>),
}

/// The value of a term.
#[derive(Debug, Clone)]
pub enum Operand<'a> {
    /// A field's value; `None` if the reading has none.
    Field(Option<Cow<'a, Value>>),
    Tag(Cow<'a, str>),
    /// A field whose value is not known yet.
    Unknown,
}

/// A reading, or a sensor, for which a condition is evaluated.
pub trait Subject {
    /// Returns a field by its index: [`Operand::Field`] or [`Operand::Unknown`].
    fn field(&self, index: usize) -> Operand<'_>;
    /// Returns the value of a tag, empty if there is none.
    fn tag(&self, key: &str) -> Cow<'_, str>;
}

impl Condition {
    /// Returns true if the condition holds, and `None` if that depends on unknown values.
    pub fn holds(&self, subject: &impl Subject, patterns: &Patterns) -> Option<bool> {
        match self {
            Self::Constant(value) => Some(*value),
            Self::And(terms) | Self::Or(terms) => {
                // The value of a term that decides the result alone.
                let decides = matches!(self, Self::Or(_));
                let mut held = Some(!decides);
                for term in terms {
                    match term.holds(subject, patterns) {
                        Some(value) if value == decides => return Some(decides),
                        Some(_) => {}
                        None => held = None,
                    }
                }
                held
            }
            Self::Compare(comparison, left, right) => compare(*comparison, left, right, subject),
            Self::Matches { term, pattern, is_negated } => {
                let matches = match term.operand(subject) {
                    Operand::Unknown => return None,
                    Operand::Tag(text) => patterns.matches(pattern, &text),
                    Operand::Field(value) => match value.as_deref() {
                        Some(Value::String(text)) => patterns.matches(pattern, text),
                        _ => return Some(false),
                    },
                };
                Some(matches != *is_negated)
            }
        }
    }

    /// Returns the approximate work of an evaluation, in comparisons.
    #[must_use]
    pub fn steps(&self) -> usize {
        match self {
            Self::Constant(_) => 1,
            Self::And(terms) | Self::Or(terms) => terms.iter().map(Self::steps).sum::<usize>() + terms.len(),
            Self::Compare(_, left, right) => 1 + left.steps() + right.steps(),
            Self::Matches { term: Term::Field(_), .. } => FIELD_PATTERN_STEPS,
            Self::Matches { term, .. } => 2 + term.steps(),
        }
    }

    /// Passes the keys of all tags to `take`.
    pub fn tags<'c>(&'c self, take: &mut impl FnMut(&'c str)) {
        match self {
            Self::Constant(_) => {}
            Self::And(terms) | Self::Or(terms) => terms.iter().for_each(|term| term.tags(take)),
            Self::Compare(_, left, right) => [left, right].into_iter().for_each(|side| side.tags(take)),
            Self::Matches { term, .. } => term.tags(take),
        }
    }
}

impl Term {
    fn operand<'s>(&'s self, subject: &'s impl Subject) -> Operand<'s> {
        match self {
            Self::Field(index) => subject.field(*index),
            Self::Tag(key) => Operand::Tag(subject.tag(key)),
            Self::Value(value) => Operand::Field(Some(Cow::Borrowed(value))),
            Self::Nothing => Operand::Field(None),
            Self::Arithmetic(operator, left, right) => match (left.operand(subject), right.operand(subject)) {
                (Operand::Unknown, _) | (_, Operand::Unknown) => Operand::Unknown,
                (Operand::Field(Some(a)), Operand::Field(Some(b))) => {
                    Operand::Field(arithmetic(*operator, &a, &b).map(Cow::Owned))
                }
                _ => Operand::Field(None),
            },
        }
    }

    fn steps(&self) -> usize {
        if let Self::Arithmetic(_, left, right) = self { 1 + left.steps() + right.steps() } else { 1 }
    }

    fn tags<'t>(&'t self, take: &mut impl FnMut(&'t str)) {
        match self {
            Self::Tag(key) => take(key),
            Self::Arithmetic(_, left, right) => [left, right].into_iter().for_each(|side| side.tags(take)),
            Self::Field(_) | Self::Value(_) | Self::Nothing => {}
        }
    }
}

fn compare(comparison: Comparison, left: &Term, right: &Term, subject: &impl Subject) -> Option<bool> {
    let text = |value: Option<Cow<'_, Value>>| match value.as_deref() {
        Some(Value::String(text)) => Some(text.clone()),
        _ => None,
    };
    match (left.operand(subject), right.operand(subject)) {
        (Operand::Unknown, _) | (_, Operand::Unknown) => None,
        // A tag is a text that can only be compared for equality.
        (Operand::Tag(tag), Operand::Field(value)) | (Operand::Field(value), Operand::Tag(tag)) => {
            Some(text(value).is_some_and(|text| equal(comparison, &*tag, &*text)))
        }
        // Two tags that are both absent are not equal.
        (Operand::Tag(a), Operand::Tag(b)) => {
            let same = a == b && !a.is_empty();
            Some(same == (comparison == Comparison::Equal))
        }
        (Operand::Field(Some(a)), Operand::Field(Some(b))) => Some(values(comparison, &a, &b)),
        _ => Some(false),
    }
}

fn equal<T: PartialEq + ?Sized>(comparison: Comparison, a: &T, b: &T) -> bool {
    match comparison {
        Comparison::Equal => a == b,
        Comparison::NotEqual => a != b,
        _ => false,
    }
}

fn values(comparison: Comparison, a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::String(a), Value::String(b)) => return equal(comparison, a, b),
        (Value::Boolean(a), Value::Boolean(b)) => return equal(comparison, a, b),
        _ => {}
    }
    // As in InfluxDB, an integer and a double compare as doubles.
    let order = match (whole(a), whole(b)) {
        (Some(a), Some(b)) => Some(a.cmp(&b)),
        _ => number(a).zip(number(b)).and_then(|(a, b)| a.partial_cmp(&b)),
    };
    order.is_some_and(|order| match comparison {
        Comparison::Equal => order == Ordering::Equal,
        Comparison::NotEqual => order != Ordering::Equal,
        Comparison::Less => order == Ordering::Less,
        Comparison::LessOrEqual => order != Ordering::Greater,
        Comparison::Greater => order == Ordering::Greater,
        Comparison::GreaterOrEqual => order != Ordering::Less,
    })
}
