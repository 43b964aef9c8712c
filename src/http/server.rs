//! The connections: a bounded number of them, each with a deadline for a request's head, and all
//! of them finished before the service stops. `axum::serve` has neither bound.

use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::Service;
use crate::telemetry::Metrics;

/// Bounds on connections. From the config section `[server]`.
#[derive(Debug, Clone)]
pub struct Connections {
    /// Most at a time; the next one waits to be accepted.
    pub max: usize,
    /// Longest wait for a request's head.
    pub header_timeout: Duration,
    /// Longest wait for the requests under way at a stop.
    pub finish: Duration,
}

/// How long accepting pauses after it failed, as it does when file descriptors run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until `stop` resolves, then accepts nothing more and finishes the requests under way, for
/// as long as `finish` allows. A head or a body that is still not there by then is cut off.
pub async fn serve(
    listener: TcpListener,
    service: Service,
    bounds: Connections,
    metrics: Metrics,
    stop: impl Future<Output = ()>,
) {
    let places = Arc::new(Semaphore::new(bounds.max));
    let graceful = GracefulShutdown::new();
    let mut stop = std::pin::pin!(stop);
    let mut tasks = JoinSet::new();
    loop {
        while tasks.try_join_next().is_some() {}
        let accepted = async {
            let place = places.clone().acquire_owned().await;
            (place, listener.accept().await)
        };
        let (place, stream) = tokio::select! {
            () = &mut stop => break,
            (place, accepted) = accepted => match accepted {
                Ok((stream, _)) => (place, stream),
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            },
        };
        // Answers are small: none should wait to be filled up.
        let _ = stream.set_nodelay(true);
        let mut http = hyper::server::conn::http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(bounds.header_timeout);
        let connection = graceful.watch(http.serve_connection(TokioIo::new(stream), service.clone()));
        metrics.connections.increment(1.0);
        let open = metrics.connections.clone();
        tasks.spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection ended badly");
            }
            open.decrement(1.0);
            drop(place);
        });
    }
    drop(listener);
    if tokio::time::timeout(bounds.finish, graceful.shutdown()).await.is_err() {
        tracing::warn!(connections = tasks.len(), "requests that did not come to an end were cut off");
    }
    tasks.shutdown().await;
}
