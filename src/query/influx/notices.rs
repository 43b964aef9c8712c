//! Which names of a statement without an answer nobody knows: its database, measurements, fields and tags.

use std::ops::Range;

use super::policies::{expired, named};
use super::statement::StatementContext;
use crate::influxql::{
    Expr, FromSource, KeyFilter, Listing, Measurement, MeasurementName, ReferenceKind, Select, Statement, split,
};
use crate::query::engine::Engine;
use crate::query::native::notices::{AskedName, LookedFor, NameKind};
use crate::query::service::without_notices;
use crate::query::{Query, QueryError};
use crate::reading::time::{TIMESTAMP_MAX, TIMESTAMP_MIN};

/// Sources of a statement that are looked at.
const SOURCES_MAX: usize = 8;
/// Names of one source that are looked for.
const NAMES_MAX: usize = 64;

/// A source, and the names that are looked for in it.
#[derive(Default)]
struct NamedSource<'a> {
    database: Option<&'a str>,
    policy: Option<&'a str>,
    measurement: Option<&'a str>,
    names: Vec<(NameKind<'a>, &'a str)>,
    /// The condition that says which times are read.
    condition: Option<&'a Expr>,
}

impl Query {
    /// The notices for names that the caller may read: which of them nobody knows, if the statement has no answer; and which fields have
    /// values of another type beside them.
    /// An answer is not refused because its notices cannot be told.
    pub async fn statement_notices(
        &self,
        statement: &Statement,
        asked: StatementContext<'_>,
        has_answer: bool,
    ) -> Vec<String> {
        let engine = &self.engine;
        let read = || async {
            let mut unknown = Vec::new();
            let mut drifted = Vec::new();
            for source in sources_of(statement).into_iter().take(SOURCES_MAX) {
                let Some(database) = source.database.or(asked.database) else { continue };
                let policy = source.policy.or(asked.policy);
                if !asked.by.may_read(&named(database, policy)) {
                    continue;
                }
                let measurement = source.measurement;
                let of_source =
                    measurement.map(|name| AskedName { kind: NameKind::Measurement, name, measurement: None });
                let within =
                    source.names.into_iter().take(NAMES_MAX).map(|(kind, name)| AskedName { kind, name, measurement });
                let names: Vec<AskedName<'_>> = of_source.into_iter().chain(within).collect();
                let database = engine.settings.now().resolve(database, policy).unwrap_or_else(|_| database.to_owned());
                let StatementContext { budget, by, .. } = asked;
                let looked = LookedFor { engine, budget, by, database: &database, names: &names };
                if !has_answer {
                    unknown.extend(looked.unknown().await?);
                }
                drifted.extend(looked.drift(range_of(source.condition, asked)).await?);
            }
            let mut told: Vec<String> = Vec::new();
            for notice in unknown.into_iter().chain(drifted) {
                if !told.contains(&notice) {
                    told.push(notice);
                }
            }
            Ok::<_, QueryError>(told)
        };
        let database = asked.database.unwrap_or_default();
        self.in_turn(asked.budget, database, read).await.unwrap_or_else(without_notices)
    }
}

/// The times that a condition leaves; `None` if they cannot be told.
fn range_of(condition: Option<&Expr>, asked: StatementContext<'_>) -> Option<Range<i64>> {
    let (range, _) = split(condition, &asked.clock()).ok()?;
    Some(range.min.unwrap_or(TIMESTAMP_MIN)..range.max.map_or(TIMESTAMP_MAX, |max| max.saturating_add(1)))
}

impl Query {
    /// What an answer says of databases that keep no readings as old as those that it asks for. Ask before the readings are read: what
    /// expires meanwhile may be among them.
    #[must_use]
    pub fn expired_notices(&self, statement: &Statement, asked: StatementContext<'_>) -> Vec<String> {
        let mut told = Vec::new();
        if let Statement::Select(select) = statement {
            expired_in(&self.engine, select, asked, &mut told);
        }
        told
    }
}

fn expired_in(engine: &Engine, select: &Select, asked: StatementContext<'_>, told: &mut Vec<String>) {
    let from = split(select.condition.as_ref(), &asked.clock()).ok().and_then(|(range, _)| range.min);
    for source in &select.sources {
        match (source, from) {
            (FromSource::Subquery(inner), _) => expired_in(engine, inner, asked, told),
            (FromSource::Measurement(Measurement { database, policy, .. }), Some(from)) => {
                let Some(name) = database.as_deref().or(asked.database) else { continue };
                let policy = policy.as_deref().or(asked.policy);
                let Ok(database) = engine.settings.now().resolve(name, policy) else { continue };
                let notice = expired(&engine.settings.now(), &database, from, asked.now);
                told.extend(notice.filter(|notice| !told.contains(notice)).into_iter().collect::<Vec<_>>());
            }
            (FromSource::Measurement(_), None) => {}
        }
    }
}

fn sources_of(statement: &Statement) -> Vec<NamedSource<'_>> {
    match statement {
        Statement::Select(select) => of_select(select),
        Statement::ShowRetentionPolicies { database } => {
            vec![NamedSource { database: database.as_deref(), ..NamedSource::default() }]
        }
        Statement::Show(listing) => of_listing(listing),
        _ => Vec::new(),
    }
}

/// The measurements that a SELECT reads itself, or those of its subqueries. Names outside of a subquery may be ones that it
/// makes.
fn of_select(select: &Select) -> Vec<NamedSource<'_>> {
    let mut names = Vec::new();
    let columns = select.columns.iter().map(|column| &column.expr);
    columns.chain(&select.condition).for_each(|expr| references(expr, NameKind::Column, &mut names));
    for dimension in &select.group_by {
        references(dimension, NameKind::Tag, &mut names);
    }
    let mut sources = Vec::new();
    for source in &select.sources {
        match source {
            FromSource::Measurement(measurement) => {
                let source = of_measurement(measurement, names.clone());
                sources.extend(source.map(|source| NamedSource { condition: select.condition.as_ref(), ..source }));
            }
            FromSource::Subquery(inner) => sources.extend(of_select(inner)),
        }
    }
    sources
}

/// `None` for a regular expression, which is no name.
fn of_measurement<'a>(measurement: &'a Measurement, names: Vec<(NameKind<'a>, &'a str)>) -> Option<NamedSource<'a>> {
    let MeasurementName::Exact(name) = &measurement.name else { return None };
    let (database, policy) = (measurement.database.as_deref(), measurement.policy.as_deref());
    Some(NamedSource { database, policy, measurement: Some(name), names, condition: None })
}

fn of_listing(listing: &Listing) -> Vec<NamedSource<'_>> {
    let mut names = Vec::new();
    listing.condition.iter().for_each(|condition| references(condition, NameKind::Tag, &mut names));
    let keys = listing.keys.iter().flat_map(KeyFilter::named);
    names.extend(keys.map(|key| (NameKind::Tag, &**key)));
    let database = listing.database.as_deref();
    if listing.sources.is_empty() {
        let measurement = match &listing.matching {
            Some(Measurement { name: MeasurementName::Exact(name), .. }) => Some(&**name),
            _ => None,
        };
        return vec![NamedSource { database, policy: listing.policy.as_deref(), measurement, names, condition: None }];
    }
    let measurements = listing.sources.iter().filter_map(|measurement| of_measurement(measurement, names.clone()));
    measurements.map(|source| NamedSource { database: database.or(source.database), ..source }).collect()
}

/// The names in an expression, as the kind that they must be there unless they say another.
fn references<'a>(expr: &'a Expr, kind: NameKind<'a>, found: &mut Vec<(NameKind<'a>, &'a str)>) {
    expr.each(&mut |part| match part {
        Expr::Reference { name, kind: stated } if !matches!(&**name, "time" | "_name") => {
            let kind = match stated {
                Some(ReferenceKind::Tag) => NameKind::Tag,
                Some(_) => NameKind::Field,
                None => kind,
            };
            found.push((kind, name));
        }
        Expr::Distinct(name) => found.push((kind, name)),
        _ => {}
    });
}
