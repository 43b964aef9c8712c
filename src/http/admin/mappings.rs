//! `/api/v1/mappings`: lists, stores and removes the mappings of a database, and the secrets by which webhooks write
//! through them.

use std::collections::BTreeMap;

use axum::Json;
use axum::body::Body;
use axum::http::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

use super::tokens::{self, check_name, parse_lifetime, token_json};
use crate::access::{ChangedToken, IngestScope, NewToken, Scopes, Token, TokenChange};
use crate::clock::now_seconds;
use crate::http::errors::{ApiError, ApiResult};
use crate::http::parameters::{InPath, Parameters};
use crate::http::server::body::{self, BodyLimit};
use crate::mapping::{TEXT_BYTES_MAX, builtin};

/// Maximum number of secrets of a database, including revoked ones, whose names can be used again.
const SECRETS_MAX: usize = 64;
/// Maximum size of a mapping's text.
const TEXT_LIMIT: BodyLimit = BodyLimit { bytes: TEXT_BYTES_MAX, key: "the maximum of a mapping" };

/// `GET /api/v1/mappings`.
pub async fn list(parameters: Parameters) -> ApiResult<Json<Value>> {
    let database = parameters.stored_database()?;
    let settings = parameters.app.query.settings();
    let own: BTreeMap<&str, &str> = settings.mappings(&database).collect();
    let describe = |name: &str, text: &str, is_built_in: bool| {
        let secrets = secrets(&parameters, &scope(&database, name));
        json!({ "name": name, "built_in": is_built_in, "text": text, "secrets": secrets })
    };
    let mut mappings: Vec<Value> = own.iter().map(|(name, text)| describe(name, text, false)).collect();
    for (name, text) in builtin::texts().filter(|(name, _)| !own.contains_key(name)) {
        mappings.push(describe(name, text, true));
    }
    Ok(Json(json!({ "mappings": mappings })))
}

/// `PUT /api/v1/mappings/NAME`: stores or replaces a mapping.
pub async fn put(
    InPath(name): InPath<String>,
    parameters: Parameters,
    headers: HeaderMap,
    mut body: Body,
) -> ApiResult<Json<Value>> {
    let app = &parameters.app;
    let database = parameters.stored_database()?;
    let caller = &parameters.requester.caller;
    let (bytes, _admission) = body::read_parameters(app, caller, &headers, &mut body, TEXT_LIMIT).await?;
    let text =
        String::from_utf8(bytes.into()).map_err(|_| ApiError::Bad("invalid body: it is not UTF-8".to_owned()))?;
    app.ingest.set_mapping(&database, &name, &text).await?;
    parameters.requester.note(app, format!("MAPPING {name} {text}"), &database, "done");
    Ok(Json(json!({ "name": name, "built_in": false, "text": text })))
}

/// `DELETE /api/v1/mappings/NAME`.
pub async fn delete(InPath(name): InPath<String>, parameters: Parameters) -> ApiResult<StatusCode> {
    let app = &parameters.app;
    let database = parameters.stored_database()?;
    app.ingest.remove_mapping(&database, &name).await?;
    parameters.requester.note(app, format!("DELETE MAPPING {name}"), &database, "done");
    Ok(StatusCode::NO_CONTENT)
}

/// The body of a request to create a secret.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SecretRequest {
    name: String,
    /// The lifetime, such as `90d`.
    expires_in: Option<String>,
}

/// `POST /api/v1/mappings/NAME/secrets`: creates a token that may only write through the mapping.
pub async fn create_secret(
    InPath(mapping): InPath<String>,
    parameters: Parameters,
    headers: HeaderMap,
    mut body: Body,
) -> ApiResult<(StatusCode, Json<Value>)> {
    let app = &parameters.app;
    let database = parameters.stored_database()?;
    let caller = &parameters.requester.caller;
    let (bytes, _admission) = body::read_parameters(app, caller, &headers, &mut body, BodyLimit::SETTINGS).await?;
    tokens::check_has_token(caller)?;
    let bad = |fault: String| ApiError::Bad(format!("invalid body: {fault}"));
    let request: SecretRequest = serde_json::from_slice(&bytes).map_err(|error| bad(error.to_string()))?;
    check_name(&request.name)?;
    let expires_in = parse_lifetime(request.expires_in.as_deref())?;
    app.ingest.mapping(&database, &mapping).await?;
    let ingest = scope(&database, &mapping);
    // An administrator of one database must not replace the revoked token of somebody else.
    let tokens = app.access.list();
    let is_in_database = |scope: &IngestScope| scope.database == database;
    let mut count = 0;
    for token in tokens.iter().map(|listed| &listed.token) {
        let is_own = token.scopes.ingest.as_ref().is_some_and(is_in_database);
        count += usize::from(is_own && token.name != request.name);
        if token.name == request.name && !is_own {
            return Err(ApiError::Conflict(format!("the name {:?} is taken: choose another one", request.name)));
        }
    }
    if count >= SECRETS_MAX {
        let limit = format!("database {database:?} has {count} secrets: use the name of a revoked one again");
        return Err(ApiError::Conflict(limit));
    }
    let scopes = Scopes { ingest: Some(ingest), ..Scopes::default() };
    // What a caller makes has no more rights than the caller, and does not outlive it.
    let creator = tokens.iter().map(|listed| &listed.token).find(|token| token.name == caller.name());
    let quota = creator.map(|token| token.quota).unwrap_or_default();
    let rest = creator.and_then(|token| token.expires).map(|expires| (expires - now_seconds()).max(1));
    let expires_in = expires_in.into_iter().chain(rest).min();
    let new = NewToken { name: request.name, scopes, quota, expires_in, ..NewToken::default() };
    let ChangedToken { token, text, .. } = tokens::change(&parameters, TokenChange::Create(new)).await?;
    let mut body = token_json(&token, None, now_seconds());
    body["path"] = json!(text.as_ref().map(|text| format!("/api/v1/ingest/{mapping}/{text}")));
    body["token"] = json!(text);
    Ok((StatusCode::CREATED, Json(body)))
}

/// `DELETE /api/v1/mappings/NAME/secrets/SECRET`: revokes the secret of this name.
pub async fn revoke_secret(
    InPath((mapping, name)): InPath<(String, String)>,
    parameters: Parameters,
) -> ApiResult<Json<Value>> {
    let ingest = scope(&parameters.stored_database()?, &mapping);
    let tokens = parameters.app.access.list();
    let is_it = |token: &Token| token.name == name && token.scopes.ingest.as_ref() == Some(&ingest);
    if !tokens.iter().any(|listed| is_it(&listed.token)) {
        return Err(ApiError::Conflict(format!(
            "mapping {mapping:?} has no secret {name:?}: GET /api/v1/mappings lists them"
        )));
    }
    let ChangedToken { token, .. } = tokens::change(&parameters, TokenChange::Revoke { name }).await?;
    Ok(Json(token_json(&token, None, now_seconds())))
}

fn scope(database: &str, mapping: &str) -> IngestScope {
    IngestScope { mapping: mapping.to_owned(), database: database.to_owned() }
}

/// The secrets of a mapping, without their texts.
fn secrets(parameters: &Parameters, scope: &IngestScope) -> Vec<Value> {
    let now = now_seconds();
    let listed = parameters.app.access.list();
    let own = listed.iter().filter(|listed| listed.token.scopes.ingest.as_ref() == Some(scope));
    own.map(|listed| token_json(&listed.token, listed.last_use, now)).collect()
}
