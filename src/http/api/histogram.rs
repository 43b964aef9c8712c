//! `GET /api/v1/histogram`: the numbers of a field's values by range, and approximate percentiles.

use std::sync::Arc;

use axum::http::HeaderMap;
use axum::response::Response;

use super::summary::group_by;
use crate::bucket::summary::distribution::{BOUNDS_MAX, Distribution, are_bounds};
use crate::http::errors::{ApiError, ApiResult};
use crate::http::parameters::{Parameters, SensorSelection};
use crate::http::render::answer::Answer;
use crate::http::render::format::Format;
use crate::http::render::json::{self, Times};
use crate::http::render::text::Text;
use crate::query::Budget;
use crate::query::Fill;
use crate::query::native::aggregate::{Aggregation, Families, GroupBy, WindowSeries};
use crate::query::native::functions::NativeAggregate;
use crate::query::native::histogram::DeclaredBounds;
use crate::query::native::notices::RequestNames;
use crate::reading::Value;

/// The maximum number of percentiles of a request.
const PERCENTILES_MAX: usize = 16;

/// `GET /api/v1/histogram`.
pub async fn histogram(headers: HeaderMap, parameters: Parameters) -> ApiResult<Response> {
    let budget = parameters.budget();
    let times = parameters.times()?;
    let percentiles = percentiles(&parameters)?;
    let selected = parameters.selector(&budget).await?;
    let field = parameters.get("field").ok_or_else(|| ApiError::Bad("parameter field is missing".to_owned()))?;
    let bounds = bounds(&parameters, &budget, &selected, field).await?;
    let request = Aggregation {
        database: parameters.database()?,
        selector: selected.selector.clone(),
        range: parameters.range()?,
        has_start: parameters.get("from").is_some(),
        fields: vec![field.to_owned()],
        windows: parameters.windows(None)?,
        functions: vec![NativeAggregate::histogram(bounds.clone())],
        families: Families::Numbers,
        group_by: group_by(&parameters)?,
        fill: Fill::None,
        ranking: None,
        part: None,
    };
    let found = parameters.app.query.aggregate(&budget, &request).await?;
    let tags = if let GroupBy::Tags(tags) = &request.group_by { &**tags } else { &[] };
    let names = RequestNames {
        database: &request.database,
        selector: &request.selector,
        fields: &request.fields,
        group_by: tags,
        range: Some((request.range.start, request.range.end)),
    };
    let mut notices = parameters.notices(&budget, &selected, names, found.series.is_empty()).await;
    notices.extend(found.notices.iter().cloned());
    let mut body = Text::new(&budget)?;
    body.out.push_str("{\"field\":");
    json::string(&mut body.out, field);
    body.out.push_str(",\"bounds\":[");
    json::list(&mut body.out, &*bounds, |out, bound| json::value(out, &Value::Float(*bound)));
    body.out.push_str("],\"series\":[");
    let name = if request.group_by == GroupBy::Sensor { "sensor" } else { "measurement" };
    for (number, series) in found.series.iter().enumerate() {
        json::comma(&mut body.out, number);
        let tags = series.tags.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        json::head(&mut body.out, name, series.sensor.as_deref().unwrap_or(&series.measurement), tags);
        body.out.push_str(",\"windows\":[");
        for row in 0..series.windows.len() {
            json::comma(&mut body.out, row);
            window(&mut body.out, series, row, (&bounds, &percentiles), times);
            body.row().await?;
        }
        body.out.push_str("]}");
        body.row().await?;
    }
    body.out.push(']');
    json::end_with_notices(&mut body.out, &notices);
    body.row().await?;
    budget.finish();
    let is_past = Parameters::is_past(&request.range);
    Ok(Answer { format: Format::Json, body, next: None, is_past, notices }.respond(&headers)?)
}

/// Writes a window: `{"start":…,"end":…,"count":3,"counts":[1,2,0],"unplaced":0,"percentiles":{…}}`.
fn window(
    out: &mut String,
    series: &WindowSeries,
    row: usize,
    (bounds, percentiles): (&Arc<[f64]>, &[f64]),
    times: Times,
) {
    let (span, cells) = &series.windows[row];
    let count = |cell: &Option<Value>| match cell {
        Some(Value::Integer(count)) => u64::try_from(*count).unwrap_or_default(),
        _ => 0,
    };
    let mut counts: Vec<u64> = cells.iter().map(count).collect();
    let unplaced = counts.pop().unwrap_or_default();
    let placed: u64 = counts.iter().sum();
    out.push_str("{\"start\":");
    json::time(out, span.start, times);
    out.push_str(",\"end\":");
    json::time(out, span.end, times);
    out.push_str(&format!(",\"count\":{},\"counts\":[", placed.saturating_add(unplaced)));
    json::list(out, &counts, |out, count| out.push_str(&count.to_string()));
    out.push_str(&format!("],\"unplaced\":{unplaced}"));
    if let Some(distribution) = Distribution::from_counts(bounds.clone(), counts).filter(|_| !percentiles.is_empty()) {
        out.push_str(",\"percentiles\":{");
        json::list(out, percentiles, |out, percent| percentile(out, &distribution, *percent));
        out.push('}');
    }
    out.push('}');
}

/// Writes the range in which a percentile lies: `"95":{"approximate":true,"from":20,"to":30}`. A missing bound is null.
fn percentile(out: &mut String, distribution: &Distribution, percent: f64) {
    let range = distribution.percentile(percent);
    let ends = [range.and_then(|range| range.checked_sub(1)), range];
    out.push_str(&format!("\"{percent}\":{{\"approximate\":true"));
    for (name, end) in ["from", "to"].into_iter().zip(ends) {
        out.push_str(&format!(",\"{name}\":"));
        match end.and_then(|index| distribution.bounds().get(index)) {
            Some(bound) => json::value(out, &Value::Float(*bound)),
            None => out.push_str("null"),
        }
    }
    out.push('}');
}

/// Parses a comma-separated list of numbers.
fn numbers(parameters: &Parameters, name: &str) -> ApiResult<Vec<f64>> {
    let number =
        |text: String| text.parse().map_err(|_| ApiError::Bad(format!("parameter {name}: {text:?} is not a number")));
    parameters.names(name)?.into_iter().map(number).collect()
}

fn percentiles(parameters: &Parameters) -> ApiResult<Vec<f64>> {
    let percentiles = numbers(parameters, "percentiles")?;
    let are_valid = percentiles.iter().all(|percent| (0.0..=100.0).contains(percent));
    if are_valid && percentiles.len() <= PERCENTILES_MAX {
        return Ok(percentiles);
    }
    Err(ApiError::Bad(format!(
        "parameter percentiles is not a list of at most {PERCENTILES_MAX} numbers from 0 to 100"
    )))
}

/// Returns the bounds that the request gives, or those that the kind of the sensors declares.
async fn bounds(
    parameters: &Parameters,
    budget: &Budget,
    selected: &SensorSelection,
    field: &str,
) -> ApiResult<Arc<[f64]>> {
    let given = numbers(parameters, "bounds")?;
    if !given.is_empty() {
        if are_bounds(&given) {
            return Ok(given.into());
        }
        return Err(ApiError::Bad(format!(
            "parameter bounds is not a list of 1 to {BOUNDS_MAX} finite, ascending numbers"
        )));
    }
    let database = parameters.database()?;
    let kinds = &parameters.app.settings.kinds;
    let found = parameters.app.query.declared_bounds(budget, &database, &selected.selector, field, kinds).await?;
    match found {
        DeclaredBounds::Same(bounds) => Ok(bounds),
        DeclaredBounds::Missing => Err(ApiError::Bad(format!(
            "no kind of the selected sensors declares buckets of field {field:?}: send bounds=0,10,20"
        ))),
        DeclaredBounds::Different => Err(ApiError::Bad(format!(
            "the kinds of the selected sensors declare different buckets of field {field:?}: send bounds=0,10,20, or select sensors of one kind"
        ))),
    }
}
