//! `GET /api/v1/summary`: aggregates per time window of one sensor or many.

use axum::http::HeaderMap;
use axum::response::Response;

use crate::http::errors::{ApiError, ApiResult};
use crate::http::parameters::{Parameters, Selected, step};
use crate::http::render::answer::Answer;
use crate::http::render::format::Format;
use crate::http::render::series::WindowTable;
use crate::http::render::text::Text;
use crate::influxql::Fill;
use crate::query::influx::is_zone;
use crate::query::native::aggregate::{Aggregation, Families, GroupBy, NativeAggregate};
use crate::query::native::notices::RequestNames;

/// `GET /api/v1/summary`.
pub async fn summary(headers: HeaderMap, parameters: Parameters) -> ApiResult<Response> {
    let budget = parameters.budget();
    let (format, times) = (Format::of(&parameters, &headers)?, parameters.times()?);
    let selected = parameters.selector(&budget).await?;
    let is_past = Parameters::is_past(&parameters.range()?);
    let asked = aggregation(&parameters, &selected)?;
    let (by, tags) = match &asked.group_by {
        GroupBy::Sensor => ("sensor", &[][..]),
        GroupBy::Tags(tags) => ("measurement", &**tags),
    };
    let found = parameters.app.query.aggregate(&budget, &asked).await?;
    let windows = WindowTable { found, sparse: asked.fill == Fill::None, by };
    let names = RequestNames {
        database: &asked.database,
        selector: &asked.selector,
        fields: &asked.fields,
        group_by: tags,
        range: Some((asked.range.start, asked.range.end)),
    };
    let mut notices = parameters.notices(&budget, &selected, names, windows.found.series.is_empty()).await;
    notices.extend(windows.found.notices.iter().cloned());
    let mut body = Text::new(&budget)?;
    windows.write(&mut body, format, times, &notices).await?;
    budget.answered();
    Ok(Answer { format, body, next: None, is_past, notices }.respond(&headers)?)
}

fn group_by(parameters: &Parameters) -> GroupBy {
    match parameters.get("group_by") {
        None | Some("none") => GroupBy::Sensor,
        Some("*") => GroupBy::Tags(Vec::new()),
        Some(names) => GroupBy::Tags(names.split(',').map(str::to_owned).collect()),
    }
}

/// What the parameters ask for.
fn aggregation(parameters: &Parameters, selected: &Selected) -> ApiResult<Aggregation> {
    let (named, fields) = (parameters.get("agg"), parameters.names("fields"));
    let functions = match named {
        None => NativeAggregate::usual(),
        Some(names) => names.split(',').map(aggregate).collect::<Result<_, _>>()?,
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
        families: if named.is_none() && fields.is_empty() { Families::Numbers } else { Families::First },
        fields,
        step: Some(step(parameters.get("step").unwrap_or("1h"))?),
        zone,
        functions,
        group_by: group_by(parameters),
        fill: fill(parameters.get("fill"))?,
    })
}

fn aggregate(name: &str) -> ApiResult<NativeAggregate> {
    let known =
        "one of count, min, max, sum, avg (or mean), first, last, stddev, median, mode, or a percentile such as p95";
    NativeAggregate::from_name(name).ok_or_else(|| ApiError::Bad(format!("parameter agg: {name:?} is not {known}")))
}

fn fill(text: Option<&str>) -> ApiResult<Fill> {
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
