//! Web pages of other origins (CORS). Pages of the origins in `cors.origins` may send requests from a browser, but
//! without the browser's own credentials, so a page can do no more than any other client. Pages of all other origins
//! may change nothing, and pages of other sites get no data either: a browser sends their requests even to a service on
//! its own machine, which may require no token there, and what a page must not read it may still learn from, by time or
//! by loading it as a script. Tokens are for pages of the service's own origin alone, whatever `cors.origins` names.

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};

/// Request headers that a page may send.
const HEADERS: &str = "authorization, content-encoding, content-type, idempotency-key, if-none-match, x-hourglass-ack, x-hourglass-request-id, x-request-id";
/// Answer headers that a page may read.
const EXPOSED: &str = "etag, retry-after, x-hourglass-ack, x-hourglass-notice, x-hourglass-warning, x-influxdb-error, x-next-cursor, x-request-id";
/// Seconds for which a browser may cache a preflight answer.
const MAX_AGE: &str = "600";
/// Set by the browser: how the page's origin relates to the requested address.
static SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Where the service's own page alone asks: what is made there outlives the page that asked for it.
const TOKENS: &str = "/api/v1/tokens";
/// No other origin.
static NONE: Cors = Cors { origins: Vec::new() };

fn is_of_tokens(route: &str) -> bool {
    route.strip_prefix(TOKENS).is_some_and(|below| below.is_empty() || below.starts_with('/'))
}

/// What pages that are [strangers](Cors::stranger) are told, behind their origin, of a route's pattern.
pub(crate) fn refusal(route: &str) -> &'static str {
    match is_of_tokens(route) {
        true => "neither see nor change tokens: only pages of the service's own origin do",
        false => "get no data and change none, unless cors.origins names their origin",
    }
}

/// The allowed origins.
#[derive(Debug, Clone, Default)]
pub struct Cors {
    origins: Vec<HeaderValue>,
}

impl Cors {
    /// For these origins. Texts that are not valid header values are ignored.
    #[must_use]
    pub fn of(origins: &[String]) -> Self {
        Self { origins: origins.iter().filter_map(|origin| HeaderValue::from_str(origin).ok()).collect() }
    }

    /// The origins that are allowed for a route's pattern: none for those of tokens.
    pub(crate) fn of_route(&self, route: &str) -> &Self {
        if is_of_tokens(route) { &NONE } else { self }
    }

    /// The request's origin, if it is allowed.
    pub(crate) fn origin_of(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let origin = headers.get(header::ORIGIN)?;
        self.origins.iter().find(|known| *known == origin).cloned()
    }

    /// Whose page sent the request, if it is foreign (neither this service's own nor of an allowed origin) and must not be
    /// answered: a page of another site, whatever it asks for, or of another origin, if the request may change data. The
    /// one judgement on pages. Browsers name the origin with every request but GET and HEAD, and with those that a script
    /// may read, not with links. Other clients name neither origin nor site.
    pub(crate) fn stranger<'a, B>(&self, request: &'a Request<B>) -> Option<&'a str> {
        let headers = request.headers();
        let (origin, site) = (headers.get(header::ORIGIN), headers.get(&SITE));
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
                let asked = request.uri().authority().map(|authority| authority.as_str()).or_else(host);
                asked.is_some() && origin.split_once("://").map(|(_, host)| host) == asked
            }
        };
        (!is_ours).then_some(origin)
    }

    /// The answer to a preflight request of an allowed origin; `None` for all other requests.
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
    pub(crate) fn mark(&self, headers: &mut HeaderMap, origin: Option<HeaderValue>) {
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
