//! The accept loop: a seat for each connection, TLS where it is wanted, and an orderly end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::certificate;
use super::io::Io;
use super::peer::Peer;
use super::seats::{Seat, Seats};
use super::stream::Stream;
use super::tls::Acceptor;
use super::watch::Watch;

/// How long accepting pauses after it failed, as it does when file descriptors run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Where connections come in.
#[derive(Debug)]
pub struct Listener {
    /// The socket.
    pub tcp: TcpListener,
    /// TLS, where it is spoken here.
    pub tls: Option<Acceptor>,
    /// How long its connections may be idle, where that is not as for all.
    pub idle: Option<Duration>,
    /// Longest wait for what is under way at a stop.
    pub finish: Duration,
}

/// An open connection.
#[derive(Debug)]
pub struct Connection {
    /// Its bytes.
    pub stream: Stream,
    /// Who is at the other end.
    pub peer: Arc<Peer>,
    /// To be told how far it is.
    pub watch: Arc<Watch>,
    /// Whether it came in by TLS.
    pub secure: bool,
}

/// Hands connections on until `stop` turns true, then accepts nothing more and waits until all have ended, for as
/// long as `finish` allows; what has not by then is cut off.
pub async fn serve<Handled>(
    listener: Listener,
    seats: Arc<Seats>,
    mut stop: watch::Receiver<bool>,
    handle: impl Fn(Connection) -> Handled + Clone + Send + 'static,
) where
    Handled: Future<Output = ()> + Send + 'static,
{
    let Listener { tcp, tls, idle, finish } = listener;
    let mut tasks = JoinSet::new();
    loop {
        while tasks.try_join_next().is_some() {}
        let (stream, address, seat, watch) = tokio::select! {
            () = stopped(&mut stop) => break,
            seated = next(&tcp, &seats, tls.is_some(), idle) => match seated {
                Some(seated) => seated,
                None => continue,
            },
        };
        // Answers are small: none should wait to be filled up.
        let _ = stream.set_nodelay(true);
        let (id, tls, handle) = (seat.id(), tls.clone(), handle.clone());
        let task = tasks.spawn(async move {
            let _seat = seat;
            if let Some(connection) = open(stream, address, tls, watch).await {
                handle(connection).await;
            }
        });
        seats.sits(id, task);
    }
    drop(tcp);
    let ended = async { while tasks.join_next().await.is_some() {} };
    if tokio::time::timeout(finish, ended).await.is_err() {
        tracing::warn!(connections = tasks.len(), "requests that did not come to an end were cut off");
    }
    tasks.shutdown().await;
}

/// Resolves when `stop` is true, or nobody is left who could say so.
pub async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

/// The next connection that has a seat. `None` when there is none: it failed, or its address has enough of them.
async fn next(
    tcp: &TcpListener,
    seats: &Arc<Seats>,
    secure: bool,
    idle: Option<Duration>,
) -> Option<(TcpStream, SocketAddr, Seat, Arc<Watch>)> {
    let (stream, address) = match tcp.accept().await {
        Ok(accepted) => accepted,
        Err(error) => {
            tracing::warn!(%error, "a connection could not be accepted");
            tokio::time::sleep(ACCEPT_PAUSE).await;
            return None;
        }
    };
    loop {
        if seats.is_full_for(address.ip()) {
            return None;
        }
        if let Some((seat, watch)) = seats.take(address.ip(), secure, idle) {
            return Some((stream, address, seat, watch));
        }
        seats.freed().await;
    }
}

/// The handshake, where there is one, and who it is with.
async fn open(stream: TcpStream, address: SocketAddr, tls: Option<Acceptor>, watch: Arc<Watch>) -> Option<Connection> {
    let address = address.ip().to_canonical();
    let secure = tls.is_some();
    let (io, certificate_names) = match tls {
        None => (Io::Plain(stream), Vec::new()),
        Some(tls) => match tls.accept(stream).await {
            Ok(stream) => {
                let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
                let names = certificate.map(certificate::names).unwrap_or_default();
                (Io::Tls(Box::new(stream)), names)
            }
            Err(error) => {
                tracing::debug!(%address, %error, "a TLS handshake failed");
                return None;
            }
        },
    };
    watch.handshaken();
    let peer = Arc::new(Peer { address, certificate_names });
    Some(Connection { stream: Stream::new(io, watch.clone()), peer, watch, secure })
}
