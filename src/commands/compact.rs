//! `hourglass compact`: compacts the embedded file of a stopped service.

use anyhow::bail;

use crate::app::data_folder;
use crate::config::Settings;
use crate::store::EmbeddedStore;

/// Returns the unused space of the embedded file to the disk.
pub async fn compact(settings: &Settings) -> anyhow::Result<()> {
    if !settings.store.uri.is_embedded() {
        bail!("the readings are in MongoDB, which compacts while the service runs: hourglass job run compact");
    }
    data_folder::must_exist(settings)?;
    let folder = &settings.server.data_dir;
    let (before, after) = EmbeddedStore::compact(folder, settings.embedded.cache_bytes)?;
    println!("{after} bytes, {before} before: {}", data_folder::absolute(folder).display());
    Ok(())
}
