//! Groups of sensors: the groups, their values, and the sensors of a value with their latest readings. The answers come
//! from the sensors, including acked changes, not from the group documents in MongoDB, which are for external readers.

use axum::Json;
use axum::response::Response;
use serde_json::{Value, json};

use super::sensors::{is_silent, read_latest};
use crate::bucket::GroupRule;
use crate::clock::now_ns;
use crate::http::App;
use crate::http::errors::{ApiError, ApiResult};
use crate::http::parameters::{InPath, Parameters};
use crate::http::render::json::{SensorItem, end_with_next, pair, sensor};
use crate::http::render::text::Text;
use crate::query::native::groups::GroupMembers;

/// Number of sensor documents per read.
const BATCH_SENSORS: usize = 256;

/// `GET /api/v1/groups`.
pub async fn list(parameters: Parameters) -> ApiResult<Json<Value>> {
    let rules = parameters.app.groups.for_database(&parameters.database()?);
    let groups: Vec<Value> = rules.iter().map(|rule| json!({ "group": rule.name, "by": rule.source })).collect();
    Ok(Json(json!({ "groups": groups })))
}

/// Finds a group of a database by name.
fn find_rule(app: &App, database: &str, name: &str) -> ApiResult<GroupRule> {
    app.groups.for_database(database).into_iter().find(|rule| *rule.name == *name).cloned().ok_or_else(|| {
        ApiError::NotFound(format!(
            "database {database:?} has no group {name:?}: list the groups with GET /api/v1/groups, or declare it in [[groups]] of \
             the configuration"
        ))
    })
}

/// `GET /api/v1/groups/NAME`.
pub async fn values(InPath(name): InPath<String>, parameters: Parameters) -> ApiResult<Response> {
    let app = &*parameters.app;
    let budget = parameters.budget();
    let database = parameters.database()?;
    let rule = find_rule(app, &database, &name)?;
    let max = app.settings.query.sensors_max;
    let limit = parameters.limit(max, max)?;
    let found = app.query.group_values(&budget, &database, &parameters.all_sensors(), &rule).await?;
    let after = parameters.get("cursor");
    let mut values = found.values.iter().filter(|(value, _)| after.is_none_or(|after| value.as_str() > after));
    let mut text = Text::list(&budget, "values")?;
    let mut last = None;
    for (value, sensors) in values.by_ref().take(limit) {
        text.item(|out| {
            out.push('{');
            pair(out, "value", value);
            out.push_str(&format!(",\"sensors\":{sensors}}}"));
        })
        .await?;
        last = Some(value.as_str());
    }
    let next = last.filter(|_| values.next().is_some());
    end_with_next(&mut text.out, next, &[]);
    Ok(text.respond_json(&budget)?)
}

/// `GET /api/v1/groups/NAME/VALUE`.
pub async fn members(InPath((name, value)): InPath<(String, String)>, parameters: Parameters) -> ApiResult<Response> {
    let app = &*parameters.app;
    let budget = parameters.budget();
    let database = parameters.database()?;
    let rule = find_rule(app, &database, &name)?;
    let max = app.settings.query.sensors_max;
    let limit = parameters.limit(max, max)?;
    let times = parameters.times()?;
    let all = parameters.all_sensors();
    let after = parameters.get("cursor");
    let page = GroupMembers { rule: &rule, value: value.as_str(), last_key: after, limit: limit.saturating_add(1) };
    let mut members = app.query.group_members(&budget, &database, &all, &page).await?;
    let is_cut = members.len() > limit;
    members.truncate(limit);
    let next = members.last().filter(|_| is_cut).map(|last| last.sensor.key.to_string());
    let now = now_ns();
    let groups = app.groups.for_database(&database);
    let mut text = Text::list(&budget, "sensors")?;
    for some in members.chunks(BATCH_SENSORS) {
        let keys: Vec<&str> = some.iter().map(|member| &*member.stored.key).collect();
        for listed in read_latest(app, &budget, &database, &keys).await? {
            let item = SensorItem { sensor: &listed, groups: &groups, is_silent: is_silent(&listed, now) };
            text.item(|out| sensor(out, item, times, false)).await?;
        }
    }
    end_with_next(&mut text.out, next.as_deref(), &[]);
    Ok(text.respond_json(&budget)?)
}
