//! Serves HTTP/1.1, and HTTP/2 if configured, on incoming connections, with limits on heads and streams that
//! `axum::serve` does not have. Requests in progress are finished at shutdown.

pub(crate) mod auth;
pub(crate) mod body;
pub(crate) mod client_policy;
pub(crate) mod common_headers;
pub(crate) mod connection;
pub(crate) mod cors;
pub(crate) mod decompress;
pub(crate) mod head;
pub(crate) mod hosts;
pub(crate) mod service;

use std::pin::pin;
use std::sync::Arc;

use axum::http::HeaderValue;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulConnection;
use tokio::sync::watch;

use super::HttpService;
use super::server::connection::ConnectionService;
use crate::edge::{self, Connection, ConnectionLimits, Listener};

/// Protocol settings, from the config sections `[server]` and `[tls]`.
#[derive(Debug, Clone, Default)]
pub struct Protocol {
    /// True if HTTP/2 is enabled.
    pub http2: bool,
    /// The `Strict-Transport-Security` header of answers over TLS.
    pub hsts: Option<HeaderValue>,
}

/// Maximum size of a request head with HTTP/1.1, in bytes.
const HEAD_BYTES_MAX: usize = 32 << 10;
/// Maximum size of the read buffer of a connection, in bytes. Unbounded, it grows to 400 KiB while a body arrives.
const BUFFER_BYTES_MAX: usize = 64 << 10;
/// Maximum number of concurrent requests on one HTTP/2 connection.
const STREAMS_MAX: u32 = 64;
/// Maximum size of a request head with HTTP/2, in bytes.
const HEADER_LIST_BYTES_MAX: u32 = 16 << 10;
/// Maximum number of streams that a client may open and reset before its connection is closed (rapid reset attack).
const RESETS_MAX: usize = 64;
/// HTTP/2 flow control window of a request and of a connection, in bytes.
const WINDOW_BYTES: u32 = 256 << 10;

impl Protocol {
    /// The protocol names for ALPN, preferred first.
    #[must_use]
    pub fn alpn_names(&self) -> &'static [&'static str] {
        if self.http2 { &["h2", "http/1.1"] } else { &["http/1.1"] }
    }
}

/// Serves until `stop` turns true. Then accepts no more connections and lets requests in progress finish within the
/// listener's time; requests whose head or body is still incomplete after that are aborted.
pub async fn serve(
    listener: Listener,
    limits: Arc<ConnectionLimits>,
    service: HttpService,
    protocol: Protocol,
    stop: watch::Receiver<bool>,
) {
    let protocol = Arc::new(protocol);
    let stopping = stop.clone();
    let handle = move |connection| serve_connection(connection, service.clone(), protocol.clone(), stopping.clone());
    edge::serve(listener, limits, stop, handle).await;
}

async fn serve_connection(
    connection: Connection,
    service: HttpService,
    protocol: Arc<Protocol>,
    stop: watch::Receiver<bool>,
) {
    let Connection { mut stream, peer, state } = connection;
    stream.encode_request_lines();
    let io = TokioIo::new(stream);
    let hsts = protocol.hsts.clone().filter(|_| peer.is_secure);
    let service = ConnectionService::new(service, peer, state, hsts);
    if protocol.http2 {
        let builder = auto_builder();
        run_until_done(builder.serve_connection(io, service), stop).await;
    } else {
        let mut builder = http1::Builder::new();
        // `ConnectionLimits` closes connections with slow heads, without one timer per connection.
        builder.header_read_timeout(None).max_header_size(HEAD_BYTES_MAX).max_buf_size(BUFFER_BYTES_MAX);
        run_until_done(builder.serve_connection(io, service), stop).await;
    }
}

/// A server for HTTP/1.1 and HTTP/2, which detects the protocol from the first bytes.
fn auto_builder() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    // This builder has no head limit, but the buffer size limits heads.
    builder.http1().header_read_timeout(None).max_buf_size(HEAD_BYTES_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEADER_LIST_BYTES_MAX)
        .max_pending_accept_reset_streams(RESETS_MAX)
        .max_local_error_reset_streams(RESETS_MAX)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES);
    builder
}

/// Drives a connection to its end. Shuts it down gracefully once `stop` is true.
async fn run_until_done<C>(connection: C, mut stop: watch::Receiver<bool>)
where
    C: GracefulConnection,
    C::Error: std::fmt::Display,
{
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        biased;
        ended = connection.as_mut() => ended,
        () = edge::wait_for_stop(&mut stop) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended with an error");
    }
}
