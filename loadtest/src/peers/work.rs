//! The workloads and their bodies, the same for all systems.

use std::sync::Arc;

use anyhow::{Result, ensure};
use bytes::Bytes;
use clap::{Args, ValueEnum};

use crate::bodies::Fleet;

/// Seconds between two readings of a sensor.
const INTERVAL_S: i64 = 60;

/// The kind of workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Shape {
    /// 1,000 sensors, 5,000 lines per POST.
    GatewayBatches,
    /// 100,000 sensors in turn, 5,000 lines per POST.
    WideFleet,
    /// One reading per POST, many connections.
    DevicePosts,
}

impl Shape {
    /// The name in flags and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::GatewayBatches => "gateway-batches",
            Self::WideFleet => "wide-fleet",
            Self::DevicePosts => "device-posts",
        }
    }
}

/// The sizes of the workloads.
#[derive(Debug, Args)]
pub struct Sizes {
    /// Readings per sensor in gateway-batches, which has 1,000 sensors.
    #[arg(long, default_value_t = 2000)]
    gateway_ticks: usize,
    /// Readings per sensor in wide-fleet, which has 100,000 sensors.
    #[arg(long, default_value_t = 60)]
    wide_ticks: usize,
    /// Number of POSTs in device-posts.
    #[arg(long, default_value_t = 100_000)]
    device_posts: usize,
    /// The MongoDB time-series collection gets only one part in this many of the bodies, because it would take most of
    /// the run.
    #[arg(long, default_value_t = 5)]
    native_part: usize,
    /// The same for wide-fleet, for which the collection creates a bucket per sensor, at 12,000 readings/s on 2 cores.
    #[arg(long, default_value_t = 40)]
    wide_native_part: usize,
}

/// A workload with its bodies.
pub struct Work {
    pub shape: Shape,
    pub fleet: Fleet,
    pub readings: usize,
    /// Maximum lines per body.
    pub lines: usize,
    /// Number of connections, each with one POST at a time.
    pub connections: usize,
    /// The number of readings for the MongoDB time-series collection.
    pub native_readings: usize,
    /// Bodies of line protocol.
    pub bodies: Arc<Vec<Bytes>>,
}

impl Sizes {
    /// All workloads, or only this one, with their bodies.
    pub fn works(&self, only: Option<Shape>) -> Result<Vec<Work>> {
        let is_wanted = |shape: &&Shape| only.is_none_or(|only| only == **shape);
        let works: Vec<Work> =
            Shape::value_variants().iter().filter(is_wanted).map(|shape| self.work(*shape)).collect();
        ensure!(self.native_part > 0 && self.wide_native_part > 0, "no part is the 0th");
        ensure!(works.iter().all(|work| work.readings > 0), "nothing to send");
        Ok(works)
    }

    fn work(&self, shape: Shape) -> Work {
        let (sensors, readings, lines, connections, native_part) = match shape {
            Shape::GatewayBatches => (1000, 1000 * self.gateway_ticks, 5000, 8, self.native_part),
            Shape::WideFleet => (100_000, 100_000 * self.wide_ticks, 5000, 8, self.wide_native_part),
            Shape::DevicePosts => (1000, self.device_posts, 1, 64, self.native_part),
        };
        let fleet = Fleet { sensors, interval_s: INTERVAL_S };
        let native_readings = (readings / native_part.max(1)).next_multiple_of(lines).min(readings);
        let bodies = Arc::new(fleet.bodies(readings, lines));
        Work { shape, fleet, readings, lines, connections, native_readings, bodies }
    }
}

impl Work {
    /// The first full hour after this many readings, because whole hours are answered from summaries.
    pub fn end_s(&self, readings: usize) -> i64 {
        self.fleet.reading(readings.saturating_sub(1)).time + self.fleet.interval_s
    }
}
