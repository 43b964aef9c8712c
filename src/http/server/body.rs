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
use crate::http::App;
use crate::http::errors::{ApiError, ApiResult};
use crate::ingest::BytesInFlight;

/// Time at the start of a body during which any rate is accepted.
const GRACE: Duration = Duration::from_secs(10);
/// Minimum average rate after the grace period, in bytes per second.
const RATE_MIN: u64 = 1024;
/// Interval of the rate checks.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Reads and decompresses a body. The returned admission covers the decompressed bytes.
pub async fn read(app: &App, headers: &HeaderMap, body: &mut Body) -> ApiResult<(Bytes, BytesInFlight)> {
    let limit = app.settings.limits.body_bytes;
    let timeout = app.settings.server.body_timeout;
    let empty = || BodyBytes { bytes: BytesMut::new(), admission: app.ingest.admission(), limit };
    let mut decoding = Decoding::new(Encoding::from_headers(headers)?, empty())?;
    let wire_bytes = receive(headers, body, &mut decoding, limit, timeout).await?;
    app.metrics.body_bytes.increment(wire_bytes as u64);
    // Some clients declare gzip for every body, but send an empty body as zero bytes.
    let decoded = if wire_bytes == 0 { empty() } else { decoding.finish()? };
    Ok((decoded.bytes.freeze(), decoded.admission))
}

/// Reads and drops the rest of a refused request's body. Many clients do not read the answer while they send, and would
/// report a broken connection instead. A client that sent `Expect: 100-continue` has not sent the body.
pub async fn discard(app: &App, headers: &HeaderMap, mut body: Body) {
    if headers.contains_key(header::EXPECT) {
        return;
    }
    // After a timeout the connection is closed even if the client is still sending.
    let mut pace = Pace::new(app.settings.server.body_timeout);
    while let Ok(Some(Ok(frame))) = pace.frame(&mut body).await {
        pace.count += frame.data_ref().map_or(0, |data| data.len() as u64);
    }
}

/// Passes all frames to the decoder. Returns the number of compressed bytes.
async fn receive(
    headers: &HeaderMap,
    body: &mut Body,
    decoding: &mut Decoding<BodyBytes>,
    limit: usize,
    timeout: Duration,
) -> ApiResult<usize> {
    let length = headers.get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<usize>().ok());
    if length.is_some_and(|length| length > limit) {
        return Err(ApiError::TooLarge { limit });
    }
    let mut count = 0;
    let mut pace = Pace::new(timeout);
    while let Some(frame) = pace.frame(body).await? {
        let frame = frame.map_err(|error| ApiError::Bad(format!("reading the body failed: {error}")))?;
        let Ok(data) = frame.into_data() else { continue };
        count += data.len();
        pace.count = count as u64;
        if count > limit {
            return Err(ApiError::TooLarge { limit });
        }
        decoding.push(&data)?;
    }
    Ok(count)
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
    limit: usize,
}

impl ByteSink for BodyBytes {
    fn push(&mut self, data: &[u8]) -> ApiResult<()> {
        if self.bytes.len() + data.len() > self.limit {
            return Err(ApiError::TooLarge { limit: self.limit });
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
