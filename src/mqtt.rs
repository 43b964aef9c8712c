//! Subscribers of MQTT brokers (`[[mqtt]]`). A message is acknowledged to the broker in the order received, once its
//! readings or its rejection are durable. While hourglass is away or accepts nothing, the broker keeps the messages.

mod connection;
mod messages;
pub mod packets;
mod subscriber;

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::access::{Audit, TokenRegistry};
use crate::ingest::Ingest;
use crate::lanes::{Lane, Lanes};
use crate::telemetry::Metrics;

pub use self::connection::probe;
use self::subscriber::Subscriber;

/// The state of a subscriber, for `/health`.
#[derive(Debug)]
pub struct SubscriberState {
    pub client_id: String,
    status: Mutex<SubscriberStatus>,
}

/// The part of a state that changes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SubscriberStatus {
    pub link: Link,
    /// The reason why a received message cannot be stored at present.
    pub blocked: Option<String>,
}

/// The connection to the broker.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Link {
    /// Not tried yet.
    #[default]
    Starting,
    Connected,
    /// Another instance is connected.
    Elsewhere,
    /// Not connected for this reason.
    Away(String),
}

impl SubscriberState {
    #[must_use]
    pub fn status(&self) -> SubscriberStatus {
        self.status.lock().clone()
    }
}

/// Starts all subscribers of the configuration. They end when `stop` turns true, after the messages that are being
/// stored are acknowledged.
pub fn start(
    ingest: &Arc<Ingest>,
    access: &Arc<TokenRegistry>,
    audit: &Arc<Audit>,
    lanes: &Lanes,
    metrics: &Metrics,
    stop: &watch::Receiver<bool>,
) -> (Vec<Arc<SubscriberState>>, JoinSet<()>) {
    let mut states = Vec::new();
    let mut tasks = JoinSet::new();
    for settings in &ingest.options.mqtt {
        let state = Arc::new(SubscriberState { client_id: settings.client_id.clone(), status: Mutex::default() });
        states.push(state.clone());
        let metrics = metrics.mqtt(&settings.client_id);
        let subscriber = Subscriber {
            settings: settings.clone(),
            ingest: ingest.clone(),
            access: access.clone(),
            audit: audit.clone(),
            state,
            metrics,
            stop: stop.clone(),
            turns: Arc::default(),
        };
        let task = lanes.spawn(Lane::Bulk, Arc::new(subscriber).run());
        tasks.spawn(async move {
            let _ = task.await;
        });
    }
    (states, tasks)
}
