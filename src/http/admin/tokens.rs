//! Tokens over HTTP: who the caller is and what it may do, and for administrators of everything the list of tokens, new ones, and their end.
//! The first token of a service is never made here: it would make every device need one, so that is left to `hourglass token add`.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::access::{
    Caller, ChangedToken, Event, NewToken, OsUser, Pin, RejectedChange, Scopes, Token, TokenChange, is_glob,
};
use crate::clock::now_seconds;
use crate::http::App;
use crate::http::errors::{ApiError, ApiResult};
use crate::http::parameters::{InPath, Parameters, Sender};
use crate::http::server::body;
use crate::reading::duration::{DURATION_UNITS, parse_duration};
use crate::reading::time::rfc3339;

/// `GET /api/v1/caller`: who the caller is to this service, and what it may do.
pub async fn caller(State(app): State<Arc<App>>, Extension(Sender { by, .. }): Extension<Sender>) -> Json<Value> {
    let token = by.token();
    Json(json!({
        "name": token.map(|token| &token.name), "token_needed": app.access.is_enforced(), "admin_of_all": by.is_admin(),
        "metrics": by.may_observe(), "scopes": token.map(|token| scopes(&token.scopes)),
        "expires": token.and_then(|token| token.expires).map(time),
    }))
}

/// `GET /api/v1/tokens`.
pub async fn list(State(app): State<Arc<App>>) -> Json<Value> {
    let now = now_seconds();
    let tokens: Vec<Value> = app.access.list().iter().map(|(token, used)| shown(token, *used, now)).collect();
    Json(json!({ "tokens": tokens }))
}

/// `POST /api/v1/tokens`: makes a token, and answers its text this once.
pub async fn create(parameters: Parameters, headers: HeaderMap, body: Body) -> ApiResult<(StatusCode, Json<Value>)> {
    let new = requested(&parameters, &headers, body).await?;
    let ChangedToken { token, text, .. } = change(&parameters, TokenChange::Create(new)).await?;
    let mut body = shown(&token, None, now_seconds());
    body["token"] = json!(text);
    Ok((StatusCode::CREATED, Json(body)))
}

/// `POST /api/v1/tokens/{key}/revoke`.
pub async fn revoke(InPath(name): InPath<String>, parameters: Parameters) -> ApiResult<Json<Value>> {
    if name == parameters.sender.by.name() {
        let text = "a token does not revoke itself: use another one, or hourglass token revoke";
        return Err(ApiError::Conflict(text.to_owned()));
    }
    let ChangedToken { token, .. } = change(&parameters, TokenChange::Revoke { name }).await?;
    Ok(Json(shown(&token, None, now_seconds())))
}

async fn change(parameters: &Parameters, change: TokenChange) -> ApiResult<ChangedToken> {
    let Parameters { app, sender, .. } = parameters;
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
        by: Some(sender.by.name()),
        address: sender.address,
    });
    Ok(changed)
}

/// The body of a request for a token.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Wanted {
    name: String,
    write: Vec<String>,
    read: Vec<String>,
    metrics: bool,
    /// Tags that its sensors must have.
    tags: std::collections::BTreeMap<String, String>,
    /// How long it is valid, such as `90d`.
    expires_in: Option<String>,
}

async fn requested(parameters: &Parameters, headers: &HeaderMap, mut body: Body) -> ApiResult<NewToken> {
    let (bytes, _admission) = body::read(&parameters.app, headers, &mut body).await?;
    if matches!(parameters.sender.by, Caller::Anybody) {
        let text = "this service needs no token yet, and its first one would make every device need one: create it with hourglass token add";
        return Err(ApiError::Conflict(text.to_owned()));
    }
    let bad = |what: String| ApiError::Bad(format!("the body is not as expected: {what}"));
    let wanted: Wanted = serde_json::from_slice(&bytes).map_err(|error| bad(error.to_string()))?;
    if !Token::is_name(&wanted.name) {
        return Err(bad(format!("name {:?}: use 1 to 64 letters, digits and -_.@:", wanted.name)));
    }
    if let Some(glob) = wanted.write.iter().chain(&wanted.read).find(|glob| !is_glob(glob)) {
        return Err(bad(format!("{glob:?} is not the name of a database, with * and ? for any characters")));
    }
    let expires_in = wanted.expires_in.as_deref().map(|text| {
        let seconds = parse_duration(text, &DURATION_UNITS).ok().map(|nanoseconds| nanoseconds / 1_000_000_000);
        let seconds = seconds.filter(|seconds| *seconds > 0);
        seconds.ok_or_else(|| bad(format!("expires_in {text:?} is not a duration such as 90d")))
    });
    let pins = wanted.tags.into_iter().map(|(key, value)| Pin { key, value }).collect();
    let scopes = Scopes { write: wanted.write, read: wanted.read, admin: Vec::new(), metrics: wanted.metrics, pins };
    if scopes.is_empty() {
        return Err(bad("a token for nothing: give write, read or metrics".to_owned()));
    }
    Ok(NewToken { name: wanted.name, scopes, expires_in: expires_in.transpose()?, ..NewToken::default() })
}

fn shown(token: &Token, used: Option<i64>, now: i64) -> Value {
    let state = match (token.revoked, token.expires) {
        (Some(_), _) => "revoked",
        (None, Some(expires)) if now >= expires => "expired",
        _ => "valid",
    };
    json!({
        "name": token.name, "state": state, "created": time(token.created), "expires": token.expires.map(time), "used": used.map(time),
        "scopes": scopes(&token.scopes), "id": token.secrets.last().map(|secret| &secret.id),
    })
}

fn scopes(Scopes { write, read, admin, metrics, pins }: &Scopes) -> Value {
    let tags: serde_json::Map<String, Value> = pins.iter().map(|pin| (pin.key.clone(), json!(pin.value))).collect();
    json!({ "write": write, "read": read, "admin": admin, "metrics": metrics, "tags": tags })
}

fn time(seconds: i64) -> String {
    rfc3339(seconds.saturating_mul(1_000_000_000))
}
