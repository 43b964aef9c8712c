//! `DELETE` by value: which readings a condition on fields selects.

use std::collections::HashMap;

use super::schema::Schema;
use super::statement::StatementFailure;
use crate::influxql::{Expr, ReferenceKind, Statement};
use crate::query::engine::directory::DirectoryEntry;
use crate::query::engine::filter::{Lookup, ResolvedReference, holds};
use crate::query::engine::plan::PlannedField;
use crate::query::pattern::Patterns;
use crate::reading::{Sensor, Value};

/// A condition that names fields. What is a field is decided for each measurement by itself, as SELECT does for its sources;
/// but a name that is a tag, too, means the tag, as it always has in DELETE, unless it is written `name::field`.
#[derive(Debug)]
pub struct ValueCondition {
    condition: Expr,
    patterns: Patterns,
    /// The fields among the names, by measurement.
    fields: HashMap<String, Vec<PlannedField>>,
}

impl ValueCondition {
    /// The condition of a deletion from these sensors; `None` if it names no field of theirs.
    pub(super) fn of<'e>(
        statement: &Statement,
        condition: &Expr,
        sensors: impl Iterator<Item = &'e DirectoryEntry>,
    ) -> Result<Option<Self>, StatementFailure> {
        let mut names = Vec::new();
        let has_call = references(condition, &mut names);
        let mut schemas: HashMap<&str, Schema> = HashMap::new();
        for entry in sensors {
            let measurement = &*entry.sensor.measurement;
            let schema = schemas.entry(measurement).or_default();
            for (name, _) in &names {
                if let Some(family) = entry.family(name) {
                    schema.add(name, family);
                }
                if entry.sensor.tag(name).is_some() {
                    schema.add_tag(name);
                }
            }
        }
        let field = |schema: &Schema, (name, kind): &(&str, Option<ReferenceKind>)| {
            let is_field = schema.fields.contains_key(*name) && (kind.is_some() || !schema.tags.contains(*name));
            schema.field(name, *kind).filter(|_| is_field)
        };
        let of = |schema: &Schema| names.iter().filter_map(|name| field(schema, name)).collect::<Vec<_>>();
        let fields: HashMap<String, Vec<PlannedField>> =
            schemas.iter().map(|(measurement, schema)| ((*measurement).to_owned(), of(schema))).collect();
        if fields.values().all(Vec::is_empty) {
            return Ok(None);
        }
        if has_call {
            return Err(StatementFailure::Unsupported("a function in the condition of DELETE".to_owned()));
        }
        let patterns = Patterns::compile(statement.patterns(), None)?;
        Ok(Some(Self { condition: condition.clone(), patterns, fields }))
    }

    fn fields(&self, sensor: &Sensor) -> &[PlannedField] {
        self.fields.get(&*sensor.measurement).map_or(&[], Vec::as_slice)
    }

    /// Whether the condition may hold for a reading of a sensor, by its tags.
    #[must_use]
    pub fn may_hold(&self, sensor: &Sensor) -> bool {
        let lookup = Looked { sensor, fields: self.fields(sensor), value: None::<fn(&str) -> Option<Value>> };
        holds(&self.condition, &lookup, &self.patterns) != Some(false)
    }

    /// Whether the condition holds for a reading with these values.
    pub fn holds(&self, sensor: &Sensor, value: impl Fn(&str) -> Option<Value>) -> bool {
        let lookup = Looked { sensor, fields: self.fields(sensor), value: Some(value) };
        holds(&self.condition, &lookup, &self.patterns) == Some(true)
    }
}

/// Collects the names in a condition; returns whether it calls a function.
fn references<'c>(expr: &'c Expr, names: &mut Vec<(&'c str, Option<ReferenceKind>)>) -> bool {
    match expr {
        Expr::Reference { name, kind } => {
            names.push((name, *kind));
            false
        }
        Expr::Paren(inner) => references(inner, names),
        Expr::Binary { left, right, .. } => {
            let left = references(left, names);
            references(right, names) || left
        }
        Expr::Call { args, .. } => {
            for arg in args {
                references(arg, names);
            }
            true
        }
        _ => false,
    }
}

/// A sensor's tags and a reading's values; without the latter, fields are unknown.
struct Looked<'a, V> {
    sensor: &'a Sensor,
    fields: &'a [PlannedField],
    value: Option<V>,
}

impl<V: Fn(&str) -> Option<Value>> Lookup for Looked<'_, V> {
    fn find(&self, name: &str, kind: Option<ReferenceKind>) -> ResolvedReference {
        match (self.fields.iter().find(|field| field.is(name, kind)), kind) {
            (Some(field), _) => match &self.value {
                Some(value) => ResolvedReference::Field(value(name).filter(|value| value.family() == field.family)),
                None => ResolvedReference::Unknown,
            },
            (None, None | Some(ReferenceKind::Tag)) if name == "_name" => {
                ResolvedReference::Tag(self.sensor.measurement.to_string())
            }
            (None, None | Some(ReferenceKind::Tag)) => {
                ResolvedReference::Tag(self.sensor.tag(name).unwrap_or_default().to_owned())
            }
            (None, _) => ResolvedReference::Field(None),
        }
    }
}
