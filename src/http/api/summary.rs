//! `GET /api/v1/summary`: aggregates of one or many sensors per time window.

use std::ops::Range;

use axum::http::HeaderMap;
use axum::response::Response;

use super::readings::bad_cursor;
use crate::http::cursor;
use crate::http::errors::{ApiError, ApiResult};
use crate::http::parameters::{Parameters, SensorSelection};
use crate::http::render::answer::Answer;
use crate::http::render::format::Format;
use crate::http::render::series::{AnswerEnd, WindowTable};
use crate::http::render::text::Text;
use crate::query::Fill;
use crate::query::native::aggregate::{Aggregation, Families, GroupBy};
use crate::query::native::functions::NativeAggregate;
use crate::query::native::notices::RequestNames;
use crate::query::native::parts::{Part, Ranking, SeriesName, WindowPlace};

/// The maximum of `top` and `bottom`.
const RANKED_MAX: usize = 1_000;
/// The maximum number of names in `group_by`: groups are sorted by all of them.
const GROUP_TAGS_MAX: usize = 100;

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
    if parameters.get("cursor").is_none() {
        notices.extend(windows.found.notices.iter().cloned());
    }
    let mut body = Text::new(&budget)?;
    let next = windows.found.next.as_ref();
    let next = next.map(|next| cursor::format(next.time, &next.series.text(&aggregation.group_by)));
    windows.write(&mut body, format, times, AnswerEnd { next: next.as_deref(), notices: &notices }).await?;
    budget.finish();
    Ok(Answer { format, body, next, is_past, notices }.respond(&headers)?)
}

/// Parses the grouping of sensors.
pub(super) fn group_by(parameters: &Parameters) -> ApiResult<GroupBy> {
    Ok(match parameters.get("group_by") {
        None | Some("none") => GroupBy::Sensor,
        Some("*") => GroupBy::Tags(Vec::new()),
        Some(_) => {
            let names = parameters.names("group_by")?;
            if names.len() > GROUP_TAGS_MAX {
                return Err(ApiError::Bad(format!("parameter group_by: at most {GROUP_TAGS_MAX} names")));
            }
            GroupBy::Tags(names)
        }
    })
}

/// Parses the parameters of an aggregation.
fn aggregation(parameters: &Parameters, selected: &SensorSelection) -> ApiResult<Aggregation> {
    let names = parameters.get("agg");
    let fields = parameters.fields()?;
    let functions = match names {
        None => NativeAggregate::usual(),
        Some(names) => parse_functions(names)?,
    };
    let range = parameters.range()?;
    let group_by = group_by(parameters)?;
    let ranking = ranking(parameters, &fields)?;
    let part = part(parameters, &range, &group_by)?;
    if ranking.is_some() && part.is_some() {
        return Err(ApiError::Bad(
            "parameters top and bottom choose the series: leave out limit and cursor".to_owned(),
        ));
    }
    Ok(Aggregation {
        database: parameters.database()?,
        selector: selected.selector.clone(),
        range,
        has_start: parameters.get("from").is_some(),
        families: if names.is_none() && fields.is_empty() { Families::Numbers } else { Families::First },
        fields,
        windows: parameters.windows(Some("1h"))?,
        functions,
        group_by,
        fill: parse_fill(parameters.get("fill"))?,
        ranking,
        part,
    })
}

/// Parses the parameters `top` and `bottom`.
fn ranking(parameters: &Parameters, fields: &[String]) -> ApiResult<Option<Ranking>> {
    let top = parameters.count("top", RANKED_MAX)?;
    let bottom = parameters.count("bottom", RANKED_MAX)?;
    let ranking = match (top, bottom) {
        (None, None) => return Ok(None),
        (Some(_), Some(_)) => return Err(ApiError::Bad("parameters top and bottom: send one of them".to_owned())),
        (Some(count), None) => Ranking { count, is_top: true },
        (None, Some(count)) => Ranking { count, is_top: false },
    };
    if fields.is_empty() || parameters.get("agg").is_none() {
        return Err(ApiError::Bad("parameters top and bottom need fields and agg: the first of each ranks".to_owned()));
    }
    Ok(Some(ranking))
}

/// Parses the parameters `limit` and `cursor`.
fn part(parameters: &Parameters, range: &Range<i64>, group_by: &GroupBy) -> ApiResult<Option<Part>> {
    let query = &parameters.app.settings.query;
    let cursor = parameters.get("cursor");
    if cursor.is_none() && parameters.get("limit").is_none() {
        return Ok(None);
    }
    let parse = |cursor: &str| {
        let (time, name) = cursor::parse(cursor, range)?;
        Some(WindowPlace { series: SeriesName::parse(&name, group_by)?, time })
    };
    let start = cursor.map(|cursor| parse(cursor).ok_or_else(|| bad_cursor(cursor))).transpose()?;
    Ok(Some(Part { limit: parameters.limit(query.limit_default, query.limit_max)?, start }))
}

fn parse_functions(names: &str) -> ApiResult<Vec<NativeAggregate>> {
    let known = "one of count, min, max, sum, avg (or mean), first, last, stddev, median, mode, increase, rate, a percentile such as p95 or p99.9, or difference(last), derivative(avg), derivative(avg,1m) or moving_average(avg,5) of one of these";
    NativeAggregate::parse_list(names).map_err(|name| ApiError::Bad(format!("parameter agg: {name:?} is not {known}")))
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
