//! `GET /api/v1/summary`: aggregates of one or many sensors per time window.

use axum::http::HeaderMap;
use axum::response::Response;

use crate::http::errors::{ApiError, ApiResult};
use crate::http::parameters::{Parameters, SensorSelection, step};
use crate::http::render::answer::Answer;
use crate::http::render::format::Format;
use crate::http::render::series::WindowTable;
use crate::http::render::text::Text;
use crate::query::Fill;
use crate::query::influx::is_zone;
use crate::query::native::aggregate::{Aggregation, Families, GroupBy, NativeAggregate};
use crate::query::native::notices::RequestNames;

/// `GET /api/v1/summary`.
pub async fn summary(headers: HeaderMap, parameters: Parameters) -> ApiResult<Response> {
    let budget = parameters.budget();
    let format = Format::negotiate(&parameters, &headers)?;
    let times = parameters.times()?;
    let selected = parameters.selector(&budget).await?;
    let is_past = Parameters::is_past(&parameters.range()?);
    let aggregation = aggregation(&parameters, &selected)?;
    let (series_member, tags) = match &aggregation.group_by {
        GroupBy::Sensor => ("sensor", &[][..]),
        GroupBy::Tags(tags) => ("measurement", &**tags),
    };
    let found = parameters.app.query.aggregate(&budget, &aggregation).await?;
    let windows = WindowTable { found, is_sparse: aggregation.fill == Fill::None, series_member };
    let names = RequestNames {
        database: &aggregation.database,
        selector: &aggregation.selector,
        fields: &aggregation.fields,
        group_by: tags,
        range: Some((aggregation.range.start, aggregation.range.end)),
    };
    let mut notices = parameters.notices(&budget, &selected, names, windows.found.series.is_empty()).await;
    notices.extend(windows.found.notices.iter().cloned());
    let mut body = Text::new(&budget)?;
    windows.write(&mut body, format, times, &notices).await?;
    budget.finish();
    Ok(Answer { format, body, next: None, is_past, notices }.respond(&headers)?)
}

/// Parses the grouping of sensors.
pub(super) fn group_by(parameters: &Parameters) -> GroupBy {
    match parameters.get("group_by") {
        None | Some("none") => GroupBy::Sensor,
        Some("*") => GroupBy::Tags(Vec::new()),
        Some(names) => GroupBy::Tags(names.split(',').map(str::to_owned).collect()),
    }
}

/// Parses the parameters of an aggregation.
fn aggregation(parameters: &Parameters, selected: &SensorSelection) -> ApiResult<Aggregation> {
    let names = parameters.get("agg");
    let fields = parameters.fields();
    let functions = match names {
        None => NativeAggregate::usual(),
        Some(names) => names.split(',').map(parse_function).collect::<Result<_, _>>()?,
    };
    let zone = parameters.get("tz").map(str::to_owned);
    if let Some(zone) = zone.as_deref().filter(|zone| !is_zone(zone)) {
        return Err(ApiError::Bad(format!("parameter tz: {zone:?} is not a time zone such as Europe/Berlin")));
    }
    Ok(Aggregation {
        database: parameters.database()?,
        selector: selected.selector.clone(),
        range: parameters.range()?,
        has_start: parameters.get("from").is_some(),
        families: if names.is_none() && fields.is_empty() { Families::Numbers } else { Families::First },
        fields,
        step: Some(step(parameters.get("step").unwrap_or("1h"))?),
        zone,
        functions,
        group_by: group_by(parameters),
        fill: parse_fill(parameters.get("fill"))?,
    })
}

fn parse_function(name: &str) -> ApiResult<NativeAggregate> {
    let known =
        "one of count, min, max, sum, avg (or mean), first, last, stddev, median, mode, or a percentile such as p95";
    NativeAggregate::from_name(name).ok_or_else(|| ApiError::Bad(format!("parameter agg: {name:?} is not {known}")))
}

fn parse_fill(text: Option<&str>) -> ApiResult<Fill> {
    Ok(match text {
        None | Some("none") => Fill::None,
        Some("null") => Fill::Null,
        Some("previous") => Fill::Previous,
        Some("linear") => Fill::Linear,
        Some(number) => match (number.parse::<i64>(), number.parse::<f64>()) {
            (Ok(whole), _) => Fill::Integer(whole),
            (Err(_), Ok(float)) if float.is_finite() => Fill::Float(float),
            _ => {
                return Err(ApiError::Bad(format!(
                    "parameter fill: {number:?} is not one of none, null, previous, linear, or a number"
                )));
            }
        },
    })
}
