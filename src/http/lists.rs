//! Lists of measurements, tags and fields, each with its number of sensors.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Extension, Path, State};
use axum::response::Response;
use serde_json::{Value, json};

use super::App;
use super::errors::{ApiError, Dialect};
use super::format::Format;
use super::json::{comma, end_with_notices};
use super::parameters::{Pairs, Parameters};
use super::params;
use super::text::Text;
use crate::access::Caller;
use crate::http::parameters::By;
use crate::query::native::many::Vocabulary;
use crate::query::native::notices::RequestNames;

async fn list<I: Iterator<Item = Value>>(
    app: &App,
    by: Caller,
    query: Pairs,
    name: &str,
    items: impl FnOnce(Vocabulary) -> I,
) -> Response {
    read(app, by, query, name, items).await.unwrap_or_else(|error| error.respond(Dialect::Native))
}

async fn read<I: Iterator<Item = Value>>(
    app: &App,
    by: Caller,
    query: Pairs,
    name: &str,
    items: impl FnOnce(Vocabulary) -> I,
) -> Result<Response, ApiError> {
    let parameters = Parameters::of(app, query, params::LISTS, by)?;
    let budget = parameters.budget(app);
    let (database, selected) = (parameters.database()?, parameters.selector_or_all(app, &budget).await?);
    let mut words = app.query.vocabulary(&budget, &database, &selected.selector).await?;
    let names = RequestNames { database: &database, selector: &selected.selector, fields: &[], group_by: &[] };
    let notices = parameters.notices(app, &budget, &selected, names, words.measurements.is_empty()).await;
    let held = words.held.take();
    let mut text = Text::new(&budget)?;
    text.out = format!("{{\"{name}\":[");
    for (number, item) in items(words).enumerate() {
        comma(&mut text.out, number);
        text.out.push_str(&item.to_string());
        text.row().await?;
    }
    text.out.push(']');
    end_with_notices(&mut text.out, &notices);
    drop(held);
    budget.answered();
    Ok(text.respond(Format::Json.media_type())?)
}

/// `GET /api/v1/measurements`.
pub async fn measurements(State(app): State<Arc<App>>, Extension(by): By, query: Pairs) -> Response {
    let item = |(name, sensors): (String, usize)| json!({ "measurement": name, "sensors": sensors });
    list(&app, by, query, "measurements", |words| words.measurements.into_iter().map(item)).await
}

/// `GET /api/v1/tags`.
pub async fn tags(State(app): State<Arc<App>>, Extension(by): By, query: Pairs) -> Response {
    let items = |words: Vocabulary| {
        let item = |(key, values): (String, BTreeMap<String, usize>)| json!({ "tag": key, "values": values.len(), "sensors": values.values().sum::<usize>() });
        words.tags.into_iter().map(item)
    };
    list(&app, by, query, "tags", items).await
}

type Key = Result<Path<String>, PathRejection>;

/// `GET /api/v1/tags/{key}`.
pub async fn tag_values(State(app): State<Arc<App>>, Extension(by): By, key: Key, query: Pairs) -> Response {
    let key = match key {
        Ok(Path(key)) => key,
        Err(error) => return ApiError::Bad(error.body_text()).respond(Dialect::Native),
    };
    let items = |mut words: Vocabulary| {
        let values = words.tags.remove(&key).unwrap_or_default();
        values.into_iter().map(|(value, sensors)| json!({ "value": value, "sensors": sensors }))
    };
    list(&app, by, query, "values", items).await
}

/// `GET /api/v1/fields`.
pub async fn fields(State(app): State<Arc<App>>, Extension(by): By, query: Pairs) -> Response {
    let item = |(name, (family, sensors)): (String, (&str, usize))| json!({ "field": name, "type": family, "sensors": sensors });
    list(&app, by, query, "fields", |words| words.fields.into_iter().map(item)).await
}
