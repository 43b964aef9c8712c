//! Who sends requests, beyond tokens: pages by their origin, names by which the service is asked, and clients behind
//! proxies. Says once per start what an operator should know about them.

use std::net::IpAddr;
use std::sync::Once;

use axum::http::HeaderMap;

use super::cors::Cors;
use super::hosts::Hosts;
use crate::edge::{Peer, TrustedProxies};

const FORWARDED: &str = "x-forwarded-for";

/// Shared by the listeners of one process.
#[derive(Debug, Default)]
pub struct Senders {
    pub cors: Cors,
    pub hosts: Hosts,
    pub proxies: TrustedProxies,
}

impl Senders {
    /// The address of the client: that of the connection, unless a trusted proxy passes on another's request.
    pub(crate) fn client(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        self.proxies.client(peer, headers.get_all(FORWARDED).iter().map(|value| value.to_str().unwrap_or("?")))
    }

    /// Notices a request that needed no token: a proxy that the configuration does not name may let anybody in.
    pub(crate) fn note_unguarded(&self, peer: IpAddr, headers: &HeaderMap) {
        static TOLD: Once = Once::new();
        if headers.contains_key(FORWARDED) && !self.proxies.has(peer) {
            TOLD.call_once(|| tracing::warn!(
                proxy = %peer,
                "a proxy passes on requests (X-Forwarded-For) to this service, which needs no token: whoever reaches the proxy may do \
                 everything here. Create a token (hourglass token add), or name the proxy in server.trusted_proxies"
            ));
        }
    }

    /// Notices a valid token: one that others on the network could read is no secret. What is between a trusted proxy and
    /// this machine is the operator's.
    pub(crate) fn note_token(&self, peer: &Peer, name: &str) {
        static TOLD: Once = Once::new();
        if peer.is_overheard() && !self.proxies.has(peer.address) {
            TOLD.call_once(|| tracing::warn!(
                token = name,
                address = %peer.address,
                "a token came over plain HTTP from another machine, so others on the network can read it. Serve HTTPS (tls.listen), switch \
                 plain HTTP off (server.listen = \"\"), and rotate the token; or name the proxy that speaks TLS in server.trusted_proxies"
            ));
        }
    }
}
