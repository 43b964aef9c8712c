//! The stream of a connection. It reports reads and writes to its [`ConnectionState`].

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

use super::connection_state::ConnectionState;
use super::request_lines::RequestLines;

/// The socket of a connection: plain TCP, or TLS, boxed because it is large.
pub(super) type Io = Either<TcpStream, Box<TlsStream<TcpStream>>>;

/// The stream of a connection, with or without TLS.
#[derive(Debug)]
pub struct Stream {
    io: Io,
    state: Arc<ConnectionState>,
    request_lines: RequestLines,
    /// Encoded bytes that are not read yet.
    encoded: Bytes,
}

impl Stream {
    pub(super) fn new(io: Io, state: Arc<ConnectionState>) -> Self {
        Self { io, state, request_lines: RequestLines::default(), encoded: Bytes::new() }
    }

    /// Percent-encodes raw quotes in the request lines of HTTP. Call it before the first read.
    pub fn encode_request_lines(&mut self) {
        self.request_lines = RequestLines::http();
    }

    fn record_write(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match &written {
            Poll::Pending => self.state.record_blocked_write(),
            Poll::Ready(written) => self.state.record_write(*written.as_ref().unwrap_or(&0)),
        }
        written
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.state.check_idle();
        let before = buf.filled().len();
        if this.encoded.is_empty() {
            ready!(Pin::new(&mut this.io).poll_read(cx, buf))?;
            if let Some(encoded) = this.request_lines.encode(&buf.filled()[before..]) {
                buf.set_filled(before);
                this.encoded = encoded.into();
            }
        }
        let length = this.encoded.len().min(buf.remaining());
        buf.put_slice(&this.encoded.split_to(length));
        let bytes = &buf.filled()[before..];
        if !bytes.is_empty() {
            this.state.record_read(bytes);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.io).poll_write(cx, data);
        this.record_write(written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.io).poll_write_vectored(cx, data);
        this.record_write(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.io).poll_flush(cx);
        this.state.record_flush(flushed.is_pending());
        flushed
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(cx)
    }
}
