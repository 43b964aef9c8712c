//! Lists of measurements, tags and fields, each with its number of sensors.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Extension, Path, State};
use axum::response::Response;
use serde_json::{Value, json};

use super::write::flag;
use crate::access::Caller;
use crate::http::App;
use crate::http::errors::{ApiError, Dialect};
use crate::http::parameters::{By, Pairs, Parameters};
use crate::http::params::{self, Parameter};
use crate::http::render::format::Format;
use crate::http::render::json::{comma, end_with_notices};
use crate::http::render::text::Text;
use crate::query::native::many::{TagWords, Vocabulary};
use crate::query::native::notices::RequestNames;

/// What is listed: its name in the answer, and of tags which.
struct Listed<'a> {
    name: &'static str,
    tags: Tags<'a>,
}

enum Tags<'a> {
    None,
    All,
    /// The one with this key.
    One(&'a str),
}

impl<'a> Tags<'a> {
    fn known(&self) -> &'static [Parameter] {
        match self {
            Tags::All => params::TAGS,
            Tags::None | Tags::One(_) => params::LISTS,
        }
    }

    fn words(&self, parameters: &Parameters) -> Result<TagWords<'a>, ApiError> {
        Ok(match self {
            Tags::All if flag("metadata", parameters.get("metadata"))? == Some(true) => TagWords::WithMetadata,
            Tags::One(key) => TagWords::One(key),
            Tags::None | Tags::All => TagWords::Own,
        })
    }
}

async fn list<I: Iterator<Item = Value>>(
    app: &App,
    by: Caller,
    query: Pairs,
    of: Listed<'_>,
    items: impl FnOnce(Vocabulary) -> I,
) -> Response {
    read(app, by, query, of, items).await.unwrap_or_else(|error| error.respond(Dialect::Native))
}

async fn read<I: Iterator<Item = Value>>(
    app: &App,
    by: Caller,
    query: Pairs,
    of: Listed<'_>,
    items: impl FnOnce(Vocabulary) -> I,
) -> Result<Response, ApiError> {
    let parameters = Parameters::of(app, query, of.tags.known(), by)?;
    let tags = of.tags.words(&parameters)?;
    let budget = parameters.budget(app);
    let (database, selected) = (parameters.database()?, parameters.selector_or_all(app, &budget).await?);
    let mut words = app.query.vocabulary(&budget, (&database, &selected.selector), tags).await?;
    let names =
        RequestNames { database: &database, selector: &selected.selector, fields: &[], group_by: &[], range: None };
    let notices = parameters.notices(app, &budget, &selected, names, words.measurements.is_empty()).await;
    let held = words.held.take();
    let mut text = Text::new(&budget)?;
    text.out = format!("{{\"{}\":[", of.name);
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
    list(&app, by, query, Listed { name: "measurements", tags: Tags::None }, |words| {
        words.measurements.into_iter().map(item)
    })
    .await
}

/// `GET /api/v1/tags`: with `metadata=true` also names of metadata, as queries take them.
pub async fn tags(State(app): State<Arc<App>>, Extension(by): By, query: Pairs) -> Response {
    let items = |words: Vocabulary| {
        let item = |(key, values): (String, BTreeMap<String, usize>)| json!({ "tag": key, "values": values.len(), "sensors": values.values().sum::<usize>() });
        words.tags.into_iter().map(item)
    };
    list(&app, by, query, Listed { name: "tags", tags: Tags::All }, items).await
}

type Key = Result<Path<String>, PathRejection>;

/// `GET /api/v1/tags/{key}`, of metadata with the prefix `meta.`.
pub async fn tag_values(State(app): State<Arc<App>>, Extension(by): By, key: Key, query: Pairs) -> Response {
    let key = match key {
        Ok(Path(key)) => key,
        Err(error) => return ApiError::Bad(error.body_text()).respond(Dialect::Native),
    };
    let items = |mut words: Vocabulary| {
        let values = words.tags.remove(&key).unwrap_or_default();
        values.into_iter().map(|(value, sensors)| json!({ "value": value, "sensors": sensors }))
    };
    list(&app, by, query, Listed { name: "values", tags: Tags::One(&key) }, items).await
}

/// `GET /api/v1/fields`.
pub async fn fields(State(app): State<Arc<App>>, Extension(by): By, query: Pairs) -> Response {
    let item = |(name, (family, sensors)): (String, (&str, usize))| json!({ "field": name, "type": family, "sensors": sensors });
    list(&app, by, query, Listed { name: "fields", tags: Tags::None }, |words| words.fields.into_iter().map(item)).await
}
