//! One attempt of a request, over a connection that is opened if needed.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::client::{Answer, Connection};

/// A connection, if one is open.
pub struct Line {
    target: String,
    connection: Option<Connection>,
    /// How often a connection was opened.
    pub opened: u64,
}

/// The result of an attempt.
#[derive(Debug)]
pub enum Tried {
    /// An answer with any status.
    Answered(Answer),
    /// The connection broke; the request may have arrived or not.
    Broken(String),
}

impl Line {
    pub fn new(target: &str) -> Self {
        Self { target: target.to_owned(), connection: None, opened: 0 }
    }

    /// Drops the connection.
    pub fn hang_up(&mut self) {
        self.connection = None;
    }

    /// Opens a connection, unless one is open that the server has not closed.
    pub async fn ready(&mut self) -> Result<(), String> {
        if self.connection.as_ref().is_some_and(|connection| !connection.is_closed()) {
            return Ok(());
        }
        self.opened += 1;
        self.connection = Some(Connection::open(&self.target).await.map_err(|error| kind(&error))?);
        Ok(())
    }

    /// Sends one POST, and waits for the answer until `end`.
    pub async fn post(&mut self, path: &str, body: Bytes, gzip: bool, end: Instant) -> Tried {
        let Some(connection) = &mut self.connection else { return Tried::Broken("not connected".to_owned()) };
        let answer = tokio::time::timeout_at(end.into(), connection.post(path, body, gzip)).await;
        self.tried(answer)
    }

    /// Sends one GET, and waits for the answer for `within`.
    pub async fn ask(&mut self, path: &str, within: Duration) -> Tried {
        if let Err(how) = self.ready().await {
            return Tried::Broken(how);
        }
        let Some(connection) = &mut self.connection else { return Tried::Broken("not connected".to_owned()) };
        let answer = tokio::time::timeout(within, connection.ask(path)).await;
        self.tried(answer)
    }

    fn tried(&mut self, answer: Result<anyhow::Result<Answer>, tokio::time::error::Elapsed>) -> Tried {
        let broken = match answer {
            Ok(Ok(answer)) => return Tried::Answered(answer),
            Ok(Err(error)) => kind(&error),
            Err(_) => "timed out".to_owned(),
        };
        self.hang_up();
        Tried::Broken(broken)
    }
}

/// The kind of connection error.
fn kind(error: &anyhow::Error) -> String {
    let io = error.chain().find_map(|cause| cause.downcast_ref::<std::io::Error>());
    let hyper = error.chain().find_map(|cause| cause.downcast_ref::<hyper::Error>());
    match (io.map(std::io::Error::kind), hyper) {
        (Some(ErrorKind::ConnectionRefused), _) => "connection refused".to_owned(),
        (Some(ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), _) => "connection reset".to_owned(),
        (_, Some(error)) if error.is_incomplete_message() || error.is_closed() || error.is_canceled() => {
            "connection closed".to_owned()
        }
        (Some(kind), _) => kind.to_string(),
        _ => format!("{error:#}"),
    }
}
