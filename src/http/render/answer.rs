//! Answers with their format, cursor and ETag. The body is built before the status is sent, so an error gets an error
//! status and never truncates a body. Only an answer without a limit begins before it is complete.

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::format::Format;
use super::text::Text;
use crate::http::errors::add_texts;
use crate::query::QueryError;

/// The version of InfluxDB that is reported to clients, so that they use the protocol of 1.x.
pub const INFLUX_VERSION: &str = "1.8.10";

/// Header with notices, for answers without them in the body.
pub const NOTICE_HEADER: &str = "x-hourglass-notice";
/// Header with the cursor of the next part, for formats without it in the body.
const NEXT_HEADER: &str = "x-next-cursor";

/// An answer.
pub struct Answer {
    pub format: Format,
    pub body: Text,
    /// The cursor of the next part.
    pub next: Option<String>,
    /// True if the range ends in the past, so that only late data can change the answer.
    pub is_past: bool,
    /// Notices, sent in a header for formats without them in the body.
    pub notices: Vec<String>,
}

impl Answer {
    /// Makes the response, with status 304 if the client already has this answer. Answers about the past have an ETag for
    /// revalidation, because late data may change them. Answers up to now have none.
    ///
    /// # Errors
    /// If the budget of the query is used up.
    pub fn respond(mut self, request: &HeaderMap) -> Result<Response, QueryError> {
        let tag = if self.is_past { Some(self.tag()?) } else { None };
        let is_cached = tag.as_deref().is_some_and(|tag| has_tag(request, tag));
        let mut response = if is_cached {
            StatusCode::NOT_MODIFIED.into_response()
        } else {
            self.body.respond(self.format.media_type())?
        };
        if let Some(tag) = tag.and_then(|tag| tag.parse().ok()) {
            response.headers_mut().insert(header::ETAG, tag);
        }
        add_headers(&mut response, self.format, self.next.as_deref(), &self.notices);
        Ok(response)
    }

    /// Makes a response that begins with the body, and continues with what `write` adds. It has no ETag.
    pub fn stream<F>(self, write: impl FnOnce(Text) -> F) -> Response
    where
        F: Future<Output = Result<Text, QueryError>> + Send + 'static,
    {
        let Self { format, body, next, notices, .. } = self;
        let mut response = body.stream(format.media_type(), write);
        add_headers(&mut response, format, next.as_deref(), &notices);
        response
    }

    /// Computes the ETag. It is weak, because compression changes the bytes. It is the same on all instances.
    fn tag(&mut self) -> Result<String, QueryError> {
        let hash = self.body.hash()?;
        let next = rapidhash::v3::rapidhash_v3(self.next.as_deref().unwrap_or_default().as_bytes());
        Ok(format!("W/\"{hash:016x}{next:016x}\""))
    }
}

fn add_headers(response: &mut Response, format: Format, next: Option<&str>, notices: &[String]) {
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("accept"));
    if format == Format::Json {
        return;
    }
    add_texts(response, NOTICE_HEADER, notices);
    if let Some(next) = next.and_then(|next| HeaderValue::from_str(next).ok()) {
        response.headers_mut().insert(NEXT_HEADER, next);
    }
}

/// Returns true if `If-None-Match` has this tag (RFC 9110, 13.1.2).
pub(crate) fn has_tag(request: &HeaderMap, tag: &str) -> bool {
    let plain = |tag: &str| tag.trim().trim_start_matches("W/").to_owned();
    let sent = request.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    sent.flat_map(|value| value.split(',')).any(|sent| sent.trim() == "*" || plain(sent) == plain(tag))
}
