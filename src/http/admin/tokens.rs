//! Tokens over HTTP: the caller's rights, and for administrators of all databases the list, creation and revocation of
//! tokens. The first token must be created with `hourglass token add`, because from then on every device needs one.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::access::{
    Caller, ChangedToken, Effect, Event, NewToken, OsUser, Pin, RejectedChange, Scopes, Token, TokenChange, is_glob,
};
use crate::clock::now_seconds;
use crate::http::App;
use crate::http::errors::{ApiError, ApiResult};
use crate::http::parameters::{InPath, Parameters, Requester};
use crate::http::server::body::{self, BodyLimit};
use crate::reading::duration::{DURATION_UNITS, parse_duration};
use crate::reading::time::rfc3339;

/// `GET /api/v1/caller`: the name and the rights of the caller.
pub async fn caller(State(app): State<Arc<App>>, Extension(requester): Extension<Requester>) -> Json<Value> {
    let caller = &requester.caller;
    let token = caller.token();
    Json(json!({
        "name": token.map(|token| &token.name), "token_needed": app.access.is_enforced(), "admin_of_all": caller.allows(Effect::AdministerService, None),
        "metrics": caller.allows(Effect::Observe, None), "scopes": token.map(|token| scopes_json(&token.scopes)),
        "expires": token.and_then(|token| token.expires).map(time),
    }))
}

/// `GET /api/v1/tokens`.
pub async fn list(State(app): State<Arc<App>>) -> Json<Value> {
    let now = now_seconds();
    let tokens: Vec<Value> =
        app.access.list().iter().map(|listed| token_json(&listed.token, listed.last_use, now)).collect();
    Json(json!({ "tokens": tokens }))
}

/// `POST /api/v1/tokens`: creates a token. Only this answer has its text.
pub async fn create(parameters: Parameters, headers: HeaderMap, body: Body) -> ApiResult<(StatusCode, Json<Value>)> {
    let new = read_request(&parameters, &headers, body).await?;
    let ChangedToken { token, text, .. } = change(&parameters, TokenChange::Create(new)).await?;
    let mut body = token_json(&token, None, now_seconds());
    body["token"] = json!(text);
    Ok((StatusCode::CREATED, Json(body)))
}

/// `POST /api/v1/tokens/{key}/revoke`.
pub async fn revoke(InPath(name): InPath<String>, parameters: Parameters) -> ApiResult<Json<Value>> {
    if name == parameters.requester.caller.name() {
        let text = "a token cannot revoke itself: use another token, or hourglass token revoke";
        return Err(ApiError::Conflict(text.to_owned()));
    }
    let ChangedToken { token, .. } = change(&parameters, TokenChange::Revoke { name }).await?;
    Ok(Json(token_json(&token, None, now_seconds())))
}

pub(super) async fn change(parameters: &Parameters, change: TokenChange) -> ApiResult<ChangedToken> {
    let Parameters { app, requester, .. } = parameters;
    let changed = app.access.change(change, now_seconds()).await.map_err(|error| match error {
        RejectedChange::Store(error) => ApiError::Unreadable(format!("or write the tokens: {error}")),
        RejectedChange::TooLong { .. } => ApiError::Bad(error.to_string()),
        other => ApiError::Conflict(other.to_string()),
    })?;
    let Token { name, scopes, quota, expires, .. } = &changed.token;
    app.audit.note(&Event::Token {
        action: changed.action,
        name,
        scopes,
        quota,
        expires: *expires,
        user: OsUser::default(),
        by: Some(requester.caller.name()),
        address: requester.address,
    });
    Ok(changed)
}

/// The body of a request to create a token.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct TokenRequest {
    name: String,
    write: Vec<String>,
    read: Vec<String>,
    metrics: bool,
    /// Tags that sensors of the token must have.
    tags: std::collections::BTreeMap<String, String>,
    /// The lifetime, such as `90d`.
    expires_in: Option<String>,
}

async fn read_request(parameters: &Parameters, headers: &HeaderMap, mut body: Body) -> ApiResult<NewToken> {
    let caller = &parameters.requester.caller;
    let (bytes, _admission) =
        body::read_parameters(&parameters.app, caller, headers, &mut body, BodyLimit::SETTINGS).await?;
    check_has_token(caller)?;
    let request: TokenRequest = serde_json::from_slice(&bytes).map_err(|error| bad(error.to_string()))?;
    check_name(&request.name)?;
    if let Some(glob) = request.write.iter().chain(&request.read).find(|glob| !is_glob(glob)) {
        return Err(bad(format!("{glob:?} is not a database name; the wildcards * and ? are allowed")));
    }
    let expires_in = parse_lifetime(request.expires_in.as_deref())?;
    let pins = request.tags.into_iter().map(|(key, value)| Pin { key, value }).collect();
    let TokenRequest { write, read, metrics, .. } = request;
    let scopes = Scopes { write, read, metrics, pins, ..Scopes::default() };
    if scopes.is_empty() {
        return Err(bad("the token has no rights: give write, read or metrics".to_owned()));
    }
    Ok(NewToken { name: request.name, scopes, expires_in, ..NewToken::default() })
}

fn bad(fault: String) -> ApiError {
    ApiError::Bad(format!("invalid body: {fault}"))
}

/// Checks that the service has a token already.
pub(super) fn check_has_token(caller: &Caller) -> ApiResult<()> {
    if matches!(caller, Caller::Anybody) {
        let text = "the service has no token yet: create the first one with hourglass token add, since every device needs one afterwards";
        return Err(ApiError::Conflict(text.to_owned()));
    }
    Ok(())
}

/// Checks the name of a new token.
pub(super) fn check_name(name: &str) -> ApiResult<()> {
    if Token::is_name(name) {
        return Ok(());
    }
    Err(bad(format!("name {name:?}: use 1 to 64 letters, digits and -_.@:")))
}

/// Parses the lifetime of a new token, to seconds.
pub(super) fn parse_lifetime(text: Option<&str>) -> ApiResult<Option<i64>> {
    let Some(text) = text else { return Ok(None) };
    let seconds = parse_duration(text, &DURATION_UNITS).ok().map(|nanoseconds| nanoseconds / 1_000_000_000);
    let seconds = seconds.filter(|seconds| *seconds > 0);
    seconds.map(Some).ok_or_else(|| bad(format!("expires_in {text:?} is not a duration such as 90d")))
}

pub(super) fn token_json(token: &Token, used: Option<i64>, now: i64) -> Value {
    let state = match (token.revoked, token.expires) {
        (Some(_), _) => "revoked",
        (None, Some(expires)) if now >= expires => "expired",
        _ => "valid",
    };
    json!({
        "name": token.name, "state": state, "created": time(token.created), "expires": token.expires.map(time), "used": used.map(time),
        "scopes": scopes_json(&token.scopes), "id": token.secrets.last().map(|secret| &secret.id),
    })
}

fn scopes_json(scopes: &Scopes) -> Value {
    let Scopes { write, read, admin, metrics, pins, ingest } = scopes;
    let tags: serde_json::Map<String, Value> = pins.iter().map(|pin| (pin.key.clone(), json!(pin.value))).collect();
    let mut scopes = json!({ "write": write, "read": read, "admin": admin, "metrics": metrics, "tags": tags });
    if let Some(ingest) = ingest {
        scopes["ingest"] = json!(ingest);
    }
    scopes
}

fn time(seconds: i64) -> String {
    rfc3339(seconds.saturating_mul(1_000_000_000))
}
