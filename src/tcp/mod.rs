//! Lines of line protocol over plain TCP, for those who cannot speak HTTP. Nothing is acked: what was sent when a
//! connection broke may be lost. A sender is slowed down by not being read, and never told to come again.

mod batches;
mod conversation;
mod hello;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use self::hello::Refused;
use crate::access::{Audit, Caller, Event, Presented, Registry};
use crate::clock::now_seconds;
use crate::edge::{self, Listener, Seats};
use crate::ingest::{Ingest, Rejected};
use crate::reading::Precision;
use crate::telemetry::Metrics;

/// How lines are taken. From the config sections `[tcp]`, `[limits]` and `[server]`.
#[derive(Debug, Clone)]
pub struct Options {
    /// The database of those who name none.
    pub database: String,
    /// The precision of those who name none.
    pub precision: Precision,
    /// Most bytes that are handed over together, if that is less than what suits: as of a request's body.
    pub batch_bytes: usize,
    /// Most bytes of a line.
    pub line_bytes: usize,
    /// Where HTTP is served, for those who came to the wrong port.
    pub http: SocketAddr,
}

/// What all connections share. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Service(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    ingest: Arc<Ingest>,
    access: Arc<Registry>,
    audit: Arc<Audit>,
    options: Options,
    metrics: Metrics,
    started: Instant,
    /// When refused lines were last told of, in milliseconds since the start, plus one.
    told: AtomicU64,
}

/// How often refused lines are told of in the log.
const TELL_INTERVAL: Duration = Duration::from_secs(10);

/// Takes lines until `stop` turns true; what was read by then is handed over.
pub async fn serve(listener: Listener, seats: Arc<Seats>, service: Service, stop: watch::Receiver<bool>) {
    let stopping = stop.clone();
    let handle = move |connection| conversation::converse(connection, service.clone(), stopping.clone());
    edge::serve(listener, seats, stop, handle).await;
}

impl Service {
    /// Over the write path, for those who may.
    #[must_use]
    pub fn new(ingest: Arc<Ingest>, who: (Arc<Registry>, Arc<Audit>), options: Options, metrics: Metrics) -> Self {
        let (started, told) = (Instant::now(), AtomicU64::new(0));
        let (access, audit) = who;
        Self(Arc::new(Shared { ingest, access, audit, options, metrics, started, told }))
    }
}

impl Shared {
    /// Who sends lines into a database, if they may.
    fn authorize(&self, token: Option<&str>, peer: &edge::Peer, database: &str) -> Result<Caller, Refused> {
        let caller = self.access.caller(token, &peer.certificate_names, now_seconds()).map_err(|denied| {
            self.note_denied(denied.label(), token, peer);
            Refused("authorization failed: begin with a line of 'auth TOKEN', of a token that counts".to_owned())
        })?;
        if caller.may_write(database) {
            return Ok(caller);
        }
        self.note_denied("forbidden", token, peer);
        Err(Refused(format!("{} may not write to database {database:?}", caller.name())))
    }

    fn note_denied(&self, reason: &'static str, token: Option<&str>, peer: &edge::Peer) {
        self.metrics.denied(reason);
        let token = token.and_then(Presented::parse).map(|presented| presented.id);
        let denied = Event::Denied { reason, address: Some(peer.address), route: "tcp", token };
        self.audit.note_denied(&denied, Instant::now());
    }

    /// Tells of refused lines, of one now and then: their sender is not told, and may go on for ever.
    fn tell(&self, rejected: &Rejected, peer: &edge::Peer) {
        let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let now = millis(self.started.elapsed()) + 1;
        let last = self.told.load(Ordering::Relaxed);
        let due = last == 0 || now - last.min(now) >= millis(TELL_INTERVAL);
        if rejected.count == 0 || !due || self.told.swap(now, Ordering::Relaxed) != last {
            return;
        }
        let example = rejected.told.first();
        let reason = example.map(crate::reading::Rejection::message).unwrap_or_default();
        let line = example.map(|rejection| rejection.text.as_str()).unwrap_or_default();
        // A secret that came too late to be one.
        let line = if line.starts_with("auth ") { "auth ***" } else { line };
        tracing::warn!(address = %peer.address, count = rejected.count, reason, line, "lines over TCP were refused");
    }
}
