//! The text of an answer. It is written row by row within the query's memory budget, and sent in pieces: when it is
//! complete, or of a long answer while it is written. The memory of a piece is returned once the connection has written
//! it.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use hyper::body::{Frame, SizeHint};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::format::Format;
use crate::query::{Budget, HeldBytes, QueryError};

/// A piece ends with the first row that brings it to this many bytes.
const PIECE_BYTES: usize = 64 << 10;

/// Complete pieces that wait for the connection.
const PIECES_AHEAD: usize = 8;
/// Time for the client to read a piece.
const PIECE_TIMEOUT: Duration = Duration::from_secs(60);

/// Response extension of an answer whose end is not known when it begins, so that its length has no deadline.
#[derive(Debug, Clone, Copy)]
pub struct Endless;

/// The end of an answer that could not be completed. It aborts the connection, so that no client takes a part for the
/// whole.
#[derive(Debug, thiserror::Error)]
#[error("the answer could not be completed")]
struct CutOff;

type PieceSender = mpsc::Sender<Result<Bytes, CutOff>>;

/// The text of an answer.
pub struct Text {
    /// The current piece, to which callers append.
    pub out: String,
    /// The memory of `out`.
    held: HeldBytes,
    pieces: VecDeque<Bytes>,
    length: u64,
    hash: u64,
    /// Rewrites each complete piece.
    style: Option<Style>,
    has_items: bool,
    /// Sends complete pieces of an answer that has begun.
    sender: Option<PieceSender>,
}

/// Response extension with the size of the body before compression, in bytes.
#[derive(Debug, Clone, Copy)]
pub struct Length(pub u64);

type Style = Box<dyn FnMut(&str) -> String + Send>;

struct Piece {
    text: String,
    _held: HeldBytes,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        self.text.as_bytes()
    }
}

impl Text {
    /// Makes an empty text.
    ///
    /// # Errors
    /// If the budget of the query is used up.
    pub fn new(budget: &Budget) -> Result<Self, QueryError> {
        let held = budget.hold(0)?;
        Ok(Self {
            out: String::new(),
            held,
            pieces: VecDeque::new(),
            length: 0,
            hash: 0,
            style: None,
            has_items: false,
            sender: None,
        })
    }

    /// As [`Text::new`], but `style` rewrites each complete piece.
    ///
    /// # Errors
    /// If the budget of the query is used up.
    pub fn with_style(budget: &Budget, style: impl FnMut(&str) -> String + Send + 'static) -> Result<Self, QueryError> {
        Ok(Self { style: Some(Box::new(style)), ..Self::new(budget)? })
    }

    /// Makes a text that begins with a JSON list, `{"NAME":[`, for [items](Self::item).
    ///
    /// # Errors
    /// If the budget of the query is used up.
    pub fn list(budget: &Budget, name: &str) -> Result<Self, QueryError> {
        Ok(Self { out: format!("{{\"{name}\":["), ..Self::new(budget)? })
    }

    /// Appends an item to a list, after a comma if necessary.
    ///
    /// # Errors
    /// If the budget of the query is used up.
    pub async fn item(&mut self, write: impl FnOnce(&mut String)) -> Result<(), QueryError> {
        if std::mem::replace(&mut self.has_items, true) {
            self.out.push(',');
        }
        write(&mut self.out);
        self.row().await
    }

    /// Ends the query and makes the response.
    ///
    /// # Errors
    /// If the budget of the query is used up.
    pub fn respond_json(self, budget: &Budget) -> Result<Response, QueryError> {
        budget.finish();
        self.respond(Format::Json.media_type())
    }

    /// Counts the memory, and ends the piece if it is full. Call it after each row.
    ///
    /// # Errors
    /// If the memory or time budget of the query is used up.
    pub async fn row(&mut self) -> Result<(), QueryError> {
        if self.out.len() < PIECE_BYTES {
            return self.held.set(self.out.capacity());
        }
        self.end_piece()?;
        self.send_pieces().await?;
        self.held.budget().pause().await
    }

    /// Charges what follows to another request's budget.
    ///
    /// # Errors
    /// If this budget is used up.
    pub fn charge_to(&mut self, budget: &Budget) -> Result<(), QueryError> {
        self.held = budget.hold(self.out.capacity())?;
        Ok(())
    }

    async fn send_pieces(&mut self) -> Result<(), QueryError> {
        let Some(sender) = &self.sender else { return Ok(()) };
        while let Some(piece) = self.pieces.pop_front() {
            if let Ok(place) = sender.try_reserve() {
                place.send(Ok(piece));
                continue;
            }
            // A client that reads slowly must not keep the turn that others wait for.
            let sent = timeout(PIECE_TIMEOUT, sender.send(Ok(piece)));
            let sent = self.held.budget().without_turn(sent).await?;
            sent.ok().and_then(Result::ok).ok_or(QueryError::Disconnected)?;
        }
        Ok(())
    }

    /// Makes a response that begins with what is written, and continues with what `write` adds. If `write` fails, the
    /// connection is aborted.
    pub fn stream<F>(mut self, media_type: &'static str, write: impl FnOnce(Self) -> F) -> Response
    where
        F: Future<Output = Result<Self, QueryError>> + Send + 'static,
    {
        let (sender, mut pieces) = mpsc::channel(PIECES_AHEAD);
        self.sender = Some(sender.clone());
        let rest = write(self);
        // Dropping the body ends the task.
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let complete = async {
                let mut text = rest.await?;
                text.end_piece()?;
                text.send_pieces().await
            };
            match complete.await {
                Ok(()) => {}
                Err(QueryError::Disconnected) => tracing::debug!("a client left before the end of an answer"),
                Err(error) => {
                    tracing::warn!(%error, "an answer was aborted");
                    let _ = sender.send(Err(CutOff)).await;
                }
            }
        });
        let body = Body::from_stream(stream::poll_fn(move |context| {
            let _owned = &tasks;
            pieces.poll_recv(context)
        }));
        let head = [(axum::http::header::CONTENT_TYPE, media_type)];
        let mut response = (StatusCode::OK, head, body).into_response();
        response.extensions_mut().insert(Endless);
        response
    }

    fn end_piece(&mut self) -> Result<(), QueryError> {
        let mut text = std::mem::take(&mut self.out);
        self.held.set(text.capacity())?;
        if let Some(style) = &mut self.style {
            text = style(&text);
            self.held.set(text.capacity())?;
        }
        self.length += text.len() as u64;
        let parts = [self.hash, rapidhash::v3::rapidhash_v3(text.as_bytes())].map(u64::to_le_bytes);
        self.hash = rapidhash::v3::rapidhash_v3(parts.as_flattened());
        let empty = self.held.budget().hold(0)?;
        let held = std::mem::replace(&mut self.held, empty);
        self.pieces.push_back(Bytes::from_owner(Piece { text, _held: held }));
        Ok(())
    }

    /// Computes a hash of the text, the same on all instances.
    ///
    /// # Errors
    /// If the budget of the query is used up.
    pub fn hash(&mut self) -> Result<u64, QueryError> {
        if !self.out.is_empty() {
            self.end_piece()?;
        }
        Ok(self.hash)
    }

    /// Makes the response.
    ///
    /// # Errors
    /// If the budget of the query is used up.
    pub fn respond(mut self, media_type: &'static str) -> Result<Response, QueryError> {
        self.hash()?;
        let length = self.length;
        let head = [(axum::http::header::CONTENT_TYPE, media_type)];
        let body = Body::new(PieceBody { pieces: self.pieces, left: length });
        let mut response = (StatusCode::OK, head, body).into_response();
        response.extensions_mut().insert(Length(length));
        Ok(response)
    }
}

/// A response body of pieces.
struct PieceBody {
    pieces: VecDeque<Bytes>,
    left: u64,
}

impl http_body::Body for PieceBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        Poll::Ready(this.pieces.pop_front().map(|piece| {
            this.left -= piece.len() as u64;
            Ok(Frame::data(piece))
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}
