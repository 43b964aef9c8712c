//! The disk usage of a stopped system.

use std::time::Duration;

use anyhow::Result;
use mongodb::bson::{Document, doc};

use crate::servers::http::Product;
use crate::servers::mongod::Mongod;
use crate::servers::system::System;
use crate::servers::usage::disk_bytes;

/// Number of checkpoints after which MongoDB has freed deleted data, and the pause between two.
const CHECKPOINTS: usize = 3;
const CHECKPOINT_PAUSE: Duration = Duration::from_secs(2);

/// Disk usage in bytes.
#[derive(Debug, Clone, Copy, Default)]
pub struct DiskUsage {
    /// Readings and their summaries; for MongoDB, all collections.
    pub data: f64,
    pub indexes: f64,
    /// The write-ahead log, which has only readings that are also in the data.
    pub log: f64,
    /// The part of `data` that is free for later writes, if known.
    pub reusable: Option<f64>,
    /// Data and indexes before compaction, for systems with a command for it.
    pub before_compaction: Option<f64>,
}

impl DiskUsage {
    /// Stops a system, compacts its files if possible, and adds up their sizes.
    pub async fn measure(system: &mut System<'_>) -> Result<Self> {
        let mongodb_usage = match system.mongod() {
            Ok(mongod) => Some(measure_mongodb(mongod).await?),
            Err(_) => None,
        };
        system.stop()?;
        let bytes = |name: &str| disk_bytes(&system.folder().sub(&format!("server/data{name}"))?);
        Ok(match (system.peer.product(), mongodb_usage) {
            (_, Some(usage)) => Self { log: bytes("/log")?, ..usage },
            (Some(Product::Hourglass), None) => {
                let before = bytes("")? - bytes("/log")?;
                system.command("compact")?;
                let log = bytes("/log")?;
                Self { data: bytes("")? - log, log, before_compaction: Some(before), ..Self::default() }
            }
            (Some(Product::Influx), None) => {
                let log = bytes("/wal")?;
                let indexes = bytes("/data/bench/_series")?;
                Self { data: bytes("")? - log - indexes, indexes, log, ..Self::default() }
            }
            (_, None) => {
                let indexes = bytes("/indexdb")?;
                Self { data: bytes("")? - indexes, indexes, ..Self::default() }
            }
        })
    }

    /// Returns the bytes of data and indexes.
    pub fn stored_bytes(&self) -> f64 {
        self.data + self.indexes
    }

    /// Returns the figures per reading.
    pub fn figures(&self, readings: f64) -> Vec<(&'static str, f64)> {
        let all = [
            ("bytes per reading: data and indexes", Some(self.stored_bytes())),
            ("of these, indexes", Some(self.indexes)),
            ("of these, free for later writes", self.reusable),
            ("data and indexes before `compact`", self.before_compaction),
            ("and bytes of log", Some(self.log)),
        ];
        all.into_iter().filter_map(|(name, bytes)| Some((name, bytes? / readings))).collect()
    }
}

/// Releases free space of MongoDB's files, takes a checkpoint, and sums up its collections.
async fn measure_mongodb(mongod: &Mongod) -> Result<DiskUsage> {
    // MongoDB keeps deleted data for snapshot reads, by default for five minutes. Without that, checkpoints free it.
    let parameter = doc! { "setParameter": 1, "minSnapshotHistoryWindowInSeconds": 0 };
    mongod.client().database("admin").run_command(parameter).await?;
    for _ in 0..CHECKPOINTS {
        tokio::time::sleep(CHECKPOINT_PAUSE).await;
        checkpoint(mongod).await?;
    }
    let before = sum_collections(mongod).await?;
    let database = mongod.client().database("hourglass");
    for name in database.list_collection_names().await? {
        database.run_command(doc! { "compact": name, "force": true }).await?;
    }
    checkpoint(mongod).await?;
    let after = sum_collections(mongod).await?;
    Ok(DiskUsage { before_compaction: Some(before.data + before.indexes), ..after })
}

async fn checkpoint(mongod: &Mongod) -> Result<()> {
    mongod.client().database("admin").run_command(doc! { "fsync": 1 }).await?;
    Ok(())
}

async fn sum_collections(mongod: &Mongod) -> Result<DiskUsage> {
    let database = mongod.client().database("hourglass");
    let mut usage = DiskUsage { reusable: Some(0.0), ..DiskUsage::default() };
    for name in database.list_collection_names().await? {
        let stats = database.run_command(doc! { "collStats": name }).await?;
        usage.data += number(&stats, "storageSize");
        usage.indexes += number(&stats, "totalIndexSize");
        usage.reusable = usage.reusable.map(|sum| sum + number(&stats, "freeStorageSize"));
    }
    Ok(usage)
}

/// Returns the number of hour pages in MongoDB.
pub async fn hour_pages(mongod: &Mongod) -> Result<u64> {
    let database = mongod.client().database("hourglass");
    let mut pages = 0;
    for name in ["bench.buckets", "bench.overflow"] {
        pages += database.collection::<Document>(name).count_documents(doc! {}).await?;
    }
    Ok(pages)
}

fn number(stats: &Document, key: &str) -> f64 {
    let whole = stats.get_i64(key).ok().or_else(|| stats.get_i32(key).ok().map(i64::from));
    let whole = whole.and_then(|whole| usize::try_from(whole).ok()).map(crate::stats::to_f64);
    whole.or_else(|| stats.get_f64(key).ok()).unwrap_or_default()
}
