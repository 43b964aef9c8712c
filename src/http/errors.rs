//! Errors of requests, and their formats for each client family: status, body, and the headers that client libraries
//! evaluate.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::access::{Denied, Forbidden};
use crate::bucket::{StorageError, UnflushedError};
use crate::edits::EditError;
use crate::ingest::{AckLevel, IngestError, MappingRefusal, PolicyError, RejectionSummary};
use crate::members::MemberError;
use crate::query::influx::StatementFailure;
use crate::query::{QueryError, Transient};
use crate::reading::Rejection;
use crate::wire::push::otlp::rpc_status;

/// Seconds in `Retry-After` of a 503.
const RETRY_AFTER: &str = "1";
/// The challenge of a 401. Some clients send credentials only after it.
const CHALLENGE: &str = "Basic realm=\"hourglass\"";
/// Answer header with warnings: quotas that are nearly used up, suspicious timestamps, ignored parameters.
pub const WARNING_HEADER: &str = "x-hourglass-warning";
/// Header with the requested ack level, and in answers the reached one.
pub const ACK_HEADER: &str = "x-hourglass-ack";
/// The media type of Prometheus remote write and OTLP.
pub const PROTOBUF: &str = "application/x-protobuf";
/// Maximum number of characters of a text in a header.
const HEADER_CHARS_MAX: usize = 1024;

/// The client family that determines the format of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// `{"error": "…", "code": "…"}`: the native API.
    Native,
    /// `{"error": "…"}`, as `InfluxDB` 1.x answers.
    V1,
    /// `{"code": "…", "message": "…"}`, as `InfluxDB` 2.x answers.
    V2,
    /// `{"error": "…", "data": […]}`, as `InfluxDB` 3 answers.
    V3,
    /// As for 1.x, except that a quota is answered with 503: Prometheus logs the text, and drops what gets a 429.
    RemoteWrite,
    /// Protobuf messages, as OTLP over HTTP demands.
    Otlp,
}

/// The result of handling a request.
pub type ApiResult<T> = Result<T, ApiError>;

/// The error of a request, with the text for the client.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ApiError {
    /// Something in the request is invalid; the text names it and the valid values.
    #[error("{0}")]
    Bad(String),
    /// The body exceeds a limit, on the wire or decompressed.
    #[error("Request Entity Too Large: the body exceeds {key} ({limit} bytes): send less at once")]
    TooLarge {
        /// In bytes.
        limit: usize,
        /// The configuration key or name of the limit.
        key: &'static str,
    },
    /// The body did not arrive in time. Not 408, because Telegraf would drop its readings.
    #[error("the body did not arrive in time (within 30 s, and at 1 KiB/s after 10 s)")]
    BodyTimeout,
    /// The body's encoding is not supported.
    #[error("content encoding {0:?} is not supported: use gzip, deflate, zstd or none")]
    Encoding(String),
    /// The body is of another format; the text says which one is expected here, and where to send others.
    #[error("{0}")]
    MediaType(String),
    /// A file cannot be read; the text names it.
    #[error("cannot read {0}")]
    Unreadable(String),
    /// The sender is not authenticated.
    #[error("{}", denial(*.0))]
    Denied(Denied),
    /// The sender may not do this; the text has the details.
    #[error("forbidden: {0}")]
    Forbidden(String),
    /// A limit of concurrent requests is reached; the text names it.
    #[error("{0}")]
    Busy(String),
    /// Nothing has the name in the request; the text says where to find the names.
    #[error("{0}")]
    NotFound(String),
    /// The request conflicts with the current state; the text says what to do.
    #[error("{0}")]
    Conflict(String),
    /// A precondition (`If-Match`) failed, because the resource has changed.
    #[error("{0}")]
    Changed(String),
    /// Writing failed.
    #[error(transparent)]
    Ingest(#[from] IngestError),
    /// A query failed.
    #[error(transparent)]
    Query(#[from] QueryError),
}

/// Returns the text for an unauthenticated client. It does not reveal what is wrong with the token; the audit trail
/// does.
fn denial(denied: Denied) -> &'static str {
    match denied {
        Denied::Unavailable => "the tokens are not loaded yet: try again later",
        _ => "authorization failed: send a valid token (Authorization: Token …, Bearer … or Basic, or the parameter p)",
    }
}

impl Transient for ApiError {
    fn is_transient(&self) -> bool {
        match self {
            Self::Query(error) => error.is_transient(),
            Self::Ingest(error) => matches!(error, IngestError::Unflushed(_)),
            _ => false,
        }
    }

    fn store_error(&self) -> Option<&StorageError> {
        if let Self::Query(error) = self { error.store_error() } else { None }
    }
}

impl From<StatementFailure> for ApiError {
    fn from(failure: StatementFailure) -> Self {
        match failure {
            StatementFailure::Query(error) => error.into(),
            StatementFailure::Forbidden(forbidden) => forbidden.into(),
            StatementFailure::UnknownDatabase(_) => Self::NotFound(failure.to_string()),
            _ => Self::Bad(failure.to_string()),
        }
    }
}

impl From<Forbidden> for ApiError {
    fn from(forbidden: Forbidden) -> Self {
        Self::Forbidden(forbidden.to_string())
    }
}

impl From<EditError> for ApiError {
    fn from(error: EditError) -> Self {
        match error {
            EditError::Refused(text) => Self::Bad(text),
            full @ EditError::Full { .. } => Self::Busy(full.to_string()),
            EditError::Statement(failure) => failure.into(),
            EditError::Ingest(error) => error.into(),
            EditError::Query(error) => error.into(),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        self.respond(Dialect::Native)
    }
}

impl ApiError {
    pub fn status(&self) -> StatusCode {
        self.class().0
    }

    /// The stable code for programs. All codes are listed in `/openapi.json`.
    pub fn code(&self) -> &'static str {
        self.class().1
    }

    /// Returns the status and the code. The status is 503 if a retry may succeed, and never 5xx for invalid data.
    fn class(&self) -> (StatusCode, &'static str) {
        match self {
            Self::Bad(_) => (StatusCode::BAD_REQUEST, "invalid"),
            Self::TooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, "too_large"),
            Self::BodyTimeout => (StatusCode::SERVICE_UNAVAILABLE, "body_timeout"),
            Self::Encoding(_) => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_encoding"),
            Self::MediaType(_) => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type"),
            Self::Unreadable(_) => (StatusCode::SERVICE_UNAVAILABLE, "unreadable_file"),
            Self::Denied(Denied::Unavailable) => (StatusCode::SERVICE_UNAVAILABLE, "tokens_not_loaded"),
            Self::Denied(_) => (StatusCode::UNAUTHORIZED, "unauthorized"),
            Self::Forbidden(_) => (StatusCode::FORBIDDEN, "forbidden"),
            Self::Changed(_) => (StatusCode::PRECONDITION_FAILED, "changed"),
            Self::Busy(_) => (StatusCode::SERVICE_UNAVAILABLE, "busy"),
            Self::Conflict(_) => (StatusCode::CONFLICT, "conflict"),
            Self::NotFound(_) => (StatusCode::NOT_FOUND, "not_found"),
            Self::Ingest(error) => class_of_ingest(error),
            Self::Query(error) => class_of_query(error),
        }
    }

    /// Makes the response in the format of a client family.
    pub fn respond(&self, dialect: Dialect) -> Response {
        let status = match self.status() {
            StatusCode::TOO_MANY_REQUESTS if dialect == Dialect::RemoteWrite => StatusCode::SERVICE_UNAVAILABLE,
            status => status,
        };
        let message = self.to_string();
        let mut body = error_body(dialect, status, &message);
        if dialect == Dialect::Native {
            body["code"] = json!(self.code());
        }
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
        // The write is in the WAL, but the requested ack level was not reached.
        if matches!(self, Self::Ingest(IngestError::StoreTimeout { .. } | IngestError::DeletionTimeout(_))) {
            response.headers_mut().insert(ACK_HEADER, HeaderValue::from_static(AckLevel::Log.name()));
        }
        response
    }
}

/// Returns true if a retry of the same lines over TCP may succeed. After a timeout they may have been written.
pub fn can_pass(error: &IngestError) -> bool {
    let may_be_written = matches!(error, IngestError::Timeout { .. } | IngestError::Stopping);
    !may_be_written && class_of_ingest(error).0 == StatusCode::SERVICE_UNAVAILABLE
}

fn class_of_ingest(error: &IngestError) -> (StatusCode, &'static str) {
    let code = match error {
        IngestError::Storage(error) => return class_of_storage(error),
        IngestError::TooLarge { .. } | IngestError::LinesToExplain { .. } => {
            return (StatusCode::PAYLOAD_TOO_LARGE, "too_large");
        }
        IngestError::OverQuota(_) => return (StatusCode::TOO_MANY_REQUESTS, "over_quota"),
        // Not 429, because clients would retry.
        IngestError::DatabaseQuota { .. } => return (StatusCode::FORBIDDEN, "database_quota"),
        IngestError::TooManyDatabases { .. } => return (StatusCode::BAD_REQUEST, "too_many_databases"),
        IngestError::ExpiredHourSplit(_) => return (StatusCode::BAD_REQUEST, "expired_hours"),
        IngestError::DatabaseName { .. } => return (StatusCode::BAD_REQUEST, "invalid_database"),
        IngestError::KeyOfOtherBody => return (StatusCode::BAD_REQUEST, "key_of_other_body"),
        IngestError::Policy(PolicyError::NoDatabase(_))
        | IngestError::Mapping(MappingRefusal::Unknown { .. } | MappingRefusal::NotOwn { .. }) => {
            return (StatusCode::NOT_FOUND, "not_found");
        }
        IngestError::Policy(_) => return (StatusCode::BAD_REQUEST, "retention_policy"),
        IngestError::Rename(_) => return (StatusCode::BAD_REQUEST, "rename"),
        IngestError::Mapping(_) => return (StatusCode::BAD_REQUEST, "mapping"),
        IngestError::Overloaded { .. } => "overloaded",
        IngestError::KeyInFlight => "key_in_flight",
        IngestError::KeyUnwritten { .. } => "key_unwritten",
        IngestError::TimesTaken => "times_taken",
        IngestError::Log(_) => "log_unwritable",
        IngestError::Timeout { .. } => "timeout",
        IngestError::StoreTimeout { .. } => "store_timeout",
        IngestError::DeletionTimeout(_) | IngestError::StillDeleting(_) => "deletion_timeout",
        IngestError::OthersBehind { .. } => "others_behind",
        IngestError::Unflushed(error) => unflushed_code(error),
        IngestError::BeingDropped { .. } => "being_deleted",
        IngestError::DatabaseFailing { .. } => "database_failing",
        IngestError::Member(MemberError::NotJoined) => "not_registered",
        IngestError::Member(MemberError::Clock { .. } | MemberError::Ahead { .. }) => "clock",
        IngestError::LongDeletions { .. } | IngestError::TooManyDeletions { .. } => "too_many_deletions",
        IngestError::Stopping => "stopping",
    };
    (StatusCode::SERVICE_UNAVAILABLE, code)
}

fn unflushed_code(error: &UnflushedError) -> &'static str {
    match error {
        UnflushedError::Replaying => "replaying",
        UnflushedError::Missing(_) => "instance_missing",
    }
}

fn class_of_query(error: &QueryError) -> (StatusCode, &'static str) {
    match error {
        QueryError::Storage(error) => class_of_storage(error),
        QueryError::TooLarge { .. }
        | QueryError::HourTooLarge { .. }
        | QueryError::TooManySensors { .. }
        | QueryError::TooManyColumns
        | QueryError::TooManyPatterns => (StatusCode::BAD_REQUEST, "query_too_large"),
        QueryError::Pattern { .. } | QueryError::Killed => (StatusCode::BAD_REQUEST, "invalid"),
        QueryError::Unflushed(error) => (StatusCode::SERVICE_UNAVAILABLE, unflushed_code(error)),
        QueryError::Full { .. }
        | QueryError::TokenFull { .. }
        | QueryError::Overloaded { .. }
        | QueryError::Exporting
        | QueryError::Changed
        | QueryError::Disconnected => (StatusCode::SERVICE_UNAVAILABLE, "overloaded"),
        QueryError::Timeout { .. } => (StatusCode::SERVICE_UNAVAILABLE, "timeout"),
    }
}

fn class_of_storage(error: &StorageError) -> (StatusCode, &'static str) {
    let code = match error {
        StorageError::Refused { .. } => return (StatusCode::BAD_REQUEST, "store_refused"),
        StorageError::Address { .. } => return (StatusCode::BAD_REQUEST, "store_unusable"),
        StorageError::HourTooLarge { .. } => return (StatusCode::BAD_REQUEST, "query_too_large"),
        StorageError::Unavailable { .. } => "store_unavailable",
        StorageError::Unknown { .. } => "store_unconfirmed",
        StorageError::Contended { .. } | StorageError::Busy { .. } | StorageError::ReadAgain { .. } => "store_busy",
        StorageError::Failing { .. } => "store_failing",
        StorageError::Unusable { .. } => "store_unusable",
        StorageError::Database { .. } => "store_database",
        StorageError::Unreadable { .. } => "store_unreadable",
        StorageError::Newer { .. } => "store_newer",
    };
    (StatusCode::SERVICE_UNAVAILABLE, code)
}

/// The code for an unknown path.
pub const NO_ENDPOINT: &str = "no_endpoint";
/// The code for an unsupported method.
pub const WRONG_METHOD: &str = "method_not_allowed";
/// The code of a flush with dead letters.
pub const DEAD_LETTERS: &str = "dead_letters";
/// The code of a write with rejected readings.
pub const REJECTED: &str = "rejected";

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
        StatusCode::CONFLICT => "conflict",
        _ => "invalid",
    }
}

/// The gRPC code of a status, for `google.rpc.Status`.
fn rpc_code(status: StatusCode) -> u8 {
    match status {
        StatusCode::UNAUTHORIZED => 16,
        StatusCode::FORBIDDEN => 7,
        StatusCode::TOO_MANY_REQUESTS | StatusCode::PAYLOAD_TOO_LARGE => 8,
        StatusCode::SERVICE_UNAVAILABLE => 14,
        _ => 3,
    }
}

fn error_body(dialect: Dialect, status: StatusCode, message: &str) -> Value {
    match dialect {
        Dialect::Native | Dialect::V1 | Dialect::RemoteWrite | Dialect::Otlp => json!({ "error": message }),
        Dialect::V2 => json!({ "code": v2_code(status), "message": message }),
        Dialect::V3 => json!({ "error": message, "data": [] }),
    }
}

fn error_response(status: StatusCode, message: &str, body: &Value, dialect: Dialect) -> Response {
    if dialect == Dialect::Otlp {
        return (status, [(header::CONTENT_TYPE, PROTOBUF)], rpc_status(rpc_code(status), message)).into_response();
    }
    let mut response = (status, Json(body)).into_response();
    add_texts(&mut response, "x-influxdb-error", &[message]);
    if dialect == Dialect::V2 {
        response.headers_mut().insert("x-platform-error-code", HeaderValue::from_static(v2_code(status)));
    }
    response
}

/// Adds a header with the texts, joined by `; `, if there are any. Shortens them and replaces all characters except
/// printable ASCII by spaces.
pub fn add_texts(response: &mut Response, header: &'static str, texts: &[impl AsRef<str>]) {
    let texts: Vec<&str> = texts.iter().map(AsRef::as_ref).collect();
    let printable = |c: char| if c.is_ascii_graphic() { c } else { ' ' };
    let shown: String = texts.join("; ").chars().take(HEADER_CHARS_MAX).map(printable).collect();
    if let Ok(value) = HeaderValue::from_str(shown.trim())
        && !texts.is_empty()
    {
        response.headers_mut().insert(header, value);
    }
}

/// Makes the answer to a write with rejected readings. The accepted ones are acked.
pub fn respond_partial(dialect: Dialect, accepted: usize, rejected: &RejectionSummary) -> Response {
    let message = v1_message(accepted, rejected);
    if is_forbidden(accepted, rejected) {
        return ApiError::Forbidden(message).respond(dialect);
    }
    let is_unprocessable = dialect == Dialect::V2 && rejected.reasons.keys().all(|reason| *reason == "family");
    let status = if is_unprocessable { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::BAD_REQUEST };
    let message = match dialect {
        Dialect::V2 if is_unprocessable => format!("failure writing points to database: {message}"),
        Dialect::V3 if accepted > 0 => "partial write of line protocol occurred".to_owned(),
        Dialect::V3 => "line protocol parsing error".to_owned(),
        _ => message,
    };
    let mut body = error_body(dialect, status, &message);
    match dialect {
        Dialect::V2 => body["line"] = json!(rejected.reported.first().map_or(0, |rejection| rejection.line)),
        Dialect::V3 => body["data"] = rejected.reported.iter().map(v3_item).collect(),
        Dialect::V1 | Dialect::Native | Dialect::RemoteWrite | Dialect::Otlp => {}
    }
    error_response(status, &message, &body, dialect)
}

/// Returns true if all readings were rejected because the sender may not write them.
pub fn is_forbidden(accepted: usize, rejected: &RejectionSummary) -> bool {
    accepted == 0 && rejected.count > 0 && rejected.reasons.keys().all(|reason| *reason == "forbidden")
}

/// Makes the error text with the words that 1.x clients look for: `unable to parse`, and `partial write` with
/// `dropped=`.
pub fn v1_message(accepted: usize, rejected: &RejectionSummary) -> String {
    // The exact text of InfluxDB, which its clients parse.
    if rejected.count > 0 && rejected.reasons.keys().all(|reason| *reason == "retention") {
        return format!("partial write: points beyond retention policy dropped={}", rejected.count);
    }
    let explain = |rejection: &Rejection| {
        if rejection.reason.keeps_other_fields() {
            format!("{} (line {})", rejection.reason, rejection.line)
        } else {
            format!("unable to parse '{}': {}", rejection.text, rejection.message())
        }
    };
    let mut lines: Vec<String> = rejected.reported.iter().map(explain).collect();
    if rejected.count > rejected.reported.len() {
        lines.push(format!("and {} more", rejected.count - rejected.reported.len()));
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
