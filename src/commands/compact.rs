//! `hourglass compact`: compacts the embedded file of a stopped service.

use std::process::ExitCode;

use anyhow::bail;

use crate::app::data_folder;
use crate::config::Settings;
use crate::store::EmbeddedStore;
use crate::telemetry::logs;

/// Gives space that the file does not need back to the disk.
#[must_use]
pub fn compact(settings: &Settings) -> ExitCode {
    logs::start("warn", &settings.telemetry);
    crate::app::ended(compact_file(settings))
}

fn compact_file(settings: &Settings) -> anyhow::Result<()> {
    if !settings.store.uri.is_embedded() {
        bail!("the readings are in MongoDB, which compacts while the service runs: hourglass job run compact");
    }
    data_folder::must_exist(settings)?;
    let folder = &settings.server.data_dir;
    let (before, after) = EmbeddedStore::compact(folder, settings.embedded.cache_bytes)?;
    println!("{after} bytes, {before} before: {}", data_folder::absolute(folder).display());
    Ok(())
}
