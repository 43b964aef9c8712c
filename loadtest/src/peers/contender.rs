//! Who takes part, and what each promises.

use super::work::{Shape, Work};
use crate::servers::http::Product;

/// A server, or a way to use one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contender {
    /// hourglass with its store in MongoDB.
    HourglassOnMongodb,
    /// hourglass with its own store.
    HourglassEmbedded,
    /// InfluxDB 1.x.
    Influx,
    /// VictoriaMetrics.
    Victoria,
    /// A time-series collection of MongoDB, fed by a driver.
    Native,
}

/// When what was released, as far as it has been looked up: by how its version begins. Of InfluxDB 1.6.7 there is only a
/// candidate; the release before it is of February 2019.
const YEARS: [(&str, u32); 4] = [("0.1.", 2026), ("1.6.7", 2019), ("1.79.5", 2022), ("6.0.5", 2023)];

impl Contender {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::HourglassOnMongodb, Self::HourglassEmbedded, Self::Influx, Self::Victoria, Self::Native];

    /// What it is called in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::HourglassOnMongodb => "hourglass, MongoDB",
            Self::HourglassEmbedded => "hourglass, embedded",
            Self::Influx => "InfluxDB",
            Self::Victoria => "VictoriaMetrics",
            Self::Native => "MongoDB time series",
        }
    }

    /// What it is if it is spoken to over HTTP. Only those are compared at one offered rate.
    pub fn product(self) -> Option<Product> {
        match self {
            Self::HourglassOnMongodb | Self::HourglassEmbedded => Some(Product::Hourglass),
            Self::Influx => Some(Product::Influx),
            Self::Victoria => Some(Product::Victoria),
            Self::Native => None,
        }
    }

    /// Which program's version is its own, as [`crate::servers::programs::Programs::machine`] calls it.
    pub fn program(self) -> &'static str {
        match self {
            Self::HourglassOnMongodb | Self::HourglassEmbedded => "hourglass",
            Self::Influx => "influxd",
            Self::Victoria => "victoria-metrics",
            Self::Native => "mongod",
        }
    }

    /// What has happened to a reading when it is acked.
    pub fn durability(self) -> &'static str {
        match self {
            Self::HourglassOnMongodb | Self::HourglassEmbedded => "synced to its log",
            Self::Influx => "synced to its WAL",
            Self::Victoria => "none: in memory, on disk seconds later",
            Self::Native => "majority, synced to the journal (one node)",
        }
    }

    /// Whether the work is given to it: nobody who uses a driver inserts readings one by one.
    pub fn takes(self, work: &Work) -> bool {
        self != Self::Native || work.shape != Shape::DevicePosts
    }

    /// How many of its readings.
    pub fn share(self, work: &Work) -> usize {
        if self == Self::Native { work.native_readings } else { work.readings }
    }
}

/// The year in which a version came out.
pub fn year(version: &str) -> Option<u32> {
    YEARS.iter().find(|(beginning, _)| version.starts_with(beginning)).map(|(_, year)| *year)
}
