//! `SHOW …`: lists of what the sensors of a database have.

use std::collections::{BTreeMap, BTreeSet};

use super::rows::{Answer, Cell, Rows, Series, row_bytes};
use super::select::sensors_in;
use super::{Asked, StatementFailure, resolve};
use crate::access::Caller;
use crate::influxql::{
    Clock, Counted, Expr, KeyFilter, Kind, Listing, Measurement, MeasurementName, Operator, Source, Statement, split,
};
use crate::query::engine::Engine;
use crate::query::engine::choose::{CHOOSE, Chosen, NAME_BYTES};
use crate::query::engine::directory::{Entry, Kinds};
use crate::query::engine::filter::{Found, Lookup, holds};
use crate::query::engine::pattern::Patterns;
use crate::query::engine::plan::{rank, steps};
use crate::query::{Budget, Held, QueryError};
use crate::reading::Value;

/// What a SHOW lists; `None` for a statement that changes something.
pub async fn show(
    engine: &Engine,
    statement: &Statement,
    patterns: &Patterns,
    asked: Asked<'_>,
) -> Result<Option<Answer>, StatementFailure> {
    let mut answer = Answer { series: Vec::new(), held: asked.budget.hold(0)? };
    let of = |listing| listed(engine, listing, patterns, asked);
    match statement {
        Statement::ShowDatabases => show_databases(engine, asked.by, &mut answer).await?,
        Statement::ShowRetentionPolicies { database } => {
            let database = database.as_deref().or(asked.database).ok_or(StatementFailure::NoDatabase)?;
            sensors_in(engine, database, asked).await?;
            show_policies(&mut answer).await?;
        }
        Statement::ShowMeasurements { matching, listing } => {
            // A database that nobody knows has no measurements; InfluxDB says no more.
            match of(listing).await {
                Ok(listed) => listed.measurements(matching.as_ref(), &mut answer).await?,
                Err(StatementFailure::UnknownDatabase(_)) => {}
                Err(failed) => return Err(failed),
            }
        }
        Statement::ShowSeries(listing) => of(listing).await?.series(&mut answer).await?,
        Statement::ShowTagKeys { keys, listing } => {
            let all = Gathering { of: Counted::TagKeys, keys: keys.as_ref(), kinds: None };
            of(listing).await?.by_measurement(&["tagKey"], all, &mut answer).await?;
            answer.series = cut(answer.series, listing.soffset, listing.slimit).collect();
        }
        Statement::ShowTagValues { keys, listing } => {
            let all = Gathering { of: Counted::TagValues, keys: Some(keys), kinds: None };
            of(listing).await?.by_measurement(&["key", "value"], all, &mut answer).await?;
        }
        Statement::ShowFieldKeys(listing) => {
            let listed = of(listing).await?;
            let kinds = engine.field_kinds(asked.budget, listed.database, &listed.chosen.entries).await?;
            let all = Gathering { of: Counted::FieldKeys, keys: None, kinds: Some(&kinds) };
            listed.by_measurement(&["fieldKey", "fieldType"], all, &mut answer).await?;
        }
        Statement::ShowCardinality { of: counted, exact, keys, listing, .. } => {
            let all = Gathering { of: *counted, keys: keys.as_ref(), kinds: None };
            of(listing).await?.count(*exact, all, &mut answer).await?;
        }
        _ => return Ok(None),
    }
    Ok(Some(answer))
}

/// Those that they may do something with.
async fn show_databases(engine: &Engine, by: &Caller, answer: &mut Answer) -> Result<(), QueryError> {
    let names = engine.all_databases().await?.into_iter().filter(|name| by.may_read(name) || by.may_write(name));
    let rows: Vec<_> = names.map(|name| vec![Cell::text(name)]).collect();
    answer.held.grow(rows.iter().map(|row| row_bytes(row)).sum())?;
    let (name, columns) = (Some("databases".to_owned()), vec!["name".to_owned()]);
    answer.series.push(Series { name, columns, rows, ..Series::default() });
    Ok(())
}

async fn show_policies(answer: &mut Answer) -> Result<(), QueryError> {
    let columns = ["name", "duration", "shardGroupDuration", "replicaN", "default"];
    let yes = Cell::Value(Value::Boolean(true));
    let row = vec![Cell::text("autogen"), Cell::text("0s"), Cell::text("168h0m0s"), number(1), yes];
    answer.list(None, &columns, one(row)).await
}

/// The sensors that a listing is of.
async fn listed<'a>(
    engine: &Engine,
    listing: &'a Listing,
    patterns: &'a Patterns,
    asked: Asked<'a>,
) -> Result<Listed<'a>, StatementFailure> {
    let database = listing.database.as_deref().or(asked.database).ok_or(StatementFailure::NoDatabase)?;
    let sensors = sensors_in(engine, database, asked).await?;
    let (_, condition) = split(listing.condition.as_ref(), &Clock { now: asked.now, zone: None, resolve: &resolve })?;
    let (steps, is_wanted) = wanted(&listing.sources, condition.as_ref(), patterns)?;
    let chosen = sensors.choose(asked, steps, &is_wanted).await?;
    Ok(Listed { database, chosen, patterns, listing, budget: asked.budget })
}

/// Whether a sensor is of one of these measurements, of any where none is named, and its tags fulfil a condition; and
/// how many steps it takes to say so.
pub(super) fn wanted<'a>(
    sources: &'a [Source],
    condition: Option<&'a Expr>,
    patterns: &'a Patterns,
) -> Result<(usize, impl Fn(&Entry) -> bool + 'a), StatementFailure> {
    if condition.is_some_and(|condition| !is_of_tags(condition)) {
        return Err(StatementFailure::NotOfTags);
    }
    let measurements: Vec<&Measurement> = sources
        .iter()
        .filter_map(|source| if let Source::Measurement(measurement) = source { Some(measurement) } else { None })
        .collect();
    let is_source = move |entry: &Entry| {
        measurements.is_empty()
            || measurements.iter().any(|source| is_measurement(source, &entry.sensor.measurement, patterns))
    };
    let holds =
        move |entry: &Entry| condition.is_none_or(|condition| holds(condition, &Tags(entry), patterns) == Some(true));
    let steps = condition.map_or(1, steps) * sources.len().max(1);
    Ok((steps, move |entry: &Entry| is_source(entry) && holds(entry)))
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

/// Of what a limit of 0 does not bound, the part asked for.
fn cut<T>(rows: impl IntoIterator<Item = T>, offset: u64, limit: u64) -> impl Iterator<Item = T> {
    let offset = usize::try_from(offset).unwrap_or(usize::MAX);
    let limit = if limit == 0 { usize::MAX } else { usize::try_from(limit).unwrap_or(usize::MAX) };
    rows.into_iter().skip(offset).take(limit)
}

fn one(row: Vec<Cell>) -> Rows<'static> {
    Box::new(std::iter::once(row))
}

fn number(count: usize) -> Cell {
    Cell::Value(Value::Integer(i64::try_from(count).unwrap_or(i64::MAX)))
}

/// What a listing is of.
struct Listed<'a> {
    database: &'a str,
    chosen: Chosen,
    patterns: &'a Patterns,
    listing: &'a Listing,
    budget: &'a Budget,
}

/// What is gathered of the sensors.
#[derive(Clone, Copy)]
struct Gathering<'a> {
    of: Counted,
    /// Of which tags.
    keys: Option<&'a KeyFilter>,
    /// What fields are called beside their names.
    kinds: Option<&'a Kinds>,
}

/// Names with what stands beside them, once each, by measurement. Between the two is what they are sorted by.
type Gathered<'a> = BTreeMap<&'a str, BTreeSet<(&'a str, u8, &'a str)>>;

impl Listed<'_> {
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

    async fn gathered(&self, Gathering { of, keys, kinds }: Gathering<'_>) -> Result<(Gathered<'_>, Held), QueryError> {
        let (mut all, mut held, mut count) = (Gathered::new(), self.budget.hold(0)?, 0);
        for some in self.chosen.entries.chunks(CHOOSE) {
            for Entry { sensor, fields } in some {
                let known = all.entry(&*sensor.measurement).or_default();
                let before = known.len();
                let tags = sensor.tags.iter().filter(|(key, _)| self.is_key(keys, key));
                let fields = fields.iter().map(|(name, family)| match kinds {
                    Some(kinds) => (&**name, rank(*family), kinds.of(&sensor.measurement, name, *family)),
                    None => (&**name, 0, ""),
                });
                match of {
                    Counted::TagKeys => known.extend(tags.map(|(key, _)| (&**key, 0, ""))),
                    Counted::TagValues => known.extend(tags.map(|(key, value)| (&**key, 0, &**value))),
                    Counted::FieldKeys => known.extend(fields),
                    Counted::Series => drop(known.insert((&*sensor.key, 0, ""))),
                    Counted::Measurements => {}
                }
                count += known.len() - before;
            }
            held.set((all.len() + count) * NAME_BYTES)?;
            self.budget.pause().await?;
        }
        Ok((all, held))
    }

    /// A series for each measurement that has rows.
    async fn by_measurement(
        &self,
        columns: &[&str],
        gathering: Gathering<'_>,
        answer: &mut Answer,
    ) -> Result<(), QueryError> {
        let (all, _held) = self.gathered(gathering).await?;
        for (measurement, names) in all {
            let row = move |(name, _, beside): (&str, u8, &str)| {
                [name, beside][..columns.len()].iter().map(|text| Cell::text(*text)).collect()
            };
            let rows = cut(names, self.listing.offset, self.listing.limit).map(row);
            answer.list(Some(measurement), columns, Box::new(rows)).await?;
        }
        Ok(())
    }

    async fn measurements(&self, matching: Option<&Measurement>, answer: &mut Answer) -> Result<(), QueryError> {
        let names = Gathering { of: Counted::Measurements, keys: None, kinds: None };
        let (names, _held) = self.gathered(names).await?;
        let wanted = |name: &&str| matching.is_none_or(|matching| is_measurement(matching, name, self.patterns));
        let rows = names.into_keys().filter(wanted).map(|name| vec![Cell::text(name)]);
        let rows = Box::new(cut(rows, self.listing.offset, self.listing.limit));
        answer.list(Some("measurements"), &["name"], rows).await
    }

    async fn series(&self, answer: &mut Answer) -> Result<(), QueryError> {
        let rows = self.chosen.entries.iter().map(|entry| vec![Cell::text(&*entry.sensor.key)]);
        let rows = Box::new(cut(rows, self.listing.offset, self.listing.limit));
        answer.list(None, &["key"], rows).await
    }

    async fn count(&self, exact: bool, all: Gathering<'_>, answer: &mut Answer) -> Result<(), QueryError> {
        let (names, _held) = self.gathered(all).await?;
        let all = match all.of {
            Counted::Measurements => names.len(),
            Counted::Series if !exact => self.chosen.entries.len(),
            _ => {
                for (measurement, names) in names {
                    answer.list(Some(measurement), &["count"], one(vec![number(names.len())])).await?;
                }
                return Ok(());
            }
        };
        let column = if exact { "count" } else { "cardinality estimation" };
        answer.list(None, &[column], one(vec![number(all)])).await
    }
}
