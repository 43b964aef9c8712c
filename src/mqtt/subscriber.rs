//! One subscriber: connects while this instance owns the session, and acknowledges messages in the order received.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::stream::{FuturesOrdered, StreamExt};
use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use super::connection::{Connection, MqttError};
use super::messages::{Outcome, StoreError};
use super::packets::{self, Message, Packet, RECEIVE_MAXIMUM};
use super::{Link, SubscriberState};
use crate::access::TokenRegistry;
use crate::clock::now_ns;
use crate::config::MqttSettings;
use crate::edge::wait_for_stop;
use crate::faults;
use crate::ingest::{Ingest, Turn};
use crate::telemetry::MqttMetrics;

/// Maximum bytes of messages that are being stored, unless there is only one.
const IN_FLIGHT_BYTES_MAX: usize = 256 << 10;
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
        self.metrics.connected.set(0);
        while !*stop.borrow() {
            if !self.is_owner(false) {
                self.set_link(Link::Elsewhere);
                tokio::select! {
                    () = sleep(TICK) => continue,
                    () = wait_for_stop(&mut stop) => return,
                }
            }
            let began = Instant::now();
            let ended = self.subscribe(&mut is_outage).await;
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

    /// Stores messages until this instance stops or loses the session.
    async fn subscribe(self: &Arc<Self>, is_outage: &mut bool) -> Result<(), MqttError> {
        let mut stop = self.stop.clone();
        let mut connection = tokio::select! {
            opened = Connection::open(&self.settings) => opened?,
            () = wait_for_stop(&mut stop) => return Ok(()),
        };
        let mut in_flight = FuturesOrdered::new();
        let mut in_flight_bytes = 0;
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut heard = Instant::now();
        let mut pinged = Instant::now();
        loop {
            // Without room nothing is read, and TCP slows the broker down.
            let has_room = in_flight.len() < RECEIVE_MAXIMUM.into()
                && (in_flight.is_empty() || in_flight_bytes < IN_FLIGHT_BYTES_MAX);
            if !has_room {
                heard = Instant::now();
            }
            self.metrics.in_flight.set(u32::try_from(in_flight.len()).unwrap_or(u32::MAX));
            tokio::select! {
                packet = connection.receive(), if has_room => {
                    heard = Instant::now();
                    match packet? {
                        Packet::Message(message) => {
                            in_flight_bytes += message.bytes;
                            in_flight.push_back(self.clone().store_with_retries(message));
                        }
                        Packet::Subscribed(codes) => {
                            self.check_topics(&codes)?;
                            self.note_connected(std::mem::take(is_outage));
                        }
                        Packet::Pong => {}
                        Packet::Connected(_) => return Err(MqttError::Invalid("a second answer to the connection")),
                    }
                }
                Some(stored) = in_flight.next() => {
                    faults::point("mqtt_stored");
                    let mut acks = Vec::new();
                    let mut next = Some(stored);
                    // Acknowledge together what one sync made durable.
                    while let Some(Some(message)) = next {
                        in_flight_bytes -= message.bytes;
                        acks.extend(message.id.into_iter().flat_map(packets::acknowledge));
                        next = in_flight.next().now_or_never().flatten();
                    }
                    connection.send(&acks).await?;
                    if matches!(next, Some(None)) {
                        return connection.send(packets::DISCONNECT).await;
                    }
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
            while let Some(Some(message)) = in_flight.next().await {
                let acks: Vec<u8> = message.id.into_iter().flat_map(packets::acknowledge).collect();
                connection.send(&acks).await?;
            }
            connection.send(packets::DISCONNECT).await
        };
        timeout(FINISH_TIMEOUT, finish).await.unwrap_or(Ok(()))
    }

    /// Stores a message however long it takes. `None` once the service stops and the message is not stored.
    async fn store_with_retries(self: Arc<Self>, message: Message) -> Option<Message> {
        let mut stop = self.stop.clone();
        let received = now_ns();
        // The first poll of a message joins the queue, so the order is that of the messages.
        let turn = Turn::new(self.turns.clone().lock_owned().await);
        let mut pause = STORE_PAUSE;
        loop {
            match self.store(&message, received, &turn).await {
                Ok(outcome) => {
                    let counter = match outcome {
                        Outcome::Stored => &self.metrics.stored,
                        Outcome::Skipped => &self.metrics.skipped,
                        Outcome::Rejected => &self.metrics.rejected,
                    };
                    counter.increment(1);
                    self.note_blocked(None);
                    return Some(message);
                }
                Err(error) => self.note_blocked(Some(error)),
            }
            tokio::select! {
                () = sleep(pause) => {}
                () = wait_for_stop(&mut stop) => return None,
            }
            pause = (pause * 2).min(STORE_PAUSE_MAX);
        }
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

    /// Notes whether messages can be stored, and logs a change.
    fn note_blocked(&self, error: Option<StoreError>) {
        let client_id = &self.settings.client_id;
        let mut status = self.state.status.lock();
        match &error {
            Some(error) if status.blocked.is_none() => {
                tracing::warn!(client_id, %error, "MQTT messages cannot be stored, so they are not acknowledged; retrying");
            }
            None if status.blocked.is_some() => tracing::info!(client_id, "MQTT messages are stored again"),
            _ => {}
        }
        status.blocked = error.map(|error| error.to_string());
    }

    fn set_link(&self, link: Link) {
        self.state.status.lock().link = link;
    }
}
