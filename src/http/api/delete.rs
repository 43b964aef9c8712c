//! `DELETE /api/v1/readings`: deletes readings of one or many sensors, or counts them. Many sensors are selected by the
//! InfluxQL statement that means the same.

use std::collections::BTreeSet;

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::bucket::settings::{AUTOGEN, POLICY_MARK};
use crate::clock::now_ns;
use crate::http::errors::{ApiError, ApiResult, WARNING_HEADER, add_texts};
use crate::http::influx::query::{delete_sensors, log_change};
use crate::http::influx::v2::{and, compare_tag, condition};
use crate::http::parameters::Parameters;
use crate::influxql::{Expr, Literal, Measurement, MeasurementName, Operator, Statement};
use crate::query::Budget;
use crate::query::influx::{DeleteTargets, StatementContext};
use crate::query::selector::{Selector, TagFilter, TagTest};
use crate::reading::time::rfc3339;

/// `DELETE /api/v1/readings`.
pub async fn delete(parameters: Parameters) -> ApiResult<Response> {
    let app = &parameters.app;
    let caller = &parameters.requester.caller;
    let budget = parameters.budget();
    let stored = parameters.database()?;
    let (database, policy) = stored.split_once(POLICY_MARK).unwrap_or((&stored, AUTOGEN));
    let context =
        StatementContext { database: Some(database), policy: Some(policy), now: now_ns(), budget: &budget, caller };
    let selected = targets(&parameters, &budget, context).await;
    if parameters.flag("dry_run")? {
        let targets = selected?;
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
    // A deletion that fails while its sensors are looked up is in the audit trail, too.
    let text = selected
        .as_ref()
        .map_or_else(|_| format!("DELETE {}", parameters.description()), |targets| description(targets));
    let deleted = match selected {
        Ok(targets) => delete_sensors(app, targets, context.now, false).await,
        Err(error) => Err(error),
    };
    log_change(app, &parameters.requester, text, database, &deleted);
    budget.finish();
    let mut response = StatusCode::NO_CONTENT.into_response();
    add_texts(&mut response, WARNING_HEADER, deleted?.as_slice());
    Ok(response)
}

/// Describes a deletion in the audit trail.
fn description(targets: &[DeleteTargets]) -> String {
    let Some(DeleteTargets { statement, range, .. }) = targets.first() else { return String::new() };
    format!("{statement} from {} to {}", rfc3339(range.start), rfc3339(range.end))
}

/// Returns the selected readings.
async fn targets(
    parameters: &Parameters,
    budget: &Budget,
    context: StatementContext<'_>,
) -> ApiResult<Vec<DeleteTargets>> {
    let query = &parameters.app.query;
    let selected = parameters.selector(budget).await?;
    if let Some(notice) = selected.notice {
        return Err(ApiError::Bad(notice));
    }
    let range = parameters.range()?;
    let (measurement, tags) = match selected.selector {
        Selector::Sensor(sensor) => return Ok(vec![query.delete_target(&sensor, range, context).await?]),
        Selector::Matching { measurement, tags, .. } => (measurement, tags),
    };
    let mut conditions: Vec<Expr> = tags.into_iter().map(tag_condition).collect();
    if parameters.get("from").is_some() {
        conditions.push(condition(&format!("time >= {}", range.start))?);
    }
    if parameters.get("to").is_some() {
        conditions.push(condition(&format!("time < {}", range.end))?);
    }
    let exact = |name| Measurement { database: None, policy: None, name: MeasurementName::Exact(name) };
    let condition = conditions.into_iter().fold(None, |all, next| Some(and(all, next)));
    let statement = Statement::Delete { sources: measurement.into_iter().map(exact).collect(), condition };
    Ok(query.delete_targets(&statement, context, &BTreeSet::new()).await?.unwrap_or_default())
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
