//! `GET /api/v1/readings`: raw readings of one or many sensors, in parts with a cursor, or downsampled for a chart.

use std::sync::Arc;

use axum::http::{HeaderMap, Version};
use axum::response::Response;

use crate::bucket::Renames;
use crate::faults;
use crate::http::App;
use crate::http::cursor;
use crate::http::errors::{ApiError, ApiResult};
use crate::http::parameters::Parameters;
use crate::http::render::answer::Answer;
use crate::http::render::format::Format;
use crate::http::render::json::Times;
use crate::http::render::series::{self, AnswerEnd, TableColumns};
use crate::http::render::text::Text;
use crate::query::native::Selection;
use crate::query::native::many::{ManySelection, SensorReadings, TagWords};
use crate::query::native::notices::RequestNames;
use crate::query::native::readings::{Order, remaining_range};
use crate::query::native::thinning::{ChartPoints, Shape, ThinnedReadings};
use crate::query::selector::Selector;
use crate::query::{Budget, ExportPermit, HeldBytes, QueryError};
use crate::reading::Sensor;

/// `GET /api/v1/readings`.
pub async fn readings(version: Version, headers: HeaderMap, parameters: Parameters) -> ApiResult<Response> {
    let app = &*parameters.app.clone();
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
    // CSV and NDJSON without a limit have everything.
    let is_whole =
        format != Format::Json && ["limit", "cursor", "max_points"].iter().all(|name| parameters.get(name).is_none());
    let limit = parameters.limit(app.settings.query.limit_default, app.settings.query.limit_max)?;
    let page = Page { limit, cursor: parameters.get("cursor") };
    let renames = app.query.settings().renames(&selection.per_sensor.database).cloned();
    let Selection { database, range, fields, .. } = selection.per_sensor.clone();
    let mut columns = match format {
        Format::Csv(_) => {
            let words = app.query.vocabulary(&budget, &database, &selection.selector, TagWords::Own).await?;
            TableColumns::new(words, fields.clone())
        }
        Format::Json | Format::Lines => TableColumns::default(),
    };
    let points = points(&parameters, app.settings.query.limit_max)?;
    let per_sensor = selection.clone();
    let ReadingsPart { series, next, held } = match (&selection.selector, points) {
        _ if is_whole => many_sensors(app, &budget, selection, Page { limit: usize::MAX, cursor: None }).await?,
        (_, Some(points)) => chart_points(app, &budget, &parameters, selection, points).await?,
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
    series::readings(&mut body, format, &series, &mut columns, times, end).await?;
    drop((series, held));
    budget.finish();
    if is_whole && let Some(next) = next {
        if version == Version::HTTP_10 {
            return Err(ApiError::Bad("the answer is too large for HTTP/1.0: send limit, or use HTTP/1.1".to_owned()));
        }
        let permit = app.query.begin_export(&parameters.requester.caller)?;
        let answer = Answer { format, body, next: None, is_past: false, notices };
        let export = Export { parameters, selection: per_sensor, format, times, columns, renames, _permit: permit };
        return Ok(answer.stream(|body| export.write(body, next)));
    }
    Ok(Answer { format, body, next, is_past: Parameters::is_past(&range), notices }.respond(&headers)?)
}

/// An answer with all readings, in parts.
struct Export {
    parameters: Parameters,
    selection: ManySelection,
    format: Format,
    times: Times,
    columns: TableColumns,
    /// The renames by which the first part named its sensors. Parts are in the order of these names.
    renames: Option<Renames>,
    _permit: ExportPermit,
}

impl Export {
    /// Writes the parts from this cursor on.
    async fn write(mut self, mut body: Text, first: String) -> Result<Text, QueryError> {
        let app = self.parameters.app.clone();
        let mut next = Some(first);
        while let Some(cursor) = next {
            // Each part has the time and the memory of a request.
            let budget = self.parameters.budget();
            body.charge_to(&budget)?;
            let database = &self.selection.per_sensor.database;
            if faults::fails("export_part") || app.query.settings().renames(database) != self.renames.as_ref() {
                return Err(QueryError::Changed);
            }
            let page = Page { limit: usize::MAX, cursor: Some(&cursor) };
            let part = many_sensors(&app, &budget, self.selection.clone(), page).await;
            let ReadingsPart { series, next: rest, held: _held } = part.map_err(|error| match error {
                ApiError::Query(error) => error,
                _ => QueryError::Changed,
            })?;
            let end = AnswerEnd { next: None, notices: &[] };
            series::readings(&mut body, self.format, &series, &mut self.columns, self.times, end).await?;
            budget.finish();
            next = rest;
        }
        Ok(body)
    }
}

fn order(parameters: &Parameters) -> ApiResult<Order> {
    match parameters.get("order") {
        None | Some("asc") => Ok(Order::Ascending),
        Some("desc") => Ok(Order::Descending),
        Some(other) => Err(ApiError::Bad(format!("parameter order: {other:?} is neither asc nor desc"))),
    }
}

/// Parses the parameters `max_points` and `thin`.
fn points(parameters: &Parameters, limit: usize) -> ApiResult<Option<ChartPoints>> {
    let shape = match parameters.get("thin") {
        None | Some("extremes") => Shape::Extremes,
        Some("lttb") => Shape::Triangles,
        Some(other) => return Err(ApiError::Bad(format!("parameter thin: {other:?} is neither extremes nor lttb"))),
    };
    let max = parameters.count("max_points", limit)?;
    if max.is_none() && parameters.get("thin").is_some() {
        return Err(ApiError::Bad("parameter thin needs max_points, such as max_points=500".to_owned()));
    }
    Ok(max.map(|max| ChartPoints { max, shape }))
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
        let (time, _) = cursor::parse(cursor, &selection.range).ok_or_else(|| bad_cursor(cursor))?;
        selection.range = remaining_range(order, &selection.range, time);
    }
    let part = app.query.readings(budget, &selection, order, page.limit).await?;
    // If the sensor was found by its tag, the cursor has its key, because another sensor may get the same tag before the
    // next request.
    let next = part.next.map(|time| cursor::format(time, if is_by_tag { &sensor.key } else { "" }));
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
    if let Some(cursor) = page.cursor {
        let (time, key) = cursor::parse(cursor, &selection.per_sensor.range).ok_or_else(|| bad_cursor(cursor))?;
        selection.start = Some((key, time));
    }
    let part = app.query.many_readings(budget, &selection, page.limit).await?;
    let next = part.next.map(|(key, time)| cursor::format(time, &key));
    Ok(ReadingsPart { series: part.series, next, held: part.held })
}

async fn chart_points(
    app: &App,
    budget: &Budget,
    parameters: &Parameters,
    selection: ManySelection,
    points: ChartPoints,
) -> ApiResult<ReadingsPart> {
    for name in ["limit", "cursor"] {
        if parameters.get(name).is_some() {
            return Err(ApiError::Bad(format!("parameter max_points covers the whole range: leave out {name}")));
        }
    }
    let is_one = matches!(selection.selector, Selector::Sensor(_));
    let ThinnedReadings { mut series, held } = app.query.read_thinned(budget, &selection, points).await?;
    series.retain(|series| is_one || !series.readings.is_empty());
    Ok(ReadingsPart { series, next: None, held })
}

/// Returns the error of an invalid cursor.
pub(crate) fn bad_cursor(cursor: &str) -> ApiError {
    ApiError::Bad(format!("parameter cursor: {cursor:?} is not of this range: send the value of next unchanged"))
}
