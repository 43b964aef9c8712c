//! Stores one message: through a mapping, or as a rejection.

use std::str;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::connection::{MqttError, read_secret};
use super::packets::{Message, PACKET_BYTES_MAX};
use super::subscriber::Subscriber;
use crate::access::{Caller, Denied, Forbidden};
use crate::clock::{now_ns, now_seconds};
use crate::ingest::{AckLevel, Arrival, FirstTime, IngestError, Retry, Turn};
use crate::mapping::{self, Mapping};
use crate::reading::{Precision, Reason, Rejection};
use crate::wire::{Point, Points};

/// The outcome of a message that can be acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Stored,
    /// It has no reading, or is retained and has no time.
    Skipped,
    /// It is in the list of rejections, in whole or in part.
    Rejected,
}

/// The reason why a message can be neither stored nor rejected now.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error(transparent)]
    File(#[from] MqttError),
    #[error("the token is not valid: {}", .0.label())]
    Token(Denied),
    #[error(transparent)]
    Forbidden(#[from] Forbidden),
    #[error(transparent)]
    Ingest(#[from] IngestError),
    #[error("the rejection cannot be written: {0}")]
    Rejection(#[from] std::io::Error),
}

impl StoreError {
    /// Returns the reason for the audit trail, if the rights of the token do not suffice.
    #[must_use]
    pub fn denial(&self) -> Option<&'static str> {
        match self {
            Self::Token(denied) => Some(denied.label()),
            Self::Forbidden(_) => Some("forbidden"),
            _ => None,
        }
    }
}

/// A body that is rejected as a whole.
struct RejectedBody(Option<Rejection>);

impl<'a> Points<'a> for RejectedBody {
    fn next(&mut self) -> Option<Result<Point<'_, 'a>, Rejection>> {
        self.0.take().map(Err)
    }
}

/// A message with its first arrival.
#[derive(Debug)]
pub struct Delivery {
    pub message: Message,
    /// In nanoseconds since the epoch.
    pub received: i64,
    first_time: FirstTime,
    /// True once all of it was rejected. It is not listed again if it is stored again because of an earlier one.
    is_rejected: AtomicBool,
}

impl Delivery {
    #[must_use]
    pub fn new(message: Message) -> Self {
        Self { message, received: now_ns(), first_time: FirstTime::new(), is_rejected: AtomicBool::new(false) }
    }

    /// Returns true if the broker delivers this message again.
    #[must_use]
    pub fn is_repeated_by(&self, message: &Message) -> bool {
        let Message { id, topic, payload, .. } = &self.message;
        message.is_again && message.id == *id && message.topic == topic && message.payload == payload
    }
}

impl Subscriber {
    /// Makes the readings of a message durable, or its rejection. The turn ends once later messages come after it.
    ///
    /// # Errors
    /// If neither is possible now.
    pub async fn store(&self, delivery: &Delivery, turn: &Turn) -> Result<Outcome, StoreError> {
        let Delivery { message, received, first_time, is_rejected } = delivery;
        let received = *received;
        if is_rejected.load(Ordering::Relaxed) {
            self.ingest.rejections.sync().await?;
            return Ok(Outcome::Rejected);
        }
        let caller = match &self.settings.token_file {
            None => Caller::Anybody,
            Some(file) => {
                // Read it each time, because the token may be rotated.
                let token = read_secret("token_file", file)?;
                self.access.caller(Some(&token), &[], now_seconds()).map_err(StoreError::Token)?
            }
        };
        let mapping = match check_form(message) {
            Ok(topic) => self.mapping(topic).await?.ok_or_else(|| {
                let names = self.settings.mappings.join(", ");
                Reason::Json(format!("no mapping of [[mqtt]] takes the topic {topic:?} ({names})"))
            }),
            Err(reason) => Err(reason),
        };
        let topic = String::from_utf8_lossy(&message.topic);
        let first_mapping = self.settings.mappings.first().map(String::as_str).unwrap_or_default();
        let mapping_name = mapping.as_ref().map_or(first_mapping, |mapping| &mapping.name);
        caller.check_ingest(&self.settings.database, mapping_name)?;
        let arrival = Arrival {
            database: &self.settings.database,
            precision: Precision::Auto,
            is_precision_declared: true,
            received,
            is_partial: true,
            ack: Some(AckLevel::Log),
            is_patient: true,
            turn: Some(turn),
            retry: Some(Retry::FirstTime(first_time)),
            caller: &caller,
            address: None,
            mapping: Some(mapping_name),
            topic: Some(&topic),
        };
        let mapping = match &mapping {
            Ok(mapping) => mapping,
            Err(reason) => return self.reject(delivery, arrival, reason.clone()).await,
        };
        let points = |limits| mapping::apply(mapping, Some(&topic), &message.payload, limits, received);
        if message.is_retained && has_undated(points(self.ingest.options.reading_limits())) {
            return Ok(Outcome::Skipped);
        }
        let mut admission = self.ingest.admission(&caller);
        let taken = match admission.grow(message.payload.len()) {
            Ok(()) => self.ingest.take(arrival, points, admission).await,
            Err(error) => Err(error),
        };
        match taken {
            // It will not fit later either.
            Err(IngestError::TooLarge { limit, key }) => {
                let reason = Reason::Limit { what: "bytes of one message in memory", found: message.bytes, limit, key };
                self.reject(delivery, arrival, reason).await
            }
            Err(error) => Err(error.into()),
            Ok(ack) if ack.rejected.count > 0 => {
                is_rejected.store(ack.accepted == 0, Ordering::Relaxed);
                self.ingest.rejections.sync().await?;
                Ok(Outcome::Rejected)
            }
            Ok(ack) if ack.accepted > 0 => Ok(Outcome::Stored),
            Ok(_) => Ok(Outcome::Skipped),
        }
    }

    /// Returns the first mapping that takes a topic.
    async fn mapping(&self, topic: &str) -> Result<Option<Arc<Mapping>>, IngestError> {
        for name in &self.settings.mappings {
            let mapping = self.ingest.mapping(&self.settings.database, name).await?;
            if mapping.topics.is_empty() || mapping.topics.iter().any(|filter| filter.matches(topic)) {
                return Ok(Some(mapping));
            }
        }
        Ok(None)
    }

    /// Keeps a message as a durable rejection.
    async fn reject(&self, delivery: &Delivery, arrival: Arrival<'_>, reason: Reason) -> Result<Outcome, StoreError> {
        let rejection = Rejection::new(1, 0, &delivery.message.payload, reason);
        let points = |_| RejectedBody(Some(rejection.clone()));
        self.ingest.take(arrival, points, self.ingest.admission(arrival.caller)).await?;
        delivery.is_rejected.store(true, Ordering::Relaxed);
        self.ingest.rejections.sync().await?;
        Ok(Outcome::Rejected)
    }
}

/// Returns the topic of a message that is not too large.
fn check_form(message: &Message) -> Result<&str, Reason> {
    if message.bytes > PACKET_BYTES_MAX {
        let what = "bytes of one MQTT packet";
        return Err(Reason::Limit { what, found: message.bytes, limit: PACKET_BYTES_MAX, key: "[[mqtt]]" });
    }
    match str::from_utf8(&message.topic) {
        Ok(topic) if !topic.is_empty() && !topic.contains(['+', '#', '\0']) => Ok(topic),
        _ => Err(Reason::Json("the topic of the message is not valid".to_owned())),
    }
}

/// Returns true if a reading of the message has no time.
fn has_undated<'a>(mut points: impl Points<'a>) -> bool {
    loop {
        match points.next().map(|point| point.is_ok_and(|point| point.timestamp.is_none())) {
            Some(true) => return true,
            None if !points.is_paused() => return false,
            Some(false) | None => {}
        }
    }
}
