//! Endpoints of InfluxDB 2.x that its clients call besides writes. A bucket is a database, or `database/policy`. There is
//! one organization, which has any name.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Extension, Path, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};

use super::query::{FORM, parse_statements, run_change};
use crate::access::Effect;
use crate::bucket::settings::{POLICY_MARK, Settings, policy_database};
use crate::clock::now_ns;
use crate::http::App;
use crate::http::endpoints::Endpoint;
use crate::http::errors::{ApiError, ApiResult, Dialect};
use crate::http::pairs::{IGNORED, Pairs};
use crate::http::parameters::{DEFAULT_DATABASE, Requester};
use crate::http::server::body;
use crate::influxql::{Expr, Literal, Measurement, MeasurementName, NewPolicy, Operator, ReferenceKind, Statement};
use crate::query::influx::StatementContext;
use crate::reading::time::parse_rfc3339;

const ORGANIZATION_ID: &str = "0000000000000001";
const ORGANIZATION: &str = "hourglass";
/// Default number of listed buckets, as in InfluxDB.
const BUCKETS_DEFAULT: usize = 20;
const NO_FLUX: &str =
    "Flux is not supported: send InfluxQL to /query?db=BUCKET&q=…, for example SELECT mean(temp) FROM climate";
const NO_SETUP: &str = "onboarding has already been completed: make tokens with hourglass token add";

type Endpoints = Extension<&'static Endpoint>;

fn respond(result: ApiResult<Response>) -> Response {
    result.unwrap_or_else(|error| error.respond(Dialect::V2))
}

fn bad(text: impl Into<String>) -> ApiError {
    ApiError::Bad(text.into())
}

/// `POST /api/v2/query`
pub async fn query(State(app): State<Arc<App>>, headers: HeaderMap, mut body: Body) -> Response {
    body::discard(&app, &headers, &mut body).await;
    bad(NO_FLUX).respond(Dialect::V2)
}

/// `GET /api/v2/setup`
pub async fn setup_state() -> Response {
    Json(json!({ "allowed": false })).into_response()
}

/// `POST /api/v2/setup`. It never makes a token.
pub async fn setup(State(app): State<Arc<App>>, headers: HeaderMap, mut body: Body) -> Response {
    body::discard(&app, &headers, &mut body).await;
    ApiError::Conflict(NO_SETUP.to_owned()).respond(Dialect::V2)
}

/// `GET /api/v2/orgs`
pub async fn organizations(uri: Uri, Extension(endpoint): Endpoints) -> Response {
    respond(parameters(&uri, endpoint).map(|sent| {
        let name = sent.get("org").unwrap_or(ORGANIZATION);
        Json(json!({ "orgs": [{ "id": ORGANIZATION_ID, "name": name, "status": "active" }] })).into_response()
    }))
}

fn parameters(uri: &Uri, endpoint: &Endpoint) -> ApiResult<Pairs> {
    let known: Vec<&str> = endpoint.parameters().collect();
    Ok(Pairs::lenient(Pairs::parse_url(uri)?, &known)?.0)
}

/// `GET /api/v2/buckets`
pub async fn buckets(
    State(app): State<Arc<App>>,
    Extension(requester): Extension<Requester>,
    Extension(endpoint): Endpoints,
    uri: Uri,
) -> Response {
    respond(list_buckets(&app, &requester, &uri, endpoint).await)
}

async fn list_buckets(app: &App, requester: &Requester, uri: &Uri, endpoint: &Endpoint) -> ApiResult<Response> {
    let sent = parameters(uri, endpoint)?;
    let number = |name: &str, default: usize| match sent.get(name) {
        None => Ok(default),
        Some(text) => text.parse().map_err(|_| bad(format!("{name} is {text:?}: send a number"))),
    };
    let offset = number("offset", 0)?;
    let limit = number("limit", BUCKETS_DEFAULT)?;
    let names = bucket_names(app, requester).await?;
    let all = names.iter().filter(|name| sent.get("name").is_none_or(|wanted| wanted == *name));
    let all = all.filter(|name| sent.get("id").is_none_or(|id| id == bucket_id(name)));
    let mut rest = all.peekable();
    if let Some(after) = sent.get("after") {
        rest.by_ref().find(|name| bucket_id(name) == after);
    }
    let settings = app.query.settings();
    let shown: Vec<Value> = rest.skip(offset).take(limit).map(|name| bucket(name, &settings)).collect();
    Ok(Json(json!({ "links": { "self": "/api/v2/buckets" }, "buckets": shown })).into_response())
}

/// `GET /api/v2/buckets/{key}`
pub async fn show_bucket(
    State(app): State<Arc<App>>,
    Extension(requester): Extension<Requester>,
    Path(id): Path<String>,
) -> Response {
    let found = bucket_names(&app, &requester).await.map(|names| names.into_iter().find(|name| bucket_id(name) == id));
    respond(found.and_then(|name| match name {
        Some(name) => Ok(Json(bucket(&name, &app.query.settings())).into_response()),
        None => Err(ApiError::NotFound("bucket not found".to_owned())),
    }))
}

/// Returns the databases and policies that the caller may read or write.
async fn bucket_names(app: &App, requester: &Requester) -> ApiResult<BTreeSet<String>> {
    let mut names: BTreeSet<String> = app.query.all_databases().await?.into_iter().collect();
    let settings = app.query.settings();
    for name in names.clone() {
        names.extend(settings.policies(&name).map(|(policy, _)| policy_database(&name, policy)));
    }
    let may = |effect, name: &String| requester.caller.allows(effect, Some(name));
    names.retain(|name| may(Effect::Read, name) || may(Effect::Write, name));
    Ok(names)
}

fn bucket_id(name: &str) -> String {
    format!("{:016x}", rapidhash::v3::rapidhash_v3(name.as_bytes()))
}

fn bucket(name: &str, settings: &Settings) -> Value {
    let seconds = settings.readings_retention(name).ns() / 1_000_000_000;
    let rules = if seconds == 0 { json!([]) } else { json!([{ "type": "expire", "everySeconds": seconds }]) };
    json!({
        "id": bucket_id(name), "orgID": ORGANIZATION_ID, "type": "user", "name": name, "retentionRules": rules,
        "labels": [],
    })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NewBucket {
    name: String,
    #[serde(default)]
    retention_rules: Vec<RetentionRule>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RetentionRule {
    #[serde(default)]
    every_seconds: i64,
}

/// `POST /api/v2/buckets`
pub async fn create_bucket(
    State(app): State<Arc<App>>,
    Extension(requester): Extension<Requester>,
    headers: HeaderMap,
    mut body: Body,
) -> Response {
    respond(create(&app, &requester, &headers, &mut body).await)
}

async fn create(app: &App, requester: &Requester, headers: &HeaderMap, body: &mut Body) -> ApiResult<Response> {
    let NewBucket { name, retention_rules } = read(app, requester, headers, body).await?;
    if retention_rules.iter().any(|rule| rule.every_seconds < 0) {
        return Err(bad("everySeconds is negative"));
    }
    let duration = retention_rules.first().map(|rule| rule.every_seconds.saturating_mul(1_000_000_000));
    let duration = duration.filter(|ns| *ns != 0);
    let policy = duration.map(|_| NewPolicy { duration, ..NewPolicy::default() });
    let statement = Statement::CreateDatabase { name: name.clone(), policy };
    requester.caller.check_statement(&statement, None, None)?;
    if app.query.all_databases().await?.contains(&name) {
        return Err(ApiError::Conflict(format!("bucket with name {name} already exists")));
    }
    run(app, requester, &statement, None, None).await?;
    Ok((StatusCode::CREATED, Json(bucket(&name, &app.query.settings()))).into_response())
}

async fn run(
    app: &App,
    requester: &Requester,
    statement: &Statement,
    database: Option<&str>,
    policy: Option<&str>,
) -> ApiResult<()> {
    let budget = app.query.begin(&requester.caller, &statement.to_string());
    let context = StatementContext { database, policy, now: now_ns(), budget: &budget, caller: &requester.caller };
    run_change(app, requester, statement, context, false).await?;
    budget.finish();
    Ok(())
}

/// Reads a JSON body.
async fn read<T: for<'de> Deserialize<'de>>(
    app: &App,
    requester: &Requester,
    headers: &HeaderMap,
    body: &mut Body,
) -> ApiResult<T> {
    let (bytes, _admission) = body::read_parameters(app, &requester.caller, headers, body, FORM).await?;
    serde_json::from_slice(&bytes).map_err(|error| bad(format!("invalid request; error parsing request json: {error}")))
}

#[derive(Deserialize)]
struct Deletion {
    start: String,
    stop: String,
    #[serde(default)]
    predicate: String,
}

/// `POST /api/v2/delete`
pub async fn delete(
    State(app): State<Arc<App>>,
    Extension(requester): Extension<Requester>,
    Extension(endpoint): Endpoints,
    uri: Uri,
    headers: HeaderMap,
    mut body: Body,
) -> Response {
    let deleted = async {
        // A parameter that would be ignored, such as dry_run, may be meant to spare readings.
        let known: Vec<&str> = endpoint.parameters().chain(IGNORED.iter().copied()).collect();
        let sent = Pairs::strict(Pairs::parse_url(&uri)?, &known)?;
        let bucket = sent.get("bucket").unwrap_or(DEFAULT_DATABASE);
        let database = bucket.split_once(POLICY_MARK).map_or(bucket, |(database, _)| database);
        requester.caller.check(Effect::Delete, Some(database))?;
        let statement = read::<Deletion>(&app, &requester, &headers, &mut body).await?.statement()?;
        // Without a policy, the statement would delete from all of them.
        let settings = app.query.settings();
        let policy = bucket.split_once(POLICY_MARK).map_or(settings.default_policy(database), |(_, policy)| policy);
        run(&app, &requester, &statement, Some(database), Some(policy)).await?;
        Ok(StatusCode::NO_CONTENT.into_response())
    };
    respond(deleted.await)
}

impl Deletion {
    /// Returns the statement that deletes from `start` to `stop`, both inclusive.
    fn statement(&self) -> ApiResult<Statement> {
        let time = |name: &str, text: &str| {
            parse_rfc3339(text).ok_or_else(|| bad(format!("invalid request; {name} is {text:?}: send RFC 3339")))
        };
        let range = format!("time >= {} AND time <= {}", time("start", &self.start)?, time("stop", &self.stop)?);
        let range = condition(&range)?;
        let mut sources = Vec::new();
        let tags = match self.predicate.trim() {
            "" => None,
            predicate => self.tags(condition(predicate)?, &mut sources)?,
        };
        Ok(Statement::Delete { sources, condition: Some(and(tags, range)) })
    }

    /// Returns the conditions on tags in a predicate. Moves its measurement to the sources.
    fn tags(&self, predicate: Expr, sources: &mut Vec<Measurement>) -> ApiResult<Option<Expr>> {
        let Expr::Binary { operator, left, right } = predicate else {
            return match predicate {
                Expr::Paren(inner) => self.tags(*inner, sources),
                _ => Err(self.unsupported()),
            };
        };
        if operator == Operator::And {
            let left = self.tags(*left, sources)?;
            let right = self.tags(*right, sources)?;
            return Ok(match right {
                Some(right) => Some(and(left, right)),
                None => left,
            });
        }
        let (Operator::Eq, Expr::Reference { name, kind: None }) = (operator, *left) else {
            return Err(self.unsupported());
        };
        let (Expr::Literal(Literal::String(value)) | Expr::Reference { name: value, kind: None }) = *right else {
            return Err(self.unsupported());
        };
        match &*name {
            "_measurement" if sources.is_empty() => {
                sources.push(Measurement { database: None, policy: None, name: MeasurementName::Exact(value) });
                Ok(None)
            }
            "_measurement" | "_field" | "_value" | "time" => Err(self.unsupported()),
            _ => Ok(Some(compare_tag(name, Operator::Eq, Literal::String(value)))),
        }
    }

    fn unsupported(&self) -> ApiError {
        let predicate = &self.predicate;
        bad(format!(
            "predicate {predicate:?} is not supported: join _measurement=\"m\" and tag=\"value\" with AND, or send DELETE to /query"
        ))
    }
}

/// Compares a tag with a value.
pub(crate) fn compare_tag(name: String, operator: Operator, value: Literal) -> Expr {
    let left = Box::new(Expr::Reference { name, kind: Some(ReferenceKind::Tag) });
    Expr::Binary { operator, left, right: Box::new(Expr::Literal(value)) }
}

/// Joins conditions by AND.
pub(crate) fn and(left: Option<Expr>, right: Expr) -> Expr {
    match left {
        Some(left) => Expr::Binary { operator: Operator::And, left: Box::new(left), right: Box::new(right) },
        None => right,
    }
}

/// Parses a condition.
pub(crate) fn condition(text: &str) -> ApiResult<Expr> {
    let invalid = || bad(format!("invalid request; error parsing predicate {text:?}"));
    let parsed = parse_statements(&format!("DELETE WHERE {text}"), None).map_err(|_| invalid())?;
    match <[Statement; 1]>::try_from(parsed) {
        Ok([Statement::Delete { condition: Some(condition), .. }]) => Ok(condition),
        _ => Err(invalid()),
    }
}
