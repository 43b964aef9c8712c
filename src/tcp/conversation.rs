//! One connection: reads lines, collects a batch, and passes it to ingest before it reads more. While ingest is
//! overloaded the batch is retried, which slows the sender down.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::Instant;

use super::TcpService;
use super::batches::{Batches, count_lines, split_in_half};
use super::hello::{self, FirstLine, Hello};
use crate::access::{Caller, Rate};
use crate::clock::now_ns;
use crate::edge::{self, Connection, Stream};
use crate::http::can_pass;
use crate::ingest::{AckLevel, Arrival, BytesInFlight, IngestError};
use crate::reading::Precision;
use crate::wire::line_protocol::Lines;

/// Maximum size of a batch in bytes, unless `limits.body_bytes` is less.
const BATCH_BYTES_MAX: usize = 256 << 10;
/// Maximum bytes of the line with a token. So strangers hold little memory.
const HELLO_BYTES_MAX: usize = 4 << 10;
/// Under overload, batches of at most this many bytes are retried without splitting.
const SMALL_BATCH_BYTES: usize = 4 << 10;
/// Maximum time that a batch waits for more lines.
const GATHER_TIME: Duration = Duration::from_millis(50);
/// Bytes per read.
const READ_BYTES: usize = 16 << 10;
/// The first pause before a retry. It doubles with each retry, up to the maximum.
const RETRY_PAUSE: Duration = Duration::from_millis(20);
const RETRY_PAUSE_MAX: Duration = Duration::from_millis(500);
/// Time after an error line during which input is read and discarded. Closing a socket with unread input sends a reset,
/// which may destroy the error line.
const LINGER_TIME: Duration = Duration::from_secs(1);

/// The settings of a connection, from its `auth` line or the defaults.
struct Session {
    token: Option<String>,
    database: String,
    precision: Precision,
    /// True if the client declared the precision.
    is_declared: bool,
}

/// The result of a read.
#[derive(PartialEq, Eq)]
enum ReadOutcome {
    Bytes,
    Timeout,
    End,
}

struct Conversation {
    connection: Connection,
    service: Arc<TcpService>,
    stop: watch::Receiver<bool>,
    batches: Batches,
    /// The admission of the buffered bytes.
    admission: BytesInFlight,
    /// The bytes of the last read.
    piece: BytesMut,
}

/// Serves one connection to its end.
pub async fn serve_connection(connection: Connection, service: Arc<TcpService>, stop: watch::Receiver<bool>) {
    // A batch that is passed to ingest counts as a request; received bytes do not.
    connection.state.set_multiplexed();
    let batches = Batches::new(service.ingest.options.limits.line_bytes);
    let admission = service.ingest.admission(&Caller::Anybody);
    let mut conversation = Conversation { connection, service, stop, batches, admission, piece: BytesMut::new() };
    if let Some(session) = conversation.open().await {
        conversation.ingest_lines(&session).await;
    }
    conversation.count_dropped();
}

impl Conversation {
    fn batch_bytes(&self) -> usize {
        self.service.ingest.options.limits.body_bytes.min(BATCH_BYTES_MAX)
    }

    /// Reads the first line and authorizes the sender. `None` if the connection must be closed.
    async fn open(&mut self) -> Option<Session> {
        let first_line = loop {
            if hello::is_tls(self.batches.bytes()) {
                return None;
            }
            if let Some(line) = self.batches.first_line() {
                break hello::parse_first_line(line);
            }
            if self.batches.bytes().len() > HELLO_BYTES_MAX && self.service.needs_token(&self.connection.peer) {
                self.refuse("the first line is too long for 'auth TOKEN'").await;
                return None;
            }
            if self.read(None).await == ReadOutcome::End {
                return None;
            }
        };
        let hello = match first_line {
            FirstLine::Lines => Hello::default(),
            FirstLine::Hello(hello) => {
                self.batches.drop_first_line();
                hello
            }
            FirstLine::Invalid(reason) => {
                self.refuse(&reason).await;
                return None;
            }
            FirstLine::Http => {
                self.refuse_http().await;
                return None;
            }
        };
        let options = &self.service.ingest.options.tcp;
        let database = hello.database.clone().unwrap_or_else(|| options.database.clone());
        let precision = hello.precision.unwrap_or(options.precision);
        let authorized = self.service.authorize(hello.token.as_deref(), &self.connection.peer, &database);
        if let Err(reason) = authorized {
            self.refuse(&reason).await;
            return None;
        }
        Some(Session { token: hello.token, database, precision, is_declared: hello.precision.is_some() })
    }

    /// Passes batches to ingest until the input ends.
    async fn ingest_lines(&mut self, session: &Session) {
        let mut is_open = true;
        while is_open || self.batches.whole_bytes() > 0 {
            is_open = is_open && self.gather().await;
            let dropped = self.batches.take_too_long();
            self.service.metrics.tcp_dropped("line_bytes", dropped);
            if self.batches.whole_bytes() > 0 && self.ingest_batch(session).await.is_break() {
                return;
            }
        }
    }

    /// Waits for a line, then up to [`GATHER_TIME`] for more. Returns false once the input has ended.
    async fn gather(&mut self) -> bool {
        while self.batches.whole_bytes() == 0 {
            if self.read(None).await == ReadOutcome::End {
                return false;
            }
        }
        let deadline = Instant::now() + GATHER_TIME;
        while self.batches.bytes().len() + READ_BYTES <= self.batch_bytes() {
            match self.read(Some(deadline)).await {
                ReadOutcome::Bytes => {}
                ReadOutcome::Timeout => return true,
                ReadOutcome::End => return false,
            }
        }
        true
    }

    /// Reads up to [`READ_BYTES`]. A shutdown counts as the end of the input, so bytes in the kernel are not read.
    async fn read(&mut self, deadline: Option<Instant>) -> ReadOutcome {
        self.piece.clear();
        self.piece.reserve(READ_BYTES);
        let timeout = async {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        let mut piece = (&mut self.piece).limit(READ_BYTES);
        let read = tokio::select! {
            biased;
            () = edge::wait_for_stop(&mut self.stop) => return ReadOutcome::End,
            read = self.connection.stream.read_buf(&mut piece) => read,
            () = timeout => return ReadOutcome::Timeout,
        };
        match read {
            Ok(0) | Err(_) => ReadOutcome::End,
            Ok(count) => {
                self.service.metrics.tcp_bytes.increment(count as u64);
                self.grow_admission(count).await;
                self.batches.push(&self.piece);
                self.shrink_admission();
                ReadOutcome::Bytes
            }
        }
    }

    /// Admits received bytes, with retries. If that fails the bytes are buffered without admission. These are little
    /// more than one read, because whole lines are passed to ingest first.
    async fn grow_admission(&mut self, bytes: usize) {
        let mut wait = RETRY_PAUSE;
        while self.admission.grow(bytes).is_err() {
            if self.batches.whole_bytes() > 0 || wait > RETRY_PAUSE_MAX || *self.stop.borrow() {
                return;
            }
            tokio::time::sleep(wait).await;
            wait *= 2;
        }
    }

    /// Reduces the admission to the buffered bytes.
    fn shrink_admission(&mut self) {
        let buffered = self.batches.bytes().len();
        if self.admission.size() > buffered {
            self.admission = self.service.ingest.admission(&Caller::Anybody);
            // This may fail under overload. Then at most one incomplete line is not admitted.
            let _ = self.admission.grow(buffered);
        }
    }

    /// Passes all whole lines to ingest. Breaks when the connection must be closed.
    async fn ingest_batch(&mut self, session: &Session) -> ControlFlow<()> {
        if !self.connection.state.begin_request(false) {
            return ControlFlow::Break(());
        }
        // Authorize each batch, because a token may be revoked during a connection.
        let authorized = self.service.authorize(session.token.as_deref(), &self.connection.peer, &session.database);
        let caller = match authorized {
            Ok(caller) => caller,
            Err(reason) => {
                self.connection.state.end_request();
                self.refuse(&reason).await;
                return ControlFlow::Break(());
            }
        };
        let lines = self.batches.take();
        self.shrink_admission();
        let flow = self.ingest_in_parts(session, &caller, lines).await;
        self.connection.state.end_request();
        if flow.is_break() {
            self.refuse("the lines were not accepted: see the log of the service").await;
        }
        flow
    }

    /// Passes lines to ingest, split into halves while they are too large or ingest is overloaded. Breaks when the
    /// connection must be closed.
    async fn ingest_in_parts(&self, session: &Session, caller: &Caller, lines: Bytes) -> ControlFlow<()> {
        let mut waiting = vec![lines];
        while let Some(lines) = waiting.pop() {
            // Ingest cannot admit more than the largest body, so a larger batch is always split.
            let limit = self.batch_bytes();
            let result = if lines.len() > limit {
                Err(IngestError::TooLarge { limit, key: "limits.body_bytes" })
            } else {
                self.ingest_with_retries(session, caller, &lines).await
            };
            match result {
                Ok(()) => {}
                Err(error @ (IngestError::TooLarge { .. } | IngestError::Overloaded { .. })) => {
                    if let Some((first, second)) = split_in_half(&lines) {
                        waiting.extend([second, first]);
                    } else if matches!(error, IngestError::Overloaded { .. }) {
                        // A single line cannot be split, so retry it until it is accepted.
                        waiting.push(lines);
                    } else {
                        self.drop_lines(&lines, &error)?;
                    }
                }
                Err(error) => self.drop_lines(&lines, &error)?,
            }
        }
        ControlFlow::Continue(())
    }

    /// Counts dropped lines and logs the reason. Breaks if later lines would fail in the same way.
    fn drop_lines(&self, lines: &[u8], error: &IngestError) -> ControlFlow<()> {
        let metrics = &self.service.metrics;
        let address = self.connection.peer.address;
        let count = count_lines(lines);
        match error {
            // Only lines of new sensors are affected, possibly for an hour, so continue with later lines.
            IngestError::OverQuota(_) => metrics.tcp_dropped("quota", count),
            _ => {
                metrics.tcp_dropped("refused", count);
                tracing::warn!(%address, %error, count, "dropped lines over TCP");
                // TooLarge means a single line that ingest can never admit, so continue with later lines.
                if !matches!(error, IngestError::TooLarge { .. }) {
                    return ControlFlow::Break(());
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// Passes lines to ingest, and retries until they are accepted or refused for good. If ingest is overloaded, more
    /// than [`SMALL_BATCH_BYTES`] are tried only once, so that the caller can split them.
    async fn ingest_with_retries(&self, session: &Session, caller: &Caller, lines: &Bytes) -> Result<(), IngestError> {
        let ingest = &self.service.ingest;
        let mut wait = RETRY_PAUSE;
        loop {
            let mut admission = ingest.admission(caller);
            let result = match admission.grow(lines.len()) {
                Ok(()) => {
                    let Session { database, precision, is_declared, .. } = session;
                    let arrival = Arrival {
                        database,
                        precision: *precision,
                        is_precision_declared: *is_declared,
                        received: now_ns(),
                        is_partial: true,
                        ack: Some(AckLevel::Log),
                        retry: None,
                        is_patient: true,
                        turn: None,
                        caller,
                        address: Some(self.connection.peer.address),
                        mapping: None,
                        topic: None,
                    };
                    let read = |limits| Lines::new(lines, *precision, limits);
                    ingest.take(arrival, read, admission).await
                }
                Err(error) => Err(error),
            };
            match result {
                // The sender gets no answer. Rejected lines are in the list of rejections.
                Ok(_) => return Ok(()),
                Err(error) if can_pass(&error) => {
                    if let IngestError::Overloaded { key, .. } = &error {
                        self.service.metrics.count_shed(key);
                    }
                    if let IngestError::DatabaseFailing { .. } = &error {
                        self.service.metrics.count_shed("ingest.database_share");
                    }
                    tokio::time::sleep(wait).await;
                    // A smaller batch may be admitted at once.
                    if lines.len() > SMALL_BATCH_BYTES && matches!(error, IngestError::Overloaded { .. }) {
                        return Err(error);
                    }
                    wait = (wait * 2).min(RETRY_PAUSE_MAX);
                }
                // The wait stops reading from this connection, which enforces the quota.
                Err(IngestError::OverQuota(exhausted)) if exhausted.rate == Rate::Readings => {
                    tokio::time::sleep(exhausted.retry_after.max(RETRY_PAUSE)).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Counts the lines that were dropped at the end of the connection.
    fn count_dropped(&mut self) {
        let dropped = self.batches.take_too_long();
        self.service.metrics.tcp_dropped("line_bytes", dropped);
        self.service.metrics.tcp_dropped("torn", u64::from(self.batches.has_incomplete_line()));
    }

    /// Sends the reason as one line and closes the connection.
    async fn refuse(&mut self, reason: &str) {
        send_and_close(&mut self.connection.stream, &format!("ERROR {reason}\n")).await;
    }

    /// Answers an HTTP request with the address of the HTTP service.
    async fn refuse_http(&mut self) {
        let address = &self.service.http;
        let text =
            format!("this port accepts line protocol without HTTP (tcp.listen): send HTTP requests to {address}\n");
        let answer = format!(
            "HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\nx-content-type-options: nosniff\r\ncache-control: no-store\r\n\
             connection: close\r\ncontent-length: {}\r\n\r\n{text}",
            text.len()
        );
        send_and_close(&mut self.connection.stream, &answer).await;
    }
}

/// Writes `text`, shuts the stream down, and reads the remaining input for up to [`LINGER_TIME`].
async fn send_and_close(stream: &mut Stream, text: &str) {
    let sending = async {
        stream.write_all(text.as_bytes()).await?;
        stream.shutdown().await?;
        let mut rest = [0; 1024];
        while stream.read(&mut rest).await? > 0 {}
        std::io::Result::Ok(())
    };
    // After a timeout, close the connection without the text.
    let _ = tokio::time::timeout(LINGER_TIME, sending).await;
}
