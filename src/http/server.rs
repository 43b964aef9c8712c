//! What is spoken on the connections that come in: HTTP/1.1, and HTTP/2 where it is wanted, with bounds on heads and
//! streams. What was begun is finished before the service stops. `axum::serve` has none of these bounds.

use std::pin::pin;
use std::sync::Arc;

use axum::http::HeaderValue;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulConnection;
use tokio::sync::watch;

use super::Service;
use super::connection::Connected;
use crate::edge::{self, Connection, Listener, Seats};

/// How HTTP is spoken. From the config sections `[server]` and `[tls]`.
#[derive(Debug, Clone, Default)]
pub struct Protocol {
    /// Most bytes of a request's head.
    pub header_bytes: usize,
    /// Whether HTTP/2 is spoken.
    pub http2: bool,
    /// What goes out as `Strict-Transport-Security` on connections by TLS.
    pub hsts: Option<HeaderValue>,
}

/// Most requests under way on one connection of HTTP/2.
const STREAMS_MAX: u32 = 64;
/// Most bytes of a head in HTTP/2.
const HEADER_LIST_BYTES: u32 = 16 << 10;
/// Most streams that a client may begin and take back before it is sent away.
const RESETS_MAX: usize = 64;
/// How many bytes may be on their way for one request of HTTP/2, and for all of a connection.
const WINDOW_BYTES: u32 = 256 << 10;

impl Protocol {
    /// What clients may choose among by ALPN.
    #[must_use]
    pub fn names(&self) -> &'static [&'static str] {
        if self.http2 { &["h2", "http/1.1"] } else { &["http/1.1"] }
    }
}

/// Serves until `stop` turns true, then accepts nothing more and finishes the requests under way, for
/// as long as the listener allows. A head or a body that is still not there by then is cut off.
pub async fn serve(
    listener: Listener,
    seats: Arc<Seats>,
    service: Service,
    protocol: Protocol,
    stop: watch::Receiver<bool>,
) {
    let protocol = Arc::new(protocol);
    let stopping = stop.clone();
    let handle = move |connection| converse(connection, service.clone(), protocol.clone(), stopping.clone());
    edge::serve(listener, seats, stop, handle).await;
}

async fn converse(connection: Connection, service: Service, protocol: Arc<Protocol>, stop: watch::Receiver<bool>) {
    let Connection { stream, peer, watch, secure } = connection;
    let io = TokioIo::new(stream);
    let (http2, header_bytes) = (protocol.http2, protocol.header_bytes);
    let connected = Connected::new(service.for_peer(peer), watch, secure, protocol);
    if http2 {
        let builder = either(header_bytes);
        until_done(builder.serve_connection(io, connected), stop).await;
    } else {
        let mut builder = http1::Builder::new();
        // The watch has an eye on slow heads, without a timer for each.
        builder.header_read_timeout(None).max_header_size(header_bytes);
        until_done(builder.serve_connection(io, connected), stop).await;
    }
}

/// HTTP/1.1 or HTTP/2, by how the connection begins.
fn either(header_bytes: usize) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    // It has no bound of its own for heads; the buffer's is one.
    builder.http1().header_read_timeout(None).max_buf_size(header_bytes);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEADER_LIST_BYTES)
        .max_pending_accept_reset_streams(RESETS_MAX)
        .max_local_error_reset_streams(RESETS_MAX)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES);
    builder
}

async fn until_done<C>(connection: C, mut stop: watch::Receiver<bool>)
where
    C: GracefulConnection,
    C::Error: std::fmt::Display,
{
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        biased;
        ended = connection.as_mut() => ended,
        () = edge::stopped(&mut stop) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended badly");
    }
}
