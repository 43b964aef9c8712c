//! One connection, from its first byte to its last: reads, gathers, hands over, and reads again only when that is
//! done. While there is no room for its lines they are offered again and again, and nothing more is read.

use std::ops::ControlFlow;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::Instant;

use super::batches::{Batches, count, halves};
use super::hello::{self, Hello, Opening};
use super::{Service, Shared};
use crate::access::{Caller, Rate};
use crate::bucket::StorageError;
use crate::clock::now_ns;
use crate::edge::{self, Connection, Stream};
use crate::ingest::{AckLevel, Admission, Arrival, IngestError};
use crate::reading::Precision;
use crate::wire::line_protocol::Lines;

/// Bytes that suit to be handed over together.
const BATCH_BYTES: usize = 256 << 10;
/// Bytes of which no less are offered where there is no room for more.
const SMALL_BYTES: usize = 4 << 10;
/// How long lines wait for others.
const GATHER: Duration = Duration::from_millis(50);
/// Bytes that are read at a time.
const READ_BYTES: usize = 16 << 10;
/// How long is waited before lines are offered again; doubled up to the longest wait.
const AGAIN: Duration = Duration::from_millis(20);
const AGAIN_LONGEST: Duration = Duration::from_millis(500);
/// How long the rest of what a stranger says is read, so that the answer is not lost to a reset.
const FAREWELL: Duration = Duration::from_secs(1);

/// Where a connection's lines go.
struct Session {
    token: Option<String>,
    database: String,
    precision: Precision,
}

/// What came of a read.
#[derive(PartialEq, Eq)]
enum Came {
    Bytes,
    Nothing,
    End,
}

/// A connection at work.
struct Conversation {
    connection: Connection,
    service: Service,
    stop: watch::Receiver<bool>,
    batches: Batches,
    /// Covers the bytes that are held.
    admission: Admission,
    piece: BytesMut,
}

/// Takes all lines of a connection.
pub async fn converse(connection: Connection, service: Service, stop: watch::Receiver<bool>) {
    // Bytes alone mean nothing here; lines that are being handed over do.
    connection.watch.multiplex();
    let shared = &service.0;
    let (batches, admission) = (Batches::new(shared.options.line_bytes), shared.ingest.admission());
    let mut conversation = Conversation { connection, service, stop, batches, admission, piece: BytesMut::new() };
    if let Some(session) = conversation.open().await {
        conversation.take_lines(&session).await;
    }
    conversation.count_torn();
}

impl Conversation {
    fn shared(&self) -> &Shared {
        &self.service.0
    }

    fn batch_bytes(&self) -> usize {
        self.shared().options.batch_bytes.min(BATCH_BYTES)
    }

    /// What the first line says. `None` when there is nothing to go on with.
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
            Opening::Lines => Hello::default(),
            Opening::Hello(hello) => {
                self.batches.drop_first_line();
                hello
            }
            Opening::Wrong(reason) => {
                self.refuse(&reason).await;
                return None;
            }
            Opening::Http => {
                self.point_to_http().await;
                return None;
            }
        };
        let options = &self.shared().options;
        let database = hello.database.clone().unwrap_or_else(|| options.database.clone());
        let precision = hello.precision.unwrap_or(options.precision);
        let refused = self.shared().authorize(hello.token.as_deref(), &self.connection.peer, &database).err();
        if let Some(refused) = refused {
            self.refuse(&refused.to_string()).await;
            return None;
        }
        Some(Session { token: hello.token, database, precision })
    }

    async fn take_lines(&mut self, session: &Session) {
        let mut open = true;
        while open || self.batches.whole() > 0 {
            open = open && self.gather().await;
            let dropped = self.batches.take_too_long();
            self.shared().metrics.tcp_dropped("line_bytes", dropped);
            if self.batches.whole() > 0 && self.hand_over(session).await.is_break() {
                return;
            }
        }
    }

    /// Waits for lines, and then a moment for more of them. False when no more will come.
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

    /// Reads a piece. A stop is an end: what is still in the kernel was not taken.
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
                self.service.0.metrics.tcp_bytes.increment(count as u64);
                self.make_room(count).await;
                self.batches.push(&self.piece);
                self.settle();
                Came::Bytes
            }
        }
    }

    /// Takes a place in the bytes in flight, when there is one. What is held otherwise is a piece that was read
    /// already and little else: lines that wait are handed over first.
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

    /// Gives back the room of what is no longer held: lines that were handed over, or forgotten as too long.
    fn settle(&mut self) {
        let held = self.batches.held().len();
        if self.admission.size() > held {
            self.admission = self.service.0.ingest.admission();
            // Of the room that was just given back there may be none any more; it is the beginning of a line at most.
            let _ = self.admission.grow(held);
        }
    }

    /// Hands the whole lines over. Breaks when the connection cannot go on.
    async fn hand_over(&mut self, session: &Session) -> ControlFlow<()> {
        if !self.connection.watch.begin(false) {
            return ControlFlow::Break(());
        }
        // Once more, since connections outlive tokens.
        let caller = self.shared().authorize(session.token.as_deref(), &self.connection.peer, &session.database);
        let caller = match caller {
            Ok(caller) => caller,
            Err(refused) => {
                self.connection.watch.ended();
                self.refuse(&refused.to_string()).await;
                return ControlFlow::Break(());
            }
        };
        let lines = self.batches.take();
        self.settle();
        let flow = self.offer_in_parts(session, &caller, lines).await;
        self.connection.watch.ended();
        if flow.is_break() {
            self.refuse("the lines could not be taken").await;
        }
        flow
    }

    /// Offers lines, and halves of them where there is no room for all. Breaks when the connection cannot go on.
    async fn offer_in_parts(&self, session: &Session, caller: &Caller, lines: Bytes) -> ControlFlow<()> {
        let mut waiting = vec![lines];
        while let Some(lines) = waiting.pop() {
            // Of what is larger than a body may be nobody knows whether there is ever room for it.
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
                // One line that is larger than suits is offered as it is, again and again.
                Err(IngestError::Overloaded { .. }) => waiting.push(lines),
                Err(error) => self.give_up(&lines, &error)?,
            }
        }
        ControlFlow::Continue(())
    }

    /// Counts lines that are not offered again, and tells why. Breaks when it would be the same with others.
    fn give_up(&self, lines: &[u8], error: &IngestError) -> ControlFlow<()> {
        let (metrics, address) = (&self.shared().metrics, self.connection.peer.address);
        let count = count(lines);
        match error {
            // All of new sensors, of which there may be no more for up to an hour: those behind them do not wait.
            IngestError::OverQuota(_) => metrics.tcp_dropped("quota", count),
            _ => {
                metrics.tcp_dropped("refused", count);
                tracing::warn!(%address, %error, count, "lines over TCP could not be taken");
                // One line that is too large for all the room there is; others are not.
                if !matches!(error, IngestError::TooLarge { .. }) {
                    return ControlFlow::Break(());
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// Offers lines until they are taken, or refused for good; where there is no room for many, only once.
    async fn offer(&self, session: &Session, by: &Caller, lines: &Bytes) -> Result<(), IngestError> {
        let ingest = &self.shared().ingest;
        let mut wait = AGAIN;
        loop {
            let mut admission = ingest.admission();
            let taken = match admission.grow(lines.len()) {
                Ok(()) => {
                    let Session { database, precision, .. } = session;
                    let ack = Some(AckLevel::Log);
                    let arrival = Arrival {
                        database,
                        precision: *precision,
                        received: now_ns(),
                        partial: true,
                        ack,
                        patient: true,
                        by,
                    };
                    let read = |limits| Lines::new(lines, *precision, limits);
                    ingest.take(arrival, read, admission).await
                }
                Err(error) => Err(error),
            };
            match taken {
                Ok(ack) => {
                    self.shared().tell(&ack.rejected, &self.connection.peer);
                    return Ok(());
                }
                Err(error) if passes(&error) => {
                    if let IngestError::Overloaded { key, .. } = &error {
                        self.shared().metrics.shed(key);
                    }
                    if let IngestError::DatabaseFailing { .. } = &error {
                        self.shared().metrics.shed("ingest.database_share");
                    }
                    tokio::time::sleep(wait).await;
                    // There may be room for less, all the time.
                    if lines.len() > SMALL_BYTES && matches!(error, IngestError::Overloaded { .. }) {
                        return Err(error);
                    }
                    wait = (wait * 2).min(AGAIN_LONGEST);
                }
                // As nobody else's lines are read from here meanwhile, this is all that the quota asks for.
                Err(IngestError::OverQuota(exhausted)) if exhausted.rate == Rate::Readings => {
                    tokio::time::sleep(exhausted.retry_after.max(AGAIN)).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn count_torn(&mut self) {
        let dropped = self.batches.take_too_long();
        self.shared().metrics.tcp_dropped("line_bytes", dropped);
        self.shared().metrics.tcp_dropped("torn", u64::from(self.batches.is_torn()));
    }

    /// Says in a line why the connection is closed.
    async fn refuse(&mut self, reason: &str) {
        say_goodbye(&mut self.connection.stream, &format!("ERROR {reason}\n")).await;
    }

    async fn point_to_http(&mut self) {
        let address = self.shared().options.http;
        let text = format!(
            "this port takes lines of line protocol without HTTP (tcp.listen); HTTP is served on http://{address}\n"
        );
        let answer = format!(
            "HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{text}",
            text.len()
        );
        say_goodbye(&mut self.connection.stream, &answer).await;
    }
}

/// Writes, closes, and reads what is on its way for a moment.
async fn say_goodbye(stream: &mut Stream, text: &str) {
    let goodbye = async {
        stream.write_all(text.as_bytes()).await?;
        stream.shutdown().await?;
        let mut rest = [0; 1024];
        while stream.read(&mut rest).await? > 0 {}
        std::io::Result::Ok(())
    };
    // Who does not listen does not hear it.
    let _ = tokio::time::timeout(FAREWELL, goodbye).await;
}

/// Whether waiting and offering the lines again mends it.
fn passes(error: &IngestError) -> bool {
    match error {
        IngestError::Overloaded { .. }
        | IngestError::Log(_)
        | IngestError::StoreTimeout(_)
        | IngestError::DeletionTimeout(_)
        | IngestError::BeingDeleted { .. }
        | IngestError::DatabaseFailing { .. }
        | IngestError::TooManyDeletions { .. }
        | IngestError::Clock { .. }
        | IngestError::NotJoined
        | IngestError::Ahead { .. }
        | IngestError::LongDeletions { .. }
        | IngestError::Behind(_) => true,
        IngestError::Storage(error) => !matches!(error, StorageError::Refused { .. }),
        IngestError::TooLarge { .. }
        | IngestError::TooManyDatabases { .. }
        | IngestError::DatabaseName { .. }
        | IngestError::OverQuota(_)
        | IngestError::Timeout(_)
        | IngestError::Stopping => false,
    }
}
