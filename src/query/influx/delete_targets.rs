//! `DELETE`, `DROP SERIES` and `DROP MEASUREMENT`: which readings of which sensors they delete.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::delete_values::{ValueCondition, about_known_names, must_be_known};
use super::policies::covered;
use super::run::Run;
use super::show::{is_of_tags, of_sources, wanted};
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

/// What a statement deletes.
#[derive(Debug, Clone)]
pub struct DeleteTargets {
    pub database: String,
    pub sensors: Vec<Arc<Sensor>>,
    /// In nanoseconds, half open.
    pub range: Range<i64>,
    /// If the statement's condition names fields: which readings of the sensors it deletes.
    pub values: Option<Arc<ValueCondition>>,
    /// The text from which [`sensors_of`] makes a test of stored sensors.
    pub statement: String,
}

impl Query {
    /// What a statement deletes, in the database and in each of its policies; `None` if it deletes no readings, or a whole
    /// database. Lists the sensors from the store, not from the cache. `before` are the names of its condition that were fields when
    /// this was asked before.
    ///
    /// # Errors
    /// See [`StatementFailure`].
    pub async fn delete_targets(
        &self,
        statement: &Statement,
        asked: StatementContext<'_>,
        before: &BTreeSet<String>,
    ) -> Result<Option<Vec<DeleteTargets>>, StatementFailure> {
        let find = || async {
            if !matches!(
                statement,
                Statement::Delete { .. } | Statement::DropSeries { .. } | Statement::DropMeasurement { .. }
            ) {
                return Ok(None);
            }
            let patterns = Patterns::compile(statement.patterns(), Some(asked.budget))?;
            let run = Run { engine: &self.engine, patterns: &patterns, asked };
            let name = asked.database_or(None)?;
            let mut databases = Vec::new();
            for database in covered(run, name, None).await? {
                let sensors = run.sensors_now(&database).await?;
                databases.push((database, sensors));
            }
            // Together: what a name means in one of them depends on the others.
            let conditions = run.conditions(statement, &databases, before)?;
            let mut conditions = conditions.into_iter().flatten();
            let mut targets = Vec::new();
            for (database, sensors) in databases {
                let renames = run.engine.renames(&database).unwrap_or_default();
                let values = conditions.next().map(|values| Arc::new(values.shown_by(renames.clone())));
                targets.push(run.targets_in(statement, (database, &sensors), values, &renames).await?);
            }
            Ok::<_, StatementFailure>(Some(targets))
        };
        self.in_turn(asked.budget, asked.database.unwrap_or_default(), find).await
    }
}

impl Run<'_> {
    /// The condition in each of the databases if it names fields; else it is one on tags, and all of its names must be tags.
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
        let (_, rest) = split(condition.as_ref(), &self.asked.clock())?;
        let Some(rest) = rest else { return Ok(None) };
        let is_source = of_sources(sources, self.patterns);
        let about = databases.iter().map(|(_, sensors)| sensors.iter().filter(|entry| is_source(entry)).collect());
        let about: Vec<Vec<&DirectoryEntry>> = about.collect();
        let values = match statement {
            Statement::Delete { .. } => ValueCondition::of_all(statement, &rest, &about, before)?,
            _ => None,
        };
        let fields = values.iter().flatten().next().map(ValueCondition::anywhere);
        let is_by_value = values.is_some() || !is_of_tags(&rest);
        // What another instance has acked and not stored is covered, and not known here.
        let is_any_known = about.iter().any(|sensors| !sensors.is_empty());
        if before.is_empty() && (is_any_known || self.engine.store.raw().has_other_writers()) {
            must_be_known(&rest, about.iter().flatten().copied(), fields, self.patterns)?;
        }
        if before.is_empty() && is_by_value && matches!(statement, Statement::Delete { .. }) {
            about_known_names(&rest, &about, fields)?;
        }
        Ok(values)
    }

    async fn targets_in(
        self,
        statement: &Statement,
        (database, sensors): (String, &[DirectoryEntry]),
        values: Option<Arc<ValueCondition>>,
        renames: &Renames,
    ) -> Result<DeleteTargets, StatementFailure> {
        let Self { patterns, asked, .. } = self;
        let (range, chosen) = match statement {
            Statement::Delete { sources, condition } | Statement::DropSeries { sources, condition } => {
                let (range, condition) = split(condition.as_ref(), &asked.clock())?;
                let chosen = if let Some(values) = &values {
                    let is_source = of_sources(sources, patterns);
                    let may_go = |entry: &DirectoryEntry| is_source(entry) && values.may_hold(entry);
                    Chosen::of(asked.budget, sensors, sources.len() + 1, may_go).await?
                } else {
                    let (steps, is_wanted) = wanted(sources, condition.as_ref(), patterns)?;
                    Chosen::of(asked.budget, sensors, steps, is_wanted).await?
                };
                if matches!(statement, Statement::DropSeries { .. }) && range != TimeRange::default() {
                    return Err(StatementFailure::TimeInDropSeries);
                }
                (range, chosen)
            }
            _ => {
                let measurement = if let Statement::DropMeasurement { name } = statement { &**name } else { "" };
                let is_named = |entry: &DirectoryEntry| *entry.sensor.measurement == *measurement;
                (TimeRange::default(), Chosen::of(asked.budget, sensors, 1, is_named).await?)
            }
        };
        let range = range.min.unwrap_or(TIMESTAMP_MIN)..range.max.unwrap_or(TIMESTAMP_MAX).saturating_add(1);
        let sensors = chosen.entries.into_iter().map(|entry| entry.stored).collect();
        Ok(DeleteTargets { database, sensors, range, values, statement: with_renames(statement, renames) })
    }

    async fn sensors_now(self, database: &str) -> Result<Sensors, StatementFailure> {
        let sensors = self.engine.directory(self.asked.budget, database, Duration::ZERO).await?;
        if sensors.is_empty() && !self.engine.has_database(database).await? {
            return Err(StatementFailure::UnknownDatabase(owner(database).to_owned()));
        }
        // Which sensors a deletion covers must not depend on what is said of them at a moment.
        let without = |entry: &DirectoryEntry| DirectoryEntry { meta: None, ..entry.clone() };
        Ok(match sensors.iter().any(|entry| entry.meta.is_some()) {
            true => Arc::new(sensors.iter().map(without).collect::<Vec<_>>().into()),
            false => sensors,
        })
    }
}

/// The first word of a remembered deletion in a database with renames, before the renames and the statement.
const RENAMED: &str = "RENAMED ";

/// The text of a statement with the renames by which its names are meant, so that later ones do not change what it deletes.
fn with_renames(statement: &Statement, renames: &Renames) -> String {
    if renames.is_empty() {
        return statement.to_string();
    }
    let entries: Vec<BTreeMap<_, _>> = renames.entries().iter().map(|entry| entry.fields().collect()).collect();
    format!("{RENAMED}{} {statement}", json!(entries))
}

/// The statement and the renames of such a text; `None` if it is none.
fn split_renames(text: &str) -> Option<(&str, Renames)> {
    let Some(text) = text.strip_prefix(RENAMED) else { return Some((text, Renames::default())) };
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let entries = values.next()?.ok()?;
    let entry = |entry: &Value| Rename::from_fields(|name| entry[name].as_str());
    let entries = entries.as_array()?.iter().map(entry).collect::<Option<Vec<_>>>()?;
    Some((text.get(values.byte_offset()..)?.trim_start(), Renames::new(entries)))
}

/// A test whether a statement deletes readings of a sensor; `None` if the text is not such a statement. Times in the
/// condition are ignored: the range is stored beside the statement.
#[must_use]
pub fn sensors_of(statement: &str) -> Option<SensorTest> {
    let (statement, renames) = split_renames(statement)?;
    let (params, known_zone, regex_error) = (Params::new(), |_: &str| true, |_: &str| None);
    let options = ParseOptions { params: &params, known_zone: &known_zone, regex_error: &regex_error };
    let parsed = parse(statement, &options).ok()?;
    let [statement] = &parsed[..] else { return None };
    let patterns = Patterns::compile(statement.patterns(), None).ok()?;
    let statement = statement.clone();
    let is_about = move |entry: &DirectoryEntry| match &statement {
        Statement::Delete { sources, condition } | Statement::DropSeries { sources, condition } => {
            let clock = Clock { now: 0, zone: None, resolve: &resolve };
            let Ok((_, condition)) = split(condition.as_ref(), &clock) else { return false };
            wanted(sources, condition.as_ref(), &patterns).is_ok_and(|(_, is_wanted)| is_wanted(entry))
        }
        Statement::DropMeasurement { name } => *entry.sensor.measurement == **name,
        _ => false,
    };
    Some(Arc::new(move |stored: &Sensor| is_about(&DirectoryEntry::bare(Arc::new(stored.clone())).shown_by(&renames))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bucket::RenameKind;

    #[test]
    fn a_remembered_deletion_is_about_what_was_shown_under_its_names() {
        let entry = |from: &str, to: &str| Rename {
            kind: RenameKind::TagValue,
            tag: "s".into(),
            measurement: "".into(),
            from: from.into(),
            to: to.into(),
        };
        let renames = Renames::new(vec![entry("a", "b \""), entry("b", "c")]);
        let options = ParseOptions { params: &Params::new(), known_zone: &|_| true, regex_error: &|_| None };
        let covered = |condition: &str, renames: &Renames| {
            let statement = parse(&format!("DROP SERIES FROM m WHERE {condition}"), &options).unwrap().remove(0);
            let test = sensors_of(&with_renames(&statement, renames)).expect("it is a statement");
            let names = ["a", "b", "c"];
            names.into_iter().filter(|s| test(&Sensor::new("m", [("s", *s)]).unwrap())).collect::<String>()
        };
        assert_eq!(covered("s = 'b \"'", &renames), "a");
        assert_eq!(covered("s = 'a'", &renames), "", "nothing is shown so");
        assert_eq!(covered("s = 'c'", &renames), "bc");
        assert_eq!(covered("s != 'c'", &renames), "a");
        assert_eq!(covered("s = 'a'", &Renames::default()), "a");
    }
}
