//! `GET /api/v1/summary`: aggregates per time window of one sensor or many.

use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;

use crate::http::App;
use crate::http::errors::ApiError;
use crate::http::parameters::{Parameters, Selected, step};
use crate::http::render::answer::Answer;
use crate::http::render::format::Format;
use crate::http::render::series::WindowTable;
use crate::http::render::text::Text;
use crate::influxql::Fill;
use crate::query::Budget;
use crate::query::influx::is_zone;
use crate::query::native::aggregate::{Aggregation, Families, GroupBy, NativeAggregate};
use crate::query::native::notices::RequestNames;

/// `GET /api/v1/summary`.
pub async fn summary(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    parameters: Parameters,
) -> Result<Response, ApiError> {
    let app = &*app;
    let budget = parameters.budget(app);
    let (format, times) = (Format::of(&parameters, &headers)?, parameters.times()?);
    let (selected, is_past) = (parameters.selector(app, &budget).await?, Parameters::is_past(&parameters.range()?));
    let group_by = group_by(&parameters);
    let by = if group_by == GroupBy::Sensor { "sensor" } else { "measurement" };
    let windows = aggregated(app, &budget, &parameters, &selected, (&group_by, by)).await?;
    let (database, fields) = (parameters.database()?, parameters.names("fields"));
    let tags = if let GroupBy::Tags(tags) = &group_by { &**tags } else { &[] };
    let range = parameters.range()?;
    let names = RequestNames {
        database: &database,
        selector: &selected.selector,
        fields: &fields,
        group_by: tags,
        range: Some((range.start, range.end)),
    };
    let mut notices = parameters.notices(app, &budget, &selected, names, windows.found.series.is_empty()).await;
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

async fn aggregated(
    app: &App,
    budget: &Budget,
    parameters: &Parameters,
    selected: &Selected,
    (group_by, by): (&GroupBy, &'static str),
) -> Result<WindowTable, ApiError> {
    let (named, fields) = (parameters.get("agg"), parameters.names("fields"));
    let functions = match named {
        None => NativeAggregate::usual(),
        Some(names) => names.split(',').map(aggregate).collect::<Result<_, _>>()?,
    };
    let zone = parameters.get("tz").map(str::to_owned);
    if let Some(zone) = zone.as_deref().filter(|zone| !is_zone(zone)) {
        return Err(ApiError::Bad(format!("parameter tz: {zone:?} is not a time zone such as Europe/Berlin")));
    }
    let asked = Aggregation {
        database: parameters.database()?,
        selector: selected.selector.clone(),
        range: parameters.range()?,
        has_start: parameters.get("from").is_some(),
        families: if named.is_none() && fields.is_empty() { Families::Numbers } else { Families::First },
        fields,
        step: Some(step(parameters.get("step").unwrap_or("1h"))?),
        zone,
        functions,
        group_by: group_by.clone(),
        fill: fill(parameters.get("fill"))?,
    };
    let found = app.query.aggregate(budget, &asked).await?;
    Ok(WindowTable { found, sparse: asked.fill == Fill::None, by })
}

fn aggregate(name: &str) -> Result<NativeAggregate, ApiError> {
    let known =
        "one of count, min, max, sum, avg (or mean), first, last, stddev, median, mode, or a percentile such as p95";
    NativeAggregate::from_name(name).ok_or_else(|| ApiError::Bad(format!("parameter agg: {name:?} is not {known}")))
}

fn fill(text: Option<&str>) -> Result<Fill, ApiError> {
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
