//! The systems to compare, with notes from their documentation.

use std::path::Path;

use anyhow::Result;
use clap::ValueEnum;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use super::http::Product;
use super::programs::{Programs, version};
use crate::report::SystemRow;

/// A system: a server, or a way to use one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Peer {
    /// hourglass with MongoDB.
    HourglassMongodb,
    /// hourglass with the embedded store.
    HourglassEmbedded,
    /// InfluxDB 1.x.
    Influxdb,
    /// VictoriaMetrics, the single binary.
    Victoriametrics,
    /// A time-series collection of MongoDB, used by a driver.
    MongodbTimeseries,
    /// ClickHouse by PyPI's `chdb`, a table without codecs.
    Clickhouse,
    /// As above, with DoubleDelta, Gorilla, Delta and zstd.
    ClickhouseCodecs,
}

/// Returns a parser of `--peer` for commands that measure hourglass only.
pub fn hourglass_peer() -> impl TypedValueParser<Value = Peer> {
    let names = ["hourglass-embedded", "hourglass-mongodb"];
    PossibleValuesParser::new(names).try_map(|name| Peer::from_str(&name, false))
}

impl Peer {
    /// The systems that receive readings one POST or command at a time.
    pub const WRITERS: [Self; 5] = [
        Self::HourglassMongodb,
        Self::HourglassEmbedded,
        Self::Influxdb,
        Self::Victoriametrics,
        Self::MongodbTimeseries,
    ];

    /// The systems with a separate form of old readings.
    pub const ARCHIVES: [Self; 6] = [
        Self::HourglassMongodb,
        Self::HourglassEmbedded,
        Self::Victoriametrics,
        Self::Influxdb,
        Self::Clickhouse,
        Self::ClickhouseCodecs,
    ];

    /// Returns the name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::HourglassMongodb => "hourglass, MongoDB",
            Self::HourglassEmbedded => "hourglass, embedded",
            Self::Influxdb => "InfluxDB",
            Self::Victoriametrics => "VictoriaMetrics",
            Self::MongodbTimeseries => "MongoDB time series",
            Self::Clickhouse => "ClickHouse",
            Self::ClickhouseCodecs => "ClickHouse, codecs",
        }
    }

    /// Returns the product, if the system is used over HTTP.
    pub fn product(self) -> Option<Product> {
        match self {
            Self::HourglassMongodb | Self::HourglassEmbedded => Some(Product::Hourglass),
            Self::Influxdb => Some(Product::Influx),
            Self::Victoriametrics => Some(Product::Victoria),
            Self::MongodbTimeseries | Self::Clickhouse | Self::ClickhouseCodecs => None,
        }
    }

    pub fn is_hourglass(self) -> bool {
        self.product() == Some(Product::Hourglass)
    }

    /// Returns true if the system needs a mongod.
    pub fn has_mongod(self) -> bool {
        matches!(self, Self::HourglassMongodb | Self::MongodbTimeseries)
    }

    /// Returns the program with the HTTP API, if there is one.
    pub fn program(self, programs: &Programs) -> Option<&Path> {
        Some(match self.product()? {
            Product::Hourglass => &programs.hourglass,
            Product::Influx => &programs.influxd,
            Product::Victoria => &programs.victoria,
        })
    }

    /// Returns the versions of its programs, with a note.
    pub fn row(self, programs: &Programs, note: &str) -> Result<SystemRow> {
        let mut versions = Vec::new();
        if let Some(program) = self.program(programs) {
            let flag = match self {
                Self::Influxdb => "version",
                Self::Victoriametrics => "-version",
                _ => "--version",
            };
            versions.push(version(program, flag)?);
        }
        if self.has_mongod() {
            versions.push(format!("mongod {}", version(&programs.mongod, "--version")?));
        }
        Ok(SystemRow { name: self.name().to_owned(), version: versions.join(", "), note: note.to_owned() })
    }

    /// Describes the durability of an acked reading.
    pub fn durability(self) -> &'static str {
        match self {
            Self::HourglassMongodb | Self::HourglassEmbedded => "acked when synced to its WAL",
            Self::Influxdb => "acked when synced to its WAL",
            Self::Victoriametrics => "acked from memory, on disk seconds later",
            Self::MongodbTimeseries => "acked by the majority, synced to the journal (one node)",
            Self::Clickhouse | Self::ClickhouseCodecs => "not acked",
        }
    }

    /// Describes the use of the system, and its documented treatment of acks, equal timestamps and late data.
    pub fn design_note(self) -> &'static str {
        match self {
            Self::HourglassMongodb | Self::HourglassEmbedded => {
                "written by line protocol over HTTP; acked when synced to its own WAL (`ack = log`, the default); readings of \
                 one sensor and timestamp merge, the later value wins field by field"
            }
            Self::Influxdb => {
                "written by line protocol over HTTP; acked when synced to its WAL (`wal-fsync-delay = 0s`, the default); points \
                 of one measurement, tag set and timestamp are united, the newer value wins field by field"
            }
            Self::Victoriametrics => {
                "written by line protocol over HTTP; it has no WAL and says that an unclean end may lose the last seconds; \
                 deduplication is off unless `-dedup.minScrapeInterval` is set; it drops its response cache some seconds after \
                 old samples have come: counts and corrections are asked for with `nocache=1`, late data out of the cache as it \
                 is shipped; started with `-retentionPeriod=100y`; made visible by `/internal/force_flush` before it is asked"
            }
            Self::MongodbTimeseries => {
                "written by the driver's `insert_many`; write concern is the server's default, majority, which is journaled \
                 (`writeConcernMajorityJournalDefault` of a replica set of one node); there is no unique index and no update of \
                 a measurement (6.0): a retry or a correction is one document more; the client takes the last by `_id`, which \
                 the driver counts up within one process"
            }
            Self::Clickhouse | Self::ClickhouseCodecs => "",
        }
    }
}
