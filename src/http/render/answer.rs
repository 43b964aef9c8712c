//! A complete answer: its format, the cursor of the next part, and its tag. The body is built before the
//! status is sent, so a failure gives an error status, never a body that breaks off.

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::format::Format;
use super::text::Text;
use crate::http::errors::add_texts;
use crate::query::QueryError;

/// The version reported to clients, which choose their protocol by it: this service speaks that of 1.x.
pub const INFLUX_VERSION: &str = "1.8.10";

/// Notices, for formats whose body has no place for them.
pub const NOTICE_HEADER: &str = "x-hourglass-notice";
/// The cursor of the next part, for formats whose body has no place for it.
const NEXT_HEADER: &str = "x-next-cursor";

pub struct Answer {
    pub format: Format,
    pub body: Text,
    /// The cursor of the next part.
    pub next: Option<String>,
    /// Whether the range ends in the past, so that only late data can change the answer.
    pub is_past: bool,
    /// What the answer says beside its data; in a header where the body has no place for it.
    pub notices: Vec<String>,
}

impl Answer {
    /// The response: 304 if the client has exactly this answer already. Answers about the past have a tag, by which a
    /// client asks again, because late data may arrive at any moment; answers up to now have none.
    ///
    /// # Errors
    /// When the query's budget is used up.
    pub fn respond(mut self, request: &HeaderMap) -> Result<Response, QueryError> {
        let tag = if self.is_past { Some(self.tag()?) } else { None };
        let is_known = tag.as_deref().is_some_and(|tag| knows(request, tag));
        let mut response = match is_known {
            true => StatusCode::NOT_MODIFIED.into_response(),
            false => self.body.respond(self.format.media_type())?,
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

    /// The ETag: weak, since the same answer has different bytes when compressed. All instances compute the same tag.
    fn tag(&mut self) -> Result<String, QueryError> {
        let hash = self.body.hash()?;
        let next = rapidhash::v3::rapidhash_v3(self.next.as_deref().unwrap_or_default().as_bytes());
        Ok(format!("W/\"{hash:016x}{next:016x}\""))
    }
}

/// Whether the client has the answer with this tag (RFC 9110, 13.1.2).
pub(crate) fn knows(request: &HeaderMap, tag: &str) -> bool {
    let plain = |tag: &str| tag.trim().trim_start_matches("W/").to_owned();
    let sent = request.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    sent.flat_map(|value| value.split(',')).any(|sent| sent.trim() == "*" || plain(sent) == plain(tag))
}
