//! TLS with certificates and keys from files that are reloaded when they change. Invalid new files are logged once, and
//! the old ones stay in use. Open connections continue, but client certificates are verified again with the next
//! request.

use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, VerifierBuilderError, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, UnixTime};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use webpki::{BorrowedCertRevocationList, CertRevocationList};

use super::certificate;
use super::peer::PeerCertificate;
use super::tls_client::channel_of_accepted;
use crate::config::{ClientAuth, TlsSettings};
use crate::telemetry::Metrics;

/// Interval of the checks for changed files.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// The reason why the TLS files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file is missing, unreadable or not PEM of the expected kind.
    #[error("cannot read {key} = {file}: {reason}")]
    File {
        /// The config key that names the file.
        key: &'static str,
        file: String,
        /// Never contains the content of the file.
        reason: String,
    },
    /// Certificate and key do not match or are unusable.
    #[error("cannot use tls.cert_file with tls.key_file: {0}")]
    Pair(rustls::Error),
    /// The CA certificates are unusable.
    #[error("cannot use tls.client_ca_file: {0}")]
    ClientCa(String),
    /// The revocation lists are unusable.
    #[error("cannot use tls.client_crl_file: {0}")]
    ClientCrl(String),
    /// The handshake with a server failed, or cannot begin.
    #[error("TLS failed: {0}")]
    Client(String),
}

/// The TLS configuration in use, and the files it comes from.
#[derive(Debug)]
pub struct Tls {
    files: TlsSettings,
    current: RwLock<Arc<LoadedConfig>>,
    /// [`LoadedConfig::generation`] of the current files, readable without the lock.
    generation: AtomicU64,
    metrics: Metrics,
    /// Signals a requested reload.
    reload: Notify,
}

/// The configuration from the files.
#[derive(Debug)]
struct LoadedConfig {
    config: ServerConfig,
    /// Verifies client certificates; `None` if `tls.client_auth` is off.
    verifier: Option<Arc<dyn ClientCertVerifier>>,
    /// Expiry of the server's certificate, in seconds since the epoch.
    not_after: Option<i64>,
    /// Grows by one with each successful reload.
    generation: u64,
}

/// The TLS side of one listener.
#[derive(Debug, Clone)]
pub struct Acceptor {
    tls: Arc<Tls>,
    protocols: Vec<Vec<u8>>,
}

impl Tls {
    /// Loads the files.
    ///
    /// # Errors
    /// If a file cannot be read or used.
    pub fn load(files: TlsSettings, metrics: Metrics) -> Result<Arc<Self>, TlsError> {
        let loaded = load(&files)?;
        metrics.certificate(loaded.not_after);
        let is_readable_by_others =
            |file: &Path| std::fs::metadata(file).is_ok_and(|metadata| metadata.permissions().mode() & 0o004 != 0);
        if is_readable_by_others(&files.key_file) {
            tracing::warn!(file = %files.key_file.display(), "tls.key_file is readable by every user of this machine: remove the permission");
        }
        Ok(Arc::new(Self {
            files,
            current: RwLock::new(Arc::new(loaded)),
            generation: AtomicU64::new(0),
            metrics,
            reload: Notify::new(),
        }))
    }

    /// The expiry of the server certificate, in seconds since the epoch; `None` if it cannot be read.
    #[must_use]
    pub fn not_after(&self) -> Option<i64> {
        self.current().not_after
    }

    /// Returns true if there are revocation lists, but none of some CA for client certificates. All clients of that CA
    /// are refused then.
    ///
    /// # Errors
    /// If the files can no longer be read.
    pub fn lacks_revocation_list(&self) -> Result<bool, TlsError> {
        let lists = revocation_lists(&self.files.client_crl_file)?;
        if lists.is_empty() || self.files.client_auth == ClientAuth::Off {
            return Ok(false);
        }
        let lists: Vec<CertRevocationList<'_>> =
            lists.iter().filter_map(|list| Some(BorrowedCertRevocationList::from_der(list).ok()?.into())).collect();
        let authorities: Vec<CertificateDer<'_>> = items("tls.client_ca_file", &self.files.client_ca_file)?;
        let subjects =
            authorities.iter().filter_map(|authority| Some(webpki::anchor_from_trusted_cert(authority).ok()?.subject));
        let mut unlisted = subjects.filter(|subject| !lists.iter().any(|list| list.issuer() == subject.as_ref()));
        Ok(unlisted.next().is_some())
    }

    /// The generation of the current files. It changes with each reload.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Returns true if the current files accept this chain of a client.
    pub(super) fn accepts(&self, chain: &[CertificateDer<'_>]) -> bool {
        let current = self.current();
        let Some(verifier) = &current.verifier else { return false };
        let Some((first, rest)) = chain.split_first() else { return false };
        verifier.verify_client_cert(first, rest, UnixTime::now()).is_ok()
    }

    fn current(&self) -> Arc<LoadedConfig> {
        self.current.read().clone()
    }

    /// Makes an acceptor that offers these protocols by ALPN.
    #[must_use]
    pub fn acceptor(self: &Arc<Self>, protocols: &[&str]) -> Acceptor {
        let protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        Acceptor { tls: self.clone(), protocols }
    }

    /// Requests a reload of the files, even if they have not changed.
    pub fn reload(&self) {
        self.reload.notify_one();
    }

    /// Reloads changed files until it is cancelled. Waits until two checks in a row see the same state, because a
    /// change may be in progress.
    pub async fn watch_files(self: Arc<Self>) {
        let versions = || {
            let TlsSettings { cert_file, key_file, client_ca_file, client_crl_file, .. } = &self.files;
            [cert_file, key_file, client_ca_file, client_crl_file].map(|file| file_version(file))
        };
        let mut loaded = versions();
        let mut last = loaded;
        loop {
            let is_requested = tokio::time::timeout(CHECK_INTERVAL, self.reload.notified()).await.is_ok();
            let seen = versions();
            let is_stable = seen == std::mem::replace(&mut last, seen);
            if is_requested || (is_stable && seen != loaded) {
                loaded = seen;
                self.load_again();
            }
        }
    }

    fn load_again(&self) {
        match load(&self.files) {
            Ok(loaded) => {
                self.metrics.certificate(loaded.not_after);
                let generation = self.generation() + 1;
                let loaded = Arc::new(LoadedConfig { generation, ..loaded });
                *self.current.write() = loaded;
                self.generation.store(generation, Ordering::Release);
                self.metrics.tls_loaded(true);
                tracing::info!("reloaded TLS certificate and key");
            }
            Err(error) => {
                self.metrics.tls_loaded(false);
                tracing::error!(%error, "cannot reload TLS certificate and key; the old ones stay in use");
            }
        }
    }
}

impl Acceptor {
    /// Does the handshake with another instance. Returns the connection and its channel binding.
    ///
    /// # Errors
    /// If the handshake fails.
    pub async fn accept_instance(&self, stream: TcpStream) -> io::Result<(TlsStream<TcpStream>, Vec<u8>)> {
        let (accepted, _) = self.accept(stream).await?;
        let channel = channel_of_accepted(&accepted);
        Ok((accepted, channel))
    }

    /// Does the handshake. Returns the client certificate, if there is one.
    pub(super) async fn accept(
        &self,
        stream: TcpStream,
    ) -> io::Result<(TlsStream<TcpStream>, Option<PeerCertificate>)> {
        let current = self.tls.current();
        // The large parts are reference-counted, so this clone is cheap.
        let mut config = current.config.clone();
        config.alpn_protocols.clone_from(&self.protocols);
        let accepted = TlsAcceptor::from(Arc::new(config)).accept(stream).await;
        let accepted = accepted.inspect_err(|error| {
            // Do not count port checks, which disconnect during the handshake.
            if !matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset) {
                self.tls.metrics.connection_closed("tls");
            }
        })?;
        let chain = accepted.get_ref().1.peer_certificates().unwrap_or_default();
        let certificate = PeerCertificate::new(chain, self.tls.clone(), current.generation);
        Ok((accepted, certificate))
    }
}

/// Metadata of a file that changes with its content.
#[derive(Clone, Copy, PartialEq, Eq)]
struct FileVersion {
    device: u64,
    inode: u64,
    length: u64,
    modified_s: i64,
    modified_ns: i64,
    changed_ns: i64,
}

/// Returns the version of a file, after following symbolic links; `None` if it cannot be read.
fn file_version(file: &Path) -> Option<FileVersion> {
    let metadata = std::fs::metadata(file).ok()?;
    Some(FileVersion {
        device: metadata.dev(),
        inode: metadata.ino(),
        length: metadata.len(),
        modified_s: metadata.mtime(),
        modified_ns: metadata.mtime_nsec(),
        changed_ns: metadata.ctime_nsec(),
    })
}

fn load(files: &TlsSettings) -> Result<LoadedConfig, TlsError> {
    let chain: Vec<CertificateDer<'static>> = items("tls.cert_file", &files.cert_file)?;
    let not_after = chain.first().and_then(certificate::not_after);
    let key = PrivateKeyDer::from_pem_file(&files.key_file)
        .map_err(|error| file_error("tls.key_file", &files.key_file, &error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions = &[&rustls::version::TLS13, &rustls::version::TLS12];
    let builder = ServerConfig::builder_with_provider(provider.clone()).with_protocol_versions(versions);
    let builder = builder.map_err(TlsError::Pair)?;
    let verifier = match files.client_auth {
        ClientAuth::Off => None,
        ClientAuth::Optional => Some(verifier(files, &provider, true)?),
        ClientAuth::Required => Some(verifier(files, &provider, false)?),
    };
    let builder = match verifier.clone() {
        None => builder.with_no_client_auth(),
        Some(verifier) => builder.with_client_cert_verifier(verifier),
    };
    let mut config = builder.with_single_cert(chain, key).map_err(TlsError::Pair)?;
    if verifier.is_some() {
        // A resumed session skips the verification, so expired or revoked certificates would stay valid.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    Ok(LoadedConfig { config, verifier, not_after, generation: 0 })
}

fn verifier(
    files: &TlsSettings,
    provider: &Arc<rustls::crypto::CryptoProvider>,
    is_optional: bool,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in items::<CertificateDer<'_>>("tls.client_ca_file", &files.client_ca_file)? {
        roots.add(certificate).map_err(|error| TlsError::ClientCa(error.to_string()))?;
    }
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    let builder = builder.with_crls(revocation_lists(&files.client_crl_file)?);
    let builder = if is_optional { builder.allow_unauthenticated() } else { builder };
    builder.build().map_err(|error| match error {
        VerifierBuilderError::InvalidCrl(_) => TlsError::ClientCrl(error.to_string()),
        _ => TlsError::ClientCa(error.to_string()),
    })
}

/// Reads the revocation lists of a file. If there are any, every CA in the chain of a client certificate needs one.
fn revocation_lists(file: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
    if file.as_os_str().is_empty() { Ok(Vec::new()) } else { items("tls.client_crl_file", file) }
}

/// Reads the items of a PEM file.
///
/// # Errors
/// If there are none, or the file cannot be read.
pub(super) fn items<T: PemObject>(key: &'static str, file: &Path) -> Result<Vec<T>, TlsError> {
    let read = T::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = read.map_err(|error| file_error(key, file, &error))?;
    if found.is_empty() {
        return Err(file_error(key, file, &pem::Error::NoItemsFound));
    }
    Ok(found)
}

pub(super) fn file_error(key: &'static str, file: &Path, error: &pem::Error) -> TlsError {
    TlsError::File { key, file: file.display().to_string(), reason: error.to_string() }
}
