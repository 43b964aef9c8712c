//! Checks of clients beyond tokens: origins of web pages, host names, and proxies. Warns once per start about unsafe
//! setups.

use std::net::IpAddr;
use std::sync::Once;

use axum::http::HeaderMap;

use super::cors::Cors;
use super::hosts::Hosts;
use crate::edge::{Peer, TrustedProxies};

const FORWARDED: &str = "x-forwarded-for";

/// The rules for clients, shared by all listeners.
#[derive(Debug, Default)]
pub struct ClientPolicy {
    pub cors: Cors,
    pub hosts: Hosts,
    pub proxies: TrustedProxies,
}

impl ClientPolicy {
    /// Returns the address of the client: from `X-Forwarded-For` if a trusted proxy sent it, else of the connection.
    pub(crate) fn client_address(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        self.proxies.client(peer, headers.get_all(FORWARDED).iter().map(|value| value.to_str().unwrap_or("?")))
    }

    /// Warns once about a proxied request without authentication: an unknown proxy may let anybody in.
    pub(crate) fn warn_if_unguarded(&self, peer: IpAddr, headers: &HeaderMap) {
        static WARNED: Once = Once::new();
        if headers.contains_key(FORWARDED) && !self.proxies.has(peer) {
            WARNED.call_once(|| tracing::warn!(
                proxy = %peer,
                "a proxy forwards requests (X-Forwarded-For), but this service requires no token, so all clients of the proxy have \
                 full access: create a token (hourglass token add), or add the proxy to server.trusted_proxies"
            ));
        }
    }

    /// Warns once about a token that came over plain HTTP from another machine. Traffic from a trusted proxy is exempt.
    pub(crate) fn warn_if_token_exposed(&self, peer: &Peer, name: &str) {
        static WARNED: Once = Once::new();
        if peer.is_exposed() && !self.proxies.has(peer.address) {
            WARNED.call_once(|| tracing::warn!(
                token = name,
                address = %peer.address,
                "a token was sent over plain HTTP from another machine, so others on the network can read it: serve HTTPS (tls.listen), disable \
                 plain HTTP (server.listen = \"\") and rotate the token, or add your TLS proxy to server.trusted_proxies"
            ));
        }
    }
}
