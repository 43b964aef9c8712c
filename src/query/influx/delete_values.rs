//! `DELETE` by value: conditions on fields.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::condition::{condition, of_tags};
use super::schema::{Schema, allows};
use super::statement::StatementFailure;
use crate::bucket::Renames;
use crate::influxql::{Expr, Operator, ReferenceKind, Statement};
use crate::query::QueryError;
use crate::query::engine::condition::{Condition, Operand, Subject, Term};
use crate::query::engine::directory::DirectoryEntry;
use crate::query::engine::plan::PlannedField;
use crate::query::native::notices::NearestNames;
use crate::query::pattern::Patterns;
use crate::reading::{Sensor, Value};

/// A condition that names fields.
///
/// Names are resolved for each measurement of each database, as in SELECT. A name that is both a field and a tag means
/// the tag in DELETE, unless it is written `name::field`. A name that is neither, but a field of another target of the
/// statement, is a field without values. As a tag it would be empty, so `name != 'x'` would hold for everything.
#[derive(Debug)]
pub struct ValueCondition {
    /// The condition by measurement. Its fields are indexes into those of the measurement.
    conditions: HashMap<String, Condition>,
    /// The condition for other measurements, which have none of the fields.
    without_fields: Condition,
    patterns: Patterns,
    /// The fields among the names, by measurement.
    fields: HashMap<String, Vec<PlannedField>>,
    /// The tags among the names, by measurement.
    tags: HashMap<String, BTreeSet<String>>,
    /// The names that are fields of any target of the statement.
    known_fields: BTreeSet<String>,
    /// The renames by which names in the condition are resolved.
    renames: Renames,
}

impl ValueCondition {
    /// Returns the condition for each database of a statement, by its sensors there, or `None` if no name is a field of
    /// any of them. `earlier_fields` are names that were fields in an earlier call.
    pub(super) fn for_databases(
        statement: &Statement,
        condition: &Expr,
        databases: &[Vec<&DirectoryEntry>],
        earlier_fields: &BTreeSet<String>,
    ) -> Result<Option<Vec<Self>>, StatementFailure> {
        let names = condition_names(condition);
        let mut all = Vec::new();
        let mut known_fields = earlier_fields.clone();
        let is_typed = |kind: &Option<ReferenceKind>| !matches!(kind, None | Some(ReferenceKind::Tag));
        known_fields.extend(names.iter().filter(|(_, kind)| is_typed(kind)).map(|(name, _)| (*name).to_owned()));
        for sensors in databases {
            let (fields, tags) = resolve_names(&names, sensors);
            known_fields.extend(fields.values().flatten().map(|field| field.name.clone()));
            all.push((fields, tags));
        }
        if known_fields.is_empty() {
            return Ok(None);
        }
        let mut has_call = false;
        condition.each(&mut |part| has_call |= matches!(part, Expr::Call { .. }));
        if has_call {
            return Err(StatementFailure::Unsupported("a function in the condition of DELETE".to_owned()));
        }
        let new = |(fields, tags): FieldsAndTags| {
            let no_tags = BTreeSet::new();
            let resolved = |(measurement, fields): (&String, &Vec<PlannedField>)| {
                let tags = tags.get(measurement).unwrap_or(&no_tags);
                (measurement.clone(), resolve(condition, fields, tags, &known_fields))
            };
            Ok(Self {
                conditions: fields.iter().map(resolved).collect(),
                without_fields: resolve(condition, &[], &no_tags, &known_fields),
                patterns: Patterns::compile(statement.patterns(), None)?,
                fields,
                tags,
                known_fields: known_fields.clone(),
                renames: Renames::default(),
            })
        };
        let conditions = all.into_iter().map(new).collect::<Result<Vec<_>, QueryError>>()?;
        Ok(Some(conditions))
    }

    /// Returns the names that are fields of any target of the statement.
    #[must_use]
    pub fn known_fields(&self) -> &BTreeSet<String> {
        &self.known_fields
    }

    /// Finds a name that is a field in this condition and a tag in the later one. Returns the name and its measurement.
    #[must_use]
    pub fn find_turned_field<'l>(&self, later: &'l Self) -> Option<(&'l str, &'l str)> {
        let was_field = |measurement: &str, name: &String| {
            let was_tag = self.tags.get(measurement).is_some_and(|tags| tags.contains(name));
            let is_field =
                later.fields.get(measurement).is_some_and(|fields| fields.iter().any(|own| own.name == *name));
            self.known_fields.contains(name) && !was_tag && !is_field
        };
        let turned = |(measurement, tags): (&'l String, &'l BTreeSet<String>)| {
            Some((&**tags.iter().find(|name| was_field(measurement, name))?, &**measurement))
        };
        later.tags.iter().find_map(turned)
    }

    /// Sets the renames by which names in the condition are resolved.
    #[must_use]
    pub(super) fn with_renames(self, renames: Renames) -> Self {
        Self { renames, ..self }
    }

    /// Returns the entry of a stored sensor under its shown names.
    #[must_use]
    pub fn entry(&self, stored: &Arc<Sensor>) -> DirectoryEntry {
        DirectoryEntry::bare(stored.clone()).shown_by(&self.renames)
    }

    /// Returns true if the condition can hold for a reading of a sensor, by its tags.
    #[must_use]
    pub fn can_hold(&self, entry: &DirectoryEntry) -> bool {
        self.evaluate_tags(entry) != Some(false)
    }

    /// Evaluates the condition for all readings of a sensor. Returns `None` if it depends on their values.
    fn evaluate_tags(&self, entry: &DirectoryEntry) -> Option<bool> {
        self.evaluate(entry, None::<fn(&str) -> Option<Value>>)
    }

    /// Returns true if the condition holds for a reading with these values.
    pub fn holds(&self, entry: &DirectoryEntry, value: impl Fn(&str) -> Option<Value>) -> bool {
        self.evaluate(entry, Some(value)) == Some(true)
    }

    fn evaluate(&self, entry: &DirectoryEntry, value: Option<impl Fn(&str) -> Option<Value>>) -> Option<bool> {
        let measurement = &*entry.sensor.measurement;
        let fields = self.fields.get(measurement).map_or(&[][..], Vec::as_slice);
        let condition = self.conditions.get(measurement).unwrap_or(&self.without_fields);
        condition.holds(&ReadingSubject { entry, fields, value }, &self.patterns)
    }
}

/// Resolves the names of a condition for a measurement with these fields and tags.
fn resolve(
    expr: &Expr,
    fields: &[PlannedField],
    tags: &BTreeSet<String>,
    known_fields: &BTreeSet<String>,
) -> Condition {
    condition(expr, &mut |name, kind| {
        let is_field = |field: &PlannedField| field.name == name && allows(kind, field.family);
        match (fields.iter().position(is_field), kind) {
            (Some(field), _) => Term::Field(field),
            // A field elsewhere, but no tag here.
            (None, None) if known_fields.contains(name) && !tags.contains(name) => Term::Nothing,
            (None, None | Some(ReferenceKind::Tag)) => Term::Tag(name.to_owned()),
            (None, _) => Term::Nothing,
        }
    })
}

/// Fields and tags by measurement.
type FieldsAndTags = (HashMap<String, Vec<PlannedField>>, HashMap<String, BTreeSet<String>>);

/// Resolves names to the fields and tags of the measurements of these sensors.
fn resolve_names(names: &[ConditionName<'_>], sensors: &[&DirectoryEntry]) -> FieldsAndTags {
    let mut schemas: HashMap<&str, Schema> = HashMap::new();
    for entry in sensors {
        let schema = schemas.entry(&*entry.sensor.measurement).or_default();
        for (name, _) in names {
            if let Some(family) = entry.family(name) {
                schema.add(name, family);
            }
            if entry.sensor.tag(name).is_some() {
                schema.add_tag(name);
            }
        }
    }
    let field = |schema: &Schema, (name, kind): &ConditionName<'_>| {
        let is_field = schema.fields.contains_key(*name) && (kind.is_some() || !schema.tags.contains(*name));
        schema.field(name, *kind).filter(|_| is_field)
    };
    let fields_in = |schema: &Schema| names.iter().filter_map(|name| field(schema, name)).collect::<Vec<_>>();
    let fields = schemas.iter().map(|(measurement, schema)| ((*measurement).to_owned(), fields_in(schema))).collect();
    (fields, schemas.into_iter().map(|(measurement, schema)| (measurement.to_owned(), schema.tags)).collect())
}

/// Checks that no unknown name selects readings by its absence. The name may be misspelt, or a field that this instance
/// does not know yet, and the statement would delete everything. `name = 'x'` is harmless, because it selects nothing.
///
/// # Errors
/// [`StatementFailure::Refused`].
pub(super) fn check_known<'e>(
    condition: &Expr,
    sensors: impl Iterator<Item = &'e DirectoryEntry>,
    fields: Option<&BTreeSet<String>>,
    patterns: &Patterns,
) -> Result<(), StatementFailure> {
    let mut names = condition_names(condition);
    let is_field = |name: &str| fields.is_some_and(|fields| fields.contains(name));
    names.retain(|(name, kind)| kind.is_none() && *name != "_name" && !is_field(name));
    for entry in sensors {
        if names.is_empty() {
            return Ok(());
        }
        names.retain(|(name, _)| entry.sensor.tag(name).is_none());
    }
    selected_by_absence(condition, &names, patterns).map_or(Ok(()), |name| {
        Err(StatementFailure::Refused(format!(
            "{name:?} is no tag of the sensors to delete from, and no known field: everything without it would be deleted; \
             correct the name, or write \"{name}\"::field or \"{name}\"::tag"
        )))
    })
}

/// Checks that every name in a condition on values is a field or a tag. The error lists the nearest fields and tags.
///
/// # Errors
/// [`StatementFailure::Refused`].
pub(super) fn check_names(
    condition: &Expr,
    databases: &[Vec<&DirectoryEntry>],
    fields: Option<&BTreeSet<String>>,
) -> Result<(), StatementFailure> {
    let names = condition_names(condition);
    let sensors = || databases.iter().flatten();
    let is_field = |name: &str| fields.is_some_and(|fields| fields.contains(name));
    let is_tag = |name: &str| name == "_name" || sensors().any(|entry| entry.sensor.tag(name).is_some());
    let Some((unknown, _)) = names.into_iter().find(|(name, _)| !is_field(name) && !is_tag(name)) else {
        return Ok(());
    };
    let mut nearest = NearestNames::new(unknown);
    for entry in sensors() {
        entry.fields.iter().for_each(|(name, _)| nearest.add(name));
        entry.sensor.tags.iter().for_each(|(key, _)| nearest.add(key));
    }
    Err(StatementFailure::Refused(nearest.notice(&format!("unknown field or tag {unknown:?}"))))
}

/// Returns the first of these names whose comparison holds if the name is absent.
fn selected_by_absence<'c>(condition: &'c Expr, names: &[ConditionName<'_>], patterns: &Patterns) -> Option<&'c str> {
    match condition {
        Expr::Paren(inner) => selected_by_absence(inner, names, patterns),
        Expr::Binary { operator: Operator::And | Operator::Or, left, right } => {
            selected_by_absence(left, names, patterns).or_else(|| selected_by_absence(right, names, patterns))
        }
        Expr::Binary { .. } => {
            let compared = condition_names(condition);
            let unknown = compared.iter().find(|name| names.contains(name)).map(|(name, _)| *name)?;
            let absent = of_tags(condition);
            (absent.holds(&NoTags, patterns) == Some(true)).then_some(unknown)
        }
        _ => None,
    }
}

/// A sensor without any tags.
struct NoTags;

impl Subject for NoTags {
    fn field(&self, _: usize) -> Operand<'_> {
        Operand::Field(None)
    }

    fn tag(&self, _: &str) -> Cow<'_, str> {
        Cow::Borrowed("")
    }
}

/// A name in a condition, with the type that is stated for it.
type ConditionName<'c> = (&'c str, Option<ReferenceKind>);

fn condition_names(condition: &Expr) -> Vec<ConditionName<'_>> {
    let mut names = Vec::new();
    condition.each(&mut |part| {
        if let Expr::Reference { name, kind } = part {
            names.push((&**name, *kind));
        }
    });
    names
}

/// The tags of a sensor and the values of a reading. Without values, fields are unknown.
struct ReadingSubject<'a, V> {
    entry: &'a DirectoryEntry,
    fields: &'a [PlannedField],
    value: Option<V>,
}

impl<V: Fn(&str) -> Option<Value>> Subject for ReadingSubject<'_, V> {
    fn field(&self, index: usize) -> Operand<'_> {
        let field = &self.fields[index];
        match &self.value {
            Some(value) => {
                Operand::Field(value(&field.name).filter(|value| value.family() == field.family).map(Cow::Owned))
            }
            None => Operand::Unknown,
        }
    }

    fn tag(&self, key: &str) -> Cow<'_, str> {
        tag_or_measurement(self.entry, key)
    }
}

/// Returns the value of a tag, or the measurement for the key `_name`.
pub(super) fn tag_or_measurement<'e>(entry: &'e DirectoryEntry, key: &str) -> Cow<'e, str> {
    if key == "_name" { Cow::Borrowed(&entry.sensor.measurement) } else { entry.tag(key).unwrap_or_default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::influxql::{Params, ParseOptions, parse};
    use crate::reading::Family;

    fn statement(condition: &str) -> Statement {
        let params = Params::new();
        let is_known_zone = |_: &str| true;
        let regex_error = |_: &str| None;
        let options = ParseOptions { params: &params, is_known_zone: &is_known_zone, regex_error: &regex_error };
        parse(&format!("DELETE FROM cpu WHERE {condition}"), &options).expect("a statement").remove(0)
    }

    fn condition(statement: &Statement) -> &Expr {
        let Statement::Delete { condition: Some(condition), .. } = statement else { panic!("{statement:?}") };
        condition
    }

    fn entry(measurement: &str, tags: &[(&str, &str)], field: &str) -> DirectoryEntry {
        let sensor = Sensor::new(measurement, tags.iter().copied()).expect("a sensor");
        let fields = Arc::new([(Arc::from(field), Family::String)]);
        DirectoryEntry { fields, ..DirectoryEntry::bare(Arc::new(sensor)) }
    }

    fn for_all(text: &str, databases: &[Vec<&DirectoryEntry>], before: &[&str]) -> Option<Vec<ValueCondition>> {
        let statement = statement(text);
        let before = before.iter().map(|name| (*name).to_owned()).collect();
        ValueCondition::for_databases(&statement, condition(&statement), databases, &before).expect("a condition")
    }

    #[test]
    fn a_field_of_one_place_is_an_absent_field_in_the_others() {
        let own = entry("cpu", &[("host", "a")], "status");
        let week = entry("cpu", &[("host", "a")], "load");
        let mem = entry("mem", &[("status", "x")], "used");
        let all = for_all("status != 'ok'", &[vec![&own, &mem], vec![&week]], &[]).expect("by value");
        let failed = |_: &str| Some(Value::String("failed".into()));
        assert!(all[0].can_hold(&own) && all[0].holds(&own, failed));
        assert!(!all[1].can_hold(&week) && !all[1].holds(&week, failed));
        // In `mem`, the name is a tag.
        assert!(all[0].holds(&mem, failed));
        // A name that was a field before remains one, even where it is unknown now.
        assert!(for_all("status != 'ok'", &[vec![&week]], &[]).is_none());
        let again = for_all("status != 'ok'", &[vec![&week]], &["status"]).expect("by value");
        assert!(!again[0].can_hold(&week));
        let typed = for_all("status::field != 'ok'", &[vec![&week]], &[]).expect("by value");
        assert!(!typed[0].holds(&week, failed));
    }

    #[test]
    fn a_field_that_turned_into_a_tag_is_noticed() {
        let field = entry("cpu", &[("host", "a")], "status");
        let tag = entry("cpu", &[("status", "x")], "load");
        let make =
            |sensors: Vec<&DirectoryEntry>| for_all("status != 'ok'", &[sensors], &["status"]).expect("it is known");
        let first = make(vec![&field]);
        assert_eq!(first[0].find_turned_field(&make(vec![&field])[0]), None);
        assert_eq!(first[0].find_turned_field(&make(vec![&field, &tag])[0]), Some(("status", "cpu")));
        assert_eq!(make(vec![&tag])[0].find_turned_field(&make(vec![&field, &tag])[0]), None, "it was one before");
    }

    #[test]
    fn an_unknown_name_must_not_select_by_its_absence() {
        let known = entry("cpu", &[("host", "a")], "load");
        for (text, is_refused) in [
            ("nothing = 'a'", false),
            ("nothing =~ /a/ AND host != 'b'", false),
            ("nothing = 'a' OR host = 'a'", false),
            ("nothing::tag != 'a'", false),
            ("_name != 'mem'", false),
            ("host = 'a' AND nothing != 'a'", true),
            ("(nothing = '')", true),
            ("nothing !~ /a/", true),
            ("nothing =~ /.*/", true),
        ] {
            let statement = statement(text);
            let patterns = Patterns::compile(statement.patterns(), None).expect("patterns");
            let checked = check_known(condition(&statement), std::iter::once(&known), None, &patterns);
            let found = checked.err().map(|error| error.to_string());
            let is_found = found.as_ref().is_some_and(|found| found.starts_with("\"nothing\" is no tag"));
            assert_eq!((is_found, found.is_some()), (is_refused, is_refused), "{text}: {found:?}");
        }
    }
}
