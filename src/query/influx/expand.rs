//! Columns without wildcards and patterns: `*`, `/regex/`, `mean(*)` become what the sources have.

use std::collections::BTreeSet;

use super::StatementFailure;
use super::plan::Schema;
use crate::influxql::{Column, Expr, Kind, Literal, Select, WildcardKind};
use crate::query::QueryError;
use crate::query::engine::aggregates;
use crate::query::engine::pattern::Patterns;
use crate::query::engine::plan::COLUMNS_MAX;
use crate::reading::Family;

/// Columns without wildcards and patterns.
pub(super) fn expand(
    select: &Select,
    schema: &Schema,
    group_by: &[String],
    patterns: &Patterns,
) -> Result<Vec<Column>, StatementFailure> {
    let mut expanded = Vec::new();
    for column in &select.columns {
        if expanded.len() > COLUMNS_MAX {
            return Err(QueryError::TooManyColumns.into());
        }
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
    if expanded.len() > COLUMNS_MAX {
        return Err(QueryError::TooManyColumns.into());
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
    for field in schema.fields.keys() {
        if !schema.family(field).is_some_and(|family| takes(function, family)) || !wanted(field) {
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
pub(super) fn takes(function: &str, family: Family) -> bool {
    match function {
        "count" | "first" | "last" | "distinct" | "elapsed" => true,
        "min" | "max" | "top" | "bottom" => {
            family != Family::String && (family != Family::Boolean || function.starts_with('m'))
        }
        other => aggregates::named(other).map_or(family == Family::Number, |aggregate| (aggregate.takes)(family)),
    }
}
