//! Line protocol over TCP, for clients that cannot use HTTP. Nothing is acked, so lines sent shortly before a
//! connection breaks may be lost. Under overload the service stops reading, which slows the sender down.

mod batches;
mod conversation;
mod hello;

use std::sync::{Arc, Once};
use std::time::Instant;

use tokio::sync::watch;

use crate::access::{Audit, Caller, Denied, Effect, Event, PresentedToken, TokenRegistry};
use crate::clock::now_seconds;
use crate::edge::{self, ConnectionLimits, Listener};
use crate::ingest::Ingest;
use crate::telemetry::Metrics;

/// State shared by all connections.
#[derive(Debug)]
pub struct TcpService {
    pub ingest: Arc<Ingest>,
    pub access: Arc<TokenRegistry>,
    pub audit: Arc<Audit>,
    pub metrics: Metrics,
    /// The URL of the HTTP service, for the answer to HTTP requests on this port.
    pub http: String,
}

/// Serves connections until `stop` turns true. Lines read by then are still passed to ingest.
pub async fn serve(
    listener: Listener,
    limits: Arc<ConnectionLimits>,
    service: Arc<TcpService>,
    stop: watch::Receiver<bool>,
) {
    let stopping = stop.clone();
    let handle = move |connection| conversation::serve_connection(connection, service.clone(), stopping.clone());
    edge::serve(listener, limits, stop, handle).await;
}

impl TcpService {
    /// Authenticates a sender that may write to the database.
    ///
    /// # Errors
    /// The reason of a refusal, for the sender.
    /// Returns true if a sender must begin with a token.
    fn needs_token(&self, peer: &edge::Peer) -> bool {
        self.access.caller(None, peer.identities(), now_seconds()).is_err()
    }

    fn authorize(&self, token: Option<&str>, peer: &edge::Peer, database: &str) -> Result<Caller, String> {
        static WARNED: Once = Once::new();
        let now = now_seconds();
        peer.check_certificate(now).map_err(|stale| {
            self.log_denied(stale.label(), token, peer);
            stale.to_string()
        })?;
        let caller = self.access.caller(token, peer.identities(), now).map_err(|denied| {
            self.log_denied(denied.label(), token, peer);
            match denied {
                Denied::Unavailable => "the tokens are not loaded yet: try again later",
                _ => "authorization failed: start with the line 'auth TOKEN' and a valid token",
            }
        })?;
        if token.is_some() && matches!(caller, Caller::Holder(_)) && peer.is_exposed() {
            WARNED.call_once(|| tracing::warn!(
                token = caller.name(),
                address = %peer.address,
                "a token was sent over plain TCP from another machine, so others on the network can read it: set tcp.tls and rotate the token"
            ));
        }
        caller.check(Effect::Write, Some(database)).map_err(|forbidden| {
            self.log_denied("forbidden", token, peer);
            forbidden.to_string()
        })?;
        Ok(caller)
    }

    fn log_denied(&self, reason: &'static str, token: Option<&str>, peer: &edge::Peer) {
        self.metrics.count_denied(reason);
        let token = token.and_then(PresentedToken::parse).map(|presented| presented.id);
        let denied = Event::Denied { reason, address: Some(peer.address), route: "tcp", token };
        self.audit.note_denied(&denied, Instant::now());
    }
}
