//! Builds columns: converts the expressions of a SELECT into trees over fields, tags and calls, and checks their types
//! against the sources.

use super::condition::{arithmetic, condition, value_of};
use super::expand::takes;
use super::statement::{StatementFailure, kind};
use crate::influxql::{Expr, Literal, Operator, ReferenceKind};
use crate::query::engine::condition::{Condition, Term};
use crate::query::engine::number::MathFunction;
use crate::query::engine::plan::{Call, Function, Input, Node, PlannedField, ReadingExpr};
use crate::query::influx::schema::Schema;
use crate::reading::Family;

/// Collects the fields, reading parts and calls that the columns use.
pub(super) struct Builder<'a> {
    pub schema: &'a Schema,
    pub fields: Vec<PlannedField>,
    pub beside: Vec<ReadingExpr>,
    pub calls: Vec<Call>,
}

impl Builder<'_> {
    fn field(&mut self, field: PlannedField) -> usize {
        index_of_or_push(&mut self.fields, field)
    }

    /// Returns the field of a call's argument. A field of a type that no source has counts as empty.
    fn argument(&mut self, name: &str, kind: Option<ReferenceKind>) -> usize {
        let absent = || PlannedField { name: name.to_owned(), family: Family::Number };
        let field = self.schema.field(name, kind).unwrap_or_else(absent);
        self.field(field)
    }

    fn part(&mut self, part: ReadingExpr) -> Node {
        Node::Part(index_of_or_push(&mut self.beside, part))
    }

    pub fn node(&mut self, expr: &Expr) -> Result<Node, StatementFailure> {
        Ok(match expr {
            Expr::Reference { name, kind } => {
                if self.schema.is_tag(name, *kind) {
                    return Ok(self.part(ReadingExpr::Tag(name.clone())));
                }
                let Some(field) = self.schema.field(name, self.schema.kind_of(name, *kind)) else {
                    return Ok(Node::Nothing);
                };
                let field = self.field(field);
                self.part(ReadingExpr::Field(field))
            }
            Expr::Literal(Literal::Duration(_)) => Node::Nothing,
            Expr::Literal(literal) => {
                let unsupported = || StatementFailure::Unsupported(format!("{expr} as a column"));
                Node::Constant(value_of(literal).ok_or_else(unsupported)?)
            }
            Expr::Paren(inner) => self.node(inner)?,
            Expr::Binary { operator, left, right } => {
                self.check_operands(*operator, left, right)?;
                let left = self.node(left)?;
                let right = self.node(right)?;
                let unsupported = || StatementFailure::Unsupported(format!("{expr} as a column"));
                Node::Binary(arithmetic(*operator).ok_or_else(unsupported)?, Box::new(left), Box::new(right))
            }
            Expr::Distinct(name) => {
                let args = vec![Expr::reference(name)];
                self.node(&Expr::Call { name: "distinct".to_owned(), args })?
            }
            Expr::Call { name, args } => match (MathFunction::named(name), &args[..]) {
                (Some(function), [first, rest @ ..]) => {
                    let first = Box::new(self.node(first)?);
                    let second = rest.first().map(|second| self.node(second).map(Box::new)).transpose()?;
                    Node::Math(function, first, second)
                }
                _ => {
                    let call = self.call(expr)?;
                    Node::Call(index_of_or_push(&mut self.calls, call))
                }
            },
            Expr::Wildcard(_) => {
                return Err(StatementFailure::Unsupported("a wildcard inside an expression".to_owned()));
            }
        })
    }

    fn call(&mut self, expr: &Expr) -> Result<Call, StatementFailure> {
        let Expr::Call { name, args } = expr else {
            return Err(StatementFailure::Unsupported(format!("{expr} where a function is expected")));
        };
        let function = function(name, args)?;
        match (args.first(), &function) {
            (Some(Expr::Distinct(field)), Function::Count) => {
                Ok(Call { function: Function::CountDistinct, input: Input::Field(self.argument(field, None)) })
            }
            (Some(Expr::Call { name: inner, args: within }), Function::Count) if inner == "distinct" => {
                let Some(Expr::Reference { name: field, kind }) = within.first() else {
                    return Err(StatementFailure::Unsupported(format!("{expr}")));
                };
                Ok(Call { function: Function::CountDistinct, input: Input::Field(self.argument(field, *kind)) })
            }
            (Some(inner @ Expr::Call { .. }), _) => {
                let inner = self.call(inner)?;
                if let Some(family) = self.family_of(&inner).filter(|family| !takes(name, *family)) {
                    return Err(wrong_kind(name, family));
                }
                Ok(Call { function, input: Input::Call(Box::new(inner)) })
            }
            (Some(Expr::Reference { name: field, kind }), _) => {
                let field = self.argument(field, *kind);
                let PlannedField { name: of, family } = &self.fields[field];
                if self.schema.fields.contains_key(of) && !takes(name, *family) {
                    return Err(wrong_kind(name, *family));
                }
                Ok(Call { function, input: Input::Field(field) })
            }
            _ => Err(StatementFailure::Unsupported(format!("{expr}"))),
        }
    }

    /// Returns the family of a call's values, or `None` for numbers.
    fn family_of(&self, call: &Call) -> Option<Family> {
        match (&call.input, &call.function) {
            (Input::Field(field), function)
                if function.is_selector() || matches!(function, Function::Distinct | Function::Mode) =>
            {
                Some(self.fields[*field].family)
            }
            _ => None,
        }
    }

    /// Checks the types of operands by InfluxDB's rules.
    fn check_operands(&self, operator: Operator, left: &Expr, right: &Expr) -> Result<(), StatementFailure> {
        let (Some((a, a_text)), Some((b, b_text))) = (self.kind_of(left), self.kind_of(right)) else { return Ok(()) };
        let is_number = |kind: &str| kind == "float" || kind == "integer";
        let bits = matches!(operator, Operator::BitAnd | Operator::BitOr | Operator::BitXor);
        if (is_number(a) && is_number(b)) || (bits && a == "boolean" && b == "boolean") {
            return Ok(());
        }
        let expression = format!("{a_text} {} {b_text}", operator.as_str());
        Err(StatementFailure::Refused(format!("type error: {expression}: incompatible types: {a} and {b}")))
    }

    /// Returns the type of an operand, and its text as InfluxDB writes it.
    fn kind_of(&self, expr: &Expr) -> Option<(&'static str, String)> {
        match expr {
            Expr::Reference { name, kind: None } => match self.schema.family(name) {
                Some(family) => Some((kind(family), format!("{name}::{}", kind(family)))),
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

    /// Returns a condition, and adds its fields. A name that is not a field counts as an absent tag.
    pub fn condition(&mut self, expr: &Expr) -> Condition {
        condition(expr, &mut |name, kind| {
            let schema = self.schema;
            let kind = schema.kind_of(name, kind);
            match schema.field(name, kind).filter(|_| schema.fields.contains_key(name)) {
                Some(field) => Term::Field(self.field(field)),
                None if matches!(kind, None | Some(ReferenceKind::Tag)) => Term::Tag(name.to_owned()),
                None => Term::Nothing,
            }
        })
    }
}

/// Returns the error of a function that does not accept the values of a field. The text is InfluxDB's.
fn wrong_kind(function: &str, family: Family) -> StatementFailure {
    let function = function.replace('_', " ");
    let kind = kind(family);
    StatementFailure::Refused(format!("unsupported {function} iterator type: *query.{kind}InterruptIterator"))
}

/// Returns the index of an item in a list. Appends the item if it is missing.
fn index_of_or_push<T: PartialEq>(list: &mut Vec<T>, item: T) -> usize {
    list.iter().position(|known| *known == item).unwrap_or_else(|| {
        list.push(item);
        list.len() - 1
    })
}

fn function(name: &str, args: &[Expr]) -> Result<Function, StatementFailure> {
    const SECOND: i64 = 1_000_000_000;
    let number = |index: usize| match args.get(index) {
        Some(Expr::Literal(Literal::Integer(v))) => Some(*v),
        _ => None,
    };
    let count = |index: usize| number(index).and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
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
        "spread" => Function::Spread,
        "distinct" => Function::Distinct,
        "percentile" => match args.get(1) {
            Some(Expr::Literal(Literal::Number(p))) => Function::Percentile(*p),
            #[expect(clippy::cast_precision_loss, reason = "a percentage is a small number")]
            Some(Expr::Literal(Literal::Integer(p))) => Function::Percentile(*p as f64),
            _ => return Err(StatementFailure::Unsupported("percentile() without a number".to_owned())),
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
        other => {
            let unsupported = || StatementFailure::Unsupported(format!("the function {other}()"));
            Function::from_name(other).ok_or_else(unsupported)?
        }
    })
}
