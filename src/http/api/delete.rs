//! `DELETE /api/v1/readings`: deletes readings of one or many sensors, or counts them. It runs the InfluxQL statement that
//! selects the same readings.

use std::collections::BTreeSet;

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::bucket::settings::{AUTOGEN, POLICY_MARK};
use crate::clock::now_ns;
use crate::http::errors::{ApiError, ApiResult, WARNING_HEADER, add_texts};
use crate::http::influx::query::run_change;
use crate::http::influx::v2::{and, compare_tag, condition};
use crate::http::parameters::Parameters;
use crate::influxql::{Expr, Literal, Measurement, MeasurementName, Operator, Statement};
use crate::query::Budget;
use crate::query::influx::StatementContext;
use crate::query::native::many::TagWords;
use crate::query::selector::{Selector, TagFilter, TagTest};
use crate::reading::Sensor;

/// `DELETE /api/v1/readings`.
pub async fn delete(parameters: Parameters) -> ApiResult<Response> {
    let app = &parameters.app;
    let caller = &parameters.requester.caller;
    let budget = parameters.budget();
    let stored = parameters.database()?;
    let statement = statement(&parameters, &budget, &stored).await?;
    let (database, policy) = stored.split_once(POLICY_MARK).unwrap_or((&stored, AUTOGEN));
    let context =
        StatementContext { database: Some(database), policy: Some(policy), now: now_ns(), budget: &budget, caller };
    if parameters.flag("dry_run")? {
        let targets = app.query.delete_targets(&statement, context, &BTreeSet::new()).await?.unwrap_or_default();
        let counts = budget.in_time(app.edits.count(caller, targets)).await??;
        budget.finish();
        return Ok(Json(json!({
            "dry_run": true,
            "sensors": counts.iter().map(|count| count.sensors).sum::<u64>(),
            "readings": counts.iter().map(|count| count.readings).sum::<u64>(),
            "summaries": counts.iter().map(|count| count.summaries).sum::<u64>(),
        }))
        .into_response());
    }
    let warning = run_change(app, &parameters.requester, &statement, context, false).await?;
    budget.finish();
    let mut response = StatusCode::NO_CONTENT.into_response();
    add_texts(&mut response, WARNING_HEADER, warning.as_slice());
    Ok(response)
}

/// Returns the statement that deletes the selected readings.
async fn statement(parameters: &Parameters, budget: &Budget, database: &str) -> ApiResult<Statement> {
    let selected = parameters.selector(budget).await?;
    if let Some(notice) = selected.notice {
        return Err(ApiError::Bad(notice));
    }
    let range = parameters.range()?;
    let mut conditions = Vec::new();
    let measurement = match selected.selector {
        Selector::Sensor(sensor) => {
            conditions.extend(sensor.tags.iter().map(|(key, value)| is_tag(key, value)));
            let others = other_tags(parameters, budget, database, &sensor).await?;
            conditions.extend(others.into_iter().map(|key| is_tag(&key, "")));
            Some(sensor.measurement.to_string())
        }
        Selector::Matching { measurement, tags, .. } => {
            conditions.extend(tags.into_iter().map(tag_condition));
            measurement
        }
    };
    if parameters.get("from").is_some() {
        conditions.push(condition(&format!("time >= {}", range.start))?);
    }
    if parameters.get("to").is_some() {
        conditions.push(condition(&format!("time < {}", range.end))?);
    }
    let exact = |name| Measurement { database: None, policy: None, name: MeasurementName::Exact(name) };
    let condition = conditions.into_iter().fold(None, |all, next| Some(and(all, next)));
    Ok(Statement::Delete { sources: measurement.into_iter().map(exact).collect(), condition })
}

/// Returns the tags of other sensors of the measurement. Without them, a condition on the tags of one sensor also selects
/// sensors with more tags.
async fn other_tags(
    parameters: &Parameters,
    budget: &Budget,
    database: &str,
    sensor: &Sensor,
) -> ApiResult<Vec<String>> {
    let siblings =
        Selector::Matching { measurement: Some(sensor.measurement.to_string()), tags: Vec::new(), pins: Vec::new() };
    let words = parameters.app.query.vocabulary(budget, database, &siblings, TagWords::Own).await?;
    Ok(words.tags.into_keys().filter(|key| sensor.tag(key).is_none()).collect())
}

fn is_tag(key: &str, value: &str) -> Expr {
    compare_tag(key.to_owned(), Operator::Eq, Literal::String(value.to_owned()))
}

fn tag_condition(filter: TagFilter) -> Expr {
    let (operator, literal) = match (filter.test, filter.is_negated) {
        (TagTest::Is(value), false) => (Operator::Eq, Literal::String(value)),
        (TagTest::Is(value), true) => (Operator::NotEq, Literal::String(value)),
        (TagTest::Matches(pattern), false) => (Operator::EqRegex, Literal::Regex(pattern)),
        (TagTest::Matches(pattern), true) => (Operator::NotEqRegex, Literal::Regex(pattern)),
    };
    compare_tag(filter.key, operator, literal)
}
