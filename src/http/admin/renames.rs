//! `/api/v1/renames`: lists, sets and deletes the names under which sensors are shown.

use axum::Json;
use axum::body::Body;
use axum::http::HeaderMap;
use serde_json::{Map, Value, json};

use crate::bucket::{Rename, RenameKind, Renames};
use crate::http::errors::{ApiError, ApiResult};
use crate::http::parameters::Parameters;
use crate::http::server::body::{self, BodyLimit};
use crate::ingest::{IngestError, RenameRefusal};
use crate::query::native::renames::RenameEffect;

/// Number of attempts to change renames if others change them concurrently.
const ATTEMPTS: usize = 8;

/// `GET /api/v1/renames`.
pub async fn list(parameters: Parameters) -> ApiResult<Json<Value>> {
    let renames = parameters.app.ingest.renames(&parameters.stored_database()?).await?;
    Ok(Json(json!({ "renames": renames.entries().iter().map(rename_json).collect::<Vec<_>>() })))
}

/// `PUT /api/v1/renames`: adds an entry, or replaces that of the same stored name. With `dry_run` it only counts.
pub async fn put(parameters: Parameters, headers: HeaderMap, mut body: Body) -> ApiResult<Json<Value>> {
    let app = &parameters.app;
    let database = parameters.stored_database()?;
    let (bytes, _admission) =
        body::read_parameters(app, &parameters.requester.caller, &headers, &mut body, BodyLimit::SETTINGS).await?;
    let mut rename = parse_entry(&bytes)?;
    let limit = app.settings.limits.name_bytes;
    if rename.kind == RenameKind::Sensor {
        parameters.key(&rename.to)?;
        let stored = app.query.stored_key(&parameters.budget(), &database, &rename.from).await?;
        rename.from = stored.unwrap_or(rename.from);
    } else if let Some(bytes) = [rename.from.len(), rename.to.len()].into_iter().find(|bytes| *bytes > limit) {
        return Err(IngestError::from(RenameRefusal::Long { bytes, limit }).into());
    }
    let statement = format!("RENAME {}", rename_json(&rename));
    change(&parameters, &database, |held| Ok(held.with(rename.clone())?), statement).await
}

/// `DELETE /api/v1/renames`: deletes the entry for a stored name.
pub async fn delete(parameters: Parameters) -> ApiResult<Json<Value>> {
    let database = parameters.stored_database()?;
    let [tag, measurement, from] =
        ["tag", "measurement", "from"].map(|name| parameters.get(name).unwrap_or_default().to_owned());
    let kind = parameters.get("kind").and_then(RenameKind::from_name);
    let kind = kind.ok_or_else(|| ApiError::Bad(format!("parameter kind: use {KINDS}")))?;
    let statement = format!("DELETE RENAME {} {from:?} {tag:?} {measurement:?}", kind.name());
    let without = |held: &Renames| {
        let unknown = || RenameRefusal::Unknown { kind, name: from.clone(), database: database.clone() };
        held.without(kind, &tag, &measurement, &from).ok_or_else(unknown)
    };
    change(&parameters, &database, without, statement).await
}

/// Changes the renames of a database, unless two sensors would get the same name. With `dry_run` it only counts.
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
                parameters.requester.note(app, statement, database, "done");
            }
            return Ok(Json(effect_json(is_dry, &effect)));
        }
    }
    Err(IngestError::from(RenameRefusal::Contended { database: database.to_owned() }).into())
}

const KINDS: &str = "sensor, measurement, tag_key or tag_value";

/// Parses the entry in a request body.
fn parse_entry(body: &[u8]) -> ApiResult<Rename> {
    let bad = |fault: String| ApiError::Bad(format!("invalid body: {fault}"));
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
            return Err(bad(format!("{name} is {value}: send a string")));
        }
    }
    let entry = Rename::from_fields(|name| sent.get(name).and_then(Value::as_str));
    entry.ok_or_else(|| bad(format!("kind, from and to are needed; kind is {KINDS}")))
}

fn rename_json(entry: &Rename) -> Value {
    entry.fields().map(|(name, text)| (name.to_owned(), Value::from(text))).collect::<Map<_, _>>().into()
}

/// The effect of a change or dry run.
fn effect_json(is_dry: bool, effect: &RenameEffect) -> Value {
    let examples = effect.examples.iter().map(|(from, to)| json!({ "from": from, "to": to })).collect::<Vec<_>>();
    json!({ "dry_run": is_dry, "renamed": effect.renamed, "examples": examples })
}
