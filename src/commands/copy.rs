//! `hourglass backup copy`: copies everything from one store to another, which must be empty.

use anyhow::{Context, bail};

use super::digest::{compute_digest, open_stopped};
use super::fill::Target;
use super::progress::Progress;
use super::tokens::token_store;
use crate::app::data_folder::absolute;
use crate::backup::manifest::date;
use crate::backup::read::list_days;
use crate::backup::{Fill, Parts, ReadBounds, Sensors};
use crate::clock::wall_ms;
use crate::config::Settings;
use crate::faults;
use crate::reading::stamp::first_stamp;
use crate::store::MergedView;

/// Returns the name of a store: the path of its data folder, or the identity of its URI.
fn store_name(settings: &Settings) -> String {
    if settings.store.uri.is_embedded() {
        absolute(&settings.server.data_dir).display().to_string()
    } else {
        settings.store.uri.identity()
    }
}

/// Copies settings, readings, sensors and tokens, and compares the digests of both stores.
pub async fn copy(source_settings: &Settings, target_settings: &Settings) -> anyhow::Result<()> {
    if store_name(source_settings) == store_name(target_settings) {
        bail!("both stores are the same: {}", store_name(source_settings));
    }
    let source = open_stopped(source_settings).await?;
    let now = u64::try_from(wall_ms()).unwrap_or_default();
    let stamp = first_stamp(now).max(source.raw().read_registry().await?.greatest_watermark());
    let mut target = Target::open(target_settings, "copy", store_name(source_settings), stamp).await?;
    // The settings come first, because they determine how days are sealed.
    let rows = source.raw().read_settings().await?;
    target.put_settings(rows).await.context("writing the databases' settings")?;
    copy_databases(source_settings, &source, &mut target).await?;
    target.put_tokens(&token_store(source_settings).await?.tokens().await?).await.context("writing the tokens")?;
    let expected = compute_digest(source_settings, &source).await?;
    let found = target.finish(target_settings, &expected).await?;
    source.raw().close().await;
    println!("copied {} to {}: {}", store_name(source_settings), store_name(target_settings), found.total());
    Ok(())
}

async fn copy_databases(source_settings: &Settings, source: &MergedView, target: &mut Target) -> anyhow::Result<()> {
    let bounds = ReadBounds::for_memory(source_settings.query.request_bytes);
    let mut progress = Progress::new("copy");
    for database in source.raw().databases().await? {
        let days = list_days(source, &database).await?;
        let store = target.store.clone();
        let mut fill = Fill::begin(&store, &database, target.options).await?;
        for (number, day) in days.iter().enumerate() {
            let is_done = target.mark.is_done(&database, *day);
            let mut parts = Parts::new(source, &database, day.hours(), bounds);
            while let Some(piece) = parts.next().await.context("reading the store")? {
                progress.show(|| format!("{database}, {}: {number} of {} days", date(*day), days.len()));
                if is_done {
                    fill.skip(&piece);
                } else {
                    fill.write(piece).await.context("writing to the store")?;
                }
            }
            if !is_done {
                fill.flush().await.context("writing to the store")?;
                target.mark.day_done(&database, *day).context("marking what is done")?;
                faults::point("day_copied");
            }
        }
        let mut sensors = Sensors::new(source, &database);
        while let Some(document) = sensors.next().await.context("reading the sensors")? {
            fill.add_sensor(&document);
        }
        fill.finish().await.with_context(|| format!("writing the sensors of database {database:?}"))?;
    }
    Ok(())
}
