//! The targets of `DELETE`, `DROP SERIES` and `DROP MEASUREMENT`: sensors, times and conditions on values.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::delete_values::{ValueCondition, check_known, check_names};
use super::policies::{list_covered, resolve_database};
use super::run::Run;
use super::show::{is_of_tags, sensor_filter, source_filter};
use super::statement::{StatementContext, StatementFailure};
use super::zones::resolve;
use crate::bucket::deletions::SensorTest;
use crate::bucket::settings::owner;
use crate::bucket::{Rename, Renames};
use crate::influxql::{Clock, Params, ParseOptions, Statement, TimeRange, parse, split};
use crate::query::Query;
use crate::query::engine::choose::Chosen;
use crate::query::engine::directory::{DirectoryEntry, Sensors};
use crate::query::pattern::Patterns;
use crate::reading::Sensor;
use crate::reading::time::{TIMESTAMP_MAX, TIMESTAMP_MIN};

/// The readings that a statement deletes in one database.
#[derive(Debug, Clone)]
pub struct DeleteTargets {
    pub database: String,
    pub sensors: Vec<Arc<Sensor>>,
    /// In nanoseconds, half open.
    pub range: Range<i64>,
    /// The condition on values, if the statement names fields.
    pub values: Option<Arc<ValueCondition>>,
    /// The text that [`sensor_test`] converts to a test of stored sensors.
    pub statement: String,
}

impl Query {
    /// Returns the targets of a statement in the database and each of its policies, or `None` if it deletes no readings
    /// or a whole database. Lists the sensors from the store instead of the cache. `before` are the names in its
    /// condition that were fields in an earlier call.
    ///
    /// # Errors
    /// See [`StatementFailure`].
    pub async fn delete_targets(
        &self,
        statement: &Statement,
        context: StatementContext<'_>,
        before: &BTreeSet<String>,
    ) -> Result<Option<Vec<DeleteTargets>>, StatementFailure> {
        let find = || async {
            if !matches!(
                statement,
                Statement::Delete { .. } | Statement::DropSeries { .. } | Statement::DropMeasurement { .. }
            ) {
                return Ok(None);
            }
            let patterns = Patterns::compile(statement.patterns(), Some(context.budget))?;
            let run = Run { engine: &self.engine, patterns: &patterns, context };
            let name = context.database_or(None)?;
            let mut databases = Vec::new();
            for database in list_covered(run, name, None).await? {
                let sensors = run.sensors_now(&database).await?;
                databases.push((database, sensors));
            }
            // Resolve all databases together, because the meaning of a name in one of them depends on the others.
            let conditions = run.conditions(statement, &databases, before)?;
            let mut conditions = conditions.into_iter().flatten();
            let mut targets = Vec::new();
            for (database, sensors) in databases {
                let renames = run.engine.renames(&database).unwrap_or_default();
                let values = conditions.next().map(|values| Arc::new(values.with_renames(renames.clone())));
                targets.push(run.resolve_targets(statement, database, &sensors, values, &renames).await?);
            }
            Ok::<_, StatementFailure>(Some(targets))
        };
        self.in_turn(context.budget, context.database.unwrap_or_default(), find).await
    }

    /// Returns the target of a deletion of the one sensor that is shown so, in the policy of the context.
    ///
    /// # Errors
    /// See [`StatementFailure`].
    pub async fn delete_target(
        &self,
        shown: &Sensor,
        range: Range<i64>,
        context: StatementContext<'_>,
    ) -> Result<DeleteTargets, StatementFailure> {
        let find = || async {
            let run = Run { engine: &self.engine, patterns: &Patterns::default(), context };
            let database = resolve_database(run.engine, context.database_or(None)?, context.policy).await?;
            let sensors = run.sensors_now(&database).await?;
            let is_shown = |entry: &DirectoryEntry| entry.sensor.key == shown.key;
            let chosen = Chosen::of(context.budget, &sensors, 1, is_shown).await?;
            let sensors = chosen.entries.into_iter().map(|entry| entry.stored).collect();
            let renames = run.engine.renames(&database).unwrap_or_default();
            // Tags in a condition would also select sensors with more tags, of which only another instance may know.
            let statement = with_renames(format!("{DELETE_SENSOR}{}", shown.key), &renames);
            Ok::<_, StatementFailure>(DeleteTargets {
                database,
                sensors,
                range: range.clone(),
                values: None,
                statement,
            })
        };
        self.in_turn(context.budget, context.database.unwrap_or_default(), find).await
    }
}

impl Run<'_> {
    /// Returns the condition for each database if it names fields. Otherwise it is a condition on tags, and all of its
    /// names must be tags.
    fn conditions(
        self,
        statement: &Statement,
        databases: &[(String, Sensors)],
        before: &BTreeSet<String>,
    ) -> Result<Option<Vec<ValueCondition>>, StatementFailure> {
        let (Statement::Delete { sources, condition } | Statement::DropSeries { sources, condition }) = statement
        else {
            return Ok(None);
        };
        let (_, rest) = split(condition.as_ref(), &self.context.clock())?;
        let Some(rest) = rest else { return Ok(None) };
        let is_source = source_filter(sources, self.patterns);
        let sources = databases.iter().map(|(_, sensors)| sensors.iter().filter(|entry| is_source(entry)).collect());
        let sources: Vec<Vec<&DirectoryEntry>> = sources.collect();
        let values = match statement {
            Statement::Delete { .. } => ValueCondition::for_databases(statement, &rest, &sources, before)?,
            _ => None,
        };
        let fields = values.iter().flatten().next().map(ValueCondition::known_fields);
        let is_by_value = values.is_some() || !is_of_tags(&rest);
        // The deletion also covers sensors that another instance has acked and not stored, which are unknown here.
        let is_any_known = sources.iter().any(|sensors| !sensors.is_empty());
        if before.is_empty() && (is_any_known || self.engine.store.raw().has_other_writers()) {
            check_known(&rest, sources.iter().flatten().copied(), fields, self.patterns)?;
        }
        if before.is_empty() && is_by_value && matches!(statement, Statement::Delete { .. }) {
            check_names(&rest, &sources, fields)?;
        }
        Ok(values)
    }

    async fn resolve_targets(
        self,
        statement: &Statement,
        database: String,
        sensors: &[DirectoryEntry],
        values: Option<Arc<ValueCondition>>,
        renames: &Renames,
    ) -> Result<DeleteTargets, StatementFailure> {
        let Self { patterns, context, .. } = self;
        let (range, chosen) = match statement {
            Statement::Delete { sources, condition } | Statement::DropSeries { sources, condition } => {
                let (range, condition) = split(condition.as_ref(), &context.clock())?;
                let chosen = if let Some(values) = &values {
                    let is_source = source_filter(sources, patterns);
                    let may_go = |entry: &DirectoryEntry| is_source(entry) && values.can_hold(entry);
                    Chosen::of(context.budget, sensors, sources.len() + 1, may_go).await?
                } else {
                    let (steps, is_wanted) = sensor_filter(sources, condition.as_ref(), patterns)?;
                    Chosen::of(context.budget, sensors, steps, is_wanted).await?
                };
                if matches!(statement, Statement::DropSeries { .. }) && range != TimeRange::default() {
                    return Err(StatementFailure::TimeInDropSeries);
                }
                (range, chosen)
            }
            _ => {
                let measurement = if let Statement::DropMeasurement { name } = statement { &**name } else { "" };
                let is_named = |entry: &DirectoryEntry| *entry.sensor.measurement == *measurement;
                (TimeRange::default(), Chosen::of(context.budget, sensors, 1, is_named).await?)
            }
        };
        let range = range.min.unwrap_or(TIMESTAMP_MIN)..range.max.unwrap_or(TIMESTAMP_MAX).saturating_add(1);
        let sensors = chosen.entries.into_iter().map(|entry| entry.stored).collect();
        Ok(DeleteTargets { database, sensors, range, values, statement: with_renames(statement.to_string(), renames) })
    }

    async fn sensors_now(self, database: &str) -> Result<Sensors, StatementFailure> {
        let sensors = self.engine.directory(self.context.budget, database, Duration::ZERO).await?;
        if sensors.is_empty() && !self.engine.has_database(database).await? {
            return Err(StatementFailure::UnknownDatabase(owner(database).to_owned()));
        }
        // The sensors that a deletion covers must not depend on their current metadata.
        let without_meta = |entry: &DirectoryEntry| DirectoryEntry { meta: None, ..entry.clone() };
        if sensors.iter().any(|entry| entry.meta.is_some()) {
            return Ok(Arc::new(sensors.iter().map(without_meta).collect::<Vec<_>>().into()));
        }
        Ok(sensors)
    }
}

/// The prefix of a remembered deletion of one sensor. The key by which it is shown follows.
const DELETE_SENSOR: &str = "DELETE SENSOR ";
/// The prefix of a remembered deletion in a database with renames. The renames and the statement follow.
const RENAMED: &str = "RENAMED ";

/// Returns the text of a statement with the current renames, so that later renames do not change its targets.
fn with_renames(statement: String, renames: &Renames) -> String {
    if renames.is_empty() {
        return statement;
    }
    let entries: Vec<BTreeMap<_, _>> = renames.entries().iter().map(|entry| entry.fields().collect()).collect();
    format!("{RENAMED}{} {statement}", json!(entries))
}

/// Splits a text of [`with_renames`] into the statement and the renames. Returns `None` if the text is invalid.
fn split_renames(text: &str) -> Option<(&str, Renames)> {
    let Some(text) = text.strip_prefix(RENAMED) else { return Some((text, Renames::default())) };
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let entries = values.next()?.ok()?;
    let entry = |entry: &Value| Rename::from_fields(|name| entry[name].as_str());
    let entries = entries.as_array()?.iter().map(entry).collect::<Option<Vec<_>>>()?;
    Some((text.get(values.byte_offset()..)?.trim_start(), Renames::new(entries)))
}

/// Returns a test that is true for sensors whose readings a statement deletes, or `None` if the text is no such
/// statement. Times in the condition are ignored, because the range is stored separately.
#[must_use]
pub fn sensor_test(statement: &str) -> Option<SensorTest> {
    let (statement, renames) = split_renames(statement)?;
    let is_target = deleted_entries(statement)?;
    Some(Arc::new(move |stored: &Sensor| is_target(&DirectoryEntry::bare(Arc::new(stored.clone())).shown_by(&renames))))
}

/// A test of sensors under the names by which they are shown.
type EntryTest = Box<dyn Fn(&DirectoryEntry) -> bool + Send + Sync>;

fn deleted_entries(statement: &str) -> Option<EntryTest> {
    if let Some(key) = statement.strip_prefix(DELETE_SENSOR) {
        let key = key.to_owned();
        return Some(Box::new(move |entry| *entry.sensor.key == *key));
    }
    let params = Params::new();
    let is_known_zone = |_: &str| true;
    let regex_error = |_: &str| None;
    let options = ParseOptions { params: &params, is_known_zone: &is_known_zone, regex_error: &regex_error };
    let parsed = parse(statement, &options).ok()?;
    let [statement] = &parsed[..] else { return None };
    let patterns = Patterns::compile(statement.patterns(), None).ok()?;
    let statement = statement.clone();
    Some(Box::new(move |entry| match &statement {
        Statement::Delete { sources, condition } | Statement::DropSeries { sources, condition } => {
            let clock = Clock { now: 0, zone: None, resolve: &resolve };
            let Ok((_, condition)) = split(condition.as_ref(), &clock) else { return false };
            sensor_filter(sources, condition.as_ref(), &patterns).is_ok_and(|(_, is_wanted)| is_wanted(entry))
        }
        Statement::DropMeasurement { name } => *entry.sensor.measurement == **name,
        _ => false,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bucket::RenameKind;

    #[test]
    fn a_remembered_deletion_uses_the_renames_of_its_time() {
        let entry = |from: &str, to: &str| Rename {
            kind: RenameKind::TagValue,
            tag: "s".into(),
            measurement: "".into(),
            from: from.into(),
            to: to.into(),
        };
        let renames = Renames::new(vec![entry("a", "b \""), entry("b", "c")]);
        let options = ParseOptions { params: &Params::new(), is_known_zone: &|_| true, regex_error: &|_| None };
        let covered = |condition: &str, renames: &Renames| {
            let statement = parse(&format!("DROP SERIES FROM m WHERE {condition}"), &options).unwrap().remove(0);
            let test = sensor_test(&with_renames(statement.to_string(), renames)).expect("it is a statement");
            let names = ["a", "b", "c"];
            names.into_iter().filter(|s| test(&Sensor::new("m", [("s", *s)]).unwrap())).collect::<String>()
        };
        assert_eq!(covered("s = 'b \"'", &renames), "a");
        assert_eq!(covered("s = 'a'", &renames), "", "nothing is shown so");
        assert_eq!(covered("s = 'c'", &renames), "bc");
        assert_eq!(covered("s != 'c'", &renames), "a");
        assert_eq!(covered("s = 'a'", &Renames::default()), "a");
    }

    #[test]
    fn a_remembered_deletion_of_one_sensor_covers_no_sensor_with_more_tags() {
        let test = sensor_test("DELETE SENSOR m,s=a").expect("it is a statement");
        let covered = |tags: &[(&str, &str)]| test(&Sensor::new("m", tags.iter().copied()).unwrap());
        assert!(covered(&[("s", "a")]));
        assert!(!covered(&[("s", "a"), ("t", "b")]));
        assert!(!covered(&[]));
    }
}
