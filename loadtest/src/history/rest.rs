//! Bytes at rest.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use mongodb::bson::{Document, doc};
use serde::{Deserialize, Serialize};

use crate::servers::http::Product;
use crate::servers::mongod::Mongod;
use crate::servers::usage::bytes_below;

/// Checkpoints after which MongoDB has freed what was deleted, and the time between them.
const CHECKPOINTS: usize = 3;
const BETWEEN: Duration = Duration::from_secs(2);

/// Bytes on disk.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Rest {
    /// What holds readings, with whatever summaries stand beside them. For MongoDB all collections.
    pub data: f64,
    pub indexes: f64,
    /// Of the write-ahead log, which holds nothing that is not in the data.
    pub log: f64,
    /// What of the data's files is free for later writes, as far as it is known. It is part of `data`.
    pub reusable: Option<f64>,
    /// Data and indexes before the files were compacted, where a command does that.
    pub before_compaction: Option<f64>,
}

/// Of servers that have stopped, by their folders. MongoDB's part is known already.
pub fn of_folder(product: Product, folder: &Path, in_mongodb: Option<Rest>) -> Result<Rest> {
    let below = |name: &str| match folder.join(name) {
        path if path.is_dir() => bytes_below(&path),
        _ => Ok(0.0),
    };
    let all = below("data")?;
    Ok(match (product, in_mongodb) {
        (Product::Hourglass, Some(rest)) => Rest { log: below("data/log")?, ..rest },
        (Product::Hourglass, None) => {
            let log = below("data/log")?;
            Rest { data: all - log, log, ..Rest::default() }
        }
        (Product::Influx, _) => {
            let (log, indexes) = (below("data/wal")?, below("data/data/bench/_series")?);
            Rest { data: all - log - indexes, indexes, log, ..Rest::default() }
        }
        (Product::Victoria, _) => {
            let indexes = below("data/indexdb")?;
            Rest { data: all - indexes, indexes, ..Rest::default() }
        }
    })
}

/// Frees what is free in the embedded file of a server that has stopped, by its folder.
pub fn compact_embedded(program: &Path, folder: &Path) -> Result<()> {
    let compacted = Command::new(program).args(["compact", "--data-dir"]).arg(folder.join("data")).output()?;
    ensure!(compacted.status.success(), "hourglass compact: {}", String::from_utf8_lossy(&compacted.stderr));
    Ok(())
}

/// Frees what is free in MongoDB's files, takes a checkpoint, and sums up its collections.
pub async fn of_mongodb(mongod: &Mongod) -> Result<Rest> {
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

/// The number of hour pages that are stored in MongoDB.
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
