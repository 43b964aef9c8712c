//! `/api/v1/databases/NAME`: how long a database keeps its readings, how its days are sealed, what becomes of
//! values of other types, and which policy is meant where none is named.

use std::ops::Range;
use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Extension, Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use super::App;
use super::body;
use super::errors::{ApiError, Dialect};
use super::influx_query::Address;
use super::parameters::{By, Pairs, Parameters};
use super::params;
use super::write::flag;
use crate::access::{Caller, Event};
use crate::bucket::settings::{AUTOGEN, Drift, Settings, policy_database};
use crate::bucket::store::SensorFilter;
use crate::bucket::{DatabaseSettings, Keep, SealForm};
use crate::clock::now_ns;
use crate::ingest::{PolicyError, SetSettings, check_database_name};
use crate::query::Budget;
use crate::query::native::aggregate::{Aggregated, Aggregation, GroupBy, NativeAggregate};
use crate::query::selector::Selector;
use crate::reading::Value as ReadingValue;
use crate::reading::duration::{DURATION_UNITS, parse_duration, show_duration};
use crate::reading::time::{TIMESTAMP_MIN, write_rfc3339};

/// What keeps readings for ever, as in `InfluxQL`.
const FOREVER: &str = "inf";
/// Sensors that a dry run reads at a time, and at most.
const COUNTED_AT_A_TIME: usize = 1000;
const COUNTED_MAX: usize = 1_000_000;
const DAY: i64 = 24 * 3_600_000_000_000;

type Name = Result<Path<String>, PathRejection>;

/// `GET /api/v1/databases/NAME`.
pub async fn show(State(app): State<Arc<App>>, Extension(by): By, name: Name) -> Response {
    shown(&app, &by, name).await.map_or_else(|error| error.respond(Dialect::Native), |body| Json(body).into_response())
}

async fn shown(app: &App, by: &Caller, name: Name) -> Result<Value, ApiError> {
    let name = managed(by, name)?;
    let settings = app.ingest.settings_now().await?;
    let has_it = settings.by_database.contains_key(&name) || settings.policies(&name).next().is_some();
    if !has_it && !app.query.all_databases().await?.contains(&name) {
        return Err(ApiError::from(crate::ingest::IngestError::from(PolicyError::NoDatabase(name))));
    }
    Ok(described(&name, &settings))
}

/// `PUT /api/v1/databases/NAME`: replaces the settings, or tells what would expire.
pub async fn put(
    State(app): State<Arc<App>>,
    Extension(by): By,
    Extension(address): Address,
    name: Name,
    query: Pairs,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let sent = (&headers, body);
    match changed(&app, &by, (name, query), sent).await {
        Ok((body, None)) => Json(body).into_response(),
        Ok((body, Some((database, text)))) => {
            if let Caller::Holder(_) = by {
                let statement = format!("SETTINGS {text}");
                let outcome = "done".to_owned();
                app.audit.note(&Event::Change { by: by.name(), address, statement, database: &database, outcome });
            }
            (StatusCode::OK, Json(body)).into_response()
        }
        Err(error) => error.respond(Dialect::Native),
    }
}

/// The settings; and for the audit trail the database and what was set, if it was.
async fn changed(
    app: &App,
    by: &Caller,
    (name, query): (Name, Pairs),
    (headers, mut body): (&HeaderMap, Body),
) -> Result<(Value, Option<(String, String)>), ApiError> {
    let name = managed(by, name)?;
    let parameters = Parameters::of(app, query, params::DATABASE, by.clone())?;
    let is_dry = flag("dry_run", parameters.given("dry_run"))?.unwrap_or(false);
    let (bytes, _admission) = body::read(app, headers, &mut body).await?;
    let wanted = Wanted::of(&bytes)?;
    let Wanted { readings, summaries, default, seal_form, drift } = &wanted;
    let (default, seal_form, drift) = (default.as_deref(), *seal_form, *drift);
    let set = SetSettings { readings: *readings, summaries: *summaries, default, seal_form, drift };
    app.ingest.check_settings(&name, set).await?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    if is_dry {
        return Ok((would_go_by(app, &parameters.budget(app), &name, set).await?, None));
    }
    app.ingest.put_settings(&name, set, by).await?;
    let settings = app.ingest.settings_now().await?;
    Ok((described(&name, &settings), Some((name, text))))
}

/// The database, which the caller must administer.
fn managed(by: &Caller, name: Name) -> Result<String, ApiError> {
    let Path(name) = name.map_err(|error| ApiError::Bad(error.body_text()))?;
    if !by.may_manage(&name) {
        return Err(ApiError::Forbidden(format!("{} may not manage database {name:?}", by.name())));
    }
    check_database_name(&name)?;
    let autogen = format!("/{AUTOGEN}");
    Ok(name.strip_suffix(&autogen).map_or(name.clone(), str::to_owned))
}

/// The body of a PUT.
#[derive(Debug, PartialEq)]
struct Wanted {
    readings: Option<Keep>,
    summaries: Option<Keep>,
    default: Option<String>,
    seal_form: Option<SealForm>,
    drift: Option<Drift>,
}

impl Wanted {
    fn of(body: &[u8]) -> Result<Self, ApiError> {
        let bad = |what: String| ApiError::Bad(format!("the body is not as expected: {what}"));
        let Ok(Value::Object(mut sent)) = serde_json::from_slice::<Value>(body) else {
            return Err(bad("send a JSON object such as {\"readings\":\"30d\"}".to_owned()));
        };
        let readings = keep(&mut sent, "readings").map_err(bad)?;
        let summaries = keep(&mut sent, "summaries").map_err(bad)?;
        let default = match sent.remove("default") {
            None | Some(Value::Null) => None,
            Some(Value::String(name)) => Some(name),
            Some(other) => return Err(bad(format!("default is {other}: name a retention policy, or null"))),
        };
        let seal_form = match sent.remove("seal_form") {
            None | Some(Value::Null) => None,
            Some(form) => match form.as_str().and_then(SealForm::from_name) {
                Some(form) => Some(form),
                None => return Err(bad(format!("seal_form is {form}: send \"packed\", \"columns\", \"off\" or null"))),
            },
        };
        let drift = match sent.remove("drift") {
            None | Some(Value::Null) => None,
            Some(drift) => match drift.as_str().and_then(Drift::from_name) {
                Some(drift) => Some(drift),
                None => return Err(bad(format!("drift is {drift}: send \"reject\", \"keep\" or null"))),
            },
        };
        match sent.keys().next() {
            Some(unknown) => {
                Err(bad(format!("unknown key {unknown:?}; use readings, summaries, default, seal_form or drift")))
            }
            None => Ok(Self { readings, summaries, default, seal_form, drift }),
        }
    }
}

/// How long something is kept; `None` for the config's default.
fn keep(sent: &mut Map<String, Value>, key: &str) -> Result<Option<Keep>, String> {
    let bad = |value: &Value| format!("{key} is {value}: send a duration such as \"30d\", \"{FOREVER}\" or null");
    match sent.remove(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text.eq_ignore_ascii_case(FOREVER) => Ok(Some(Keep::Forever)),
        Some(value) => {
            let kept = value.as_str().and_then(|text| parse_duration(text, &DURATION_UNITS).ok());
            kept.filter(|ns| *ns > 0).map(|ns| Some(Keep::For(ns))).ok_or_else(|| bad(&value))
        }
    }
}

fn text_of(kept: Keep) -> String {
    match kept {
        Keep::Forever => FOREVER.to_owned(),
        Keep::For(ns) => show_duration(std::time::Duration::from_nanos(ns.unsigned_abs())),
    }
}

fn time_of(ns: i64) -> String {
    let mut text = String::new();
    write_rfc3339(&mut text, ns);
    text
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
        "summaries": own.summaries.or(own.readings).map(text_of),
        "default": own.default,
        "seal_form": own.seal_form.map(SealForm::name),
        "sealed_as": settings.sealed_as(name).name(),
        "drift": own.drift.map(Drift::name),
        "drift_as": settings.drift(name).name(),
        "kept": text_of(kept),
        "expired_before": from.or_else(|| kept.cutoff(now)).map(time_of),
        "policies": settings.policies(name).map(policy).collect::<Vec<_>>(),
    });
    if from.is_some() || summaries != kept {
        described["summaries_kept"] = json!(text_of(summaries));
        described["removed_before"] = json!(own.expired_readings.map(|gone| time_of(gone.done)));
        described["summaries_expired_before"] = json!(settings.gone_before(name, now).map(time_of));
    }
    described
}

/// What would expire by these settings: readings, and of summaries what would go with them or later.
///
/// # Errors
/// If the store does not answer.
pub async fn would_go_by(app: &App, budget: &Budget, name: &str, set: SetSettings<'_>) -> Result<Value, ApiError> {
    let mut by_database = app.query.settings().by_database.clone();
    let mut of = by_database.remove(name).unwrap_or_default();
    (of.readings, of.summaries) = (set.readings, set.summaries);
    let gone = of.expired_readings.map(|gone| gone.before);
    by_database.insert(name.to_owned(), of);
    let settings = Settings { by_database, ..Settings::clone(&app.query.settings()) };
    let now = now_ns();
    let Some(before) = settings.summaries_only_before(name, now) else {
        let until = settings.kept(name).cutoff(now).unwrap_or(TIMESTAMP_MIN);
        return would_go(app, budget, name, TIMESTAMP_MIN..until).await;
    };
    let from = gone.unwrap_or(TIMESTAMP_MIN).min(before);
    let mut told = would_go(app, budget, name, from..before).await?;
    let until = settings.gone_before(name, now).unwrap_or(TIMESTAMP_MIN);
    let mut summaries = would_go(app, budget, name, TIMESTAMP_MIN..until).await?;
    if let Some(summaries) = summaries.as_object_mut() {
        summaries.remove("dry_run");
    }
    told["summaries"] = summaries;
    Ok(told)
}

/// What a database has in a range of times: sensors, days, and readings, as far as they can be counted from summaries.
async fn would_go(app: &App, budget: &Budget, name: &str, range: Range<i64>) -> Result<Value, ApiError> {
    let cutoff = range.end;
    if cutoff <= TIMESTAMP_MIN {
        return Ok(json!({ "dry_run": true, "before": null, "sensors": 0, "days": 0, "readings": 0 }));
    }
    let mut after = None;
    let (mut sensors, mut whole, mut seen, mut first) = (0_usize, 0_usize, 0_usize, cutoff);
    while seen < COUNTED_MAX {
        let filter = SensorFilter { after, outliers: false, limit: COUNTED_AT_A_TIME };
        let documents = app.query.sensors(budget, name, &filter).await?;
        for document in &documents {
            let is_older = |time: &Option<i64>| time.is_some_and(|time| time < cutoff);
            let is_newer = document.last_seen.is_none_or(|last| last >= range.start);
            sensors += usize::from(is_older(&document.first_seen) && is_newer);
            whole += usize::from(is_older(&document.last_seen) && is_newer);
            first = first.min(document.first_seen.unwrap_or(cutoff)).max(range.start);
        }
        seen += documents.len();
        after = documents.last().map(|last| last.sensor.key.to_string());
        if documents.len() < COUNTED_AT_A_TIME {
            break;
        }
    }
    let days = cutoff.div_euclid(DAY) - first.div_euclid(DAY) + i64::from(cutoff.rem_euclid(DAY) > 0);
    let asked = |numbers_only| Aggregation {
        database: name.to_owned(),
        selector: Selector::Matching { measurement: None, tags: Vec::new(), pins: Vec::new() },
        has_start: range.start > TIMESTAMP_MIN,
        range: range.clone(),
        fields: Vec::new(),
        step: None,
        zone: None,
        functions: vec![NativeAggregate::Count],
        numbers_only,
        group_by: GroupBy::Sensor,
        fill: crate::influxql::Fill::None,
        as_stored: false,
    };
    // Only where no sensor has a number are the others worth the reading of all that they wrote. A question that is too large for the
    // limits of queries is not worth its answer.
    let mut readings = Some(0);
    for numbers_only in [true, false] {
        if sensors > 0 && readings == Some(0) {
            readings = app.query.aggregate(budget, &asked(numbers_only)).await.ok().map(|found| readings_of(&found));
        }
    }
    Ok(json!({
        "dry_run": true, "before": time_of(cutoff), "sensors": sensors, "sensors_wholly": whole,
        "days": if sensors > 0 { days } else { 0 }, "oldest": (sensors > 0).then(|| time_of(first)), "readings": readings,
    }))
}

/// How many readings the windows of an answer have, at least: of each the count of the field that has most.
fn readings_of(found: &Aggregated) -> i64 {
    let of_cell =
        |cell: &Option<ReadingValue>| if let Some(ReadingValue::Integer(count)) = cell { Some(*count) } else { None };
    let windows = found.series.iter().flat_map(|series| &series.windows);
    windows.filter_map(|(_, cells)| cells.iter().filter_map(of_cell).max()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_says_what_is_to_be_kept_and_nothing_else() {
        let (day, forever) = (Some(Keep::For(DAY)), Some(Keep::Forever));
        for (body, readings, summaries, default) in [
            ("{}", None, None, None),
            (r#"{"readings":"24h"}"#, day, None, None),
            (r#"{"readings":"1d","summaries":"24h","default":"week"}"#, day, day, Some("week")),
            (r#"{"readings":"INF","summaries":null,"default":null}"#, forever, None, None),
            (r#"{"readings":"1d","summaries":"inf"}"#, day, forever, None),
        ] {
            let wanted =
                Wanted { readings, summaries, default: default.map(str::to_owned), seal_form: None, drift: None };
            assert_eq!(Wanted::of(body.as_bytes()).ok(), Some(wanted), "{body}");
        }
        let columns = Wanted::of(br#"{"seal_form":"columns"}"#).ok().and_then(|wanted| wanted.seal_form);
        assert_eq!(columns, Some(SealForm::Columns));
        let keep = Wanted::of(br#"{"drift":"keep"}"#).ok().and_then(|wanted| wanted.drift);
        assert_eq!(keep, Some(Drift::Keep));
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
            assert!(Wanted::of(body.as_bytes()).is_err(), "{body}");
        }
    }
}
