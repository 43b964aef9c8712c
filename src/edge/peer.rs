//! The client of a connection, with its address and certificate.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustls_pki_types::CertificateDer;

use super::certificate;
use super::tls::Tls;

/// The client of a connection.
#[derive(Debug)]
pub struct Peer {
    /// The canonical address: IPv4 for an IPv4 client of an IPv6 socket.
    pub address: IpAddr,
    /// True if the connection uses TLS.
    pub is_secure: bool,
    /// The client certificate of the TLS handshake.
    pub(super) certificate: Option<PeerCertificate>,
}

/// A client certificate that was verified in the handshake.
#[derive(Debug)]
pub(super) struct PeerCertificate {
    /// The certificate, followed by the other certificates that the client sent.
    chain: Vec<CertificateDer<'static>>,
    identities: Vec<Box<str>>,
    /// `notAfter`, in seconds since the epoch.
    not_after: Option<i64>,
    tls: Arc<Tls>,
    /// The generation of the TLS files that last verified the certificate.
    generation: AtomicU64,
}

/// The reason why a certificate is no longer valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StaleCertificate {
    #[error(
        "the client certificate has expired since this connection was opened: connect again with a new certificate"
    )]
    Expired,
    #[error(
        "the client certificate is no longer accepted, because it was revoked (tls.client_crl_file) or tls.client_ca_file \
         has changed: connect again with another certificate"
    )]
    Refused,
}

impl Peer {
    /// The fingerprint (`sha256:HEX`) and the DNS names (`dns:NAME`) of the client certificate; empty without one.
    #[must_use]
    pub fn identities(&self) -> &[Box<str>] {
        self.certificate.as_ref().map_or(&[], |certificate| &certificate.identities)
    }

    /// Returns true if others on the network can read the requests: plain TCP from another machine.
    #[must_use]
    pub fn is_exposed(&self) -> bool {
        !self.is_secure && !self.address.is_loopback()
    }

    /// Checks that the client certificate, if there is one, is still valid at `now` (seconds since the epoch). Call
    /// this for each request, because a connection may outlive its certificate. Costs two comparisons while the TLS
    /// files do not change.
    ///
    /// # Errors
    /// If the certificate has expired or is no longer accepted.
    pub fn check_certificate(&self, now: i64) -> Result<(), StaleCertificate> {
        self.certificate.as_ref().map_or(Ok(()), |certificate| certificate.check(now))
    }
}

impl PeerCertificate {
    /// `None` for an empty chain.
    pub(super) fn new(chain: &[CertificateDer<'_>], tls: Arc<Tls>, generation: u64) -> Option<Self> {
        let first = chain.first()?;
        Some(Self {
            identities: certificate::identities(first),
            not_after: certificate::not_after(first),
            chain: chain.iter().map(|certificate| certificate.clone().into_owned()).collect(),
            tls,
            generation: AtomicU64::new(generation),
        })
    }

    fn check(&self, now: i64) -> Result<(), StaleCertificate> {
        if self.not_after.is_none_or(|end| now > end) {
            return Err(StaleCertificate::Expired);
        }
        let generation = self.tls.generation();
        if self.generation.load(Ordering::Relaxed) != generation {
            if !self.tls.accepts(&self.chain) {
                return Err(StaleCertificate::Refused);
            }
            self.generation.store(generation, Ordering::Relaxed);
        }
        Ok(())
    }
}

impl StaleCertificate {
    /// The label in metrics, and the reason in the audit trail.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Expired => "certificate_expired",
            Self::Refused => "certificate_refused",
        }
    }
}

/// Returns the address for the limit per address. An IPv6 /64 network counts as one, because it usually belongs to one
/// customer.
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
    fn only_plain_connections_from_other_machines_are_exposed() {
        for (address, is_secure, exposed) in [
            ("127.0.0.1", false, false),
            ("127.9.9.9", false, false),
            ("::1", false, false),
            ("192.168.1.5", false, true),
            ("2001:db8::1", false, true),
            ("192.168.1.5", true, false),
        ] {
            let peer = Peer { address: address.parse().unwrap(), is_secure, certificate: None };
            assert_eq!(peer.is_exposed(), exposed, "{address} {is_secure}");
        }
    }

    #[test]
    fn an_ipv6_network_of_64_bits_counts_as_one() {
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
