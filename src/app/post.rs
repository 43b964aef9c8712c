//! A minimal HTTP client, which sends a request without TLS and reads the answer.

use std::fmt;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

/// Maximum time without data from the service. It must be longer than a flush request may take.
const TIMEOUT: Duration = Duration::from_secs(330);
/// Maximum number of bytes of an answer that are read.
const ANSWER_BYTES: u64 = 32 << 20;

/// The address of a service, and the token for it.
pub struct Target {
    host: String,
    token: Option<String>,
}

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
    /// The service at an address, with the token that a flag or a file gives.
    pub fn of(url: &str, token: Option<String>, token_file: Option<&Path>) -> anyhow::Result<Self> {
        let token = match token_file {
            Some(file) => Some(std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?),
            None => token,
        };
        Self::parse(url, token.as_deref().map(str::trim))
    }

    /// Parses `http://HOST:PORT`.
    pub fn parse(url: &str, token: Option<&str>) -> anyhow::Result<Self> {
        let Some(host) = url.strip_prefix("http://") else {
            bail!("{url:?}: expected http://HOST:PORT; if it has TLS, use its plain listener on its own machine");
        };
        let host = host.trim_end_matches('/');
        let is_port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        let host = match host.rsplit_once(':') {
            Some((_, port)) if is_port(port) => host.to_owned(),
            _ => format!("{host}:80"),
        };
        let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        if host.contains(['/', '?', '#', '@']) || !is_plain(&host) {
            bail!("{url:?}: expected http://HOST:PORT and nothing else");
        }
        if token.is_some_and(|token| !is_plain(token)) {
            bail!("the token contains characters that are not allowed in tokens");
        }
        Ok(Self { host, token: token.map(str::to_owned) })
    }

    /// Sends the request and reads the answer, on a new connection.
    pub fn post(&self, path: &str, body: &[u8]) -> anyhow::Result<PostAnswer> {
        self.post_as(path, "text/plain", body)
    }

    /// As [`Target::post`], with the media type of the body.
    pub fn post_as(&self, path: &str, kind: &str, body: &[u8]) -> anyhow::Result<PostAnswer> {
        self.exchange("POST", (path, kind), body).with_context(|| format!("sending to http://{}", self.host))
    }

    /// Asks, and returns the answer before its body is read, on a new connection.
    pub fn get(&self, path: &str) -> anyhow::Result<GetAnswer> {
        self.ask(path).with_context(|| format!("asking http://{}", self.host))
    }

    fn ask(&self, path: &str) -> anyhow::Result<GetAnswer> {
        let mut stream = self.connect()?;
        let authorization = self.authorization();
        let host = &self.host;
        stream.write_all(
            format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{authorization}Connection: close\r\n\r\n").as_bytes(),
        )?;
        let mut from = BufReader::new(stream);
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

    fn connect(&self) -> anyhow::Result<TcpStream> {
        let address = self.host.to_socket_addrs()?.next().context("the host has no address")?;
        let stream = TcpStream::connect_timeout(&address, Duration::from_secs(10))?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        Ok(stream)
    }

    fn authorization(&self) -> String {
        let header = self.token.as_ref().map(|token| format!("Authorization: Token {token}\r\n"));
        header.unwrap_or_default()
    }

    /// Sends a DELETE and reads the answer.
    pub fn delete(&self, path: &str) -> anyhow::Result<PostAnswer> {
        self.exchange("DELETE", (path, "text/plain"), b"").with_context(|| format!("sending to http://{}", self.host))
    }

    fn exchange(&self, method: &str, (path, kind): (&str, &str), body: &[u8]) -> anyhow::Result<PostAnswer> {
        let mut stream = self.connect()?;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\n{}Content-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            self.host,
            self.authorization(),
            body.len()
        );
        // The service may answer and close before it has read everything. Then sending fails, but the answer counts.
        let sent = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
        let mut answer = Vec::new();
        let read = stream.take(ANSWER_BYTES).read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer);
        let status = answer.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
        let Some(status) = status else {
            sent?;
            read?;
            bail!("the answer is not HTTP/1.1");
        };
        let text = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body).to_owned();
        Ok(PostAnswer { status, text })
    }
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
        let host = |url: &str| Target::parse(url, None).map(|target| target.host).ok();
        assert_eq!(host("http://a:8086/").as_deref(), Some("a:8086"));
        assert_eq!(host("http://a").as_deref(), Some("a:80"));
        assert_eq!(host("http://[::1]:8086").as_deref(), Some("[::1]:8086"));
        assert_eq!(host("http://[::1]").as_deref(), Some("[::1]:80"));
        for url in ["https://a:1", "a:1", "http://a:1/x", "http://u@a:1", "http://a b:1", "http://a:1\r\nX: y"] {
            assert_eq!(host(url), None, "{url}");
        }
        assert!(Target::parse("http://a:1", Some("x\r\ny")).is_err());
    }
}
