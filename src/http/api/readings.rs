//! `GET /api/v1/readings`: raw readings of one sensor or many, in parts with a cursor, or thinned for a chart.

use std::sync::Arc;

use axum::http::HeaderMap;
use axum::response::Response;

use crate::http::App;
use crate::http::errors::{ApiError, ApiResult};
use crate::http::parameters::Parameters;
use crate::http::render::answer::Answer;
use crate::http::render::format::Format;
use crate::http::render::series::{self, SensorReadings, TableColumns};
use crate::http::render::text::Text;
use crate::query::native::Selection;
use crate::query::native::many::{ManySelection, TagWords};
use crate::query::native::notices::RequestNames;
use crate::query::native::readings::{Order, rest};
use crate::query::native::thinning::Thinned;
use crate::query::selector::Selector;
use crate::query::{Budget, HeldBytes};
use crate::reading::Sensor;

/// `GET /api/v1/readings`.
pub async fn readings(headers: HeaderMap, parameters: Parameters) -> ApiResult<Response> {
    let app = &*parameters.app;
    let budget = parameters.budget();
    let (format, times) = (Format::of(&parameters, &headers)?, parameters.times()?);
    let selected = parameters.selector(&budget).await?;
    let asked = ManySelection {
        selector: selected.selector.clone(),
        per_sensor: parameters.selection(&selected.selector)?,
        order: order(&parameters)?,
        from: None,
    };
    let limit = parameters.limit(app.settings.query.limit_default, app.settings.query.limit_max)?;
    let cursor = parameters.get("cursor");
    let Selection { database, range, fields, .. } = asked.per_sensor.clone();
    let columns = match format {
        Format::Csv(_) => {
            let words = app.query.vocabulary(&budget, &database, &asked.selector, TagWords::Own).await?;
            TableColumns::of(words, fields.clone())
        }
        Format::Json | Format::Lines => TableColumns::default(),
    };
    let points_max = parameters.count("max_points", app.settings.query.limit_max)?;
    let ReadingsPart { series, next, held } = match (&asked.selector, points_max) {
        (_, Some(points_max)) => for_a_chart(app, &budget, &parameters, asked, points_max).await?,
        (Selector::Sensor(sensor), None) => {
            let sensor = (sensor.clone(), selected.by_tag);
            one_sensor(app, &budget, sensor, asked, (limit, cursor)).await?
        }
        (Selector::Matching { .. }, None) => many_sensors(app, &budget, asked, (limit, cursor)).await?,
    };
    let names = RequestNames {
        database: &database,
        selector: &selected.selector,
        fields: &fields,
        group_by: &[],
        range: Some((range.start, range.end)),
    };
    let notices = parameters.notices(&budget, &selected, names, series.is_empty()).await;
    let mut body = Text::new(&budget)?;
    series::readings(&mut body, format, &series, columns, times, (next.as_deref(), &notices)).await?;
    drop((series, held));
    budget.answered();
    Ok(Answer { format, body, next, is_past: Parameters::is_past(&range), notices }.respond(&headers)?)
}

fn order(parameters: &Parameters) -> ApiResult<Order> {
    match parameters.get("order") {
        None | Some("asc") => Ok(Order::Ascending),
        Some("desc") => Ok(Order::Descending),
        Some(other) => Err(ApiError::Bad(format!("parameter order: {other:?} is neither asc nor desc"))),
    }
}

/// One part of the answer, and the memory it holds.
struct ReadingsPart {
    series: Vec<SensorReadings>,
    next: Option<String>,
    held: HeldBytes,
}

async fn one_sensor(
    app: &App,
    budget: &Budget,
    (sensor, by_tag): (Arc<Sensor>, bool),
    asked: ManySelection,
    (limit, cursor): (usize, Option<&str>),
) -> ApiResult<ReadingsPart> {
    let ManySelection { per_sensor: mut selection, order, .. } = asked;
    if let Some(cursor) = cursor {
        let text = cursor.split_once('.').filter(|_| by_tag).map_or(cursor, |(time, _)| time);
        let time = time(text).filter(|time| selection.range.contains(time));
        selection.range = rest(order, &selection.range, time.ok_or_else(|| bad_cursor(cursor))?);
    }
    let part = app.query.readings(budget, &selection, order, limit).await?;
    // Opaque to clients: the time of the next reading, in hexadecimal, and the key of a sensor that was found by its tag:
    // the next part is of the same sensor, even if others have the tag by then.
    let key = |time: i64| if by_tag { format!("{time:x}.{}", sensor.key) } else { format!("{time:x}") };
    let next = part.next.map(key);
    Ok(ReadingsPart {
        series: part.known.then_some((sensor, part.readings)).into_iter().collect(),
        next,
        held: part.held,
    })
}

async fn many_sensors(
    app: &App,
    budget: &Budget,
    mut asked: ManySelection,
    (limit, cursor): (usize, Option<&str>),
) -> ApiResult<ReadingsPart> {
    // Opaque to clients: the time of the next reading, in hexadecimal, and its sensor's key.
    if let Some(cursor) = cursor {
        let (text, key) = cursor.split_once('.').ok_or_else(|| bad_cursor(cursor))?;
        let time = time(text).filter(|time| asked.per_sensor.range.contains(time));
        asked.from = Some((key.to_owned(), time.ok_or_else(|| bad_cursor(cursor))?));
    }
    let part = app.query.many_readings(budget, &asked, limit).await?;
    let next = part.next.map(|(key, time)| format!("{time:x}.{key}"));
    Ok(ReadingsPart { series: part.series, next, held: part.held })
}

async fn for_a_chart(
    app: &App,
    budget: &Budget,
    parameters: &Parameters,
    asked: ManySelection,
    points_max: usize,
) -> ApiResult<ReadingsPart> {
    for name in ["limit", "cursor"] {
        if parameters.get(name).is_some() {
            return Err(ApiError::Bad(format!("parameter max_points covers the whole range: leave out {name}")));
        }
    }
    let is_one = matches!(asked.selector, Selector::Sensor(_));
    let Thinned { mut series, held } = app.query.thinned(budget, &asked, points_max).await?;
    series.retain(|(_, readings)| is_one || !readings.is_empty());
    Ok(ReadingsPart { series, next: None, held })
}

fn time(text: &str) -> Option<i64> {
    u64::from_str_radix(text, 16).ok().map(u64::cast_signed)
}

fn bad_cursor(cursor: &str) -> ApiError {
    ApiError::Bad(format!("parameter cursor: {cursor:?} is not of this range: pass next on as it was given"))
}
