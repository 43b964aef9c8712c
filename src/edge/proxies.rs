//! Trusted proxies. Anybody can send `X-Forwarded-For`, so only the part that trusted proxies added is used.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// The networks of trusted proxies, from `server.trusted_proxies`.
#[derive(Debug, Clone, Default)]
pub struct TrustedProxies(Vec<(IpAddr, u8)>);

impl TrustedProxies {
    /// Trusts networks, given as an address and the length of its prefix in bits.
    #[must_use]
    pub fn new(networks: &[(IpAddr, u8)]) -> Self {
        Self(networks.to_vec())
    }

    /// Returns true if a canonical address belongs to a trusted proxy.
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

    /// Returns the client of a connection from `peer`, given the values of `X-Forwarded-For` in order. Each proxy appends
    /// the address of its client, so the client is the rightmost untrusted address. If there is none, or if an entry is not
    /// an address, it is the last trusted one.
    pub fn client<'a>(&self, peer: IpAddr, forwarded: impl DoubleEndedIterator<Item = &'a str>) -> IpAddr {
        if !self.has(peer) {
            return peer;
        }
        let mut client = peer;
        for hop in forwarded.rev().flat_map(|value| value.rsplit(',')) {
            let Some(address) = parse_address(hop.trim()) else { break };
            client = address;
            if !self.has(address) {
                break;
            }
        }
        client
    }
}

/// Parses an address, with or without a port.
fn parse_address(hop: &str) -> Option<IpAddr> {
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
        TrustedProxies::new(&networks.map(|(address, bits)| (address.parse().unwrap(), bits)))
    }

    #[test]
    fn networks_match_addresses_of_their_family() {
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
        let all = TrustedProxies::new(&[("0.0.0.0".parse().unwrap(), 0)]);
        assert!(all.has("203.0.113.9".parse().unwrap()) && !all.has("::1".parse().unwrap()));
        assert!(!TrustedProxies::default().has("127.0.0.1".parse().unwrap()));
    }

    #[test]
    fn only_addresses_from_trusted_proxies_count() {
        let none: &[&str] = &[];
        for (peer, forwarded, client) in [
            // The header of other clients is ignored.
            ("203.0.113.9", ["198.51.100.1"].as_slice(), "203.0.113.9"),
            ("10.0.0.1", none, "10.0.0.1"),
            ("10.0.0.1", &["198.51.100.1"], "198.51.100.1"),
            ("10.0.0.1", &["1.1.1.1, 198.51.100.1"], "198.51.100.1"),
            ("10.0.0.1", &["1.1.1.1", "198.51.100.1 , 10.2.3.4"], "198.51.100.1"),
            ("10.0.0.1", &["198.51.100.1, 1.1.1.1", "10.2.3.4", "192.0.2.7"], "1.1.1.1"),
            // Only proxies.
            ("10.0.0.1", &["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
            // Not an address: use the proxy that received it.
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
