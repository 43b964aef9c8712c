//! `/api/v1/relabel` and `/api/v1/relabels`: names by which sensors are shown, made, listed, made final and taken back.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Extension, Path, State};
use axum::http::HeaderMap;
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
use crate::bucket::{Relabel, Relabels, Renaming};
use crate::clock::now_ns;
use crate::ingest::{IngestError, NewRelabel, RelabelRefusal};
use crate::query::native::relabels::RelabelEffect;
use crate::reading::time::{parse_rfc3339, write_rfc3339};

type Id = Result<Path<String>, PathRejection>;

/// `GET /api/v1/relabels`: those of a database that the caller administers, in the order in which they were made.
pub async fn list(State(app): State<Arc<App>>, Extension(by): By, query: Pairs) -> Response {
    let listed = async {
        let parameters = Parameters::of(&app, query, params::RELABELS, by.clone())?;
        let database = managed(&by, &parameters)?;
        let held = app.ingest.settings_now().await?.of(&database).relabels;
        Ok(json!({ "relabels": held.rules().iter().map(shown).collect::<Vec<_>>() }))
    };
    answered(listed.await)
}

/// `POST /api/v1/relabel`: makes a relabel, or tells what it would do.
pub async fn make(
    State(app): State<Arc<App>>,
    Extension(by): By,
    Extension(address): Address,
    query: Pairs,
    headers: HeaderMap,
    mut body: Body,
) -> Response {
    let made = async {
        let parameters = Parameters::of(&app, query, params::RELABEL, by.clone())?;
        let database = managed(&by, &parameters)?;
        let is_dry = flag("dry_run", parameters.given("dry_run"))?.unwrap_or(false);
        let (bytes, _admission) = body::read(&app, &headers, &mut body).await?;
        let (renaming, since) = wanted(&app, &bytes)?;
        let new = NewRelabel { renaming, since, received: now_ns(), by: by.name().to_owned() };
        let (held, with) = app.ingest.relabels_with(&database, &new).await?;
        let effect = may_be(&app, &parameters, &database, (&held, &with)).await?;
        if is_dry {
            return Ok(told(None, &effect));
        }
        let rule = app.ingest.relabel(&database, &new).await?;
        note(&app, (&by, address), &database, format!("RELABEL {}", String::from_utf8_lossy(&bytes)));
        Ok(told(Some(&rule), &effect))
    };
    answered(made.await)
}

/// What a change of relabels does.
///
/// # Errors
/// If a field would have values of two families by it.
async fn may_be(
    app: &App,
    parameters: &Parameters,
    database: &str,
    change: (&Relabels, &Relabels),
) -> Result<RelabelEffect, ApiError> {
    let budget = parameters.budget(app);
    let effect = app.query.relabel_effect(&budget, database, change).await?;
    match effect.conflict {
        Some(conflict) => Err(IngestError::from(RelabelRefusal::Families(conflict)).into()),
        None => Ok(effect),
    }
}

/// `DELETE /api/v1/relabels/ID`: takes it back.
pub async fn undo(
    State(app): State<Arc<App>>,
    Extension(by): By,
    Extension(address): Address,
    id: Id,
    query: Pairs,
) -> Response {
    changed(&app, (&by, address), (id, query), true).await
}

/// `POST /api/v1/relabels/ID/finalize`: it cannot be taken back any more.
pub async fn finalize(
    State(app): State<Arc<App>>,
    Extension(by): By,
    Extension(address): Address,
    id: Id,
    query: Pairs,
) -> Response {
    changed(&app, (&by, address), (id, query), false).await
}

async fn changed(
    app: &App,
    (by, address): (&Caller, Option<std::net::IpAddr>),
    (id, query): (Id, Pairs),
    takes_back: bool,
) -> Response {
    let changed = async {
        let Path(id) = id.map_err(|error| ApiError::Bad(error.body_text()))?;
        let parameters = Parameters::of(app, query, params::RELABELS, by.clone())?;
        let database = managed(by, &parameters)?;
        let (rule, what) = match takes_back {
            true => {
                let (held, without) = app.ingest.relabels_without(&database, &id).await?;
                may_be(app, &parameters, &database, (&held, &without)).await?;
                (app.ingest.undo_relabel(&database, &id).await?, "UNDO")
            }
            false => (app.ingest.finalize_relabel(&database, &id).await?, "FINALIZE"),
        };
        note(app, (by, address), &database, format!("{what} RELABEL {id}"));
        Ok(shown(&rule))
    };
    answered(changed.await)
}

fn answered(answer: Result<Value, ApiError>) -> Response {
    answer.map_or_else(|error| error.respond(Dialect::Native), |body| Json(body).into_response())
}

/// The database, which the caller must administer.
fn managed(by: &Caller, parameters: &Parameters) -> Result<String, ApiError> {
    let name = parameters.stored_database()?;
    match by.may_manage(&name) {
        true => Ok(name),
        false => Err(ApiError::Forbidden(format!("{} may not manage database {name:?}", by.name()))),
    }
}

fn note(app: &App, (by, address): (&Caller, Option<std::net::IpAddr>), database: &str, statement: String) {
    app.audit.note(&Event::Change { by, address, statement, database, outcome: "done".to_owned() });
}

/// What a request's body asks for.
fn wanted(app: &App, body: &[u8]) -> Result<(Renaming, Option<i64>), ApiError> {
    let bad = |what: String| ApiError::Bad(format!("the body is not as expected: {what}"));
    let Ok(Value::Object(mut sent)) = serde_json::from_slice::<Value>(body) else {
        let example = r#"{"kind":"tag_value","tag":"room","from":"lab","to":"hall"}"#;
        return Err(bad(format!("send a JSON object such as {example}")));
    };
    let kind = text(&mut sent, "kind").map_err(bad)?;
    let names = (text(&mut sent, "from").map_err(bad)?, text(&mut sent, "to").map_err(bad)?);
    let (Some(kind), (Some(from), Some(to))) = (kind, names) else {
        return Err(bad("kind, from and to are needed".to_owned()));
    };
    let measurement = text(&mut sent, "measurement").map_err(bad)?.map(String::into_boxed_str);
    let tag = text(&mut sent, "tag").map_err(bad)?.map(String::into_boxed_str);
    let since = text(&mut sent, "since").map_err(bad)?;
    let since =
        since.map(|since| parse_rfc3339(&since).ok_or_else(|| bad(format!("since is {since:?}: send RFC 3339"))));
    if let Some((unknown, _)) = sent.into_iter().next() {
        return Err(bad(format!("unknown key {unknown:?}; use kind, from, to, tag, measurement or since")));
    }
    let is_plain = measurement.is_none() && tag.is_none();
    let renaming = match (&*kind, tag) {
        ("sensor", None) if is_plain => {
            let sensor = |key: &str| Parameters::key(app, key).map(Arc::new);
            Renaming::Sensor { from: sensor(&from)?, to: sensor(&to)? }
        }
        ("tag_value", Some(tag)) => Renaming::TagValue { measurement, tag, from: from.into(), to: to.into() },
        ("tag_key", None) => Renaming::TagKey { measurement, from: from.into(), to: to.into() },
        ("measurement", None) if is_plain => Renaming::Measurement { from: from.into(), to: to.into() },
        _ => {
            let kinds =
                "sensor, tag_key, measurement, or tag_value with tag; measurement goes with tag_key and tag_value";
            return Err(bad(format!("kind {kind:?} with these keys: use {kinds}")));
        }
    };
    Ok((renaming, since.transpose()?))
}

fn text(sent: &mut Map<String, Value>, name: &str) -> Result<Option<String>, String> {
    match sent.remove(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(format!("{name} is {other}: send a text")),
    }
}

fn shown(rule: &Relabel) -> Value {
    let fields = rule.fields().into_iter().filter(|(name, _)| *name != "stamp").map(|(name, text)| {
        let value = match name {
            "since" => rule.since.map(rfc3339).into(),
            "made" => rfc3339(rule.made).into(),
            _ => Value::from(text),
        };
        (name.to_owned(), value)
    });
    let mut shown: Map<String, Value> = fields.collect();
    shown.insert("final".to_owned(), rule.is_final.into());
    shown.into()
}

fn rfc3339(time: i64) -> String {
    let mut text = String::new();
    write_rfc3339(&mut text, time);
    text
}

/// What a relabel does, or would do.
fn told(rule: Option<&Relabel>, effect: &RelabelEffect) -> Value {
    let RelabelEffect { renamed, united, examples, .. } = effect;
    let examples = examples.iter().map(|(from, to)| json!({ "from": from, "to": to })).collect::<Vec<_>>();
    json!({
        "dry_run": rule.is_none(), "relabel": rule.map(shown), "renamed": renamed, "united": united, "examples": examples,
    })
}
