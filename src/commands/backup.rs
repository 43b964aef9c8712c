//! `hourglass backup create`: writes a backup into a folder or an archive, file by file, and the manifest last.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use indicatif::ProgressBar;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use sha2::{Digest, Sha256};
use zstd::Encoder;

use super::lifetime;
use super::origin::{BackupPart, BackupStart, Origin, is_refused};
use super::post::{Service, Target};
use super::progress::Progress;
use super::restore::{folder_path, restore_into};
use crate::access::hex;
use crate::backup::manifest::{BackupDatabase, BackupDay, BackupFile, FileRef, date};
use crate::backup::{BackupWriter, Folder, Manifest};
use crate::config::Settings;
use crate::faults;
use crate::verify::{self, VerifyOptions};

/// Subfolder of a backup into which `--prove` restores it.
const SCRATCH: &str = "proof";
/// The level of zstd for files of days and sensors.
const COMPRESSION: i32 = 3;
/// Characters that are escaped in the names of folders.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'_').remove(b'-');

/// The flags of `backup create`.
#[derive(Debug, Args)]
pub struct BackupRequest {
    /// The folder of the backup. It is created if missing.
    #[arg(value_name = "DIR", required_unless_present = "target")]
    pub folder: Option<PathBuf>,
    /// The folder, or - to write an archive to the standard output: a tar of the files of a folder.
    #[arg(long, value_name = "TARGET", conflicts_with = "folder")]
    pub target: Option<PathBuf>,
    #[command(flatten)]
    pub service: Service,
    /// Read the store itself, because every service on it is stopped.
    #[arg(long)]
    pub stopped: bool,
    /// Restore the backup into its subfolder `proof`, verify and compare it, and remove it. The service's metric
    /// hourglass_backup_proved_timestamp_seconds is then the time of this backup. Needs a folder.
    #[arg(long)]
    pub prove: bool,
    /// Maximum time to wait until other instances on the same store have flushed everything they acknowledged.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = lifetime)]
    pub patience: i64,
}

/// The totals of a backup.
#[derive(Debug, Default)]
struct Work {
    written: usize,
    bytes: u64,
    unchanged: usize,
    /// Databases whose sensors or metadata changed.
    described: usize,
}

/// Writes a backup.
pub async fn backup(settings: &Settings, request: &BackupRequest, config: Option<&Path>) -> anyhow::Result<()> {
    let mut target = match folder_path(request.folder.as_deref().or(request.target.as_deref())) {
        Some(path) => BackupWriter::Folder(Folder::create(path)?),
        None if request.prove => bail!("--prove needs a folder: give DIR, or restore the archive elsewhere"),
        None => BackupWriter::archive(File::from(std::io::stdout().as_fd().try_clone_to_owned()?))?,
    };
    let before = target.folder().map(Folder::manifest).transpose()?.flatten().unwrap_or_default();
    let origin = if request.stopped {
        Origin::open_stopped(settings).await?
    } else {
        Origin::Service(Target::from_flags(&request.service)?)
    };
    let patience = Duration::from_secs(request.patience.unsigned_abs());
    let BackupStart { began_ms, databases, tokens, .. } = origin.begin(patience).await?;
    let mut manifest = Manifest::begin(began_ms);
    let mut work = Work::default();
    let mut progress = Progress::new("backup");
    for name in databases {
        let mut days = Vec::new();
        let listed = origin.days(&name).await.with_context(|| format!("listing the days of database {name:?}"))?;
        for (number, day) in listed.iter().enumerate() {
            progress.show(|| format!("{name}, {}: {number} of {} days", date(*day), listed.len()));
            let content = write_part(&mut target, &origin, BackupPart::Day(&name, *day), &before, &mut work).await;
            let content = content.with_context(|| format!("database {name:?}, day {}", date(*day)))?;
            days.extend(content.map(|content| BackupDay { number: day.0, content }));
        }
        let sensors = write_part(&mut target, &origin, BackupPart::Sensors(&name), &before, &mut work).await;
        let sensors = sensors.with_context(|| format!("the sensors of database {name:?}"))?;
        manifest.databases.push(BackupDatabase::new(name, days, sensors));
    }
    drop(progress);
    manifest.tokens = Some(write_small(&mut target, "tokens", "json", &serde_json::to_vec_pretty(&tokens)?)?);
    // Read the settings last: they state up to which time readings may have expired while they were read.
    let database_settings = origin.settings().await.context("reading the databases' settings")?;
    manifest.settings =
        Some(write_small(&mut target, "settings", "json", &serde_json::to_vec_pretty(&database_settings)?)?);
    if let Some(config) = config {
        let content = std::fs::read(config).with_context(|| format!("reading {}", config.display()))?;
        manifest.config = Some(write_small(&mut target, "config", "toml", &content)?);
    }
    manifest.total = manifest.digest().total().set;
    faults::point("days_kept");
    target.complete(&manifest)?;
    let Work { written, bytes, unchanged, described } = work;
    let place = target.folder().map_or("an archive".to_owned(), |folder| folder.file("").display().to_string());
    let summary = format!(
        "backup of {}: {}\n{written} days written ({bytes} bytes), {unchanged} unchanged, sensors of {described} databases written, in {place}",
        manifest.began, manifest.total
    );
    let Some(folder) = target.folder() else {
        eprintln!("{summary}");
        return close(&origin, &manifest, false).await;
    };
    println!("{summary}");
    if request.prove {
        prove(settings, folder, &manifest).await?;
        println!("proved: restored, verified and compared");
    }
    close(&origin, &manifest, request.prove).await
}

/// Records a completed backup.
async fn close(origin: &Origin, manifest: &Manifest, is_proved: bool) -> anyhow::Result<()> {
    let recorded = origin.record_completed(manifest.began_ms, is_proved);
    recorded.context("the backup is complete, but its time was not recorded for the metrics")?;
    if let Origin::Store { store, .. } = &origin {
        store.raw().close().await;
    }
    Ok(())
}

/// Keeps the file of the last backup if the part is unchanged, else writes a new file. Returns `None` if the part is
/// empty.
async fn write_part(
    target: &mut BackupWriter,
    origin: &Origin,
    part: BackupPart<'_>,
    last: &Manifest,
    work: &mut Work,
) -> anyhow::Result<Option<BackupFile>> {
    let (known, stem, extension) = match part {
        BackupPart::Day(database, day) => {
            let stem = format!("days/{}/{}", utf8_percent_encode(database, ESCAPED), date(day));
            (last.day(database, day), stem, "readings")
        }
        BackupPart::Sensors(database) => {
            let known = last.database(database).and_then(|database| database.sensors.as_ref());
            (known, format!("sensors/{}", utf8_percent_encode(database, ESCAPED)), "sensors")
        }
    };
    // Write a file again if it is missing or has another length.
    let known = known.filter(|known| target.folder().is_some_and(|folder| folder.open(&known.file).is_ok()));
    let is_day = matches!(part, BackupPart::Day(..));
    let mut writing = Encoder::new(target.begin(&stem)?, COMPRESSION)?;
    let mut written = origin.write(part, known.map(|known| part.mark(&known.totals)), &mut writing).await;
    if written.as_ref().is_err_and(is_refused) {
        // Readings may have expired while the service sent them. If so, the next answer has the remaining ones.
        target.discard(writing.get_ref());
        writing = Encoder::new(target.begin(&stem)?, COMPRESSION)?;
        written = origin.write(part, None, &mut writing).await;
    }
    let totals = match written {
        Ok(Some(totals)) if totals.sensors > 0 => totals,
        outcome => {
            target.discard(writing.get_ref());
            let is_unchanged = outcome?.is_none();
            let known = known.filter(|_| is_unchanged).cloned();
            work.unchanged += usize::from(is_day && known.is_some());
            return Ok(known);
        }
    };
    // The name contains the digest, so that no file of the last manifest is overwritten.
    let file = target.finish(writing.finish()?, &format!("{stem}-{:016x}.{extension}", part.mark(&totals) >> 64))?;
    work.bytes += file.bytes;
    if is_day {
        faults::point("day_kept");
        work.written += 1;
    } else {
        work.described += 1;
    }
    Ok(Some(BackupFile { totals, file }))
}

/// Writes a small file whose name contains the hash of its content.
fn write_small(target: &mut BackupWriter, stem: &str, extension: &str, content: &[u8]) -> anyhow::Result<FileRef> {
    let mark = hex(&Sha256::digest(content)[..8]);
    Ok(target.write(&format!("{stem}-{mark}.{extension}"), content)?)
}

/// Restores the backup into an embedded store in its folder, verifies and compares that store, and removes it.
async fn prove(settings: &Settings, folder: &Folder, manifest: &Manifest) -> anyhow::Result<()> {
    let scratch = folder.file(SCRATCH);
    remove(&scratch)?;
    let mut scratch_settings = Settings::default();
    scratch_settings.server.data_dir.clone_from(&scratch);
    scratch_settings.page = settings.page.clone();
    scratch_settings.sensors = settings.sensors.clone();
    scratch_settings.query = settings.query.clone();
    scratch_settings.embedded = settings.embedded.clone();
    scratch_settings.seal.after = Duration::from_secs(1);
    let restored = restore_into(&scratch_settings, folder, manifest).await;
    let checked = match restored {
        Ok(_) => check(&scratch_settings).await,
        Err(error) => Err(error),
    };
    remove(&scratch)?;
    checked.with_context(|| format!("the backup in {} is not proved", folder.file("").display()))
}

async fn check(settings: &Settings) -> anyhow::Result<()> {
    let (store, ..) = crate::app::open::open_store(settings).await?;
    let options = VerifyOptions { bounds: settings.caps(), recent: settings.sensors.recent, repair: false };
    let mut out = Vec::new();
    let checked = verify::run(&*store, &options, None, &ProgressBar::hidden(), &mut out).await;
    store.close().await;
    if !checked? {
        bail!("the restored store has problems: {}", String::from_utf8_lossy(&out));
    }
    Ok(())
}

/// Removes a folder if it exists.
pub fn remove(folder: &Path) -> anyhow::Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing {}", folder.display()))
        }
        _ => Ok(()),
    }
}
