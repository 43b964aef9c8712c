//! Checks and creates the data folder. A command that only reads never creates one, and `serve` warns of a new folder
//! near an old one, because its path is probably wrong.

use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use super::not_started::NotStarted;
use crate::backup::{Operation, UnfinishedMark};
use crate::config::Settings;
use crate::store::embedded::FILE_NAME;

/// The data folders of packages, units and images.
const SYSTEM_FOLDERS: [&str; 2] = ["/var/lib/hourglass", "/var/lib/private/hourglass"];
/// The default name of the data folder.
const DEFAULT_NAME: &str = "data";
/// Maximum number of entries of the parent folder that are searched.
const SIBLINGS_MAX: usize = 256;

/// Creates the data folder if it is missing. Only its owner can access it and the files in it.
pub fn make_private(folder: &Path) -> anyhow::Result<()> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.with_context(|| NotStarted::folder(format!("creating {}", folder.display())))
}

/// Returns an error if a restore or copy into the data folder is incomplete.
pub fn must_be_finished(settings: &Settings) -> anyhow::Result<()> {
    let folder = &settings.server.data_dir;
    let operation = UnfinishedMark::read(folder)
        .with_context(|| format!("reading the mark of a restore in {}", folder.display()))?;
    let Some(Operation { command, source, .. }) = operation else { return Ok(()) };
    bail!(
        "`hourglass backup {command}` from {source} into the data folder {} is incomplete: run the same command again, or remove the folder \
         (with MongoDB also the database) to start over",
        folder.display()
    )
}

/// Returns the absolute path of a folder. If it exists, links are resolved.
pub fn absolute(folder: &Path) -> PathBuf {
    folder.canonicalize().or_else(|_| std::path::absolute(folder)).unwrap_or_else(|_| folder.to_owned())
}

/// Returns an error if the data folder does not exist, for commands that only read. With MongoDB, the default folder
/// may be missing, because such a command can run on another machine than the service.
pub fn must_exist(settings: &Settings) -> anyhow::Result<()> {
    let folder = &settings.server.data_dir;
    let is_default = *folder == Settings::default().server.data_dir;
    match std::fs::metadata(folder) {
        Ok(meta) if meta.is_dir() => Ok(()),
        Ok(_) => bail!("{} is not a folder: {WANTED}", absolute(folder).display()),
        Err(error) if error.kind() == ErrorKind::NotFound && is_default && !settings.store.uri.is_embedded() => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            bail!("there is no folder {}: {WANTED}", absolute(folder).display())
        }
        Err(error) => Err(error).with_context(|| format!("reading {}", absolute(folder).display())),
    }
}

/// As [`must_exist`], and returns an error if the embedded store is missing, because opening would create it.
pub fn must_have_store(settings: &Settings) -> anyhow::Result<()> {
    must_exist(settings)?;
    if settings.store.uri.is_embedded() {
        let file = settings.server.data_dir.join(FILE_NAME);
        std::fs::metadata(&file).with_context(|| format!("there is no store: {}", file.display()))?;
    }
    Ok(())
}

const WANTED: &str = "name the service's data folder with --data-dir (server.data_dir)";

/// Warns if the data folder is new and another one is near, because that one probably has the readings. Call this
/// before the folder is created.
pub fn warn_of_others(settings: &Settings) {
    let folder = &settings.server.data_dir;
    let others = if holds_data(folder) { Vec::new() } else { near(folder) };
    let Some(other) = others.first() else { return };
    tracing::warn!(
        folder = %absolute(folder).display(),
        other = %other.display(),
        others = others.len(),
        "the data folder is new, but another one of hourglass is near: if readings or tokens are missing, set server.data_dir (--data-dir) to that one"
    );
}

/// Returns true if a folder has files of hourglass.
fn holds_data(folder: &Path) -> bool {
    let has = |name: &str| folder.join(name).is_file();
    let is_segment = |path: PathBuf| path.extension().is_some_and(|extension| extension == "segment");
    let log = std::fs::read_dir(folder.join("log")).into_iter().flatten().flatten();
    [FILE_NAME, "tokens.json", "tokens.cache.json"].into_iter().any(has)
        || log.map(|entry| entry.path()).any(is_segment)
}

/// Searches other data folders in the places that a wrong path is likely to miss.
fn near(folder: &Path) -> Vec<PathBuf> {
    let own = absolute(folder);
    let parent = own.parent().map(Path::to_owned);
    let siblings = parent.iter().flat_map(std::fs::read_dir).flatten().flatten().take(SIBLINGS_MAX);
    let mut places: Vec<PathBuf> = siblings.map(|entry| entry.path()).collect();
    places.extend(parent);
    places.extend(SYSTEM_FOLDERS.map(PathBuf::from));
    places.push(PathBuf::from(DEFAULT_NAME));
    if let Some(program) = std::env::current_exe().ok().as_deref().and_then(Path::parent) {
        places.extend([program.to_owned(), program.join(DEFAULT_NAME)]);
    }
    let mut found: Vec<PathBuf> =
        places.iter().filter(|place| holds_data(place)).map(|place| absolute(place)).collect();
    found.retain(|place| *place != own);
    found.sort();
    found.dedup();
    found
}
