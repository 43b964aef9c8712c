//! `/query`: runs InfluxQL statements in order and returns one result per statement.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{Extension, Form, FromRequest, Multipart, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Version, header};
use axum::response::{IntoResponse, Response};

use super::render::{RenderStyle, Renderer, refusal};
use super::statements::StatementsRun;
use crate::access::Event;
use crate::bucket::Keep;
use crate::clock::now_ns;
use crate::edits::ValueDeletion;
use crate::http::App;
use crate::http::admin::preview;
use crate::http::api::write::wait_while_away;
use crate::http::endpoints::Endpoint;
use crate::http::errors::{ApiError, ApiResult, Dialect, WARNING_HEADER, add_texts};
use crate::http::pairs::Pairs;
use crate::http::parameters::Requester;
use crate::http::render::answer::NOTICE_HEADER;
use crate::http::render::format::Format;
use crate::http::render::guard::Guard;
use crate::http::server::body::{self, BodyLimit};
use crate::influxql::{self, Expr, Literal, NewPolicy, Params, ParseOptions, PolicyStatement, Statement};
use crate::ingest::{
    Deleted, DeletionWait, IngestError, PolicyError, PolicyTerms, check_database_name, check_new_name,
};
use crate::query::Position;
use crate::query::influx::{DeleteTargets, StatementAnswer, StatementContext, is_zone, pattern_fault};

/// Maximum number of statements in a request.
const STATEMENTS_MAX: usize = 100;
/// Estimated bytes of syntax tree per byte of query text.
const PARSED_BYTES: usize = 64;
/// The limit of a form, whose short pairs take forty times its size in memory.
pub(super) const FORM: BodyLimit = BodyLimit { bytes: 1 << 20, key: "the maximum of a query" };
/// Default number of rows per chunk.
const CHUNK_ROWS_DEFAULT: usize = 10_000;

/// The time for which the removal of deleted readings is awaited at least.
const REMOVAL_TIME: Duration = Duration::from_millis(7500);
const STILL_REMOVING: &str =
    "the readings are deleted; removing them from the store goes on, and deleted series may be listed until then";

/// `GET` and `POST /query`. With POST, parameters may also be in a form body.
pub async fn query(
    State(app): State<Arc<App>>,
    Extension(requester): Extension<Requester>,
    Extension(endpoint): Extension<&'static Endpoint>,
    request: Request,
) -> Response {
    let known: Vec<&str> = endpoint.parameters().collect();
    handle(&app, &requester, &known, request).await.unwrap_or_else(|error| error.respond(Dialect::V1))
}

/// Reads the parameters and runs the query.
async fn handle(app: &Arc<App>, requester: &Requester, known: &[&str], request: Request) -> ApiResult<Response> {
    let (parts, mut body) = request.into_parts();
    let (mut parameters, mut unknown) = Pairs::lenient(Pairs::parse_url(&parts.uri)?, known)?;
    if parts.method == Method::POST {
        let (body, _admission) = body::read_parameters(app, &requester.caller, &parts.headers, &mut body, FORM).await?;
        let form = read_form(Request::from_parts(parts.clone(), body.into())).await;
        let (form, unknown_in_form) = Pairs::lenient(form, known)?;
        parameters = parameters.with_defaults(form);
        unknown = join_messages(unknown, unknown_in_form);
    }
    let answer = run_query(app, requester, &parts, &parameters).await;
    let mut response = answer.unwrap_or_else(|error| error.respond(Dialect::V1));
    add_texts(&mut response, WARNING_HEADER, unknown.as_slice());
    Ok(response)
}

/// Returns the parameters of a form. In a multipart form they may be files, as `curl -F q=@file` sends them. A body that
/// is not a form counts as empty.
async fn read_form(request: Request) -> Vec<(String, String)> {
    let content = request.headers().get(header::CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    if !content.starts_with(b"multipart/form-data") {
        return Form::from_request(request, &()).await.map(|Form(sent)| sent).unwrap_or_default();
    }
    let mut sent = Vec::new();
    if let Ok(mut form) = Multipart::from_request(request, &()).await {
        while let Ok(Some(part)) = form.next_field().await {
            let name = part.name().unwrap_or_default().to_owned();
            if let Ok(text) = part.text().await {
                sent.push((name, text));
            }
        }
    }
    sent
}

async fn run_query(app: &Arc<App>, requester: &Requester, parts: &Parts, parameters: &Pairs) -> ApiResult<Response> {
    let Some(q) = parameters.get("q").filter(|q| !q.trim().is_empty()) else {
        return Err(ApiError::Bad("missing required parameter \"q\"".to_owned()));
    };
    let guard = Guard::parse(parameters.get("guard"))?;
    let mode = match (parameters.flag("dry_run")?, parameters.flag("wait")?) {
        (Some(true), _) => ChangeMode::Preview,
        (_, Some(true)) => ChangeMode::Wait,
        _ => ChangeMode::Usual,
    };
    let style = render_style(parameters, guard, &parts.headers);
    let media_type = style.media_type();
    let budget = app.query.begin(&requester.caller, q);
    let _parsed = budget.hold(q.len().saturating_mul(PARSED_BYTES))?;
    let statements = match parse_statements(q, parameters.get("params")) {
        Ok(statements) => statements,
        Err(error) => {
            let body = refusal(&error.to_string(), &style);
            return Ok((error.status(), [(header::CONTENT_TYPE, media_type)], body).into_response());
        }
    };
    let mut run = StatementsRun {
        app: app.clone(),
        requester: requester.clone(),
        q: q.to_owned(),
        statements,
        database: parameters.get("db").map(str::to_owned),
        policy: parameters.get("rp").map(str::to_owned),
        now: now_ns(),
        can_change: parts.method == Method::POST,
        mode,
        renderer: Renderer::new(style),
        done: 0,
        next: None,
        notices: Vec::new(),
        has_begun: false,
    };
    let mut text = run.renderer.text(&budget)?;
    while !run.is_done() && run.next.is_none() && !budget.holds_much() {
        run.step(&budget, &mut text).await?;
    }
    let notices = std::mem::take(&mut run.notices);
    let mut response = if run.is_done() {
        run.renderer.finish(&mut text).await?;
        budget.finish();
        text.respond(media_type)?
    } else {
        if parts.version == Version::HTTP_10 {
            return Err(ApiError::Bad("the answer is too large for HTTP/1.0: use HTTP/1.1".to_owned()));
        }
        budget.finish();
        text.stream(media_type, |text| run.rest(text))
    };
    // In a header, because InfluxDB has no such `messages` in its answers.
    add_texts(&mut response, NOTICE_HEADER, &notices);
    Ok(response)
}

fn render_style(parameters: &Pairs, guard: Guard, headers: &HeaderMap) -> RenderStyle {
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
    let chunk = is_true("chunked").then(|| rows.unwrap_or(CHUNK_ROWS_DEFAULT));
    RenderStyle { unit, format, is_pretty: is_true("pretty"), chunk }
}

pub(super) fn parse_statements(q: &str, params: Option<&str>) -> ApiResult<Vec<Statement>> {
    let params = parse_params(params)?;
    let options = ParseOptions { params: &params, is_known_zone: &is_zone, regex_error: &pattern_fault };
    let statements =
        influxql::parse(q, &options).map_err(|error| ApiError::Bad(format!("error parsing query: {error}")))?;
    if statements.len() > STATEMENTS_MAX {
        return Err(ApiError::Bad(format!("more than {STATEMENTS_MAX} statements in one query")));
    }
    Ok(statements)
}

/// Parses the bind parameters (`$name`) from a JSON object.
fn parse_params(params: Option<&str>) -> ApiResult<Params> {
    let Some(text) = params else { return Ok(HashMap::new()) };
    if text.len() > BodyLimit::SETTINGS.bytes {
        return Err(ApiError::Bad(format!("the parameters exceed {} bytes", BodyLimit::SETTINGS.bytes)));
    }
    let bad = |fault: &str| ApiError::Bad(format!("error parsing query parameters: {fault}"));
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

/// The effect of the parameters `dry_run` and `wait` on statements that change something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChangeMode {
    Usual,
    Preview,
    /// Deletions are answered after the removal of their readings from the store.
    Wait,
}

/// The outcome of a statement.
pub(super) struct StatementOutcome {
    /// `None` if the statement changed something.
    pub answer: Option<StatementAnswer>,
    /// A warning about parts of the statement without effect.
    pub message: Option<String>,
}

pub(super) async fn run_statement(
    app: &App,
    requester: &Requester,
    can_change: bool,
    mode: ChangeMode,
    statement: &Statement,
    context: StatementContext<'_>,
    from: Option<Position>,
) -> ApiResult<StatementOutcome> {
    let answer = app.query.statement(statement, context, from).await?;
    if answer.is_some() {
        return Ok(StatementOutcome { answer, message: None });
    }
    if !can_change {
        return Err(ApiError::Bad(format!("{} must be sent with POST", keywords(statement))));
    }
    if mode == ChangeMode::Preview {
        let answer = preview::dry_run(app, statement, context).await?;
        return Ok(StatementOutcome { answer: Some(answer), message: None });
    }
    let message = run_change(app, requester, statement, context, mode == ChangeMode::Wait).await?;
    Ok(StatementOutcome { answer: None, message })
}

/// Runs a statement that changes something, and writes it to the audit trail. See [`change`].
pub(crate) async fn run_change(
    app: &App,
    requester: &Requester,
    statement: &Statement,
    context: StatementContext<'_>,
    waits: bool,
) -> ApiResult<Option<String>> {
    let changed = change(app, statement, context, waits).await;
    log_change(app, requester, statement.to_string(), changed_database(statement, context.database), &changed);
    changed
}

/// Writes a change to the audit trail.
pub(crate) fn log_change(
    app: &App,
    requester: &Requester,
    statement: String,
    database: &str,
    changed: &ApiResult<Option<String>>,
) {
    // Forbidden attempts are logged as denials, invalid ones not at all.
    let is_ignored = |status| matches!(status, StatusCode::BAD_REQUEST | StatusCode::FORBIDDEN | StatusCode::NOT_FOUND);
    if matches!(changed, Err(error) if is_ignored(error.status())) {
        return;
    }
    let outcome = changed.as_ref().map_or_else(ToString::to_string, |_| "done".to_owned());
    let event = Event::Change { caller: &requester.caller, address: requester.address, statement, database, outcome };
    match changed {
        Ok(_) => app.audit.note(&event),
        Err(_) => app.audit.note_denied(&event, Instant::now()),
    }
}

/// Returns the database that a statement changes: that of the statement, else of the request.
fn changed_database<'a>(statement: &'a Statement, database: Option<&'a str>) -> &'a str {
    match statement {
        Statement::CreateDatabase { name, .. } | Statement::DropDatabase { name } => name,
        Statement::CreatePolicy(PolicyStatement { database, .. })
        | Statement::AlterPolicy(PolicyStatement { database, .. })
        | Statement::DropPolicy { database, .. } => database,
        _ => database.unwrap_or_default(),
    }
}

fn keywords(statement: &Statement) -> String {
    statement.to_string().split_whitespace().take(2).collect::<Vec<_>>().join(" ")
}

/// Runs a statement that changes something. Returns a warning about parts without effect. If it `waits`, a deletion ends
/// when the store has none of its readings any more.
async fn change(
    app: &App,
    statement: &Statement,
    context: StatementContext<'_>,
    waits: bool,
) -> ApiResult<Option<String>> {
    let timeout = app.flush_timeout();
    match statement {
        Statement::CreateDatabase { name, policy: None } => {
            check_new_name(name)?;
            Ok(app.ingest.create_database(name, context.caller).await.map(|()| None)?)
        }
        Statement::CreateDatabase { name, policy } => {
            let policy = policy.clone().unwrap_or_default();
            let policy_terms = terms(&policy);
            let message =
                app.ingest.create_database_with(name, policy.name.as_deref(), policy_terms, context.caller).await?;
            Ok(join_messages(message, ignored_terms(&policy)))
        }
        Statement::CreatePolicy(PolicyStatement { database, policy, is_default }) => {
            let name = policy.name.as_deref().unwrap_or_default();
            app.ingest.create_policy(database, name, terms(policy), *is_default, context.caller).await?;
            Ok(ignored_terms(policy))
        }
        Statement::AlterPolicy(PolicyStatement { database, policy, is_default }) => {
            let name = policy.name.as_deref().unwrap_or_default();
            app.ingest.alter_policy(database, name, terms(policy), *is_default).await?;
            Ok(ignored_terms(policy))
        }
        Statement::DropPolicy { name, database } => {
            wait_for_deletion(app, app.ingest.drop_policy(database, name, context.now, timeout)).await.map(|()| None)
        }
        Statement::DropDatabase { name } if name.contains('/') => Err(IngestError::from(PolicyError::Name).into()),
        Statement::DropDatabase { name } => {
            check_database_name(name)?;
            wait_for_deletion(app, app.ingest.drop_database(name, context.now, timeout)).await.map(|()| None)
        }
        Statement::KillQuery { id } if !app.query.kill(*id, context.caller) => {
            Err(ApiError::Bad(format!("no such query id: {id}")))
        }
        Statement::KillQuery { .. } => Ok(None),
        other => delete(app, other, context, waits).await,
    }
}

/// Returns the terms of a policy statement.
pub(crate) fn terms(policy: &NewPolicy) -> PolicyTerms {
    let NewPolicy { duration, replication, shard_duration, .. } = policy;
    PolicyTerms {
        kept: duration.map(Keep::from_ns),
        replication: *replication,
        shard_duration: shard_duration.filter(|ns| *ns > 0),
    }
}

/// Returns a warning about terms that are stored and shown but have no effect.
fn ignored_terms(policy: &NewPolicy) -> Option<String> {
    let has_replicas = policy.replication.is_some_and(|count| count > 1);
    let has_shard_duration = policy.shard_duration.is_some_and(|ns| ns > 0);
    let terms = match (has_replicas, has_shard_duration) {
        (true, true) => "REPLICATION and SHARD DURATION",
        (true, false) => "REPLICATION",
        (false, true) => "SHARD DURATION",
        (false, false) => return None,
    };
    Some(format!("{terms}: kept and shown, without effect"))
}

fn join_messages(first: Option<String>, second: Option<String>) -> Option<String> {
    let both: Vec<String> = [first, second].into_iter().flatten().collect();
    (!both.is_empty()).then(|| both.join("; "))
}

async fn delete(
    app: &App,
    statement: &Statement,
    context: StatementContext<'_>,
    waits: bool,
) -> ApiResult<Option<String>> {
    let targets = app.query.delete_targets(statement, context, &BTreeSet::new()).await?;
    let Some(targets) = targets else {
        return Err(ApiError::Bad(format!("not supported: {}", keywords(statement))));
    };
    if targets.iter().any(|target| target.values.is_some()) {
        let deletion = ValueDeletion {
            statement: statement.clone(),
            database: context.database.map(str::to_owned),
            policy: context.policy.map(str::to_owned),
            now: context.now,
            caller: context.caller.clone(),
        };
        return Ok(app.edits.delete_by_value(deletion, targets).await?);
    }
    delete_sensors(app, targets, context.now, waits).await
}

/// Deletes all readings of time ranges of sensors. Returns a message if it does not wait and the readings are only hidden
/// yet.
pub(crate) async fn delete_sensors(
    app: &App,
    targets: Vec<DeleteTargets>,
    now: i64,
    waits: bool,
) -> ApiResult<Option<String>> {
    let timeout = app.flush_timeout();
    let all = targets.iter().map(|target| (&*target.database, &target.range, target.statement.len()));
    app.ingest.check_deletions(all)?;
    let wait = DeletionWait { longest: timeout, for_removal: if waits { timeout } else { REMOVAL_TIME } };
    let mut message = None;
    for DeleteTargets { database, sensors, range, statement, .. } in targets {
        let deletion = app.ingest.delete(&database, now, &sensors, &statement, range, wait);
        if wait_for_deletion(app, deletion).await? == Deleted::Hidden {
            message = Some(STILL_REMOVING.to_owned());
        }
    }
    Ok(message)
}

/// Waits for a deletion: up to `flush_timeout` while the store answers, and up to `flush_away_timeout` while it is
/// unavailable.
async fn wait_for_deletion<T>(app: &App, deletion: impl Future<Output = Result<T, IngestError>>) -> ApiResult<T> {
    let patience = app.flush_away_timeout();
    tokio::select! {
        deleted = deletion => Ok(deleted?),
        () = wait_while_away(app.health.clone(), patience) => Err(IngestError::DeletionTimeout(patience).into()),
    }
}
