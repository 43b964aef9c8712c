//! The HTTP client of all commands that send requests to a running service.

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use ureq::http::{HeaderValue, Request, Response, Uri};
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Body};

/// Maximum time without data from the service. It must exceed the duration of a flush request.
const TIMEOUT: Duration = Duration::from_secs(330);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of an answer in bytes.
const ANSWER_BYTES_MAX: u64 = 32 << 20;
/// Size of a body in bytes above which the service must first agree to read it, so that the client sees a refusal.
const EXPECT_BYTES: usize = 16 << 10;
/// The environment variable that names the file of certificate authorities, as in OpenSSL.
const CA_VARIABLE: &str = "SSL_CERT_FILE";
/// The files of certificate authorities of Debian and Alpine, Fedora, openSUSE, and macOS and BSD.
const BUNDLES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// A running service, and the credentials of a client.
#[derive(Debug, Clone, Default, Args)]
pub struct Service {
    /// The address of the service: http://HOST:PORT or https://HOST:PORT.
    #[arg(long = "server", value_name = "URL", default_value = "http://127.0.0.1:8086", env = "HOURGLASS_SERVER")]
    pub url: String,
    /// A token with the rights that the command needs. Commands that do more than read and write one database need an
    /// admin's token.
    #[arg(long, value_name = "TOKEN", env = "HOURGLASS_TOKEN", hide_env_values = true)]
    pub token: Option<String>,
    /// A file with the token. It overrides --token, which other users of the machine can see.
    #[arg(long, value_name = "FILE", env = "HOURGLASS_TOKEN_FILE")]
    pub token_file: Option<PathBuf>,
    /// For https://: a PEM file of the trusted authorities [default: those of SSL_CERT_FILE or of the system].
    #[arg(long, value_name = "FILE", env = "HOURGLASS_CA")]
    pub ca: Option<PathBuf>,
    /// For https://: a PEM file with a client certificate chain, if the service asks for one.
    #[arg(long, value_name = "FILE", requires = "key", env = "HOURGLASS_CERT")]
    pub cert: Option<PathBuf>,
    /// The private key of --cert, in PEM.
    #[arg(long, value_name = "FILE", requires = "cert", env = "HOURGLASS_KEY")]
    pub key: Option<PathBuf>,
}

/// A database of a running service.
#[derive(Debug, Args)]
pub struct ServiceDatabase {
    /// The database.
    #[arg(long, value_name = "NAME", default_value = "default", env = "HOURGLASS_DB")]
    pub db: String,
    #[command(flatten)]
    pub service: Service,
}

/// A client of one service, with its token.
pub struct Target {
    agent: Agent,
    /// The URL of the service, without a trailing slash.
    base: String,
    authorization: Option<HeaderValue>,
}

/// An answer with its body.
#[derive(Debug)]
pub struct PostAnswer {
    pub status: u16,
    /// The body.
    pub text: String,
    /// The time after which the service wants to be asked again.
    pub retry_after: Option<Duration>,
}

/// An answer whose body is not read yet.
pub struct GetAnswer {
    pub status: u16,
    pub body: Box<dyn Read + Send>,
    retry_after: Option<Duration>,
}

impl GetAnswer {
    fn new(answer: Response<Body>) -> Self {
        let status = answer.status().as_u16();
        let retry_after = answer.headers().get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok());
        let body = Box::new(answer.into_body().into_with_config().limit(u64::MAX).reader());
        Self { status, body, retry_after: retry_after.map(Duration::from_secs) }
    }

    /// Returns the answer if its status is 200, or an error with its text.
    pub fn ok(self) -> anyhow::Result<Self> {
        if self.status == 200 {
            return Ok(self);
        }
        let status = self.status;
        bail!("the service answered {status}: {}", self.text()?.trim())
    }

    /// Reads the body of a small answer.
    pub fn text(self) -> anyhow::Result<String> {
        let mut text = String::new();
        self.body.take(ANSWER_BYTES_MAX).read_to_string(&mut text)?;
        Ok(text)
    }
}

impl PostAnswer {
    /// Parses the body as JSON.
    pub fn json(&self) -> anyhow::Result<Value> {
        serde_json::from_str(&self.text).with_context(|| format!("the answer {}", self.text))
    }
}

impl fmt::Display for PostAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the service answered {}: {}", self.status, self.text.trim())
    }
}

/// Escapes a text for use as the value of a URL parameter.
pub fn url_encode(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

impl Target {
    /// Returns a client of the service that flags name.
    pub fn from_flags(service: &Service) -> anyhow::Result<Self> {
        Self::with_timeout(service, None)
    }

    /// As [`Target::from_flags`], with a maximum time of a whole request.
    pub fn with_timeout(service: &Service, timeout: Option<Duration>) -> anyhow::Result<Self> {
        let token = match &service.token_file {
            Some(file) => Some(String::from_utf8_lossy(&read(file)?).into_owned()),
            None => service.token.clone(),
        };
        let header = |token: &String| {
            let header = HeaderValue::from_str(&format!("Token {}", token.trim()));
            header.context("the token contains characters that are not allowed in tokens")
        };
        let authorization = token.as_ref().map(header).transpose()?;
        let base = base(&service.url)?;
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .proxy(None)
            .max_redirects(0)
            .max_idle_connections(0)
            .timeout_global(timeout)
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_per_read(Some(TIMEOUT))
            .timeout_per_write(Some(TIMEOUT));
        let files = [&service.ca, &service.cert, &service.key];
        if base.starts_with("https:") {
            config = config.tls_config(tls_config(service)?);
        } else if files.iter().any(|file| file.is_some()) {
            bail!("{:?}: --ca, --cert and --key are for https://", service.url);
        }
        Ok(Self { agent: config.build().into(), base, authorization })
    }

    /// Sends a text and reads the answer.
    pub fn post(&self, path: &str, body: &[u8]) -> anyhow::Result<PostAnswer> {
        self.send("POST", path, Some(("text/plain", body)))
    }

    /// Sends a request and reads the answer. Any status other than 200 is an error.
    pub fn text(&self, method: &str, path: &str, body: Option<(&str, &[u8])>) -> anyhow::Result<PostAnswer> {
        let answer = self.send(method, path, body)?;
        if answer.status == 200 { Ok(answer) } else { bail!("{answer}") }
    }

    /// As [`Target::text`], but parses the answer as JSON.
    pub fn json(&self, method: &str, path: &str, body: Option<(&str, &[u8])>) -> anyhow::Result<Value> {
        self.text(method, path, body)?.json()
    }

    /// Sends a request and reads the answer. `body` is a media type and the content.
    pub fn send(&self, method: &str, path: &str, body: Option<(&str, &[u8])>) -> anyhow::Result<PostAnswer> {
        self.send_with(method, path, body, &[])
    }

    /// As [`Target::send`], with more headers.
    pub fn send_with(
        &self,
        method: &str,
        path: &str,
        body: Option<(&str, &[u8])>,
        headers: &[(&str, &str)],
    ) -> anyhow::Result<PostAnswer> {
        let answer = self.exchange(method, path, body, headers);
        let read = answer.and_then(|answer| {
            Ok(PostAnswer { status: answer.status, retry_after: answer.retry_after, text: answer.text()? })
        });
        read.with_context(|| format!("sending to {}", self.base))
    }

    /// Sends a GET request, and returns the answer without reading its body.
    pub fn get(&self, path: &str) -> anyhow::Result<GetAnswer> {
        self.get_with(path, &[])
    }

    /// As [`Target::get`], with more headers.
    pub fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> anyhow::Result<GetAnswer> {
        self.open("GET", path, None, headers)
    }

    /// Sends a request, and returns the answer without reading its body.
    pub fn open(
        &self,
        method: &str,
        path: &str,
        body: Option<(&str, &[u8])>,
        headers: &[(&str, &str)],
    ) -> anyhow::Result<GetAnswer> {
        self.exchange(method, path, body, headers).with_context(|| format!("asking {}", self.base))
    }

    /// The URL of the service.
    pub fn url(&self) -> &str {
        &self.base
    }

    fn exchange(
        &self,
        method: &str,
        path: &str,
        body: Option<(&str, &[u8])>,
        headers: &[(&str, &str)],
    ) -> anyhow::Result<GetAnswer> {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.base));
        if let Some(authorization) = &self.authorization {
            request = request.header("authorization", authorization);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let has_body = matches!(method, "POST" | "PUT");
        let Some((kind, body)) = body.or(has_body.then_some(("text/plain", b""))) else {
            return Ok(GetAnswer::new(self.agent.run(request.body(())?)?));
        };
        request = request.header("content-type", kind);
        if body.len() > EXPECT_BYTES {
            request = request.header("expect", "100-continue");
        }
        Ok(GetAnswer::new(self.agent.run(request.body(body)?)?))
    }
}

/// Checks a URL, and removes its trailing slash.
fn base(url: &str) -> anyhow::Result<String> {
    let is_service = url.parse::<Uri>().is_ok_and(|uri| {
        let is_plain = uri.path() == "/" && uri.query().is_none() && !url.contains(['@', '#']);
        is_plain && uri.host().is_some() && matches!(uri.scheme_str(), Some("http" | "https"))
    });
    if !is_service {
        bail!("{url:?}: expected http://HOST:PORT or https://HOST:PORT without a path");
    }
    Ok(url.trim_end_matches('/').to_owned())
}

/// Loads the trusted authorities and the client certificate.
fn tls_config(files: &Service) -> anyhow::Result<TlsConfig> {
    let named = || std::env::var_os(CA_VARIABLE).map(PathBuf::from);
    let systems = || named().or_else(|| BUNDLES.iter().map(PathBuf::from).find(|file| file.exists()));
    let ca = files.ca.clone().or_else(systems).context("this system has no list of authorities: name one with --ca")?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = TlsConfig::builder().unversioned_rustls_crypto_provider(provider);
    let config = config.root_certs(RootCerts::new_with_certs(&certificates(&ca)?));
    let client = match (&files.cert, &files.key) {
        (Some(cert), Some(key)) => {
            let private = PrivateKey::from_pem(&read(key)?).with_context(|| format!("reading {}", key.display()))?;
            Some(ClientCert::new_with_certs(&certificates(cert)?, private))
        }
        (None, None) => None,
        _ => bail!("--cert and --key need each other"),
    };
    Ok(config.client_cert(client).build())
}

fn certificates(file: &Path) -> anyhow::Result<Vec<Certificate<'static>>> {
    let mut found = Vec::new();
    for item in parse_pem(&read(file)?) {
        if let PemItem::Certificate(certificate) = item.with_context(|| format!("reading {}", file.display()))? {
            found.push(certificate);
        }
    }
    if found.is_empty() {
        bail!("{} has no certificate", file.display());
    }
    Ok(found)
}

fn read(file: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(file).with_context(|| format!("reading {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_those_of_a_service() {
        for url in ["http://a:8086/", "http://a", "https://a", "https://a:8087", "http://[::1]:8086", "http://[::1]"] {
            assert_eq!(base(url).ok().as_deref(), Some(url.trim_end_matches('/')), "{url}");
        }
        for url in ["ftp://a:1", "a:1", "http://a:1/x", "https://u@a:1", "http://a b:1", "http://a:1\r\nX: y"] {
            assert!(base(url).is_err(), "{url}");
        }
        let service = Service { url: "http://a:1".to_owned(), token: Some("x\r\ny".to_owned()), ..Service::default() };
        assert!(Target::from_flags(&service).is_err());
    }
}
