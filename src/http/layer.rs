//! Around every request: its id, the headers that `InfluxDB`'s clients look for, its metrics and
//! its log line.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderValue, Method};
use axum::middleware::Next;
use axum::response::Response;
use tracing::Instrument;

use super::App;
use super::endpoints::ENDPOINTS;

/// The version that clients are told: they choose what to send by it, and ours is that of 1.x.
pub const INFLUX_VERSION: &str = "1.8.10";
/// A request that takes longer than this is worth a line in the log.
const SLOW: Duration = Duration::from_secs(1);

/// Gives the request an id, and its answer the headers; counts and logs it.
pub async fn around(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let started = Instant::now();
    let id = request_id(&request);
    let method = method_label(request.method());
    let route = route_label(request.extensions().get::<MatchedPath>());
    let span = tracing::info_span!("request", id = id.to_str().unwrap_or_default(), method, route);
    let mut response = next.run(request).instrument(span.clone()).await;
    let (took, status) = (started.elapsed(), response.status());
    app.metrics.request(route, method, status.as_u16(), took);
    span.in_scope(|| {
        if took >= SLOW {
            tracing::warn!(status = status.as_u16(), seconds = took.as_secs_f64(), "slow request");
        } else {
            tracing::debug!(status = status.as_u16(), seconds = took.as_secs_f64(), "request");
        }
    });
    let headers = response.headers_mut();
    headers.insert("x-influxdb-version", HeaderValue::from_static(INFLUX_VERSION));
    headers.insert("x-influxdb-build", HeaderValue::from_static("hourglass"));
    headers.insert("request-id", id.clone());
    headers.insert("x-request-id", id);
    response
}

/// The client's own id when it sent a usable one, else a new one.
fn request_id(request: &Request) -> HeaderValue {
    static COUNT: AtomicU64 = AtomicU64::new(1);
    let sent = request.headers().get("x-request-id");
    let usable = |id: &&HeaderValue| (1..=64).contains(&id.len()) && id.as_bytes().iter().all(u8::is_ascii_graphic);
    sent.filter(usable).cloned().unwrap_or_else(|| HeaderValue::from(COUNT.fetch_add(1, Ordering::Relaxed)))
}

/// The route's pattern from the fixed list, never the path as sent.
fn route_label(matched: Option<&MatchedPath>) -> &'static str {
    let path = matched.map_or("", MatchedPath::as_str);
    ENDPOINTS.iter().map(|endpoint| endpoint.path).find(|known| *known == path).unwrap_or("other")
}

fn method_label(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::HEAD => "HEAD",
        _ => "other",
    }
}
