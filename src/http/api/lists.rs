//! Lists of measurements, tags and fields, each with its number of sensors.

use axum::response::Response;
use serde_json::{Value, json};

use crate::http::errors::ApiResult;
use crate::http::parameters::{InPath, Parameters};
use crate::http::render::json::end_with_notices;
use crate::http::render::text::Text;
use crate::query::native::many::{TagWords, Vocabulary};
use crate::query::native::notices::RequestNames;

/// Answers with a list called `name`, made from the vocabulary of the selected sensors.
async fn list<I: Iterator<Item = Value>>(
    parameters: &Parameters,
    name: &str,
    tags: TagWords<'_>,
    items: impl FnOnce(Vocabulary) -> I,
) -> ApiResult<Response> {
    let budget = parameters.budget();
    let database = parameters.database()?;
    let selected = parameters.selector_or_all(&budget).await?;
    let mut words = parameters.app.query.vocabulary(&budget, &database, &selected.selector, tags).await?;
    let names = RequestNames::for_sensors(&database, &selected.selector);
    let notices = parameters.notices(&budget, &selected, names, words.measurements.is_empty()).await;
    let held = words.held.take();
    let mut text = Text::list(&budget, name)?;
    for item in items(words) {
        text.item(|out| out.push_str(&item.to_string())).await?;
    }
    text.out.push(']');
    end_with_notices(&mut text.out, &notices);
    drop(held);
    Ok(text.respond_json(&budget)?)
}

/// `GET /api/v1/measurements`.
pub async fn measurements(parameters: Parameters) -> ApiResult<Response> {
    let item = |(name, sensors)| json!({ "measurement": name, "sensors": sensors });
    list(&parameters, "measurements", TagWords::Own, |words| words.measurements.into_iter().map(item)).await
}

/// `GET /api/v1/tags`: tag keys, with `metadata=true` also metadata names (`meta.NAME`).
pub async fn tags(parameters: Parameters) -> ApiResult<Response> {
    let tags = if parameters.flag("metadata")? { TagWords::WithMetadata } else { TagWords::Own };
    list(&parameters, "tags", tags, |words| {
        words.tags.into_iter().map(
            |(key, values)| json!({ "tag": key, "values": values.len(), "sensors": values.values().sum::<usize>() }),
        )
    })
    .await
}

/// `GET /api/v1/tags/{key}`: values of a tag, or of metadata with the prefix `meta.`.
pub async fn tag_values(InPath(key): InPath<String>, parameters: Parameters) -> ApiResult<Response> {
    list(&parameters, "values", TagWords::One(&key), |mut words| {
        let values = words.tags.remove(&key).unwrap_or_default();
        values.into_iter().map(|(value, sensors)| json!({ "value": value, "sensors": sensors }))
    })
    .await
}

/// `GET /api/v1/fields`, each with its unit, unless sensors have different ones.
pub async fn fields(parameters: Parameters) -> ApiResult<Response> {
    list(&parameters, "fields", TagWords::Own, |words| {
        let Vocabulary { fields, mut units, .. } = words;
        fields.into_iter().map(move |(name, (family, sensors))| {
            let mut item = json!({ "field": name, "type": family, "sensors": sensors });
            if let Some(Some(unit)) = units.remove(&name) {
                item["unit"] = json!(unit);
            }
            item
        })
    })
    .await
}
