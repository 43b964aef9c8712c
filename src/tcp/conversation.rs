//! One connection: reads lines, gathers a batch, passes it to ingest, and reads on only once ingest has accepted it.
//! While ingest is overloaded the batch is retried and nothing more is read, which slows the sender down.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::Instant;

use super::TcpService;
use super::batches::{Batches, count, halves};
use super::hello::{self, FirstLine, Hello};
use crate::access::{Caller, Rate};
use crate::clock::now_ns;
use crate::edge::{self, Connection, Stream};
use crate::http::can_pass;
use crate::ingest::{AckLevel, Arrival, BytesInFlight, IngestError};
use crate::reading::Precision;
use crate::wire::line_protocol::Lines;

/// Largest batch in bytes, unless `limits.body_bytes` is less.
const BATCH_BYTES: usize = 256 << 10;
/// A batch of at most this many bytes is not split when ingest is overloaded, only retried.
const SMALL_BYTES: usize = 4 << 10;
/// How long a batch waits for more lines.
const GATHER: Duration = Duration::from_millis(50);
/// Bytes per read.
const READ_BYTES: usize = 16 << 10;
/// The pause before a retry, doubled up to the longest pause.
const AGAIN: Duration = Duration::from_millis(20);
const AGAIN_LONGEST: Duration = Duration::from_millis(500);
/// After an error line, how long input is still read and discarded: closing a socket with unread input sends a reset,
/// which may destroy the error line.
const FAREWELL: Duration = Duration::from_secs(1);

/// The settings of a connection, from its first line or the defaults.
struct Session {
    token: Option<String>,
    database: String,
    precision: Precision,
    /// Whether the client named the precision.
    declared: bool,
}

/// The result of a read.
#[derive(PartialEq, Eq)]
enum Came {
    Bytes,
    Nothing,
    End,
}

struct Conversation {
    connection: Connection,
    service: Arc<TcpService>,
    stop: watch::Receiver<bool>,
    batches: Batches,
    /// Admission for the buffered bytes.
    admission: BytesInFlight,
    piece: BytesMut,
}

/// Serves one connection to its end.
pub async fn converse(connection: Connection, service: Arc<TcpService>, stop: watch::Receiver<bool>) {
    // Received bytes are not progress of a request here; only batches passed to ingest are.
    connection.watch.multiplex();
    let batches = Batches::new(service.ingest.options.limits.line_bytes);
    let admission = service.ingest.admission();
    let mut conversation = Conversation { connection, service, stop, batches, admission, piece: BytesMut::new() };
    if let Some(session) = conversation.open().await {
        conversation.take_lines(&session).await;
    }
    conversation.count_torn();
}

impl Conversation {
    fn batch_bytes(&self) -> usize {
        self.service.ingest.options.limits.body_bytes.min(BATCH_BYTES)
    }

    /// Reads the first line and authorizes the sender. `None` if the connection is to be closed.
    async fn open(&mut self) -> Option<Session> {
        let opening = loop {
            if hello::is_tls(self.batches.held()) {
                return None;
            }
            if let Some(line) = self.batches.first_line() {
                break hello::opening(line);
            }
            if self.read(None).await == Came::End {
                return None;
            }
        };
        let hello = match opening {
            FirstLine::Lines => Hello::default(),
            FirstLine::Hello(hello) => {
                self.batches.drop_first_line();
                hello
            }
            FirstLine::Wrong(reason) => {
                self.refuse(&reason).await;
                return None;
            }
            FirstLine::Http => {
                self.point_to_http().await;
                return None;
            }
        };
        let options = &self.service.ingest.options.tcp;
        let database = hello.database.clone().unwrap_or_else(|| options.database.clone());
        let precision = hello.precision.unwrap_or(options.precision);
        let refused = self.service.authorize(hello.token.as_deref(), &self.connection.peer, &database).err();
        if let Some(refused) = refused {
            self.refuse(&refused).await;
            return None;
        }
        Some(Session { token: hello.token, database, precision, declared: hello.precision.is_some() })
    }

    async fn take_lines(&mut self, session: &Session) {
        let mut open = true;
        while open || self.batches.whole() > 0 {
            open = open && self.gather().await;
            let dropped = self.batches.take_too_long();
            self.service.metrics.tcp_dropped("line_bytes", dropped);
            if self.batches.whole() > 0 && self.hand_over(session).await.is_break() {
                return;
            }
        }
    }

    /// Waits for a line, then up to [`GATHER`] for more. Returns false once the input has ended.
    async fn gather(&mut self) -> bool {
        while self.batches.whole() == 0 {
            if self.read(None).await == Came::End {
                return false;
            }
        }
        let deadline = Instant::now() + GATHER;
        while self.batches.held().len() + READ_BYTES <= self.batch_bytes() {
            match self.read(Some(deadline)).await {
                Came::Bytes => {}
                Came::Nothing => return true,
                Came::End => return false,
            }
        }
        true
    }

    /// Reads a piece. Shutdown counts as the end of the input: bytes still in the kernel are not read.
    async fn read(&mut self, deadline: Option<Instant>) -> Came {
        self.piece.clear();
        self.piece.reserve(READ_BYTES);
        let late = async {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        let mut piece = (&mut self.piece).limit(READ_BYTES);
        let read = tokio::select! {
            biased;
            () = edge::stopped(&mut self.stop) => return Came::End,
            read = self.connection.stream.read_buf(&mut piece) => read,
            () = late => return Came::Nothing,
        };
        match read {
            Ok(0) | Err(_) => Came::End,
            Ok(count) => {
                self.service.metrics.tcp_bytes.increment(count as u64);
                self.make_room(count).await;
                self.batches.push(&self.piece);
                self.settle();
                Came::Bytes
            }
        }
    }

    /// Adds the read bytes to the admission, retrying for a while. If that fails the bytes are buffered without
    /// admission; this is little more than one read, since whole lines are passed to ingest first.
    async fn make_room(&mut self, bytes: usize) {
        let mut wait = AGAIN;
        while self.admission.grow(bytes).is_err() {
            if self.batches.whole() > 0 || wait > AGAIN_LONGEST || *self.stop.borrow() {
                return;
            }
            tokio::time::sleep(wait).await;
            wait *= 2;
        }
    }

    /// Reduces the admission to the bytes still buffered.
    fn settle(&mut self) {
        let held = self.batches.held().len();
        if self.admission.size() > held {
            self.admission = self.service.ingest.admission();
            // This may fail if others took the room meanwhile; the uncovered rest is one unfinished line at most.
            let _ = self.admission.grow(held);
        }
    }

    /// Passes all whole lines to ingest. Breaks when the connection must be closed.
    async fn hand_over(&mut self, session: &Session) -> ControlFlow<()> {
        if !self.connection.watch.begin(false) {
            return ControlFlow::Break(());
        }
        // Authorized for each batch, since a token may end during a connection.
        let caller = self.service.authorize(session.token.as_deref(), &self.connection.peer, &session.database);
        let caller = match caller {
            Ok(caller) => caller,
            Err(refused) => {
                self.connection.watch.ended();
                self.refuse(&refused).await;
                return ControlFlow::Break(());
            }
        };
        let lines = self.batches.take();
        self.settle();
        let flow = self.offer_in_parts(session, &caller, lines).await;
        self.connection.watch.ended();
        if flow.is_break() {
            self.refuse("the lines could not be accepted; the service's log says why").await;
        }
        flow
    }

    /// Passes lines to ingest, split into halves while they are too large or ingest is overloaded. Breaks when the
    /// connection must be closed.
    async fn offer_in_parts(&self, session: &Session, caller: &Caller, lines: Bytes) -> ControlFlow<()> {
        let mut waiting = vec![lines];
        while let Some(lines) = waiting.pop() {
            // Ingest need not be able to admit more than the largest body, so a larger batch is always split.
            let limit = self.batch_bytes();
            let offered = match lines.len() > limit {
                true => Err(IngestError::TooLarge { limit, key: "limits.body_bytes" }),
                false => self.offer(session, caller, &lines).await,
            };
            match offered {
                Ok(()) => {}
                Err(IngestError::TooLarge { .. } | IngestError::Overloaded { .. }) if halves(&lines).is_some() => {
                    waiting.extend(halves(&lines).into_iter().flat_map(|(first, second)| [second, first]));
                }
                // A single line cannot be split: it is retried until it is accepted.
                Err(IngestError::Overloaded { .. }) => waiting.push(lines),
                Err(error) => self.give_up(&lines, &error)?,
            }
        }
        ControlFlow::Continue(())
    }

    /// Counts dropped lines and logs the reason. Breaks if later lines would fail the same way.
    fn give_up(&self, lines: &[u8], error: &IngestError) -> ControlFlow<()> {
        let (metrics, address) = (&self.service.metrics, self.connection.peer.address);
        let count = count(lines);
        match error {
            // These lines are of new sensors only, and the quota may stay used up for an hour: later lines go on.
            IngestError::OverQuota(_) => metrics.tcp_dropped("quota", count),
            _ => {
                metrics.tcp_dropped("refused", count);
                tracing::warn!(%address, %error, count, "lines over TCP were dropped");
                // TooLarge: one line is larger than ingest can ever admit; other lines are not.
                if !matches!(error, IngestError::TooLarge { .. }) {
                    return ControlFlow::Break(());
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// Passes lines to ingest and retries until they are accepted or refused for good. If ingest is overloaded, more
    /// than [`SMALL_BYTES`] are tried only once, so that the caller can split them.
    async fn offer(&self, session: &Session, by: &Caller, lines: &Bytes) -> Result<(), IngestError> {
        let ingest = &self.service.ingest;
        let mut wait = AGAIN;
        loop {
            let mut admission = ingest.admission();
            let taken = match admission.grow(lines.len()) {
                Ok(()) => {
                    let Session { database, precision, declared, .. } = session;
                    let ack = Some(AckLevel::Log);
                    let arrival = Arrival {
                        database,
                        precision: *precision,
                        declared: *declared,
                        received: now_ns(),
                        partial: true,
                        ack,
                        key: None,
                        patient: true,
                        by,
                        address: Some(self.connection.peer.address),
                    };
                    let read = |limits| Lines::new(lines, *precision, limits);
                    ingest.take(arrival, read, admission).await
                }
                Err(error) => Err(error),
            };
            match taken {
                // The sender gets no answer: the log and the list of rejections tell its owner.
                Ok(_) => return Ok(()),
                Err(error) if can_pass(&error) => {
                    if let IngestError::Overloaded { key, .. } = &error {
                        self.service.metrics.shed(key);
                    }
                    if let IngestError::DatabaseFailing { .. } = &error {
                        self.service.metrics.shed("ingest.database_share");
                    }
                    tokio::time::sleep(wait).await;
                    // A smaller batch may be admitted at once.
                    if lines.len() > SMALL_BYTES && matches!(error, IngestError::Overloaded { .. }) {
                        return Err(error);
                    }
                    wait = (wait * 2).min(AGAIN_LONGEST);
                }
                // Nothing is read from this connection while it waits, so waiting is all that the quota requires.
                Err(IngestError::OverQuota(exhausted)) if exhausted.rate == Rate::Readings => {
                    tokio::time::sleep(exhausted.retry_after.max(AGAIN)).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn count_torn(&mut self) {
        let dropped = self.batches.take_too_long();
        self.service.metrics.tcp_dropped("line_bytes", dropped);
        self.service.metrics.tcp_dropped("torn", u64::from(self.batches.is_torn()));
    }

    /// Sends the reason as one line and closes the connection.
    async fn refuse(&mut self, reason: &str) {
        say_goodbye(&mut self.connection.stream, &format!("ERROR {reason}\n")).await;
    }

    async fn point_to_http(&mut self) {
        let address = &self.service.http;
        let text = format!(
            "this port accepts lines in line protocol, without HTTP (tcp.listen); HTTP is served on {address}\n"
        );
        let answer = format!(
            "HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\nx-content-type-options: nosniff\r\ncache-control: no-store\r\n\
             connection: close\r\ncontent-length: {}\r\n\r\n{text}",
            text.len()
        );
        say_goodbye(&mut self.connection.stream, &answer).await;
    }
}

/// Writes `text`, shuts the stream down, and reads the remaining input for up to [`FAREWELL`].
async fn say_goodbye(stream: &mut Stream, text: &str) {
    let goodbye = async {
        stream.write_all(text.as_bytes()).await?;
        stream.shutdown().await?;
        let mut rest = [0; 1024];
        while stream.read(&mut rest).await? > 0 {}
        std::io::Result::Ok(())
    };
    // A client that does not read gets no reason.
    let _ = tokio::time::timeout(FAREWELL, goodbye).await;
}
