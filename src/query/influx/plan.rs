//! A SELECT made ready to run: wildcards expanded against the schema, and planned.

use std::collections::{BTreeMap, BTreeSet};

use super::StatementFailure;
use super::build::Builder;
use super::expand::expand;
use crate::influxql::{Checked, column_names, fold};
use crate::influxql::{Expr, Kind, Literal, Select};
use crate::query::engine::choose::NAME_BYTES;
use crate::query::engine::pattern::Patterns;
use crate::query::engine::plan::{Field, Part, Plan, rank};
use crate::reading::Family;

/// What the sources of a SELECT have.
#[derive(Debug, Clone, Default)]
pub struct Schema {
    /// Field names with the families of their values, in InfluxDB's order: a name without a kind means the first.
    pub fields: BTreeMap<String, Vec<Family>>,
    /// Tag keys.
    pub tags: BTreeSet<String>,
    /// Whether there are rows of a subquery, whose tags can be selected without a field.
    pub has_rows: bool,
    /// What the names take.
    pub bytes: usize,
}

impl Schema {
    /// Adds a field.
    pub fn add(&mut self, name: &str, family: Family) {
        match self.fields.get_mut(name) {
            Some(known) if known.contains(&family) => {}
            Some(known) => {
                known.push(family);
                known.sort_by_key(|family| rank(*family));
            }
            None => {
                self.bytes += name.len() + NAME_BYTES;
                self.fields.insert(name.to_owned(), vec![family]);
            }
        }
    }

    /// Adds a tag.
    pub fn add_tag(&mut self, key: &str) {
        if !self.tags.contains(key) {
            self.bytes += key.len() + NAME_BYTES;
            self.tags.insert(key.to_owned());
        }
    }

    /// The family that a field's name means by itself; `None` for no field.
    #[must_use]
    pub fn family(&self, name: &str) -> Option<Family> {
        self.fields.get(name)?.first().copied()
    }

    /// The field that a name with or without a kind means; `None` where nothing of that kind is there.
    #[must_use]
    pub fn field(&self, name: &str, kind: Option<Kind>) -> Option<Field> {
        let field = |family: &Family| Field { name: name.to_owned(), family: *family };
        match self.fields.get(name) {
            Some(families) => families.iter().map(field).find(|field| field.is(name, kind)),
            // One that nobody has is empty, whatever it is.
            None => Some(field(&Family::Number)).filter(|field| field.is(name, kind)),
        }
    }
}

/// Plans a SELECT over this schema, grouped also by `outer` tags. `None` when nothing that is
/// selected exists.
///
/// # Errors
/// Of kinds of fields that a function is not for, and what is not supported.
pub fn plan(
    select: &Select,
    checked: &Checked,
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
    let has_tag = builder.beside.iter().any(|part| matches!(part, Part::Tag(tag) if schema.tags.contains(tag)));
    let has_field = builder.fields.iter().any(|field| schema.fields.contains_key(&field.name));
    let is_empty = !has_field && (!schema.has_rows || !has_tag);
    if is_empty {
        return Ok(None);
    }
    let selected = builder.fields.len();
    if let Some(condition) = &checked.condition {
        builder.condition(condition);
    }
    let time = select.columns.iter().find(|column| column.expr.is_time()).and_then(|column| column.alias.clone());
    let mut names = vec![time.unwrap_or_else(|| "time".to_owned())];
    names.extend(column_names(&expanded));
    let Builder { fields, beside, calls, .. } = builder;
    let condition = checked.condition.clone();
    Ok(Some(Plan { names, columns, beside, calls, fields, selected, group_by, condition }))
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
