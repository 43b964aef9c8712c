//! An answer's text: written row by row and counted, and given away piece by piece. What a piece takes is given back when
//! the connection has written it.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use hyper::body::{Frame, SizeHint};

use crate::query::{Budget, Held, QueryError};

/// Bytes after which a piece ends with its row.
const PIECE: usize = 64 << 10;

/// A text that is being written.
pub struct Text {
    /// Its end, which is still written to.
    pub out: String,
    /// What `out` takes.
    held: Held,
    pieces: VecDeque<Bytes>,
    length: u64,
    hash: u64,
    /// Rewrites each piece that is done.
    style: Option<Style>,
}

/// How many bytes of a body go out, if nothing makes them fewer on the way. Beside an answer.
#[derive(Debug, Clone, Copy)]
pub struct Length(pub u64);

type Style = Box<dyn FnMut(&str) -> String + Send>;

struct Piece {
    text: String,
    _held: Held,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        self.text.as_bytes()
    }
}

impl Text {
    /// An empty one.
    ///
    /// # Errors
    /// When the budget is spent.
    pub fn new(budget: &Budget) -> Result<Self, QueryError> {
        let held = budget.hold(0)?;
        Ok(Self { out: String::new(), held, pieces: VecDeque::new(), length: 0, hash: 0, style: None })
    }

    /// As [`Text::new`], each piece rewritten when it is done.
    ///
    /// # Errors
    /// When the budget is spent.
    pub fn styled(budget: &Budget, style: impl FnMut(&str) -> String + Send + 'static) -> Result<Self, QueryError> {
        Ok(Self { style: Some(Box::new(style)), ..Self::new(budget)? })
    }

    /// Counts what was written; a row is done.
    ///
    /// # Errors
    /// When the budget is spent, of bytes or of time.
    pub async fn row(&mut self) -> Result<(), QueryError> {
        if self.out.len() < PIECE {
            return self.held.set(self.out.capacity());
        }
        self.seal()?;
        self.held.budget().pause().await
    }

    fn seal(&mut self) -> Result<(), QueryError> {
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

    /// What the same text has in common everywhere.
    ///
    /// # Errors
    /// When the budget is spent.
    pub fn hash(&mut self) -> Result<u64, QueryError> {
        if !self.out.is_empty() {
            self.seal()?;
        }
        Ok(self.hash)
    }

    /// The answer; nothing is computed for it any more.
    ///
    /// # Errors
    /// When the budget is spent.
    pub fn respond(mut self, media_type: &'static str) -> Result<Response, QueryError> {
        self.hash()?;
        let length = self.length;
        let head = [(axum::http::header::CONTENT_TYPE, media_type)];
        let body = Body::new(Outgoing { pieces: self.pieces, left: length });
        let mut response = (StatusCode::OK, head, body).into_response();
        response.extensions_mut().insert(Length(length));
        Ok(response)
    }
}

/// Pieces on their way out.
struct Outgoing {
    pieces: VecDeque<Bytes>,
    left: u64,
}

impl http_body::Body for Outgoing {
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
