//! The systems that are compared, and what an ack of each promises.

use super::work::{Shape, Work};
use crate::servers::http::Product;

/// A system: a server, or a way to use one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contender {
    /// hourglass with MongoDB.
    HourglassOnMongodb,
    /// hourglass with the embedded store.
    HourglassEmbedded,
    /// InfluxDB 1.x.
    Influx,
    /// VictoriaMetrics.
    Victoria,
    /// A time-series collection of MongoDB, written to by a driver.
    Native,
}

/// Release years by prefix of the version, as far as known. Of InfluxDB 1.6.7 there is only a release candidate; the
/// release before it is from February 2019.
const YEARS: [(&str, u32); 4] = [("0.1.", 2026), ("1.6.7", 2019), ("1.79.5", 2022), ("6.0.5", 2023)];

impl Contender {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::HourglassOnMongodb, Self::HourglassEmbedded, Self::Influx, Self::Victoria, Self::Native];

    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::HourglassOnMongodb => "hourglass, MongoDB",
            Self::HourglassEmbedded => "hourglass, embedded",
            Self::Influx => "InfluxDB",
            Self::Victoria => "VictoriaMetrics",
            Self::Native => "MongoDB time series",
        }
    }

    /// The product, if it is used over HTTP. Only these are compared at an offered rate.
    pub fn product(self) -> Option<Product> {
        match self {
            Self::HourglassOnMongodb | Self::HourglassEmbedded => Some(Product::Hourglass),
            Self::Influx => Some(Product::Influx),
            Self::Victoria => Some(Product::Victoria),
            Self::Native => None,
        }
    }

    /// The key of its version in [`crate::servers::programs::Programs::machine`].
    pub fn program(self) -> &'static str {
        match self {
            Self::HourglassOnMongodb | Self::HourglassEmbedded => "hourglass",
            Self::Influx => "influxd",
            Self::Victoria => "victoria-metrics",
            Self::Native => "mongod",
        }
    }

    /// What an ack means for a reading.
    pub fn durability(self) -> &'static str {
        match self {
            Self::HourglassOnMongodb | Self::HourglassEmbedded => "synced to its log",
            Self::Influx => "synced to its WAL",
            Self::Victoria => "none: in memory, on disk seconds later",
            Self::Native => "majority, synced to the journal (one node)",
        }
    }

    /// Whether it runs this workload: with a driver, nobody inserts readings one by one.
    pub fn takes(self, work: &Work) -> bool {
        self != Self::Native || work.shape != Shape::DevicePosts
    }

    /// The number of readings of the workload that it gets.
    pub fn share(self, work: &Work) -> usize {
        if self == Self::Native { work.native_readings } else { work.readings }
    }
}

/// The release year of a version.
pub fn year(version: &str) -> Option<u32> {
    YEARS.iter().find(|(beginning, _)| version.starts_with(beginning)).map(|(_, year)| *year)
}
