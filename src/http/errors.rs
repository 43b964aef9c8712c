//! What goes wrong in a request, and how each kind of client is told: the status, the body's
//! shape and the headers that their libraries look for.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::access::Denied;
use crate::bucket::StorageError;
use crate::ingest::{AckLevel, IngestError, Rejected};
use crate::query::{Passing, QueryError};
use crate::reading::Rejection;

/// Seconds that a client is asked to wait before it tries again.
const RETRY_AFTER: &str = "1";
/// What clients without a token are asked for; some send one only when asked.
const CHALLENGE: &str = "Basic realm=\"hourglass\"";
/// Tells of what is kept and yet not as it should be: quotas nearly used up, timestamps that look odd.
pub const WARNING_HEADER: &str = "x-hourglass-warning";
/// Names the level that an ack reached, and that a request asks for.
pub const ACK_HEADER: &str = "x-hourglass-ack";
/// How much of an error text goes into a header.
const HEADER_BYTES_MAX: usize = 1024;

/// Whose shape an answer has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// `{"error": "…"}`, as `InfluxDB` 1.x answers; also our own API's.
    V1,
    /// `{"code": "…", "message": "…"}`, as `InfluxDB` 2.x answers.
    V2,
    /// `{"error": "…", "data": […]}`, as `InfluxDB` 3 answers.
    V3,
}

/// Why a request was not answered as asked.
#[derive(Debug, Clone)]
pub enum ApiError {
    /// A parameter or header that cannot be used; the text names it and says what would do.
    Bad(String),
    /// A body, or what it decompresses to, over `limits.body_bytes`.
    TooLarge {
        /// The limit's value.
        limit: usize,
    },
    /// A body that did not arrive in time. Not 408, on which Telegraf drops its readings.
    BodyTimeout,
    /// A body in an encoding not known here.
    Encoding(String),
    /// What was asked for lies on a disk that does not give it.
    Unreadable(String),
    /// Nobody knows who sent it.
    Denied(Denied),
    /// Who sent it may not do this; the text names what.
    Forbidden(String),
    /// Writing failed.
    Ingest(IngestError),
    /// A query failed.
    Query(QueryError),
}

impl Passing for ApiError {
    fn is_passing(&self) -> bool {
        match self {
            Self::Query(error) => error.is_passing(),
            Self::Ingest(error) => matches!(error, IngestError::Behind(_)),
            _ => false,
        }
    }

    fn of_store(&self) -> Option<&StorageError> {
        if let Self::Query(error) = self { error.of_store() } else { None }
    }
}

impl From<IngestError> for ApiError {
    fn from(error: IngestError) -> Self {
        Self::Ingest(error)
    }
}

impl From<QueryError> for ApiError {
    fn from(error: QueryError) -> Self {
        Self::Query(error)
    }
}

impl ApiError {
    /// The status: 503 for what waiting mends, never 5xx for data that can never be accepted.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Bad(_) => StatusCode::BAD_REQUEST,
            Self::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::BodyTimeout | Self::Unreadable(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Encoding(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Denied(Denied::Unavailable) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Denied(_) => StatusCode::UNAUTHORIZED,
            Self::Forbidden(_) => StatusCode::FORBIDDEN,
            Self::Ingest(error) => match error {
                IngestError::Storage(error) => of_storage(error),
                IngestError::Overloaded { .. }
                | IngestError::Log(_)
                | IngestError::Timeout(_)
                | IngestError::StoreTimeout(_)
                | IngestError::DeletionTimeout(_)
                | IngestError::BeingDeleted { .. }
                | IngestError::DatabaseFailing { .. }
                | IngestError::TooManyDeletions { .. }
                | IngestError::Clock { .. }
                | IngestError::NotJoined
                | IngestError::Ahead { .. }
                | IngestError::LongDeletions { .. }
                | IngestError::Behind(_)
                | IngestError::Stopping => StatusCode::SERVICE_UNAVAILABLE,
                IngestError::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
                IngestError::OverQuota(_) => StatusCode::TOO_MANY_REQUESTS,
                IngestError::TooManyDatabases { .. } | IngestError::DatabaseName { .. } => StatusCode::BAD_REQUEST,
            },
            Self::Query(error) => match error {
                QueryError::Storage(error) => of_storage(error),
                QueryError::TooLarge { .. }
                | QueryError::TooLong { .. }
                | QueryError::TooManySensors { .. }
                | QueryError::TooManyColumns
                | QueryError::TooManyPatterns
                | QueryError::Pattern { .. } => StatusCode::BAD_REQUEST,
                QueryError::Full { .. }
                | QueryError::TokenFull { .. }
                | QueryError::Timeout { .. }
                | QueryError::Overloaded { .. }
                | QueryError::Behind(_) => StatusCode::SERVICE_UNAVAILABLE,
            },
        }
    }

    /// What the client is told.
    pub fn message(&self) -> String {
        match self {
            Self::Bad(message) => message.clone(),
            Self::TooLarge { limit } => {
                format!(
                    "Request Entity Too Large: the body is over {limit} bytes (limits.body_bytes): send smaller batches"
                )
            }
            Self::BodyTimeout => {
                "the body did not arrive in time (server.body_timeout, and 1 KiB/s after 10 s)".to_owned()
            }
            Self::Encoding(encoding) => {
                format!("content encoding {encoding:?} is not known: use one of gzip, deflate and zstd, or none")
            }
            Self::Unreadable(what) => format!("not readable at present: {what}"),
            // What of it was wrong is for nobody to know but the audit log.
            Self::Denied(Denied::Unavailable) => "the tokens are not known at present".to_owned(),
            Self::Denied(_) => {
                "authorization failed: send a token that counts (Authorization: Token …, Bearer …, Basic, or ?p=)"
                    .to_owned()
            }
            Self::Forbidden(what) => format!("forbidden: {what}"),
            Self::Ingest(error) => error.to_string(),
            Self::Query(error) => error.to_string(),
        }
    }

    /// The answer in a dialect.
    pub fn respond(&self, dialect: Dialect) -> Response {
        let (status, message) = (self.status(), self.message());
        let body = match dialect {
            Dialect::V1 => json!({ "error": message }),
            Dialect::V2 => json!({ "code": v2_code(status), "message": message }),
            Dialect::V3 => json!({ "error": message, "data": [] }),
        };
        let mut response = error_response(status, &message, &body, dialect);
        match self {
            Self::Ingest(IngestError::OverQuota(exhausted)) => {
                let seconds = exhausted.retry_after.as_secs().saturating_add(1);
                response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
            }
            _ if status == StatusCode::SERVICE_UNAVAILABLE => {
                response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER));
            }
            _ if status == StatusCode::UNAUTHORIZED => {
                response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(CHALLENGE));
            }
            _ => {}
        }
        // The readings are safe; only the level that was asked for was not reached.
        if matches!(self, Self::Ingest(IngestError::StoreTimeout(_) | IngestError::DeletionTimeout(_))) {
            response.headers_mut().insert(ACK_HEADER, HeaderValue::from_static(AckLevel::Log.name()));
        }
        response
    }
}

fn of_storage(error: &StorageError) -> StatusCode {
    match error {
        StorageError::Refused { .. } => StatusCode::BAD_REQUEST,
        StorageError::Unavailable { .. }
        | StorageError::Contended { .. }
        | StorageError::Busy { .. }
        | StorageError::Failing { .. }
        | StorageError::Unknown { .. }
        | StorageError::Denied { .. }
        | StorageError::Database { .. }
        | StorageError::Unreadable { .. } => StatusCode::SERVICE_UNAVAILABLE,
    }
}

fn v2_code(status: StatusCode) -> &'static str {
    match status {
        StatusCode::PAYLOAD_TOO_LARGE => "request too large",
        StatusCode::UNPROCESSABLE_ENTITY => "unprocessable entity",
        StatusCode::SERVICE_UNAVAILABLE => "unavailable",
        StatusCode::NOT_FOUND => "not found",
        StatusCode::UNAUTHORIZED => "unauthorized",
        StatusCode::FORBIDDEN => "forbidden",
        StatusCode::TOO_MANY_REQUESTS => "too many requests",
        StatusCode::METHOD_NOT_ALLOWED => "method not allowed",
        _ => "invalid",
    }
}

fn error_response(status: StatusCode, message: &str, body: &Value, dialect: Dialect) -> Response {
    let mut response = (status, Json(body)).into_response();
    if let Some(value) = in_header(message) {
        response.headers_mut().insert("x-influxdb-error", value);
    }
    if dialect == Dialect::V2 {
        response.headers_mut().insert("x-platform-error-code", HeaderValue::from_static(v2_code(status)));
    }
    response
}

/// A text as far as a header can hold it: no line ends, nothing beyond ASCII.
pub fn in_header(text: &str) -> Option<HeaderValue> {
    let shown: String =
        text.chars().take(HEADER_BYTES_MAX).map(|c| if c.is_ascii_graphic() { c } else { ' ' }).collect();
    HeaderValue::from_str(shown.trim()).ok()
}

/// The answer to a write of which something was not kept; what was kept is acked.
pub fn respond_partial(dialect: Dialect, accepted: usize, rejected: &Rejected) -> Response {
    if is_forbidden(accepted, rejected) {
        return ApiError::Forbidden(v1_message(accepted, rejected)).respond(dialect);
    }
    match dialect {
        Dialect::V1 => {
            let message = v1_message(accepted, rejected);
            error_response(StatusCode::BAD_REQUEST, &message, &json!({ "error": message }), dialect)
        }
        Dialect::V2 => {
            let all_unprocessable = rejected.reasons.keys().all(|reason| *reason == "family");
            let (status, message) = if all_unprocessable {
                let message = format!("failure writing points to database: {}", v1_message(accepted, rejected));
                (StatusCode::UNPROCESSABLE_ENTITY, message)
            } else {
                (StatusCode::BAD_REQUEST, v1_message(accepted, rejected))
            };
            let line = rejected.told.first().map_or(0, |rejection| rejection.line);
            let body = json!({ "code": v2_code(status), "message": message, "line": line });
            error_response(status, &message, &body, dialect)
        }
        Dialect::V3 => {
            let message =
                if accepted > 0 { "partial write of line protocol occurred" } else { "line protocol parsing error" };
            let data: Vec<Value> = rejected.told.iter().map(v3_item).collect();
            error_response(StatusCode::BAD_REQUEST, message, &json!({ "error": message, "data": data }), dialect)
        }
    }
}

/// Whether nothing was kept because the sender may write none of it.
pub fn is_forbidden(accepted: usize, rejected: &Rejected) -> bool {
    accepted == 0 && rejected.count > 0 && rejected.reasons.keys().all(|reason| *reason == "forbidden")
}

/// The words that 1.x clients look for: `unable to parse` and `partial write`, with `dropped=`.
fn v1_message(accepted: usize, rejected: &Rejected) -> String {
    let explain = |rejection: &Rejection| {
        if rejection.reason.keeps_the_rest() {
            format!("{} (line {})", rejection.reason, rejection.line)
        } else {
            format!("unable to parse '{}': {}", rejection.text, rejection.message())
        }
    };
    let mut lines: Vec<String> = rejected.told.iter().map(explain).collect();
    if rejected.count > rejected.told.len() {
        lines.push(format!("and {} more", rejected.count - rejected.told.len()));
    }
    let text = lines.join("\n");
    if accepted == 0 { text } else { format!("partial write: {text} dropped={}", rejected.count) }
}

fn v3_item(rejection: &Rejection) -> Value {
    json!({
        "error_message": rejection.message(),
        "line_number": rejection.line,
        "original_line": rejection.text,
    })
}
