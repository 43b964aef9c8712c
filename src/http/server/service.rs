//! Answers each request: authenticates the caller, calls the endpoint, and adds the request id, the headers that
//! `InfluxDB` clients look for, metrics and a log message.

use std::borrow::Cow;
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, Uri, Version, header};
use axum::response::Response;
use futures_util::stream::poll_fn;
use http_body_util::{BodyExt, StreamBody};
use tokio::sync::mpsc;
use tower::ServiceExt;
use tracing::Instrument;
use tracing::field::Empty;

use super::auth;
use super::body;
use super::client_policy::ClientPolicy;
use super::cors;
use crate::access::{Caller, Effect, Event, PresentedToken, cut};
use crate::clock::now_seconds;
use crate::edge::{Peer, StaleCertificate};
use crate::http::admin::instances;
use crate::http::api::{status, write};
use crate::http::endpoints::{self, Endpoint, Handler};
use crate::http::errors::{ApiError, ApiResult, Dialect};
use crate::http::parameters::Requester;
use crate::http::render::answer::INFLUX_VERSION;
use crate::http::render::text::Length;
use crate::http::{App, CanSeeDetails};
use crate::lanes::Lane;
use crate::memory::growth::counted;

/// Requests that take at least this long are logged as slow, except [long-running routes](is_long_running).
const SLOW: Duration = Duration::from_secs(1);
/// Frames of a compressed answer that are ready before the connection takes them.
const FRAMES_AHEAD: usize = 4;

static VERSION: HeaderName = HeaderName::from_static("x-influxdb-version");
static BUILD: HeaderName = HeaderName::from_static("x-influxdb-build");
static REQUEST_ID: HeaderName = HeaderName::from_static("request-id");
static X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The HTTP service of one listener. Cheap to clone.
#[derive(Clone)]
pub struct HttpService {
    app: Arc<App>,
    router: Router,
    endpoints: EndpointSet,
    client_policy: Arc<ClientPolicy>,
}

/// The context of a request for logs, metrics and the audit trail.
#[derive(Debug, Clone, Copy)]
struct RequestContext<'a> {
    /// The route's pattern.
    route: &'static str,
    peer: &'a Arc<Peer>,
    /// The address of the client, which may be behind a proxy.
    address: IpAddr,
}

/// The endpoints that a listener serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndpointSet {
    All,
    /// All except the operator's endpoints, which are served on `status.listen`.
    AllButStatus,
    /// The operator's endpoints, the health checks and `/ping`, without a token.
    Status,
}

impl EndpointSet {
    fn has(self, path: &str) -> bool {
        match self {
            Self::All => true,
            Self::AllButStatus => !matches!(path, "/metrics" | "/api/v1/status"),
            Self::Status => matches!(path, "/metrics" | "/api/v1/status" | "/ping" | "/health" | "/ready"),
        }
    }
}

impl HttpService {
    pub fn new(app: Arc<App>, endpoints: EndpointSet, client_policy: Arc<ClientPolicy>) -> Self {
        Self { router: endpoints::router(app.clone()), app, endpoints, client_policy }
    }

    pub(crate) async fn answer(&self, mut request: Request, peer: &Arc<Peer>) -> Response {
        let started = Instant::now();
        strip_trailing_slash(&mut request);
        let id = request_id(&request);
        let found = endpoints::find(request.method(), request.uri().path());
        let method = method_label(request.method());
        let route = found.route;
        let id_text = id.to_str().unwrap_or_default();
        let span = tracing::debug_span!("request", id = id_text, method, route, lane = Empty);
        let address = self.client_policy.client_address(peer.address, request.headers());
        let context = RequestContext { route, peer, address };
        let cors = self.client_policy.cors.for_route(route);
        let origin = cors.allowed_origin(request.headers());
        let refuses = instances::refuses_incomplete(request.headers());
        let mut response = match cors.preflight(&request, origin.as_ref()) {
            Some(response) => response,
            None => self.dispatch(request, found.endpoint, context).instrument(span.clone()).await,
        };
        if let Some(cluster) = &self.app.cluster
            && let Some(endpoint) =
                found.endpoint.filter(|endpoint| matches!(endpoint.effect, Effect::Read | Effect::Own))
        {
            response = instances::mark_incomplete(cluster, response, (started, refuses, endpoint.dialect()));
        }
        let duration = started.elapsed();
        let status = response.status().as_u16();
        self.app.metrics.request(route, method, status, duration);
        let seconds = duration.as_secs_f64();
        // Answers with a length are queries. Slow queries are logged separately (`query.log_after`).
        let is_query = response.extensions().get::<Length>().is_some();
        if duration >= SLOW && !is_query && !is_long_running(route) {
            tracing::warn!(id = id_text, method, route, status, seconds, %address, "slow request");
        } else {
            span.in_scope(|| tracing::debug!(status, seconds, "request"));
        }
        let headers = response.headers_mut();
        cors.add_headers(headers, origin);
        headers.insert(&VERSION, HeaderValue::from_static(INFLUX_VERSION));
        headers.insert(&BUILD, HeaderValue::from_static("hourglass"));
        headers.insert(&REQUEST_ID, id.clone());
        headers.insert(&X_REQUEST_ID, id);
        response
    }

    /// Authenticates the caller and calls the endpoint.
    async fn dispatch(
        &self,
        mut request: Request,
        endpoint: Option<&'static Endpoint>,
        context: RequestContext<'_>,
    ) -> Response {
        if !self.endpoints.has(request.uri().path()) {
            return status::not_found(request.uri().clone()).await;
        }
        let dialect = endpoint.map_or(Dialect::Native, Endpoint::dialect);
        if let Err(stale) = context.peer.check_certificate(now_seconds()) {
            self.log_denied(stale.label(), context, None);
            return refuse_connection(&self.app, request, stale, dialect).await;
        }
        let caller = self.authorize(&request, endpoint, context).and_then(|caller| {
            if let Some(endpoint) = endpoint {
                endpoint.check_media_type(request.headers())?;
                endpoint.check_no_parameters(request.uri())?;
            }
            Ok(caller)
        });
        let caller = match caller {
            Ok(caller) => caller,
            Err(error) => {
                let (parts, mut body) = request.into_parts();
                body::discard(&self.app, &parts.headers, &mut body).await;
                return error.respond(dialect);
            }
        };
        let requester = Requester { caller: caller.clone(), address: Some(context.address) };
        let response = match endpoint {
            Some(endpoint) if matches!(endpoint.handler, Handler::Write(_)) => {
                let (parts, body) = request.into_parts();
                write::write(self.app.clone(), endpoint, parts, body, requester).await
            }
            _ => {
                if context.route == "/health" {
                    let details = CanSeeDetails(self.can_see_details(&request));
                    request.extensions_mut().insert(details);
                }
                let extensions = request.extensions_mut();
                extensions.insert(requester);
                extensions.insert(context.peer.clone());
                if let Some(endpoint) = endpoint {
                    extensions.insert(endpoint);
                }
                let answer = self.router.clone().oneshot(request);
                self.app.lanes.run(endpoint.map_or(Lane::Io, Endpoint::lane), counted(deliver(answer))).await
            }
        };
        if response.status() == StatusCode::FORBIDDEN {
            self.log_denied("forbidden", context, Some(caller.name()));
        }
        response
    }

    /// Authenticates the caller and checks that it may use the endpoint.
    fn authorize(
        &self,
        request: &Request,
        endpoint: Option<&Endpoint>,
        context: RequestContext<'_>,
    ) -> ApiResult<Caller> {
        // Unknown paths need no token: their 404 reveals nothing.
        let Some(endpoint) = endpoint.filter(|endpoint| endpoint.effect != Effect::Public) else {
            return Ok(Caller::Anybody);
        };
        if let Some(origin) = self.client_policy.cors.for_route(context.route).foreign_origin(request) {
            self.log_denied("origin", context, None);
            return Err(ApiError::Forbidden(cors::refusal(&cut(origin), context.route)));
        }
        if self.endpoints == EndpointSet::Status {
            return self.anonymous_caller(request, context);
        }
        let in_path = endpoint.secret_in_path(request.uri().path());
        let presented = in_path.map(Cow::Borrowed).or_else(|| auth::token(request.headers(), request.uri()));
        let caller = self.app.access.caller(presented.as_deref(), context.peer.identities(), now_seconds());
        let caller = caller.map_err(|denied| {
            let token = presented.as_deref().and_then(PresentedToken::parse);
            self.log_denied(denied.label(), context, token.map(|token| token.id));
            ApiError::Denied(denied)
        })?;
        if matches!(caller, Caller::Anybody) {
            return self.anonymous_caller(request, context);
        }
        if presented.is_some() {
            self.client_policy.warn_if_token_exposed(context.peer, caller.name());
        }
        // A path is shown in more places than a header, so only a token that may do little is accepted there.
        if in_path.is_some() && caller.ingest_scope().is_none() {
            self.log_denied("forbidden", context, Some(caller.name()));
            return Err(ApiError::Forbidden(
                "send this token in a header: a path takes the secrets of mappings".to_owned(),
            ));
        }
        // Checked again when the database is known.
        if let Err(forbidden) = caller.check(endpoint.effect, None) {
            self.log_denied("forbidden", context, Some(caller.name()));
            return Err(forbidden.into());
        }
        Ok(caller)
    }

    /// Accepts a request without a token, if its host name is allowed (DNS rebinding, see
    /// [`Hosts`](super::hosts::Hosts)).
    fn anonymous_caller(&self, request: &Request, context: RequestContext<'_>) -> ApiResult<Caller> {
        let Some(host) = self.client_policy.hosts.foreign_host(request.uri(), request.headers()) else {
            if self.endpoints != EndpointSet::Status {
                self.client_policy.warn_if_unguarded(context.peer.address, request.headers());
            }
            return Ok(Caller::Anybody);
        };
        self.log_denied("host", context, None);
        let host = cut(host);
        Err(ApiError::Forbidden(format!(
            "the host name {host:?} is not allowed without a token: use localhost or an IP address, or add the name to server.hosts"
        )))
    }

    /// Returns true if the request came to the status address with an allowed host name, or has a token with the
    /// metrics scope.
    fn can_see_details(&self, request: &Request) -> bool {
        if self.endpoints == EndpointSet::Status {
            return self.client_policy.hosts.foreign_host(request.uri(), request.headers()).is_none();
        }
        let Some(presented) = auth::token(request.headers(), request.uri()) else { return false };
        let caller = self.app.access.caller(Some(&presented), &[], now_seconds());
        matches!(caller, Ok(caller @ Caller::Holder(_)) if caller.allows(Effect::Observe, None))
    }

    /// Counts a denial and writes it to the audit trail. `token` is the name of a known token, else the id that was
    /// sent.
    fn log_denied(&self, reason: &'static str, context: RequestContext<'_>, token: Option<&str>) {
        self.app.metrics.count_denied(reason);
        let denied = Event::Denied { reason, address: Some(context.address), route: context.route, token };
        self.app.audit.note_denied(&denied, Instant::now());
    }
}

/// Awaits an answer and sends its body from the lane where it is called, if the body is not in memory yet: it is
/// compressed as it is read.
async fn deliver(answer: impl Future<Output = Result<Response, Infallible>>) -> Response {
    let response = answer.await.unwrap_or_else(|never| match never {});
    if Lane::current() == Lane::Io || !response.headers().contains_key(header::CONTENT_ENCODING) {
        return response;
    }
    response.map(|mut body| {
        let (sender, mut frames) = mpsc::channel(FRAMES_AHEAD);
        tokio::spawn(async move {
            while let Some(frame) = body.frame().await {
                if sender.send(frame).await.is_err() {
                    return;
                }
            }
        });
        Body::new(StreamBody::new(poll_fn(move |context| frames.poll_recv(context))))
    })
}

/// Returns true for routes that process all stored data or wait for it. Their duration does not indicate a problem.
fn is_long_running(route: &str) -> bool {
    let path = route.strip_prefix("/api/v1/").unwrap_or_default();
    ["flush", "jobs/{key}/run", "backup"].contains(&path) || path.starts_with("backup/")
}

/// Rewrites `/write/` to `/write`, if only the latter is an endpoint.
fn strip_trailing_slash(request: &mut Request) {
    let uri = request.uri();
    let Some(path) = endpoints::without_slash(uri.path()) else { return };
    let stripped = uri.query().map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"));
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = stripped.parse().ok();
    if let Ok(uri) = Uri::from_parts(parts) {
        *request.uri_mut() = uri;
    }
}

/// Refuses a request because the client certificate is no longer valid, and closes the connection.
async fn refuse_connection(app: &App, request: Request, stale: StaleCertificate, dialect: Dialect) -> Response {
    let (parts, mut body) = request.into_parts();
    body::discard(app, &parts.headers, &mut body).await;
    let mut response = ApiError::Forbidden(stale.to_string()).respond(dialect);
    if parts.version != Version::HTTP_2 {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Returns the request id of the client if it is valid, else a new one.
fn request_id(request: &Request) -> HeaderValue {
    static COUNT: AtomicU64 = AtomicU64::new(1);
    let sent = request.headers().get(&X_REQUEST_ID);
    let is_valid = |id: &&HeaderValue| (1..=64).contains(&id.len()) && id.as_bytes().iter().all(u8::is_ascii_graphic);
    sent.filter(is_valid).cloned().unwrap_or_else(|| HeaderValue::from(COUNT.fetch_add(1, Ordering::Relaxed)))
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
    fn a_trailing_slash_is_stripped_if_the_shorter_path_is_an_endpoint() {
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
            strip_trailing_slash(&mut request);
            assert_eq!(request.uri().to_string(), meant, "{sent}");
        }
    }

    /// Regression: the demo logged its own sealing of a month as a slow request.
    #[test]
    fn long_running_routes_exist() {
        let long: Vec<&str> =
            endpoints::ENDPOINTS.iter().map(|one| one.path).filter(|path| is_long_running(path)).collect();
        assert_eq!(long.len(), 2 + 5, "{long:?}");
        assert!(long.contains(&"/api/v1/jobs/{key}/run") && long.contains(&"/api/v1/backup/day"), "{long:?}");
        assert!(["/write", "/api/v1/sensors", "/api/v1/tail", "other"].iter().all(|route| !is_long_running(route)));
    }

    #[test]
    fn a_label_is_a_route_pattern_or_other() {
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
