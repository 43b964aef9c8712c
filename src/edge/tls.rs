//! TLS: certificate and key from files that may change while we serve. What is bad when it changes is not taken: the
//! old ones stay, the log says so once, and open connections notice nothing.

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
use super::stamp::Stamp;
use crate::telemetry::Metrics;

/// How often the files are looked at.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);

/// Whether clients show a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientAuth {
    /// None is asked for.
    Off,
    /// One that is shown must be good.
    Optional,
    /// Without a good one there is no connection.
    Required,
}

/// Where certificates and keys lie, as PEM.
#[derive(Debug, Clone)]
pub struct Files {
    /// The certificate, with those between it and the root.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// Who signs clients' certificates.
    pub client_ca: PathBuf,
    /// Whether clients show one.
    pub client_auth: ClientAuth,
}

/// Why files are of no use.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file that cannot be read, or holds something else.
    #[error("reading {key} = {file}: {reason}")]
    File {
        /// The config key that names it.
        key: &'static str,
        /// The file.
        file: String,
        /// What is wrong with it; never what it holds.
        reason: String,
    },
    /// Certificate and key that do not go together, or that cannot be used.
    #[error("using tls.cert_file and tls.key_file: {0}")]
    Pair(rustls::Error),
    /// Certificates of signers that cannot be used.
    #[error("using tls.client_ca_file: {0}")]
    ClientCa(String),
}

/// What is served with at the moment.
#[derive(Debug)]
pub struct Tls {
    files: Files,
    current: RwLock<Arc<ServerConfig>>,
    metrics: Metrics,
    /// Somebody wants the files looked at now.
    wanted: Notify,
}

/// How one listener speaks TLS.
#[derive(Debug, Clone)]
pub struct Acceptor {
    tls: Arc<Tls>,
    protocols: Vec<Vec<u8>>,
}

impl Tls {
    /// Loads the files.
    ///
    /// # Errors
    /// What is wrong with which of them.
    pub fn load(files: Files, metrics: Metrics) -> Result<Arc<Self>, TlsError> {
        let (config, not_after) = load(&files)?;
        metrics.certificate(not_after);
        let others_read = |file: &Path| std::fs::metadata(file).is_ok_and(|of| of.permissions().mode() & 0o004 != 0);
        if others_read(&files.key) {
            tracing::warn!(file = %files.key.display(), "everybody on this machine can read tls.key_file");
        }
        Ok(Arc::new(Self { files, current: RwLock::new(Arc::new(config)), metrics, wanted: Notify::new() }))
    }

    /// For a listener whose clients choose among these protocols by ALPN.
    #[must_use]
    pub fn acceptor(self: &Arc<Self>, protocols: &[&str]) -> Acceptor {
        let protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        Acceptor { tls: self.clone(), protocols }
    }

    /// Has the files loaded again soon, whether they changed or not.
    pub fn reload(&self) {
        self.wanted.notify_one();
    }

    /// Takes files that changed, for ever. Those that have changed since the last look may still be at it, so they
    /// are left alone until the next one.
    pub async fn follow(self: Arc<Self>) {
        let stamp = || {
            let Files { certificate, key, client_ca, .. } = &self.files;
            Stamp::of([certificate, key, client_ca].into_iter().map(PathBuf::as_path))
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
                tracing::info!("certificate and key were loaded anew");
            }
            Err(error) => {
                self.metrics.tls_loaded(false);
                tracing::error!(%error, "certificate and key were not loaded anew; the old ones stay in use");
            }
        }
    }
}

impl Acceptor {
    pub(super) async fn accept(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let current = self.tls.current.read().unwrap_or_else(PoisonError::into_inner).clone();
        // What is large in it is shared.
        let mut config = ServerConfig::clone(&current);
        config.alpn_protocols.clone_from(&self.protocols);
        let accepted = TlsAcceptor::from(Arc::new(config)).accept(stream).await;
        accepted.inspect_err(|error| {
            // Whoever only looks whether somebody listens leaves in the middle of it.
            if !matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset) {
                self.tls.metrics.connection_closed("tls");
            }
        })
    }
}

/// How to serve, and the second since the epoch at which the certificate ends.
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
