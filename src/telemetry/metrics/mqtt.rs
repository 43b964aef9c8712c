//! The metrics of an MQTT subscriber.

use metrics::{Counter, Gauge, counter, gauge};

use super::Metrics;

/// Handles of one subscriber's metrics.
#[derive(Debug, Clone)]
pub struct MqttMetrics {
    /// 1 while connected.
    pub connected: Gauge,
    /// Messages that are received and not acknowledged.
    pub in_flight: Gauge,
    pub stored: Counter,
    pub skipped: Counter,
    pub rejected: Counter,
}

impl Metrics {
    /// Creates the series of a subscriber.
    #[must_use]
    pub fn mqtt(&self, client_id: &str) -> MqttMetrics {
        let id = || client_id.to_owned();
        let messages = |outcome: &'static str| counter!("hourglass_mqtt_messages_total", "client_id" => id(), "outcome" => outcome);
        self.with(|| MqttMetrics {
            connected: gauge!("hourglass_mqtt_connected", "client_id" => id()),
            in_flight: gauge!("hourglass_mqtt_in_flight", "client_id" => id()),
            stored: messages("stored"),
            skipped: messages("skipped"),
            rejected: messages("rejected"),
        })
    }
}
