//! `hourglass compact`: gives space that the embedded store's file does not need any more back to the disk.

use std::process::ExitCode;

use anyhow::bail;

use super::data_folder;
use crate::config::Settings;
use crate::store::EmbeddedStore;
use crate::telemetry::logs;

/// Compacts the file of a service that is stopped.
#[must_use]
pub fn compact(settings: &Settings) -> ExitCode {
    logs::start("warn", &settings.telemetry);
    match compacted(settings) {
        Ok((before, after)) => {
            println!(
                "{} bytes, {before} before: {}",
                after,
                data_folder::absolute(&settings.server.data_dir).display()
            );
            ExitCode::SUCCESS
        }
        Err(error) => super::failed(&error),
    }
}

fn compacted(settings: &Settings) -> anyhow::Result<(u64, u64)> {
    data_folder::must_exist(settings)?;
    if !settings.store.uri.is_embedded() {
        bail!(
            "the store is MongoDB, which does this itself: run db.runCommand({{compact: \"DATABASE.buckets\"}}) on each of its nodes \
             (docs/sealed-days.md#space)"
        );
    }
    Ok(EmbeddedStore::compact(&settings.server.data_dir, settings.embedded.cache_bytes)?)
}
