//! `SHOW …`: lists of what the sensors of a database have.

use std::collections::{BTreeMap, BTreeSet};

use super::rows::{Answer, Cell, list, row_bytes};
use super::select::sensors_in;
use super::{Asked, Series, StatementFailure, resolve};
use crate::access::Caller;
use crate::influxql::{
    Clock, Counted, Expr, KeyFilter, Kind, Listing, Measurement, MeasurementName, Operator, Source, Statement, split,
};
use crate::query::engine::Engine;
use crate::query::engine::choose::CHOOSE;
use crate::query::engine::directory::Entry;
use crate::query::engine::filter::{Found, Lookup, holds};
use crate::query::engine::pattern::Patterns;
use crate::query::engine::plan::{rank, steps};

/// What a SHOW lists; `None` for a statement that changes something.
pub async fn show(
    engine: &Engine,
    statement: &Statement,
    patterns: &Patterns,
    asked: Asked<'_>,
) -> Result<Option<Answer>, StatementFailure> {
    let series = match statement {
        Statement::ShowDatabases => show_databases(engine, asked.by).await?,
        Statement::ShowRetentionPolicies { database } => {
            let database = database.as_deref().or(asked.database).ok_or(StatementFailure::NoDatabase)?;
            sensors_in(engine, database, asked.by).await?;
            policies()
        }
        Statement::ShowMeasurements { matching, listing } => {
            // A database that nobody knows has no measurements; InfluxDB says no more.
            match chosen(engine, listing, patterns, asked).await {
                Ok(chosen) => show_measurements(&chosen, matching.as_ref(), listing),
                Err(StatementFailure::UnknownDatabase(_)) => Vec::new(),
                Err(failed) => return Err(failed),
            }
        }
        Statement::ShowSeries(listing) => show_series(&chosen(engine, listing, patterns, asked).await?, listing),
        Statement::ShowTagKeys { keys, listing } => {
            show_tag_keys(&chosen(engine, listing, patterns, asked).await?, keys.as_ref(), listing)
        }
        Statement::ShowTagValues { keys, listing } => {
            show_tag_values(&chosen(engine, listing, patterns, asked).await?, keys, listing)
        }
        Statement::ShowFieldKeys(listing) => show_field_keys(engine, listing, patterns, asked).await?,
        Statement::ShowCardinality { of, exact, keys, listing, .. } => {
            count(*of, *exact, &chosen(engine, listing, patterns, asked).await?, keys.as_ref())
        }
        _ => return Ok(None),
    };
    let mut held = asked.budget.hold(0)?;
    held.grow(series.iter().flat_map(|series| &series.rows).map(|row| row_bytes(row)).sum())?;
    Ok(Some(Answer { series, held }))
}

/// Those that they may do something with.
async fn show_databases(engine: &Engine, by: &Caller) -> Result<Vec<Series>, StatementFailure> {
    let names = engine.all_databases().await?.into_iter().filter(|name| by.may_read(name) || by.may_write(name));
    let rows: Vec<Vec<Cell>> = names.map(|name| vec![Cell::text(name)]).collect();
    Ok(vec![list(Some("databases"), &["name"], rows)])
}

/// The sensors that a listing is of.
async fn chosen<'p>(
    engine: &Engine,
    listing: &Listing,
    patterns: &'p Patterns,
    asked: Asked<'_>,
) -> Result<Chosen<'p>, StatementFailure> {
    let database = listing.database.as_deref().or(asked.database).ok_or(StatementFailure::NoDatabase)?;
    let sensors = sensors_in(engine, database, asked.by).await?;
    let clock = || Clock { now: asked.now, zone: None, resolve: &resolve };
    let (_, condition) = split(listing.condition.as_ref(), &clock())?;
    let step = CHOOSE / condition.as_ref().map_or(1, steps) / listing.sources.len().max(1);
    let mut all = Chosen { entries: Vec::new(), patterns };
    let mut held = asked.budget.hold(0)?;
    for some in sensors.chunks(step.max(1)) {
        let chosen = choose(some, &listing.sources, condition.as_ref(), patterns)?;
        held.grow(chosen.entries.len() * 2 * size_of::<Entry>())?;
        all.entries.extend(chosen.entries);
        asked.budget.pause().await?;
    }
    Ok(all)
}

async fn show_field_keys(
    engine: &Engine,
    listing: &Listing,
    patterns: &Patterns,
    asked: Asked<'_>,
) -> Result<Vec<Series>, StatementFailure> {
    let database = listing.database.as_deref().or(asked.database).ok_or(StatementFailure::NoDatabase)?;
    let chosen = chosen(engine, listing, patterns, asked).await?;
    let mut fields: BTreeMap<&str, BTreeMap<(&str, u8), &'static str>> = BTreeMap::new();
    let kinds = engine.field_kinds(database, &chosen.entries).await?;
    for entry in &chosen.entries {
        let of_measurement = fields.entry(&entry.sensor.measurement).or_default();
        for (name, family) in entry.fields.iter() {
            of_measurement.insert((name, rank(*family)), kinds.of(&entry.sensor.measurement, name, *family));
        }
    }
    let series = fields.into_iter().map(|(measurement, fields)| {
        let rows = fields.into_iter().map(|((name, _), kind)| vec![Cell::text(name), Cell::text(kind)]).collect();
        list(Some(measurement), &["fieldKey", "fieldType"], cut(rows, listing.offset, listing.limit))
    });
    Ok(with_rows(series))
}

/// The sensors of these measurements, of all where none is named, whose tags fulfil a condition.
pub(super) fn choose<'p>(
    sensors: &[Entry],
    sources: &[Source],
    condition: Option<&Expr>,
    patterns: &'p Patterns,
) -> Result<Chosen<'p>, StatementFailure> {
    if condition.is_some_and(|condition| !is_of_tags(condition)) {
        return Err(StatementFailure::NotOfTags);
    }
    let measurements: Vec<&Measurement> = sources
        .iter()
        .filter_map(|source| if let Source::Measurement(measurement) = source { Some(measurement) } else { None })
        .collect();
    let is_source = |entry: &Entry| {
        measurements.is_empty()
            || measurements.iter().any(|source| is_measurement(source, &entry.sensor.measurement, patterns))
    };
    let holds =
        |entry: &Entry| condition.is_none_or(|condition| holds(condition, &Tags(entry), patterns) == Some(true));
    let entries = sensors.iter().filter(|entry| is_source(entry) && holds(entry)).cloned().collect();
    Ok(Chosen { entries, patterns })
}

/// What a statement is about.
pub(super) struct Chosen<'p> {
    pub(super) entries: Vec<Entry>,
    patterns: &'p Patterns,
}

impl Chosen<'_> {
    fn is_key(&self, keys: Option<&KeyFilter>, key: &str) -> bool {
        match keys {
            None => true,
            Some(KeyFilter::Is(wanted)) => key == wanted,
            Some(KeyFilter::IsNot(unwanted)) => key != unwanted,
            Some(KeyFilter::Matches(pattern)) => self.patterns.matches(pattern, key),
            Some(KeyFilter::MatchesNot(pattern)) => !self.patterns.matches(pattern, key),
            Some(KeyFilter::In(wanted)) => wanted.iter().any(|wanted| wanted == key),
        }
    }
}

/// A sensor's tags; a listing knows no fields.
struct Tags<'a>(&'a Entry);

impl Lookup for Tags<'_> {
    fn find(&self, name: &str, _: Option<Kind>) -> Found {
        if name == "_name" {
            return Found::Tag(self.0.sensor.measurement.to_string());
        }
        Found::Tag(self.0.sensor.tag(name).unwrap_or_default().to_owned())
    }
}

/// Whether a condition only asks whether tags are equal or match.
fn is_of_tags(condition: &Expr) -> bool {
    match condition {
        Expr::Paren(inner) => is_of_tags(inner),
        Expr::Binary { operator: Operator::And | Operator::Or, left, right } => is_of_tags(left) && is_of_tags(right),
        Expr::Binary { operator, .. } => {
            matches!(operator, Operator::Eq | Operator::NotEq | Operator::EqRegex | Operator::NotEqRegex)
        }
        _ => true,
    }
}

fn is_measurement(measurement: &Measurement, name: &str, patterns: &Patterns) -> bool {
    match &measurement.name {
        MeasurementName::Exact(wanted) => wanted == name,
        MeasurementName::Regex(pattern) => patterns.matches(pattern, name),
        MeasurementName::OfSource => false,
    }
}

fn policies() -> Vec<Series> {
    let columns = ["name", "duration", "shardGroupDuration", "replicaN", "default"];
    let whole = |number| Cell::Value(crate::reading::Value::Integer(number));
    let yes = Cell::Value(crate::reading::Value::Boolean(true));
    let row = vec![Cell::text("autogen"), Cell::text("0s"), Cell::text("168h0m0s"), whole(1), yes];
    vec![list(None, &columns, vec![row])]
}

fn cut<T>(rows: Vec<T>, offset: u64, limit: u64) -> Vec<T> {
    let offset = usize::try_from(offset).unwrap_or(usize::MAX);
    let limit = if limit == 0 { usize::MAX } else { usize::try_from(limit).unwrap_or(usize::MAX) };
    rows.into_iter().skip(offset).take(limit).collect()
}

fn with_rows(series: impl Iterator<Item = Series>) -> Vec<Series> {
    series.filter(|series| !series.rows.is_empty()).collect()
}

fn show_measurements(chosen: &Chosen<'_>, matching: Option<&Measurement>, listing: &Listing) -> Vec<Series> {
    let names: BTreeSet<&str> = chosen.entries.iter().map(|entry| &*entry.sensor.measurement).collect();
    let wanted = |name: &&str| matching.is_none_or(|matching| is_measurement(matching, name, chosen.patterns));
    let rows = names.into_iter().filter(wanted).map(|name| vec![Cell::text(name)]).collect();
    let rows = cut(rows, listing.offset, listing.limit);
    with_rows(std::iter::once(list(Some("measurements"), &["name"], rows)))
}

fn show_series(chosen: &Chosen<'_>, listing: &Listing) -> Vec<Series> {
    let mut keys: Vec<&str> = chosen.entries.iter().map(|entry| &*entry.sensor.key).collect();
    keys.sort_unstable();
    let rows = keys.into_iter().map(|key| vec![Cell::text(key)]).collect();
    with_rows(std::iter::once(list(None, &["key"], cut(rows, listing.offset, listing.limit))))
}

fn show_tag_keys(chosen: &Chosen<'_>, keys: Option<&KeyFilter>, listing: &Listing) -> Vec<Series> {
    let mut by_measurement: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for entry in &chosen.entries {
        let tags = entry.sensor.tags.iter().map(|(key, _)| &**key).filter(|key| chosen.is_key(keys, key));
        by_measurement.entry(&entry.sensor.measurement).or_default().extend(tags);
    }
    let series = by_measurement.into_iter().map(|(measurement, keys)| {
        let rows = keys.into_iter().map(|key| vec![Cell::text(key)]).collect();
        list(Some(measurement), &["tagKey"], cut(rows, listing.offset, listing.limit))
    });
    cut(with_rows(series), listing.soffset, listing.slimit)
}

fn show_tag_values(chosen: &Chosen<'_>, keys: &KeyFilter, listing: &Listing) -> Vec<Series> {
    let mut by_measurement: BTreeMap<&str, BTreeSet<(&str, &str)>> = BTreeMap::new();
    for entry in &chosen.entries {
        let tags = entry.sensor.tags.iter().map(|(key, value)| (&**key, &**value));
        let wanted = tags.filter(|(key, _)| chosen.is_key(Some(keys), key));
        by_measurement.entry(&entry.sensor.measurement).or_default().extend(wanted);
    }
    let series = by_measurement.into_iter().map(|(measurement, pairs)| {
        let rows = pairs.into_iter().map(|(key, value)| vec![Cell::text(key), Cell::text(value)]).collect();
        list(Some(measurement), &["key", "value"], cut(rows, listing.offset, listing.limit))
    });
    with_rows(series)
}

fn count(of: Counted, exact: bool, chosen: &Chosen<'_>, keys: Option<&KeyFilter>) -> Vec<Series> {
    let entries = &chosen.entries;
    let number = |count: usize| Cell::Value(crate::reading::Value::Integer(i64::try_from(count).unwrap_or(i64::MAX)));
    let column = if exact { "count" } else { "cardinality estimation" };
    let one = |count: usize| vec![list(None, &[column], vec![vec![number(count)]])];
    let mut by_measurement: BTreeMap<&str, BTreeSet<(&str, &str)>> = BTreeMap::new();
    for entry in entries {
        let counted = by_measurement.entry(&entry.sensor.measurement).or_default();
        let tags = || entry.sensor.tags.iter().filter(|(key, _)| chosen.is_key(keys, key));
        match of {
            Counted::TagKeys => counted.extend(tags().map(|(key, _)| (&**key, ""))),
            Counted::TagValues => counted.extend(tags().map(|(key, value)| (&**key, &**value))),
            Counted::FieldKeys => counted.extend(entry.fields.iter().map(|(name, _)| (&**name, ""))),
            Counted::Series => drop(counted.insert((&*entry.sensor.key, ""))),
            Counted::Measurements => {}
        }
    }
    match of {
        Counted::Measurements => one(by_measurement.len()),
        Counted::Series if !exact => one(entries.len()),
        _ => {
            let series = by_measurement
                .into_iter()
                .map(|(measurement, counted)| list(Some(measurement), &["count"], vec![vec![number(counted.len())]]));
            series.collect()
        }
    }
}
