//! Endpoints about the service itself: probes of clients, health for operators, and metrics for Prometheus.

use std::fmt::Write;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::bucket::Unusable;
use crate::clock::{ClockDoubt, now_ns, now_seconds};
use crate::config::AckLevel;
use crate::http::endpoints::{self, ENDPOINTS, Endpoint};
use crate::http::errors::{NO_ENDPOINT, WRONG_METHOD};
use crate::http::pairs::Pairs;
use crate::http::render::answer::INFLUX_VERSION;
use crate::http::render::format::choose_accepted;
use crate::http::{App, CanSeeDetails, Health, ui};
use crate::ingest::{FailingDatabase, without_tokens};
use crate::mqtt::{Link, SubscriberState};
use crate::reading::time::rfc3339;
use crate::upkeep::JobState;

/// Media types of the formats of `GET /`.
const TEXTS: &[&str] = &["text/plain"];
const PAGES: &[&str] = &["text/html"];
const OBJECTS: &[&str] = &["application/json"];

/// The formats of `GET /`.
#[derive(Clone, Copy)]
enum FrontFormat {
    Text,
    Page,
    Json,
}

/// `GET /`: the page for browsers, JSON for clients that prefer it, and one line per endpoint for all others.
pub async fn front(State(app): State<Arc<App>>, headers: HeaderMap) -> Response {
    let accept: Vec<&str> = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
    // Clients that accept anything get the text, the first choice.
    let pages: &'static [&'static str] = if app.settings.ui.enabled { PAGES } else { &[] };
    let mut response = match choose_accepted(
        &accept.join(","),
        FrontFormat::Text,
        [(FrontFormat::Text, TEXTS), (FrontFormat::Page, pages), (FrontFormat::Json, OBJECTS)],
    ) {
        FrontFormat::Page => return ui::page(&headers),
        FrontFormat::Text => endpoint_lines().into_response(),
        FrontFormat::Json => Json(endpoint_list()).into_response(),
    };
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("accept"));
    response
}

fn endpoint_list() -> serde_json::Value {
    let item = |endpoint: &Endpoint| {
        let parameters: Vec<&str> = endpoint.parameters().collect();
        json!({ "method": endpoint.method, "path": endpoint.path, "what": endpoint.summary, "parameters": parameters })
    };
    let endpoints: Vec<serde_json::Value> = ENDPOINTS.iter().map(item).collect();
    json!({ "name": "hourglass", "version": env!("CARGO_PKG_VERSION"), "endpoints": endpoints })
}

fn endpoint_lines() -> String {
    let mut text = format!("hourglass {}\n\n", env!("CARGO_PKG_VERSION"));
    let method_width = ENDPOINTS.iter().map(|endpoint| endpoint.method.len()).max().unwrap_or_default();
    let path_width = ENDPOINTS.iter().map(|endpoint| endpoint.path.len()).max().unwrap_or_default();
    for endpoint in ENDPOINTS {
        let parameters: Vec<String> = endpoint.parameters().map(|name| format!("{name}=")).collect();
        let parameters = if parameters.is_empty() { String::new() } else { format!(" (?{})", parameters.join("&")) };
        // Writing to a String cannot fail.
        let Endpoint { method, path, summary, .. } = endpoint;
        let _ = writeln!(text, "{method:method_width$} {path:path_width$} {summary}{parameters}");
    }
    text
}

/// `GET /ping`: 204, or 200 and the version with `?verbose=true`. A client that also sends a `verbose` header, such as
/// EMQX, expects 204.
pub async fn ping(headers: HeaderMap, uri: Uri) -> Response {
    let sent = Pairs::parse_url(&uri).and_then(|sent| Pairs::lenient(sent, &["verbose"]));
    let is_verbose = sent.is_ok_and(|(sent, _)| matches!(sent.get("verbose"), Some("true" | "1")));
    if is_verbose && !headers.contains_key("verbose") {
        return Json(json!({ "version": INFLUX_VERSION })).into_response();
    }
    StatusCode::NO_CONTENT.into_response()
}

/// `GET /health`: the health in the format of InfluxDB, which clients check before they write. It passes while writes
/// are acked. The state of the store is one of the checks. The check `log` warns while acked readings may be missing
/// from the WAL.
pub async fn health(State(app): State<Arc<App>>, Extension(details): Extension<CanSeeDetails>) -> Response {
    let health = app.health.borrow().clone();
    let lag = app.ingest.lag();
    let pending = lag.ledger.pending.max(0);
    let behind = format!("{pending} readings pending, the oldest for {:.0} s", age(lag.oldest));
    let (store_status, store_message) = match &health {
        Health::StoreAway(reason) => ("fail", format!("{reason}; {behind}")),
        Health::StoreUnusable { cause, detail } => {
            let detail = if details.0 { format!(" ({detail})") } else { String::new() };
            ("fail", format!("{}{detail}; {behind}", unusable_text(*cause)))
        }
        Health::Ready | Health::Stopping => ("pass", behind),
    };
    let failing = app.ingest.failing();
    let refusal = refusal(&app, &health);
    let (status, word, message) = match &refusal {
        Some(reason) => (StatusCode::SERVICE_UNAVAILABLE, "fail", reason.as_str()),
        // Only the operator can fix this, and the WAL fills up in the meantime.
        None if matches!(health, Health::StoreUnusable { .. }) => {
            (StatusCode::SERVICE_UNAVAILABLE, "fail", store_message.as_str())
        }
        None if store_status == "fail" && app.settings.ingest.ack == AckLevel::Store => (
            StatusCode::SERVICE_UNAVAILABLE,
            "fail",
            "writes are not acked, because the store is unavailable and ingest.ack is \"store\"",
        ),
        None if store_status == "fail" => {
            (StatusCode::OK, "pass", "writes are acked; the store is unavailable, so queries are not answered")
        }
        None if !failing.is_empty() => {
            (StatusCode::OK, "pass", "writes are acked; the readings of some databases cannot be stored")
        }
        None => (StatusCode::OK, "pass", "ready for queries and writes"),
    };
    let blocked = app.ingest.flushes.blocked.summary();
    let documents = if blocked.is_some() { "fail" } else { "pass" };
    let blocked = blocked.unwrap_or_else(|| "no readings are blocked by a single document".to_owned());
    let log = app.ingest.submitter.wal.stats();
    let mut log_message = format!("{} bytes in {} segments", log.bytes, log.segments);
    let mut log_status = word;
    let found = log.found;
    if found.damaged + found.in_doubt > 0 {
        if word == "pass" {
            log_status = "warn";
        }
        log_message += &format!(
            "; acked readings may be missing: {} places ({} bytes) are damaged, and {} ({} bytes) at the end of the log are in \
             doubt; see the folder quarantine of the log",
            found.damaged, found.damaged_bytes, found.in_doubt, found.in_doubt_bytes
        );
    }
    let mut checks = vec![
        json!({ "name": "log", "status": log_status, "message": log_message }),
        json!({ "name": "store", "status": store_status, "message": &store_message }),
        json!({ "name": "documents", "status": documents, "message": blocked }),
    ];
    checks.extend(app.ingest.clock_doubt().map(clock_check));
    checks.extend(app.jobs.states().iter().filter_map(|job| job_check(job)));
    checks.extend(dead_letters(&app).await);
    checks.extend(app.mqtt.iter().map(|subscriber| mqtt_check(subscriber, details.0)));
    checks.extend(failing.iter().map(failing_check));
    let body = json!({
        "name": "hourglass", "status": word, "message": message, "version": env!("CARGO_PKG_VERSION"), "checks": checks,
    });
    (status, Json(body)).into_response()
}

/// Describes an unusable store, with advice.
pub(crate) fn unusable_text(cause: Unusable) -> String {
    format!("store: {cause}; {}", cause.advice())
}

/// A check that warns if there are dead letters.
async fn dead_letters(app: &App) -> Option<serde_json::Value> {
    let mut messages = Vec::new();
    match app.ingest.flushes.dead_letters.outstanding().await {
        Ok(outstanding) => {
            let readings = outstanding.readings();
            if readings > 0 {
                messages.push(format!("{readings} readings could not be stored: GET /api/v1/dead-letters lists them"));
            }
            if outstanding.metadata > 0 {
                let changes = outstanding.metadata;
                messages.push(format!(
                    "{changes} changes of metadata could not be stored: GET /api/v1/dead-letters lists them"
                ));
            }
        }
        Err(error) => messages.push(format!("the dead letters cannot be read: {error}")),
    }
    if messages.is_empty() {
        return None;
    }
    let message = messages.join("; ");
    Some(json!({ "name": "dead_letters", "status": "warn", "message": message }))
}

/// A check that warns of a job that needs a person.
fn job_check(job: &JobState) -> Option<serde_json::Value> {
    let problem = job.status().problem?;
    Some(json!({ "name": format!("job {}", job.name), "status": "warn", "message": problem }))
}

/// The check of an MQTT subscriber. It warns while messages wait at the broker. Only operators learn the reason.
fn mqtt_check(subscriber: &SubscriberState, has_details: bool) -> serde_json::Value {
    let status = subscriber.status();
    let with_reason =
        |text: &str, reason: &str| if has_details { format!("{text}: {reason}") } else { text.to_owned() };
    let (word, message) = match (&status.link, &status.blocked) {
        (Link::Away(reason), _) => ("warn", with_reason("not connected", reason)),
        (Link::Connected, Some(reason)) => ("warn", with_reason("connected; messages cannot be stored", reason)),
        (Link::Connected, None) => ("pass", "connected".to_owned()),
        (Link::Elsewhere, _) => ("pass", "another instance connects".to_owned()),
        (Link::Starting, _) => ("pass", "connecting".to_owned()),
    };
    json!({ "name": format!("mqtt {}", subscriber.client_id), "status": word, "message": message })
}

/// A check that warns that the clock is in doubt.
fn clock_check(doubt: ClockDoubt) -> serde_json::Value {
    json!({ "name": "clock", "status": "warn", "message": format!("nothing expires and no day is sealed: {doubt}") })
}

/// The failed health check of a database whose readings cannot be stored.
fn failing_check(failing: &FailingDatabase) -> serde_json::Value {
    let FailingDatabase { name, cause, since, unflushed_bytes, wal_bytes, .. } = failing;
    let waits = format!(
        "{unflushed_bytes} bytes have waited for {:.0} s and pin {wal_bytes} bytes of the WAL",
        age(Some(*since))
    );
    json!({ "name": format!("database {name}"), "status": "fail", "message": format!("{cause}; {waits}") })
}

/// `GET /ready`: 200 while writes are acked, whether or not the store is available.
pub async fn ready(State(app): State<Arc<App>>) -> Response {
    let health = app.health.borrow().clone();
    let started = rfc3339(app.started.wall_ns);
    let up = format!("{}s", app.started.monotonic.elapsed().as_secs());
    match refusal(&app, &health) {
        None => {
            let mut body = json!({ "status": "ready", "started": started, "up": up });
            if let Health::StoreUnusable { cause, .. } = health {
                body["message"] = json!(unusable_text(cause));
            }
            Json(body).into_response()
        }
        Some(reason) => {
            let word = if health == Health::Stopping { "stopping" } else { "refusing" };
            (StatusCode::SERVICE_UNAVAILABLE, Json(json!({ "status": word, "message": reason }))).into_response()
        }
    }
}

/// Returns the reason why writes are not acked; `None` while they are.
pub(crate) fn refusal(app: &App, health: &Health) -> Option<String> {
    match health {
        Health::Stopping => Some("shutting down".to_owned()),
        Health::Ready | Health::StoreAway(_) | Health::StoreUnusable { .. } => app.ingest.refusal(),
    }
}

/// Seconds since a time in nanoseconds since the epoch; 0 for `None`.
#[expect(clippy::cast_precision_loss, reason = "for people and metrics")]
pub(crate) fn age(start_ns: Option<i64>) -> f64 {
    start_ns.map_or(0.0, |start_ns| now_ns().saturating_sub(start_ns).max(0) as f64 / 1e9)
}

/// `GET /api/v1/status`.
pub async fn status(State(app): State<Arc<App>>) -> Response {
    let lag = app.ingest.lag();
    let log = app.ingest.submitter.wal.stats();
    let health = app.health.borrow().clone();
    let store = match &health {
        Health::StoreAway(reason) => json!({ "away": true, "reason": reason }),
        Health::StoreUnusable { cause, detail } => {
            json!({ "away": true, "reason": unusable_text(*cause), "class": cause.name(), "detail": detail })
        }
        Health::Ready | Health::Stopping => json!({ "away": false }),
    };
    let failing_json = |failing: FailingDatabase| {
        let FailingDatabase { name, cause, class, since, unflushed_bytes, wal_bytes, .. } = failing;
        json!({
            "database": name, "class": class, "cause": cause, "seconds": age(Some(since)),
            "unflushed_bytes": unflushed_bytes, "log_bytes": wal_bytes,
        })
    };
    let failing: Vec<serde_json::Value> = app.ingest.failing().into_iter().map(failing_json).collect();
    Json(json!({
        "pending_readings": lag.ledger.pending.max(0),
        "oldest_pending_seconds": age(lag.oldest),
        "log_bytes": log.bytes,
        "log_segments": log.segments,
        "log_damaged": log.found.damaged,
        "log_in_doubt": log.found.in_doubt,
        "log_torn": log.found.torn,
        "hot_bytes": app.ingest.dispatch.positions.bucket_cache_bytes(),
        "unflushed_bytes": lag.unflushed_bytes,
        "feeding": !lag.is_live,
        "deletions_in_progress": app.ingest.catalog.deletions_in_progress(),
        "blocked": lag.blocked,
        "documents": app.ingest.flushes.blocked.summary(),
        "refusing": refusal(&app, &health),
        "store": store,
        "failing_databases": failing,
        "readings": lag.ledger,
    }))
    .into_response()
}

/// `GET /settings`: tells QuestDB clients to use version 1 of their line protocol.
pub async fn settings() -> Response {
    Json(json!({ "config": { "line.proto.support.versions": [1] } })).into_response()
}

/// `GET /metrics`.
pub async fn metrics(State(app): State<Arc<App>>) -> Response {
    let outstanding = app.ingest.flushes.dead_letters.outstanding().await.ok();
    let _scraping = app.metrics.scraping();
    let lag = app.ingest.lag();
    let log = app.ingest.submitter.wal.stats();
    app.metrics.ledger(&lag.ledger);
    let readings = outstanding.as_ref().map(|outstanding| outstanding.readings());
    app.metrics.dead_letters(readings, outstanding.map(|outstanding| outstanding.metadata));
    app.ingest.flushes.blocked.measure(&app.metrics);
    let classes: Vec<&'static str> = app.ingest.failing().iter().map(|failing| failing.class).collect();
    app.metrics.databases_failing(&classes);
    app.metrics.catalog(app.ingest.catalog.used_bytes());
    app.metrics.tokens.set(u32::try_from(app.access.len()).unwrap_or(u32::MAX));
    app.metrics.token_terms(&app.access.terms(now_seconds()));
    app.metrics.wal(&log, app.ingest.wal_budget());
    app.metrics.store_full_seconds.set(app.store_days_left().map_or(f64::INFINITY, |days| days * 86_400.0));
    app.metrics.lag(age(lag.oldest), lag.unflushed_bytes, !lag.is_live);
    ([("content-type", "text/plain; version=0.0.4; charset=utf-8")], app.metrics.render()).into_response()
}

/// Beginnings of paths of other services, and what to use instead.
const INSTEAD: &[(&str, &str)] = &[
    ("/api/v3/write", "write with POST /api/v3/write_lp"),
    ("/api/v3/query_influxql", "send InfluxQL to /query"),
    ("/api/v3/query", "SQL is not supported: send InfluxQL to /query"),
    ("/api/v3/configure/token", "make tokens with hourglass token add or POST /api/v1/tokens"),
    ("/api/v3/configure", "create databases with CREATE DATABASE by POST /query, or write to them"),
    ("/api/v3", "write with POST /api/v3/write_lp, and send InfluxQL to /query"),
    ("/api/v2/authorizations", "make tokens with hourglass token add or POST /api/v1/tokens"),
    ("/api/v2/tasks", "no tasks are needed: every hour has exact summaries, see GET /api/v1/summary"),
    ("/api/v2", "write with POST /api/v2/write, and send InfluxQL to /query"),
    ("/api/v1/prom", "Prometheus writes with POST /api/v1/write; remote read is not supported"),
    ("/api/v1/query", "PromQL is not supported: send InfluxQL to /query, or use GET /api/v1/summary"),
    ("/api/put", "OpenTSDB is not supported: write line protocol with POST /write, or JSON with POST /api/v1/readings"),
    ("/loki", "logs of Loki are not supported: write texts as fields of line protocol with POST /write"),
    ("/metrics/", "metrics are not pushed here: write line protocol with POST /write"),
    ("/v2/write", "write with POST /api/v2/write"),
    ("/debug", "use GET /metrics and GET /health"),
];

/// Answers a request for an unknown path.
pub async fn not_found(uri: Uri) -> Response {
    let path: String = without_tokens(uri.path()).chars().take(128).collect();
    let instead = INSTEAD.iter().find(|(start, _)| path.starts_with(start));
    let error = format!("no endpoint {path:?}: {}", instead.map_or("GET / lists them", |(_, instead)| instead));
    (StatusCode::NOT_FOUND, Json(refusal_json(&path, &error, NO_ENDPOINT, "not found"))).into_response()
}

/// The body of an error without an endpoint, in the format of the clients of its path.
fn refusal_json(path: &str, error: &str, code: &str, v2_code: &str) -> serde_json::Value {
    if path.starts_with("/api/v2/") {
        return json!({ "code": v2_code, "message": error });
    }
    json!({ "error": error, "code": code })
}

/// Answers a request with an unsupported method.
pub async fn wrong_method(method: Method, uri: Uri) -> Response {
    let path = without_tokens(uri.path());
    let error = format!("{path} does not support {method}: GET / lists the endpoints");
    let allowed = endpoints::methods(uri.path()).join(",");
    let body = refusal_json(&path, &error, WRONG_METHOD, "method not allowed");
    (StatusCode::METHOD_NOT_ALLOWED, [(header::ALLOW, allowed)], Json(body)).into_response()
}
