//! `hourglass digest`: opens the store, computes the digest of everything in it, and closes it.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use serde_json::{Value, json};

use super::progress::Progress;
use crate::backup::read::digest_of_all;
use crate::backup::{DatabaseDigest, ReadBounds, StoreDigest};
use crate::bucket::Store;
use crate::bucket::deletions::Deletions;
use crate::config::Settings;
use crate::ingest::{note_registry, note_sealed};
use crate::store::embedded::FILE_NAME;
use crate::telemetry::logs;
use crate::verify::unflushed_records;

/// Prints the digest of everything in the store.
#[must_use]
pub fn digest(settings: &Settings, as_json: bool) -> ExitCode {
    logs::start("warn", &settings.telemetry);
    let computed = super::run_to_end(compute(settings, as_json));
    match computed {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => super::failed(&error),
    }
}

async fn compute(settings: &Settings, as_json: bool) -> anyhow::Result<()> {
    let (store, unflushed) = open_stored(settings).await?;
    if unflushed > 0 {
        eprintln!(
            "hourglass: {unflushed} records of the WAL in {} may not be in the store yet, and then are not in this digest: \
             run hourglass flush-wal first",
            settings.wal_dir().display()
        );
    }
    let digest = stored_digest(settings, &*store).await;
    store.close().await;
    let digest = digest?;
    match as_json {
        true => println!("{}", shown_json(&digest, unflushed)),
        false => print_text(&digest),
    }
    Ok(())
}

/// The digest of everything in a store, with its progress on stderr.
pub async fn stored_digest(settings: &Settings, store: &dyn Store) -> anyhow::Result<StoreDigest> {
    let mut progress = Progress::new("digest");
    let bounds = ReadBounds::of_memory(settings.query.request_bytes);
    let digest = digest_of_all(store, bounds, |database, readings| {
        progress.tell(|| format!("{database}: {readings} readings"));
    });
    digest.await.context("reading the store")
}

/// Opens a store that is there already, as queries see it, and counts the records of the WAL that it may not have yet.
pub async fn open_stored(settings: &Settings) -> anyhow::Result<(Arc<dyn Store>, u64)> {
    let directory = &settings.server.data_dir;
    super::data_folder::must_exist(settings)?;
    if settings.store.uri.is_embedded() {
        // Checked first, because opening the store would create one.
        let file = directory.join(FILE_NAME);
        std::fs::metadata(&file).with_context(|| format!("there is no store: {}", file.display()))?;
    }
    let log = unflushed_records(&settings.wal_dir()).context("reading the WAL")?;
    let (raw, ..) = super::open_store(settings).await?;
    raw.check().await?;
    let store = as_queries_see_it(raw).await?;
    Ok((store, log.map_or(0, |log| log.records)))
}

/// The view of a store in which its remembered deletions hide what they cover.
pub async fn as_queries_see_it(raw: Arc<dyn Store>) -> anyhow::Result<Arc<dyn Store>> {
    let registry = raw.read_registry().await.context("reading the registry")?;
    note_registry(&registry);
    note_sealed(&*raw).await.context("looking for sealed days")?;
    let deletions = registry.deletions;
    let stores = super::stores(raw);
    stores.masks.set(Deletions::new(&deletions, &stores.understand));
    Ok(stores.store)
}

fn shown(digest: &DatabaseDigest) -> Value {
    let DatabaseDigest { sensors, set, .. } = digest;
    json!({
        "sensors": sensors, "readings": set.readings, "cells": set.cells, "summaries": set.summaries,
        "metadata": set.metadata, "digest": format!("{:032x}", set.sum),
    })
}

fn shown_json(digest: &StoreDigest, unflushed: u64) -> Value {
    let named = |database: &DatabaseDigest| {
        let mut shown = shown(database);
        shown["name"] = json!(database.name);
        shown
    };
    let databases: Vec<Value> = digest.databases.iter().map(named).collect();
    json!({ "databases": databases, "total": shown(&digest.total()), "unflushed_records": unflushed })
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
