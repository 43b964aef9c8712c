//! A request's body, read under three bounds: bytes on the wire and after decompression, bytes in
//! flight in the whole service, and time. Nothing is allocated from a length that a client claims.

use std::io::{self, Write};

use axum::body::Body;
use axum::http::{HeaderMap, header};
use bytes::{Bytes, BytesMut};
use flate2::write::MultiGzDecoder;
use http_body_util::BodyExt;

use super::App;
use super::errors::ApiError;
use crate::ingest::Admission;

/// Reads and decompresses a body. The returned place in the bytes in flight covers it.
pub async fn read(app: &App, headers: &HeaderMap, body: &mut Body) -> Result<(Bytes, Admission), ApiError> {
    let (limit, timeout) = (app.options.body_bytes, app.options.body_timeout);
    let empty = || Kept { bytes: BytesMut::new(), admission: app.ingest.admission(), limit, refused: None };
    let mut sink = if is_gzip(headers)? { Sink::Gzip(MultiGzDecoder::new(empty())) } else { Sink::Plain(empty()) };
    let received = receive(headers, body, &mut sink, limit);
    let on_the_wire = tokio::time::timeout(timeout, received).await.unwrap_or(Err(ApiError::BodyTimeout))?;
    app.metrics.body_bytes.increment(on_the_wire as u64);
    // Clients that say gzip of every body send an empty one as nothing at all.
    let kept = if on_the_wire == 0 { empty() } else { sink.finish()? };
    Ok((kept.bytes.freeze(), kept.admission))
}

/// Takes the rest of a refused request's body and forgets it: many clients do not look for an
/// answer while they still send, and see a broken connection instead. A client that waits to be
/// told to go on has sent nothing.
pub async fn discard(app: &App, headers: &HeaderMap, mut body: Body) {
    if headers.contains_key(header::EXPECT) {
        return;
    }
    let rest = async { while let Some(Ok(_)) = body.frame().await {} };
    // When the time is over the connection is closed under the client after all.
    let _ = tokio::time::timeout(app.options.body_timeout, rest).await;
}

fn is_gzip(headers: &HeaderMap) -> Result<bool, ApiError> {
    match headers.get(header::CONTENT_ENCODING).map(|value| value.to_str().unwrap_or("?").trim()) {
        None | Some("" | "identity") => Ok(false),
        Some(gzip) if gzip.eq_ignore_ascii_case("gzip") || gzip.eq_ignore_ascii_case("x-gzip") => Ok(true),
        Some(other) => Err(ApiError::Encoding(other.chars().take(64).collect())),
    }
}

/// Takes all frames, and tells how many bytes they had.
async fn receive(headers: &HeaderMap, body: &mut Body, sink: &mut Sink, limit: usize) -> Result<usize, ApiError> {
    let claimed = headers.get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<usize>().ok());
    if claimed.is_some_and(|claimed| claimed > limit) {
        return Err(ApiError::TooLarge { limit });
    }
    let mut count = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| ApiError::Bad(format!("the body broke off: {error}")))?;
        let Ok(data) = frame.into_data() else { continue };
        count += data.len();
        if count > limit {
            return Err(ApiError::TooLarge { limit });
        }
        sink.take(&data)?;
    }
    Ok(count)
}

/// Where frames go: what came compressed is never held but decompressed.
enum Sink {
    Plain(Kept),
    Gzip(MultiGzDecoder<Kept>),
}

impl Sink {
    fn take(&mut self, data: &[u8]) -> Result<(), ApiError> {
        match self {
            Self::Plain(kept) => kept.keep(data),
            Self::Gzip(decoder) => decoder.write_all(data).map_err(|error| refusal(decoder, &error)),
        }
    }

    fn finish(self) -> Result<Kept, ApiError> {
        match self {
            Self::Plain(kept) => Ok(kept),
            Self::Gzip(mut decoder) => {
                decoder.try_finish().map_err(|error| refusal(&mut decoder, &error))?;
                decoder.finish().map_err(|error| damaged(&error))
            }
        }
    }
}

/// Why a decoder stopped: its output was refused, or its input is no gzip.
fn refusal(decoder: &mut MultiGzDecoder<Kept>, error: &io::Error) -> ApiError {
    decoder.get_mut().refused.take().unwrap_or_else(|| damaged(error))
}

fn damaged(error: &io::Error) -> ApiError {
    ApiError::Bad(format!("the gzip body is damaged: {error}"))
}

/// The bytes of a body so far, each counted before it is kept.
struct Kept {
    bytes: BytesMut,
    admission: Admission,
    limit: usize,
    /// Why a decoder's output was not taken, which `io::Error` cannot carry.
    refused: Option<ApiError>,
}

impl Kept {
    fn keep(&mut self, data: &[u8]) -> Result<(), ApiError> {
        if self.bytes.len() + data.len() > self.limit {
            return Err(ApiError::TooLarge { limit: self.limit });
        }
        self.admission.grow(data.len())?;
        self.bytes.extend_from_slice(data);
        Ok(())
    }
}

impl Write for Kept {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        match self.keep(data) {
            Ok(()) => Ok(data.len()),
            Err(error) => {
                self.refused = Some(error);
                Err(io::Error::other("refused"))
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
