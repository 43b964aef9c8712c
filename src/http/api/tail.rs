//! `GET /api/v1/tail`: a stream of readings as they are acked, as server-sent events.
//!
//! One task per client selects the readings. Bytes that the client has not received yet are bounded; further readings
//! wait in the ring of the tail. Readings that the ring has dropped meanwhile are counted and reported to the client.
//! The caller's rights are checked every second.

use std::collections::HashMap;
use std::convert::Infallible;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Extension;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Uri, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

use crate::access::{Caller, Effect, PresentedToken};
use crate::bucket::settings::qualified_name;
use crate::clock::now_seconds;
use crate::edge::Peer;
use crate::http::errors::{ApiError, ApiResult};
use crate::http::parameters::Parameters;
use crate::http::render::json::{self, Times};
use crate::http::render::text::Endless;
use crate::http::server::auth;
use crate::http::{App, Health};
use crate::ingest::tail::{Listener, TailItem, TailPosition, TailReading, TailRecord};
use crate::query::selector::{Chooser, Selector};
use crate::reading::Sensor;
use crate::wire::names::field_name;

/// Interval of the checks of the caller's rights, of pending notes about missed readings, and of keep-alive comments.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Silence after which a comment is sent, so that the client and proxies do not consider the connection dead.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// Events are sent in pieces of at least this many bytes.
const PIECE_BYTES: usize = 4 << 10;
/// Tells clients to wait 2 s before they reconnect.
const RETRY: &str = "retry: 2000\n";

static LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// Tells nginx not to buffer the events.
static BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// `GET /api/v1/tail`.
pub async fn tail(
    Extension(peer): Extension<Arc<Peer>>,
    uri: Uri,
    headers: HeaderMap,
    parameters: Parameters,
) -> ApiResult<Response> {
    let app = parameters.app.clone();
    let secret = auth::token(&headers, &uri).and_then(|text| Some(PresentedToken::parse(&text)?.id.to_owned()));
    let database = parameters.database()?;
    if let Some(key) = parameters.tag_keys().find(|key| key.starts_with("meta.")) {
        let text = format!("parameter tag.{key}: the tail supports filters by measurement and tags, not by metadata");
        return Err(ApiError::Bad(text));
    }
    let times = parameters.times()?;
    let fields = parameters.fields()?;
    let budget = parameters.budget();
    let selector = parameters.selector_or_all(&budget).await?.selector;
    // Compile here to report a pattern that is too large. The compiled form counts as memory of the query until the
    // end.
    drop(selector.compile(&budget)?);
    let after = match headers.get(&LAST_EVENT_ID).map(HeaderValue::to_str) {
        None | Some(Ok("")) => None,
        // Treat an invalid id as one that is too old.
        Some(id) => Some(id.ok().and_then(TailPosition::parse).unwrap_or(TailPosition { sequence: 0, number: 0 })),
    };
    let token = parameters.requester.caller.token().map(|token| &*token.name);
    let listener = app.ingest.submitter.tail.listen(token, after).map_err(|full| ApiError::Busy(full.to_string()))?;
    let bounds = &app.settings.tail;
    let (outbox, mut pieces) = Outbox::new(bounds.bytes / 2 / bounds.clients.max(1));
    let waiting = outbox.waiting.clone();
    // Ends when the sender is dropped.
    let body = futures_util::stream::poll_fn(move |context| {
        let release = |piece: &Bytes| waiting.release(piece.len());
        pieces.poll_recv(context).map(|piece| piece.inspect(release).map(Ok::<_, Infallible>))
    });
    let filter = TailFilter { database: database.clone(), selector, fields, times, after };
    let caller = parameters.requester.caller.clone();
    let health = app.health.clone();
    let rights = RightsCheck { app, health, caller, secret, peer, database, interval: every(CHECK_INTERVAL) };
    let stream = Stream { rights, listener, outbox };
    tokio::spawn(async move {
        // This cannot fail, because it was compiled before within the same budget.
        let Ok(chooser) = filter.selector.compile(&budget) else { return };
        budget.finish();
        stream.run(&filter, &chooser).await;
    });
    let mut response = ([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(body)).into_response();
    response.headers_mut().insert(&BUFFERING, HeaderValue::from_static("no"));
    response.extensions_mut().insert(Endless);
    Ok(response)
}

/// The readings that a client asked for, and their format.
struct TailFilter {
    database: String,
    selector: Selector,
    /// Empty for all.
    fields: Vec<String>,
    times: Times,
    /// The last reading that the client has.
    after: Option<TailPosition>,
}

/// The stream to one client.
struct Stream {
    rights: RightsCheck,
    listener: Listener,
    outbox: Outbox,
}

/// Checks if a stream may continue.
struct RightsCheck {
    app: Arc<App>,
    health: watch::Receiver<Health>,
    caller: Caller,
    /// The public id of the secret in the caller's token.
    secret: Option<String>,
    peer: Arc<Peer>,
    database: String,
    interval: Interval,
}

/// Continues the stream, or ends it with a reason; without one if the client has disconnected.
type StreamFlow = ControlFlow<Option<String>>;

impl Stream {
    /// Sends readings until the client disconnects, loses its rights, or the service stops.
    async fn run(mut self, filter: &TailFilter, chooser: &Chooser<'_>) {
        self.outbox.try_send(format!("{RETRY}: acked readings of the database {}\n\n", one_line(&filter.database)), 0);
        let mut keep_alive = every(CHECK_INTERVAL);
        let reason = loop {
            tokio::select! {
                reason = self.rights.stream_end(&self.outbox.sender) => break reason,
                _ = keep_alive.tick() => self.outbox.keep_alive(),
                heard = self.listener.next() => match heard {
                    TailItem::Record(sequence, record) => {
                        if let ControlFlow::Break(reason) = self.send_record(sequence, &record, filter, chooser).await {
                            break reason;
                        }
                    }
                    TailItem::Missed => self.outbox.add_missed(None),
                },
            }
        };
        if let Some(reason) = reason {
            self.outbox.end(&reason);
        }
    }

    /// Sends the matching readings of a record.
    async fn send_record(
        &mut self,
        sequence: u64,
        record: &TailRecord,
        filter: &TailFilter,
        chooser: &Chooser<'_>,
    ) -> StreamFlow {
        if *record.database != *filter.database {
            return ControlFlow::Continue(());
        }
        if record.is_cut {
            self.outbox.add_missed(None);
            return ControlFlow::Continue(());
        }
        let mut settings = self.rights.app.query.settings();
        let received = filter.after.filter(|after| after.sequence == sequence).map(|after| after.number);
        let mut piece = String::new();
        let mut count = 0;
        let mut names = HashMap::new();
        for reading in record.readings() {
            if received.is_some_and(|received| reading.number <= received) {
                continue;
            }
            let stored = &reading.known.sensor;
            let renames = settings.renames(&record.database);
            let sensor = names.entry(reading.known.id).or_insert_with(|| {
                renames.and_then(|renames| renames.shown_sensor(stored)).map_or_else(|| stored.clone(), Arc::new)
            });
            if !chooser.selects(sensor, None) || !self.rights.can_see(sensor) {
                continue;
            }
            let position = TailPosition { sequence, number: reading.number };
            count += u64::from(write_reading(&mut piece, position, sensor, &reading, filter));
            if piece.len() >= PIECE_BYTES {
                self.deliver(std::mem::take(&mut piece), std::mem::take(&mut count)).await?;
                tokio::task::coop::consume_budget().await;
                // Sensors may have been renamed meanwhile.
                settings = self.rights.app.query.settings();
                names.clear();
            }
        }
        if piece.is_empty() { ControlFlow::Continue(()) } else { self.deliver(piece, count).await }
    }

    /// Sends a piece with `readings` readings of the current record, as soon as there is room. Counts them as missed
    /// once the ring has dropped the record.
    async fn deliver(&mut self, piece: String, readings: u64) -> StreamFlow {
        let mut unsent = self.outbox.try_send(piece, readings);
        while let Some(piece) = unsent {
            tokio::select! {
                biased;
                reason = self.rights.stream_end(&self.outbox.sender) => return ControlFlow::Break(reason),
                () = self.outbox.waiting.released.notified() => unsent = self.outbox.try_send(piece, readings),
                () = self.listener.wait_passed() => {
                    self.outbox.add_missed(Some(readings));
                    unsent = None;
                }
            }
        }
        ControlFlow::Continue(())
    }
}

impl RightsCheck {
    /// Resolves when the stream must end, with the reason; `None` if the client has disconnected. Cancel-safe.
    async fn stream_end(&mut self, sender: &mpsc::UnboundedSender<Bytes>) -> Option<String> {
        loop {
            tokio::select! {
                () = sender.closed() => return None,
                () = service_stop(&mut self.health) => return Some("the service is stopping".to_owned()),
                _ = self.interval.tick() => {
                    if let Some(reason) = self.lost_right() {
                        return Some(reason);
                    }
                }
            }
        }
    }

    /// Returns the reason if the caller may no longer read.
    fn lost_right(&self) -> Option<String> {
        let Self { caller, secret, peer, .. } = self;
        let now = now_seconds();
        if let Err(stale) = peer.check_certificate(now) {
            return Some(stale.to_string());
        }
        match self.app.access.reauthenticate(caller, secret.as_deref(), peer.identities(), now) {
            Err(denied) => Some(ApiError::Denied(denied).to_string()),
            Ok(by_now)
                if !by_now.allows(Effect::Read, Some(&qualified_name(&self.database)))
                    || by_now.pins() != caller.pins() =>
            {
                Some("the token's rights have changed: connect again".to_owned())
            }
            Ok(_) => None,
        }
    }

    /// Returns true if the caller's pins allow the sensor under its shown name, which may have changed since the
    /// request.
    fn can_see(&self, sensor: &Sensor) -> bool {
        self.caller.pins().iter().all(|pin| pin.matches(sensor))
    }
}

/// Makes an interval that ticks at once and then every `period`.
fn every(period: Duration) -> Interval {
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// Resolves when the service stops.
async fn service_stop(health: &mut watch::Receiver<Health>) {
    let _ = health.wait_for(|health| *health == Health::Stopping).await;
}

/// Appends the event of a reading. Returns false if it has none of the requested fields.
fn write_reading(
    out: &mut String,
    position: TailPosition,
    sensor: &Sensor,
    reading: &TailReading<'_>,
    filter: &TailFilter,
) -> bool {
    let TailFilter { fields, times, .. } = filter;
    let start = out.len();
    out.push_str("id: ");
    out.push_str(&position.to_string());
    out.push_str("\ndata: ");
    json::head(out, "sensor", &sensor.key, sensor.tags.iter().map(|(key, value)| (&**key, &**value)));
    out.push_str(",\"reading\":{\"ts\":");
    json::time(out, reading.time, *times);
    let mut is_empty = true;
    reading.for_each_field(|name, value| {
        if fields.is_empty() || fields.iter().any(|field| field == name) {
            is_empty = false;
            out.push(',');
            json::string(out, &field_name(name, |name| name == "ts"));
            out.push(':');
            json::value(out, value);
        }
    });
    out.push_str("}}\n\n");
    if is_empty {
        out.truncate(start);
    }
    !is_empty
}

fn event(name: &str, data: &Value) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}

/// Replaces control characters, because a comment ends with its line.
fn one_line(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// The bounded queue of pieces to a client.
struct Outbox {
    sender: mpsc::UnboundedSender<Bytes>,
    waiting: Arc<WaitingBytes>,
    /// Maximum number of waiting bytes, unless a single piece is larger (`tail.bytes`, `tail.clients`).
    bytes_max: usize,
    last_sent: Instant,
    /// Missed readings that are not reported yet; `None` if their number is unknown.
    missed: Option<u64>,
}

/// The bytes that the connection has not taken yet.
#[derive(Default)]
struct WaitingBytes {
    count: AtomicUsize,
    /// Signals that the connection took a piece.
    released: Notify,
}

impl WaitingBytes {
    fn release(&self, bytes: usize) {
        self.count.fetch_sub(bytes, Ordering::Relaxed);
        self.released.notify_one();
    }
}

impl Outbox {
    fn new(bytes_max: usize) -> (Self, mpsc::UnboundedReceiver<Bytes>) {
        // The channel is bounded by `bytes_max`.
        let (sender, pieces) = mpsc::unbounded_channel();
        let waiting = Arc::<WaitingBytes>::default();
        (Self { sender, waiting, bytes_max, last_sent: Instant::now(), missed: Some(0) }, pieces)
    }

    /// Sends a piece with `readings` readings, or returns it if the buffer is full. While missed readings are not
    /// reported, these count as missed too, because nothing may overtake the report.
    fn try_send(&mut self, piece: String, readings: u64) -> Option<String> {
        self.report_missed();
        if self.missed == Some(0) {
            return self.put(piece).err();
        }
        self.missed = self.missed.map(|missed| missed + readings);
        None
    }

    /// Counts missed readings; `None` if their number is unknown.
    fn add_missed(&mut self, readings: Option<u64>) {
        self.missed = self.missed.zip(readings).map(|(missed, more)| missed + more);
        self.report_missed();
    }

    /// Reports missed readings once the buffer is half empty, so that later readings fit too.
    fn report_missed(&mut self) {
        let is_half_empty = self.waiting.count.load(Ordering::Relaxed) <= self.bytes_max / 2;
        if self.missed != Some(0) && is_half_empty && self.put(self.missed_event()).is_ok() {
            self.missed = Some(0);
        }
    }

    fn missed_event(&self) -> String {
        event("missed", &json!({ "readings": self.missed }))
    }

    fn keep_alive(&mut self) {
        self.report_missed();
        if self.last_sent.elapsed() >= KEEP_ALIVE {
            // A full buffer needs no keep-alive: the client still has data to receive.
            let _ = self.put(":\n\n".to_owned());
        }
    }

    /// Sends the last piece, with the missed readings and the reason of the end, even if the buffer is full.
    fn end(self, reason: &str) {
        let mut last = if self.missed == Some(0) { String::new() } else { self.missed_event() };
        last.push_str(&event("end", &json!({ "reason": reason })));
        self.waiting.count.fetch_add(last.len(), Ordering::Relaxed);
        // The client may have disconnected.
        let _ = self.sender.send(last.into());
    }

    /// Sends a piece, or returns it if the buffer is full. A piece of any size fits into an empty outbox.
    fn put(&mut self, piece: String) -> Result<(), String> {
        let bytes = piece.len();
        let waiting = self.waiting.count.load(Ordering::Relaxed);
        if waiting > 0 && waiting + bytes > self.bytes_max {
            return Err(piece);
        }
        self.waiting.count.fetch_add(bytes, Ordering::Relaxed);
        self.last_sent = Instant::now();
        // If the client has disconnected, the stream ends.
        let _ = self.sender.send(piece.into());
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Receives all waiting pieces.
    fn receive(waiting: &WaitingBytes, pieces: &mut mpsc::UnboundedReceiver<Bytes>) -> String {
        let mut all = String::new();
        while let Ok(piece) = pieces.try_recv() {
            waiting.release(piece.len());
            all.push_str(std::str::from_utf8(&piece).unwrap());
        }
        all
    }

    #[test]
    fn missed_readings_are_reported_before_later_ones() {
        let (mut outbox, mut body) = Outbox::new(100);
        let waiting = outbox.waiting.clone();
        assert_eq!(outbox.try_send("a".repeat(60), 1), None);
        assert_eq!(outbox.try_send("b".repeat(60), 3), Some("b".repeat(60)), "it waits for room");
        outbox.add_missed(Some(3));
        assert_eq!(outbox.try_send("c".to_owned(), 2), None);
        assert_eq!(receive(&waiting, &mut body), "a".repeat(60), "nothing may overtake the report");
        assert_eq!(outbox.try_send("d".to_owned(), 1), None);
        assert_eq!(receive(&waiting, &mut body), "event: missed\ndata: {\"readings\":5}\n\nd");
        outbox.add_missed(None);
        assert_eq!(outbox.try_send("e".to_owned(), 1), None);
        assert_eq!(receive(&waiting, &mut body), "event: missed\ndata: {\"readings\":null}\n\ne");
        assert_eq!(outbox.waiting.count.load(Ordering::Relaxed), 0);
    }

    /// Regression: a reading larger than a client's share never arrived, nor did the reason of the end with a slow
    /// client.
    #[test]
    fn a_large_piece_fits_into_an_empty_outbox_and_the_last_one_always() {
        let (mut outbox, mut body) = Outbox::new(100);
        let waiting = outbox.waiting.clone();
        assert_eq!(outbox.try_send("a".repeat(600), 1), None);
        assert_eq!(outbox.try_send("b".to_owned(), 1), Some("b".to_owned()), "it waits for room");
        assert_eq!(receive(&waiting, &mut body), "a".repeat(600));
        assert_eq!(outbox.try_send("b".repeat(600), 1), None);
        outbox.add_missed(Some(2));
        outbox.end("x");
        let end = "event: missed\ndata: {\"readings\":2}\n\nevent: end\ndata: {\"reason\":\"x\"}\n\n";
        assert_eq!(receive(&waiting, &mut body), "b".repeat(600) + end);
    }
}
