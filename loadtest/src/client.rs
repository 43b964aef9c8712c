//! One keep-alive connection over HTTP/1.1.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// How long a refused POST waits before it is sent again.
const BACK_OFF: Duration = Duration::from_millis(50);

/// A connection that sends one request after the other.
pub struct Connection {
    sender: SendRequest<Full<Bytes>>,
    host: String,
}

impl Connection {
    /// Connects.
    pub async fn open(target: &str) -> Result<Self> {
        let stream = TcpStream::connect(target).await.with_context(|| format!("connecting to {target}"))?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        // Ends when the sender is dropped; an error shows in the request that it breaks.
        tokio::spawn(connection);
        Ok(Self { sender, host: target.to_owned() })
    }

    /// Sends a body until it is taken, and returns how often the answer was to come back later.
    pub async fn deliver(&mut self, path: &str, body: Bytes) -> Result<usize> {
        let mut refused = 0;
        loop {
            let request = hyper::Request::post(path).header("host", &self.host).body(Full::new(body.clone()))?;
            match self.send(request).await? {
                (200 | 204, _) => return Ok(refused),
                (503, _) => {
                    refused += 1;
                    tokio::time::sleep(BACK_OFF).await;
                }
                (status, answer) => bail!("{path} was answered {status}: {answer}"),
            }
        }
    }

    /// Asks, and returns the status and the answer.
    pub async fn get(&mut self, path: &str) -> Result<(u16, String)> {
        self.send(hyper::Request::get(path).header("host", &self.host).body(Full::default())?).await
    }

    async fn send(&mut self, request: hyper::Request<Full<Bytes>>) -> Result<(u16, String)> {
        self.sender.ready().await?;
        let response = self.sender.send_request(request).await?;
        let status = response.status().as_u16();
        let answer = response.into_body().collect().await?.to_bytes();
        Ok((status, String::from_utf8_lossy(&answer).into_owned()))
    }
}
