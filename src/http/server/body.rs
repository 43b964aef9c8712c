//! Reads request bodies under three limits: bytes per body (compressed and decompressed), bytes in flight of the whole
//! service, and time. Memory is never allocated from a length that a client claims.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Poll, ready};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::{HeaderMap, header};
use bytes::{Bytes, BytesMut};
use http_body::Frame;
use tokio::time::{Instant, Sleep, sleep_until};

use super::decompress::{ByteSink, Decoding, Encoding};
use crate::access::Caller;
use crate::http::App;
use crate::http::errors::{ApiError, ApiResult};
use crate::ingest::BytesInFlight;
use crate::lanes::{SMALL_BODY_BYTES, Slice};

/// Time at the start of a body during which any rate is accepted.
const GRACE: Duration = Duration::from_secs(10);
/// Minimum average rate after the grace period, in bytes per second.
const RATE_MIN: u64 = 1024;
/// Interval of the rate checks.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Bytes that are decompressed without a pause.
const PIECE_BYTES: usize = 4 << 10;

/// A decompressed body, and the admission of its bytes.
pub type ReadBody = (Bytes, BytesInFlight);

/// A body that was received in the lane of its connection.
pub enum ReceivedBody {
    Complete(ReadBody),
    /// It is compressed and has more than [`SMALL_BODY_BYTES`]. [`read_on`] reads it from its start.
    Compressed(BodyStart),
}

/// The received frames of a compressed body.
pub struct BodyStart {
    frames: Vec<Bytes>,
    pace: Pace,
}

impl BodyStart {
    fn new(app: &App) -> Self {
        Self { frames: Vec::new(), pace: Pace::new(app.settings.server.body_timeout) }
    }
}

/// The maximum size of a body, on the wire and decompressed.
#[derive(Debug, Clone, Copy)]
pub struct BodyLimit {
    pub bytes: usize,
    /// The configuration key or name of the limit, for errors.
    pub key: &'static str,
}

impl BodyLimit {
    /// The limit of settings and the like. A rename has two names of up to 64 KiB.
    pub const SETTINGS: Self = Self { bytes: 192 << 10, key: "the maximum of settings" };

    fn of(app: &App) -> Self {
        Self { bytes: app.settings.limits.body_bytes, key: "limits.body_bytes" }
    }

    fn error(self) -> ApiError {
        ApiError::TooLarge { limit: self.bytes, key: self.key }
    }

    fn check_length(self, headers: &HeaderMap) -> ApiResult<()> {
        let length = headers.get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<usize>().ok());
        if length.is_some_and(|length| length > self.bytes) { Err(self.error()) } else { Ok(()) }
    }
}

/// Reads and decompresses a body of at most `limits.body_bytes`.
pub async fn read(app: &App, caller: &Caller, headers: &HeaderMap, body: &mut Body) -> ApiResult<ReadBody> {
    read_on(app, caller, headers, body, BodyStart::new(app)).await
}

/// Reads and decompresses a body that becomes a tree in memory, which is much larger than its text.
pub async fn read_parameters(
    app: &App,
    caller: &Caller,
    headers: &HeaderMap,
    body: &mut Body,
    limit: BodyLimit,
) -> ApiResult<ReadBody> {
    let limit = BodyLimit { bytes: limit.bytes.min(app.settings.limits.body_bytes), ..limit };
    let read = read_within(app, caller, headers, body, BodyStart::new(app), limit).await;
    if let Err(ApiError::TooLarge { .. }) = &read {
        discard(app, headers, body).await;
    }
    read
}

/// Receives a body, and decompresses at most [`SMALL_BODY_BYTES`]. An uncompressed body is complete: to pass each of its
/// frames to another lane costs more than to copy them.
pub async fn receive(app: &App, caller: &Caller, headers: &HeaderMap, body: &mut Body) -> ApiResult<ReceivedBody> {
    if matches!(Encoding::from_headers(headers)?, Encoding::Identity) {
        return read(app, caller, headers, body).await.map(ReceivedBody::Complete);
    }
    BodyLimit::of(app).check_length(headers)?;
    let mut start = BodyStart::new(app);
    let limit = BodyLimit::of(app);
    let limit = BodyLimit { bytes: limit.bytes.min(SMALL_BODY_BYTES), ..limit };
    if limit.check_length(headers).is_err() {
        return Ok(ReceivedBody::Compressed(start));
    }
    let mut decoding = decode(app, caller, headers, limit)?;
    while let Some(data) = start.pace.data(body).await? {
        start.frames.push(data.clone());
        // A large body can decompress to nothing.
        if start.pace.count > SMALL_BODY_BYTES as u64 {
            return Ok(ReceivedBody::Compressed(start));
        }
        match decoding.push(&data) {
            Err(ApiError::TooLarge { .. }) => return Ok(ReceivedBody::Compressed(start)),
            pushed => pushed?,
        }
    }
    match finish(app, caller, decoding, start.pace.count) {
        Err(ApiError::TooLarge { .. }) => Ok(ReceivedBody::Compressed(start)),
        finished => finished.map(ReceivedBody::Complete),
    }
}

/// Reads and decompresses a body whose first frames have been received. Call it in the lane of bulk work.
pub async fn read_on(
    app: &App,
    caller: &Caller,
    headers: &HeaderMap,
    body: &mut Body,
    start: BodyStart,
) -> ApiResult<ReadBody> {
    read_within(app, caller, headers, body, start, BodyLimit::of(app)).await
}

async fn read_within(
    app: &App,
    caller: &Caller,
    headers: &HeaderMap,
    body: &mut Body,
    start: BodyStart,
    limit: BodyLimit,
) -> ApiResult<ReadBody> {
    limit.check_length(headers)?;
    let mut decoding = decode(app, caller, headers, limit)?;
    let BodyStart { frames, mut pace } = start;
    let mut frames = frames.into_iter();
    let mut slice = Slice::begin();
    loop {
        let data = match frames.next() {
            Some(data) => data,
            None => match pace.data(body).await? {
                Some(data) => data,
                None => break,
            },
        };
        if pace.count > limit.bytes as u64 {
            return Err(limit.error());
        }
        // Few compressed bytes can take long.
        for piece in data.chunks(PIECE_BYTES) {
            decoding.push(piece)?;
            slice.pause().await;
        }
    }
    finish(app, caller, decoding, pace.count)
}

fn decode(app: &App, caller: &Caller, headers: &HeaderMap, limit: BodyLimit) -> ApiResult<Decoding<BodyBytes>> {
    Decoding::new(Encoding::from_headers(headers)?, BodyBytes::new(app, caller, limit))
}

fn finish(app: &App, caller: &Caller, decoding: Decoding<BodyBytes>, wire_bytes: u64) -> ApiResult<ReadBody> {
    // Some clients declare gzip for every body, but send an empty body as zero bytes.
    let decoded = if wire_bytes == 0 { BodyBytes::new(app, caller, BodyLimit::of(app)) } else { decoding.finish()? };
    app.metrics.body_bytes.increment(wire_bytes);
    Ok((decoded.bytes.freeze(), decoded.admission))
}

/// Reads and drops the rest of a refused request's body. Many clients do not read the answer while they send, and would
/// report a broken connection instead. A client that sent `Expect: 100-continue` has not sent the body.
pub async fn discard(app: &App, headers: &HeaderMap, body: &mut Body) {
    if headers.contains_key(header::EXPECT) {
        return;
    }
    // After a timeout the connection is closed even if the client is still sending.
    let mut pace = Pace::new(app.settings.server.body_timeout);
    while let Ok(Some(_)) = pace.data(body).await {}
}

/// Enforces the timeout and the minimum rate of a body. Does not read the clock while frames are ready.
struct Pace {
    timeout: Duration,
    /// Bytes received.
    count: u64,
    /// `None` before the first wait for a frame.
    checks: Option<Checks>,
}

/// The start of the first wait, and the timer of the next rate check.
struct Checks {
    begun: Instant,
    timer: Pin<Box<Sleep>>,
}

impl Pace {
    fn new(timeout: Duration) -> Self {
        Self { timeout, count: 0, checks: None }
    }

    /// Returns the next data of a body, `None` at its end.
    async fn data(&mut self, body: &mut Body) -> ApiResult<Option<Bytes>> {
        while let Some(frame) = self.frame(body).await? {
            let frame = frame.map_err(|error| ApiError::Bad(format!("reading the body failed: {error}")))?;
            if let Ok(data) = frame.into_data() {
                self.count += data.len() as u64;
                return Ok(Some(data));
            }
        }
        Ok(None)
    }

    async fn frame(&mut self, body: &mut Body) -> ApiResult<Option<Result<Frame<Bytes>, axum::Error>>> {
        poll_fn(|cx| {
            if let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(cx) {
                return Poll::Ready(Ok(frame));
            }
            let timeout = self.timeout;
            let Checks { begun, timer } = self.checks.get_or_insert_with(|| {
                let begun = Instant::now();
                Checks { begun, timer: Box::pin(sleep_until(begun + timeout.min(GRACE))) }
            });
            loop {
                ready!(timer.as_mut().poll(cx));
                match next_check(begun.elapsed(), self.count, timeout) {
                    Some(next) => timer.as_mut().reset(*begun + next),
                    None => return Poll::Ready(Err(ApiError::BodyTimeout)),
                }
            }
        })
        .await
    }
}

/// Returns the time of the next check, relative to the start like `elapsed`; `None` if the body is too slow.
fn next_check(elapsed: Duration, count: u64, timeout: Duration) -> Option<Duration> {
    if elapsed >= timeout || (elapsed >= GRACE && count < RATE_MIN * elapsed.as_secs()) {
        return None;
    }
    Some((elapsed + CHECK_INTERVAL).max(GRACE).min(timeout))
}

/// The decompressed bytes so far. They are admitted before they are stored.
struct BodyBytes {
    bytes: BytesMut,
    admission: BytesInFlight,
    limit: BodyLimit,
}

impl BodyBytes {
    fn new(app: &App, caller: &Caller, limit: BodyLimit) -> Self {
        Self { bytes: BytesMut::new(), admission: app.ingest.admission(caller), limit }
    }
}

impl ByteSink for BodyBytes {
    fn push(&mut self, data: &[u8]) -> ApiResult<()> {
        if self.bytes.len() + data.len() > self.limit.bytes {
            return Err(self.limit.error());
        }
        self.admission.grow(data.len())?;
        self.bytes.extend_from_slice(data);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_has_a_timeout_and_a_minimum_rate() {
        let seconds = Duration::from_secs;
        for (elapsed, count, timeout, next) in [
            (0, 0, 30, Some(10)),
            (9, 1, 30, Some(10)),
            (10, 10 * 1024 - 1, 30, None),
            (10, 10 * 1024, 30, Some(11)),
            (29, 1 << 20, 30, Some(30)),
            (30, 1 << 20, 30, None),
            (4, 0, 5, Some(5)),
            (5, 1 << 20, 5, None),
        ] {
            let found = next_check(seconds(elapsed), count, seconds(timeout));
            assert_eq!(found, next.map(seconds), "{count} bytes after {elapsed} of {timeout} s");
        }
    }
}
