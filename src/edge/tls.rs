//! TLS: certificate and key from files that may change while the service runs. An invalid new certificate or key is
//! ignored and logged once; the old ones stay in use. Open connections go on, but a client's certificate is verified
//! again with its next request.

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
use crate::config::{ClientAuth, TlsSettings};
use crate::telemetry::Metrics;

/// How often the files are checked for changes.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);

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
    /// The revocation lists are unusable.
    #[error("cannot use tls.client_crl_file: {0}")]
    ClientCrl(String),
}

/// The TLS configuration in use, and the files it comes from.
#[derive(Debug)]
pub struct Tls {
    files: TlsSettings,
    current: RwLock<Arc<Loaded>>,
    /// [`Loaded::generation`] of the current files, readable without the lock.
    generation: AtomicU64,
    metrics: Metrics,
    /// Signals that a reload was requested.
    wanted: Notify,
}

/// What was made of the files.
#[derive(Debug)]
struct Loaded {
    config: ServerConfig,
    /// Verifies clients' certificates; `None` where none is asked for.
    verifier: Option<Arc<dyn ClientCertVerifier>>,
    /// Expiry of the server's certificate, in seconds since the epoch.
    not_after: Option<i64>,
    /// Grows by one with each change of the files that was taken.
    generation: u64,
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
    pub fn load(files: TlsSettings, metrics: Metrics) -> Result<Arc<Self>, TlsError> {
        let loaded = load(&files)?;
        metrics.certificate(loaded.not_after);
        let others_read = |file: &Path| std::fs::metadata(file).is_ok_and(|of| of.permissions().mode() & 0o004 != 0);
        if others_read(&files.key_file) {
            tracing::warn!(file = %files.key_file.display(), "tls.key_file is readable by every user of this machine; remove that permission");
        }
        let (current, generation) = (RwLock::new(Arc::new(loaded)), AtomicU64::new(0));
        Ok(Arc::new(Self { files, current, generation, metrics, wanted: Notify::new() }))
    }

    /// When the server's certificate expires, in seconds since the epoch, if that can be read.
    #[must_use]
    pub fn not_after(&self) -> Option<i64> {
        self.current().not_after
    }

    /// Whether an authority that signs clients' certificates has no revocation list, although there are lists: then all
    /// its clients are refused.
    ///
    /// # Errors
    /// When the files can no longer be read.
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

    /// Changes whenever changed files were taken.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Whether the current files accept this chain of a client now.
    pub(super) fn accepts(&self, chain: &[CertificateDer<'_>]) -> bool {
        let current = self.current();
        let (Some(verifier), Some((first, rest))) = (&current.verifier, chain.split_first()) else { return false };
        verifier.verify_client_cert(first, rest, UnixTime::now()).is_ok()
    }

    fn current(&self) -> Arc<Loaded> {
        self.current.read().clone()
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

    /// Reloads changed files; runs until it is cancelled. TlsSettings that changed since the last check may still be in the
    /// middle of a change, so they are loaded only once two checks in a row see the same state.
    pub async fn follow(self: Arc<Self>) {
        let stamp = || {
            let TlsSettings { cert_file, key_file, client_ca_file, client_crl_file, .. } = &self.files;
            [cert_file, key_file, client_ca_file, client_crl_file].map(|file| file_version(file))
        };
        let (mut taken, mut last) = (stamp(), stamp());
        loop {
            let asked = tokio::time::timeout(LOOK_INTERVAL, self.wanted.notified()).await.is_ok();
            let seen = stamp();
            let rests = seen == std::mem::replace(&mut last, seen);
            if asked || (rests && seen != taken) {
                taken = seen;
                self.take_new();
            }
        }
    }

    fn take_new(&self) {
        match load(&self.files) {
            Ok(loaded) => {
                self.metrics.certificate(loaded.not_after);
                let generation = self.generation() + 1;
                let loaded = Arc::new(Loaded { generation, ..loaded });
                *self.current.write() = loaded;
                self.generation.store(generation, Ordering::Release);
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
    /// Does the handshake; the client's certificate if it presented one.
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
            // Port checks disconnect during the handshake; they are not counted.
            if !matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset) {
                self.tls.metrics.connection_closed("tls");
            }
        })?;
        let chain = accepted.get_ref().1.peer_certificates().unwrap_or_default();
        let certificate = PeerCertificate::new(chain, self.tls.clone(), current.generation);
        Ok((accepted, certificate))
    }
}

/// A file's device, inode, length, modification time (seconds, nanoseconds) and the nanoseconds of its last status
/// change; `None` if the file cannot be examined. Follows symbolic links.
fn file_version(file: &Path) -> Option<(u64, u64, u64, i64, i64, i64)> {
    let of = std::fs::metadata(file).ok()?;
    Some((of.dev(), of.ino(), of.len(), of.mtime(), of.mtime_nsec(), of.ctime_nsec()))
}

fn load(files: &TlsSettings) -> Result<Loaded, TlsError> {
    let chain: Vec<CertificateDer<'static>> = items("tls.cert_file", &files.cert_file)?;
    let not_after = chain.first().and_then(certificate::not_after);
    let key = PrivateKeyDer::from_pem_file(&files.key_file)
        .map_err(|error| refused("tls.key_file", &files.key_file, &error))?;
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
        // A resumed session is not verified again: a certificate that has expired or was revoked would go on for ever.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    Ok(Loaded { config, verifier, not_after, generation: 0 })
}

fn verifier(
    files: &TlsSettings,
    provider: &Arc<rustls::crypto::CryptoProvider>,
    optional: bool,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in items::<CertificateDer<'_>>("tls.client_ca_file", &files.client_ca_file)? {
        roots.add(certificate).map_err(|error| TlsError::ClientCa(error.to_string()))?;
    }
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    let builder = builder.with_crls(revocation_lists(&files.client_crl_file)?);
    let builder = if optional { builder.allow_unauthenticated() } else { builder };
    builder.build().map_err(|error| match error {
        VerifierBuilderError::InvalidCrl(_) => TlsError::ClientCrl(error.to_string()),
        _ => TlsError::ClientCa(error.to_string()),
    })
}

/// The revocation lists of a file. With any list, a certificate is refused unless there is a list of the authority that
/// signed it, for each certificate of its chain.
fn revocation_lists(file: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
    if file.as_os_str().is_empty() { Ok(Vec::new()) } else { items("tls.client_crl_file", file) }
}

/// The items of a PEM file, of which there must be some.
fn items<T: PemObject>(key: &'static str, file: &Path) -> Result<Vec<T>, TlsError> {
    let read = T::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = read.map_err(|error| refused(key, file, &error))?;
    if found.is_empty() {
        return Err(refused(key, file, &pem::Error::NoItemsFound));
    }
    Ok(found)
}

fn refused(key: &'static str, file: &Path, error: &pem::Error) -> TlsError {
    TlsError::File { key, file: file.display().to_string(), reason: error.to_string() }
}
