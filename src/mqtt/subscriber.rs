//! One subscriber: connects while this instance owns the session, and acknowledges messages in the order received.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::stream::{FuturesOrdered, StreamExt};
use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout};

use super::connection::{Connection, MqttError};
use super::messages::{Delivery, Outcome, StoreError};
use super::packets::{self, Message, Packet, RECEIVE_MAXIMUM};
use super::{Link, SubscriberState};
use crate::access::{Audit, Event, TokenRegistry};
use crate::config::MqttSettings;
use crate::edge::wait_for_stop;
use crate::faults;
use crate::ingest::{Ingest, Turn};
use crate::telemetry::MqttMetrics;

/// Bytes of messages that are not acknowledged, above which no other one is read.
const WAITING_BYTES_MAX: usize = 256 << 10;
/// The first pause before another attempt to connect, or to store a message. It doubles, up to the maximum.
const CONNECT_PAUSE: Duration = Duration::from_millis(250);
const CONNECT_PAUSE_MAX: Duration = Duration::from_secs(30);
const STORE_PAUSE: Duration = Duration::from_millis(50);
const STORE_PAUSE_MAX: Duration = Duration::from_secs(5);
/// A connection that ends earlier does not reset the pause.
const STABLE: Duration = Duration::from_secs(10);
/// Interval of the checks of the owner and of the keep-alive time.
const TICK: Duration = Duration::from_millis(500);
/// Maximum time in which messages are stored and acknowledged after a stop.
const FINISH_TIMEOUT: Duration = Duration::from_secs(5);

/// A subscriber of `[[mqtt]]`.
pub struct Subscriber {
    pub settings: MqttSettings,
    pub ingest: Arc<Ingest>,
    pub access: Arc<TokenRegistry>,
    pub audit: Arc<Audit>,
    pub state: Arc<SubscriberState>,
    pub metrics: MqttMetrics,
    pub stop: watch::Receiver<bool>,
    /// The turns of the messages, in the order received.
    pub turns: Arc<Mutex<()>>,
}

impl Subscriber {
    /// Subscribes until the service stops.
    pub async fn run(self: Arc<Self>) {
        let client_id = &self.settings.client_id;
        let mut stop = self.stop.clone();
        let mut pause = CONNECT_PAUSE;
        let mut is_outage = false;
        let mut unacknowledged = Vec::new();
        self.metrics.connected.set(0);
        while !*stop.borrow() {
            if !self.is_owner(false) {
                self.set_link(Link::Elsewhere);
                // Another instance acknowledges them, and their identifiers then belong to other messages.
                unacknowledged.clear();
                tokio::select! {
                    () = sleep(TICK) => continue,
                    () = wait_for_stop(&mut stop) => return,
                }
            }
            let began = Instant::now();
            let ended = self.subscribe(&mut unacknowledged, &mut is_outage).await;
            self.metrics.connected.set(0);
            self.metrics.in_flight.set(0);
            let Err(error) = ended else { continue };
            // Log an outage once, however often the broker refuses.
            if !std::mem::replace(&mut is_outage, true) {
                tracing::warn!(client_id, %error, "not connected to the MQTT broker; retrying");
            }
            self.set_link(Link::Away(error.to_string()));
            pause = if began.elapsed() > STABLE { CONNECT_PAUSE } else { pause };
            tokio::select! {
                () = sleep(pause) => {}
                () = wait_for_stop(&mut stop) => {}
            }
            pause = (pause * 2).min(CONNECT_PAUSE_MAX);
        }
    }

    /// Stores messages until this instance stops or loses the session. `unacknowledged` are the messages that the broker
    /// will deliver again.
    async fn subscribe(
        self: &Arc<Self>,
        unacknowledged: &mut Vec<Arc<Delivery>>,
        is_outage: &mut bool,
    ) -> Result<(), MqttError> {
        let mut stop = self.stop.clone();
        let mut connection = tokio::select! {
            opened = Connection::open(&self.settings) => opened?,
            () = wait_for_stop(&mut stop) => return Ok(()),
        };
        if !connection.is_resumed {
            unacknowledged.clear();
        }
        let mut waiting = VecDeque::new();
        let mut in_flight = FuturesOrdered::new();
        let mut retry_at = None;
        let mut pause = STORE_PAUSE;
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut heard = Instant::now();
        let mut pinged = Instant::now();
        loop {
            // Without room nothing is read, and TCP slows the broker down.
            let bytes: usize = waiting.iter().map(|delivery: &Arc<Delivery>| delivery.message.bytes).sum();
            let has_room = waiting.len() < RECEIVE_MAXIMUM.into() && bytes < WAITING_BYTES_MAX;
            if !has_room {
                heard = Instant::now();
            }
            self.metrics.in_flight.set(u32::try_from(waiting.len()).unwrap_or(u32::MAX));
            tokio::select! {
                packet = connection.receive(), if has_room => {
                    heard = Instant::now();
                    match packet? {
                        Packet::Message(message) => {
                            let delivery = known_or_new(unacknowledged, message);
                            waiting.push_back(delivery.clone());
                            if retry_at.is_none() {
                                in_flight.push_back(self.clone().store_in_turn(delivery));
                            }
                        }
                        Packet::Subscribed(codes) => {
                            self.check_topics(&codes)?;
                            self.note_connected(std::mem::take(is_outage));
                        }
                        Packet::Pong => {}
                        Packet::Connected { .. } => return Err(MqttError::Invalid("a second answer to the connection")),
                    }
                }
                Some(stored) = in_flight.next() => {
                    faults::point("mqtt_stored");
                    let mut acks = Vec::new();
                    let mut next = Some(stored);
                    // Acknowledge together what one sync made durable.
                    while let Some(Ok(outcome)) = next {
                        acks.extend(self.finish(&mut waiting, unacknowledged, outcome));
                        next = in_flight.next().now_or_never().flatten();
                    }
                    if let Some(Err(error)) = next {
                        // A later message must not come before this one, so all of them are stored again, in order.
                        in_flight = FuturesOrdered::new();
                        retry_at = Some(Instant::now() + pause);
                        pause = (pause * 2).min(STORE_PAUSE_MAX);
                        self.note_blocked(Some(error));
                    } else {
                        pause = STORE_PAUSE;
                        self.note_blocked(None);
                    }
                    connection.send(&acks).await?;
                }
                () = sleep_until(retry_at.unwrap_or_else(Instant::now)), if retry_at.is_some() => {
                    retry_at = None;
                    in_flight = waiting.iter().map(|delivery| self.clone().store_in_turn(delivery.clone())).collect();
                }
                _ = ticks.tick() => {
                    if !self.is_owner(true) {
                        break;
                    }
                    if heard.elapsed() > connection.keep_alive.mul_f32(1.5) {
                        return Err(MqttError::Timeout);
                    }
                    if pinged.elapsed() > connection.keep_alive / 2 {
                        pinged = Instant::now();
                        connection.send(packets::PING).await?;
                    }
                }
                () = wait_for_stop(&mut stop) => break,
            }
        }
        let finish = async {
            while let Some(Ok(outcome)) = in_flight.next().await {
                let acks: Vec<u8> = self.finish(&mut waiting, unacknowledged, outcome).collect();
                connection.send(&acks).await?;
            }
            connection.send(packets::DISCONNECT).await
        };
        timeout(FINISH_TIMEOUT, finish).await.unwrap_or(Ok(()))
    }

    /// Stores a message after those before it.
    async fn store_in_turn(self: Arc<Self>, delivery: Arc<Delivery>) -> Result<Outcome, StoreError> {
        // The first poll of a message joins the queue, so the order is that of the messages.
        let turn = Turn::new(self.turns.clone().lock_owned().await);
        let stored = self.store(&delivery, &turn).await;
        faults::halt_at("mqtt_unacknowledged").await;
        stored
    }

    /// Counts the first waiting message, and returns its acknowledgement. From now on the broker may use its identifier
    /// for another message.
    fn finish(
        &self,
        waiting: &mut VecDeque<Arc<Delivery>>,
        unacknowledged: &mut Vec<Arc<Delivery>>,
        outcome: Outcome,
    ) -> impl Iterator<Item = u8> {
        let counter = match outcome {
            Outcome::Stored => &self.metrics.stored,
            Outcome::Skipped => &self.metrics.skipped,
            Outcome::Rejected => &self.metrics.rejected,
        };
        counter.increment(1);
        let finished = waiting.pop_front();
        let id = finished.as_ref().and_then(|delivery| delivery.message.id);
        unacknowledged.retain(|delivery| finished.as_ref().is_none_or(|finished| !Arc::ptr_eq(delivery, finished)));
        id.into_iter().flat_map(packets::acknowledge)
    }

    fn is_owner(&self, is_connected: bool) -> bool {
        let MqttSettings { url, client_id, .. } = &self.settings;
        self.ingest.member.owns(&format!("mqtt {}:{} {client_id}", url.host, url.port), is_connected)
    }

    fn check_topics(&self, codes: &[u8]) -> Result<(), MqttError> {
        let refused = self.settings.topics.iter().zip(codes).find(|(_, code)| **code >= 0x80);
        refused.map_or(Ok(()), |(topic, _)| Err(MqttError::Topic(topic.as_str().to_owned())))
    }

    fn note_connected(&self, was_outage: bool) {
        let client_id = &self.settings.client_id;
        if was_outage {
            tracing::info!(client_id, "connected to the MQTT broker again");
        } else {
            tracing::info!(client_id, "connected to the MQTT broker");
        }
        self.metrics.connected.set(1);
        self.set_link(Link::Connected);
    }

    /// Notes whether messages can be stored. Logs a change, and writes a refused token to the audit trail.
    fn note_blocked(&self, error: Option<StoreError>) {
        let client_id = &self.settings.client_id;
        let text = error.as_ref().map(ToString::to_string);
        let before = std::mem::replace(&mut self.state.status.lock().blocked, text.clone());
        if before == text {
            return;
        }
        match (&error, before) {
            (Some(error), None) => {
                tracing::warn!(client_id, %error, "MQTT messages cannot be stored, so they are not acknowledged; retrying");
            }
            (None, Some(_)) => tracing::info!(client_id, "MQTT messages are stored again"),
            _ => {}
        }
        if let Some(reason) = error.and_then(|error| error.denial()) {
            let denied = Event::Denied { reason, address: None, route: "mqtt", token: None };
            self.audit.note_denied(&denied, std::time::Instant::now());
        }
    }

    fn set_link(&self, link: Link) {
        self.state.status.lock().link = link;
    }
}

/// Returns the earlier delivery of a message that comes again, or else a new one, which replaces one with its identifier.
fn known_or_new(unacknowledged: &mut Vec<Arc<Delivery>>, message: Message) -> Arc<Delivery> {
    if message.id.is_none() {
        return Arc::new(Delivery::new(message));
    }
    if let Some(known) = unacknowledged.iter().find(|delivery| delivery.is_repeated_by(&message)) {
        return known.clone();
    }
    unacknowledged.retain(|delivery| delivery.message.id != message.id);
    let delivery = Arc::new(Delivery::new(message));
    unacknowledged.push(delivery.clone());
    // A broker that never delivers again what it should has no claim on memory.
    if unacknowledged.len() > 2 * usize::from(RECEIVE_MAXIMUM) {
        unacknowledged.remove(0);
    }
    delivery
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn message(id: Option<u16>, payload: &'static str, is_again: bool) -> Message {
        let payload = Bytes::from_static(payload.as_bytes());
        Message { topic: Bytes::from_static(b"t"), payload, id, is_retained: false, is_again, bytes: 5 }
    }

    /// Regression: a message was forgotten by a connection that broke before the broker had delivered it again. And a
    /// copy on one connection, which MQTT 3.1.1 allows, was another message.
    #[test]
    fn a_message_is_known_until_its_identifier_is_free() {
        let mut unacknowledged = Vec::new();
        let first = known_or_new(&mut unacknowledged, message(Some(1), "a", false));
        let second = known_or_new(&mut unacknowledged, message(Some(2), "b", false));
        for _ in 0..2 {
            assert!(Arc::ptr_eq(&first, &known_or_new(&mut unacknowledged, message(Some(1), "a", true))));
        }
        let new = [(Some(2), "c", true), (Some(2), "c", false), (None, "b", true)];
        for (id, payload, is_again) in new {
            assert!(!Arc::ptr_eq(&second, &known_or_new(&mut unacknowledged, message(id, payload, is_again))));
        }
        let again = known_or_new(&mut unacknowledged, message(Some(2), "b", true));
        assert!(!Arc::ptr_eq(&second, &again), "its identifier was another message's");
        for id in 3..1000 {
            known_or_new(&mut unacknowledged, message(Some(id), "d", false));
        }
        assert_eq!(unacknowledged.len(), 2 * usize::from(RECEIVE_MAXIMUM));
    }
}
