//! Lists of sensors with their current state, and the latest reading of each sensor.

use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use axum::response::Response;

use super::readings::bad_cursor;
use crate::bucket::store::SensorFilter;
use crate::bucket::{Reading, Renames, SensorDocument, UnflushedReadings};
use crate::clock::{expiry_ns, now_ns};
use crate::http::App;
use crate::http::cursor;
use crate::http::errors::{ApiError, ApiResult};
use crate::http::parameters::{Parameters, SensorSelection};
use crate::http::render::answer::Answer;
use crate::http::render::format::Format;
use crate::http::render::json::{self, SensorItem};
use crate::http::render::series::{self, AnswerEnd, TableColumns};
use crate::http::render::text::Text;
use crate::ingest::IngestError;
use crate::kinds::{Kind, SILENT_INTERVALS};
use crate::query::native::many::{SensorReadings, TagWords};
use crate::query::native::notices::RequestNames;
use crate::query::selector::Selector;
use crate::query::{Budget, HeldBytes, document_bytes, first_batch, next_batch};
use crate::reading::Sensor;

/// A sensor in a list.
pub struct ListedSensor {
    pub document: SensorDocument,
    /// The kind of the sensor by its stored name.
    pub kind: Option<Arc<Kind>>,
    /// The time without readings after which the sensor counts as silent.
    silent_after: Option<Duration>,
}

/// The shortest time after which a sensor counts as silent by its usual interval.
const SILENT_AFTER_MIN: Duration = Duration::from_secs(60);

/// Reads one batch of sensors, including unflushed changes, and the key after which the next batch begins.
async fn read_batch(
    app: &App,
    budget: &Budget,
    database: &str,
    use_stored_names: bool,
    filter: &SensorFilter,
) -> ApiResult<(Vec<ListedSensor>, Option<String>)> {
    let settings = app.query.settings();
    let (mut sensors, next) = match settings.renames(database).filter(|_| !use_stored_names) {
        Some(renames) => {
            let entries = app.query.sensors_after(budget, database, filter.after.as_deref(), filter.limit).await?;
            let next = entries.last().filter(|_| entries.len() == filter.limit).map(|last| last.sensor.key.to_string());
            let keys: Vec<&str> = entries.iter().map(|entry| &*entry.stored.key).collect();
            let documents = app.ingest.sensor_documents(database, &keys).await?;
            (rename_sensors(renames, with_kinds(app, documents)), next)
        }
        None => {
            let (documents, next) = read_stored(app, budget, database, filter).await?;
            (with_kinds(app, documents), next)
        }
    };
    hide_expired(app, database, &mut sensors);
    Ok((sensors, next))
}

/// Adds the kinds of sensors, given by their stored names.
fn with_kinds(app: &App, documents: Vec<SensorDocument>) -> Vec<ListedSensor> {
    let add_kind = |document: SensorDocument| {
        let kind = app.settings.kinds.kind_of(&document.sensor, &document.meta).cloned();
        let configured = Some(app.settings.sensors.silent_after).filter(|after| !after.is_zero());
        let of_kind = kind.as_ref().and_then(|kind| kind.silent_after());
        let silent_after = of_kind.or(configured).or_else(|| usual_silence(&document.recent));
        ListedSensor { document, kind, silent_after }
    };
    documents.into_iter().map(add_kind).collect()
}

/// Returns three times the longest interval between recent readings, if there are at least three.
fn usual_silence(recent: &[Reading]) -> Option<Duration> {
    let intervals = recent.windows(2).map(|pair| pair[1].time.abs_diff(pair[0].time));
    let longest = intervals.max().filter(|_| recent.len() >= 3)?;
    Some((SILENT_INTERVALS * Duration::from_nanos(longest)).max(SILENT_AFTER_MIN))
}

/// Replaces stored names by shown names, and sorts by key.
fn rename_sensors(renames: &Renames, mut sensors: Vec<ListedSensor>) -> Vec<ListedSensor> {
    for ListedSensor { document, .. } in &mut sensors {
        if let Some(shown) = renames.shown_sensor(&document.sensor) {
            document.sensor = Arc::new(shown);
        }
    }
    sensors.sort_unstable_by(|a, b| a.document.sensor.key.cmp(&b.document.sensor.key));
    sensors
}

/// Reads one batch as [`read_batch`], under stored names and including expired readings.
pub async fn read_stored(
    app: &App,
    budget: &Budget,
    database: &str,
    filter: &SensorFilter,
) -> ApiResult<(Vec<SensorDocument>, Option<String>)> {
    let since = app.ingest.catalog_version(Some(database)).map_err(IngestError::from)?;
    let stored = app.query.sensors(budget, database, filter).await?;
    let stored_last = stored.last().filter(|_| stored.len() == filter.limit).map(|last| last.sensor.key.to_string());
    let mut documents = app.ingest.sensors(database, filter, stored, since).await?;
    let is_full = documents.len() == filter.limit;
    let next = documents.last().filter(|_| is_full).map(|last| last.sensor.key.to_string()).or(stored_last);
    documents.retain(|document| !document.is_tombstone());
    Ok((documents, next))
}

/// Removes expired readings from the documents, which have them until they are deleted from the store.
fn hide_expired(app: &App, database: &str, sensors: &mut Vec<ListedSensor>) {
    let settings = app.query.settings();
    let now = expiry_ns();
    let expired_before = settings.cutoff(database, now);
    let readings_from = settings.readings_start(database, now).max(expired_before).unwrap_or(i64::MIN);
    let expired_before = expired_before.unwrap_or(i64::MIN);
    let is_expired = |document: &SensorDocument| document.last_seen.is_some_and(|last| last < expired_before);
    sensors.retain(|sensor| !is_expired(&sensor.document) || !sensor.document.meta.is_without_values());
    for ListedSensor { document, .. } in sensors {
        if is_expired(document) {
            document.first_seen = None;
            document.last_seen = None;
            document.outlier = None;
            document.recent.clear();
            continue;
        }
        document.recent.retain(|reading| reading.time >= readings_from);
        document.first_seen = document.first_seen.map(|first| first.max(expired_before));
    }
}

/// The query for a list of sensors.
#[derive(Default)]
struct SensorListQuery {
    database: String,
    after: Option<String>,
    outliers: bool,
    /// True to include all recent readings, false for only the latest.
    recent: bool,
    limit: usize,
    /// True for stored names, false for shown names.
    use_stored_names: bool,
}

/// A part of a list of sensors.
struct SensorPage {
    sensors: Vec<ListedSensor>,
    /// The cursor of the next part.
    next: Option<String>,
    /// The memory of the sensors.
    held: HeldBytes,
}

/// Reads sensors in batches until `limit` of them match. The cursor is the key of a returned sensor, so it never
/// reveals a sensor that does not match.
async fn find_sensors(
    app: &App,
    budget: &Budget,
    query: SensorListQuery,
    is_match: impl Fn(&ListedSensor) -> bool,
) -> ApiResult<SensorPage> {
    let SensorListQuery { database, after, outliers, recent, limit, use_stored_names } = query;
    let mut filter = SensorFilter { after, outliers, ..first_batch() };
    let mut found = Vec::new();
    let mut held = budget.hold(0)?;
    loop {
        let read = || read_batch(app, budget, &database, use_stored_names, &filter);
        let (sensors, next) = app.query.patiently(read).await?;
        filter.limit = next_batch(filter.limit, sensors.iter().map(|sensor| &sensor.document));
        for mut sensor in sensors.into_iter().filter(&is_match) {
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
    Ok(SensorPage { sensors: found, next, held })
}

/// A part of a list of sensor documents under stored names.
pub struct DocumentPage {
    pub documents: Vec<SensorDocument>,
    /// The cursor of the next part.
    pub next: Option<String>,
    /// The memory of the documents.
    pub held: HeldBytes,
}

/// Finds documents that match, under stored names, after a cursor.
pub async fn find_documents(
    app: &App,
    budget: &Budget,
    database: &str,
    after: Option<&str>,
    limit: usize,
    is_match: impl Fn(&SensorDocument) -> bool,
) -> ApiResult<DocumentPage> {
    let query = SensorListQuery {
        database: database.to_owned(),
        after: after.map(str::to_owned),
        limit,
        use_stored_names: true,
        ..SensorListQuery::default()
    };
    let page = find_sensors(app, budget, query, |sensor| is_match(&sensor.document)).await?;
    let documents = page.sensors.into_iter().map(|sensor| sensor.document).collect();
    Ok(DocumentPage { documents, next: page.next, held: page.held })
}

/// Reads the sensors with these stored keys, each with its latest reading, under shown names.
pub async fn read_latest(app: &App, budget: &Budget, database: &str, keys: &[&str]) -> ApiResult<Vec<ListedSensor>> {
    let read = || async { Ok::<_, ApiError>(app.ingest.sensor_documents(database, keys).await?) };
    let mut sensors = with_kinds(app, app.query.patiently(read).await?);
    if let Some(renames) = app.query.settings().renames(database) {
        sensors = rename_sensors(renames, sensors);
    }
    hide_expired(app, database, &mut sensors);
    for ListedSensor { document, .. } in &mut sensors {
        document.recent = document.recent.pop().into_iter().collect();
    }
    let _held = budget.hold(total_bytes(&sensors))?;
    Ok(sensors)
}

/// The memory of the documents of sensors, in bytes.
fn total_bytes(sensors: &[ListedSensor]) -> usize {
    sensors.iter().map(|sensor| document_bytes(&sensor.document)).sum()
}

/// `GET /api/v1/latest`: the latest reading of each selected sensor, from its document and unflushed readings.
pub async fn latest(headers: HeaderMap, parameters: Parameters) -> ApiResult<Response> {
    let app = &*parameters.app;
    let budget = parameters.budget();
    let format = Format::negotiate(&parameters, &headers)?;
    let max = app.settings.query.sensors_max;
    let limit = parameters.limit(max, max)?;
    let times = parameters.times()?;
    let database = parameters.database()?;
    let selected = parameters.selector_or_all(&budget).await?;
    let decode = |text: &str| cursor::decode(text).ok_or_else(|| bad_cursor(text));
    let after = parameters.get("cursor").map(decode).transpose()?;
    let query = SensorListQuery { database: database.clone(), after, limit, ..SensorListQuery::default() };
    let chooser = selected.selector.compile(&budget)?;
    let is_match =
        |ListedSensor { document, .. }: &ListedSensor| chooser.selects(&document.sensor, Some(&document.meta));
    let page = match &selected.selector {
        Selector::Sensor(sensor) => {
            // Read only the document of this sensor.
            let settings = app.query.settings();
            let names = settings.renames(&database).map(|renames| renames.stored_sensors(sensor));
            let names = names.unwrap_or_else(|| vec![Sensor::clone(sensor)]);
            let keys: Vec<&str> = names.iter().map(|name| &*name.key).collect();
            let mut found = read_latest(app, &budget, &database, &keys).await?;
            let is_after = |key: &str| query.after.as_deref().is_none_or(|after| after < key);
            found.retain(|sensor| is_match(sensor) && is_after(&sensor.document.sensor.key));
            found.truncate(1);
            let held = budget.hold(total_bytes(&found))?;
            SensorPage { sensors: found, next: None, held }
        }
        Selector::Matching { .. } => find_sensors(app, &budget, query, is_match).await?,
    };
    let SensorPage { sensors: found, next, held: _held } = page;
    let next = next.as_deref().map(cursor::encode);
    let mut columns = match format {
        Format::Csv(_) => {
            let words = app.query.vocabulary(&budget, &database, &selected.selector, TagWords::Own).await?;
            TableColumns::new(words, Vec::new())
        }
        Format::Json | Format::Lines => TableColumns::default(),
    };
    let series = |document: SensorDocument| {
        let latest = document.recent.into_iter().next_back()?;
        Some(SensorReadings { sensor: document.sensor, readings: vec![latest] })
    };
    let series: Vec<_> = found.into_iter().map(|sensor| sensor.document).filter_map(series).collect();
    let names = RequestNames::for_sensors(&database, &selected.selector);
    let notices = parameters.notices(&budget, &selected, names, series.is_empty()).await;
    let mut body = Text::new(&budget)?;
    let end = AnswerEnd { next: next.as_deref(), notices: &notices };
    series::readings(&mut body, format, &series, &mut columns, times, end).await?;
    budget.finish();
    Ok(Answer { format, body, next, is_past: false, notices }.respond(&headers)?)
}

/// Returns true if the key, or a string in the metadata, contains a lower-case text. The cost is linear in the size of
/// the document, which also limits the batches, so other requests are not blocked.
fn contains_text(document: &SensorDocument, part: &str) -> bool {
    let is_text = |json: &str| json.starts_with('"');
    let mut names = document.meta.values().filter(|(_, json)| is_text(json)).map(|(name, _)| name);
    document.sensor.key.to_lowercase().contains(part)
        || names.any(|name| document.meta.text(name).is_some_and(|text| text.to_lowercase().contains(part)))
}

/// Returns true if the latest reading of a sensor is so old that the sensor counts as silent.
pub fn is_silent(sensor: &ListedSensor, now: i64) -> bool {
    let is_older = |after: Duration| {
        let silent_before = now.saturating_sub(i64::try_from(after.as_nanos()).unwrap_or(i64::MAX));
        sensor.document.last_seen.is_some_and(|last| last < silent_before)
    };
    sensor.silent_after.is_some_and(is_older)
}

/// `GET /api/v1/sensors`.
pub async fn sensors(parameters: Parameters) -> ApiResult<Response> {
    let app = &*parameters.app;
    let budget = parameters.budget();
    let max = app.settings.query.sensors_max;
    let limit = parameters.limit(max, max)?;
    let times = parameters.times()?;
    let outliers = parameters.flag("outlier")?;
    let silent = parameters.flag("silent")?;
    let recent = parameters.flag("recent")?;
    let now = now_ns();
    let database = parameters.database()?;
    let after = parameters.get("cursor").map(str::to_owned);
    let pins = parameters.pins();
    let part = parameters.get("contains").map(str::to_lowercase);
    // The store filters by outlier marks, but a mark may have expired since the document was written.
    let is_match = |sensor: &ListedSensor| {
        let document = &sensor.document;
        pins.iter().all(|pin| pin.matches(&document.sensor))
            && part.as_ref().is_none_or(|part| contains_text(document, part))
            && (!outliers || document.outlier.is_some())
            && (!silent || is_silent(sensor, now))
    };
    let query = SensorListQuery { database: database.clone(), after, outliers, recent, limit, use_stored_names: false };
    let SensorPage { sensors, next, held: _held } = find_sensors(app, &budget, query, is_match).await?;
    let selected = SensorSelection::new(parameters.all_sensors());
    let names = RequestNames::for_sensors(&database, &selected.selector);
    let notices = parameters.notices(&budget, &selected, names, sensors.is_empty()).await;
    let groups = app.groups.for_database(&database);
    let mut text = Text::list(&budget, "sensors")?;
    for sensor in &sensors {
        let item = SensorItem { sensor, groups: &groups, is_silent: is_silent(sensor, now) };
        text.item(|out| json::sensor(out, item, times, recent)).await?;
    }
    json::end_with_next(&mut text.out, next.as_deref(), &notices);
    Ok(text.respond_json(&budget)?)
}
