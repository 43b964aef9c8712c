//! One keep-alive connection over HTTP/1.1.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{self, HeaderMap};
use hyper_util::rt::TokioIo;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// Pause before a POST is sent again after a 503.
const BACK_OFF: Duration = Duration::from_millis(50);

/// A connection that sends one request at a time. Dropping it closes it, even during a request.
pub struct Connection {
    sender: SendRequest<Full<Bytes>>,
    host: String,
    driver: JoinHandle<hyper::Result<()>>,
}

/// An HTTP answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Answer {
    /// Returns a header, if its value is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

impl Connection {
    pub async fn open(target: &str) -> Result<Self> {
        let stream = TcpStream::connect(target).await.with_context(|| format!("connecting to {target}"))?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        // The result is ignored, because an error of the connection also fails the current request.
        let driver = tokio::spawn(connection);
        Ok(Self { sender, host: target.to_owned(), driver })
    }

    /// Returns true if the server has closed the connection.
    pub fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Sends a body until it is accepted. Returns the number of 503 answers.
    pub async fn deliver(&mut self, path: &str, body: Bytes) -> Result<usize> {
        let mut refused = 0;
        loop {
            let answer = self.post(path, body.clone()).await?;
            match answer.status {
                200 | 204 => return Ok(refused),
                503 => {
                    refused += 1;
                    tokio::time::sleep(BACK_OFF).await;
                }
                status => bail!("{path} was answered {status}: {}", String::from_utf8_lossy(&answer.body)),
            }
        }
    }

    pub async fn post(&mut self, path: &str, body: Bytes) -> Result<Answer> {
        self.send(Request::post(path).header(header::HOST, &self.host).body(Full::new(body))?).await
    }

    /// Sends a GET, and returns the body of an answer with status 200.
    pub async fn get(&mut self, path: &str) -> Result<String> {
        let answer = self.ask(path).await?;
        let body = String::from_utf8_lossy(&answer.body).into_owned();
        ensure!(answer.status == 200, "{path} was answered {}: {body:.500}", answer.status);
        Ok(body)
    }

    /// Sends a GET.
    pub async fn ask(&mut self, path: &str) -> Result<Answer> {
        self.send(Request::get(path).header(header::HOST, &self.host).body(Full::default())?).await
    }

    async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<Answer> {
        self.sender.ready().await?;
        let (head, body) = self.sender.send_request(request).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        Ok(Answer { status: head.status.as_u16(), headers: head.headers, body })
    }
}

/// Escapes a text for use in the query of a URL.
pub fn url_encode(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}
