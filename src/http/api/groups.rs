//! Groups of sensors: which there are, their values, and the sensors of a value with their latest readings. All from what is
//! known of the sensors, acked changes included; the groups' documents in `MongoDB` are for those who read it themselves.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Extension, Path, State};
use axum::response::Response;

use super::sensors::{is_silent, of_stored};
use crate::bucket::GroupRule;
use crate::clock::now_ns;
use crate::http::errors::{ApiError, Dialect};
use crate::http::parameters::{By, Pairs, Parameters};
use crate::http::render::format::Format;
use crate::http::render::json::{comma, end_with_next, sensor, string};
use crate::http::render::text::Text;
use crate::http::{App, params};

/// Sensors whose documents are read together.
const BATCH: usize = 256;

/// `GET /api/v1/groups`.
pub async fn list(State(app): State<Arc<App>>, Extension(by): By, query: Pairs) -> Response {
    let listed = async {
        let parameters = Parameters::of(&app, query, params::GROUPS, by)?;
        let (budget, database) = (parameters.budget(&app), parameters.database()?);
        let mut text = Text::new(&budget)?;
        text.out.push_str("{\"groups\":[");
        for (number, rule) in app.groups.of(&database).into_iter().enumerate() {
            comma(&mut text.out, number);
            text.out.push_str("{\"group\":");
            string(&mut text.out, &rule.name);
            text.out.push_str(",\"by\":");
            string(&mut text.out, &rule.by);
            text.out.push('}');
        }
        text.out.push_str("]}");
        budget.answered();
        Ok(text.respond(Format::Json.media_type())?)
    };
    listed.await.unwrap_or_else(|error: ApiError| error.respond(Dialect::Native))
}

/// The group of a database that a path names.
fn rule(app: &App, database: &str, name: &str) -> Result<GroupRule, ApiError> {
    app.groups.of(database).into_iter().find(|rule| *rule.name == *name).cloned().ok_or_else(|| {
        ApiError::Bad(format!(
            "database {database:?} has no group {name:?}: GET /api/v1/groups lists those that there are, [[groups]] in the \
             configuration declares others"
        ))
    })
}

/// `GET /api/v1/groups/NAME`.
pub async fn values(
    State(app): State<Arc<App>>,
    Extension(by): By,
    name: Result<Path<String>, PathRejection>,
    query: Pairs,
) -> Response {
    let listed = async {
        let Path(name) = name.map_err(|error| ApiError::Bad(error.body_text()))?;
        let parameters = Parameters::of(&app, query, params::GROUP, by)?;
        let (budget, database) = (parameters.budget(&app), parameters.database()?);
        let (rule, max) = (rule(&app, &database, &name)?, app.settings.query.sensors_max);
        let limit = parameters.limit(max, max)?;
        let found = app.query.group_values(&budget, (&database, &parameters.all()), &rule).await?;
        let after = parameters.get("cursor");
        let mut values = found.values.iter().filter(|(value, _)| after.is_none_or(|after| value.as_str() > after));
        let mut text = Text::new(&budget)?;
        text.out.push_str("{\"values\":[");
        let mut last = None;
        for (number, (value, sensors)) in values.by_ref().take(limit).enumerate() {
            comma(&mut text.out, number);
            text.out.push_str("{\"value\":");
            string(&mut text.out, value);
            text.out.push_str(",\"sensors\":");
            text.out.push_str(&sensors.to_string());
            text.out.push('}');
            text.row().await?;
            last = Some(value.as_str());
        }
        let next = last.filter(|_| values.next().is_some());
        end_with_next(&mut text.out, next, &[]);
        budget.answered();
        Ok(text.respond(Format::Json.media_type())?)
    };
    listed.await.unwrap_or_else(|error: ApiError| error.respond(Dialect::Native))
}

/// `GET /api/v1/groups/NAME/VALUE`.
pub async fn members(
    State(app): State<Arc<App>>,
    Extension(by): By,
    path: Result<Path<(String, String)>, PathRejection>,
    query: Pairs,
) -> Response {
    let listed = async {
        let Path((name, value)) = path.map_err(|error| ApiError::Bad(error.body_text()))?;
        let parameters = Parameters::of(&app, query, params::GROUP_MEMBERS, by)?;
        let (budget, database) = (parameters.budget(&app), parameters.database()?);
        let (rule, max) = (rule(&app, &database, &name)?, app.settings.query.sensors_max);
        let (limit, times) = (parameters.limit(max, max)?, parameters.times()?);
        let (all, after) = (parameters.all(), parameters.get("cursor"));
        let asked = (&rule, value.as_str());
        let mut members =
            app.query.group_members(&budget, (&database, &all), asked, (after, limit.saturating_add(1))).await?;
        let is_cut = members.len() > limit;
        members.truncate(limit);
        let next = members.last().filter(|_| is_cut).map(|last| last.sensor.key.to_string());
        let (now, groups) = (now_ns(), app.groups.of(&database));
        let mut text = Text::new(&budget)?;
        text.out.push_str("{\"sensors\":[");
        let mut number = 0;
        for some in members.chunks(BATCH) {
            let keys: Vec<&str> = some.iter().map(|member| &*member.stored.key).collect();
            for listed in of_stored(&app, &budget, &database, &keys).await? {
                comma(&mut text.out, number);
                number += 1;
                sensor(&mut text.out, (&listed, &groups, is_silent(&app, &listed, now)), times, false);
                text.row().await?;
            }
        }
        end_with_next(&mut text.out, next.as_deref(), &[]);
        budget.answered();
        Ok(text.respond(Format::Json.media_type())?)
    };
    listed.await.unwrap_or_else(|error: ApiError| error.respond(Dialect::Native))
}
