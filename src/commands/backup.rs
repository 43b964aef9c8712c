//! `hourglass backup`: writes a backup into a folder, file by file, and the manifest last.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use indicatif::ProgressBar;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use sha2::{Digest, Sha256};

use super::lifetime;
use super::origin::{BackupPart, Begun, Origin, is_refused};
use super::post::{Service, Target};
use super::progress::Progress;
use super::restore::restore_into;
use crate::access::hex;
use crate::backup::folder::MANIFEST;
use crate::backup::manifest::{Kept, KeptDatabase, KeptDay, KeptFile, date};
use crate::backup::{Folder, Manifest};
use crate::config::Settings;
use crate::faults;
use crate::verify::{self, VerifyOptions};

/// In a backup's folder: where `--prove` restores it.
const SCRATCH: &str = "proof";
/// Everything but these is escaped in the names of folders.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'_').remove(b'-');

/// The flags of `backup create`.
#[derive(Debug, Args)]
pub struct BackupRequest {
    /// The folder of the backup. It is made.
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    #[command(flatten)]
    pub service: Service,
    /// Every service on the store is stopped: read the store itself.
    #[arg(long)]
    pub stopped: bool,
    /// Restore the backup into its subfolder `proof`, verify that, compare, and remove it; then the service's metric
    /// hourglass_backup_proved_timestamp_seconds tells the time of this backup.
    #[arg(long)]
    pub prove: bool,
    /// How long to wait until other instances on the same store have stored what they acknowledged.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = lifetime)]
    pub patience: i64,
}

/// What a backup wrote.
#[derive(Debug, Default)]
struct Work {
    written: usize,
    bytes: u64,
    unchanged: usize,
    /// Databases whose sensors or metadata changed.
    described: usize,
}

/// Makes a backup.
pub async fn backup(settings: &Settings, request: &BackupRequest, config: Option<&Path>) -> anyhow::Result<()> {
    let folder = Folder::create(&request.folder)?;
    let before = folder.manifest()?.unwrap_or_default();
    let origin = match request.stopped {
        true => Origin::stopped(settings).await?,
        false => Origin::Service(Target::of(&request.service)?),
    };
    let patience = Duration::from_secs(request.patience.unsigned_abs());
    let Begun { began_ms, databases, tokens, .. } = origin.begin(patience).await?;
    let mut manifest = Manifest::begin(began_ms);
    let (mut work, mut progress) = (Work::default(), Progress::new("backup"));
    for name in databases {
        let mut days = Vec::new();
        let listed = origin.days(&name).await.with_context(|| format!("listing the days of database {name:?}"))?;
        for (number, day) in listed.iter().enumerate() {
            progress.tell(|| format!("{name}, {}: {number} of {} days", date(*day), listed.len()));
            let kept = keep(&folder, &origin, BackupPart::Day(&name, *day), &before, &mut work).await;
            let kept = kept.with_context(|| format!("database {name:?}, day {}", date(*day)))?;
            days.extend(kept.map(|kept| KeptDay { number: day.0, kept }));
        }
        let sensors = keep(&folder, &origin, BackupPart::Sensors(&name), &before, &mut work).await;
        let sensors = sensors.with_context(|| format!("the sensors of database {name:?}"))?;
        manifest.databases.push(KeptDatabase::new(name, days, sensors));
    }
    drop(progress);
    manifest.tokens = Some(keep_small(&folder, "tokens", "json", &serde_json::to_vec_pretty(&tokens)?)?);
    // Last: they say up to where readings may have expired while they were read.
    let kept = origin.settings().await.context("reading the databases' settings")?;
    manifest.settings = Some(keep_small(&folder, "settings", "json", &serde_json::to_vec_pretty(&kept)?)?);
    if let Some(config) = config {
        let content = std::fs::read(config).with_context(|| format!("reading {}", config.display()))?;
        manifest.config = Some(keep_small(&folder, "config", "toml", &content)?);
    }
    manifest.total = manifest.digest().total().set;
    faults::point("days_kept");
    folder.write(MANIFEST, &serde_json::to_vec_pretty(&manifest)?)?;
    faults::point("manifest_kept");
    // From here on the new backup is the one that is restored.
    folder.remove_others(&manifest)?;
    let Work { written, bytes, unchanged, described } = work;
    println!("backup of {}: {}", manifest.began, manifest.total);
    println!(
        "{written} days written ({bytes} bytes), {unchanged} unchanged, sensors of {described} databases written, in {}",
        request.folder.display()
    );
    if request.prove {
        prove(settings, &request.folder, &folder, &manifest).await?;
        origin.proved(manifest.began_ms)?;
        println!("proved: restored, verified and compared");
    }
    if let Origin::Store { store, .. } = &origin {
        store.raw().close().await;
    }
    Ok(())
}

/// Keeps a part: the file of the last backup if it still is as it was, else a new one. `None` if there is nothing of it.
async fn keep(
    folder: &Folder,
    origin: &Origin,
    part: BackupPart<'_>,
    before: &Manifest,
    work: &mut Work,
) -> anyhow::Result<Option<Kept>> {
    let (known, stem, extension) = match part {
        BackupPart::Day(database, day) => {
            let stem = format!("days/{}/{}", utf8_percent_encode(database, PLAIN), date(day));
            (before.day(database, day), stem, "readings")
        }
        BackupPart::Sensors(database) => {
            let known = before.database(database).and_then(|kept| kept.sensors.as_ref());
            (known, format!("sensors/{}", utf8_percent_encode(database, PLAIN)), "sensors")
        }
    };
    // A file that is gone, or has another length, is written again.
    let known = known.filter(|kept| folder.open(&kept.file).is_ok());
    let is_day = matches!(part, BackupPart::Day(..));
    let mut writing = folder.begin(&stem)?;
    let mut written = origin.write(part, known.map(|kept| part.mark(&kept.held)), &mut writing).await;
    if written.as_ref().is_err_and(is_refused) {
        // Its readings may have expired while they were sent: then the next answer is what is left of them.
        writing.drop_file();
        writing = folder.begin(&stem)?;
        written = origin.write(part, None, &mut writing).await;
    }
    let held = match written {
        Ok(Some(held)) if held.sensors > 0 => held,
        outcome => {
            writing.drop_file();
            let is_unchanged = outcome?.is_none();
            let known = known.filter(|_| is_unchanged).cloned();
            work.unchanged += usize::from(is_day && known.is_some());
            return Ok(known);
        }
    };
    // Named by what it holds: no file that the last manifest names is replaced by another one.
    let file = folder.finish(writing, &format!("{stem}-{:016x}.{extension}", part.mark(&held) >> 64))?;
    work.bytes += file.bytes;
    if is_day {
        faults::point("day_kept");
        work.written += 1;
    } else {
        work.described += 1;
    }
    Ok(Some(Kept { held, file }))
}

/// Keeps a small file, named by what it holds.
fn keep_small(folder: &Folder, stem: &str, extension: &str, content: &[u8]) -> anyhow::Result<KeptFile> {
    let mark = hex(&Sha256::digest(content)[..8]);
    Ok(folder.write(&format!("{stem}-{mark}.{extension}"), content)?)
}

/// Restores the backup into an embedded store beside it, checks and compares that, and removes it.
async fn prove(settings: &Settings, path: &Path, folder: &Folder, manifest: &Manifest) -> anyhow::Result<()> {
    let scratch = folder.file(SCRATCH);
    remove(&scratch)?;
    let mut of_scratch = Settings::default();
    of_scratch.server.data_dir.clone_from(&scratch);
    of_scratch.page = settings.page.clone();
    of_scratch.sensors = settings.sensors.clone();
    of_scratch.query = settings.query.clone();
    of_scratch.embedded = settings.embedded.clone();
    of_scratch.seal.after = Duration::from_secs(1);
    let restored = restore_into(&of_scratch, folder, manifest).await;
    let checked = match restored {
        Ok(_) => check(&of_scratch).await,
        Err(error) => Err(error),
    };
    remove(&scratch)?;
    checked.with_context(|| format!("the backup in {} is not proved", path.display()))
}

async fn check(settings: &Settings) -> anyhow::Result<()> {
    let (store, ..) = crate::app::open::open_store(settings).await?;
    let options = VerifyOptions { bounds: settings.caps(), recent: settings.sensors.recent, repair: false };
    let mut out = Vec::new();
    let checked = verify::run(&*store, &options, None, &ProgressBar::hidden(), &mut out).await;
    store.close().await;
    if !checked? {
        bail!("the restored store is not sound: {}", String::from_utf8_lossy(&out));
    }
    Ok(())
}

fn remove(folder: &Path) -> anyhow::Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing {}", folder.display()))
        }
        _ => Ok(()),
    }
}
