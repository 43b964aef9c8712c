//! Web pages of other origins. Those of a list may ask from within a browser, and never with the browser's own
//! credentials, so that a page can do nothing that it could not do from anywhere else. All others change nothing: what a
//! browser sends for any page reaches a service on its own machine, which may trust whoever does.

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};

/// What a page may send.
const HEADERS: &str = "authorization, content-encoding, content-type, if-none-match, x-hourglass-ack, x-request-id";
/// What a page may read of an answer.
const EXPOSED: &str =
    "etag, retry-after, x-hourglass-ack, x-hourglass-warning, x-influxdb-error, x-next-cursor, x-request-id";
/// Seconds for which a browser need not ask again.
const MAX_AGE: &str = "600";
/// How the browser itself compares a page's origin with the address that it asks.
static SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Who may ask.
#[derive(Debug, Clone, Default)]
pub struct Cors {
    origins: Vec<HeaderValue>,
}

impl Cors {
    /// For these origins. What no header can carry is no origin.
    #[must_use]
    pub fn of(origins: &[String]) -> Self {
        Self { origins: origins.iter().filter_map(|origin| HeaderValue::from_str(origin).ok()).collect() }
    }

    /// The origin that asks, when it may.
    pub(super) fn origin_of(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let origin = headers.get(header::ORIGIN)?;
        self.origins.iter().find(|known| *known == origin).cloned()
    }

    /// The origin of a page that is neither ours nor of the list, when it would change something. Browsers name the
    /// origin with whatever is not sent by GET or HEAD; other clients name none.
    pub(super) fn stranger<'a, B>(&self, request: &'a Request<B>) -> Option<&'a str> {
        let headers = request.headers();
        let origin = headers.get(header::ORIGIN)?;
        if request.method().is_safe() || self.origins.contains(origin) {
            return None;
        }
        let origin = origin.to_str().unwrap_or("?");
        let is_ours = match headers.get(&SITE) {
            Some(site) => site == "same-origin" || site == "none",
            None => {
                let host = || headers.get(header::HOST).and_then(|host| host.to_str().ok());
                let asked = request.uri().authority().map(|authority| authority.as_str()).or_else(host);
                asked.is_some() && origin.split_once("://").map(|(_, host)| host) == asked
            }
        };
        (!is_ours).then_some(origin)
    }

    /// The answer to a browser that asks what it may ask; to no other request.
    pub(super) fn preflight(
        &self,
        method: &Method,
        headers: &HeaderMap,
        origin: Option<&HeaderValue>,
    ) -> Option<Response> {
        origin.filter(|_| *method == Method::OPTIONS && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD))?;
        let mut response = StatusCode::NO_CONTENT.into_response();
        let answer = response.headers_mut();
        answer.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST"));
        answer.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(HEADERS));
        answer.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(MAX_AGE));
        Some(response)
    }

    /// Says on an answer who may read it, and that another origin may be told something else.
    pub(super) fn mark(&self, headers: &mut HeaderMap, origin: Option<HeaderValue>) {
        if self.origins.is_empty() {
            return;
        }
        headers.append(header::VARY, HeaderValue::from_static("origin"));
        if let Some(origin) = origin {
            headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
        }
    }
}
