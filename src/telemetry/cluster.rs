//! Metrics of several instances as one service.

use metrics::{counter, describe_counter, describe_gauge, gauge};

use super::Metrics;

const EVENTS: &str = "hourglass_cluster_events_total";
const INSTANCES: &str = "hourglass_cluster_instances";

impl Metrics {
    /// Describes the metrics and starts the counters at 0.
    pub fn cluster_started(&self) {
        self.with(|| {
            describe_counter!(
                EVENTS,
                "Writes in a cluster: parts sent to owners, strays taken for silent owners, parts that had to wait"
            );
            describe_gauge!(INSTANCES, "Instances that own sensors");
            ["part", "stray", "busy"].iter().for_each(|event| counter!(EVENTS, "event" => *event).increment(0));
        });
    }

    /// Counts an event.
    pub fn cluster_event(&self, event: &'static str) {
        self.with(|| counter!(EVENTS, "event" => event).increment(1));
    }

    /// Sets the number of instances that own sensors.
    pub fn cluster_instances(&self, active: usize) {
        self.with(|| gauge!(INSTANCES).set(active as f64));
    }
}
