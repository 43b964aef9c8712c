//! `GET /api/v1/tail`: readings as they are acked, as server-sent events, for as long as the client listens. It is not built whole
//! before its status: it has no end. A task per client chooses its readings; what the client has not taken yet is bounded, and what does not
//! fit waits in the ring. What the ring has passed meanwhile is counted and told. Whether the caller may still read is checked every second.

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

use crate::access::{Caller, Presented};
use crate::bucket::settings::named_in_full;
use crate::clock::now_seconds;
use crate::edge::Peer;
use crate::http::errors::{ApiError, ApiResult};
use crate::http::parameters::Parameters;
use crate::http::render::json::{self, Times};
use crate::http::server::auth;
use crate::http::{App, Health};
use crate::ingest::tail::{Heard, Listener, TailPlace, TailReading, TailRecord};
use crate::query::selector::{Chooser, Selector};
use crate::reading::Sensor;

/// How often the caller's rights are checked, and whether what was missed can be told or a comment is due.
const CHECK: Duration = Duration::from_secs(1);
/// Silence after which a comment is sent, so that neither end, nor a proxy between, takes the connection for dead.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// Events are sent together up to this size.
const PIECE: usize = 4 << 10;
/// How long clients wait before they connect again, in milliseconds.
const RETRY: &str = "retry: 2000\n";

static LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// Asks nginx not to collect the events.
static BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Marks an answer that goes on until the client leaves: connections that carry one are not idle, and have no deadline to send it.
#[derive(Debug, Clone, Copy)]
pub struct Endless;

/// `GET /api/v1/tail`.
pub async fn tail(
    Extension(peer): Extension<Arc<Peer>>,
    uri: Uri,
    headers: HeaderMap,
    parameters: Parameters,
) -> ApiResult<Response> {
    let app = parameters.app.clone();
    let secret = auth::token(&headers, &uri).and_then(|text| Some(Presented::parse(&text)?.id.to_owned()));
    let database = parameters.database()?;
    if let Some(key) = parameters.tag_keys().find(|key| key.starts_with("meta.")) {
        let text = format!("parameter tag.{key}: acked readings are chosen by measurement and tags, not by metadata");
        return Err(ApiError::Bad(text));
    }
    let (times, fields, budget) = (parameters.times()?, parameters.names("fields"), parameters.budget());
    let selector = parameters.selector_or_all(&budget).await?.selector;
    // Compiled here, so that a pattern that is too large is an error; what it takes counts as the query's memory until the end.
    drop(selector.compile(&budget)?);
    let after = match headers.get(&LAST_EVENT_ID).map(HeaderValue::to_str) {
        None | Some(Ok("")) => None,
        // An unknown id is one that nothing is known of any more.
        Some(id) => Some(id.ok().and_then(TailPlace::parse).unwrap_or(TailPlace { sequence: 0, number: 0 })),
    };
    let listener = app.ingest.submitter.tail.listen(after).map_err(|full| ApiError::Busy(full.to_string()))?;
    let bounds = &app.settings.tail;
    let (outbox, mut pieces) = outbox(bounds.bytes / 2 / bounds.clients.max(1));
    let room = outbox.room.clone();
    // Ends when the stream does.
    let body = futures_util::stream::poll_fn(move |context| {
        let taken = |piece: &Bytes| room.take(piece.len());
        pieces.poll_recv(context).map(|piece| piece.inspect(taken).map(Ok::<_, Infallible>))
    });
    let chosen = Chosen { database: database.clone(), selector, fields, times, after };
    let (by, health) = (parameters.sender.by.clone(), app.health.clone());
    let terms = Terms { app, health, by, secret, peer, database, check: every(CHECK) };
    let stream = Stream { terms, listener, outbox };
    tokio::spawn(async move {
        // Cannot fail: it was compiled before, and the budget has the room.
        let Ok(chooser) = chosen.selector.compile(&budget) else { return };
        budget.answered();
        stream.run(&chosen, &chooser).await;
    });
    let mut response = ([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(body)).into_response();
    response.headers_mut().insert(&BUFFERING, HeaderValue::from_static("no"));
    response.extensions_mut().insert(Endless);
    Ok(response)
}

/// What it listens to.
struct Chosen {
    database: String,
    selector: Selector,
    /// Empty for all.
    fields: Vec<String>,
    times: Times,
    /// The last reading that the client has.
    after: Option<TailPlace>,
}

struct Stream {
    terms: Terms,
    listener: Listener,
    outbox: Outbox,
}

/// Until when a stream goes on.
struct Terms {
    app: Arc<App>,
    health: watch::Receiver<Health>,
    by: Caller,
    /// The public id of the secret of the caller's token.
    secret: Option<String>,
    peer: Arc<Peer>,
    database: String,
    check: Interval,
}

/// Whether a stream goes on, or why it ends; `None` if the client has left.
type GoesOn = ControlFlow<Option<String>>;

impl Stream {
    /// Sends until the client leaves, may read no longer, or the service stops.
    async fn run(mut self, chosen: &Chosen, chooser: &Chooser<'_>) {
        self.outbox.offer(format!("{RETRY}: acked readings of the database {}\n\n", one_line(&chosen.database)), 0);
        let mut alive = every(CHECK);
        let reason = loop {
            tokio::select! {
                reason = self.terms.over(&self.outbox.sender) => break reason,
                _ = alive.tick() => self.outbox.keep_alive(),
                heard = self.listener.next() => match heard {
                    Heard::Record(sequence, record) => {
                        if let ControlFlow::Break(reason) = self.tell(sequence, &record, chosen, chooser).await {
                            break reason;
                        }
                    }
                    Heard::Missed => self.outbox.miss(None),
                },
            }
        };
        if let Some(reason) = reason {
            self.outbox.end(&reason);
        }
    }

    /// Sends what is chosen of a record.
    async fn tell(&mut self, sequence: u64, record: &TailRecord, chosen: &Chosen, chooser: &Chooser<'_>) -> GoesOn {
        if *record.database != *chosen.database {
            return ControlFlow::Continue(());
        }
        if record.is_cut {
            self.outbox.miss(None);
            return ControlFlow::Continue(());
        }
        let mut settings = self.terms.app.query.settings();
        let known = chosen.after.filter(|after| after.sequence == sequence).map(|after| after.number);
        let (mut piece, mut count, mut names) = (String::new(), 0, HashMap::new());
        for reading in record.readings() {
            if known.is_some_and(|known| reading.number <= known) {
                continue;
            }
            let stored = &reading.known.sensor;
            let renames = settings.renames(&record.database);
            let sensor = names.entry(reading.known.id).or_insert_with(|| {
                renames.and_then(|renames| renames.shown(stored)).map_or_else(|| stored.clone(), Arc::new)
            });
            if !chooser.selects(sensor, None) || !self.terms.may_show(sensor) {
                continue;
            }
            let place = TailPlace { sequence, number: reading.number };
            count += u64::from(write_reading(&mut piece, (place, sensor), &reading, chosen));
            if piece.len() >= PIECE {
                self.deliver(std::mem::take(&mut piece), std::mem::take(&mut count)).await?;
                tokio::task::coop::consume_budget().await;
                // Sensors may have got other names meanwhile.
                settings = self.terms.app.query.settings();
                names.clear();
            }
        }
        if piece.is_empty() { ControlFlow::Continue(()) } else { self.deliver(piece, count).await }
    }

    /// Sends a piece with so many readings of the record that was heard last, as soon as there is room for it; counts them as missed once the
    /// ring has passed that record.
    async fn deliver(&mut self, piece: String, readings: u64) -> GoesOn {
        let mut unsent = self.outbox.offer(piece, readings);
        while let Some(piece) = unsent {
            tokio::select! {
                biased;
                reason = self.terms.over(&self.outbox.sender) => return ControlFlow::Break(reason),
                () = self.outbox.room.taken.notified() => unsent = self.outbox.offer(piece, readings),
                () = self.listener.passed() => {
                    self.outbox.miss(Some(readings));
                    unsent = None;
                }
            }
        }
        ControlFlow::Continue(())
    }
}

impl Terms {
    /// Resolves when the stream must end, with the reason; `None` once the client has left. May be cancelled.
    async fn over(&mut self, sender: &mpsc::UnboundedSender<Bytes>) -> Option<String> {
        loop {
            tokio::select! {
                () = sender.closed() => return None,
                () = stopping(&mut self.health) => return Some("the service is stopping".to_owned()),
                _ = self.check.tick() => {
                    if let Some(reason) = self.end() {
                        return Some(reason);
                    }
                }
            }
        }
    }

    /// Why the stream must end, if it must.
    fn end(&self) -> Option<String> {
        let Self { by, secret, peer, .. } = self;
        let now = now_seconds();
        if let Err(stale) = peer.judge(now) {
            return Some(stale.to_string());
        }
        match self.app.access.again(by, secret.as_deref(), peer.identities(), now) {
            Err(denied) => Some(ApiError::Denied(denied).to_string()),
            Ok(by_now) if !by_now.may_read(&named_in_full(&self.database)) || by_now.pins() != by.pins() => {
                Some("the token's rights have changed: connect again".to_owned())
            }
            Ok(_) => None,
        }
    }

    /// Whether the caller may read what is shown as this sensor: a sensor that it asked for by key may have got another name since.
    fn may_show(&self, sensor: &Sensor) -> bool {
        self.by.pins().iter().all(|pin| pin.matches(sensor))
    }
}

/// Ticks at once, and then each `period`.
fn every(period: Duration) -> Interval {
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// Resolves when the service stops.
async fn stopping(health: &mut watch::Receiver<Health>) {
    let _ = health.wait_for(|health| *health == Health::Stopping).await;
}

/// Appends a reading's event; false if it has none of the chosen fields.
fn write_reading(
    out: &mut String,
    (place, sensor): (TailPlace, &Sensor),
    reading: &TailReading<'_>,
    Chosen { fields, times, .. }: &Chosen,
) -> bool {
    let start = out.len();
    out.push_str("id: ");
    out.push_str(&place.to_string());
    out.push_str("\ndata: ");
    json::head(out, "sensor", &sensor.key, sensor.tags.iter().map(|(key, value)| (&**key, &**value)));
    out.push_str(",\"reading\":{\"ts\":");
    json::time(out, reading.time, *times);
    let mut is_empty = true;
    reading.for_each_field(|name, value| {
        if fields.is_empty() || fields.iter().any(|field| field == name) {
            is_empty = false;
            out.push(',');
            json::string(out, &json::field_name(name, |name| name == "ts"));
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

/// A name in a comment, which ends with its line.
fn one_line(name: &str) -> String {
    name.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

/// What is on its way to a client.
struct Outbox {
    sender: mpsc::UnboundedSender<Bytes>,
    room: Arc<Room>,
    /// Most bytes that wait, unless a single piece is larger (`tail.bytes`, `tail.clients`).
    most: usize,
    sent: Instant,
    /// Readings that the client will not get; `None` if nobody knows how many.
    missed: Option<u64>,
}

/// What the connection has not taken yet.
#[derive(Default)]
struct Room {
    /// Bytes.
    waiting: AtomicUsize,
    /// Tells the stream each time that the connection takes a piece.
    taken: Notify,
}

impl Room {
    fn take(&self, bytes: usize) {
        self.waiting.fetch_sub(bytes, Ordering::Relaxed);
        self.taken.notify_one();
    }
}

fn outbox(most: usize) -> (Outbox, mpsc::UnboundedReceiver<Bytes>) {
    // Bounded by `most`.
    let (sender, pieces) = mpsc::unbounded_channel();
    let room = Arc::<Room>::default();
    (Outbox { sender, room, most, sent: Instant::now(), missed: Some(0) }, pieces)
}

impl Outbox {
    /// Sends a piece with so many readings; returns it if it has to wait for room. While it is not told yet what was missed, the readings are
    /// counted as missed, too: nothing may overtake that.
    fn offer(&mut self, piece: String, readings: u64) -> Option<String> {
        self.confess();
        if self.missed == Some(0) {
            return self.put(piece).err();
        }
        self.missed = self.missed.map(|missed| missed + readings);
        None
    }

    /// Notes that readings are missing; `None` if nobody knows how many.
    fn miss(&mut self, readings: Option<u64>) {
        self.missed = self.missed.zip(readings).map(|(missed, more)| missed + more);
        self.confess();
    }

    /// Tells what was missed, once there is room for it and for what follows.
    fn confess(&mut self) {
        let is_half_empty = self.room.waiting.load(Ordering::Relaxed) <= self.most / 2;
        if self.missed != Some(0) && is_half_empty && self.put(self.confession()).is_ok() {
            self.missed = Some(0);
        }
    }

    fn confession(&self) -> String {
        event("missed", &json!({ "readings": self.missed }))
    }

    fn keep_alive(&mut self) {
        self.confess();
        if self.sent.elapsed() >= KEEP_ALIVE {
            // Without room there is enough to take.
            let _ = self.put(":\n\n".to_owned());
        }
    }

    /// Says why the stream ends, and what was missed before: the last piece, for which there is always room.
    fn end(self, reason: &str) {
        let mut last = if self.missed == Some(0) { String::new() } else { self.confession() };
        last.push_str(&event("end", &json!({ "reason": reason })));
        self.room.waiting.fetch_add(last.len(), Ordering::Relaxed);
        // The client may have left.
        let _ = self.sender.send(last.into());
    }

    /// Sends a piece; gives it back if it does not fit. One of any size fits where nothing waits.
    fn put(&mut self, piece: String) -> Result<(), String> {
        let (bytes, waiting) = (piece.len(), self.room.waiting.load(Ordering::Relaxed));
        if waiting > 0 && waiting + bytes > self.most {
            return Err(piece);
        }
        self.room.waiting.fetch_add(bytes, Ordering::Relaxed);
        self.sent = Instant::now();
        // If the client has left, the stream ends.
        let _ = self.sender.send(piece.into());
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// All that is waiting, as text.
    fn taken(room: &Room, pieces: &mut mpsc::UnboundedReceiver<Bytes>) -> String {
        let mut all = String::new();
        while let Ok(piece) = pieces.try_recv() {
            room.take(piece.len());
            all.push_str(std::str::from_utf8(&piece).unwrap());
        }
        all
    }

    #[test]
    fn what_a_slow_client_missed_is_told_before_anything_later() {
        let (mut outbox, mut body) = outbox(100);
        let room = outbox.room.clone();
        assert_eq!(outbox.offer("a".repeat(60), 1), None);
        assert_eq!(outbox.offer("b".repeat(60), 3), Some("b".repeat(60)), "it waits for room");
        outbox.miss(Some(3));
        assert_eq!(outbox.offer("c".to_owned(), 2), None);
        assert_eq!(taken(&room, &mut body), "a".repeat(60), "what comes later may not overtake what was missed");
        assert_eq!(outbox.offer("d".to_owned(), 1), None);
        assert_eq!(taken(&room, &mut body), "event: missed\ndata: {\"readings\":5}\n\nd");
        outbox.miss(None);
        assert_eq!(outbox.offer("e".to_owned(), 1), None);
        assert_eq!(taken(&room, &mut body), "event: missed\ndata: {\"readings\":null}\n\ne");
        assert_eq!(outbox.room.waiting.load(Ordering::Relaxed), 0);
    }

    /// A reading larger than a client's share never arrived, and the reason of the end did not where the client was slow.
    #[test]
    fn a_piece_of_any_size_goes_where_nothing_waits_and_the_last_one_always() {
        let (mut outbox, mut body) = outbox(100);
        let room = outbox.room.clone();
        assert_eq!(outbox.offer("a".repeat(600), 1), None);
        assert_eq!(outbox.offer("b".to_owned(), 1), Some("b".to_owned()), "it waits for room");
        assert_eq!(taken(&room, &mut body), "a".repeat(600));
        assert_eq!(outbox.offer("b".repeat(600), 1), None);
        outbox.miss(Some(2));
        outbox.end("x");
        let end = "event: missed\ndata: {\"readings\":2}\n\nevent: end\ndata: {\"reason\":\"x\"}\n\n";
        assert_eq!(taken(&room, &mut body), "b".repeat(600) + end);
    }
}
