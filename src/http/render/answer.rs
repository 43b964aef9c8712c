//! Complete answers, with their format, cursor and ETag. The body is built before the status is sent, so an error gets an
//! error status and never truncates a body.

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::format::Format;
use super::text::Text;
use crate::http::errors::add_texts;
use crate::query::QueryError;

/// The version of InfluxDB that is reported to clients, so that they use the protocol of 1.x.
pub const INFLUX_VERSION: &str = "1.8.10";

/// Header with notices, for formats without them in the body.
pub const NOTICE_HEADER: &str = "x-hourglass-notice";
/// Header with the cursor of the next part, for formats without it in the body.
const NEXT_HEADER: &str = "x-next-cursor";

/// A complete answer.
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
        if self.format != Format::Json {
            add_texts(&mut response, NOTICE_HEADER, &self.notices);
        }
        let headers = response.headers_mut();
        headers.insert(header::VARY, HeaderValue::from_static("accept"));
        if let Some(tag) = tag.and_then(|tag| tag.parse().ok()) {
            headers.insert(header::ETAG, tag);
        }
        if self.format != Format::Json
            && let Some(next) = self.next.and_then(|next| HeaderValue::from_str(&next).ok())
        {
            headers.insert(NEXT_HEADER, next);
        }
        Ok(response)
    }

    /// Computes the ETag. It is weak, because compression changes the bytes. It is the same on all instances.
    fn tag(&mut self) -> Result<String, QueryError> {
        let hash = self.body.hash()?;
        let next = rapidhash::v3::rapidhash_v3(self.next.as_deref().unwrap_or_default().as_bytes());
        Ok(format!("W/\"{hash:016x}{next:016x}\""))
    }
}

/// Returns true if `If-None-Match` has this tag (RFC 9110, 13.1.2).
pub(crate) fn has_tag(request: &HeaderMap, tag: &str) -> bool {
    let plain = |tag: &str| tag.trim().trim_start_matches("W/").to_owned();
    let sent = request.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    sent.flat_map(|value| value.split(',')).any(|sent| sent.trim() == "*" || plain(sent) == plain(tag))
}
