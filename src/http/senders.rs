//! Who sends requests, beyond tokens: pages by their origin, names by which the service is asked, and clients behind
//! proxies. Says once per start what an operator should know about them.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::http::HeaderMap;

use super::cors::Cors;
use super::hosts::Hosts;
use crate::edge::TrustedProxies;

const FORWARDED: &str = "x-forwarded-for";

/// Shared by the listeners of one process.
#[derive(Debug, Default)]
pub struct Senders {
    pub cors: Cors,
    pub hosts: Hosts,
    pub proxies: TrustedProxies,
    pub told: Told,
}

/// What has been said since the start.
#[derive(Debug, Default)]
pub struct Told {
    unguarded_proxy: AtomicBool,
}

impl Senders {
    /// The address of the client: that of the connection, unless a trusted proxy passes on another's request.
    pub(super) fn client(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        self.proxies.client(peer, headers.get_all(FORWARDED).iter().map(|value| value.to_str().unwrap_or("?")))
    }

    /// Notices a request that needed no token: a proxy that the configuration does not name may let anybody in.
    pub(super) fn note_unguarded(&self, peer: IpAddr, headers: &HeaderMap) {
        let is_proxy = headers.contains_key(FORWARDED) && !self.proxies.has(peer);
        if is_proxy && is_first(&self.told.unguarded_proxy) {
            tracing::warn!(
                proxy = %peer,
                "a proxy passes on requests (X-Forwarded-For) to this service, which needs no token: whoever reaches the proxy may do \
                 everything here. Create a token (hourglass token create), or name the proxy in server.trusted_proxies"
            );
        }
    }
}

fn is_first(told: &AtomicBool) -> bool {
    !told.load(Ordering::Relaxed) && !told.swap(true, Ordering::Relaxed)
}
