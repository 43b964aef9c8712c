//! Expands wildcards: `*`, `/regex/` and `mean(*)` become columns of the fields and tags of the sources.

use std::collections::BTreeSet;

use super::statement::StatementFailure;
use crate::influxql::{Expr, Literal, ReferenceKind, Select, SelectColumn, WildcardKind};
use crate::query::QueryError;
use crate::query::influx::schema::Schema;
use crate::query::options::COLUMNS_MAX;
use crate::query::pattern::Patterns;
use crate::reading::Family;

/// Expands the columns of a SELECT. It is an error if there are more than [`COLUMNS_MAX`].
pub(super) fn expand(
    select: &Select,
    schema: &Schema,
    group_by: &[String],
    patterns: &Patterns,
) -> Result<Vec<SelectColumn>, StatementFailure> {
    let mut expanded = Vec::new();
    for column in &select.columns {
        if expanded.len() > COLUMNS_MAX {
            return Err(QueryError::TooManyColumns.into());
        }
        if column.expr.is_time() {
            continue;
        }
        match &column.expr {
            expr @ (Expr::Wildcard(_) | Expr::Literal(Literal::Regex(_))) => {
                let is_wanted = |(name, is_tag): &(&String, bool)| match expr {
                    Expr::Wildcard(WildcardKind::Field) => !is_tag,
                    Expr::Wildcard(WildcardKind::Tag) => *is_tag,
                    Expr::Literal(Literal::Regex(pattern)) => patterns.matches(pattern, name),
                    _ => true,
                };
                let tags = schema.tags.iter().filter(|tag| !group_by.contains(tag)).map(|name| (name, true));
                let names: BTreeSet<(&String, bool)> =
                    schema.fields.keys().map(|name| (name, false)).chain(tags).filter(is_wanted).collect();
                expanded.extend(names.into_iter().map(|(name, is_tag)| plain(name, is_tag)));
            }
            Expr::Call { .. } if has_pattern(&column.expr) => expand_call(column, schema, patterns, &mut expanded),
            _ => expanded.push(column.clone()),
        }
    }
    if expanded.len() > COLUMNS_MAX {
        return Err(QueryError::TooManyColumns.into());
    }
    Ok(expanded)
}

fn plain(name: &str, is_tag: bool) -> SelectColumn {
    let kind = Some(if is_tag { ReferenceKind::Tag } else { ReferenceKind::Field });
    SelectColumn { expr: Expr::Reference { name: name.to_owned(), kind }, alias: None }
}

fn has_pattern(expr: &Expr) -> bool {
    let Expr::Call { args, .. } = expr else { return false };
    match args.first() {
        Some(Expr::Wildcard(_) | Expr::Literal(Literal::Regex(_))) => true,
        Some(inner @ Expr::Call { .. }) => has_pattern(inner),
        _ => false,
    }
}

/// Expands `mean(*)` into `mean_a`, `mean_b` and so on, for the fields that the innermost function accepts.
fn expand_call(column: &SelectColumn, schema: &Schema, patterns: &Patterns, expanded: &mut Vec<SelectColumn>) {
    let mut innermost = &column.expr;
    let mut path = Vec::new();
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
    for field in schema.fields.keys() {
        if !schema.family(field).is_some_and(|family| takes(function, family)) || !wanted(field) {
            continue;
        }
        let outer = column.alias.as_deref().unwrap_or(path[0]);
        let alias = Some(format!("{outer}_{field}"));
        expanded.push(SelectColumn { expr: with_innermost(&column.expr, field), alias });
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

/// Returns true if a function accepts values of a family.
pub(super) fn takes(function: &str, family: Family) -> bool {
    match function {
        "count" | "first" | "last" | "distinct" | "mode" | "elapsed" => true,
        "min" | "max" | "top" | "bottom" => {
            family != Family::String && (family != Family::Boolean || function.starts_with('m'))
        }
        _ => family == Family::Number,
    }
}
