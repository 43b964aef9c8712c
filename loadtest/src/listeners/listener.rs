//! One client of `GET /api/v1/tail` with its own connection.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Maximum time until the server accepts a listener.
const PATIENCE: Duration = Duration::from_secs(10);
/// The first comment of a stream. The stream has every reading acked after it.
const FIRST: &str = ": acked readings";
/// Size of the read buffer in bytes.
const BUFFER: usize = 16 << 10;

/// An accepted listener. Dropping it closes its connection.
pub struct Listener {
    stream: BufReader<TcpStream>,
    line: Vec<u8>,
}

impl Listener {
    /// Listens to all readings. Returns `None` if the server has the maximum number of listeners.
    pub async fn open(address: &str) -> Result<Option<Self>> {
        timeout(PATIENCE, Self::ask(address)).await.context("waiting to be accepted")?
    }

    async fn ask(address: &str) -> Result<Option<Self>> {
        let mut stream = TcpStream::connect(address).await.with_context(|| format!("connecting to {address}"))?;
        let request = format!("GET /api/v1/tail?db=bench HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut listener = Self { stream: BufReader::with_capacity(BUFFER, stream), line: Vec::new() };
        let head = listener.next_line().await?.to_owned();
        match head.split_whitespace().nth(1) {
            Some("200") => {}
            Some("503") => return Ok(None),
            _ => bail!("/api/v1/tail was answered {head}"),
        }
        while !listener.next_line().await?.starts_with(FIRST) {}
        Ok(Some(listener))
    }

    /// Reads the next line, which can be the size of a chunk. It is an error at the end of the stream. After a
    /// cancellation, a part of a line may be missing.
    pub async fn next_line(&mut self) -> Result<&str> {
        self.line.clear();
        if self.stream.read_until(b'\n', &mut self.line).await? == 0 {
            bail!("the stream has ended");
        }
        Ok(std::str::from_utf8(&self.line).context("a line that is not UTF-8")?.trim_end())
    }
}
