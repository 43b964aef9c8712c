//! The modes of the data folder: nobody but the service's user may read sensor keys, or hold a lock. New files are made
//! so; what an earlier version or another umask left is mended at the start.

use std::fs::{self, DirBuilder, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::config::Settings;

/// What group and others may do.
const OTHERS: u32 = 0o077;
/// The names of hourglass's files and folders begin with one of these; it leaves all others alone.
const OURS: [&str; 7] = ["hourglass.redb", "dead-letters", "tokens.", "admin.", "audit.", "rejections", "request-keys"];
/// The same of the WAL's folder, beside its segments.
const OF_WAL: [&str; 5] = ["checkpoint", "fresh", "joined", "lock", "quarantine"];
/// The folder that file systems make in their root.
const OF_FILE_SYSTEM: &str = "lost+found";

/// Makes the data folder for its owner only, unless it is there.
pub fn make_private(folder: &Path) -> anyhow::Result<()> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.with_context(|| format!("creating {}", folder.display()))
}

/// What [`mend`] did.
#[derive(Debug, Default)]
struct Mended {
    changed: usize,
    /// The first that could not be changed, with the reason.
    failed: Option<(PathBuf, io::Error)>,
    failures: usize,
}

/// Takes from group and others what they may do with hourglass's files, and tells so once. Where that fails, the service
/// goes on: on some volumes modes cannot be changed.
pub fn mend(settings: &Settings) {
    let (data, wal) = (&settings.server.data_dir, settings.wal_dir());
    let mut mended = Mended::default();
    let strangers = strangers(data, &wal);
    if strangers.is_empty() {
        mended.take(data, 0o700);
    } else {
        let (folder, first) = (data.display(), strangers[0].as_str());
        tracing::debug!(%folder, first, "other files are in the data folder: its own mode stays as it is");
    }
    entries(data).iter().filter(|(path, _)| is_ours(path)).for_each(|entry| mended.entry(entry));
    mended.wal(&wal);
    let folder = data.display();
    if mended.changed > 0 {
        let count = mended.changed;
        tracing::warn!(%folder, count, "other users could read or lock files of hourglass; now only its own user can");
    }
    if let Some((path, error)) = mended.failed {
        let (path, count) = (path.display(), mended.failures);
        tracing::warn!(%path, count, %error, "other users may read or lock files of hourglass: their modes cannot be changed");
    }
}

impl Mended {
    /// The WAL's folder with its files, and in it the folder of damaged bytes.
    fn wal(&mut self, wal: &Path) {
        let (ours, strange): (Vec<_>, Vec<_>) = entries(wal).into_iter().partition(|(path, _)| is_of_wal(path));
        if !ours.is_empty() && strange.iter().all(|(path, _)| path.ends_with(OF_FILE_SYSTEM)) {
            self.take(wal, 0o700);
        }
        ours.iter().for_each(|entry| self.entry(entry));
    }

    /// A file, or a folder with its files.
    fn entry(&mut self, (path, meta): &(PathBuf, fs::Metadata)) {
        if meta.is_dir() {
            self.take(path, 0o700);
            entries(path).iter().filter(|(_, meta)| meta.is_file()).for_each(|(path, _)| self.take(path, 0o600));
        } else if meta.is_file() {
            self.take(path, 0o600);
        }
    }

    fn take(&mut self, path: &Path, mode: u32) {
        let Ok(meta) = fs::metadata(path) else { return };
        if meta.permissions().mode() & OTHERS == 0 {
            return;
        }
        match fs::set_permissions(path, Permissions::from_mode(mode)) {
            Ok(()) => self.changed += 1,
            Err(error) => {
                self.failures += 1;
                self.failed.get_or_insert((path.to_owned(), error));
            }
        }
    }
}

/// The names in the data folder that are not hourglass's, such as those of a home folder.
fn strangers(data: &Path, wal: &Path) -> Vec<String> {
    let is_known = |path: &Path| is_ours(path) || path == wal || path.ends_with(OF_FILE_SYSTEM);
    let strange = entries(data).into_iter().map(|(path, _)| path).filter(|path| !is_known(path));
    strange.map(|path| path.file_name().unwrap_or_default().to_string_lossy().into_owned()).collect()
}

fn is_ours(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    OURS.iter().any(|ours| name.starts_with(ours))
}

fn is_of_wal(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.ends_with(".segment") || OF_WAL.iter().any(|ours| name.starts_with(ours))
}

/// What is in a folder, without following links; nothing if it cannot be read.
fn entries(folder: &Path) -> Vec<(PathBuf, Metadata)> {
    let found = fs::read_dir(folder).into_iter().flatten().flatten();
    found.filter_map(|entry| Some((entry.path(), entry.metadata().ok()?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A volume whose modes the service may not change, as with `fsGroup`; `/proc/self` refuses even root.
    #[test]
    fn what_cannot_be_changed_is_counted_and_the_rest_goes_on() {
        let mut mended = Mended::default();
        mended.take(Path::new("/proc/self/status"), 0o600);
        mended.take(Path::new("/proc/self/stat"), 0o600);
        assert_eq!((mended.changed, mended.failures), (0, 2));
        assert_eq!(mended.failed.map(|(path, _)| path), Some(PathBuf::from("/proc/self/status")));
    }
}
