//! `/api/v1/databases/NAME`: the settings of a database: retention, sealing, values of other types (drift), and the
//! default retention policy.

use std::collections::BTreeSet;
use std::ops::Range;

use axum::Json;
use axum::body::Body;
use axum::http::{HeaderMap, Method};
use serde_json::{Map, Value, json};

use crate::access::Effect;
use crate::bucket::settings::{Drift, Settings, owner, policy_database};
use crate::bucket::store::SensorFilter;
use crate::bucket::{DatabaseSettings, Keep, SealForm};
use crate::clock::expiry_ns;
use crate::http::App;
use crate::http::api::sensors;
use crate::http::errors::{ApiError, ApiResult};
use crate::http::parameters::Parameters;
use crate::http::server::body::{self, BodyLimit};
use crate::ingest::{IngestError, PolicyError, SetSettings, SettingChange};
use crate::query::Budget;
use crate::query::native::aggregate::{Aggregation, Families, GroupBy, WindowSeries};
use crate::query::native::functions::NativeAggregate;
use crate::query::selector::Selector;
use crate::reading::Value as ReadingValue;
use crate::reading::duration::{DURATION_UNITS, parse_duration, show_duration};
use crate::reading::time::{TIMESTAMP_MIN, rfc3339};

/// The text for unlimited retention, as in InfluxQL.
const FOREVER: &str = "inf";
/// Number of sensor documents per read of a preview.
const BATCH_SENSORS: usize = 1000;
/// Maximum number of sensor documents that a preview reads.
const SENSORS_MAX: usize = 1_000_000;
/// One day, in nanoseconds.
const DAY: i64 = 24 * 3_600_000_000_000;

/// `GET /api/v1/databases`: the databases that the caller may read or write, with what its token may see of each.
pub async fn list(parameters: Parameters) -> ApiResult<Json<Value>> {
    let app = &parameters.app;
    let caller = &parameters.requester.caller;
    let budget = parameters.budget();
    let settings = app.ingest.settings_now().await?;
    let mut names: BTreeSet<String> = app.query.all_databases().await?.into_iter().collect();
    names.extend(settings.by_database.keys().map(|name| owner(name).to_owned()));
    let mut databases = Vec::new();
    for name in names {
        let can_read = caller.allows(Effect::Read, Some(&name));
        if !can_read && !caller.allows(Effect::Write, Some(&name)) {
            continue;
        }
        let mut database = json!({ "name": name });
        // A token with pins reads only some of the sensors.
        if can_read && caller.pins().is_empty() {
            let kept_from = settings.cutoff(&name, expiry_ns()).unwrap_or(TIMESTAMP_MIN);
            let known = known_sensors(app, &budget, &name, &(kept_from..i64::MAX)).await?;
            database["sensors"] = json!(known.sensors);
            database["first_seen"] = json!(known.oldest.map(rfc3339));
            database["last_seen"] = json!(known.newest.map(rfc3339));
        }
        if caller.allows(Effect::Administer, Some(&name)) {
            database["settings"] = settings_json(&name, &settings);
        }
        databases.push(database);
    }
    budget.finish();
    Ok(Json(json!({ "databases": databases })))
}

/// `GET /api/v1/databases/NAME`.
pub async fn show(parameters: Parameters) -> ApiResult<Json<Value>> {
    let app = &parameters.app;
    let name = parameters.stored_database()?;
    let settings = app.ingest.settings_now().await?;
    let has_settings = settings.by_database.contains_key(&name) || settings.policies(&name).next().is_some();
    if !has_settings && !app.query.all_databases().await?.contains(&name) {
        return Err(IngestError::from(PolicyError::NoDatabase(name)).into());
    }
    Ok(Json(settings_json(&name, &settings)))
}

/// `PATCH /api/v1/databases/NAME` changes the settings in the body, `PUT` replaces all. Previews the readings that would
/// expire with `dry_run`.
pub async fn change_settings(
    method: Method,
    parameters: Parameters,
    headers: HeaderMap,
    mut body: Body,
) -> ApiResult<Json<Value>> {
    let app = &parameters.app;
    let name = parameters.stored_database()?;
    let is_dry = parameters.flag("dry_run")?;
    let (bytes, _admission) =
        body::read_parameters(app, &parameters.requester.caller, &headers, &mut body, BodyLimit::SETTINGS).await?;
    let changes = SetSettings { is_whole: method == Method::PUT, ..parse_body(&bytes)? };
    app.ingest.check_settings(&name, &changes).await?;
    if is_dry {
        return Ok(Json(preview_expiry(app, &parameters.budget(), &name, &changes).await?));
    }
    app.ingest.put_settings(&name, &changes, &parameters.requester.caller).await?;
    let settings = app.ingest.settings_now().await?;
    let verb = if changes.is_whole { "REPLACE " } else { "" };
    let statement = format!("{verb}SETTINGS {}", String::from_utf8_lossy(&bytes));
    parameters.requester.note(app, statement, &name, "done");
    Ok(Json(settings_json(&name, &settings)))
}

/// Parses the settings in a body. `null` resets a setting to the default.
fn parse_body(body: &[u8]) -> ApiResult<SetSettings> {
    let bad = |fault: String| ApiError::Bad(format!("invalid body: {fault}"));
    let Ok(Value::Object(mut sent)) = serde_json::from_slice::<Value>(body) else {
        return Err(bad("send a JSON object such as {\"readings\":\"30d\"}".to_owned()));
    };
    let duration = format!("a duration such as \"30d\", \"{FOREVER}\" or null");
    let changes = SetSettings {
        is_whole: false,
        readings: change(&mut sent, "readings", parse_retention, &duration).map_err(bad)?,
        summaries: change(&mut sent, "summaries", parse_retention, &duration).map_err(bad)?,
        default: change(&mut sent, "default", |name| Some(name.to_owned()), "the name of a retention policy, or null")
            .map_err(bad)?,
        seal_form: change(&mut sent, "seal_form", SealForm::from_name, "\"packed\", \"columns\", \"off\" or null")
            .map_err(bad)?,
        drift: change(&mut sent, "drift", Drift::from_name, "\"reject\", \"keep\" or null").map_err(bad)?,
    };
    match sent.keys().next() {
        Some(key) => Err(bad(format!("unknown key {key:?}; use readings, summaries, default, seal_form or drift"))),
        None => Ok(changes),
    }
}

/// Removes a key from the body and parses its change. `expected` describes valid values.
fn change<T>(
    sent: &mut Map<String, Value>,
    key: &str,
    parse: impl FnOnce(&str) -> Option<T>,
    expected: &str,
) -> Result<SettingChange<T>, String> {
    match sent.remove(key) {
        None => Ok(SettingChange::Stays),
        Some(Value::Null) => Ok(SettingChange::To(None)),
        Some(value) => match value.as_str().and_then(parse) {
            Some(parsed) => Ok(SettingChange::To(Some(parsed))),
            None => Err(format!("{key} is {value}: send {expected}")),
        },
    }
}

/// Parses a retention period.
fn parse_retention(text: &str) -> Option<Keep> {
    if text.eq_ignore_ascii_case(FOREVER) {
        return Some(Keep::Forever);
    }
    parse_duration(text, &DURATION_UNITS).ok().filter(|ns| *ns > 0).map(Keep::For)
}

fn retention_text(kept: Keep) -> String {
    match kept {
        Keep::Forever => FOREVER.to_owned(),
        Keep::For(ns) => show_duration(std::time::Duration::from_nanos(ns.unsigned_abs())),
    }
}

fn settings_json(name: &str, settings: &Settings) -> Value {
    let own = settings.for_database(name);
    let kept = settings.readings_retention(name);
    let now = expiry_ns();
    let policy_json = |(policy, own): (&str, &DatabaseSettings)| {
        let kept = settings.readings_retention(&policy_database(name, policy));
        json!({ "name": policy, "readings": own.readings.map(retention_text), "kept": retention_text(kept) })
    };
    let summaries = settings.summaries_retention(name);
    let readable_from = settings.readings_start(name, now);
    let mut body = json!({
        "name": name,
        "readings": own.readings.map(retention_text),
        "summaries": own.summaries.map(retention_text),
        "default": own.default,
        "seal_form": own.seal_form.map(SealForm::name),
        "sealed_as": settings.seal_form(name).name(),
        "drift": own.drift.map(Drift::name),
        "drift_as": settings.drift(name).name(),
        "kept": retention_text(kept),
        "expired_before": readable_from.or_else(|| kept.cutoff(now)).map(rfc3339),
        "policies": settings.policies(name).map(policy_json).collect::<Vec<_>>(),
    });
    if readable_from.is_some() || summaries != kept {
        body["summaries_kept"] = json!(retention_text(summaries));
        body["removed_before"] =
            json!(own.expired_readings.map(|expired| expired.done).filter(|done| *done > TIMESTAMP_MIN).map(rfc3339));
        body["summaries_expired_before"] = json!(settings.cutoff(name, now).map(rfc3339));
    }
    body
}

/// Previews the readings and summaries that would expire with changed settings.
///
/// # Errors
/// If the store does not answer.
pub async fn preview_expiry(app: &App, budget: &Budget, name: &str, changes: &SetSettings) -> ApiResult<Value> {
    let mut by_database = app.query.settings().by_database.clone();
    let mut own = by_database.remove(name).unwrap_or_default();
    // Exclude expired readings, which the sensors' documents still contain.
    let begin = own.expired.unwrap_or(TIMESTAMP_MIN);
    changes.put(&mut own);
    let expired_before = own.expired_readings.map(|expired| expired.before);
    by_database.insert(name.to_owned(), own);
    let settings = Settings { by_database, ..Settings::clone(&app.query.settings()) };
    let now = expiry_ns();
    let Some(before) = settings.summaries_only_cutoff(name, now) else {
        let cutoff = settings.readings_retention(name).cutoff(now).unwrap_or(TIMESTAMP_MIN);
        return count_expired(app, budget, name, begin.min(cutoff)..cutoff).await;
    };
    let from = expired_before.unwrap_or(TIMESTAMP_MIN).min(before);
    let mut preview = count_expired(app, budget, name, from..before).await?;
    let cutoff = settings.cutoff(name, now).unwrap_or(TIMESTAMP_MIN);
    let mut summaries = count_expired(app, budget, name, begin.min(cutoff)..cutoff).await?;
    if let Some(summaries) = summaries.as_object_mut() {
        summaries.remove("dry_run");
    }
    preview["summaries"] = summaries;
    Ok(preview)
}

/// Counts the sensors, days and readings of a database in a range. The number of readings is null if it cannot be
/// computed from summaries.
async fn count_expired(app: &App, budget: &Budget, name: &str, range: Range<i64>) -> ApiResult<Value> {
    let cutoff = range.end;
    if cutoff <= TIMESTAMP_MIN {
        return Ok(json!({ "dry_run": true, "before": null, "sensors": 0, "days": 0, "readings": 0 }));
    }
    let known = known_sensors(app, budget, name, &range).await?;
    let aggregation = Aggregation {
        database: name.to_owned(),
        selector: Selector::Matching { measurement: None, tags: Vec::new(), pins: Vec::new() },
        has_start: range.start > TIMESTAMP_MIN,
        range: range.clone(),
        fields: Vec::new(),
        windows: None,
        functions: vec![NativeAggregate::COUNT],
        families: Families::All,
        group_by: GroupBy::Sensor,
        fill: crate::query::Fill::None,
        ranking: None,
        part: None,
    };
    // Omit the count if it exceeds the limits of queries.
    let found = app.query.aggregate(budget, &aggregation).await.ok();
    let counts: Option<Vec<i64>> =
        found.map(|found| found.series.iter().map(reading_count).filter(|count| *count > 0).collect());
    // Without a count, use the documents. They may lag behind the readings, so their zero means unknown.
    let sensors = match &counts {
        Some(counts) => Some(counts.len()),
        None => (known.sensors > 0).then_some(known.sensors),
    };
    let has_none = sensors == Some(0);
    let oldest = known.oldest.filter(|_| !has_none);
    let days = |first: i64| cutoff.div_euclid(DAY) - first.div_euclid(DAY) + i64::from(cutoff.rem_euclid(DAY) > 0);
    Ok(json!({
        "dry_run": true, "before": rfc3339(cutoff), "sensors": sensors,
        "sensors_wholly": sensors.map(|sensors| known.without_later.min(sensors)),
        "days": if has_none { Some(0) } else { oldest.map(days) }, "oldest": oldest.map(rfc3339),
        "readings": counts.map(|counts| counts.iter().sum::<i64>()),
    }))
}

/// Sensors with readings in a range, according to their documents.
#[derive(Default)]
struct KnownSensors {
    sensors: usize,
    /// Sensors without later readings.
    without_later: usize,
    /// The first reading in the range.
    oldest: Option<i64>,
    /// The last reading.
    newest: Option<i64>,
}

/// Reads up to [`SENSORS_MAX`] documents, including unflushed readings.
async fn known_sensors(app: &App, budget: &Budget, name: &str, range: &Range<i64>) -> ApiResult<KnownSensors> {
    let mut known = KnownSensors::default();
    let mut after = None;
    let mut seen = 0_usize;
    while seen < SENSORS_MAX {
        let filter = SensorFilter { after, outliers: false, limit: BATCH_SENSORS };
        let (documents, next) = app.query.patiently(|| sensors::read_stored(app, budget, name, &filter)).await?;
        for document in &documents {
            let Some(first) = document.first_seen else { continue };
            let Some(last) = document.last_seen else { continue };
            if first >= range.end || last < range.start {
                continue;
            }
            known.sensors += 1;
            known.without_later += usize::from(last < range.end);
            let first = first.max(range.start);
            known.oldest = Some(known.oldest.map_or(first, |oldest| oldest.min(first)));
            known.newest = known.newest.max(Some(last));
        }
        seen += documents.len();
        after = next;
        if after.is_none() {
            break;
        }
    }
    Ok(known)
}

/// Estimates the number of readings of a sensor by its most frequent field.
fn reading_count(series: &WindowSeries) -> i64 {
    let count = |cells: &Vec<Option<ReadingValue>>| {
        let counts = cells.iter().flatten();
        counts.filter_map(|count| if let ReadingValue::Integer(n) = count { Some(*n) } else { None }).max()
    };
    series.windows.iter().filter_map(|(_, cells)| count(cells)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_parsed_strictly() {
        let day = SettingChange::To(Some(Keep::For(DAY)));
        let forever = SettingChange::To(Some(Keep::Forever));
        let reset = SettingChange::To(None);
        let policy = |name: &str| SettingChange::To(Some(name.to_owned()));
        for (body, readings, summaries, default) in [
            ("{}", SettingChange::Stays, SettingChange::Stays, SettingChange::Stays),
            (r#"{"readings":"24h"}"#, day, SettingChange::Stays, SettingChange::Stays),
            (r#"{"readings":"1d","summaries":"24h","default":"week"}"#, day, day, policy("week")),
            (r#"{"readings":"INF","summaries":null,"default":null}"#, forever, reset, SettingChange::To(None)),
            (r#"{"readings":"1d","summaries":"inf"}"#, day, forever, SettingChange::Stays),
        ] {
            let expected = SetSettings { readings, summaries, default, ..SetSettings::default() };
            assert_eq!(parse_body(body.as_bytes()).ok(), Some(expected), "{body}");
        }
        let columns = parse_body(br#"{"seal_form":"columns"}"#).expect("a body");
        let expected = SetSettings { seal_form: SettingChange::To(Some(SealForm::Columns)), ..SetSettings::default() };
        assert_eq!(columns, expected);
        let keeps = parse_body(br#"{"drift":"keep"}"#).expect("a body");
        assert_eq!(keeps, SetSettings { drift: SettingChange::To(Some(Drift::Keep)), ..SetSettings::default() });
        for body in [
            "",
            "[]",
            r#"{"seal_form":"zip"}"#,
            r#"{"seal_form":true}"#,
            r#"{"drift":"beside"}"#,
            r#"{"readings":7}"#,
            r#"{"readings":"7"}"#,
            r#"{"readings":"0s"}"#,
            r#"{"readings":"1d","summaries":"0s"}"#,
            r#"{"default":1}"#,
            r#"{"reading":"1d"}"#,
        ] {
            assert!(parse_body(body.as_bytes()).is_err(), "{body}");
        }
    }
}
