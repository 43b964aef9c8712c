//! `GET /api/v1/tail`: readings as they are acked, as server-sent events, for as long as the client listens. The one answer that is not built
//! whole before its status: it has no end. A task per client chooses its readings; what the client has not taken yet is bounded, and what does not
//! fit is counted and told. Whether the caller may still read is checked every second.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Uri, header};
use axum::response::{IntoResponse, Response};
use hyper::body::Frame;
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout_at};

use super::auth;
use super::errors::{ApiError, Dialect};
use super::json::{self, Times};
use super::parameters::{By, Pairs, Parameters};
use super::params;
use super::{App, Health};
use crate::access::{Caller, Presented};
use crate::clock::now_seconds;
use crate::edge::Peer;
use crate::ingest::tail::{Heard, Listener, TailPlace, TailReading, TailRecord};
use crate::query::selector::{Chooser, Selector};
use crate::reading::Sensor;

/// How often the caller's rights are checked, and whether a slow client has room again.
const CHECK: Duration = Duration::from_secs(1);
/// Silence after which a comment is sent, so that neither end, nor a proxy between, takes the connection for dead.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// Events are sent together up to this size.
const PIECE: usize = 4 << 10;
/// How long a client that does not take what it was sent is waited for before readings count as missed. A write may be larger than a client's share of
/// memory: who takes each piece at once gets all of it.
const PATIENCE: Duration = Duration::from_millis(500);
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
    State(app): State<Arc<App>>,
    Extension(by): By,
    Extension(peer): Extension<Option<Arc<Peer>>>,
    (uri, headers): (Uri, HeaderMap),
    query: Pairs,
) -> Response {
    let secret = auth::token(&headers, &uri).and_then(|text| Some(Presented::parse(&text)?.id.to_owned()));
    match begin(app, Session { by, secret, peer }, &headers, query).await {
        Ok(response) => response,
        Err(error) => error.respond(Dialect::Native),
    }
}

async fn begin(app: Arc<App>, session: Session, headers: &HeaderMap, query: Pairs) -> Result<Response, ApiError> {
    let parameters = Parameters::of(&app, query, params::TAIL, session.by.clone())?;
    let database = parameters.database()?;
    if let Some(key) = parameters.tag_keys().find(|key| key.starts_with("meta.")) {
        let text = format!("parameter tag.{key}: acked readings are chosen by measurement and tags, not by metadata");
        return Err(ApiError::Bad(text));
    }
    let (times, fields, budget) = (parameters.times()?, parameters.names("fields"), parameters.budget(&app));
    let selector = parameters.selector_or_all(&app, &budget).await?.selector;
    // Compiled here, so that a pattern that is too large is an error; what it takes counts as the query's memory until the end.
    drop(selector.compile(&budget)?);
    let after = match headers.get(&LAST_EVENT_ID).map(HeaderValue::to_str) {
        None | Some(Ok("")) => None,
        // An unknown id is one that nothing is known of any more.
        Some(id) => Some(id.ok().and_then(TailPlace::parse).unwrap_or(TailPlace { sequence: 0, number: 0 })),
    };
    let listener = app.ingest.tail().listen(after).map_err(|full| ApiError::Busy(full.to_string()))?;
    let (outbox, body) = outbox(app.options.tail_bytes);
    let chosen = Chosen { database, selector, fields, times, after };
    let stream = Stream { health: app.health.clone(), app, session, listener, outbox };
    tokio::spawn(async move {
        // Cannot fail: it was compiled before, and the budget has the room.
        let Ok(chooser) = chosen.selector.compile(&budget) else { return };
        budget.answered();
        stream.run(&chosen, &chooser).await;
    });
    let mut response = ([(header::CONTENT_TYPE, "text/event-stream")], Body::new(body)).into_response();
    response.headers_mut().insert(&BUFFERING, HeaderValue::from_static("no"));
    response.extensions_mut().insert(Endless);
    Ok(response)
}

/// Who listens, and by what it was let in.
struct Session {
    by: Caller,
    /// The public id of its token's secret.
    secret: Option<String>,
    peer: Option<Arc<Peer>>,
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
    app: Arc<App>,
    health: watch::Receiver<Health>,
    session: Session,
    listener: Listener,
    outbox: Outbox,
}

impl Stream {
    /// Sends until the client leaves, may read no longer, or the service stops.
    async fn run(mut self, chosen: &Chosen, chooser: &Chooser<'_>) {
        self.outbox.send(format!("{RETRY}: acked readings of the database {}\n\n", one_line(&chosen.database)), 0);
        let mut check = interval(CHECK);
        check.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let reason = loop {
            tokio::select! {
                () = self.outbox.sender.closed() => return,
                () = stopping(&mut self.health) => break "the service is stopping".to_owned(),
                _ = check.tick() => match self.end(&chosen.database) {
                    Some(reason) => break reason,
                    None => self.outbox.keep_alive(),
                },
                heard = self.listener.next() => match heard {
                    Heard::Record(sequence, record) => self.tell(sequence, &record, chosen, chooser).await,
                    Heard::Missed => self.outbox.miss(None),
                },
            }
        };
        self.outbox.send(event("end", &json!({ "reason": reason })), 0);
    }

    /// Why the stream must end, if it must.
    fn end(&self, database: &str) -> Option<String> {
        let (Session { by, secret, peer }, now) = (&self.session, now_seconds());
        if let Some(Err(stale)) = peer.as_ref().map(|peer| peer.judge(now)) {
            return Some(stale.to_string());
        }
        match self.app.access.again(by, secret.as_deref(), now) {
            Err(denied) => Some(ApiError::Denied(denied).message()),
            Ok(by_now) if !by_now.may_read(database) || by_now.pins() != by.pins() => {
                Some("the token's rights have changed: connect again".to_owned())
            }
            Ok(_) => None,
        }
    }

    /// Sends what is chosen of a record.
    async fn tell(&mut self, sequence: u64, record: &TailRecord, chosen: &Chosen, chooser: &Chooser<'_>) {
        if *record.database != *chosen.database {
            return;
        }
        if record.is_cut {
            self.outbox.miss(None);
            return;
        }
        let settings = self.app.query.settings();
        let relabels = settings.relabels(&record.database);
        let known = chosen.after.filter(|after| after.sequence == sequence).map(|after| after.number);
        let (mut piece, mut count) = (String::new(), 0);
        for reading in record.readings() {
            let is_new = known.is_none_or(|known| reading.number > known);
            let Some(stored) = record.sensors.get(reading.sensor).filter(|_| is_new) else { continue };
            // Shown, chosen and judged by its present name; the one it is stored under chooses it, too.
            let renamed = relabels.and_then(|relabels| relabels.name_at(stored, reading.time));
            let others = if renamed.is_some() { std::slice::from_ref(stored) } else { &[] };
            let sensor = renamed.as_ref().unwrap_or(stored);
            if !chooser.takes(sensor, others, None) {
                continue;
            }
            let place = TailPlace { sequence, number: reading.number };
            count += u64::from(write_reading(&mut piece, (place, sensor), &reading, chosen));
            if piece.len() >= PIECE {
                self.outbox.room(piece.len()).await;
                self.outbox.send(std::mem::take(&mut piece), std::mem::take(&mut count));
                tokio::task::coop::consume_budget().await;
            }
        }
        if !piece.is_empty() {
            self.outbox.room(piece.len()).await;
            self.outbox.send(piece, count);
        }
    }
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
    for (name, value) in reading.fields() {
        if fields.is_empty() || fields.iter().any(|field| field == name) {
            is_empty = false;
            out.push(',');
            json::string(out, &json::field_name(name, |name| name == "ts"));
            out.push(':');
            json::value(out, value);
        }
    }
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
    /// Bytes that the connection has not taken yet.
    waiting: Arc<AtomicUsize>,
    /// Told when the connection takes some.
    taken: Arc<Notify>,
    /// Most of them.
    most: usize,
    sent: Instant,
    /// Readings that had no room; `None` if nobody knows how many.
    missed: Option<u64>,
}

fn outbox(most: usize) -> (Outbox, TailBody) {
    // Bounded by `most`.
    let (sender, pieces) = mpsc::unbounded_channel();
    let (waiting, taken) = (Arc::<AtomicUsize>::default(), Arc::<Notify>::default());
    let body = TailBody { pieces, waiting: waiting.clone(), taken: taken.clone() };
    (Outbox { sender, waiting, taken, most, sent: Instant::now(), missed: Some(0) }, body)
}

impl Outbox {
    /// Waits until so many bytes fit, for at most [`PATIENCE`]. A client that has missed something is not waited for until it has been told.
    async fn room(&mut self, bytes: usize) {
        self.confess();
        let until = Instant::now() + PATIENCE;
        let may_fit = self.missed == Some(0) && bytes <= self.most;
        while may_fit && !self.sender.is_closed() && self.waiting.load(Ordering::Relaxed) + bytes > self.most {
            if timeout_at(until, self.taken.notified()).await.is_err() {
                return;
            }
        }
    }

    /// Sends a piece with so many readings, or counts them as missed.
    fn send(&mut self, piece: String, readings: u64) {
        self.confess();
        if self.missed != Some(0) || !self.put(piece) {
            self.missed = self.missed.map(|missed| missed + readings);
        }
    }

    /// Notes that readings are missing; `None` if nobody knows how many.
    fn miss(&mut self, readings: Option<u64>) {
        self.missed = self.missed.zip(readings).map(|(missed, more)| missed + more);
        self.confess();
    }

    /// Tells what was missed, once there is room for it and for what follows.
    fn confess(&mut self) {
        let is_half_empty = self.waiting.load(Ordering::Relaxed) <= self.most / 2;
        if self.missed != Some(0) && is_half_empty && self.put(event("missed", &json!({ "readings": self.missed }))) {
            self.missed = Some(0);
        }
    }

    fn keep_alive(&mut self) {
        self.confess();
        if self.sent.elapsed() >= KEEP_ALIVE {
            self.put(":\n\n".to_owned());
        }
    }

    /// False if it does not fit.
    fn put(&mut self, piece: String) -> bool {
        let bytes = piece.len();
        if self.waiting.load(Ordering::Relaxed) + bytes > self.most {
            return false;
        }
        self.waiting.fetch_add(bytes, Ordering::Relaxed);
        self.sent = Instant::now();
        self.sender.send(piece.into()).is_ok()
    }
}

/// The body: it ends when the stream does.
struct TailBody {
    pieces: mpsc::UnboundedReceiver<Bytes>,
    waiting: Arc<AtomicUsize>,
    taken: Arc<Notify>,
}

impl http_body::Body for TailBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        this.pieces.poll_recv(cx).map(|piece| {
            piece.map(|piece| {
                this.waiting.fetch_sub(piece.len(), Ordering::Relaxed);
                this.taken.notify_one();
                Ok(Frame::data(piece))
            })
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    /// All that is waiting, as text.
    fn taken(body: &mut TailBody) -> String {
        let mut all = String::new();
        while let Ok(piece) = body.pieces.try_recv() {
            body.waiting.fetch_sub(piece.len(), Ordering::Relaxed);
            body.taken.notify_one();
            all.push_str(std::str::from_utf8(&piece).unwrap());
        }
        all
    }

    #[test]
    fn what_a_slow_client_missed_is_told_before_anything_later() {
        let (mut outbox, mut body) = outbox(100);
        outbox.send("a".repeat(60), 1);
        outbox.send("b".repeat(60), 3);
        outbox.send("c".to_owned(), 2);
        assert_eq!(taken(&mut body), "a".repeat(60), "what comes later may not overtake what was missed");
        outbox.send("d".to_owned(), 1);
        assert_eq!(taken(&mut body), "event: missed\ndata: {\"readings\":5}\n\nd");
        outbox.miss(None);
        outbox.send("e".to_owned(), 1);
        assert_eq!(taken(&mut body), "event: missed\ndata: {\"readings\":null}\n\ne");
        assert_eq!(outbox.waiting.load(Ordering::Relaxed), 0);
    }

    /// A write larger than a client's share of memory was missed in part by every client, also by those that took each piece at once.
    #[tokio::test]
    async fn a_client_that_takes_is_waited_for_and_one_that_does_not_is_waited_for_once() {
        let (mut outbox, mut body) = outbox(100);
        outbox.send("a".repeat(60), 1);
        assert!(outbox.room(60).now_or_never().is_none(), "it waits");
        assert_eq!(taken(&mut body), "a".repeat(60));
        assert!(outbox.room(60).now_or_never().is_some(), "there is room");
        outbox.send("b".repeat(60), 1);
        // Nobody takes it.
        outbox.room(60).await;
        outbox.send("c".repeat(60), 2);
        assert!(outbox.room(60).now_or_never().is_some(), "not again before it was told");
        outbox.send("d".to_owned(), 1);
        assert_eq!(taken(&mut body), "b".repeat(60));
        assert!(outbox.room(1000).now_or_never().is_some(), "what never fits is not waited for");
        outbox.send("e".to_owned(), 1);
        assert_eq!(taken(&mut body), "event: missed\ndata: {\"readings\":3}\n\ne");
    }
}
