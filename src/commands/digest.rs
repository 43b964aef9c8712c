//! `hourglass backup digest`: opens the store, computes the digest of everything in it, and closes it.

use std::sync::Arc;

use anyhow::{Context, bail};
use serde_json::json;

use super::progress::Progress;
use crate::backup::read::digest_of_all;
use crate::backup::{ReadBounds, StoreDigest};
use crate::bucket::Store;
use crate::bucket::deletions::{Deletions, StatementCompiler};
use crate::config::Settings;
use crate::ingest::{note_registry_time, note_sealed_days};
use crate::query::influx::sensors_of;
use crate::store::MergedView;
use crate::verify::unflushed_records;

/// Prints the digest of everything in the store.
pub async fn digest(settings: &Settings, as_json: bool) -> anyhow::Result<()> {
    let (store, unflushed, missing) = open_stored(settings).await?;
    if let Some(missing) = missing {
        eprintln!("hourglass: this digest may lack something: {missing}");
    }
    let digest = stored_digest(settings, &store).await;
    store.raw().close().await;
    let digest = digest?;
    if as_json {
        let answer = json!({ "databases": digest.databases, "total": digest.total(), "unflushed_records": unflushed });
        println!("{answer}");
    } else {
        print_text(&digest);
    }
    Ok(())
}

/// The digest of everything in a store, with its progress on stderr.
pub async fn stored_digest(settings: &Settings, store: &MergedView) -> anyhow::Result<StoreDigest> {
    let mut progress = Progress::new("digest");
    let bounds = ReadBounds::of_memory(settings.query.request_bytes);
    let digest = digest_of_all(store, bounds, |database, readings| {
        progress.tell(|| format!("{database}: {readings} readings"));
    });
    digest.await.context("reading the store")
}

/// The hosts of instances that use a store, or ended before all that they acknowledged was stored.
pub async fn open_logs(store: &dyn Store) -> anyhow::Result<Vec<String>> {
    let registry = store.read_registry().await.context("reading the registry")?;
    Ok(registry.logs.into_iter().filter(|log| log.taken.is_none()).map(|log| log.host).collect())
}

/// Opens a store of which no instance is running, as queries see it.
///
/// # Errors
/// If it may not have everything that was acknowledged, by any instance.
pub async fn open_stopped(settings: &Settings) -> anyhow::Result<Arc<MergedView>> {
    let (store, _, missing) = open_stored(settings).await?;
    match missing {
        None => Ok(store),
        Some(missing) => bail!("{missing}"),
    }
}

/// Opens a store that is there already, as queries see it. Returns also how many records the WAL in the data folder has, and
/// what was acknowledged and may not be in the store yet.
async fn open_stored(settings: &Settings) -> anyhow::Result<(Arc<MergedView>, u64, Option<String>)> {
    crate::app::data_folder::must_have_store(settings)?;
    let log = unflushed_records(&settings.wal_dir()).context("reading the WAL")?;
    let (raw, ..) = crate::app::open::open_store(settings).await?;
    raw.check().await?;
    // The WAL of an embedded store is in its data folder, unless `wal.dir` says otherwise: then the configuration is needed.
    let hosts = if raw.has_other_writers() || log.is_none() { open_logs(&*raw).await? } else { Vec::new() };
    let records = log.map_or(0, |log| log.records);
    let missing = if records > 0 {
        let folder = settings.wal_dir();
        let folder = folder.display();
        Some(format!(
            "{records} records of the WAL in {folder} may not be in the store yet: run hourglass wal flush first"
        ))
    } else if !hosts.is_empty() {
        Some(format!(
            "{}: these instances use this store, or were killed before all that they acknowledged was stored: stop each, or run \
             hourglass wal flush with its configuration and data folder; of a lost folder, remove the entry (docs/reference/data-folder.md#lose)",
            hosts.join(", ")
        ))
    } else {
        None
    };
    Ok((as_queries_see_it(raw).await?, records, missing))
}

/// The view of a store in which its remembered deletions hide what they cover.
pub async fn as_queries_see_it(raw: Arc<dyn Store>) -> anyhow::Result<Arc<MergedView>> {
    let registry = raw.read_registry().await.context("reading the registry")?;
    note_registry_time(&registry);
    note_sealed_days(&*raw).await.context("looking for sealed days")?;
    let deletions = registry.deletions;
    let store = Arc::new(MergedView::new(raw));
    let understand: StatementCompiler = Arc::new(sensors_of);
    store.masks().set(Deletions::new(&deletions, &understand));
    Ok(store)
}

fn print_text(digest: &StoreDigest) {
    for database in &digest.databases {
        println!("{:?}: {database}", database.name);
    }
    println!("all {} databases: {}", digest.databases.len(), digest.total());
}

/// An error if the digests differ, which names where.
pub fn must_be_equal(found: &StoreDigest, expected: &StoreDigest) -> anyhow::Result<()> {
    let differences = found.differences(expected);
    if differences.is_empty() {
        return Ok(());
    }
    differences.iter().for_each(|difference| eprintln!("hourglass: {difference}"));
    bail!("what was written is not what was read: {} databases differ", differences.len())
}
