//! The list of sensors in their current state, and the latest reading of each.

use std::sync::Arc;

use axum::http::HeaderMap;
use axum::response::Response;

use crate::bucket::store::SensorFilter;
use crate::bucket::{Renames, SensorDocument, UnflushedReadings};
use crate::clock::now_ns;
use crate::http::App;
use crate::http::errors::{ApiError, ApiResult};
use crate::http::parameters::{Parameters, Selected};
use crate::http::render::answer::Answer;
use crate::http::render::format::Format;
use crate::http::render::json;
use crate::http::render::series::{self, TableColumns};
use crate::http::render::text::Text;
use crate::ingest::IngestError;
use crate::kinds::Kind;
use crate::query::native::many::TagWords;
use crate::query::native::notices::RequestNames;
use crate::query::selector::Selector;
use crate::query::{Budget, HeldBytes, document_bytes, first_batch, next_batch};
use crate::reading::Sensor;

/// A sensor as lists show it.
pub struct ListedSensor {
    pub document: SensorDocument,
    /// By its stored name.
    pub kind: Option<Arc<Kind>>,
}

/// One batch of sensors, including unflushed changes, and the key after which the next batch begins.
async fn listed(
    app: &App,
    budget: &Budget,
    (database, as_stored): (&str, bool),
    filter: &SensorFilter,
) -> ApiResult<(Vec<ListedSensor>, Option<String>)> {
    let settings = app.query.settings();
    let (mut sensors, next) = match settings.renames(database).filter(|_| !as_stored) {
        Some(renames) => {
            let entries = app.query.sensors_after(budget, database, filter.after.as_deref(), filter.limit).await?;
            let next = entries.last().filter(|_| entries.len() == filter.limit).map(|last| last.sensor.key.to_string());
            let keys: Vec<&str> = entries.iter().map(|entry| &*entry.stored.key).collect();
            let documents = app.ingest.sensor_documents(database, &keys).await?;
            (shown_by(renames, with_kinds(app, documents)), next)
        }
        None => {
            let (documents, next) = stored(app, budget, database, filter).await?;
            (with_kinds(app, documents), next)
        }
    };
    hide_expired(app, database, &mut sensors);
    Ok((sensors, next))
}

/// Documents under the names by which sensors are stored, with their kinds.
fn with_kinds(app: &App, documents: Vec<SensorDocument>) -> Vec<ListedSensor> {
    let listed = |document: SensorDocument| {
        let kind = app.settings.kinds.of(&document.sensor, &document.meta).cloned();
        ListedSensor { document, kind }
    };
    documents.into_iter().map(listed).collect()
}

/// Sensors under their shown names, in key order.
fn shown_by(renames: &Renames, mut sensors: Vec<ListedSensor>) -> Vec<ListedSensor> {
    for ListedSensor { document, .. } in &mut sensors {
        if let Some(shown) = renames.shown(&document.sensor) {
            document.sensor = Arc::new(shown);
        }
    }
    sensors.sort_unstable_by(|a, b| a.document.sensor.key.cmp(&b.document.sensor.key));
    sensors
}

/// One batch as [`listed`], under the names by which sensors are stored, and with what has expired.
pub async fn stored(
    app: &App,
    budget: &Budget,
    database: &str,
    filter: &SensorFilter,
) -> ApiResult<(Vec<SensorDocument>, Option<String>)> {
    let since = app.ingest.catalog_version(Some(database)).map_err(IngestError::from)?;
    let stored = app.query.sensors(budget, database, filter).await?;
    let stored_last = stored.last().filter(|_| stored.len() == filter.limit).map(|last| last.sensor.key.to_string());
    let mut documents = app.ingest.sensors(database, filter, (stored, since)).await?;
    let full = documents.len() == filter.limit;
    let next = documents.last().filter(|_| full).map(|last| last.sensor.key.to_string()).or(stored_last);
    documents.retain(|document| !document.only_remembers());
    Ok((documents, next))
}

/// Documents still have what has expired until it is removed from the store.
fn hide_expired(app: &App, database: &str, sensors: &mut Vec<ListedSensor>) {
    let (settings, now) = (app.query.settings(), now_ns());
    let gone = settings.gone_before(database, now);
    let readings_from = settings.readings_from(database, now).max(gone).unwrap_or(i64::MIN);
    let gone = gone.unwrap_or(i64::MIN);
    let is_gone = |document: &SensorDocument| document.last_seen.is_some_and(|last| last < gone);
    sensors.retain(|of| !is_gone(&of.document) || !of.document.meta.is_without_values());
    for ListedSensor { document, .. } in sensors {
        if is_gone(document) {
            (document.first_seen, document.last_seen, document.outlier) = (None, None, None);
            document.recent.clear();
            continue;
        }
        document.recent.retain(|reading| reading.time >= readings_from);
        document.first_seen = document.first_seen.map(|first| first.max(gone));
    }
}

/// The parameters of a list of sensors.
#[derive(Default)]
struct SensorListQuery {
    database: String,
    after: Option<String>,
    outliers: bool,
    /// Whether to include all recent readings, or only the latest.
    recent: bool,
    limit: usize,
    /// Whether under the names by which sensors are stored.
    as_stored: bool,
}

type SensorPages = (Vec<ListedSensor>, Option<String>, HeldBytes);

/// Reads sensors in batches until `limit` of them pass `takes`. Returns them with the next cursor and the memory they
/// hold. The cursor is the key of a returned sensor, so it never reveals a sensor that `takes` excludes.
async fn chosen(
    app: &App,
    budget: &Budget,
    wanted: SensorListQuery,
    takes: impl Fn(&ListedSensor) -> bool,
) -> ApiResult<SensorPages> {
    let SensorListQuery { database, after, outliers, recent, limit, as_stored } = wanted;
    let mut filter = SensorFilter { after, outliers, ..first_batch() };
    let (mut found, mut held) = (Vec::new(), budget.hold(0)?);
    loop {
        let (sensors, next) = app.query.patiently(|| listed(app, budget, (&database, as_stored), &filter)).await?;
        filter.limit = next_batch(filter.limit, sensors.iter().map(|of| &of.document));
        for mut sensor in sensors.into_iter().filter(&takes) {
            if !recent {
                sensor.document.recent = sensor.document.recent.pop().into_iter().collect();
            }
            held.grow(document_bytes(&sensor.document))?;
            found.push(sensor);
        }
        filter.after = next;
        if filter.after.is_none() || found.len() > limit {
            break;
        }
    }
    let is_cut = found.len() > limit;
    found.truncate(limit);
    let next = found.last().filter(|_| is_cut).map(|last| last.document.sensor.key.to_string());
    Ok((found, next, held))
}

/// Sensors as they are stored that pass a test, from one on: those, the next cursor, and the memory they hold.
pub async fn all_of(
    app: &App,
    budget: &Budget,
    (database, after, limit): (String, Option<String>, usize),
    takes: impl Fn(&SensorDocument) -> bool,
) -> ApiResult<(Vec<SensorDocument>, Option<String>, HeldBytes)> {
    let wanted = SensorListQuery { database, after, limit, as_stored: true, ..SensorListQuery::default() };
    let (sensors, next, held) = chosen(app, budget, wanted, |of| takes(&of.document)).await?;
    Ok((sensors.into_iter().map(|of| of.document).collect(), next, held))
}

/// The documents of stored sensors with the latest reading of each, as lists show them.
pub async fn of_stored(app: &App, budget: &Budget, database: &str, keys: &[&str]) -> ApiResult<Vec<ListedSensor>> {
    let read = || async { Ok::<_, ApiError>(app.ingest.sensor_documents(database, keys).await?) };
    let mut sensors = with_kinds(app, app.query.patiently(read).await?);
    if let Some(renames) = app.query.settings().renames(database) {
        sensors = shown_by(renames, sensors);
    }
    hide_expired(app, database, &mut sensors);
    sensors.iter_mut().for_each(|of| of.document.recent = of.document.recent.pop().into_iter().collect());
    let _held = budget.hold(sensors.iter().map(|of| document_bytes(&of.document)).sum())?;
    Ok(sensors)
}

/// `GET /api/v1/latest`: the latest reading of each selected sensor, from its document plus unflushed readings.
pub async fn latest(headers: HeaderMap, parameters: Parameters) -> ApiResult<Response> {
    let app = &*parameters.app;
    let budget = parameters.budget();
    let format = Format::of(&parameters, &headers)?;
    let max = app.settings.query.sensors_max;
    let (limit, times) = (parameters.limit(max, max)?, parameters.times()?);
    let database = parameters.database()?;
    let selected = parameters.selector_or_all(&budget).await?;
    let after = parameters.get("cursor").map(str::to_owned);
    let wanted = SensorListQuery { database: database.clone(), after, limit, ..SensorListQuery::default() };
    let chooser = selected.selector.compile(&budget)?;
    let takes = |ListedSensor { document, .. }: &ListedSensor| chooser.selects(&document.sensor, Some(&document.meta));
    let (found, next, _held) = match &selected.selector {
        Selector::Sensor(sensor) => {
            // No other document is read than that of the sensor.
            let settings = app.query.settings();
            let names = settings.renames(&database).map(|renames| renames.stored(sensor));
            let names = names.unwrap_or_else(|| vec![Sensor::clone(sensor)]);
            let keys: Vec<&str> = names.iter().map(|name| &*name.key).collect();
            let mut found = of_stored(app, &budget, &database, &keys).await?;
            let is_after = |key: &str| wanted.after.as_deref().is_none_or(|after| after < key);
            found.retain(|of| takes(of) && is_after(&of.document.sensor.key));
            found.truncate(1);
            let held = budget.hold(found.iter().map(|of| document_bytes(&of.document)).sum())?;
            (found, None, held)
        }
        Selector::Matching { .. } => chosen(app, &budget, wanted, takes).await?,
    };
    let columns = match format {
        Format::Csv(_) => {
            let words = app.query.vocabulary(&budget, &database, &selected.selector, TagWords::Own).await?;
            TableColumns::of(words, Vec::new())
        }
        Format::Json | Format::Lines => TableColumns::default(),
    };
    let series = |document: SensorDocument| Some((document.sensor, vec![document.recent.into_iter().next_back()?]));
    let series: Vec<_> = found.into_iter().map(|of| of.document).filter_map(series).collect();
    let names = RequestNames::of(&database, &selected.selector);
    let notices = parameters.notices(&budget, &selected, names, series.is_empty()).await;
    let mut body = Text::new(&budget)?;
    series::readings(&mut body, format, &series, columns, times, (next.as_deref(), &notices)).await?;
    budget.answered();
    Ok(Answer { format, body, next, is_past: false, notices }.respond(&headers)?)
}

/// Whether the sensor's key, or a text of its metadata, contains a text in lower case. Costs as much as the document has bytes,
/// which also bound how many are looked at before others get their turn.
fn has_text(document: &SensorDocument, part: &str) -> bool {
    let is_text = |json: &str| json.starts_with('"');
    let mut names = document.meta.values().filter(|(_, json)| is_text(json)).map(|(name, _)| name);
    document.sensor.key.to_lowercase().contains(part)
        || names.any(|name| document.meta.text(name).is_some_and(|text| text.to_lowercase().contains(part)))
}

/// Whether a sensor's latest reading is older than its kind, or else the configuration, lets one be.
pub fn is_silent(app: &App, ListedSensor { document, kind }: &ListedSensor, now: i64) -> bool {
    let of_kind = kind.as_ref().and_then(|kind| kind.silent_after());
    let after = of_kind.unwrap_or(app.settings.sensors.silent_after);
    let heard_since = now.saturating_sub(i64::try_from(after.as_nanos()).unwrap_or(i64::MAX));
    !after.is_zero() && document.last_seen.is_some_and(|last| last < heard_since)
}

/// `GET /api/v1/sensors`.
pub async fn sensors(parameters: Parameters) -> ApiResult<Response> {
    let app = &*parameters.app;
    let budget = parameters.budget();
    let max = app.settings.query.sensors_max;
    let (limit, times) = (parameters.limit(max, max)?, parameters.times()?);
    let [outliers, silent, recent] =
        [parameters.flag("outlier")?, parameters.flag("silent")?, parameters.flag("recent")?];
    let kinds = &app.settings.kinds;
    if silent && app.settings.sensors.silent_after.is_zero() && !kinds.have_intervals() {
        let how = "parameter silent: set the config key sensors.silent_after, or the interval of a kind";
        return Err(ApiError::Bad(how.to_owned()));
    }
    let now = now_ns();
    let database = parameters.database()?;
    let after = parameters.get("cursor").map(str::to_owned);
    let pins = parameters.pins();
    let part = parameters.get("contains").map(str::to_lowercase);
    // The store may still have an outlier mark that has expired, until the document is written again.
    let takes = |sensor: &ListedSensor| {
        let document = &sensor.document;
        pins.iter().all(|pin| pin.matches(&document.sensor))
            && part.as_ref().is_none_or(|part| has_text(document, part))
            && (!outliers || document.outlier.is_some())
            && (!silent || is_silent(app, sensor, now))
    };
    let wanted = SensorListQuery { database: database.clone(), after, outliers, recent, limit, as_stored: false };
    let (sensors, next, _held) = chosen(app, &budget, wanted, takes).await?;
    let selected = Selected::of(parameters.all());
    let names = RequestNames::of(&database, &selected.selector);
    let notices = parameters.notices(&budget, &selected, names, sensors.is_empty()).await;
    let groups = app.groups.of(&database);
    let mut text = Text::list(&budget, "sensors")?;
    for sensor in &sensors {
        let silent = is_silent(app, sensor, now);
        text.item(|out| json::sensor(out, (sensor, &groups, silent), times, recent)).await?;
    }
    json::end_with_next(&mut text.out, next.as_deref(), &notices);
    Ok(text.respond_json(&budget)?)
}
