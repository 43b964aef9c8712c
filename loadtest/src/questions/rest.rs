//! The bytes of a system at rest.

use std::time::Duration;

use anyhow::Result;
use mongodb::bson::{Document, doc};

use crate::servers::http::Product;
use crate::servers::mongod::Mongod;
use crate::servers::system::System;
use crate::servers::usage::bytes_below;

/// Checkpoints after which MongoDB has freed what was deleted, and the time between them.
const CHECKPOINTS: usize = 3;
const BETWEEN: Duration = Duration::from_secs(2);

/// Bytes on disk.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rest {
    /// The readings, with whatever summaries stand beside them. For MongoDB all collections.
    pub data: f64,
    pub indexes: f64,
    /// The write-ahead log, which has only readings that are also in the data.
    pub log: f64,
    /// The part of `data` that is free for later writes, if known.
    pub reusable: Option<f64>,
    /// Data and indexes before compaction, for systems with a command for it.
    pub before_compaction: Option<f64>,
}

impl Rest {
    /// Stops a system, compacts its files if possible, and adds up their sizes.
    pub async fn measure(system: &mut System<'_>) -> Result<Self> {
        let in_mongodb = match system.mongod() {
            Ok(mongod) => Some(of_mongodb(mongod).await?),
            Err(_) => None,
        };
        system.stop()?;
        let below = |name: &str| bytes_below(&system.folder().sub(&format!("server/data{name}"))?);
        Ok(match (system.peer.product(), in_mongodb) {
            (_, Some(rest)) => Self { log: below("/log")?, ..rest },
            (Some(Product::Hourglass), None) => {
                let before = below("")? - below("/log")?;
                system.command("compact")?;
                let log = below("/log")?;
                Self { data: below("")? - log, log, before_compaction: Some(before), ..Self::default() }
            }
            (Some(Product::Influx), None) => {
                let log = below("/wal")?;
                let indexes = below("/data/bench/_series")?;
                Self { data: below("")? - log - indexes, indexes, log, ..Self::default() }
            }
            (_, None) => {
                let indexes = below("/indexdb")?;
                Self { data: below("")? - indexes, indexes, ..Self::default() }
            }
        })
    }

    /// Returns the bytes of data and indexes.
    pub fn stored(&self) -> f64 {
        self.data + self.indexes
    }

    /// Returns the figures per reading.
    pub fn figures(&self, readings: f64) -> Vec<(&'static str, f64)> {
        let all = [
            ("bytes per reading: data and indexes", Some(self.stored())),
            ("of these, indexes", Some(self.indexes)),
            ("of these, free for later writes", self.reusable),
            ("data and indexes before `compact`", self.before_compaction),
            ("and bytes of log", Some(self.log)),
        ];
        all.into_iter().filter_map(|(name, bytes)| Some((name, bytes? / readings))).collect()
    }
}

/// Releases free space of MongoDB's files, takes a checkpoint, and sums up its collections.
async fn of_mongodb(mongod: &Mongod) -> Result<Rest> {
    // MongoDB keeps what was deleted for reads at a time in the past, by default for five minutes. Then checkpoints free it.
    let forgets = doc! { "setParameter": 1, "minSnapshotHistoryWindowInSeconds": 0 };
    mongod.client().database("admin").run_command(forgets).await?;
    for _ in 0..CHECKPOINTS {
        tokio::time::sleep(BETWEEN).await;
        checkpoint(mongod).await?;
    }
    let before = summed(mongod).await?;
    let database = mongod.client().database("hourglass");
    for name in database.list_collection_names().await? {
        database.run_command(doc! { "compact": name, "force": true }).await?;
    }
    checkpoint(mongod).await?;
    let after = summed(mongod).await?;
    Ok(Rest { before_compaction: Some(before.data + before.indexes), ..after })
}

async fn checkpoint(mongod: &Mongod) -> Result<()> {
    mongod.client().database("admin").run_command(doc! { "fsync": 1 }).await?;
    Ok(())
}

async fn summed(mongod: &Mongod) -> Result<Rest> {
    let database = mongod.client().database("hourglass");
    let mut rest = Rest { reusable: Some(0.0), ..Rest::default() };
    for name in database.list_collection_names().await? {
        let stats = database.run_command(doc! { "collStats": name }).await?;
        rest.data += number(&stats, "storageSize");
        rest.indexes += number(&stats, "totalIndexSize");
        rest.reusable = rest.reusable.map(|sum| sum + number(&stats, "freeStorageSize"));
    }
    Ok(rest)
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
