//! `DELETE`, `DROP SERIES` and `DROP MEASUREMENT`: which readings of which sensors they delete.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::delete_values::{ValueCondition, about_known_names, must_be_known};
use super::policies::covered;
use super::show::{is_of_tags, of_sources, wanted};
use super::statement::{StatementContext, StatementFailure};
use super::zones::resolve;
use crate::bucket::deletions::SensorTest;
use crate::bucket::relabel::shown_from;
use crate::bucket::settings::owner;
use crate::bucket::{Relabel, Relabels};
use crate::influxql::{Clock, Expr, FromSource, Params, ParseOptions, Statement, TimeRange, parse, split};
use crate::query::engine::Engine;
use crate::query::engine::choose::Chosen;
use crate::query::engine::directory::{DirectoryEntry, Sensors};
use crate::query::engine::memory::CHOOSE;
use crate::query::engine::present::named_at;
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

/// What a statement deletes, in the database and in each of its policies; `None` if it deletes no readings, or a whole
/// database. Lists the sensors from the store, not from the cache. `before` are the names of its condition that were fields when
/// this was asked before.
///
/// # Errors
/// See [`StatementFailure`].
pub async fn delete_targets(
    engine: &Engine,
    statement: &Statement,
    asked: StatementContext<'_>,
    before: &BTreeSet<String>,
) -> Result<Option<Vec<DeleteTargets>>, StatementFailure> {
    if !matches!(statement, Statement::Delete { .. } | Statement::DropSeries { .. } | Statement::DropMeasurement { .. })
    {
        return Ok(None);
    }
    let patterns = Patterns::compile(statement.patterns(), Some(asked.budget))?;
    let name = asked.database.ok_or(StatementFailure::NoDatabase)?;
    let mut databases = Vec::new();
    for database in covered(engine, name, None, asked).await? {
        let sensors = sensors_now(engine, &database, asked).await?;
        databases.push((database, sensors));
    }
    // Together: what a name means in one of them depends on the others.
    let conditions = conditions(engine, statement, asked, (&databases, &patterns), before)?;
    let mut conditions = conditions.into_iter().flatten();
    let mut targets = Vec::new();
    for (database, sensors) in databases {
        match (engine.relabels(&database), conditions.next()) {
            (Some(relabels), None) => {
                targets.extend(relabelled_targets(engine, statement, asked, (&database, &relabels), &patterns).await?);
            }
            (Some(relabels), Some(values)) => {
                targets.push(shown_target(engine, statement, asked, (database, relabels), values).await?);
            }
            (None, values) => {
                let values = values.map(Arc::new);
                targets.push(targets_in(statement, asked, (database, &sensors), (&patterns, values)).await?);
            }
        }
    }
    Ok(Some(targets))
}

/// The condition in each of the databases if it names fields; else it is one on tags, and all of its names must be tags.
fn conditions(
    engine: &Engine,
    statement: &Statement,
    asked: StatementContext<'_>,
    (databases, patterns): (&[(String, Sensors)], &Patterns),
    before: &BTreeSet<String>,
) -> Result<Option<Vec<ValueCondition>>, StatementFailure> {
    let (Statement::Delete { sources, condition } | Statement::DropSeries { sources, condition }) = statement else {
        return Ok(None);
    };
    let (_, rest) = split(condition.as_ref(), &Clock { now: asked.now, zone: None, resolve: &resolve })?;
    let Some(rest) = rest else { return Ok(None) };
    let is_source = of_sources(sources, patterns);
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
    if before.is_empty() && (is_any_known || engine.store.raw().has_other_writers()) {
        must_be_known(&rest, about.iter().flatten().copied(), fields, patterns)?;
    }
    if before.is_empty() && is_by_value && matches!(statement, Statement::Delete { .. }) {
        about_known_names(&rest, &about, fields)?;
    }
    Ok(values)
}

async fn targets_in(
    statement: &Statement,
    asked: StatementContext<'_>,
    (database, sensors): (String, &[DirectoryEntry]),
    (patterns, values): (&Patterns, Option<Arc<ValueCondition>>),
) -> Result<DeleteTargets, StatementFailure> {
    let (range, chosen) = match statement {
        Statement::Delete { sources, condition } => match &values {
            Some(values) => {
                let (range, _) = split(condition.as_ref(), &Clock { now: asked.now, zone: None, resolve: &resolve })?;
                let is_source = of_sources(sources, patterns);
                let may_go = |entry: &DirectoryEntry| is_source(entry) && values.may_hold(entry);
                (range, Chosen::of(asked.budget, sensors, sources.len() + 1, may_go).await?)
            }
            None => matching(sensors, sources, condition.as_ref(), patterns, asked).await?,
        },
        Statement::DropSeries { sources, condition } => {
            let (range, chosen) = matching(sensors, sources, condition.as_ref(), patterns, asked).await?;
            if range != TimeRange::default() {
                return Err(StatementFailure::TimeInDropSeries);
            }
            (range, chosen)
        }
        _ => {
            let measurement = if let Statement::DropMeasurement { name } = statement { &**name } else { "" };
            let is_named = |entry: &DirectoryEntry| entry.names().any(|name| *name.measurement == *measurement);
            (TimeRange::default(), Chosen::of(asked.budget, sensors, 1, is_named).await?)
        }
    };
    let range = range.min.unwrap_or(TIMESTAMP_MIN)..range.max.unwrap_or(TIMESTAMP_MAX).saturating_add(1);
    let sensors = chosen.entries.into_iter().map(|entry| entry.sensor).collect();
    Ok(DeleteTargets { database, sensors, range, values, statement: statement.to_string() })
}

/// A part of time in which no name changes.
struct PartOfTime {
    range: Range<i64>,
    /// A time by which names are meant in it.
    at: i64,
    /// Of each stored sensor, whether the statement selects it by its name in this part.
    chosen: Vec<bool>,
}

/// What a statement deletes of a database with relabels: exactly what is shown under the names that it selects. Sensors that it
/// selects in the same parts of time, one after the other, make one target, so those whose name it always selects go as a whole.
async fn relabelled_targets(
    engine: &Engine,
    statement: &Statement,
    asked: StatementContext<'_>,
    (database, relabels): (&str, &Relabels),
    patterns: &Patterns,
) -> Result<Vec<DeleteTargets>, StatementFailure> {
    let (stored, _) = engine.as_stored(asked.budget, database).await?;
    let stored: Vec<DirectoryEntry> = stored.into_iter().map(|entry| DirectoryEntry { meta: None, ..entry }).collect();
    let readings_from = engine.settings.now().readings_from(database, asked.now).unwrap_or(i64::MIN);
    let starts: Vec<i64> = std::iter::once(i64::MIN).chain(relabels.starts()).collect();
    let border = |place: usize| starts.get(place).map_or(i64::MAX, |start| shown_from(*start, readings_from));
    let (mut parts, mut held) = (Vec::new(), asked.budget.hold(0)?);
    for (place, at) in starts.iter().copied().enumerate() {
        held.grow(stored.len())?;
        let of_names = (database, relabels, &*stored);
        let part = part_of_time(statement, asked, of_names, (at, border(place)..border(place + 1)), patterns).await?;
        parts.extend((!part.range.is_empty()).then_some(part));
    }
    let target = |(first, end): (usize, usize), sensors: Vec<Arc<Sensor>>| {
        let at: Vec<i64> = parts[first..end].iter().map(|part| part.at).collect();
        DeleteTargets {
            database: database.to_owned(),
            sensors,
            range: parts[first].range.start..parts[end - 1].range.end,
            values: None,
            statement: relabelled_statement(statement, relabels, &at),
        }
    };
    let mut runs = runs_of(asked, &stored, &parts).await?;
    if engine.store.raw().has_other_writers() {
        // Another instance may have acked readings of sensors that are not known here, selected in any part.
        for part in 0..parts.len() {
            runs.entry((part, part + 1)).or_default();
        }
    } else if runs.is_empty() && !parts.is_empty() {
        runs.insert((0, parts.len()), Vec::new());
    }
    Ok(runs.into_iter().map(|(run, sensors)| target(run, sensors)).collect())
}

/// Which of the stored sensors a statement selects by their names at a time, which they have in a range of times. Fails where a query would
/// select others, by other spellings of the names.
async fn part_of_time(
    statement: &Statement,
    asked: StatementContext<'_>,
    (database, relabels, stored): (&str, &Relabels, &[DirectoryEntry]),
    (at, times): (i64, Range<i64>),
    patterns: &Patterns,
) -> Result<PartOfTime, StatementFailure> {
    let (mut named, mut spelled) = (Vec::with_capacity(stored.len()), Vec::new());
    let mut places: HashMap<Box<str>, Vec<usize>> = HashMap::new();
    for (chunk, some) in stored.chunks(CHOOSE).enumerate() {
        for (place, entry) in some.iter().enumerate() {
            let shown = named_at(entry, relabels, at);
            places.entry(shown.sensor.key.clone()).or_default().push(chunk * CHOOSE + place);
            spelled.extend(shown.others.is_some().then(|| shown.clone()));
            named.push(shown.without_others());
        }
        asked.budget.pause().await?;
    }
    let target = targets_in(statement, asked, (database.to_owned(), &named), (patterns, None)).await?;
    let range = target.range.start.max(times.start)..target.range.end.min(times.end);
    if !spelled.is_empty() && !range.is_empty() {
        let queried = targets_in(statement, asked, (database.to_owned(), &spelled), (patterns, None)).await?;
        same_by_present_names(&spelled, &queried.sensors, &target.sensors)?;
    }
    let mut chosen = vec![false; stored.len()];
    for place in target.sensors.iter().filter_map(|sensor| places.get(&sensor.key)).flatten() {
        chosen[*place] = true;
    }
    Ok(PartOfTime { range, at, chosen })
}

/// Checks that of sensors which have other spellings those that a query would select are those that are selected by present names.
///
/// # Errors
/// [`StatementFailure::OldName`].
fn same_by_present_names(
    spelled: &[DirectoryEntry],
    queried: &[Arc<Sensor>],
    selected: &[Arc<Sensor>],
) -> Result<(), StatementFailure> {
    let keys = |sensors: &[Arc<Sensor>]| sensors.iter().map(|sensor| sensor.key.clone()).collect::<HashSet<_>>();
    let (queried, selected) = (keys(queried), keys(selected));
    let differs = |entry: &&DirectoryEntry| queried.contains(&entry.sensor.key) != selected.contains(&entry.sensor.key);
    spelled.iter().find(differs).map_or(Ok(()), |entry| Err(old_name(entry)))
}

/// The refusal of a deletion that means this sensor by another spelling.
fn old_name(entry: &DirectoryEntry) -> StatementFailure {
    let old = entry.spellings().next().map(|old| old.key.to_string()).unwrap_or_default();
    StatementFailure::OldName { present: entry.sensor.key.to_string(), old }
}

/// The stored sensors by the parts of time, one after the other without a gap, in which they are selected.
async fn runs_of(
    asked: StatementContext<'_>,
    stored: &[DirectoryEntry],
    parts: &[PartOfTime],
) -> Result<BTreeMap<(usize, usize), Vec<Arc<Sensor>>>, StatementFailure> {
    let mut runs: BTreeMap<(usize, usize), Vec<Arc<Sensor>>> = BTreeMap::new();
    for (place, entry) in stored.iter().enumerate() {
        let mut first = None;
        for part in 0..=parts.len() {
            let is_chosen = parts.get(part).is_some_and(|part| part.chosen[place]);
            if is_chosen {
                first = first.or(Some(part));
            } else if let Some(first) = first.take() {
                runs.entry((first, part)).or_default().push(entry.sensor.clone());
            }
        }
        if place % CHOOSE == 0 {
            asked.budget.pause().await?;
        }
    }
    Ok(runs)
}

/// What a deletion by value is about in a database with relabels: the stored sensors that are shown under names which it may be about.
/// Where several are shown as one, a reading has values of each: the condition cannot be asked of one of them.
async fn shown_target(
    engine: &Engine,
    statement: &Statement,
    asked: StatementContext<'_>,
    (database, relabels): (String, Relabels),
    values: ValueCondition,
) -> Result<DeleteTargets, StatementFailure> {
    let Statement::Delete { sources, condition } = statement else {
        return Err(StatementFailure::Unsupported(statement.to_string()));
    };
    let (range, _) = split(condition.as_ref(), &Clock { now: asked.now, zone: None, resolve: &resolve })?;
    let range = range.min.unwrap_or(TIMESTAMP_MIN)..range.max.unwrap_or(TIMESTAMP_MAX).saturating_add(1);
    let values = values.shown_by(relabels, sources.clone());
    let (stored, _) = engine.as_stored(asked.budget, &database).await?;
    let (mut sensors, mut shown) = (Vec::new(), HashSet::new());
    for some in stored.chunks(CHOOSE) {
        for entry in some {
            let is_asked = |times: &Range<i64>| times.start < range.end && range.start < times.end;
            if let Some((_, meant)) =
                values.meant_otherwise(&entry.sensor).into_iter().find(|(times, _)| is_asked(times))
            {
                return Err(old_name(&meant));
            }
            let mut names = values.names_of(&entry.sensor).into_iter().filter(|(times, _)| is_asked(times)).peekable();
            if names.peek().is_some() {
                sensors.push(entry.sensor.clone());
            }
            for (times, name) in names {
                if let Some((_, name)) = shown.replace((times.start, name.sensor.key.clone())) {
                    return Err(StatementFailure::Unsupported(format!(
                        "a deletion by field values of sensors that are shown as one, such as {name} (delete by time, or take the relabel back first)"
                    )));
                }
            }
        }
        asked.budget.pause().await?;
    }
    Ok(DeleteTargets { database, sensors, range, values: Some(Arc::new(values)), statement: statement.to_string() })
}

/// What a remembered deletion of a database with relabels begins with; behind it the relabels and the times at which names are meant.
const RELABELLED: &str = "RELABELLED ";

/// A statement with the relabels by which its names are meant: later ones change nothing of what it deletes. It is about sensors that it
/// selects at each of these times, which are in order.
fn relabelled_statement(statement: &Statement, relabels: &Relabels, at: &[i64]) -> String {
    let last = at.last().copied().unwrap_or(i64::MIN);
    let rules = relabels.rules().iter().filter(|rule| rule.since.is_none_or(|since| since <= last));
    let rule = |rule: &Relabel| {
        let fields = rule.fields().into_iter().filter(|(name, _)| !UNSAID.contains(name));
        Value::Object(fields.map(|(name, text)| (name.to_owned(), Value::from(text))).collect())
    };
    let meant = json!({ "at": at, "rules": rules.map(rule).collect::<Vec<_>>() });
    format!("{RELABELLED}{meant} {statement}")
}

/// What a rule does not need to say to name sensors: the registry has room for few bytes.
const UNSAID: [&str; 5] = ["id", "made", "stamp", "by", "final"];

/// The statement, the relabels and the times; `None` for a text that is no such statement.
fn relabelled(text: &str) -> Option<(&str, Relabels, Vec<i64>)> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let meant = values.next()?.ok()?;
    let unsaid = |name: &str| UNSAID.contains(&name).then(|| "0".to_owned());
    let rule =
        |rule: &Value| Relabel::of_fields(|name| rule[name].as_str().map(str::to_owned).or_else(|| unsaid(name)));
    let rules = meant["rules"].as_array()?.iter().map(rule).collect::<Option<Vec<_>>>()?;
    let at = meant["at"].as_array()?.iter().map(Value::as_i64).collect::<Option<Vec<_>>>()?;
    Some((text.get(values.byte_offset()..)?.trim_start(), Relabels::new(rules), at))
}

async fn sensors_now(
    engine: &Engine,
    database: &str,
    asked: StatementContext<'_>,
) -> Result<Sensors, StatementFailure> {
    let sensors = engine.directory(asked.budget, database, Duration::ZERO).await?;
    if sensors.is_empty() && !engine.has_database(database).await? {
        return Err(StatementFailure::UnknownDatabase(owner(database).to_owned()));
    }
    // Which sensors a deletion covers must not depend on what is said of them at a moment.
    let without = |entry: &DirectoryEntry| DirectoryEntry { meta: None, ..entry.clone() };
    Ok(match sensors.iter().any(|entry| entry.meta.is_some()) {
        true => Arc::new(sensors.iter().map(without).collect::<Vec<_>>().into()),
        false => sensors,
    })
}

/// A test whether a statement deletes readings of a sensor; `None` if the text is not such a statement. Times in the
/// condition are ignored: the range is stored beside the statement.
#[must_use]
pub fn sensors_of(statement: &str) -> Option<SensorTest> {
    let (statement, relabels, at) = match statement.strip_prefix(RELABELLED) {
        Some(rest) => relabelled(rest)?,
        None => (statement, Relabels::default(), Vec::new()),
    };
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
        Statement::DropMeasurement { name } => entry.names().any(|of| *of.measurement == **name),
        _ => false,
    };
    Some(Arc::new(move |sensor: &Sensor| {
        let sensor = Arc::new(sensor.clone());
        let starts = if relabels.is_empty() { BTreeSet::new() } else { relabels.starts_of(&sensor) };
        let entry = DirectoryEntry { sensor, fields: Arc::new([]), meta: None, others: None };
        if relabels.is_empty() {
            return is_about(&entry);
        }
        // Once for the times between which its names stay the same.
        let mut last = None;
        at.iter().all(|at| {
            let since = starts.range(..=*at).next_back().copied();
            last.replace(since) == Some(since) || is_about(&named_at(&entry, &relabels, *at).without_others())
        })
    }))
}

async fn matching(
    sensors: &[DirectoryEntry],
    sources: &[FromSource],
    condition: Option<&Expr>,
    patterns: &Patterns,
    asked: StatementContext<'_>,
) -> Result<(TimeRange, Chosen), StatementFailure> {
    let (range, condition) = split(condition, &Clock { now: asked.now, zone: None, resolve: &resolve })?;
    let (steps, is_wanted) = wanted(sources, condition.as_ref(), patterns)?;
    Ok((range, Chosen::of(asked.budget, sensors, steps, is_wanted).await?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bucket::Renaming;

    fn rule(from: &str, to: &str, since: Option<i64>) -> Relabel {
        let renaming = Renaming::TagValue { measurement: None, tag: "s".into(), from: from.into(), to: to.into() };
        Relabel { id: 7, renaming, since, made: 5, stamp: 6, by: "somebody".to_owned(), is_final: true }
    }

    #[test]
    fn a_remembered_deletion_is_about_sensors_that_have_the_name_at_each_of_its_times() {
        let relabels = Relabels::new(vec![rule("a", "b", Some(100)), rule("c", "d", None), rule("b", "e", Some(200))]);
        let options = ParseOptions { params: &Params::new(), known_zone: &|_| true, regex_error: &|_| None };
        let covered = |condition: &str, at: &[i64]| {
            let statement = parse(&format!("DROP SERIES FROM m WHERE {condition}"), &options).unwrap().remove(0);
            let text = relabelled_statement(&statement, &relabels, at);
            assert!(!text.contains("somebody") && text.contains("since") == (at.last() >= Some(&100)), "{text}");
            let test = sensors_of(&text).expect("it is a statement");
            let names = ["a", "b", "c", "d", "e", "x"];
            names.into_iter().filter(|s| test(&Sensor::new("m", [("s", *s)]).unwrap())).collect::<String>()
        };
        let always = [i64::MIN, 100, 200];
        assert_eq!(covered("s = 'a'", &[i64::MIN]), "a");
        assert_eq!(covered("s = 'a'", &always), "", "it has the name for a part of the time");
        assert_eq!(covered("s = 'b'", &[i64::MIN]), "b");
        assert_eq!(covered("s = 'b'", &[100]), "ab");
        assert_eq!(covered("s = 'b'", &always), "", "it is e in the end");
        assert_eq!(covered("s = 'e'", &[200]), "abe");
        assert_eq!(covered("s = 'e'", &[i64::MIN, 100]), "e");
        assert_eq!(covered("s = 'e'", &always), "e");
        assert_eq!(covered("s = 'd'", &always), "cd");
        assert_eq!(covered("s = 'c'", &always), "", "nothing is shown as it");
        assert_eq!(covered("s = 'x'", &always), "x");
        assert_eq!(covered("s != 'q'", &always), "abcdex");
    }
}
