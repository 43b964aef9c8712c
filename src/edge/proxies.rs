//! Proxies whose word about their clients' addresses counts. Anybody can write the header; only the part that trusted
//! proxies added is read.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// From `server.trusted_proxies`.
#[derive(Debug, Clone, Default)]
pub struct TrustedProxies(Vec<(IpAddr, u8)>);

impl TrustedProxies {
    /// Of networks: an address and the number of its leading bits that count.
    #[must_use]
    pub fn of(networks: &[(IpAddr, u8)]) -> Self {
        Self(networks.to_vec())
    }

    /// Whether a canonical address is that of a trusted proxy.
    #[must_use]
    pub fn has(&self, address: IpAddr) -> bool {
        self.0.iter().any(|(network, bits)| match (network, address) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                (network.to_bits() ^ address.to_bits()).leading_zeros() >= u32::from(*bits)
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                (network.to_bits() ^ address.to_bits()).leading_zeros() >= u32::from(*bits)
            }
            _ => false,
        })
    }

    /// The client of a connection from `peer`, given the values of `X-Forwarded-For` in their order. Each proxy adds the
    /// address from which it was asked on the right: the first untrusted one from there is the client, and what stands
    /// left of it is only what the client says. Where the header ends, or is not an address, the last trusted one counts.
    pub fn client<'a>(&self, peer: IpAddr, forwarded: impl DoubleEndedIterator<Item = &'a str>) -> IpAddr {
        if !self.has(peer) {
            return peer;
        }
        let mut client = peer;
        for hop in forwarded.rev().flat_map(|value| value.rsplit(',')) {
            let Some(address) = address_of(hop.trim()) else { break };
            client = address;
            if !self.has(address) {
                break;
            }
        }
        client
    }
}

/// Some proxies add the port.
fn address_of(hop: &str) -> Option<IpAddr> {
    let plain = || hop.parse::<IpAddr>().ok();
    let bracketed = || hop.strip_prefix('[')?.strip_suffix(']')?.parse::<Ipv6Addr>().ok().map(IpAddr::V6);
    let with_port = || hop.parse::<SocketAddr>().ok().map(|address| address.ip());
    plain().or_else(bracketed).or_else(with_port).map(|address| address.to_canonical())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn proxies() -> TrustedProxies {
        let networks = [("10.0.0.0", 8), ("192.0.2.7", 32), ("2001:db8::", 32), ("::1", 128)];
        TrustedProxies::of(&networks.map(|(address, bits)| (address.parse().unwrap(), bits)))
    }

    #[test]
    fn networks_are_of_one_family() {
        for (address, trusted) in [
            ("10.255.0.1", true),
            ("11.0.0.1", false),
            ("192.0.2.7", true),
            ("192.0.2.6", false),
            ("2001:db8:ffff::1", true),
            ("2001:db9::1", false),
            ("::1", true),
            ("::2", false),
        ] {
            assert_eq!(proxies().has(address.parse().unwrap()), trusted, "{address}");
        }
        let all = TrustedProxies::of(&[("0.0.0.0".parse().unwrap(), 0)]);
        assert!(all.has("203.0.113.9".parse().unwrap()) && !all.has("::1".parse().unwrap()));
        assert!(!TrustedProxies::default().has("127.0.0.1".parse().unwrap()));
    }

    #[test]
    fn only_what_trusted_proxies_added_counts() {
        let none: &[&str] = &[];
        for (peer, forwarded, client) in [
            // Whoever is no proxy may write what he likes.
            ("203.0.113.9", ["198.51.100.1"].as_slice(), "203.0.113.9"),
            ("10.0.0.1", none, "10.0.0.1"),
            ("10.0.0.1", &["198.51.100.1"], "198.51.100.1"),
            ("10.0.0.1", &["1.1.1.1, 198.51.100.1"], "198.51.100.1"),
            ("10.0.0.1", &["1.1.1.1", "198.51.100.1 , 10.2.3.4"], "198.51.100.1"),
            ("10.0.0.1", &["198.51.100.1, 1.1.1.1", "10.2.3.4", "192.0.2.7"], "1.1.1.1"),
            // Nobody but proxies.
            ("10.0.0.1", &["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
            // No address: the proxy that took it counts.
            ("10.0.0.1", &["198.51.100.1, unknown"], "10.0.0.1"),
            ("10.0.0.1", &["198.51.100.1, , 10.0.0.2"], "10.0.0.2"),
            ("10.0.0.1", &[""], "10.0.0.1"),
            ("10.0.0.1", &["198.51.100.1:4711"], "198.51.100.1"),
            ("::1", &["[2001:db9::5]:4711"], "2001:db9::5"),
            ("::1", &["[2001:db9::5]"], "2001:db9::5"),
            ("::1", &["2001:db9::5"], "2001:db9::5"),
            ("::1", &["::ffff:198.51.100.1"], "198.51.100.1"),
            ("::1", &["198.51.100.1, ::ffff:10.0.0.2"], "198.51.100.1"),
        ] {
            let found = proxies().client(peer.parse().unwrap(), forwarded.iter().copied());
            assert_eq!(found, client.parse::<IpAddr>().unwrap(), "{peer} {forwarded:?}");
        }
    }
}
