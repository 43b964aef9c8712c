//! Requests from web pages of other origins (CORS).
//!
//! * Origins in `cors.origins` may send requests, but without the browser's credentials, so a page can do no more than
//!   any other client.
//! * Other origins cannot change data, and pages of other sites cannot read data either. A browser sends such requests
//!   even to a service on its own machine, which may require no token. Without these checks, side channels (timing,
//!   loading the answer as a script) could leak answers that the page cannot read.
//! * Only pages of the service's own origin can manage tokens, regardless of `cors.origins`.

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};

/// Request headers that a page may send.
const HEADERS: &str = "authorization, content-encoding, content-type, idempotency-key, if-none-match, x-hourglass-ack, x-hourglass-incomplete, x-hourglass-request-id, x-request-id";
/// Answer headers that a page may read.
const EXPOSED: &str = "etag, retry-after, x-hourglass-ack, x-hourglass-incomplete, x-hourglass-notice, x-hourglass-warning, x-influxdb-error, x-next-cursor, x-request-id";
/// Seconds for which a browser may cache a preflight answer.
const MAX_AGE: &str = "600";
/// Set by the browser: the relation of the page's origin to the requested address.
static SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The paths that only the service's own origin may use: a created token outlives the page that requested it.
const TOKENS: &str = "/api/v1/tokens";
const SECRETS: &str = "/api/v1/mappings/{key}/secrets";
/// Allows no other origin.
static NONE: Cors = Cors { origins: Vec::new() };

fn is_token_route(route: &str) -> bool {
    let is_below =
        |prefix: &str| route.strip_prefix(prefix).is_some_and(|below| below.is_empty() || below.starts_with('/'));
    is_below(TOKENS) || is_below(SECRETS)
}

/// Returns the error text for a page of a [foreign origin](Cors::foreign_origin).
pub(crate) fn refusal(origin: &str, route: &str) -> String {
    if is_token_route(route) {
        format!("pages of {origin} may not manage tokens: use a page of the service's own origin")
    } else {
        format!("pages of {origin} may not send requests: add the origin to cors.origins")
    }
}

/// The allowed origins.
#[derive(Debug, Clone, Default)]
pub struct Cors {
    origins: Vec<HeaderValue>,
}

impl Cors {
    /// Allows these origins. Ignores texts that are not valid header values.
    #[must_use]
    pub fn new(origins: &[String]) -> Self {
        Self { origins: origins.iter().filter_map(|origin| HeaderValue::from_str(origin).ok()).collect() }
    }

    /// Returns the rules for a route pattern. Token routes allow no other origin.
    pub(crate) fn for_route(&self, route: &str) -> &Self {
        if is_token_route(route) { &NONE } else { self }
    }

    /// Returns the origin of the request, if it is allowed.
    pub(crate) fn allowed_origin(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let origin = headers.get(header::ORIGIN)?;
        self.origins.iter().find(|known| *known == origin).cloned()
    }

    /// Returns the origin of a page whose request must be refused: any request of another site, or a request of another
    /// origin that may change data, unless the origin is allowed.
    ///
    /// Browsers send `Origin` with all requests except GET and HEAD, and with GETs that a script may read, but not with
    /// links. Other clients send neither `Origin` nor `Sec-Fetch-Site`.
    pub(crate) fn foreign_origin<'a, B>(&self, request: &'a Request<B>) -> Option<&'a str> {
        let headers = request.headers();
        let origin = headers.get(header::ORIGIN);
        let site = headers.get(&SITE);
        if origin.is_some_and(|origin| self.origins.contains(origin)) {
            return None;
        }
        let named = origin.map(|origin| origin.to_str().unwrap_or("?"));
        if site.is_some_and(|site| site == "cross-site") {
            return Some(named.unwrap_or("another site"));
        }
        let origin = named.filter(|_| !request.method().is_safe())?;
        let is_ours = match site {
            Some(site) => site == "same-origin" || site == "none",
            None => {
                let host = || headers.get(header::HOST).and_then(|host| host.to_str().ok());
                let requested = request.uri().authority().map(|authority| authority.as_str()).or_else(host);
                requested.is_some() && origin.split_once("://").map(|(_, host)| host) == requested
            }
        };
        (!is_ours).then_some(origin)
    }

    /// Returns the answer to a preflight request of an allowed origin; `None` for all other requests.
    pub(crate) fn preflight<B>(&self, request: &Request<B>, origin: Option<&HeaderValue>) -> Option<Response> {
        let is_preflight = request.method() == Method::OPTIONS
            && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
        origin.filter(|_| is_preflight)?;
        let mut response = StatusCode::NO_CONTENT.into_response();
        let answer = response.headers_mut();
        answer.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST"));
        answer.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(HEADERS));
        answer.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(MAX_AGE));
        Some(response)
    }

    /// Adds the CORS headers to an answer.
    pub(crate) fn add_headers(&self, headers: &mut HeaderMap, origin: Option<HeaderValue>) {
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
