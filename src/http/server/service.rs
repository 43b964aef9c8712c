//! Answers each request: authenticates the caller, calls the endpoint, and adds the request id, the headers that
//! `InfluxDB` clients look for, metrics and a log message.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, Uri, Version, header};
use axum::response::Response;
use tower::ServiceExt;
use tracing::Instrument;

use super::auth::{self, Needs};
use super::body;
use super::cors::refusal;
use super::senders::Senders;
use crate::access::{Caller, Event, Presented, cut};
use crate::clock::now_seconds;
use crate::edge::{Peer, StaleCertificate};
use crate::http::api::{status, write};
use crate::http::endpoints::{self, Endpoint, Handler};
use crate::http::errors::{ApiError, ApiResult, Dialect};
use crate::http::parameters::Sender;
use crate::http::render::answer::INFLUX_VERSION;
use crate::http::render::text::Length;
use crate::http::{App, SeesDetails};

/// Requests that take at least this long are logged as slow, unless [`is_long_by_nature`].
const SLOW: Duration = Duration::from_secs(1);

static VERSION: HeaderName = HeaderName::from_static("x-influxdb-version");
static BUILD: HeaderName = HeaderName::from_static("x-influxdb-build");
static REQUEST_ID: HeaderName = HeaderName::from_static("request-id");
static X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Cheap to clone.
#[derive(Clone)]
pub struct HttpService {
    app: Arc<App>,
    router: Router,
    serves: Serves,
    senders: Arc<Senders>,
}

/// What the records of a request name.
#[derive(Debug, Clone, Copy)]
struct Asked<'a> {
    /// The route's pattern.
    route: &'static str,
    peer: &'a Arc<Peer>,
    /// The client's, whom a proxy may stand before.
    address: IpAddr,
}

/// The endpoints that a listener serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Serves {
    All,
    /// All except the operator's endpoints, which are served on `status.listen`.
    AllButStatus,
    /// The operator's endpoints, the health checks and `/ping`, without a token.
    Status,
}

impl Serves {
    fn has(self, path: &str) -> bool {
        match self {
            Self::All => true,
            Self::AllButStatus => !matches!(path, "/metrics" | "/api/v1/status"),
            Self::Status => matches!(path, "/metrics" | "/api/v1/status" | "/ping" | "/health" | "/ready"),
        }
    }
}

impl HttpService {
    pub fn new(app: Arc<App>, serves: Serves, senders: Arc<Senders>) -> Self {
        Self { router: endpoints::router(app.clone()), app, serves, senders }
    }

    pub(crate) async fn answer(&self, mut request: Request, peer: &Arc<Peer>) -> Response {
        let started = Instant::now();
        leave_out_slash(&mut request);
        let id = request_id(&request);
        let found = endpoints::find(request.method(), request.uri().path());
        let (method, route) = (method_label(request.method()), found.route);
        let said = id.to_str().unwrap_or_default();
        let span = tracing::debug_span!("request", id = said, method, route);
        let address = self.senders.client(peer.address, request.headers());
        let cors = self.senders.cors.of_route(route);
        let origin = cors.origin_of(request.headers());
        let mut response = match cors.preflight(&request, origin.as_ref()) {
            Some(response) => response,
            None => self.hand_on(request, found.endpoint, Asked { route, peer, address }).instrument(span).await,
        };
        let (took, status) = (started.elapsed(), response.status().as_u16());
        self.app.metrics.request(route, method, status, took);
        let seconds = took.as_secs_f64();
        // Slow queries are logged separately, by `query.log_after`.
        if took >= SLOW && response.extensions().get::<Length>().is_none() && !is_long_by_nature(route) {
            tracing::warn!(id = said, method, route, status, seconds, %address, "slow request");
        } else {
            tracing::debug!(id = said, method, route, status, seconds, "request");
        }
        let headers = response.headers_mut();
        cors.mark(headers, origin);
        headers.insert(&VERSION, HeaderValue::from_static(INFLUX_VERSION));
        headers.insert(&BUILD, HeaderValue::from_static("hourglass"));
        headers.insert(&REQUEST_ID, id.clone());
        headers.insert(&X_REQUEST_ID, id);
        response
    }

    async fn hand_on(&self, mut request: Request, endpoint: Option<&'static Endpoint>, asked: Asked<'_>) -> Response {
        if !self.serves.has(request.uri().path()) {
            return status::unknown(request.uri().clone()).await;
        }
        let dialect = endpoint.map_or(Dialect::Native, Endpoint::dialect);
        if let Err(stale) = asked.peer.judge(now_seconds()) {
            self.note_denied(stale.label(), asked, None);
            return refuse_connection(&self.app, request, stale, dialect).await;
        }
        let caller = match self.caller(&request, endpoint, asked) {
            Ok(caller) => caller,
            Err(error) => {
                let (parts, body) = request.into_parts();
                body::discard(&self.app, &parts.headers, body).await;
                return error.respond(dialect);
            }
        };
        let sender = Sender { by: caller.clone(), address: Some(asked.address) };
        let response = match endpoint {
            Some(endpoint) if matches!(endpoint.by, Handler::Write(_)) => {
                let (parts, body) = request.into_parts();
                write::write(&self.app, endpoint, &parts, body, &sender).await
            }
            _ => {
                if asked.route == "/health" {
                    let sees = SeesDetails(self.sees_details(&request));
                    request.extensions_mut().insert(sees);
                }
                let extensions = request.extensions_mut();
                extensions.insert(sender);
                extensions.insert(asked.peer.clone());
                if let Some(endpoint) = endpoint {
                    extensions.insert(endpoint);
                }
                self.router.clone().oneshot(request).await.unwrap_or_else(|never| match never {})
            }
        };
        if response.status() == StatusCode::FORBIDDEN {
            self.note_denied("forbidden", asked, Some(caller.name()));
        }
        response
    }

    /// Authenticates the caller and checks that it may use the endpoint.
    fn caller(&self, request: &Request, endpoint: Option<&Endpoint>, asked: Asked<'_>) -> ApiResult<Caller> {
        // Unknown paths need no token: their 404 reveals nothing.
        let Some(endpoint) = endpoint.filter(|endpoint| endpoint.needs != Needs::Nothing) else {
            return Ok(Caller::Anybody);
        };
        if let Some(origin) = self.senders.cors.of_route(asked.route).stranger(request) {
            self.note_denied("origin", asked, None);
            let origin = cut(origin);
            return Err(ApiError::Forbidden(format!("pages of {origin} {}", refusal(asked.route))));
        }
        if self.serves == Serves::Status {
            return self.anybody(request, asked);
        }
        let presented = auth::token(request.headers(), request.uri());
        let caller = self.app.access.caller(presented.as_deref(), asked.peer.identities(), now_seconds());
        let caller = caller.map_err(|denied| {
            let token = presented.as_deref().and_then(Presented::parse);
            self.note_denied(denied.label(), asked, token.map(|token| token.id));
            ApiError::Denied(denied)
        })?;
        if matches!(caller, Caller::Anybody) {
            return self.anybody(request, asked);
        }
        if presented.is_some() {
            self.senders.note_token(asked.peer, caller.name());
        }
        let allowed = match endpoint.needs {
            Needs::Nothing | Needs::Token => true,
            Needs::Metrics => caller.may_observe(),
            Needs::Admin => caller.is_admin(),
        };
        if allowed {
            return Ok(caller);
        }
        self.note_denied("forbidden", asked, Some(caller.name()));
        let scope = if endpoint.needs == Needs::Metrics { "--metrics" } else { "--admin '*'" };
        Err(ApiError::Forbidden(format!("{} needs a token created with {scope}", endpoint.path)))
    }

    /// The caller where no token is needed: a page of any origin may have sent the request by a name of its own.
    fn anybody(&self, request: &Request, asked: Asked<'_>) -> ApiResult<Caller> {
        let Some(host) = self.senders.hosts.stranger(request.uri(), request.headers()) else {
            if self.serves != Serves::Status {
                self.senders.note_unguarded(asked.peer.address, request.headers());
            }
            return Ok(Caller::Anybody);
        };
        self.note_denied("host", asked, None);
        Err(ApiError::Forbidden(format!(
            "the host {:?} is none of this service's, which needs no token here: ask for localhost or an IP address, or add the name to server.hosts",
            cut(host)
        )))
    }

    /// Whether the request came to the status address, by a name of this service, or with a token that may observe the service.
    fn sees_details(&self, request: &Request) -> bool {
        if self.serves == Serves::Status {
            return self.senders.hosts.stranger(request.uri(), request.headers()).is_none();
        }
        let Some(presented) = auth::token(request.headers(), request.uri()) else { return false };
        let caller = self.app.access.caller(Some(&presented), &[], now_seconds());
        matches!(caller, Ok(caller @ Caller::Holder(_)) if caller.may_observe())
    }

    /// `token` is the token's name if it is known, else the id in the text that was sent.
    fn note_denied(&self, reason: &'static str, asked: Asked<'_>, token: Option<&str>) {
        self.app.metrics.denied(reason);
        let denied = Event::Denied { reason, address: Some(asked.address), route: asked.route, token };
        self.app.audit.note_denied(&denied, Instant::now());
    }
}

/// Whether requests of a route go through all that is stored, or wait for it: how long that takes says nothing about the service.
fn is_long_by_nature(route: &str) -> bool {
    let whole = ["flush", "jobs/{key}/run"];
    let of_api = route.strip_prefix("/api/v1/").unwrap_or_default();
    whole.contains(&of_api) || of_api == "backup" || of_api.starts_with("backup/")
}

/// Makes `/write/` the same as `/write`.
fn leave_out_slash(request: &mut Request) {
    let uri = request.uri();
    let Some(path) = endpoints::without_slash(uri.path()) else { return };
    let shorter = uri.query().map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"));
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = shorter.parse().ok();
    if let Ok(uri) = Uri::from_parts(parts) {
        *request.uri_mut() = uri;
    }
}

/// Refuses a request whose client's certificate is no longer good, and closes the connection.
async fn refuse_connection(app: &App, request: Request, stale: StaleCertificate, dialect: Dialect) -> Response {
    let (parts, body) = request.into_parts();
    body::discard(app, &parts.headers, body).await;
    let mut response = ApiError::Forbidden(stale.to_string()).respond(dialect);
    if parts.version != Version::HTTP_2 {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// The client's request id if it sent a usable one, else a new one.
fn request_id(request: &Request) -> HeaderValue {
    static COUNT: AtomicU64 = AtomicU64::new(1);
    let sent = request.headers().get(&X_REQUEST_ID);
    let usable = |id: &&HeaderValue| (1..=64).contains(&id.len()) && id.as_bytes().iter().all(u8::is_ascii_graphic);
    sent.filter(usable).cloned().unwrap_or_else(|| HeaderValue::from(COUNT.fetch_add(1, Ordering::Relaxed)))
}

fn method_label(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::HEAD => "HEAD",
        _ => "other",
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_trailing_slash_is_left_out_where_an_endpoint_is() {
        let cases = [
            ("http://h/write/?db=a", "http://h/write?db=a"),
            ("/write/", "/write"),
            ("/api/v1/tags/", "/api/v1/tags"),
            ("/api/v1/tags/site/", "/api/v1/tags/site"),
            ("/", "/"),
            ("//", "/"),
            ("/write//", "/write//"),
            ("/nothing/", "/nothing/"),
        ];
        for (sent, meant) in cases {
            let mut request = Request::builder().uri(sent).body(axum::body::Body::empty()).unwrap();
            leave_out_slash(&mut request);
            assert_eq!(request.uri().to_string(), meant, "{sent}");
        }
    }

    /// The demo warned of a slow request, which was its own sealing of a month.
    #[test]
    fn what_is_long_by_nature_is_not_slow_and_is_a_route() {
        let long: Vec<&str> =
            endpoints::ENDPOINTS.iter().map(|one| one.path).filter(|path| is_long_by_nature(path)).collect();
        assert_eq!(long.len(), 2 + 5, "{long:?}");
        assert!(long.contains(&"/api/v1/jobs/{key}/run") && long.contains(&"/api/v1/backup/day"), "{long:?}");
        assert!(["/write", "/api/v1/sensors", "/api/v1/tail", "other"].iter().all(|route| !is_long_by_nature(route)));
    }

    #[test]
    fn a_label_is_a_pattern_of_the_list_or_other() {
        let label_of = [
            ("/write", "/write"),
            ("/api/v1/tags", "/api/v1/tags"),
            ("/api/v1/tags/site", "/api/v1/tags/{key}"),
            ("/api/v1/tags/", "other"),
            ("/api/v1/tags/a/b", "other"),
            ("/write/", "other"),
            ("", "other"),
        ];
        for (path, label) in label_of {
            assert_eq!(endpoints::find(&Method::POST, path).route, label, "{path}");
        }
    }
}
