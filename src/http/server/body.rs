//! Reads a request's body under three limits: its bytes (on the wire and decompressed), the bytes in flight of the
//! whole service, and time. No memory is allocated from a length that a client claims.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Poll, ready};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::{HeaderMap, header};
use bytes::{Bytes, BytesMut};
use http_body::Frame;
use tokio::time::{Instant, Sleep, sleep_until};

use super::decompress::{Decoding, Encoding, Keep};
use crate::http::App;
use crate::http::errors::{ApiError, ApiResult};
use crate::ingest::BytesInFlight;

/// For this long a body may arrive at any rate.
const GRACE: Duration = Duration::from_secs(10);
/// The least average rate after that, in bytes per second.
const RATE: u64 = 1024;
/// How often the rate is checked.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Reads and decompresses a body. The returned admission covers its decompressed bytes.
pub async fn read(app: &App, headers: &HeaderMap, body: &mut Body) -> ApiResult<(Bytes, BytesInFlight)> {
    let (limit, timeout) = (app.settings.limits.body_bytes, app.settings.server.body_timeout);
    let empty = || BodyBytes { bytes: BytesMut::new(), admission: app.ingest.admission(), limit };
    let mut decoding = Decoding::new(Encoding::of(headers)?, empty())?;
    let on_the_wire = receive(headers, body, &mut decoding, (limit, timeout)).await?;
    app.metrics.body_bytes.increment(on_the_wire as u64);
    // Clients that declare gzip for every body send an empty body as zero bytes.
    let kept = if on_the_wire == 0 { empty() } else { decoding.finish()? };
    Ok((kept.bytes.freeze(), kept.admission))
}

/// Reads and drops the rest of a refused request's body: many clients read no answer while they send, and would see a
/// broken connection instead. A client that sent `Expect: 100-continue` has sent no body.
pub async fn discard(app: &App, headers: &HeaderMap, mut body: Body) {
    if headers.contains_key(header::EXPECT) {
        return;
    }
    // If this times out, the connection is closed while the client sends.
    let mut pace = Pace::new(app.settings.server.body_timeout);
    while let Ok(Some(Ok(frame))) = pace.frame(&mut body).await {
        pace.count += frame.data_ref().map_or(0, |data| data.len() as u64);
    }
}

/// Passes all frames to the decoder; returns the number of bytes on the wire.
async fn receive(
    headers: &HeaderMap,
    body: &mut Body,
    decoding: &mut Decoding<BodyBytes>,
    (limit, timeout): (usize, Duration),
) -> ApiResult<usize> {
    let claimed = headers.get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<usize>().ok());
    if claimed.is_some_and(|claimed| claimed > limit) {
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
        decoding.take(&data)?;
    }
    Ok(count)
}

/// Enforces the deadline and the least rate of a body. Frames that are ready are taken without reading the clock.
struct Pace {
    timeout: Duration,
    /// Bytes received.
    count: u64,
    /// When the first wait for a frame began, and the timer of the next check; `None` before the first wait.
    waiting: Option<(Instant, Pin<Box<Sleep>>)>,
}

impl Pace {
    fn new(timeout: Duration) -> Self {
        Self { timeout, count: 0, waiting: None }
    }

    async fn frame(&mut self, body: &mut Body) -> ApiResult<Option<Result<Frame<Bytes>, axum::Error>>> {
        poll_fn(|cx| {
            if let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(cx) {
                return Poll::Ready(Ok(frame));
            }
            let timeout = self.timeout;
            let (begun, timer) = self.waiting.get_or_insert_with(|| {
                let now = Instant::now();
                (now, Box::pin(sleep_until(now + timeout.min(GRACE))))
            });
            loop {
                ready!(timer.as_mut().poll(cx));
                match next_look(begun.elapsed(), self.count, timeout) {
                    Some(next) => timer.as_mut().reset(*begun + next),
                    None => return Poll::Ready(Err(ApiError::BodyTimeout)),
                }
            }
        })
        .await
    }
}

/// The time of the next check, counted from the start like `elapsed`; `None` if the body is too slow.
fn next_look(elapsed: Duration, count: u64, timeout: Duration) -> Option<Duration> {
    if elapsed >= timeout || (elapsed >= GRACE && count < RATE * elapsed.as_secs()) {
        return None;
    }
    Some((elapsed + LOOK_INTERVAL).max(GRACE).min(timeout))
}

/// The body so far. Bytes are admitted before they are stored.
struct BodyBytes {
    bytes: BytesMut,
    admission: BytesInFlight,
    limit: usize,
}

impl Keep for BodyBytes {
    fn keep(&mut self, data: &[u8]) -> ApiResult<()> {
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
    fn a_body_has_a_deadline_and_after_a_while_a_least_rate() {
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
            let found = next_look(seconds(elapsed), count, seconds(timeout));
            assert_eq!(found, next.map(seconds), "{count} bytes after {elapsed} of {timeout} s");
        }
    }
}
