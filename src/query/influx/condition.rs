//! Turns conditions of InfluxQL into conditions of the engine.

use crate::influxql::{Expr, Literal, Operator, ReferenceKind};
use crate::query::engine::condition::{Comparison, Condition, Term};
use crate::query::engine::number::Arithmetic;
use crate::reading::Value;

/// Returns the condition of an expression. `resolve` returns the meaning of a name with its optional type.
pub(super) fn condition(expr: &Expr, resolve: &mut impl FnMut(&str, Option<ReferenceKind>) -> Term) -> Condition {
    match expr {
        Expr::Paren(inner) => condition(inner, resolve),
        Expr::Literal(Literal::Boolean(value)) => Condition::Constant(*value),
        Expr::Binary { operator, left, right } => {
            if let Operator::And | Operator::Or = operator {
                let terms = chained(expr, *operator).into_iter().map(|term| condition(term, resolve)).collect();
                return if *operator == Operator::And { Condition::And(terms) } else { Condition::Or(terms) };
            }
            let left = term(left, resolve);
            if let Expr::Literal(Literal::Regex(pattern)) = &**right {
                let is_negated = *operator != Operator::EqRegex;
                return Condition::Matches { term: left, pattern: pattern.clone(), is_negated };
            }
            match comparison(*operator) {
                Some(comparison) => Condition::Compare(comparison, left, term(right, resolve)),
                None => Condition::Constant(false),
            }
        }
        _ => Condition::Constant(false),
    }
}

/// Returns a condition in which every name means a tag.
pub(super) fn of_tags(expr: &Expr) -> Condition {
    condition(expr, &mut |name, _| Term::Tag(name.to_owned()))
}

/// Returns the terms that an operator joins, of which there can be tens of thousands.
fn chained(mut expr: &Expr, joined_by: Operator) -> Vec<&Expr> {
    let mut terms = Vec::new();
    while let Expr::Binary { operator, left, right } = expr
        && *operator == joined_by
    {
        terms.push(&**right);
        expr = left;
    }
    terms.push(expr);
    terms.reverse();
    terms
}

fn term(expr: &Expr, resolve: &mut impl FnMut(&str, Option<ReferenceKind>) -> Term) -> Term {
    match expr {
        Expr::Paren(inner) => term(inner, resolve),
        Expr::Reference { name, kind } => resolve(name, *kind),
        Expr::Literal(literal) => value_of(literal).map_or(Term::Nothing, Term::Value),
        Expr::Binary { operator, left, right } => match arithmetic(*operator) {
            Some(operator) => Term::Arithmetic(operator, Box::new(term(left, resolve)), Box::new(term(right, resolve))),
            None => Term::Nothing,
        },
        _ => Term::Nothing,
    }
}

fn comparison(operator: Operator) -> Option<Comparison> {
    Some(match operator {
        Operator::Eq => Comparison::Equal,
        Operator::NotEq => Comparison::NotEqual,
        Operator::Less => Comparison::Less,
        Operator::LessEq => Comparison::LessOrEqual,
        Operator::Greater => Comparison::Greater,
        Operator::GreaterEq => Comparison::GreaterOrEqual,
        _ => return None,
    })
}

/// The arithmetic of an operator; `None` for one that compares.
pub(super) fn arithmetic(operator: Operator) -> Option<Arithmetic> {
    Some(match operator {
        Operator::Add => Arithmetic::Add,
        Operator::Sub => Arithmetic::Sub,
        Operator::Mul => Arithmetic::Mul,
        Operator::Div => Arithmetic::Div,
        Operator::Mod => Arithmetic::Mod,
        Operator::BitAnd => Arithmetic::BitAnd,
        Operator::BitOr => Arithmetic::BitOr,
        Operator::BitXor => Arithmetic::BitXor,
        _ => return None,
    })
}

/// The value of a literal; `None` for a regular expression or a time.
pub(super) fn value_of(literal: &Literal) -> Option<Value> {
    Some(match literal {
        Literal::Integer(v) | Literal::Duration(v) => Value::Integer(*v),
        Literal::Unsigned(v) => Value::Unsigned(*v),
        Literal::Number(v) => Value::Float(*v),
        Literal::String(v) => Value::String(v.as_str().into()),
        Literal::Boolean(v) => Value::Boolean(*v),
        Literal::Regex(_) | Literal::Time(_) => return None,
    })
}
