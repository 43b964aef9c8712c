//! The text of an answer. It is written row by row within the query's memory budget, and sent in pieces. The memory of
//! a piece is returned once the connection has written it.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use hyper::body::{Frame, SizeHint};

use super::format::Format;
use crate::query::{Budget, HeldBytes, QueryError};

/// A piece ends with the first row that brings it to this many bytes.
const PIECE_BYTES: usize = 64 << 10;

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
        self.held.budget().pause().await
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
