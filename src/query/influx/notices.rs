//! Notices of a statement: unknown databases, measurements, fields and tags, values of other types, and expired
//! readings.

use std::ops::Range;

use super::policies::expired_notice;
use super::statement::StatementContext;
use crate::influxql::{
    Expr, FromSource, KeyFilter, Listing, Measurement, MeasurementName, ReferenceKind, Select, Statement, split,
};
use crate::query::engine::Engine;
use crate::query::native::notices::{NameKind, NameSearch, RequestedName};
use crate::query::service::ignore_notice_error;
use crate::query::{Query, QueryError};
use crate::reading::time::{TIMESTAMP_MAX, TIMESTAMP_MIN};

/// Maximum number of checked sources of a statement.
const SOURCES_MAX: usize = 8;
/// Maximum number of checked names of one source.
const NAMES_MAX: usize = 64;

/// A source of a statement with the names to check in it.
#[derive(Default)]
struct NamedSource<'a> {
    database: Option<&'a str>,
    policy: Option<&'a str>,
    measurement: Option<&'a str>,
    names: Vec<(NameKind<'a>, &'a str)>,
    /// The condition with the range of times.
    condition: Option<&'a Expr>,
}

impl Query {
    /// Returns notices for unknown names if the statement has no answer, and for fields with values of another type.
    /// Covers only databases that the caller may read. An error only drops the notices, because the answer is valid
    /// without them.
    pub async fn statement_notices(
        &self,
        statement: &Statement,
        context: StatementContext<'_>,
        has_answer: bool,
    ) -> Vec<String> {
        let engine = &self.engine;
        let read = || async {
            let mut unknown = Vec::new();
            let mut drifted = Vec::new();
            for source in named_sources(statement).into_iter().take(SOURCES_MAX) {
                let Some(database) = source.database.or(context.database) else { continue };
                let policy = source.policy.or(context.policy);
                let measurement = source.measurement;
                let source_name =
                    measurement.map(|name| RequestedName { kind: NameKind::Measurement, name, measurement: None });
                let within = source.names.into_iter().take(NAMES_MAX).map(|(kind, name)| RequestedName {
                    kind,
                    name,
                    measurement,
                });
                let names: Vec<RequestedName<'_>> = source_name.into_iter().chain(within).collect();
                let database = engine.settings.now().resolve(database, policy).unwrap_or_else(|_| database.to_owned());
                let StatementContext { budget, caller, .. } = context;
                let search = NameSearch { engine, budget, caller, database: &database, names: &names };
                if !has_answer {
                    unknown.extend(search.unknown_names().await?);
                }
                drifted.extend(search.drift(time_range(source.condition, context)).await?);
            }
            let mut notices: Vec<String> = Vec::new();
            for notice in unknown.into_iter().chain(drifted) {
                if !notices.contains(&notice) {
                    notices.push(notice);
                }
            }
            Ok::<_, QueryError>(notices)
        };
        let database = context.database.unwrap_or_default();
        self.in_turn(context.budget, database, read).await.unwrap_or_else(ignore_notice_error)
    }
}

/// Returns the range of times of a condition, or `None` if it is invalid.
fn time_range(condition: Option<&Expr>, context: StatementContext<'_>) -> Option<Range<i64>> {
    let (range, _) = split(condition, &context.clock()).ok()?;
    Some(range.min.unwrap_or(TIMESTAMP_MIN)..range.max.map_or(TIMESTAMP_MAX, |max| max.saturating_add(1)))
}

impl Query {
    /// Returns notices for databases whose readings of the requested times have expired. Call it before reading,
    /// because readings may expire during the read.
    #[must_use]
    pub fn expired_notices(&self, statement: &Statement, context: StatementContext<'_>) -> Vec<String> {
        let mut notices = Vec::new();
        if let Statement::Select(select) = statement {
            add_expired(&self.engine, select, context, &mut notices);
        }
        notices
    }
}

fn add_expired(engine: &Engine, select: &Select, context: StatementContext<'_>, notices: &mut Vec<String>) {
    let from = split(select.condition.as_ref(), &context.clock()).ok().and_then(|(range, _)| range.min);
    for source in &select.sources {
        match (source, from) {
            (FromSource::Subquery(inner), _) => add_expired(engine, inner, context, notices),
            (FromSource::Measurement(Measurement { database, policy, .. }), Some(from)) => {
                let Some(name) = database.as_deref().or(context.database) else { continue };
                let policy = policy.as_deref().or(context.policy);
                let Ok(database) = engine.settings.now().resolve(name, policy) else { continue };
                let notice = expired_notice(&engine.settings.now(), &database, from);
                notices.extend(notice.filter(|notice| !notices.contains(notice)).into_iter().collect::<Vec<_>>());
            }
            (FromSource::Measurement(_), None) => {}
        }
    }
}

fn named_sources(statement: &Statement) -> Vec<NamedSource<'_>> {
    match statement {
        Statement::Select(select) => select_sources(select),
        Statement::ShowRetentionPolicies { database } => {
            vec![NamedSource { database: database.as_deref(), ..NamedSource::default() }]
        }
        Statement::Show(listing) => listing_sources(listing),
        _ => Vec::new(),
    }
}

/// Returns the measurements that a SELECT or its subqueries read. Names outside a subquery are not checked, because
/// they may be columns of the subquery.
fn select_sources(select: &Select) -> Vec<NamedSource<'_>> {
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
                let source = measurement_source(measurement, names.clone());
                sources.extend(source.map(|source| NamedSource { condition: select.condition.as_ref(), ..source }));
            }
            FromSource::Subquery(inner) => sources.extend(select_sources(inner)),
        }
    }
    sources
}

/// Returns the source of a measurement, or `None` for a regular expression.
fn measurement_source<'a>(
    measurement: &'a Measurement,
    names: Vec<(NameKind<'a>, &'a str)>,
) -> Option<NamedSource<'a>> {
    let MeasurementName::Exact(name) = &measurement.name else { return None };
    let database = measurement.database.as_deref();
    let policy = measurement.policy.as_deref();
    Some(NamedSource { database, policy, measurement: Some(name), names, condition: None })
}

fn listing_sources(listing: &Listing) -> Vec<NamedSource<'_>> {
    let mut names = Vec::new();
    listing.condition.iter().for_each(|condition| references(condition, NameKind::Tag, &mut names));
    let keys = listing.keys.iter().flat_map(KeyFilter::names);
    names.extend(keys.map(|key| (NameKind::Tag, &**key)));
    let database = listing.database.as_deref();
    if listing.sources.is_empty() {
        let measurement = match &listing.matching {
            Some(Measurement { name: MeasurementName::Exact(name), .. }) => Some(&**name),
            _ => None,
        };
        return vec![NamedSource { database, policy: listing.policy.as_deref(), measurement, names, condition: None }];
    }
    let measurements = listing.sources.iter().filter_map(|measurement| measurement_source(measurement, names.clone()));
    // As the listing itself, which is checked and read in one database.
    measurements.map(|source| NamedSource { database, ..source }).collect()
}

/// Collects the names in an expression. A name without a stated type has the kind `kind`.
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
