//! `SHOW …`: lists databases, policies, measurements, series, tags and fields.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::cardinality::{add_estimate, is_estimate};
use super::condition::of_tags;
use super::delete_values::tag_or_measurement;
use super::listing_filter::{SeriesFilter, TagValues, check_times, holds_for_measurement};
use super::policies::{format_duration, list_covered, resolve_database};
use super::rows::{ResultCell, ResultSeries, StatementAnswer, row_bytes};
use super::run::Run;
use super::statement::StatementFailure;
use crate::access::{Caller, Effect};
use crate::bucket::settings::{AUTOGEN, owner};
use crate::bucket::{DatabaseSettings, Keep};
use crate::influxql::{
    Expr, KeyFilter, Listing, ListingKind, Measurement, MeasurementName, Operator, Statement, split,
};
use crate::query::engine::Engine;
use crate::query::engine::choose::Chosen;
use crate::query::engine::condition::{Condition, Operand, Subject};
use crate::query::engine::directory::DirectoryEntry;
use crate::query::engine::kinds::Kinds;
use crate::query::engine::memory::{CHOOSE, NAME_BYTES};
use crate::query::engine::plan::rank;
use crate::query::pattern::Patterns;
use crate::query::{HeldBytes, QueryError};
use crate::reading::Value;

impl<'a> Run<'a> {
    /// Runs a SHOW. Returns `None` for a statement that changes something.
    pub async fn show(self, statement: &Statement) -> Result<Option<StatementAnswer>, StatementFailure> {
        let Self { engine, context, .. } = self;
        let mut answer = StatementAnswer::empty(context.budget)?;
        match statement {
            Statement::ShowDatabases => show_databases(engine, context.caller, &mut answer).await?,
            Statement::ShowRetentionPolicies { database } => {
                let database = context.database_or(database.as_deref())?;
                resolve_database(engine, database, Some(AUTOGEN)).await?;
                self.readable_sensors(database).await?;
                show_policies(engine, database, &mut answer).await?;
            }
            Statement::Show(listing) => match self.list_sensors(listing).await {
                Ok(listed) => listed.show(&mut answer).await?,
                // As in InfluxDB, an unknown database has no measurements, which is no error.
                Err(StatementFailure::UnknownDatabase(_))
                    if listing.kind == ListingKind::Measurements && listing.cardinality.is_none() => {}
                Err(StatementFailure::UnknownDatabase(_)) if is_estimate(listing) => {
                    add_estimate(0, &mut answer).await?
                }
                Err(failed) => return Err(failed),
            },
            _ => return Ok(None),
        }
        Ok(Some(answer))
    }

    /// Returns the sensors that a listing covers.
    async fn list_sensors(self, listing: &'a Listing) -> Result<SensorListing<'a>, StatementFailure> {
        let name = self.context.database_or(listing.database.as_deref())?;
        let (range, condition) = split(listing.condition.as_ref(), &self.context.clock())?;
        check_times(listing, &range)?;
        let mut sources: Vec<(Vec<String>, Measurement)> = Vec::new();
        let mut databases = Vec::new();
        for policy in listing.policies() {
            let of_policy = list_covered(self, name, policy).await?;
            databases.extend(of_policy.iter().filter(|name| !databases.contains(*name)).cloned().collect::<Vec<_>>());
            sources.extend(listing.sources.get(sources.len()).map(|source| (of_policy, source.clone())));
        }
        let mut parts = Vec::new();
        for database in databases {
            let here: Vec<Measurement> =
                sources.iter().filter(|(of, _)| of.contains(&database)).map(|(_, source)| source.clone()).collect();
            let sensors = self.readable_sensors(&database).await?;
            let is_source = source_filter(&here, self.patterns);
            let mut chosen = sensors.choose(self.context, here.len().max(1), &is_source).await?;
            drop(is_source);
            let is_by_series = listing.kind != ListingKind::Measurements || listing.cardinality.is_some();
            if let Some(condition) = condition.as_ref().filter(|_| is_by_series) {
                let filter = SeriesFilter::new(listing, condition, self.patterns, &chosen.entries)?;
                let passes = |entry: &DirectoryEntry| filter.passes(entry);
                chosen = Chosen::of(self.context.budget, &chosen.entries, of_tags(condition).steps(), passes).await?;
            }
            parts.push(Part { database, chosen });
        }
        Ok(SensorListing { parts, run: self, listing, condition })
    }
}

/// Lists the databases that the caller may read or write.
async fn show_databases(engine: &Engine, caller: &Caller, answer: &mut StatementAnswer) -> Result<(), QueryError> {
    let mut names = engine.all_databases().await?;
    names.retain(|name| caller.allows(Effect::Read, Some(name)) || caller.allows(Effect::Write, Some(name)));
    // List only databases, not their policies.
    let names: BTreeSet<&str> = names.iter().map(|name| owner(name)).collect();
    let rows: Vec<_> = names.into_iter().map(|name| vec![ResultCell::text(name)]).collect();
    answer.held.grow(rows.iter().map(|row| row_bytes(row)).sum())?;
    let name = Some("databases".to_owned());
    let columns = vec!["name".to_owned()];
    answer.series.push(ResultSeries { name, columns, rows, ..ResultSeries::default() });
    Ok(())
}

async fn show_policies(engine: &Engine, database: &str, answer: &mut StatementAnswer) -> Result<(), QueryError> {
    let columns = ["name", "duration", "shardGroupDuration", "replicaN", "default"];
    let settings = engine.settings.now();
    let default = settings.default_policy(database);
    let row = |name: &str, policy: &DatabaseSettings, kept: Keep| {
        let is_default = ResultCell::Value(Value::Boolean(name == default));
        let replicas = ResultCell::Value(Value::Integer(i64::from(policy.replication.unwrap_or(1))));
        let [duration, shards] =
            [kept.ns(), policy.shard_duration(kept)].map(|ns| ResultCell::text(format_duration(ns)));
        vec![ResultCell::text(name), duration, shards, replicas, is_default]
    };
    let own = row(AUTOGEN, &settings.for_database(database), settings.readings_retention(database));
    let policies = settings.policies(database).map(|(name, of)| row(name, of, of.readings.unwrap_or(Keep::Forever)));
    let rows: Vec<_> = std::iter::once(own).chain(policies).collect();
    answer.list(None, &columns, Box::new(rows.into_iter())).await
}

/// Returns a test that is true for sensors of these measurements (of any if there are none) whose tags fulfil the
/// condition, and the approximate number of comparisons per test.
pub(super) fn sensor_filter<'a>(
    sources: &'a [Measurement],
    condition: Option<&'a Expr>,
    patterns: &'a Patterns,
) -> Result<(usize, impl Fn(&DirectoryEntry) -> bool + 'a), StatementFailure> {
    if condition.is_some_and(|condition| !is_of_tags(condition)) {
        return Err(StatementFailure::NotOfTags);
    }
    let is_source = source_filter(sources, patterns);
    let condition = condition.map(of_tags);
    let steps = condition.as_ref().map_or(1, Condition::steps) * sources.len().max(1);
    let holds = move |entry: &DirectoryEntry| {
        condition.as_ref().is_none_or(|condition| condition.holds(&Tags(entry), patterns) == Some(true))
    };
    Ok((steps, move |entry: &DirectoryEntry| is_source(entry) && holds(entry)))
}

/// Returns a test that is true for sensors of these measurements (of any if there are none).
pub(super) fn source_filter<'a>(
    sources: &'a [Measurement],
    patterns: &'a Patterns,
) -> impl Fn(&DirectoryEntry) -> bool + use<'a> {
    move |entry: &DirectoryEntry| {
        sources.is_empty() || sources.iter().any(|source| is_measurement(source, &entry.sensor.measurement, patterns))
    }
}

/// The tags of a sensor. Conditions of listings have no fields.
pub(super) struct Tags<'a>(pub &'a DirectoryEntry);

impl Subject for Tags<'_> {
    fn field(&self, _: usize) -> Operand<'_> {
        Operand::Field(None)
    }

    fn tag(&self, key: &str) -> Cow<'_, str> {
        tag_or_measurement(self.0, key)
    }
}

/// Returns true if a condition only compares tags for equality or with patterns.
pub(super) fn is_of_tags(condition: &Expr) -> bool {
    match condition {
        Expr::Paren(inner) => is_of_tags(inner),
        Expr::Binary { operator: Operator::And | Operator::Or, left, right } => is_of_tags(left) && is_of_tags(right),
        Expr::Binary { operator, .. } => {
            matches!(operator, Operator::Eq | Operator::NotEq | Operator::EqRegex | Operator::NotEqRegex)
        }
        _ => true,
    }
}

pub(super) fn is_measurement(measurement: &Measurement, name: &str, patterns: &Patterns) -> bool {
    match &measurement.name {
        MeasurementName::Exact(wanted) => wanted == name,
        MeasurementName::Regex(pattern) => patterns.matches(pattern, name),
        MeasurementName::OfSource => false,
    }
}

/// Applies OFFSET and LIMIT. A limit of 0 means no limit.
fn cut<T>(rows: impl IntoIterator<Item = T>, offset: u64, limit: u64) -> impl Iterator<Item = T> {
    let offset = usize::try_from(offset).unwrap_or(usize::MAX);
    let limit = if limit == 0 { usize::MAX } else { usize::try_from(limit).unwrap_or(usize::MAX) };
    rows.into_iter().skip(offset).take(limit)
}

/// A listing with its sensors.
pub(super) struct SensorListing<'a> {
    /// The sensors of the database and of its policies.
    pub parts: Vec<Part>,
    pub run: Run<'a>,
    pub listing: &'a Listing,
    /// The condition without times.
    condition: Option<Expr>,
}

pub(super) struct Part {
    database: String,
    pub chosen: Chosen,
}

/// Returns the metadata of a sensor under a key that is no tag of it.
pub(super) fn metadata_value<'e>(entry: &'e DirectoryEntry, key: &str) -> Option<Cow<'e, str>> {
    let is_own = entry.sensor.tag(key).is_some();
    if is_own { None } else { entry.tag(key).filter(|value| !value.is_empty()) }
}

/// Per measurement, distinct names with a sort key and the text of the second column.
type ListedNames<'a> = BTreeMap<&'a str, BTreeSet<(&'a str, usize, Cow<'a, str>)>>;

impl SensorListing<'_> {
    async fn show(&self, answer: &mut StatementAnswer) -> Result<(), StatementFailure> {
        let Listing { kind, cardinality, slimit, soffset, .. } = *self.listing;
        match (kind, cardinality) {
            (_, Some(_)) => Ok(self.count(answer).await?),
            (ListingKind::Measurements, None) => self.measurements(answer).await,
            (ListingKind::Series, None) => Ok(self.series(answer).await?),
            (ListingKind::TagKeys, None) => {
                self.by_measurement(&["tagKey"], &[], answer).await?;
                answer.series = cut(std::mem::take(&mut answer.series), soffset, slimit).collect();
                Ok(())
            }
            (ListingKind::TagValues, None) => Ok(self.by_measurement(&["key", "value"], &[], answer).await?),
            (ListingKind::FieldKeys, None) => {
                let mut kinds = Vec::with_capacity(self.parts.len());
                for part in &self.parts {
                    kinds.push(
                        self.run
                            .engine
                            .field_kinds(self.run.context.budget, &part.database, &part.chosen.entries)
                            .await?,
                    );
                }
                Ok(self.by_measurement(&["fieldKey", "fieldType"], &kinds, answer).await?)
            }
        }
    }

    pub(super) fn is_key(&self, key: &str) -> bool {
        match &self.listing.keys {
            None => true,
            Some(KeyFilter::Is(wanted)) => key == wanted,
            Some(KeyFilter::IsNot(unwanted)) => key != unwanted,
            Some(KeyFilter::Matches(pattern)) => self.run.patterns.matches(pattern, key),
            Some(KeyFilter::MatchesNot(pattern)) => !self.run.patterns.matches(pattern, key),
            Some(KeyFilter::In(wanted)) => wanted.iter().any(|wanted| wanted == key),
        }
    }

    /// Collects the listed names. `kinds` has the types of fields for each part, which are listed with their names.
    async fn gather<'s>(&'s self, kinds: &'s [Kinds]) -> Result<(ListedNames<'s>, HeldBytes), QueryError> {
        let budget = self.run.context.budget;
        let mut all = ListedNames::new();
        let mut held = budget.hold(0)?;
        let mut count = 0;
        let named = self.listing.keys.as_ref().map_or(&[][..], KeyFilter::names);
        for (index, part) in self.parts.iter().enumerate() {
            for batch in part.chosen.entries.chunks((CHOOSE / (1 + named.len())).max(1)) {
                for entry in batch {
                    let DirectoryEntry { sensor, fields, .. } = entry;
                    let known = all.entry(&*sensor.measurement).or_default();
                    let before = known.len();
                    let tags = sensor.tags.iter().filter(|(key, _)| self.is_key(key));
                    match self.listing.kind {
                        ListingKind::TagKeys => known.extend(tags.map(|(key, _)| (&**key, 0, Cow::default()))),
                        ListingKind::TagValues => {
                            known.extend(tags.map(|(key, value)| (&**key, 0, Cow::Borrowed(&**value))));
                            let value = |key: &'s String| Some((&**key, 0, metadata_value(entry, key)?));
                            known.extend(named.iter().filter_map(value));
                        }
                        ListingKind::FieldKeys => {
                            known.extend(fields.iter().map(|(name, family)| match kinds.get(index) {
                                Some(kinds) => {
                                    let kind = kinds.of(&sensor.measurement, name, *family);
                                    (&**name, rank(*family), Cow::Borrowed(kind))
                                }
                                None => (&**name, 0, Cow::default()),
                            }))
                        }
                        ListingKind::Series => drop(known.insert((&*sensor.key, 0, Cow::default()))),
                        ListingKind::Measurements => {}
                    }
                    count += known.len() - before;
                }
                held.set((all.len() + count) * NAME_BYTES)?;
                budget.pause().await?;
            }
        }
        Ok((all, held))
    }

    /// Adds a series for each measurement that has rows.
    async fn by_measurement(
        &self,
        columns: &[&str],
        kinds: &[Kinds],
        answer: &mut StatementAnswer,
    ) -> Result<(), QueryError> {
        let (all, _held) = self.gather(kinds).await?;
        for (measurement, names) in all {
            let row = move |(name, _, beside): (&str, usize, Cow<'_, str>)| {
                [name, &*beside][..columns.len()].iter().map(|text| ResultCell::text(*text)).collect()
            };
            let rows = cut(names, self.listing.offset, self.listing.limit).map(row);
            answer.list(Some(measurement), columns, Box::new(rows)).await?;
        }
        Ok(())
    }

    async fn measurements(&self, answer: &mut StatementAnswer) -> Result<(), StatementFailure> {
        let (names, _held) = self.gather(&[]).await?;
        let matching = self.listing.matching.as_ref();
        let wanted = |name: &&str| matching.is_none_or(|matching| is_measurement(matching, name, self.run.patterns));
        let mut names: Vec<&str> = names.into_keys().filter(wanted).collect();
        if let Some(condition) = &self.condition {
            let (values, _held) = self.tag_values(condition).await?;
            let none = TagValues::new();
            let mut fulfilling = Vec::new();
            for name in names {
                let values = values.get(name).unwrap_or(&none);
                if holds_for_measurement(condition, name, values, self.run.patterns)? {
                    fulfilling.push(name);
                }
                self.run.context.budget.pause().await?;
            }
            names = fulfilling;
        }
        let rows = names.into_iter().map(|name| vec![ResultCell::text(name)]);
        let rows = Box::new(cut(rows, self.listing.offset, self.listing.limit));
        Ok(answer.list(Some("measurements"), &["name"], rows).await?)
    }

    /// Returns the values of the tags in a condition, by measurement.
    async fn tag_values<'s>(
        &'s self,
        condition: &'s Expr,
    ) -> Result<(BTreeMap<&'s str, TagValues<'s>>, HeldBytes), QueryError> {
        let mut keys = BTreeSet::new();
        condition.each(&mut |part| {
            if let Expr::Reference { name, .. } = part {
                keys.insert(&**name);
            }
        });
        let mut all: BTreeMap<&str, TagValues<'_>> = BTreeMap::new();
        let mut held = self.run.context.budget.hold(0)?;
        for entry in self.parts.iter().flat_map(|part| &part.chosen.entries) {
            let values = all.entry(&*entry.sensor.measurement).or_default();
            for key in &keys {
                if let Some(value) = entry.tag(key) {
                    let is_new = values.entry(key).or_default().insert(value);
                    held.grow(usize::from(is_new) * NAME_BYTES)?;
                }
            }
            self.run.context.budget.pause().await?;
        }
        Ok((all, held))
    }

    /// Returns the sensor keys in order. A key in several policies occurs once.
    fn keys(&self) -> Vec<&str> {
        let entries = self.parts.iter().flat_map(|part| &part.chosen.entries);
        let mut keys: Vec<&str> = entries.map(|entry| &*entry.sensor.key).collect();
        if self.parts.len() > 1 {
            keys.sort_unstable();
            keys.dedup();
        }
        keys
    }

    async fn series(&self, answer: &mut StatementAnswer) -> Result<(), QueryError> {
        let rows = self.keys().into_iter().map(|key| vec![ResultCell::text(key)]);
        let rows = Box::new(cut(rows, self.listing.offset, self.listing.limit));
        answer.list(None, &["key"], rows).await
    }
}
