//! A minimal HTTP client: one request per connection, with TLS or without. All commands that ask a service use it.

use std::fmt;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::client_tls::{Tls, TlsFiles};

/// Maximum time without data from the service. It must be longer than a flush request may take.
const TIMEOUT: Duration = Duration::from_secs(330);
/// Maximum number of bytes of an answer that are read.
const ANSWER_BYTES: u64 = 32 << 20;

/// A service, as the flags of a command name it.
#[derive(Debug, Clone, Default)]
pub struct Service {
    /// `http://HOST:PORT` or `https://HOST:PORT`.
    pub url: String,
    pub token: Option<String>,
    /// A file with the token; it wins over `token`.
    pub token_file: Option<PathBuf>,
    pub tls: TlsFiles,
}

/// The address of a service, and the token for it.
pub struct Target {
    host: String,
    token: Option<String>,
    /// `None` for a service without TLS.
    tls: Option<Tls>,
}

/// A connection, with TLS or without.
trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

#[derive(Debug)]
pub struct PostAnswer {
    pub status: u16,
    /// The body.
    pub text: String,
}

/// An answer whose body is not read yet.
pub struct GetAnswer {
    pub status: u16,
    pub body: Box<dyn Read + Send>,
}

impl GetAnswer {
    /// Reads the body of a small answer.
    pub fn text(self) -> anyhow::Result<String> {
        let mut text = String::new();
        self.body.take(ANSWER_BYTES).read_to_string(&mut text)?;
        Ok(text)
    }
}

/// A body in chunks. One that is cut off is an error.
struct Chunked<R> {
    from: R,
    /// Bytes of this chunk.
    left: usize,
    begun: bool,
    ended: bool,
}

impl<R: BufRead> Read for Chunked<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 && !self.ended {
            if std::mem::replace(&mut self.begun, true) {
                line(&mut self.from)?;
            }
            let size = line(&mut self.from)?;
            let size = size.split(';').next().unwrap_or_default();
            let bad = |_| io::Error::new(ErrorKind::InvalidData, "the answer is not in chunks");
            self.left = usize::from_str_radix(size.trim(), 16).map_err(bad)?;
            self.ended = self.left == 0;
        }
        if self.ended {
            return Ok(0);
        }
        let wanted = out.len().min(self.left);
        let read = self.from.read(&mut out[..wanted])?;
        if read == 0 && wanted > 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        self.left -= read;
        Ok(read)
    }
}

/// A line without its end.
fn line(from: &mut impl BufRead) -> io::Result<String> {
    let mut line = Vec::new();
    from.take(64 << 10).read_until(b'\n', &mut line)?;
    if line.pop() != Some(b'\n') {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    Ok(String::from_utf8_lossy(&line).trim_end_matches('\r').to_owned())
}

impl fmt::Display for PostAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the service answered {}: {}", self.status, self.text.trim())
    }
}

/// Escapes a text for use as the value of a URL parameter.
pub fn escaped(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

impl Target {
    /// The service that flags name.
    pub fn of(service: &Service) -> anyhow::Result<Self> {
        let read =
            |file: &PathBuf| std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()));
        let token = match &service.token_file {
            Some(file) => Some(read(file)?),
            None => service.token.clone(),
        };
        let (host, is_tls) = parse(&service.url)?;
        let token = token.as_deref().map(str::trim).map(str::to_owned);
        if token.as_deref().is_some_and(|token| !is_plain(token)) {
            bail!("the token contains characters that are not allowed in tokens");
        }
        if !is_tls && !service.tls.is_empty() {
            bail!("{:?}: --ca, --cert and --key are for https://", service.url);
        }
        let tls = is_tls.then(|| Tls::new(&host, &service.tls)).transpose()?;
        Ok(Self { host, token, tls })
    }

    /// Sends the request and reads the answer, on a new connection.
    pub fn post(&self, path: &str, body: &[u8]) -> anyhow::Result<PostAnswer> {
        self.post_as(path, "text/plain", body)
    }

    /// As [`Target::post`], with the media type of the body.
    pub fn post_as(&self, path: &str, kind: &str, body: &[u8]) -> anyhow::Result<PostAnswer> {
        let more = format!("Content-Type: {kind}\r\nContent-Length: {}\r\n", body.len());
        self.send(&format!("POST {path}"), &more, body)
    }

    /// Sends a PUT of JSON and reads the answer.
    pub fn put(&self, path: &str, body: &[u8]) -> anyhow::Result<PostAnswer> {
        let more = format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
        self.send(&format!("PUT {path}"), &more, body)
    }

    /// Sends a DELETE and reads the answer.
    pub fn delete(&self, path: &str) -> anyhow::Result<PostAnswer> {
        self.send(&format!("DELETE {path}"), "", b"")
    }

    fn send(&self, request: &str, more: &str, body: &[u8]) -> anyhow::Result<PostAnswer> {
        let answer = self.exchange(request, more, body);
        let read = answer.and_then(|answer| Ok(PostAnswer { status: answer.status, text: answer.text()? }));
        read.with_context(|| format!("sending to {self}"))
    }

    /// Asks, and returns the answer before its body is read, on a new connection.
    pub fn get(&self, path: &str) -> anyhow::Result<GetAnswer> {
        self.exchange(&format!("GET {path}"), "", b"").with_context(|| format!("asking {self}"))
    }

    fn exchange(&self, request: &str, more: &str, body: &[u8]) -> anyhow::Result<GetAnswer> {
        let mut stream = self.connect()?;
        let (host, authorization) = (&self.host, self.authorization());
        let head = format!("{request} HTTP/1.1\r\nHost: {host}\r\n{authorization}{more}Connection: close\r\n\r\n");
        // The service may answer and close before it has read everything. Then sending fails, but the answer counts.
        let sent =
            stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body)).and_then(|()| stream.flush());
        let answer = answer(BufReader::new(stream));
        if answer.is_err() {
            sent?;
        }
        answer
    }

    fn connect(&self) -> anyhow::Result<Box<dyn Stream>> {
        let address = self.host.to_socket_addrs()?.next().context("the host has no address")?;
        let stream = TcpStream::connect_timeout(&address, Duration::from_secs(10))?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        Ok(match &self.tls {
            Some(tls) => Box::new(tls.over(stream)?),
            None => Box::new(stream),
        })
    }

    fn authorization(&self) -> String {
        let header = self.token.as_ref().map(|token| format!("Authorization: Token {token}\r\n"));
        header.unwrap_or_default()
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", if self.tls.is_some() { "https" } else { "http" }, self.host)
    }
}

/// Host and port of `http://HOST:PORT` or `https://HOST:PORT`, and whether it has TLS.
fn parse(url: &str) -> anyhow::Result<(String, bool)> {
    let found = match (url.strip_prefix("http://"), url.strip_prefix("https://")) {
        (Some(host), _) => Some((host, false, 80)),
        (_, Some(host)) => Some((host, true, 443)),
        _ => None,
    };
    let Some((host, is_tls, port)) = found else {
        bail!("{url:?}: expected http://HOST:PORT or https://HOST:PORT");
    };
    let host = host.trim_end_matches('/');
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let host = match host.rsplit_once(':') {
        Some((_, port)) if is_port(port) => host.to_owned(),
        _ => format!("{host}:{port}"),
    };
    if host.contains(['/', '?', '#', '@']) || !is_plain(&host) {
        bail!("{url:?}: expected http://HOST:PORT or https://HOST:PORT and nothing else");
    }
    Ok((host, is_tls))
}

fn is_plain(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Reads the head of an answer.
fn answer(mut from: BufReader<Box<dyn Stream>>) -> anyhow::Result<GetAnswer> {
    let first = line(&mut from)?;
    let status = first.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
    let Some(status) = status else { bail!("the answer is not HTTP/1.1") };
    let (mut length, mut chunked) = (None, false);
    loop {
        let header = line(&mut from)?.to_ascii_lowercase();
        match header.split_once(':') {
            None if header.is_empty() => break,
            Some(("content-length", value)) => length = value.trim().parse::<u64>().ok(),
            Some(("transfer-encoding", value)) => chunked = value.trim() == "chunked",
            _ => {}
        }
    }
    let body: Box<dyn Read + Send> = match (chunked, length) {
        (true, _) => Box::new(Chunked { from, left: 0, begun: false, ended: false }),
        (false, length) => Box::new(from.take(length.unwrap_or(0))),
    };
    Ok(GetAnswer { status, body })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_in_chunks_is_read_to_its_end() {
        let body = "3\r\nabc\r\n10;x=y\r\n0123456789abcdef\r\n0\r\n\r\n";
        let read = |body: &str| {
            let (mut text, from) = (String::new(), body.as_bytes());
            Chunked { from, left: 0, begun: false, ended: false }.read_to_string(&mut text).map(|_| text)
        };
        assert_eq!(read(body).expect("whole"), "abc0123456789abcdef");
        for cut in 0..body.len() - 2 {
            assert!(read(&body[..cut]).is_err(), "{:?}", &body[..cut]);
        }
    }

    #[test]
    fn urls_are_those_of_a_service() {
        let host = |url: &str| parse(url).ok();
        for (url, expected) in [
            ("http://a:8086/", ("a:8086", false)),
            ("http://a", ("a:80", false)),
            ("https://a", ("a:443", true)),
            ("https://a:8087", ("a:8087", true)),
            ("http://[::1]:8086", ("[::1]:8086", false)),
            ("http://[::1]", ("[::1]:80", false)),
        ] {
            assert_eq!(host(url), Some((expected.0.to_owned(), expected.1)), "{url}");
        }
        for url in ["ftp://a:1", "a:1", "http://a:1/x", "https://u@a:1", "http://a b:1", "http://a:1\r\nX: y"] {
            assert_eq!(host(url), None, "{url}");
        }
        let service = Service { url: "http://a:1".to_owned(), token: Some("x\r\ny".to_owned()), ..Service::default() };
        assert!(Target::of(&service).is_err());
    }
}
