//! `/api/v1/renames`: the names under which sensors are shown, listed, set and deleted.

use std::net::IpAddr;
use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use crate::access::{Caller, Event};
use crate::bucket::{Rename, RenameKind, Renames};
use crate::http::api::write::flag;
use crate::http::errors::{ApiError, Dialect};
use crate::http::influx::query::Address;
use crate::http::parameters::{By, Pairs, Parameters};
use crate::http::server::body;
use crate::http::{App, params};
use crate::ingest::{IngestError, RenameRefusal};
use crate::query::native::renames::RenameEffect;

/// Number of tries to change renames that others change meanwhile.
const ATTEMPTS: usize = 8;

/// `GET /api/v1/renames`.
pub async fn list(State(app): State<Arc<App>>, Extension(by): By, query: Pairs) -> Response {
    let listed = async {
        let parameters = Parameters::of(&app, query, params::RENAMES, by.clone())?;
        let renames = app.ingest.renames(&managed(&by, &parameters)?).await?;
        Ok(json!({ "renames": renames.entries().iter().map(shown).collect::<Vec<_>>() }))
    };
    answered(listed.await)
}

/// `PUT /api/v1/renames`: adds an entry, or edits the one of the same name; with `dry_run` only counts.
pub async fn put(
    State(app): State<Arc<App>>,
    Extension(by): By,
    Extension(address): Address,
    query: Pairs,
    headers: HeaderMap,
    mut body: Body,
) -> Response {
    let put = async {
        let parameters = Parameters::of(&app, query, params::RENAME, by.clone())?;
        let database = managed(&by, &parameters)?;
        let (bytes, _admission) = body::read(&app, &headers, &mut body).await?;
        let mut rename = entry_of(&bytes)?;
        let limit = app.settings.limits.name_bytes;
        if rename.kind == RenameKind::Sensor {
            Parameters::key(&app, &rename.to)?;
            let stored = app.query.stored_key(&parameters.budget(&app), &database, &rename.from).await?;
            rename.from = stored.unwrap_or(rename.from);
        } else if let Some(bytes) = [rename.from.len(), rename.to.len()].into_iter().find(|bytes| *bytes > limit) {
            return Err(IngestError::from(RenameRefusal::Long { bytes, limit }).into());
        }
        let statement = format!("RENAME {}", shown(&rename));
        let with = |held: &Renames| Ok(held.with(rename.clone())?);
        change(&app, (&by, address), &parameters, &database, with, statement).await
    };
    answered(put.await)
}

/// `DELETE /api/v1/renames`: deletes the entry of a stored name.
pub async fn delete(
    State(app): State<Arc<App>>,
    Extension(by): By,
    Extension(address): Address,
    query: Pairs,
) -> Response {
    let deleted = async {
        let parameters = Parameters::of(&app, query, params::RENAME_DELETED, by.clone())?;
        let database = managed(&by, &parameters)?;
        let [tag, measurement, from] =
            ["tag", "measurement", "from"].map(|name| parameters.get(name).unwrap_or_default().to_owned());
        let kind = parameters.get("kind").and_then(RenameKind::from_name);
        let kind = kind.ok_or_else(|| ApiError::Bad(format!("parameter kind: use {KINDS}")))?;
        let statement = format!("DELETE RENAME {} {from:?} {tag:?} {measurement:?}", kind.name());
        let without = |held: &Renames| {
            let (from, database) = (from.clone(), database.clone());
            held.without(kind, &tag, &measurement, &from).ok_or(RenameRefusal::Unknown { kind, from, database })
        };
        change(&app, (&by, address), &parameters, &database, without, statement).await
    };
    answered(deleted.await)
}

/// Changes the renames of a database, unless two sensors would have one name; with `dry_run` only counts.
async fn change(
    app: &App,
    (by, address): (&Caller, Option<IpAddr>),
    parameters: &Parameters,
    database: &str,
    change: impl Fn(&Renames) -> Result<Renames, RenameRefusal>,
    statement: String,
) -> Result<Value, ApiError> {
    let is_dry = flag("dry_run", parameters.given("dry_run"))?.unwrap_or(false);
    let budget = parameters.budget(app);
    for _ in 0..ATTEMPTS {
        let held = app.ingest.renames(database).await?;
        let changed = change(&held).map_err(IngestError::from)?;
        let effect = app.query.rename_effect(&budget, database, &held, &changed).await?;
        if let Some([one, other, name]) = effect.conflict {
            return Err(IngestError::from(RenameRefusal::Conflict { name, one, other }).into());
        }
        if is_dry || app.ingest.set_renames(database, &held, &changed).await? {
            if !is_dry {
                let outcome = "done".to_owned();
                app.audit.note(&Event::Change { by, address, statement, database, outcome });
            }
            return Ok(told(is_dry, &effect));
        }
    }
    Err(IngestError::from(RenameRefusal::Contended { database: database.to_owned() }).into())
}

fn answered(answer: Result<Value, ApiError>) -> Response {
    answer.map_or_else(|error| error.respond(Dialect::Native), |body| Json(body).into_response())
}

/// The database, which the caller must administer.
fn managed(by: &Caller, parameters: &Parameters) -> Result<String, ApiError> {
    let name = parameters.stored_database()?;
    if by.may_manage(&name) {
        return Ok(name);
    }
    Err(ApiError::Forbidden(format!("{} may not manage database {name:?}", by.name())))
}

const KINDS: &str = "sensor, measurement, tag_key or tag_value";

/// The entry that a request's body describes.
fn entry_of(body: &[u8]) -> Result<Rename, ApiError> {
    let bad = |what: String| ApiError::Bad(format!("the body is not as expected: {what}"));
    let Ok(Value::Object(sent)) = serde_json::from_slice::<Value>(body) else {
        let example = r#"{"kind":"tag_value","tag":"room","from":"lab","to":"hall"}"#;
        return Err(bad(format!("send a JSON object such as {example}")));
    };
    let known = ["kind", "tag", "measurement", "from", "to"];
    for (name, value) in &sent {
        if !known.contains(&&**name) {
            return Err(bad(format!("unknown key {name:?}; use {}", known.join(", "))));
        }
        if !value.is_string() && !value.is_null() {
            return Err(bad(format!("{name} is {value}: send a text")));
        }
    }
    let entry = Rename::from_fields(|name| sent.get(name).and_then(Value::as_str));
    entry.ok_or_else(|| bad(format!("kind, from and to are needed; kind is {KINDS}")))
}

fn shown(entry: &Rename) -> Value {
    entry.fields().map(|(name, text)| (name.to_owned(), Value::from(text))).collect::<Map<_, _>>().into()
}

/// The effect of a change, or what it would be.
fn told(is_dry: bool, effect: &RenameEffect) -> Value {
    let examples = effect.examples.iter().map(|(from, to)| json!({ "from": from, "to": to })).collect::<Vec<_>>();
    json!({ "dry_run": is_dry, "renamed": effect.renamed, "examples": examples })
}
