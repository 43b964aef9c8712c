//! The write endpoints, in the formats of all client families. Line protocol is answered with an empty 204 if all lines
//! were accepted.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use tokio::sync::watch;
use tracing::Span;

use super::push;
use crate::access::{Caller, Effect};
use crate::clock::now_ns;
use crate::http::admin::dead_letters::not_stored;
use crate::http::endpoints::{Endpoint, is_csv};
use crate::http::errors::{
    ACK_HEADER, ApiError, ApiResult, Dialect, WARNING_HEADER, add_texts, is_forbidden, respond_partial,
};
use crate::http::pairs::Pairs;
use crate::http::parameters::{DEFAULT_DATABASE, Requester};
use crate::http::render::json::ack_json;
use crate::http::server::body::{self, ReadBody, ReceivedBody};
use crate::http::{App, Health};
use crate::ingest::{Ack, AckLevel, Arrival, IngestError, RequestKey, Retry};
use crate::lanes::{Lane, SMALL_BODY_BYTES};
use crate::mapping::{self, Mapping};
use crate::reading::Precision;
use crate::wire::csv::Rows;
use crate::wire::json::Items;
use crate::wire::line_protocol::Lines;
use crate::wire::push::otlp::DataPoints;
use crate::wire::push::remote_write::Samples;

/// The query parameters of line protocol writes, of all versions of InfluxDB.
const KNOWN_PARAMETERS: &[&str] = &["db", "rp", "bucket", "precision", "accept_partial", "ack"];

/// The path of writes through a mapping, before its name.
const INGEST: &str = "/api/v1/ingest/";

/// A write request.
struct WriteRequest {
    app: Arc<App>,
    endpoint: &'static Endpoint,
    parts: Parts,
    body: Body,
    requester: Requester,
}

/// Handles a write request. A small body is parsed here, a larger one in the lane of bulk work.
pub async fn write(
    app: Arc<App>,
    endpoint: &'static Endpoint,
    parts: Parts,
    body: Body,
    requester: Requester,
) -> Response {
    let mut request = WriteRequest { app, endpoint, parts, body, requester };
    let received = match request.options().await {
        Ok(options) => request.receive().await.map(|body| (options, body)),
        Err(error) => Err(error),
    };
    match received {
        Err(error) => {
            Span::current().record("lane", Lane::current().name());
            request.respond(Err(error)).await
        }
        Ok((options, ReceivedBody::Complete(body))) if request.plain_bytes(&body.0) <= SMALL_BODY_BYTES => {
            Span::current().record("lane", Lane::current().name());
            let taken = request.take(&options, body).await;
            request.respond(taken).await
        }
        Ok((options, body)) => {
            let lanes = request.app.lanes.clone();
            lanes.run(Lane::Bulk, Box::pin(request.write_large(options, body))).await
        }
    }
}

impl WriteRequest {
    async fn options(&mut self) -> ApiResult<WriteOptions> {
        let dialect = self.endpoint.dialect();
        let sent = Pairs::parse_url(&self.parts.uri)?;
        let (parameters, unknown) = if dialect == Dialect::Native {
            let known: Vec<&str> = self.endpoint.parameters().collect();
            (Pairs::strict(sent, &known)?, None)
        } else {
            Pairs::lenient(sent, KNOWN_PARAMETERS)?
        };
        let in_path = self.parts.uri.path().strip_prefix(INGEST).and_then(|rest| rest.split('/').next());
        let headers = &self.parts.headers;
        let caller = &self.requester.caller;
        let options = WriteOptions::new(&self.app, &parameters, headers, dialect, caller, in_path).await?;
        push::check_headers(dialect, &mut self.parts.headers)?;
        Ok(WriteOptions { warning: unknown, ..options })
    }

    /// Returns the bytes of the body after decompression.
    fn plain_bytes(&self, body: &[u8]) -> usize {
        if self.endpoint.dialect() == Dialect::RemoteWrite { push::plain_bytes(body) } else { body.len() }
    }

    async fn receive(&mut self) -> ApiResult<ReceivedBody> {
        body::receive(&self.app, &self.requester.caller, &self.parts.headers, &mut self.body).await
    }

    async fn write_large(mut self, options: WriteOptions, received: ReceivedBody) -> Response {
        let read = match received {
            ReceivedBody::Complete(body) => Ok(body),
            ReceivedBody::Compressed(start) => {
                body::read_on(&self.app, &self.requester.caller, &self.parts.headers, &mut self.body, start).await
            }
        };
        let taken = match read {
            Ok(body) => self.take(&options, body).await,
            Err(error) => Err(error),
        };
        self.respond(taken).await
    }

    async fn take(&mut self, options: &WriteOptions, (body, admission): ReadBody) -> ApiResult<Ack> {
        let ingest = &self.app.ingest;
        let precision = options.precision;
        let arrival = options.arrival(&body, &self.requester);
        let mut ack = if let Some(mapping) = &options.mapping {
            let topic = options.topic.as_deref();
            let points = |limits| mapping::apply(mapping, topic, &body, limits, arrival.received);
            ingest.take(arrival, points, admission).await?
        } else {
            match self.endpoint.dialect() {
                Dialect::Native if is_csv(&self.parts.headers) => {
                    // Rejections quote rows as line protocol, in nanoseconds.
                    let arrival = Arrival { precision: Precision::Nanoseconds, ..arrival };
                    ingest.take(arrival, |limits| Rows::new(&body, precision, limits), admission).await?
                }
                Dialect::Native => {
                    ingest.take(arrival, |limits| Items::new(&body, precision, limits), admission).await?
                }
                Dialect::RemoteWrite => {
                    let body_bytes_max = self.app.settings.limits.body_bytes;
                    let (body, admission) = push::decompress((body, admission), body_bytes_max)?;
                    ingest.take(arrival, |limits| Samples::new(&body, limits), admission).await?
                }
                Dialect::Otlp => ingest.take(arrival, |limits| DataPoints::new(&body, limits), admission).await?,
                Dialect::V1 | Dialect::V2 | Dialect::V3 => {
                    ingest.take(arrival, |limits| Lines::new(&body, precision, limits), admission).await?
                }
            }
        };
        ack.warnings.extend(options.warning.clone());
        Ok(ack)
    }

    async fn respond(self, taken: ApiResult<Ack>) -> Response {
        let dialect = self.endpoint.dialect();
        match taken {
            Ok(ack) => with_ack_headers(answer(dialect, &ack), &ack),
            Err(error) => refuse(&self.app, &self.parts.headers, self.body, &error, dialect).await,
        }
    }
}

fn answer(dialect: Dialect, ack: &Ack) -> Response {
    if dialect == Dialect::Otlp {
        return push::otlp_answer(ack);
    }
    if dialect != Dialect::Native {
        return match ack.rejected.count {
            0 => StatusCode::NO_CONTENT.into_response(),
            _ => respond_partial(dialect, ack.accepted, &ack.rejected),
        };
    }
    let status = match ack.rejected.count {
        0 => StatusCode::OK,
        _ if is_forbidden(ack.accepted, &ack.rejected) => StatusCode::FORBIDDEN,
        _ => StatusCode::BAD_REQUEST,
    };
    (status, [("content-type", "application/json")], ack_json(ack)).into_response()
}

/// The options of a write, from parameters and headers.
pub(crate) struct WriteOptions {
    database: String,
    pub precision: Precision,
    /// True if the sender declared the precision.
    is_declared: bool,
    /// True if valid lines are stored although others are rejected.
    is_partial: bool,
    ack: Option<AckLevel>,
    key: Option<String>,
    /// Makes readings of messages as devices send them.
    pub mapping: Option<Arc<Mapping>>,
    /// The MQTT topic of the messages.
    pub topic: Option<String>,
    /// A warning about unknown parameters.
    warning: Option<String>,
}

impl WriteOptions {
    /// Parses the options, with the native dialect for JSON and another one for line protocol. Checks that the caller
    /// may write to the database, through the mapping that the path names.
    pub async fn new(
        app: &App,
        parameters: &Pairs,
        headers: &HeaderMap,
        dialect: Dialect,
        caller: &Caller,
        in_path: Option<&str>,
    ) -> ApiResult<Self> {
        let database = database(parameters, dialect, caller, in_path)?;
        let (precision, is_declared) = precision(parameters.get("precision"), dialect)?;
        // Valid JSON readings are always stored.
        let is_partial = dialect == Dialect::Native || parameters.flag("accept_partial")?.unwrap_or(true);
        let ack = ack_level(parameters.raw("ack"), headers)?;
        let key = request_key(headers)?;
        let mapping = in_path.or(parameters.get("mapping"));
        let mapping = match mapping {
            // Boxed, because it would make the futures of other requests larger.
            Some(name) => Some(Box::pin(app.ingest.mapping(&database, name)).await?),
            None => None,
        };
        let topic = parameters.get("topic").map(str::to_owned);
        Ok(Self { database, precision, is_declared, is_partial, ack, key, mapping, topic, warning: None })
    }

    /// Makes an arrival with these options and this body, received now.
    pub fn arrival<'a>(&'a self, body: &[u8], requester: &'a Requester) -> Arrival<'a> {
        Arrival {
            database: &self.database,
            precision: self.precision,
            is_precision_declared: self.is_declared,
            received: now_ns(),
            is_partial: self.is_partial,
            ack: self.ack,
            is_patient: false,
            turn: None,
            retry: self
                .key
                .as_deref()
                .map(|key| Retry::Key(RequestKey { key, body_hash: rapidhash::v3::rapidhash_v3(body) })),
            caller: &requester.caller,
            address: requester.address,
            mapping: self.mapping.as_deref().map(|mapping| &*mapping.name),
            topic: self.topic.as_deref(),
        }
    }
}

/// `POST /api/v1/flush`: 204 once all readings acked before the call are in the store, or 409 if all except dead
/// letters are. Waits up to `flush_timeout` for a slow store, and up to `flush_away_timeout` for an unavailable one.
pub async fn flush(State(app): State<Arc<App>>, Extension(requester): Extension<Requester>) -> Response {
    let flushed = flush_to_store(&app).await;
    let dead_letters = app.ingest.flushes.dead_letters.outstanding().await;
    let (outcome, response) = match (flushed, dead_letters) {
        (Err(error), _) => (error.to_string(), ApiError::from(error).respond(Dialect::Native)),
        (Ok(()), Err(error)) => {
            let unreadable = ApiError::Unreadable(format!("the dead letters: {error}"));
            ("done".to_owned(), unreadable.respond(Dialect::Native))
        }
        (Ok(()), Ok(letters)) if letters.readings() > 0 => {
            (format!("done, except for {}", letters.describe()), not_stored(&letters))
        }
        (Ok(()), Ok(_)) => ("done".to_owned(), StatusCode::NO_CONTENT.into_response()),
    };
    requester.note(&app, "FLUSH".to_owned(), "", outcome);
    response
}

/// Flushes all readings acked before the call, except dead letters, within the timeouts of [`flush`].
pub(crate) async fn flush_to_store(app: &App) -> Result<(), IngestError> {
    let patience = app.flush_away_timeout();
    tokio::select! {
        flushed = app.ingest.flush(app.flush_timeout()) => flushed,
        () = wait_while_away(app.health.clone(), patience) => Err(IngestError::StoreTimeout { waited: patience, key: AWAY_LIMIT }),
    }
}

/// The limit of a wait for an unavailable store, for error texts.
const AWAY_LIMIT: &str = "15 s without the store, or ingest.ack_timeout if longer";

/// Returns once the store has been unavailable for `patience` without interruption.
pub(crate) async fn wait_while_away(mut health: watch::Receiver<Health>, patience: Duration) {
    let is_away = |health: &Health| health.is_away();
    // An error means that the health sender was dropped. The flush then ends by its own timeout.
    while health.wait_for(is_away).await.is_ok() {
        let back = tokio::time::timeout(patience, health.wait_for(|health| !is_away(health))).await;
        match back {
            Ok(Ok(_)) => {}
            Ok(Err(_)) => break,
            Err(_) => return,
        }
    }
    std::future::pending().await
}

/// Reads the rest of the body and answers with the error. Counts refusals due to overload by the limit that was
/// reached.
async fn refuse(app: &App, headers: &HeaderMap, mut body: Body, error: &ApiError, dialect: Dialect) -> Response {
    if let ApiError::Ingest(IngestError::DatabaseFailing { .. }) = error {
        app.metrics.count_shed("ingest.database_share");
    }
    if let ApiError::Ingest(IngestError::Overloaded { key, .. }) = error {
        app.metrics.count_shed(key);
    }
    if !matches!(error, ApiError::BodyTimeout) {
        body::discard(app, headers, &mut body).await;
    }
    error.respond(dialect)
}

/// Adds the headers with the ack level and warnings.
fn with_ack_headers(mut response: Response, ack: &Ack) -> Response {
    if ack.accepted > 0 {
        response.headers_mut().insert(ACK_HEADER, HeaderValue::from_static(ack.level.name()));
    }
    add_texts(&mut response, WARNING_HEADER, &ack.warnings);
    response
}

/// Parses the ack level from the query parameter `ack`, else from the header.
pub fn ack_level(parameter: Option<&str>, headers: &HeaderMap) -> ApiResult<Option<AckLevel>> {
    let header = headers.get(ACK_HEADER).map(|value| value.to_str().unwrap_or("?"));
    let requested = parameter.or(header).filter(|name| !name.is_empty());
    let unknown = |name: &str| ApiError::Bad(format!("invalid ack level {name:?} (use log or store)"));
    requested.map(|name| AckLevel::from_name(name).ok_or_else(|| unknown(name))).transpose()
}

/// The headers with the idempotency key of a request.
const KEY_HEADERS: [&str; 2] = ["idempotency-key", "x-hourglass-request-id"];
/// Maximum length of an idempotency key, in bytes.
const KEY_BYTES_MAX: usize = 255;

/// Parses the idempotency key.
fn request_key(headers: &HeaderMap) -> ApiResult<Option<String>> {
    let mut keys = KEY_HEADERS.iter().flat_map(|name| headers.get_all(*name));
    let Some(key) = keys.next() else { return Ok(None) };
    if keys.any(|other| other != key) {
        return Err(ApiError::Bad(
            "the request has different keys: send one Idempotency-Key (or X-Hourglass-Request-Id)".to_owned(),
        ));
    }
    let text = key.to_str().ok().filter(|text| (1..=KEY_BYTES_MAX).contains(&text.len()));
    let invalid =
        || ApiError::Bad(format!("invalid Idempotency-Key: send 1 to {KEY_BYTES_MAX} printable ASCII characters"));
    text.map(|text| Some(text.to_owned())).ok_or_else(invalid)
}

/// Returns `db` or `bucket`, with the retention policy after a slash, if the caller may write to it. A slash in `db` of
/// InfluxDB 1.x is an error.
fn database(parameters: &Pairs, dialect: Dialect, caller: &Caller, mapping: Option<&str>) -> ApiResult<String> {
    let db = parameters.get("db");
    let default = caller.ingest_scope().map_or(DEFAULT_DATABASE, |scope| &scope.database);
    let name = db.or(parameters.get("bucket")).unwrap_or(default);
    let name = name.strip_suffix('/').unwrap_or(name);
    let policy = parameters.get("rp");
    let database = match policy {
        Some(policy) if !name.contains('/') => format!("{name}/{policy}"),
        _ => name.to_owned(),
    };
    match mapping {
        Some(mapping) => caller.check_ingest(&database, mapping)?,
        None => caller.check(Effect::Write, Some(&database))?,
    }
    if dialect == Dialect::V1 && db.is_some() && name.contains('/') {
        return Err(ApiError::Bad(format!("database not found: {name:?}: set the retention policy with rp")));
    }
    match (name.split_once('/'), policy) {
        (Some((_, named_policy)), Some(policy)) if named_policy != policy => {
            Err(ApiError::Bad(format!("the request names two retention policies: {named_policy} and {policy}")))
        }
        _ => Ok(database),
    }
}

/// Returns the precision, and true if the sender declared it. JSON and protobuf always declare one by their form.
fn precision(name: Option<&str>, dialect: Dialect) -> ApiResult<(Precision, bool)> {
    let has_own_unit = matches!(dialect, Dialect::RemoteWrite | Dialect::Otlp);
    let Some(name) = name.filter(|_| !has_own_unit) else {
        return Ok(match dialect {
            Dialect::RemoteWrite | Dialect::Otlp => (Precision::Nanoseconds, true),
            Dialect::V1 | Dialect::V2 => (Precision::Nanoseconds, false),
            Dialect::V3 => (Precision::Auto, false),
            Dialect::Native => (Precision::Auto, true),
        });
    };
    let precision = Precision::from_name(name).map(|precision| (precision, true));
    precision.ok_or_else(|| {
        ApiError::Bad(match dialect {
            Dialect::Native => format!("invalid precision {name:?} (use auto, n, u, ms, s, m or h)"),
            Dialect::V1 | Dialect::RemoteWrite | Dialect::Otlp => {
                format!("invalid precision {name:?} (use n, u, ms, s, m or h)")
            }
            Dialect::V2 => "invalid precision; valid precision units are ns, us, ms, and s".to_owned(),
            Dialect::V3 => format!("invalid precision {name:?} (use auto, ns, us, ms or s)"),
        })
    })
}
