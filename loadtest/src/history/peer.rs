//! The systems that are compared.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::servers::http::Product;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Peer {
    /// hourglass with MongoDB.
    HourglassMongodb,
    /// hourglass with the embedded store.
    HourglassEmbedded,
    /// hourglass with MongoDB, which does not seal.
    HourglassMongodbPages,
    /// hourglass with the embedded store, which does not seal.
    HourglassEmbeddedPages,
    /// VictoriaMetrics, the single binary.
    Victoriametrics,
    /// InfluxDB 1.x.
    Influxdb,
    /// ClickHouse by PyPI's `chdb`, a table without codecs.
    Clickhouse,
    /// The same, with DoubleDelta, Gorilla, Delta and zstd.
    ClickhouseCodecs,
}

impl Peer {
    /// Those that are compared if no flag names them.
    pub const USUAL: [Self; 6] = [
        Self::HourglassMongodb,
        Self::HourglassEmbedded,
        Self::Victoriametrics,
        Self::Influxdb,
        Self::Clickhouse,
        Self::ClickhouseCodecs,
    ];

    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::HourglassMongodb => "hourglass, MongoDB",
            Self::HourglassEmbedded => "hourglass, embedded",
            Self::HourglassMongodbPages => "MongoDB, not sealed",
            Self::HourglassEmbeddedPages => "embedded, not sealed",
            Self::Victoriametrics => "VictoriaMetrics",
            Self::Influxdb => "InfluxDB",
            Self::Clickhouse => "ClickHouse",
            Self::ClickhouseCodecs => "ClickHouse, codecs",
        }
    }

    /// The product, if it is used over HTTP.
    pub fn product(self) -> Option<Product> {
        match self {
            Self::Victoriametrics => Some(Product::Victoria),
            Self::Influxdb => Some(Product::Influx),
            Self::Clickhouse | Self::ClickhouseCodecs => None,
            _ => Some(Product::Hourglass),
        }
    }

    pub fn has_mongod(self) -> bool {
        matches!(self, Self::HourglassMongodb | Self::HourglassMongodbPages)
    }

    pub fn seals(self) -> bool {
        matches!(self, Self::HourglassMongodb | Self::HourglassEmbedded)
    }
}
