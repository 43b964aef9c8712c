//! TLS to a server that this service connects to.

use std::path::Path;
use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_util::either::Either;

use super::tls::{TlsError, file_error, items};

/// A connection to a server, with or without TLS.
pub type ClientStream = Either<TcpStream, Box<tokio_rustls::client::TlsStream<TcpStream>>>;

/// The label of the key that binds a proof to its TLS connection (RFC 9266).
const CHANNEL_LABEL: &[u8] = b"EXPORTER-Channel-Binding";

/// Returns the channel binding of a connection; empty without TLS.
pub fn channel_of(stream: &ClientStream) -> Vec<u8> {
    let Either::Right(tls) = stream else { return Vec::new() };
    exported(|out| tls.get_ref().1.export_keying_material(out, CHANNEL_LABEL, None))
}

/// As [`channel_of`], of a connection that was accepted.
pub(super) fn channel_of_accepted(stream: &tokio_rustls::server::TlsStream<TcpStream>) -> Vec<u8> {
    exported(|out| stream.get_ref().1.export_keying_material(out, CHANNEL_LABEL, None))
}

fn exported(export: impl FnOnce([u8; 32]) -> Result<[u8; 32], rustls::Error>) -> Vec<u8> {
    export([0; 32]).map(Vec::from).unwrap_or_default()
}

/// The PEM files of a client.
#[derive(Debug, Clone, Copy)]
pub struct ClientFiles<'a> {
    /// The authorities of the server's certificate. `None` stands for those of web browsers.
    pub ca: Option<&'a Path>,
    /// The client's certificate and key.
    pub pair: Option<(&'a Path, &'a Path)>,
}

/// Does the handshake with a server of this name.
///
/// # Errors
/// If a file cannot be used, or the handshake fails.
pub async fn connect_tls(tcp: TcpStream, host: &str, files: ClientFiles<'_>) -> Result<ClientStream, TlsError> {
    let mut roots = RootCertStore::empty();
    match files.ca {
        None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        Some(file) => {
            for certificate in items::<CertificateDer<'_>>("ca_file", file)? {
                roots.add(certificate).map_err(|error| TlsError::Client(error.to_string()))?;
            }
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12]);
    let builder = builder.map_err(|error| TlsError::Client(error.to_string()))?.with_root_certificates(roots);
    let config = match files.pair {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = items("cert_file", certificate)?;
            let key = PrivateKeyDer::from_pem_file(key).map_err(|error| file_error("key_file", key, &error))?;
            builder.with_client_auth_cert(chain, key).map_err(|error| TlsError::Client(error.to_string()))?
        }
    };
    let name = ServerName::try_from(host.to_owned()).map_err(|error| TlsError::Client(error.to_string()))?;
    let stream = TlsConnector::from(Arc::new(config)).connect(name, tcp).await;
    stream.map(|stream| Either::Right(Box::new(stream))).map_err(|error| TlsError::Client(error.to_string()))
}
