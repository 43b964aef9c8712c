//! What connections call with every request: its id, the headers that `InfluxDB`'s clients look for, its metrics and
//! its log line, around the one who answers it. Line protocol goes there by a short way: many devices send a single
//! reading per request, and finding its route would take as long as judging it.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::{Query, Request};
use axum::http::{HeaderName, HeaderValue, Method};
use axum::response::Response;
use hyper::body::Incoming;
use tower::ServiceExt;
use tracing::Instrument;

use super::endpoints::{self, ENDPOINTS};
use super::errors::Dialect;
use super::{App, write};

/// The version that clients are told: they choose what to send by it, and ours is that of 1.x.
pub const INFLUX_VERSION: &str = "1.8.10";
/// A request that takes longer than this is worth a line in the log.
const SLOW: Duration = Duration::from_secs(1);

static VERSION: HeaderName = HeaderName::from_static("x-influxdb-version");
static BUILD: HeaderName = HeaderName::from_static("x-influxdb-build");
static REQUEST_ID: HeaderName = HeaderName::from_static("request-id");
static X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Answers requests. Cheap to clone.
#[derive(Clone)]
pub struct Service {
    app: Arc<App>,
    router: Router,
}

impl Service {
    /// Over all endpoints.
    pub fn new(app: Arc<App>) -> Self {
        Self { router: endpoints::router(app.clone()), app }
    }

    async fn answer(self, request: Request) -> Response {
        let started = Instant::now();
        let id = request_id(&request);
        let (method, route) = (method_label(request.method()), route_label(request.uri().path()));
        let said = id.to_str().unwrap_or_default();
        let span = tracing::debug_span!("request", id = said, method, route);
        let metrics = self.app.metrics.clone();
        let mut response = self.hand_on(request).instrument(span).await;
        let (took, status) = (started.elapsed(), response.status().as_u16());
        metrics.request(route, method, status, took);
        let seconds = took.as_secs_f64();
        if took >= SLOW {
            tracing::warn!(id = said, method, route, status, seconds, "slow request");
        } else {
            tracing::debug!(id = said, method, route, status, seconds, "request");
        }
        let headers = response.headers_mut();
        headers.insert(&VERSION, HeaderValue::from_static(INFLUX_VERSION));
        headers.insert(&BUILD, HeaderValue::from_static("hourglass"));
        headers.insert(&REQUEST_ID, id.clone());
        headers.insert(&X_REQUEST_ID, id);
        response
    }

    async fn hand_on(self, request: Request) -> Response {
        let dialect = Dialect::of_writes_to(request.uri().path()).filter(|_| *request.method() == Method::POST);
        let Some(dialect) = dialect else {
            return self.router.oneshot(request).await.unwrap_or_else(|never| match never {});
        };
        let (parts, body) = request.into_parts();
        write::lines(&self.app, Query::try_from_uri(&parts.uri), &parts.headers, body, dialect).await
    }
}

impl hyper::service::Service<hyper::Request<Incoming>> for Service {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn call(&self, request: hyper::Request<Incoming>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move { Ok(service.answer(request.map(Body::new)).await) })
    }
}

/// The client's own id when it sent a usable one, else a new one.
fn request_id(request: &Request) -> HeaderValue {
    static COUNT: AtomicU64 = AtomicU64::new(1);
    let sent = request.headers().get(&X_REQUEST_ID);
    let usable = |id: &&HeaderValue| (1..=64).contains(&id.len()) && id.as_bytes().iter().all(u8::is_ascii_graphic);
    sent.filter(usable).cloned().unwrap_or_else(|| HeaderValue::from(COUNT.fetch_add(1, Ordering::Relaxed)))
}

/// The route's pattern from the fixed list, never the path as sent.
fn route_label(path: &str) -> &'static str {
    let fits = |pattern: &str| match pattern.split_once('{') {
        None => pattern == path,
        Some((before, _)) => path.strip_prefix(before).is_some_and(|rest| !rest.is_empty() && !rest.contains('/')),
    };
    ENDPOINTS.iter().map(|endpoint| endpoint.path).find(|pattern| fits(pattern)).unwrap_or("other")
}

fn method_label(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::HEAD => "HEAD",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert_eq!(route_label(path), label, "{path}");
        }
    }
}
