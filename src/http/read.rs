//! The read endpoints of the native API: parameters in, one call, an answer out.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};

use super::App;
use super::errors::{ApiError, Dialect};
use super::json::{self, Times};
use super::parameters::{Pairs, Parameters, step};
use super::write::flag;
use crate::bucket::store::SensorFilter;
use crate::bucket::{SensorDocument, UnflushedReadings};
use crate::influxql::Fill;
use crate::ingest::IngestError;
use crate::query::Selection;
use crate::query::aggregate::{Aggregate, Aggregation, GroupBy};
use crate::query::choice::Choice;
use crate::query::influx::is_zone;
use crate::query::many::ManySelection;

fn answer(result: Result<Response, ApiError>) -> Response {
    result.unwrap_or_else(|error| error.respond(Dialect::V1))
}

fn json_body(body: String) -> Response {
    ([("content-type", "application/json")], body).into_response()
}

/// `GET /api/v1/readings`.
pub async fn readings(State(app): State<Arc<App>>, query: Pairs) -> Response {
    answer(read_readings(&app, query).await)
}

/// How an answer is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Json,
    Lines,
}

fn format(parameters: &Parameters) -> Result<Format, ApiError> {
    match parameters.get("format") {
        None | Some("json") => Ok(Format::Json),
        Some("ndjson") => Ok(Format::Lines),
        Some(other) => Err(ApiError::Bad(format!("parameter format: {other:?} is neither json nor ndjson"))),
    }
}

async fn read_readings(app: &App, query: Pairs) -> Result<Response, ApiError> {
    let known = [
        "db",
        "sensor",
        "measurement",
        "tag.KEY",
        "from",
        "to",
        "precision",
        "fields",
        "limit",
        "cursor",
        "format",
        "epoch",
    ];
    let parameters = Parameters::of(query, &known)?;
    let choice = parameters.choice(app)?;
    let (limit, times) =
        (parameters.limit(app.options.limit_default, app.options.limit_max, "query.limit_max")?, parameters.times()?);
    let format = format(&parameters)?;
    match choice {
        Choice::Sensor(sensor) => {
            let (database, range) = (parameters.database()?, parameters.range()?);
            let selection = Selection { database, sensor, range, fields: parameters.names("fields") };
            one_sensor(app, &parameters, selection, (limit, times, format)).await
        }
        choice @ Choice::Matching { .. } => many_sensors(app, &parameters, choice, (limit, times, format)).await,
    }
}

async fn one_sensor(
    app: &App,
    parameters: &Parameters,
    mut selection: Selection,
    (limit, times, format): (usize, Times, Format),
) -> Result<Response, ApiError> {
    if let Some(cursor) = parameters.get("cursor") {
        let start = u64::from_str_radix(cursor, 16).ok().map(u64::cast_signed);
        let start = start.filter(|start| selection.range.contains(start));
        selection.range.start = start.ok_or_else(|| bad_cursor(cursor))?;
    }
    let part = app.query.readings(&selection, limit).await?;
    // Opaque to clients: the time of the next reading, in hexadecimal.
    let next = part.next.map(|time| format!("{time:x}"));
    let mut out = String::with_capacity(64 + part.readings.len() * 80);
    if format == Format::Lines {
        for reading in &part.readings {
            json::reading(&mut out, reading, times);
            out.push('\n');
        }
        return Ok(lines(out, next));
    }
    out.push_str("{\"series\":[");
    if part.known {
        out.push_str("{\"sensor\":");
        json::string(&mut out, &selection.sensor);
        out.push_str(",\"readings\":[");
        json::list(&mut out, &part.readings, |out, reading| json::reading(out, reading, times));
        out.push_str("]}");
    }
    json::end_with_next(&mut out, next.as_deref());
    Ok(json_body(out))
}

async fn many_sensors(
    app: &App,
    parameters: &Parameters,
    choice: Choice,
    (limit, times, format): (usize, Times, Format),
) -> Result<Response, ApiError> {
    let of_each = Selection {
        database: parameters.database()?,
        sensor: String::new(),
        range: parameters.range()?,
        fields: parameters.names("fields"),
    };
    // Opaque to clients: the time of the next reading, in hexadecimal, and its sensor's key.
    let from = match parameters.get("cursor") {
        None => None,
        Some(cursor) => {
            let (time, key) = cursor.split_once('.').ok_or_else(|| bad_cursor(cursor))?;
            let time = u64::from_str_radix(time, 16).map_err(|_| bad_cursor(cursor))?.cast_signed();
            Some((key.to_owned(), time)).filter(|(_, time)| of_each.range.contains(time))
        }
    };
    let part = app.query.many_readings(&ManySelection { choice, of_each, from }, limit).await?;
    let next = part.next.map(|(key, time)| format!("{time:x}.{key}"));
    let mut out = String::new();
    if format == Format::Lines {
        for (sensor, readings) in &part.series {
            for reading in readings {
                out.push_str("{\"sensor\":");
                json::string(&mut out, &sensor.key);
                out.push_str(",\"reading\":");
                json::reading(&mut out, reading, times);
                out.push_str("}\n");
            }
        }
        return Ok(lines(out, next));
    }
    out.push_str("{\"series\":[");
    json::list(&mut out, &part.series, |out, (sensor, readings)| {
        json::sensor_head(out, &sensor.key, sensor.tags.iter().map(|(key, value)| (&**key, &**value)));
        out.push_str(",\"readings\":[");
        json::list(out, readings, |out, reading| json::reading(out, reading, times));
        out.push_str("]}");
    });
    json::end_with_next(&mut out, next.as_deref());
    Ok(json_body(out))
}

fn bad_cursor(cursor: &str) -> ApiError {
    ApiError::Bad(format!("parameter cursor: {cursor:?} is not of this range: pass next on as it was given"))
}

/// NDJSON, with the cursor of the next part in a header.
fn lines(out: String, next: Option<String>) -> Response {
    let mut response = ([("content-type", "application/x-ndjson")], out).into_response();
    if let Some(next) = next.and_then(|next| next.parse().ok()) {
        response.headers_mut().insert("x-next-cursor", next);
    }
    response
}

/// `GET /api/v1/summary`.
pub async fn summary(State(app): State<Arc<App>>, query: Pairs) -> Response {
    answer(read_summary(&app, query).await)
}

async fn read_summary(app: &App, query: Pairs) -> Result<Response, ApiError> {
    let known = [
        "db",
        "sensor",
        "measurement",
        "tag.KEY",
        "from",
        "to",
        "precision",
        "fields",
        "step",
        "epoch",
        "agg",
        "tz",
        "group_by",
        "fill",
    ];
    let parameters = Parameters::of(query, &known)?;
    let (choice, times) = (parameters.choice(app)?, parameters.times()?);
    let is_plain = ["agg", "tz", "group_by", "fill"].iter().all(|name| parameters.get(name).is_none());
    match choice {
        // Windows of one sensor by UTC's clock: what documents hold, put together exactly.
        Choice::Sensor(_) if is_plain => plain_summary(app, &parameters, times).await,
        choice => aggregated(app, &parameters, choice, times).await,
    }
}

async fn plain_summary(app: &App, parameters: &Parameters, times: Times) -> Result<Response, ApiError> {
    let selection = parameters.selection(app)?;
    let step = step(parameters.get("step").unwrap_or("1h"))?;
    let windows = app.query.summary(&selection, step).await?;
    let mut out = String::from("{\"series\":[");
    if let Some(windows) = windows {
        out.push_str("{\"sensor\":");
        json::string(&mut out, &selection.sensor);
        out.push_str(",\"windows\":[");
        json::list(&mut out, &windows, |out, window| json::window(out, window, times));
        out.push_str("]}");
    }
    out.push_str("]}");
    Ok(json_body(out))
}

async fn aggregated(app: &App, parameters: &Parameters, choice: Choice, times: Times) -> Result<Response, ApiError> {
    let functions = match parameters.get("agg") {
        None => Aggregate::USUAL.to_vec(),
        Some(names) => names.split(',').map(aggregate).collect::<Result<_, _>>()?,
    };
    let zone = parameters.get("tz").map(str::to_owned);
    if let Some(zone) = zone.as_deref().filter(|zone| !is_zone(zone)) {
        return Err(ApiError::Bad(format!("parameter tz: {zone:?} is no time zone such as Europe/Berlin")));
    }
    let asked = Aggregation {
        database: parameters.database()?,
        choice,
        range: parameters.range()?,
        has_start: parameters.get("from").is_some(),
        fields: parameters.names("fields"),
        step: Some(step(parameters.get("step").unwrap_or("1h"))?),
        zone,
        functions,
        group_by: match parameters.get("group_by") {
            None | Some("none") => GroupBy::Sensor,
            Some("*") => GroupBy::Tags(Vec::new()),
            Some(names) => GroupBy::Tags(names.split(',').map(str::to_owned).collect()),
        },
        fill: fill(parameters.get("fill"))?,
    };
    let series = app.query.aggregate(&asked).await?;
    let mut out = String::from("{\"series\":[");
    json::list(&mut out, &series, |out, series| json::window_series(out, series, times));
    json::end_with_next(&mut out, None);
    Ok(json_body(out))
}

fn aggregate(name: &str) -> Result<Aggregate, ApiError> {
    let known = "count, min, max, sum, avg, first, last, stddev, median, or a percentile such as p95";
    Aggregate::from_name(name).ok_or_else(|| ApiError::Bad(format!("parameter agg: {name:?} is none of {known}")))
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
                    "parameter fill: {number:?} is none of none, null, previous, linear, or a number"
                )));
            }
        },
    })
}

/// A part of the list of sensors, each as it is now, and the key behind which the next part begins.
async fn listed(
    app: &App,
    database: &str,
    filter: &SensorFilter,
) -> Result<(Vec<SensorDocument>, Option<String>), ApiError> {
    let since = app.ingest.met_version().map_err(IngestError::from)?;
    let stored = app.query.sensors(database, filter).await?;
    let stored_last = stored.last().filter(|_| stored.len() == filter.limit).map(|last| last.sensor.key.to_string());
    let documents = app.ingest.sensors(database, filter, (stored, since)).await?;
    let full = documents.len() == filter.limit;
    let next = documents.last().filter(|_| full).map(|last| last.sensor.key.to_string()).or(stored_last);
    Ok((documents, next))
}

/// `GET /api/v1/latest`.
pub async fn latest(State(app): State<Arc<App>>, query: Pairs) -> Response {
    answer(read_latest(&app, query).await)
}

/// The latest reading of each sensor chosen, from its document, brought up to what is acked.
async fn read_latest(app: &App, query: Pairs) -> Result<Response, ApiError> {
    let known = ["db", "sensor", "measurement", "tag.KEY", "limit", "cursor", "epoch"];
    let parameters = Parameters::of(query, &known)?;
    let max = app.options.sensors_max;
    let (limit, times) = (parameters.limit(max, max, "query.sensors_max")?, parameters.times()?);
    let (database, choice) = (parameters.database()?, parameters.choice_or_all(app)?);
    let mut filter = SensorFilter { after: parameters.get("cursor").map(str::to_owned), outliers: false, limit: max };
    let mut found = Vec::new();
    loop {
        let (documents, next) = listed(app, &database, &filter).await?;
        found.extend(documents.into_iter().filter(|document| choice.takes(&document.sensor)));
        filter.after = next;
        if filter.after.is_none() || found.len() > limit {
            break;
        }
    }
    let is_cut = found.len() > limit;
    found.truncate(limit);
    let next = found.last().filter(|_| is_cut).map(|last| last.sensor.key.to_string());
    let mut out = String::from("{\"series\":[");
    json::list(&mut out, found.iter().filter(|document| !document.recent.is_empty()), |out, document| {
        let tags = document.sensor.tags.iter().map(|(key, value)| (&**key, &**value));
        json::sensor_head(out, &document.sensor.key, tags);
        out.push_str(",\"readings\":[");
        json::list(out, document.recent.last(), |out, reading| json::reading(out, reading, times));
        out.push_str("]}");
    });
    json::end_with_next(&mut out, next.as_deref());
    Ok(json_body(out))
}

/// `GET /api/v1/sensors`.
pub async fn sensors(State(app): State<Arc<App>>, query: Pairs) -> Response {
    answer(read_sensors(&app, query).await)
}

async fn read_sensors(app: &App, query: Pairs) -> Result<Response, ApiError> {
    let known = ["db", "outlier", "recent", "limit", "cursor", "epoch"];
    let parameters = Parameters::of(query, &known)?;
    let max = app.options.sensors_max;
    let (limit, times) = (parameters.limit(max, max, "query.sensors_max")?, parameters.times()?);
    let outliers = flag("outlier", parameters.get("outlier"))?.unwrap_or(false);
    let with_recent = flag("recent", parameters.get("recent"))?.unwrap_or(false);
    let database = parameters.database()?;
    let filter = SensorFilter { after: parameters.get("cursor").map(str::to_owned), outliers, limit };
    let (mut documents, next) = listed(app, &database, &filter).await?;
    // A mark that has expired is still stored until the document is written again.
    documents.retain(|document| !outliers || document.outlier.is_some());
    let mut out = String::from("{\"sensors\":[");
    json::list(&mut out, &documents, |out, document| json::sensor(out, document, times, with_recent));
    json::end_with_next(&mut out, next.as_deref());
    Ok(json_body(out))
}
