//! The client of a connection, as far as the connection itself identifies it.

use std::net::{IpAddr, Ipv6Addr};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// In canonical form: an IPv4 client of an IPv6 socket has its IPv4 address here.
    pub address: IpAddr,
    /// The DNS names and the common name of its verified certificate; empty without one.
    pub certificate_names: Vec<Box<str>>,
}

/// The address that counts for the limit per address: an IPv6 /64 network belongs to one customer, who may use all of
/// its addresses.
pub(super) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_network_of_64_bits_counts_as_one() {
        for (address, counted) in [
            ("192.0.2.7", "192.0.2.7"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
            ("2001:db8:1:3::1", "2001:db8:1:3::"),
            ("::1", "::"),
        ] {
            assert_eq!(network(address.parse().unwrap()), counted.parse::<IpAddr>().unwrap(), "{address}");
        }
    }
}
