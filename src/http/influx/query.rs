//! `/query`: runs InfluxQL statements in order and returns one result per statement.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Extension, Form, FromRequest, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::render::{RenderStyle, StatementResult, refusal, render};
use crate::access::{Event, cut};
use crate::bucket::Keep;
use crate::clock::now_ns;
use crate::edits::ValueDeletion;
use crate::http::App;
use crate::http::admin::preview::previewed;
use crate::http::api::write::stays_away;
use crate::http::endpoints::Endpoint;
use crate::http::errors::{ApiError, ApiResult, Dialect, WARNING_HEADER, add_texts};
use crate::http::pairs::Pairs;
use crate::http::parameters::Sender;
use crate::http::render::answer::NOTICE_HEADER;
use crate::http::render::format::Format;
use crate::http::render::guard::Guard;
use crate::http::server::body;
use crate::influxql::{self, Expr, Literal, NewPolicy, Params, ParseOptions, PolicyStatement, Statement};
use crate::ingest::{IngestError, PolicyError, PolicyTerms, check_database_name};
use crate::query::influx::{DeleteTargets, StatementAnswer, StatementContext, is_zone, pattern_fault};

/// Most statements in one query.
const STATEMENTS_MAX: usize = 100;
/// Estimated bytes of syntax tree per byte of query text.
const PARSED_BYTES: usize = 64;
/// Rows of a chunk when the client does not say.
const CHUNK_ROWS: usize = 10_000;

/// `/query`: parameters in the URL, or with POST in a form body, too.
pub async fn query(
    State(app): State<Arc<App>>,
    Extension(sender): Extension<Sender>,
    Extension(endpoint): Extension<&'static Endpoint>,
    request: Request,
) -> Response {
    let known: Vec<&str> = endpoint.parameters().collect();
    sent(&app, &sender, &known, request).await.unwrap_or_else(|error| error.respond(Dialect::V1))
}

async fn sent(app: &App, sender: &Sender, known: &[&str], request: Request) -> ApiResult<Response> {
    let (parts, mut body) = request.into_parts();
    let (mut parameters, mut unknown) = Pairs::known_of(Pairs::of_url(&parts.uri)?, known)?;
    if parts.method == Method::POST {
        let (body, _admission) = body::read(app, &parts.headers, &mut body).await?;
        let request = Request::from_parts(parts.clone(), body.into());
        // A body that is not a form counts as empty.
        if let Ok(Form(form)) = Form::<Vec<(String, String)>>::from_request(request, &()).await {
            let (form, unknown_of_form) = Pairs::known_of(form, known)?;
            parameters = parameters.or(form);
            unknown = together(unknown, unknown_of_form);
        }
    }
    let answered = answered(app, sender, &parts, &parameters).await;
    let mut response = answered.unwrap_or_else(|error| error.respond(Dialect::V1));
    add_texts(&mut response, WARNING_HEADER, unknown.as_slice());
    Ok(response)
}

async fn answered(app: &App, sender: &Sender, parts: &Parts, parameters: &Pairs) -> ApiResult<Response> {
    let Some(q) = parameters.get("q").filter(|q| !q.trim().is_empty()) else {
        return Err(ApiError::Bad("missing required parameter \"q\"".to_owned()));
    };
    let guard = Guard::named(parameters.get("guard"))?;
    let is_dry = parameters.flag("dry_run")?.unwrap_or(false);
    let style = style(parameters, guard, &parts.headers);
    let budget = app.query.begin(&sender.by, q);
    let _parsed = budget.hold(q.len().saturating_mul(PARSED_BYTES))?;
    let statements = match statements(q, parameters.get("params")) {
        Ok(statements) => statements,
        Err(error) => {
            let body = refusal(&error.to_string(), &style);
            return Ok((error.status(), [(header::CONTENT_TYPE, style.media_type())], body).into_response());
        }
    };
    let now = now_ns();
    let mut outcomes = Vec::with_capacity(statements.len());
    for statement in &statements {
        // As in InfluxDB: after a failed statement the others are not run.
        if outcomes.last().is_some_and(|outcome: &StatementResult| outcome.series.is_err()) {
            outcomes.push(StatementResult { series: Err("not executed".to_owned()), messages: Vec::new(), zone: None });
            continue;
        }
        let asked = StatementContext {
            database: parameters.get("db"),
            policy: parameters.get("rp"),
            now,
            budget: &budget,
            by: &sender.by,
        };
        let (mut said, expired) = (None, app.query.expired_notices(statement, asked));
        let series = match run(app, sender, &parts.method, is_dry, statement, asked).await {
            Ok((answer, message)) => {
                said = message;
                Ok(answer)
            }
            // These two must not look like an answer: a retry may succeed, or the sender is not allowed.
            Err(error) if matches!(error.status(), StatusCode::SERVICE_UNAVAILABLE | StatusCode::FORBIDDEN) => {
                return Err(error);
            }
            Err(error) => Err(error.to_string()),
        };
        let zone = match statement {
            Statement::Select(select) => select.zone.clone(),
            _ => None,
        };
        // What has an answer is answered as InfluxDB does, without a look at its names; values beside a field are told of, most of
        // all where there is no answer.
        let has_answer = match &series {
            Ok(Some(answer)) => !answer.series.is_empty(),
            Ok(None) => true,
            Err(_) => false,
        };
        let mut messages = app.query.statement_notices(statement, asked, has_answer).await;
        if series.is_ok() {
            messages.extend(expired);
            messages.extend(app.query.readings_expired(&budget));
        }
        messages.extend(said);
        outcomes.push(StatementResult { series, messages, zone });
    }
    let text = render(&budget, &outcomes, &style).await?;
    let notices: Vec<String> = outcomes.into_iter().flat_map(|outcome| outcome.messages).collect();
    budget.answered();
    let mut response = text.respond(style.media_type())?;
    if style.format != Format::Json {
        add_texts(&mut response, NOTICE_HEADER, &notices);
    }
    Ok(response)
}

fn style(parameters: &Pairs, guard: Guard, headers: &HeaderMap) -> RenderStyle {
    let is_true = |name: &str| parameters.get(name) == Some("true");
    let unit = match parameters.get("epoch") {
        None => None,
        Some("u") => Some(1_000),
        Some("ms") => Some(1_000_000),
        Some("s") => Some(1_000_000_000),
        Some("m") => Some(60_000_000_000),
        Some("h") => Some(3_600_000_000_000),
        Some(_) => Some(1),
    };
    let accepted = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let format = match accepted {
        "application/csv" | "text/csv" => Format::Csv(guard),
        _ => Format::Json,
    };
    let rows = parameters.get("chunk_size").and_then(|size| size.parse().ok()).filter(|rows| *rows > 0);
    let chunk = is_true("chunked").then(|| rows.unwrap_or(CHUNK_ROWS));
    RenderStyle { unit, format, is_pretty: is_true("pretty"), chunk }
}

fn statements(q: &str, params: Option<&str>) -> ApiResult<Vec<Statement>> {
    let params = bound(params)?;
    let options = ParseOptions { params: &params, known_zone: &is_zone, regex_error: &pattern_fault };
    let statements =
        influxql::parse(q, &options).map_err(|error| ApiError::Bad(format!("error parsing query: {error}")))?;
    if statements.len() > STATEMENTS_MAX {
        return Err(ApiError::Bad(format!("more than {STATEMENTS_MAX} statements in one query")));
    }
    Ok(statements)
}

/// The values of `$name`, from a JSON object.
fn bound(params: Option<&str>) -> ApiResult<Params> {
    let Some(text) = params else { return Ok(HashMap::new()) };
    let bad = |what: &str| ApiError::Bad(format!("error parsing query parameters: {what}"));
    let object: HashMap<String, serde_json::Value> =
        serde_json::from_str(text).map_err(|error| bad(&error.to_string()))?;
    let literal = |(name, value): (String, serde_json::Value)| {
        let literal = match value {
            serde_json::Value::Bool(v) => Literal::Boolean(v),
            serde_json::Value::String(v) => Literal::String(v),
            serde_json::Value::Number(v) => match (v.as_i64(), v.as_f64()) {
                (Some(v), _) => Literal::Integer(v),
                (None, Some(v)) => Literal::Number(v),
                (None, None) => return Err(bad(&format!("{name} is out of range"))),
            },
            _ => return Err(bad(&format!("{name} is neither a string, a number nor a boolean"))),
        };
        Ok((name, Expr::Literal(literal)))
    };
    object.into_iter().map(literal).collect()
}

/// The answer to a statement, unless it changed something; and what was not as asked.
type Outcome = (Option<StatementAnswer>, Option<String>);

async fn run(
    app: &App,
    sender: &Sender,
    method: &Method,
    is_dry: bool,
    statement: &Statement,
    asked: StatementContext<'_>,
) -> ApiResult<Outcome> {
    match app.query.statement(statement, asked).await {
        Ok(Some(answer)) => Ok((Some(answer), None)),
        Ok(None) => {
            check_change(asked, statement)?;
            if *method != Method::POST {
                return Err(ApiError::Bad(format!("{} must be sent with POST", keywords(statement))));
            }
            if is_dry {
                return Ok((Some(previewed(app, statement, asked).await?), None));
            }
            let changed = change(app, statement, asked).await;
            note_change(app, sender, statement, asked.database, &changed);
            changed.map(|said| (None, said))
        }
        Err(failed) => Err(failed.into()),
    }
}

/// Writes a change to the audit log.
fn note_change(
    app: &App,
    sender: &Sender,
    statement: &Statement,
    database: Option<&str>,
    changed: &ApiResult<Option<String>>,
) {
    // Forbidden attempts are written as denials; invalid ones are not written.
    if matches!(changed, Err(error) if matches!(error.status(), StatusCode::BAD_REQUEST | StatusCode::FORBIDDEN)) {
        return;
    }
    let outcome = changed.as_ref().map_or_else(|error| cut(&error.to_string()), |_| "done".to_owned());
    let (statement, database) = (cut(&statement.to_string()), &*cut(changed_database(statement, database)));
    let event = Event::Change { by: &sender.by, address: sender.address, statement, database, outcome };
    match changed {
        Ok(_) => app.audit.note(&event),
        Err(_) => app.audit.note_denied(&event, Instant::now()),
    }
}

/// The database that a statement changes: the one in it, or that of the request.
fn changed_database<'a>(statement: &'a Statement, database: Option<&'a str>) -> &'a str {
    match statement {
        Statement::CreateDatabase { name, .. } | Statement::DropDatabase { name } => name,
        Statement::CreatePolicy(PolicyStatement { database, .. })
        | Statement::AlterPolicy(PolicyStatement { database, .. })
        | Statement::DropPolicy { database, .. } => database,
        _ => database.unwrap_or_default(),
    }
}

/// Checks that the caller may run the statement: who may write to a database may also create it. This comes before
/// everything else, so that who may not is told nothing more, and every attempt counts as a refusal.
fn check_change(asked: StatementContext<'_>, statement: &Statement) -> ApiResult<()> {
    let (by, database) = (asked.by, changed_database(statement, asked.database));
    let creates = matches!(statement, Statement::CreateDatabase { .. });
    if by.may_manage(database) || (creates && by.may_write(database)) {
        return Ok(());
    }
    Err(ApiError::Forbidden(format!("{} may not {} in database {database:?}", by.name(), keywords(statement))))
}

fn keywords(statement: &Statement) -> String {
    statement.to_string().split_whitespace().take(2).collect::<Vec<_>>().join(" ")
}

async fn change(app: &App, statement: &Statement, asked: StatementContext<'_>) -> ApiResult<Option<String>> {
    let timeout = app.flush_timeout();
    match statement {
        Statement::CreateDatabase { name, policy: None } if !name.is_empty() && !name.contains('/') => {
            Ok(app.ingest.create_database(name, asked.by).await.map(|()| None)?)
        }
        Statement::CreateDatabase { name, policy } => {
            let policy = policy.clone().unwrap_or_default();
            let said = app.ingest.create_database_with(name, policy.name.as_deref(), terms(&policy), asked.by).await?;
            Ok(together(said, without_effect(&policy)))
        }
        Statement::CreatePolicy(PolicyStatement { database, policy, default }) => {
            let name = policy.name.as_deref().unwrap_or_default();
            app.ingest.create_policy(database, name, terms(policy), *default, asked.by).await?;
            Ok(without_effect(policy))
        }
        Statement::AlterPolicy(PolicyStatement { database, policy, default }) => {
            let name = policy.name.as_deref().unwrap_or_default();
            app.ingest.alter_policy(database, name, terms(policy), *default).await?;
            Ok(without_effect(policy))
        }
        Statement::DropPolicy { name, database } => {
            patiently(app, app.ingest.drop_policy(database, name, asked.now, timeout)).await.map(|()| None)
        }
        Statement::DropDatabase { name } if name.contains('/') => Err(IngestError::from(PolicyError::Name).into()),
        Statement::DropDatabase { name } => {
            check_database_name(name)?;
            patiently(app, app.ingest.drop_database(name, asked.now, timeout)).await.map(|()| None)
        }
        other => delete(app, other, asked).await,
    }
}

/// The terms that a statement names.
pub(crate) fn terms(policy: &NewPolicy) -> PolicyTerms {
    let NewPolicy { duration, replication, shard_duration, .. } = policy;
    PolicyTerms {
        kept: duration.map(Keep::from_ns),
        replication: *replication,
        shard_duration: shard_duration.filter(|ns| *ns > 0),
    }
}

/// What clients of InfluxDB say of clusters and files.
fn without_effect(policy: &NewPolicy) -> Option<String> {
    let has_replicas = policy.replication.is_some_and(|count| count > 1);
    let named = [("REPLICATION", has_replicas), ("SHARD DURATION", policy.shard_duration.is_some_and(|ns| ns > 0))];
    let named: Vec<&str> = named.iter().filter(|(_, is_named)| *is_named).map(|(name, _)| *name).collect();
    (!named.is_empty()).then(|| format!("{}: kept and shown, without effect", named.join(" and ")))
}

fn together(first: Option<String>, second: Option<String>) -> Option<String> {
    let both: Vec<String> = [first, second].into_iter().flatten().collect();
    (!both.is_empty()).then(|| both.join("; "))
}

async fn delete(app: &App, statement: &Statement, asked: StatementContext<'_>) -> ApiResult<Option<String>> {
    let targets = app.query.delete_targets(statement, asked, &BTreeSet::new()).await?;
    let Some(targets) = targets else {
        return Err(ApiError::Bad(format!("not supported: {}", keywords(statement))));
    };
    let timeout = app.flush_timeout();
    if targets.iter().any(|target| target.values.is_some()) {
        let deletion = ValueDeletion {
            statement: statement.clone(),
            database: asked.database.map(str::to_owned),
            policy: asked.policy.map(str::to_owned),
            now: asked.now,
            by: asked.by.clone(),
        };
        return Ok(app.edits.delete_by_value(deletion, targets).await?);
    }
    let all = targets.iter().map(|target| (&*target.database, &target.range, target.statement.len()));
    app.ingest.check_deletions(all)?;
    for DeleteTargets { database, sensors, range, statement, .. } in targets {
        let deletion = app.ingest.delete(&database, asked.now, &sensors, &statement, range, timeout);
        patiently(app, deletion).await?;
    }
    Ok(None)
}

/// Waits for a deletion: up to `flush_timeout` while the store answers, up to `flush_away` while it is unavailable.
async fn patiently(app: &App, deletion: impl Future<Output = Result<(), IngestError>>) -> ApiResult<()> {
    let patience = app.flush_away();
    tokio::select! {
        deleted = deletion => Ok(deleted?),
        () = stays_away(app.health.clone(), patience) => Err(IngestError::DeletionTimeout(patience).into()),
    }
}
