//! `/api/v1/renames`: the names under which sensors are shown, listed, set and deleted.

use axum::Json;
use axum::body::Body;
use axum::http::HeaderMap;
use serde_json::{Map, Value, json};

use crate::bucket::{Rename, RenameKind, Renames};
use crate::http::errors::{ApiError, ApiResult};
use crate::http::parameters::Parameters;
use crate::http::server::body;
use crate::ingest::{IngestError, RenameRefusal};
use crate::query::native::renames::RenameEffect;

/// Number of tries to change renames that others change meanwhile.
const ATTEMPTS: usize = 8;

/// `GET /api/v1/renames`.
pub async fn list(parameters: Parameters) -> ApiResult<Json<Value>> {
    let renames = parameters.app.ingest.renames(&managed(&parameters)?).await?;
    Ok(Json(json!({ "renames": renames.entries().iter().map(shown).collect::<Vec<_>>() })))
}

/// `PUT /api/v1/renames`: adds an entry, or edits the one of the same name; with `dry_run` only counts.
pub async fn put(parameters: Parameters, headers: HeaderMap, mut body: Body) -> ApiResult<Json<Value>> {
    let app = &parameters.app;
    let database = managed(&parameters)?;
    let (bytes, _admission) = body::read(app, &headers, &mut body).await?;
    let mut rename = entry_of(&bytes)?;
    let limit = app.settings.limits.name_bytes;
    if rename.kind == RenameKind::Sensor {
        parameters.key(&rename.to)?;
        let stored = app.query.stored_key(&parameters.budget(), &database, &rename.from).await?;
        rename.from = stored.unwrap_or(rename.from);
    } else if let Some(bytes) = [rename.from.len(), rename.to.len()].into_iter().find(|bytes| *bytes > limit) {
        return Err(IngestError::from(RenameRefusal::Long { bytes, limit }).into());
    }
    let statement = format!("RENAME {}", shown(&rename));
    change(&parameters, &database, |held| Ok(held.with(rename.clone())?), statement).await
}

/// `DELETE /api/v1/renames`: deletes the entry of a stored name.
pub async fn delete(parameters: Parameters) -> ApiResult<Json<Value>> {
    let database = managed(&parameters)?;
    let [tag, measurement, from] =
        ["tag", "measurement", "from"].map(|name| parameters.get(name).unwrap_or_default().to_owned());
    let kind = parameters.get("kind").and_then(RenameKind::from_name);
    let kind = kind.ok_or_else(|| ApiError::Bad(format!("parameter kind: use {KINDS}")))?;
    let statement = format!("DELETE RENAME {} {from:?} {tag:?} {measurement:?}", kind.name());
    let without = |held: &Renames| {
        let unknown = || RenameRefusal::Unknown { kind, from: from.clone(), database: database.clone() };
        held.without(kind, &tag, &measurement, &from).ok_or_else(unknown)
    };
    change(&parameters, &database, without, statement).await
}

/// Changes the renames of a database, unless two sensors would have one name; with `dry_run` only counts.
async fn change(
    parameters: &Parameters,
    database: &str,
    change: impl Fn(&Renames) -> Result<Renames, RenameRefusal>,
    statement: String,
) -> ApiResult<Json<Value>> {
    let app = &parameters.app;
    let is_dry = parameters.flag("dry_run")?;
    let budget = parameters.budget();
    for _ in 0..ATTEMPTS {
        let held = app.ingest.renames(database).await?;
        let changed = change(&held).map_err(IngestError::from)?;
        let effect = app.query.rename_effect(&budget, database, &held, &changed).await?;
        if let Some([one, other, name]) = effect.conflict {
            return Err(IngestError::from(RenameRefusal::Conflict { name, one, other }).into());
        }
        if is_dry || app.ingest.set_renames(database, &held, &changed).await? {
            if !is_dry {
                parameters.sender.note(app, statement, database, "done");
            }
            return Ok(Json(told(is_dry, &effect)));
        }
    }
    Err(IngestError::from(RenameRefusal::Contended { database: database.to_owned() }).into())
}

/// The database, which the caller must administer.
fn managed(parameters: &Parameters) -> ApiResult<String> {
    let name = parameters.stored_database()?;
    parameters.sender.check_manages(&name)?;
    Ok(name)
}

const KINDS: &str = "sensor, measurement, tag_key or tag_value";

/// The entry that a request's body describes.
fn entry_of(body: &[u8]) -> ApiResult<Rename> {
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
