//! TLS: certificate and key from files that may change while the service runs. An invalid new certificate or key is
//! ignored and logged once; the old ones stay in use. Open connections are not affected.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::certificate;
use super::files_version::FilesVersion;
use crate::telemetry::Metrics;

/// How often the files are checked for changes.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);

/// Whether clients must present a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientAuth {
    /// No certificate is requested.
    Off,
    /// A certificate is optional; an invalid one is refused.
    Optional,
    /// A connection needs a valid certificate.
    Required,
}

/// The PEM files of certificates and keys.
#[derive(Debug, Clone)]
pub struct Files {
    /// The certificate chain, without the root.
    pub certificate: PathBuf,
    /// The certificate's private key.
    pub key: PathBuf,
    /// The authorities that sign clients' certificates.
    pub client_ca: PathBuf,
    pub client_auth: ClientAuth,
}

/// Why the files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file is missing, unreadable or not PEM of the expected kind.
    #[error("cannot read {key} = {file}: {reason}")]
    File {
        /// The config key that names the file.
        key: &'static str,
        file: String,
        /// What is wrong; never contains the file's content.
        reason: String,
    },
    /// Certificate and key do not match or are unusable.
    #[error("cannot use tls.cert_file with tls.key_file: {0}")]
    Pair(rustls::Error),
    /// The authorities' certificates are unusable.
    #[error("cannot use tls.client_ca_file: {0}")]
    ClientCa(String),
}

/// The TLS configuration in use, and the files it comes from.
#[derive(Debug)]
pub struct Tls {
    files: Files,
    current: RwLock<Arc<ServerConfig>>,
    metrics: Metrics,
    /// Signals that a reload was requested.
    wanted: Notify,
}

/// The TLS side of one listener.
#[derive(Debug, Clone)]
pub struct Acceptor {
    tls: Arc<Tls>,
    protocols: Vec<Vec<u8>>,
}

impl Tls {
    /// # Errors
    /// When a file cannot be read or used.
    pub fn load(files: Files, metrics: Metrics) -> Result<Arc<Self>, TlsError> {
        let (config, not_after) = load(&files)?;
        metrics.certificate(not_after);
        let others_read = |file: &Path| std::fs::metadata(file).is_ok_and(|of| of.permissions().mode() & 0o004 != 0);
        if others_read(&files.key) {
            tracing::warn!(file = %files.key.display(), "tls.key_file is readable by every user of this machine; remove that permission");
        }
        Ok(Arc::new(Self { files, current: RwLock::new(Arc::new(config)), metrics, wanted: Notify::new() }))
    }

    /// For a listener that offers these protocols by ALPN.
    #[must_use]
    pub fn acceptor(self: &Arc<Self>, protocols: &[&str]) -> Acceptor {
        let protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        Acceptor { tls: self.clone(), protocols }
    }

    /// Requests a reload of the files, whether they changed or not.
    pub fn reload(&self) {
        self.wanted.notify_one();
    }

    /// Reloads changed files; runs until it is cancelled. Files that changed since the last check may still be in the
    /// middle of a change, so they are loaded only once two checks in a row see the same state.
    pub async fn follow(self: Arc<Self>) {
        let stamp = || {
            let Files { certificate, key, client_ca, .. } = &self.files;
            FilesVersion::of([certificate, key, client_ca].into_iter().map(PathBuf::as_path))
        };
        let (mut taken, mut last) = (stamp(), stamp());
        loop {
            let asked = tokio::time::timeout(LOOK_INTERVAL, self.wanted.notified()).await.is_ok();
            let seen = stamp();
            let rests = seen == std::mem::replace(&mut last, seen.clone());
            if asked || (rests && seen != taken) {
                taken = seen;
                self.take_new();
            }
        }
    }

    fn take_new(&self) {
        match load(&self.files) {
            Ok((config, not_after)) => {
                self.metrics.certificate(not_after);
                *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
                self.metrics.tls_loaded(true);
                tracing::info!("TLS certificate and key reloaded");
            }
            Err(error) => {
                self.metrics.tls_loaded(false);
                tracing::error!(%error, "reloading TLS certificate and key failed; the old ones stay in use");
            }
        }
    }
}

impl Acceptor {
    pub(super) async fn accept(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let current = self.tls.current.read().unwrap_or_else(PoisonError::into_inner).clone();
        // The large parts are reference-counted, so this clone is cheap.
        let mut config = ServerConfig::clone(&current);
        config.alpn_protocols.clone_from(&self.protocols);
        let accepted = TlsAcceptor::from(Arc::new(config)).accept(stream).await;
        accepted.inspect_err(|error| {
            // Port checks disconnect during the handshake; they are not counted.
            if !matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset) {
                self.tls.metrics.connection_closed("tls");
            }
        })
    }
}

/// The server configuration, and the certificate's expiry in seconds since the epoch.
fn load(files: &Files) -> Result<(ServerConfig, Option<i64>), TlsError> {
    let chain = certificates("tls.cert_file", &files.certificate)?;
    let not_after = chain.first().and_then(certificate::not_after);
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| refused("tls.key_file", &files.key, &error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions = &[&rustls::version::TLS13, &rustls::version::TLS12];
    let builder = ServerConfig::builder_with_provider(provider.clone()).with_protocol_versions(versions);
    let builder = builder.map_err(TlsError::Pair)?;
    let builder = match files.client_auth {
        ClientAuth::Off => builder.with_no_client_auth(),
        ClientAuth::Optional => builder.with_client_cert_verifier(verifier(files, &provider, true)?),
        ClientAuth::Required => builder.with_client_cert_verifier(verifier(files, &provider, false)?),
    };
    builder.with_single_cert(chain, key).map(|config| (config, not_after)).map_err(TlsError::Pair)
}

fn verifier(
    files: &Files,
    provider: &Arc<rustls::crypto::CryptoProvider>,
    optional: bool,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates("tls.client_ca_file", &files.client_ca)? {
        roots.add(certificate).map_err(|error| TlsError::ClientCa(error.to_string()))?;
    }
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    let builder = if optional { builder.allow_unauthenticated() } else { builder };
    builder.build().map_err(|error| TlsError::ClientCa(error.to_string()))
}

fn certificates(key: &'static str, file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = read.map_err(|error| refused(key, file, &error))?;
    if found.is_empty() {
        return Err(refused(key, file, &pem::Error::NoItemsFound));
    }
    Ok(found)
}

fn refused(key: &'static str, file: &Path, error: &pem::Error) -> TlsError {
    TlsError::File { key, file: file.display().to_string(), reason: error.to_string() }
}
