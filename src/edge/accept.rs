//! The accept loop: enforces the connection limits, does the TLS handshake if the listener has TLS, and drains
//! connections at shutdown.

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

/// The pause after a failed `accept`, for example when file descriptors run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub struct Listener {
    pub tcp: TcpListener,
    /// `None` for a plain listener.
    pub tls: Option<Acceptor>,
    /// Overrides [`Bounds::idle`](super::Bounds::idle) for the connections of this listener.
    pub idle: Option<Duration>,
    /// Their connections are those of many clients, so no limit per address applies to them.
    pub proxies: Arc<TrustedProxies>,
    /// At shutdown, how long requests in progress may take to finish.
    pub finish: Duration,
}

/// An accepted connection, after its TLS handshake if there is one.
#[derive(Debug)]
pub struct Connection {
    pub stream: Stream,
    pub peer: Arc<Peer>,
    /// The handler reports the progress of its requests here.
    pub watch: Arc<ConnectionState>,
}

/// Accepts connections and passes each to `handle` until `stop` turns true. Then accepts no more and waits up to
/// `finish` for the open ones to end; those that have not ended by then are aborted.
pub async fn serve<Handled>(
    listener: Listener,
    limits: Arc<ConnectionLimits>,
    mut stop: watch::Receiver<bool>,
    handle: impl Fn(Connection) -> Handled + Clone + Send + 'static,
) where
    Handled: Future<Output = ()> + Send + 'static,
{
    let Listener { tcp, tls, idle, proxies, finish } = listener;
    let mut tasks = JoinSet::new();
    loop {
        while tasks.try_join_next().is_some() {}
        let (stream, address, permit, watch) = tokio::select! {
            () = stopped(&mut stop) => break,
            seated = next(&tcp, &limits, (tls.is_some(), idle), &proxies) => match seated {
                Some(seated) => seated,
                None => continue,
            },
        };
        // Answers are small: Nagle's algorithm would only delay them.
        let _ = stream.set_nodelay(true);
        let (id, tls, handle) = (permit.id, tls.clone(), handle.clone());
        let task = tasks.spawn(async move {
            let _permit = permit;
            if let Some(connection) = open(stream, address, tls, watch).await {
                handle(connection).await;
            }
        });
        limits.sits(id, task);
    }
    drop(tcp);
    let ended = async { while tasks.join_next().await.is_some() {} };
    if tokio::time::timeout(finish, ended).await.is_err() {
        tracing::warn!(connections = tasks.len(), "shutdown time is over; open connections were aborted");
    }
    tasks.shutdown().await;
}

/// Resolves when `stop` is true or its sender is gone.
pub async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

/// The next connection that gets a permit. `None` if `accept` failed or the client's address has reached
/// `server.connections_per_address`, unless it is a trusted proxy's.
async fn next(
    tcp: &TcpListener,
    limits: &Arc<ConnectionLimits>,
    (secure, idle): (bool, Option<Duration>),
    proxies: &TrustedProxies,
) -> Option<(TcpStream, SocketAddr, ConnectionPermit, Arc<ConnectionState>)> {
    let (stream, address) = match tcp.accept().await {
        Ok(accepted) => accepted,
        Err(error) => {
            tracing::warn!(%error, "accepting a connection failed");
            tokio::time::sleep(ACCEPT_PAUSE).await;
            return None;
        }
    };
    let bounded = !proxies.has(address.ip().to_canonical());
    loop {
        if bounded && limits.is_full_for(address.ip()) {
            return None;
        }
        if let Some((permit, watch)) = limits.take(address.ip(), secure, idle) {
            return Some((stream, address, permit, watch));
        }
        limits.freed().await;
    }
}

/// Does the TLS handshake if the listener has TLS, and identifies the peer.
async fn open(
    stream: TcpStream,
    address: SocketAddr,
    tls: Option<Acceptor>,
    watch: Arc<ConnectionState>,
) -> Option<Connection> {
    let address = address.ip().to_canonical();
    let secure = tls.is_some();
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
    watch.handshaken();
    let peer = Arc::new(Peer { address, secure, certificate });
    Some(Connection { stream: Stream::new(io, watch.clone()), peer, watch })
}
