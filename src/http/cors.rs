//! Web pages of other origins that may ask from within a browser: a list of exact origins, and never with the
//! browser's own credentials, so that a page can do nothing that it could not do from anywhere else.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};

/// What a page may send.
const HEADERS: &str = "authorization, content-encoding, content-type, if-none-match, x-hourglass-ack, x-request-id";
/// What a page may read of an answer.
const EXPOSED: &str = "etag, retry-after, x-hourglass-ack, x-influxdb-error, x-next-cursor, x-request-id";
/// Seconds for which a browser need not ask again.
const MAX_AGE: &str = "600";

/// Who may ask.
#[derive(Debug, Clone)]
pub struct Cors {
    origins: Vec<HeaderValue>,
}

impl Cors {
    /// For these origins; `None` when there are none. What no header can carry is no origin.
    #[must_use]
    pub fn of(origins: &[String]) -> Option<Self> {
        let origins: Vec<_> = origins.iter().filter_map(|origin| HeaderValue::from_str(origin).ok()).collect();
        (!origins.is_empty()).then_some(Self { origins })
    }

    /// The origin that asks, when it may.
    pub(super) fn origin_of(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let origin = headers.get(header::ORIGIN)?;
        self.origins.iter().find(|known| *known == origin).cloned()
    }

    /// The answer to a browser that asks what it may ask; to no other request.
    pub(super) fn preflight(
        &self,
        method: &Method,
        headers: &HeaderMap,
        origin: Option<&HeaderValue>,
    ) -> Option<Response<Body>> {
        origin.filter(|_| *method == Method::OPTIONS && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD))?;
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        let answer = response.headers_mut();
        answer.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST"));
        answer.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(HEADERS));
        answer.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(MAX_AGE));
        Some(response)
    }

    /// Says on an answer who may read it, and that another origin may be told something else.
    pub(super) fn mark(&self, headers: &mut HeaderMap, origin: Option<HeaderValue>) {
        headers.append(header::VARY, HeaderValue::from_static("origin"));
        if let Some(origin) = origin {
            headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
        }
    }
}
