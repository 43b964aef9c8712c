//! `/api/v1/databases/NAME`: how long a database keeps its readings, how its days are sealed, what becomes of
//! values of other types, and which policy is meant where none is named.

use std::ops::Range;

use axum::Json;
use axum::body::Body;
use axum::http::HeaderMap;
use serde_json::{Map, Value, json};

use crate::bucket::settings::{AUTOGEN, Drift, Settings, policy_database};
use crate::bucket::store::SensorFilter;
use crate::bucket::{DatabaseSettings, Keep, SealForm};
use crate::clock::now_ns;
use crate::http::App;
use crate::http::api::sensors;
use crate::http::errors::{ApiError, ApiResult};
use crate::http::parameters::{InPath, Parameters, Sender};
use crate::http::server::body;
use crate::ingest::{IngestError, PolicyError, SetSettings, SettingChange, check_database_name};
use crate::query::Budget;
use crate::query::native::aggregate::{Aggregation, Families, GroupBy, NativeAggregate, WindowSeries};
use crate::query::selector::Selector;
use crate::reading::Value as ReadingValue;
use crate::reading::duration::{DURATION_UNITS, parse_duration, show_duration};
use crate::reading::time::{TIMESTAMP_MIN, rfc3339};

/// What keeps readings for ever, as in `InfluxQL`.
const FOREVER: &str = "inf";
/// Sensors that a dry run reads at a time, and at most.
const COUNTED_AT_A_TIME: usize = 1000;
const COUNTED_MAX: usize = 1_000_000;
const DAY: i64 = 24 * 3_600_000_000_000;

/// `GET /api/v1/databases/NAME`.
pub async fn show(InPath(name): InPath<String>, parameters: Parameters) -> ApiResult<Json<Value>> {
    let app = &parameters.app;
    let name = managed(&parameters.sender, &name)?;
    let settings = app.ingest.settings_now().await?;
    let has_it = settings.by_database.contains_key(&name) || settings.policies(&name).next().is_some();
    if !has_it && !app.query.all_databases().await?.contains(&name) {
        return Err(IngestError::from(PolicyError::NoDatabase(name)).into());
    }
    Ok(Json(described(&name, &settings)))
}

/// `PUT /api/v1/databases/NAME`: changes the settings that are sent, or tells what would expire.
pub async fn put(
    InPath(name): InPath<String>,
    parameters: Parameters,
    headers: HeaderMap,
    mut body: Body,
) -> ApiResult<Json<Value>> {
    let app = &parameters.app;
    let name = managed(&parameters.sender, &name)?;
    let is_dry = parameters.flag("dry_run")?;
    let (bytes, _admission) = body::read(app, &headers, &mut body).await?;
    let wanted = wanted(&bytes)?;
    app.ingest.check_settings(&name, &wanted).await?;
    if is_dry {
        return Ok(Json(would_go_by(app, &parameters.budget(), &name, &wanted).await?));
    }
    app.ingest.put_settings(&name, &wanted, &parameters.sender.by).await?;
    let settings = app.ingest.settings_now().await?;
    parameters.sender.note(app, format!("SETTINGS {}", String::from_utf8_lossy(&bytes)), &name, "done");
    Ok(Json(described(&name, &settings)))
}

/// The database, which the caller must administer: the whole of it, also if it is named as the policy `autogen`, since its settings
/// are what its policies go by.
fn managed(sender: &Sender, name: &str) -> ApiResult<String> {
    let name = name.strip_suffix(&format!("/{AUTOGEN}")).unwrap_or(name);
    sender.check_manages(name)?;
    check_database_name(name)?;
    Ok(name.to_owned())
}

/// The body of a PUT: a key that is not sent stays as it is, `null` is the default.
fn wanted(body: &[u8]) -> ApiResult<SetSettings> {
    let bad = |what: String| ApiError::Bad(format!("the body is not as expected: {what}"));
    let Ok(Value::Object(mut sent)) = serde_json::from_slice::<Value>(body) else {
        return Err(bad("send a JSON object such as {\"readings\":\"30d\"}".to_owned()));
    };
    let lasting = format!("a duration such as \"30d\", \"{FOREVER}\" or null");
    let wanted = SetSettings {
        readings: change(&mut sent, "readings", keep, &lasting).map_err(bad)?,
        summaries: change(&mut sent, "summaries", keep, &lasting).map_err(bad)?,
        default: change(&mut sent, "default", |name| Some(name.to_owned()), "the name of a retention policy, or null")
            .map_err(bad)?,
        seal_form: change(&mut sent, "seal_form", SealForm::from_name, "\"packed\", \"columns\", \"off\" or null")
            .map_err(bad)?,
        drift: change(&mut sent, "drift", Drift::from_name, "\"reject\", \"keep\" or null").map_err(bad)?,
    };
    match sent.keys().next() {
        Some(key) => Err(bad(format!("unknown key {key:?}; use readings, summaries, default, seal_form or drift"))),
        None => Ok(wanted),
    }
}

/// What becomes of the setting of this key, by its text; `wants` says what may be sent.
fn change<T>(
    sent: &mut Map<String, Value>,
    key: &str,
    of: impl FnOnce(&str) -> Option<T>,
    wants: &str,
) -> Result<SettingChange<T>, String> {
    match sent.remove(key) {
        None => Ok(SettingChange::Stays),
        Some(Value::Null) => Ok(SettingChange::To(None)),
        Some(value) => match value.as_str().and_then(of) {
            Some(wanted) => Ok(SettingChange::To(Some(wanted))),
            None => Err(format!("{key} is {value}: send {wants}")),
        },
    }
}

/// How long something is kept.
fn keep(text: &str) -> Option<Keep> {
    if text.eq_ignore_ascii_case(FOREVER) {
        return Some(Keep::Forever);
    }
    parse_duration(text, &DURATION_UNITS).ok().filter(|ns| *ns > 0).map(Keep::For)
}

fn text_of(kept: Keep) -> String {
    match kept {
        Keep::Forever => FOREVER.to_owned(),
        Keep::For(ns) => show_duration(std::time::Duration::from_nanos(ns.unsigned_abs())),
    }
}

fn described(name: &str, settings: &Settings) -> Value {
    let (own, kept, now) = (settings.of(name), settings.kept(name), now_ns());
    let policy = |(policy, of): (&str, &DatabaseSettings)| {
        let kept = settings.kept(&policy_database(name, policy));
        json!({ "name": policy, "readings": of.readings.map(text_of), "kept": text_of(kept) })
    };
    let summaries = settings.summaries_kept(name);
    let from = settings.readings_from(name, now);
    let mut described = json!({
        "name": name,
        "readings": own.readings.map(text_of),
        "summaries": own.summaries.map(text_of),
        "default": own.default,
        "seal_form": own.seal_form.map(SealForm::name),
        "sealed_as": settings.sealed_as(name).name(),
        "drift": own.drift.map(Drift::name),
        "drift_as": settings.drift(name).name(),
        "kept": text_of(kept),
        "expired_before": from.or_else(|| kept.cutoff(now)).map(rfc3339),
        "policies": settings.policies(name).map(policy).collect::<Vec<_>>(),
    });
    if from.is_some() || summaries != kept {
        described["summaries_kept"] = json!(text_of(summaries));
        described["removed_before"] =
            json!(own.expired_readings.map(|gone| gone.done).filter(|done| *done > TIMESTAMP_MIN).map(rfc3339));
        described["summaries_expired_before"] = json!(settings.gone_before(name, now).map(rfc3339));
    }
    described
}

/// What would expire by these settings: readings, and of summaries what would go with them or later.
///
/// # Errors
/// If the store does not answer.
pub async fn would_go_by(app: &App, budget: &Budget, name: &str, set: &SetSettings) -> ApiResult<Value> {
    let mut by_database = app.query.settings().by_database.clone();
    let mut of = by_database.remove(name).unwrap_or_default();
    // What has gone already goes no more; sensors' documents still tell of it.
    let begin = of.expired.unwrap_or(TIMESTAMP_MIN);
    set.put(&mut of);
    let gone = of.expired_readings.map(|gone| gone.before);
    by_database.insert(name.to_owned(), of);
    let settings = Settings { by_database, ..Settings::clone(&app.query.settings()) };
    let now = now_ns();
    let Some(before) = settings.summaries_only_before(name, now) else {
        let until = settings.kept(name).cutoff(now).unwrap_or(TIMESTAMP_MIN);
        return would_go(app, budget, name, begin.min(until)..until).await;
    };
    let from = gone.unwrap_or(TIMESTAMP_MIN).min(before);
    let mut told = would_go(app, budget, name, from..before).await?;
    let until = settings.gone_before(name, now).unwrap_or(TIMESTAMP_MIN);
    let mut summaries = would_go(app, budget, name, begin.min(until)..until).await?;
    if let Some(summaries) = summaries.as_object_mut() {
        summaries.remove("dry_run");
    }
    told["summaries"] = summaries;
    Ok(told)
}

/// What a database has in a range of times: sensors, days, and readings, as far as they can be counted from summaries.
async fn would_go(app: &App, budget: &Budget, name: &str, range: Range<i64>) -> ApiResult<Value> {
    let cutoff = range.end;
    if cutoff <= TIMESTAMP_MIN {
        return Ok(json!({ "dry_run": true, "before": null, "sensors": 0, "days": 0, "readings": 0 }));
    }
    let known = known_sensors(app, budget, name, &range).await?;
    let asked = Aggregation {
        database: name.to_owned(),
        selector: Selector::Matching { measurement: None, tags: Vec::new(), pins: Vec::new() },
        has_start: range.start > TIMESTAMP_MIN,
        range: range.clone(),
        fields: Vec::new(),
        step: None,
        zone: None,
        functions: vec![NativeAggregate::COUNT],
        families: Families::All,
        group_by: GroupBy::Sensor,
        fill: crate::influxql::Fill::None,
    };
    // A question that is too large for the limits of queries is not worth its answer.
    let found = app.query.aggregate(budget, &asked).await.ok();
    let counts: Option<Vec<i64>> =
        found.map(|found| found.series.iter().map(readings_of).filter(|count| *count > 0).collect());
    // Documents may lag behind the readings; without a count they are all there is, and if they tell of none it is not known.
    let sensors = counts.as_ref().map_or((known.sensors > 0).then_some(known.sensors), |counts| Some(counts.len()));
    let has_none = sensors == Some(0);
    let oldest = known.oldest.filter(|_| !has_none);
    let days = |first: i64| cutoff.div_euclid(DAY) - first.div_euclid(DAY) + i64::from(cutoff.rem_euclid(DAY) > 0);
    Ok(json!({
        "dry_run": true, "before": rfc3339(cutoff), "sensors": sensors,
        "sensors_wholly": sensors.map(|sensors| known.wholly.min(sensors)),
        "days": if has_none { Some(0) } else { oldest.map(days) }, "oldest": oldest.map(rfc3339),
        "readings": counts.map(|counts| counts.iter().sum::<i64>()),
    }))
}

/// What the documents of sensors tell of a range of times.
#[derive(Default)]
struct KnownSensors {
    /// With readings in it.
    sensors: usize,
    /// Without any after it.
    wholly: usize,
    /// The first reading in it.
    oldest: Option<i64>,
}

/// As far as [`COUNTED_MAX`] documents tell, with what is not stored yet.
async fn known_sensors(app: &App, budget: &Budget, name: &str, range: &Range<i64>) -> ApiResult<KnownSensors> {
    let (mut known, mut after, mut seen) = (KnownSensors::default(), None, 0_usize);
    while seen < COUNTED_MAX {
        let filter = SensorFilter { after, outliers: false, limit: COUNTED_AT_A_TIME };
        let (documents, next) = app.query.patiently(|| sensors::stored(app, budget, name, &filter)).await?;
        for document in &documents {
            let (Some(first), Some(last)) = (document.first_seen, document.last_seen) else { continue };
            if first >= range.end || last < range.start {
                continue;
            }
            known.sensors += 1;
            known.wholly += usize::from(last < range.end);
            let first = first.max(range.start);
            known.oldest = Some(known.oldest.map_or(first, |oldest| oldest.min(first)));
        }
        seen += documents.len();
        after = next;
        if after.is_none() {
            break;
        }
    }
    Ok(known)
}

/// Of a sensor's fields that which was sent most often.
fn readings_of(series: &WindowSeries) -> i64 {
    let of_window = |cells: &Vec<Option<ReadingValue>>| {
        let counts = cells.iter().flatten();
        counts.filter_map(|count| if let ReadingValue::Integer(n) = count { Some(*n) } else { None }).max()
    };
    series.windows.iter().filter_map(|(_, cells)| of_window(cells)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_says_what_is_to_be_kept_and_nothing_else() {
        let (day, forever, reset) =
            (SettingChange::To(Some(Keep::For(DAY))), SettingChange::To(Some(Keep::Forever)), SettingChange::To(None));
        let policy = |name: &str| SettingChange::To(Some(name.to_owned()));
        for (body, readings, summaries, default) in [
            ("{}", SettingChange::Stays, SettingChange::Stays, SettingChange::Stays),
            (r#"{"readings":"24h"}"#, day, SettingChange::Stays, SettingChange::Stays),
            (r#"{"readings":"1d","summaries":"24h","default":"week"}"#, day, day, policy("week")),
            (r#"{"readings":"INF","summaries":null,"default":null}"#, forever, reset, SettingChange::To(None)),
            (r#"{"readings":"1d","summaries":"inf"}"#, day, forever, SettingChange::Stays),
        ] {
            let expected = SetSettings { readings, summaries, default, ..SetSettings::default() };
            assert_eq!(wanted(body.as_bytes()).ok(), Some(expected), "{body}");
        }
        let columns = wanted(br#"{"seal_form":"columns"}"#).expect("a body");
        let expected = SetSettings { seal_form: SettingChange::To(Some(SealForm::Columns)), ..SetSettings::default() };
        assert_eq!(columns, expected);
        let keeps = wanted(br#"{"drift":"keep"}"#).expect("a body");
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
            assert!(wanted(body.as_bytes()).is_err(), "{body}");
        }
    }
}
