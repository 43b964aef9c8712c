//! Plans a SELECT: expands its wildcards against the schema and builds its columns.

use std::collections::BTreeSet;

use super::build::Builder;
use super::expand::expand;
use super::schema::Schema;
use super::statement::StatementFailure;
use crate::influxql::{CheckedSelect, column_names, fold};
use crate::influxql::{Expr, Literal, Select};
use crate::query::engine::plan::{Plan, ReadingExpr};
use crate::query::pattern::Patterns;

/// Plans a SELECT over a schema, also grouped by the tags `outer`. Returns `None` if nothing that it selects exists.
///
/// # Errors
/// If a function does not accept the type of a field, or something is not supported.
pub fn plan(
    select: &Select,
    checked: &CheckedSelect,
    schema: &Schema,
    outer: &[String],
    patterns: &Patterns,
) -> Result<Option<Plan>, StatementFailure> {
    let group_by = dimensions(checked, schema, outer, patterns);
    let mut builder = Builder { schema, fields: Vec::new(), beside: Vec::new(), calls: Vec::new() };
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
    let has_tag = builder.beside.iter().any(|part| matches!(part, ReadingExpr::Tag(tag) if schema.tags.contains(tag)));
    let has_field = builder.fields.iter().any(|field| schema.fields.contains_key(&field.name));
    let is_empty = !has_field && (!schema.has_rows || !has_tag);
    if is_empty {
        return Ok(None);
    }
    let selected = builder.fields.len();
    let condition = checked.condition.as_ref().map(|condition| builder.condition(condition));
    let time = select.columns.iter().find(|column| column.expr.is_time()).and_then(|column| column.alias.clone());
    let mut names = vec![time.unwrap_or_else(|| "time".to_owned())];
    names.extend(column_names(&expanded));
    let Builder { fields, beside, calls, .. } = builder;
    Ok(Some(Plan { names, columns, beside, calls, fields, selected, group_by, condition }))
}

/// Returns the tags of the grouping, in key order.
fn dimensions(checked: &CheckedSelect, schema: &Schema, outer: &[String], patterns: &Patterns) -> Vec<String> {
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
