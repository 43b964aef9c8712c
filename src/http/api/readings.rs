//! `GET /api/v1/readings`: raw readings of one or many sensors, in parts with a cursor, or downsampled for a chart.

use std::sync::Arc;

use axum::http::HeaderMap;
use axum::response::Response;

use crate::http::App;
use crate::http::errors::{ApiError, ApiResult};
use crate::http::parameters::Parameters;
use crate::http::render::answer::Answer;
use crate::http::render::format::Format;
use crate::http::render::series::{self, AnswerEnd, TableColumns};
use crate::http::render::text::Text;
use crate::query::native::Selection;
use crate::query::native::many::{ManySelection, SensorReadings, TagWords};
use crate::query::native::notices::RequestNames;
use crate::query::native::readings::{Order, remaining_range};
use crate::query::native::thinning::ThinnedReadings;
use crate::query::selector::Selector;
use crate::query::{Budget, HeldBytes};
use crate::reading::Sensor;

/// `GET /api/v1/readings`.
pub async fn readings(headers: HeaderMap, parameters: Parameters) -> ApiResult<Response> {
    let app = &*parameters.app;
    let budget = parameters.budget();
    let format = Format::negotiate(&parameters, &headers)?;
    let times = parameters.times()?;
    let selected = parameters.selector(&budget).await?;
    let selection = ManySelection {
        selector: selected.selector.clone(),
        per_sensor: parameters.selection(&selected.selector)?,
        order: order(&parameters)?,
        start: None,
    };
    let limit = parameters.limit(app.settings.query.limit_default, app.settings.query.limit_max)?;
    let page = Page { limit, cursor: parameters.get("cursor") };
    let Selection { database, range, fields, .. } = selection.per_sensor.clone();
    let columns = match format {
        Format::Csv(_) => {
            let words = app.query.vocabulary(&budget, &database, &selection.selector, TagWords::Own).await?;
            TableColumns::new(words, fields.clone())
        }
        Format::Json | Format::Lines => TableColumns::default(),
    };
    let points_max = parameters.count("max_points", app.settings.query.limit_max)?;
    let ReadingsPart { series, next, held } = match (&selection.selector, points_max) {
        (_, Some(points_max)) => chart_points(app, &budget, &parameters, selection, points_max).await?,
        (Selector::Sensor(sensor), None) => {
            let sensor = sensor.clone();
            one_sensor(app, &budget, sensor, selected.is_by_tag, selection, page).await?
        }
        (Selector::Matching { .. }, None) => many_sensors(app, &budget, selection, page).await?,
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
    let end = AnswerEnd { next: next.as_deref(), notices: &notices };
    series::readings(&mut body, format, &series, columns, times, end).await?;
    drop((series, held));
    budget.finish();
    Ok(Answer { format, body, next, is_past: Parameters::is_past(&range), notices }.respond(&headers)?)
}

fn order(parameters: &Parameters) -> ApiResult<Order> {
    match parameters.get("order") {
        None | Some("asc") => Ok(Order::Ascending),
        Some("desc") => Ok(Order::Descending),
        Some(other) => Err(ApiError::Bad(format!("parameter order: {other:?} is neither asc nor desc"))),
    }
}

/// The requested part of an answer.
#[derive(Clone, Copy)]
struct Page<'a> {
    limit: usize,
    /// The cursor of the part; `None` for the first one.
    cursor: Option<&'a str>,
}

/// A part of the answer, and its memory.
struct ReadingsPart {
    series: Vec<SensorReadings>,
    next: Option<String>,
    held: HeldBytes,
}

async fn one_sensor(
    app: &App,
    budget: &Budget,
    sensor: Arc<Sensor>,
    is_by_tag: bool,
    selection: ManySelection,
    page: Page<'_>,
) -> ApiResult<ReadingsPart> {
    let ManySelection { per_sensor: mut selection, order, .. } = selection;
    if let Some(cursor) = page.cursor {
        let text = cursor.split_once('.').filter(|_| is_by_tag).map_or(cursor, |(time, _)| time);
        let time = parse_time(text).filter(|time| selection.range.contains(time));
        selection.range = remaining_range(order, &selection.range, time.ok_or_else(|| bad_cursor(cursor))?);
    }
    let part = app.query.readings(budget, &selection, order, page.limit).await?;
    // The cursor is opaque to clients. It has the time of the next reading in hexadecimal. If the sensor was found by
    // its tag, it also has the sensor's key, because another sensor may get the same tag before the next request.
    let cursor = |time: i64| if is_by_tag { format!("{time:x}.{}", sensor.key) } else { format!("{time:x}") };
    let next = part.next.map(cursor);
    Ok(ReadingsPart {
        series: part.known.then_some(SensorReadings { sensor, readings: part.readings }).into_iter().collect(),
        next,
        held: part.held,
    })
}

async fn many_sensors(
    app: &App,
    budget: &Budget,
    mut selection: ManySelection,
    page: Page<'_>,
) -> ApiResult<ReadingsPart> {
    // The cursor is opaque to clients: the hexadecimal time of the next reading, and its sensor key.
    if let Some(cursor) = page.cursor {
        let (text, key) = cursor.split_once('.').ok_or_else(|| bad_cursor(cursor))?;
        let time = parse_time(text).filter(|time| selection.per_sensor.range.contains(time));
        selection.start = Some((key.to_owned(), time.ok_or_else(|| bad_cursor(cursor))?));
    }
    let part = app.query.many_readings(budget, &selection, page.limit).await?;
    let next = part.next.map(|(key, time)| format!("{time:x}.{key}"));
    Ok(ReadingsPart { series: part.series, next, held: part.held })
}

async fn chart_points(
    app: &App,
    budget: &Budget,
    parameters: &Parameters,
    selection: ManySelection,
    points_max: usize,
) -> ApiResult<ReadingsPart> {
    for name in ["limit", "cursor"] {
        if parameters.get(name).is_some() {
            return Err(ApiError::Bad(format!("parameter max_points covers the whole range: leave out {name}")));
        }
    }
    let is_one = matches!(selection.selector, Selector::Sensor(_));
    let ThinnedReadings { mut series, held } = app.query.read_thinned(budget, &selection, points_max).await?;
    series.retain(|series| is_one || !series.readings.is_empty());
    Ok(ReadingsPart { series, next: None, held })
}

/// Parses the time of a cursor.
fn parse_time(text: &str) -> Option<i64> {
    u64::from_str_radix(text, 16).ok().map(u64::cast_signed)
}

fn bad_cursor(cursor: &str) -> ApiError {
    ApiError::Bad(format!("parameter cursor: {cursor:?} is not of this range: send the value of next unchanged"))
}
