//! TLS of the commands that ask a service: which authorities are trusted, and which certificate is shown.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};

/// Names the file of the system's authorities, as for OpenSSL.
const VARIABLE: &str = "SSL_CERT_FILE";
/// Where systems have their authorities: Debian and Alpine, Fedora, openSUSE, macOS and BSD.
const BUNDLES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The PEM files that flags name.
#[derive(Debug, Clone, Default)]
pub struct TlsFiles {
    /// The authorities that are trusted; `None` for the system's.
    pub ca: Option<PathBuf>,
    /// The client's certificate chain, if the service asks for one.
    pub cert: Option<PathBuf>,
    /// Its private key.
    pub key: Option<PathBuf>,
}

impl TlsFiles {
    /// Whether no file is named.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ca.is_none() && self.cert.is_none() && self.key.is_none()
    }
}

/// How connections to one service are made.
pub struct Tls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl Tls {
    /// For the service at `HOST:PORT`.
    ///
    /// # Errors
    /// If a file cannot be used.
    pub fn new(host: &str, files: &TlsFiles) -> anyhow::Result<Self> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let builder = builder.with_root_certificates(authorities(files.ca.as_deref())?);
        let config = match (&files.cert, &files.key) {
            (Some(cert), Some(key)) => {
                let private =
                    PrivateKeyDer::from_pem_file(key).with_context(|| format!("reading {}", key.display()))?;
                let pair = builder.with_client_auth_cert(certificates(cert)?, private);
                pair.with_context(|| format!("using {} with {}", cert.display(), key.display()))?
            }
            (None, None) => builder.with_no_client_auth(),
            _ => bail!("--cert and --key need each other"),
        };
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name).trim_matches(['[', ']']);
        let name = ServerName::try_from(name.to_owned()).with_context(|| format!("the name {name:?}"))?;
        Ok(Self { config: Arc::new(config), name })
    }

    /// Speaks TLS over a connection.
    ///
    /// # Errors
    /// If the configuration does not allow it.
    pub fn over(&self, stream: TcpStream) -> anyhow::Result<StreamOwned<ClientConnection, TcpStream>> {
        Ok(StreamOwned::new(ClientConnection::new(self.config.clone(), self.name.clone())?, stream))
    }
}

fn authorities(file: Option<&Path>) -> anyhow::Result<RootCertStore> {
    let (file, is_systems) = match file {
        Some(file) => (file.to_owned(), false),
        None => (system_bundle().context("this system has no list of authorities: name one with --ca")?, true),
    };
    let mut roots = RootCertStore::empty();
    for certificate in certificates(&file)? {
        let added = roots.add(certificate);
        // Among the many of a system, one that cannot be used does no harm.
        if !is_systems {
            added.with_context(|| format!("using {}", file.display()))?;
        }
    }
    Ok(roots)
}

fn system_bundle() -> Option<PathBuf> {
    let named = std::env::var_os(VARIABLE).map(PathBuf::from);
    named.or_else(|| BUNDLES.iter().map(PathBuf::from).find(|file| file.exists()))
}

fn certificates(file: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = read.with_context(|| format!("reading {}", file.display()))?;
    if found.is_empty() {
        bail!("{} has no certificate", file.display());
    }
    Ok(found)
}
