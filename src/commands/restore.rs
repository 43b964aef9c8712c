//! `hourglass backup restore`: writes a backup into an empty store, reads it back, and compares.

use std::io::stdin;
use std::path::Path;

use anyhow::{Context, bail};

use super::backup::remove;
use super::fill::Target;
use super::progress::Progress;
use crate::access::Token;
use crate::backup::form::FrameItem;
use crate::backup::manifest::{BackupDay, BackupFile, date};
use crate::backup::{Fill, Folder, Manifest, StoreDigest, archive};
use crate::config::Settings;
use crate::faults;
use crate::files;
use crate::ingest::{check_database_name, plain, settings_of_json};
use crate::reading::Day;
use crate::reading::stamp::first_stamp;

/// Name in the data folder of the configuration file of a backup.
const CONFIG: &str = "restored.toml";

/// Folder in the data folder for the files of an archive while it is restored.
const ARCHIVE: &str = "restore.archive";

/// Returns the folder of a backup, or `None` for an archive on a standard stream.
pub fn folder_path(place: Option<&Path>) -> Option<&Path> {
    place.filter(|place| *place != Path::new("-"))
}

/// Reads the manifest of a folder.
fn read_manifest(folder: &Folder) -> anyhow::Result<Manifest> {
    let place = folder.file("");
    let missing = || format!("there is no finished backup in {}: it has no manifest.json", place.display());
    folder.manifest()?.with_context(missing)
}

/// Checks all files of a backup without a store.
pub fn verify_backup(source: &Path) -> anyhow::Result<()> {
    let manifest = match folder_path(Some(source)) {
        Some(path) => {
            let folder = Folder::existing(path);
            let manifest = read_manifest(&folder)?;
            manifest.files().try_for_each(|file| folder.check(file))?;
            manifest
        }
        None => archive::read(stdin().lock(), None)?,
    };
    let files = manifest.files().count();
    let bytes: u64 = manifest.files().map(|file| file.bytes).sum();
    println!("the backup of {} is complete: {}", manifest.began, manifest.total);
    println!("{} databases, {files} files, {bytes} bytes", manifest.databases.len());
    Ok(())
}

/// Restores the backup in a folder, or from an archive.
pub async fn restore(settings: &Settings, source: Option<&Path>) -> anyhow::Result<()> {
    if let Some(path) = folder_path(source) {
        let folder = Folder::existing(path);
        return restore_from(settings, &folder, &read_manifest(&folder)?).await;
    }
    // A store that is in use must not get the files of an archive.
    Target::check(settings).await?;
    let path = settings.server.data_dir.join(ARCHIVE);
    let folder = Folder::create(&path)?;
    folder.remove_others(&Manifest::default())?;
    let restored = match archive::read(stdin().lock(), Some(&folder)) {
        Ok(manifest) => restore_from(settings, &folder, &manifest).await,
        Err(error) => Err(error.into()),
    };
    remove(&path)?;
    restored
}

async fn restore_from(settings: &Settings, folder: &Folder, manifest: &Manifest) -> anyhow::Result<()> {
    let digest = restore_into(settings, folder, manifest).await?;
    println!("restored the backup of {}: {}", manifest.began, digest.total());
    if manifest.config.is_some() {
        let config_path = settings.server.data_dir.join(CONFIG);
        println!("the configuration file of the backup is {}; it is not in use", config_path.display());
    }
    Ok(())
}

/// Restores a backup into an empty store. Returns the digest of the store, which is that of the backup.
pub async fn restore_into(settings: &Settings, folder: &Folder, manifest: &Manifest) -> anyhow::Result<StoreDigest> {
    let source = format!("the backup of {} with the digest {:032x}", manifest.began, manifest.total.sum);
    let stamp = first_stamp(manifest.began_ms);
    let mut target = Target::open(settings, "restore", source, stamp).await?;
    if let Some(settings) = &manifest.settings {
        // The settings come first, because they determine how days are sealed.
        let rows = serde_json::from_slice(&folder.read(settings)?).context("reading the databases' settings")?;
        let rows = settings_of_json(&rows);
        rows.iter().try_for_each(|(name, _)| check_database_name(name))?;
        target.put_settings(rows).await.context("writing the databases' settings")?;
    }
    let mut progress = Progress::new("restore");
    let all = manifest.databases.iter().map(|database| database.days.len()).sum::<usize>();
    let mut written = 0;
    for database in &manifest.databases {
        let store = target.store.clone();
        let mut fill = Fill::begin(&store, &database.name, target.options).await?;
        for day in &database.days {
            let name = || plain(&database.name, usize::MAX);
            progress.show(|| format!("{written} of {all} days, {} {}", name(), date(Day(day.number))));
            restore_day(folder, &database.name, day, &mut target, &mut fill).await?;
            written += 1;
        }
        if let Some(sensors) = &database.sensors {
            restore_file(folder, sensors, &mut fill, false).await?;
        }
        fill.finish().await.with_context(|| format!("writing the sensors of database {:?}", database.name))?;
    }
    drop(progress);
    if let Some(tokens) = &manifest.tokens {
        let tokens: Vec<Token> = serde_json::from_slice(&folder.read(tokens)?).context("reading the tokens")?;
        if let Some(strange) = tokens.iter().find(|token| !token.is_valid()) {
            bail!("the backup has the token {:?}, whose name or scopes are invalid", strange.name);
        }
        target.put_tokens(&tokens).await.context("writing the tokens")?;
    }
    if let Some(config) = &manifest.config {
        let config_path = settings.server.data_dir.join(CONFIG);
        files::replace(&config_path, &folder.read(config)?, true)
            .with_context(|| format!("writing {}", config_path.display()))?;
    }
    target.finish(settings, &manifest.digest()).await
}

async fn restore_day(
    folder: &Folder,
    database: &str,
    day: &BackupDay,
    target: &mut Target,
    fill: &mut Fill<'_>,
) -> anyhow::Result<()> {
    let number = Day(day.number);
    let is_done = target.mark.is_done(database, number);
    restore_file(folder, &day.content, fill, is_done).await?;
    if !is_done {
        fill.flush().await.context("writing to the store")?;
        target.mark.day_done(database, number).context("marking what is done")?;
        faults::point("day_restored");
    }
    Ok(())
}

/// Reads a file and checks it against the manifest. Writes its content unless an earlier run did.
async fn restore_file(folder: &Folder, source: &BackupFile, fill: &mut Fill<'_>, is_done: bool) -> anyhow::Result<()> {
    let BackupFile { file, totals: expected } = source;
    let mut frames = folder.frames(file)?;
    let totals = loop {
        match frames.read().map_err(|error| folder.damaged_error(file, &error))? {
            FrameItem::Piece(piece) if is_done => fill.skip(&piece),
            FrameItem::Piece(piece) => fill.write(piece).await.context("writing to the store")?,
            FrameItem::Sensor(document) => fill.add_sensor(&document),
            FrameItem::End(totals) => break totals,
        }
    };
    if totals != *expected {
        bail!(folder.damaged_error(file, &"it is damaged: it differs from the file in the manifest"));
    }
    Ok(())
}
