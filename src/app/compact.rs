//! `hourglass compact`: gives space that the store does not need any more back to the disk.

use std::process::ExitCode;

use anyhow::Context;

use super::data_folder;
use crate::config::Settings;
use crate::store::EmbeddedStore;
use crate::telemetry::logs;

/// Compacts the embedded file, or lists MongoDB's collections and with `runs` compacts them.
#[must_use]
pub fn compact(settings: &Settings, runs: bool) -> ExitCode {
    logs::start("warn", &settings.telemetry);
    let done =
        if settings.store.uri.is_embedded() { of_file(settings) } else { super::run_to_end(of_mongo(settings, runs)) };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => super::failed(&error),
    }
}

fn of_file(settings: &Settings) -> anyhow::Result<()> {
    data_folder::must_exist(settings)?;
    let folder = &settings.server.data_dir;
    let (before, after) = EmbeddedStore::compact(folder, settings.embedded.cache_bytes)?;
    println!("{after} bytes, {before} before: {}", data_folder::absolute(folder).display());
    Ok(())
}

/// MongoDB needs no service for it.
async fn of_mongo(settings: &Settings, runs: bool) -> anyhow::Result<()> {
    let store = super::open_mongo(settings).await?;
    let spaces = store.reusable().await?;
    for (name, bytes, free) in &spaces {
        println!("{name}: {bytes} bytes, of which {free} hold nothing");
    }
    if !runs {
        println!("MongoDB gives it back with --run: see docs/sealed-days.md#space");
        return Ok(());
    }
    for (name, ..) in spaces.iter().filter(|(_, _, free)| *free > 0) {
        let freed = store.compact(name).await.with_context(|| format!("compacting {name}"))?;
        println!("{name}: {freed} bytes given back");
    }
    Ok(())
}
