//! A whole answer on its way out: its format, the cursor of the next part, and what a cache may do with it. It is built
//! before its status is sent: what fails before is an error status, never a body that breaks off.

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::format::Format;
use super::text::Text;
use crate::query::QueryError;

/// Where the next part begins, for formats that have no place for it in the body.
const NEXT_HEADER: &str = "x-next-cursor";

/// An answer.
pub struct Answer {
    /// How its body is written.
    pub format: Format,
    /// All of it.
    pub body: Text,
    /// Where the next part begins.
    pub next: Option<String>,
    /// Whether it is of a range that is over, so that only late data can change it.
    pub is_past: bool,
}

impl Answer {
    /// What the client gets: 304 when it has exactly this already. A cache must ask each time, because late data
    /// may come at any moment; what reaches up to now is not worth keeping.
    ///
    /// # Errors
    /// When the budget is spent.
    pub fn respond(mut self, request: &HeaderMap) -> Result<Response, QueryError> {
        let tag = if self.is_past { Some(self.tag()?) } else { None };
        let is_known = tag.as_deref().is_some_and(|tag| knows(request, tag));
        let mut response = match is_known {
            true => StatusCode::NOT_MODIFIED.into_response(),
            false => self.body.respond(self.format.media_type())?,
        };
        let headers = response.headers_mut();
        headers.insert(header::VARY, HeaderValue::from_static("accept"));
        let caching = if tag.is_some() { "no-cache" } else { "no-store" };
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(caching));
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

    /// Weak, as the same answer has other bytes when it is compressed. Every instance says the same.
    fn tag(&mut self) -> Result<String, QueryError> {
        let hash = self.body.hash()?;
        let next = rapidhash::v3::rapidhash_v3(self.next.as_deref().unwrap_or_default().as_bytes());
        Ok(format!("W/\"{hash:016x}{next:016x}\""))
    }
}

/// Whether the client has what this tag stands for (RFC 9110, 13.1.2).
fn knows(request: &HeaderMap, tag: &str) -> bool {
    let plain = |tag: &str| tag.trim().trim_start_matches("W/").to_owned();
    let sent = request.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    sent.flat_map(|value| value.split(',')).any(|sent| sent.trim() == "*" || plain(sent) == plain(tag))
}
