//! `hourglass backup digest`: opens the store, computes its digest, and closes it.

use std::sync::Arc;

use anyhow::{Context, bail};
use serde_json::json;

use super::progress::Progress;
use crate::backup::read::digest_databases;
use crate::backup::{ReadBounds, StoreDigest};
use crate::bucket::Store;
use crate::bucket::deletions::{Deletions, StatementCompiler};
use crate::config::Settings;
use crate::ingest::{note_registry_time, note_sealed_days};
use crate::query::influx::sensor_test;
use crate::store::MergedView;
use crate::verify::unflushed_records;

/// Prints the digest of everything in the store.
pub async fn digest(settings: &Settings, as_json: bool) -> anyhow::Result<()> {
    let opened = open_existing(settings).await?;
    if let Some(missing) = opened.missing {
        eprintln!("hourglass: the digest may be incomplete: {missing}");
    }
    let digest = compute_digest(settings, &opened.view).await;
    opened.view.raw().close().await;
    let digest = digest?;
    if as_json {
        let answer = json!({
            "databases": digest.databases,
            "total": digest.total(),
            "unflushed_records": opened.unflushed_records,
        });
        println!("{answer}");
    } else {
        print_text(&digest);
    }
    Ok(())
}

/// Computes the digest of everything in a store. Prints its progress on stderr.
pub async fn compute_digest(settings: &Settings, store: &MergedView) -> anyhow::Result<StoreDigest> {
    let mut progress = Progress::new("digest");
    let bounds = ReadBounds::for_memory(settings.query.request_bytes);
    let digest = digest_databases(store, bounds, |database, readings| {
        progress.show(|| format!("{database}: {readings} readings"));
    });
    digest.await.context("reading the store")
}

/// Returns the hosts of instances that use a store, or ended before everything they acknowledged was flushed.
pub async fn unfinished_hosts(store: &dyn Store) -> anyhow::Result<Vec<String>> {
    let registry = store.read_registry().await.context("reading the registry")?;
    Ok(registry.logs.into_iter().filter(|log| log.takeover.is_none()).map(|log| log.host).collect())
}

/// Opens the merged view of a store that no running instance uses.
///
/// # Errors
/// If something that an instance acknowledged may not be in the store yet.
pub async fn open_stopped(settings: &Settings) -> anyhow::Result<Arc<MergedView>> {
    let opened = open_existing(settings).await?;
    match opened.missing {
        None => Ok(opened.view),
        Some(missing) => bail!("{missing}"),
    }
}

/// An existing store, opened without a service.
struct ExistingStore {
    view: Arc<MergedView>,
    /// Number of records in the WAL of the data folder.
    unflushed_records: u64,
    /// The reason why the store may lack something that was acknowledged.
    missing: Option<String>,
}

/// Opens the merged view of an existing store.
async fn open_existing(settings: &Settings) -> anyhow::Result<ExistingStore> {
    crate::app::data_folder::must_have_store(settings)?;
    let log = unflushed_records(&settings.wal_dir()).context("reading the WAL")?;
    let (raw, ..) = crate::app::open::open_store(settings).await?;
    raw.check().await?;
    // A missing WAL may be elsewhere (`wal.dir`), so the registry decides. Otherwise the WAL of an embedded store is
    // the only one.
    let hosts = if raw.has_other_writers() || log.is_none() { unfinished_hosts(&*raw).await? } else { Vec::new() };
    let records = log.map_or(0, |log| log.records);
    let missing = if records > 0 {
        let folder = settings.wal_dir();
        let folder = folder.display();
        Some(format!(
            "{records} records of the WAL in {folder} may not be in the store yet: run hourglass wal flush first"
        ))
    } else if !hosts.is_empty() {
        Some(format!(
            "{}: these instances use this store, or were killed before everything they acknowledged was stored: stop each, or run \
             hourglass wal flush with its configuration and data folder; if a folder is lost, remove its entry (docs/reference/data-folder.md#lose)",
            hosts.join(", ")
        ))
    } else {
        None
    };
    Ok(ExistingStore { view: open_view(raw).await?, unflushed_records: records, missing })
}

/// Returns the view of a store that hides the readings covered by remembered deletions, as queries do.
pub async fn open_view(raw: Arc<dyn Store>) -> anyhow::Result<Arc<MergedView>> {
    let registry = raw.read_registry().await.context("reading the registry")?;
    note_registry_time(&registry);
    note_sealed_days(&*raw).await.context("searching sealed days")?;
    let deletions = registry.deletions;
    let store = Arc::new(MergedView::new(raw));
    let compiler: StatementCompiler = Arc::new(sensor_test);
    store.masks().set(Deletions::new(&deletions, &compiler));
    Ok(store)
}

fn print_text(digest: &StoreDigest) {
    for database in &digest.databases {
        println!("{:?}: {database}", database.name);
    }
    println!("all {} databases: {}", digest.databases.len(), digest.total());
}

/// Returns an error that names the differences if the digests differ.
pub fn must_be_equal(found: &StoreDigest, expected: &StoreDigest) -> anyhow::Result<()> {
    let differences = found.differences(expected);
    if differences.is_empty() {
        return Ok(());
    }
    differences.iter().for_each(|difference| eprintln!("hourglass: {difference}"));
    bail!("the written data differs from the source in {} databases", differences.len())
}
