//! The accept loop: enforces the connection limits, does TLS handshakes, and drains connections at shutdown.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::connection_limits::{ConnectionLimits, ConnectionPermit};
use super::connection_state::ConnectionState;
use super::peer::Peer;
use super::proxies::TrustedProxies;
use super::stream::{Io, Stream};
use super::tls::Acceptor;

/// Pause after a failed `accept`, for example without free file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A listening socket and its settings.
#[derive(Debug)]
pub struct Listener {
    pub tcp: TcpListener,
    /// `None` for a plain listener.
    pub tls: Option<Acceptor>,
    /// Overrides [`Bounds::idle`](super::Bounds::idle).
    pub idle: Option<Duration>,
    /// Proxies are exempt from the limit per address, because they connect for many clients.
    pub proxies: Arc<TrustedProxies>,
    /// Maximum time for requests in progress at shutdown.
    pub drain_timeout: Duration,
}

/// An accepted connection, after its TLS handshake if there is one.
#[derive(Debug)]
pub struct Connection {
    pub stream: Stream,
    pub peer: Arc<Peer>,
    /// The handler reports the progress of requests here.
    pub state: Arc<ConnectionState>,
}

/// An accepted connection with a permit, before its TLS handshake.
struct AcceptedStream {
    stream: TcpStream,
    address: SocketAddr,
    permit: ConnectionPermit,
    state: Arc<ConnectionState>,
}

/// Accepts connections and passes each to `handle` until `stop` turns true. Then waits up to `drain_timeout` for open
/// connections to end, and aborts the remaining ones.
pub async fn serve<Handled>(
    listener: Listener,
    limits: Arc<ConnectionLimits>,
    mut stop: watch::Receiver<bool>,
    handle: impl Fn(Connection) -> Handled + Clone + Send + 'static,
) where
    Handled: Future<Output = ()> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    loop {
        while tasks.try_join_next().is_some() {}
        let admitted = tokio::select! {
            () = wait_for_stop(&mut stop) => break,
            admitted = next_connection(&listener, &limits) => admitted,
        };
        let Some(AcceptedStream { stream, address, permit, state }) = admitted else { continue };
        // Answers are small, so Nagle's algorithm would only delay them.
        let _ = stream.set_nodelay(true);
        let id = permit.id;
        let tls = listener.tls.clone();
        let handle = handle.clone();
        let task = tasks.spawn(async move {
            let _permit = permit;
            if let Some(connection) = open(stream, address, tls, state).await {
                handle(connection).await;
            }
        });
        limits.register_task(id, task);
    }
    let drain_timeout = listener.drain_timeout;
    drop(listener);
    let ended = async { while tasks.join_next().await.is_some() {} };
    if tokio::time::timeout(drain_timeout, ended).await.is_err() {
        tracing::warn!(connections = tasks.len(), "aborted open connections at the end of the shutdown time");
    }
    tasks.shutdown().await;
}

/// Resolves when `stop` is true or its sender was dropped.
pub async fn wait_for_stop(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Accepts a connection and waits for a permit. `None` if `accept` failed, or if the client's address has reached
/// `server.connections_per_address` and is not a trusted proxy.
async fn next_connection(listener: &Listener, limits: &Arc<ConnectionLimits>) -> Option<AcceptedStream> {
    let (stream, address) = match listener.tcp.accept().await {
        Ok(accepted) => accepted,
        Err(error) => {
            tracing::warn!(%error, "accepting a connection failed");
            tokio::time::sleep(ACCEPT_PAUSE).await;
            return None;
        }
    };
    let is_limited = !listener.proxies.has(address.ip().to_canonical());
    loop {
        if is_limited && limits.is_full_for(address.ip()) {
            return None;
        }
        if let Some((permit, state)) = limits.try_acquire(address.ip(), listener.tls.is_some(), listener.idle) {
            return Some(AcceptedStream { stream, address, permit, state });
        }
        limits.wait_for_room().await;
    }
}

/// Does the TLS handshake if the listener has TLS, and identifies the peer.
async fn open(
    stream: TcpStream,
    address: SocketAddr,
    tls: Option<Acceptor>,
    state: Arc<ConnectionState>,
) -> Option<Connection> {
    let address = address.ip().to_canonical();
    let is_secure = tls.is_some();
    let (io, certificate) = match tls {
        None => (Io::Left(stream), None),
        Some(tls) => match tls.accept(stream).await {
            Ok((stream, certificate)) => (Io::Right(Box::new(stream)), certificate),
            Err(error) => {
                tracing::debug!(%address, %error, "TLS handshake failed");
                return None;
            }
        },
    };
    state.end_handshake();
    let peer = Arc::new(Peer { address, is_secure, certificate });
    Some(Connection { stream: Stream::new(io, state.clone()), peer, state })
}
