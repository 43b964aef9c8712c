//! Detects changed files by their metadata.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A file's device, inode, length, modification time (seconds, nanoseconds) and the nanoseconds of its last status
/// change; `None` if the file cannot be examined.
type FileState = Option<(u64, u64, u64, i64, i64, i64)>;

/// The metadata of several files at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilesVersion(Vec<FileState>);

impl FilesVersion {
    /// Reads the metadata; follows symbolic links.
    pub fn of<'a>(files: impl Iterator<Item = &'a Path>) -> Self {
        let seen = |file: &Path| {
            let of = std::fs::metadata(file).ok()?;
            Some((of.dev(), of.ino(), of.len(), of.mtime(), of.mtime_nsec(), of.ctime_nsec()))
        };
        Self(files.map(seen).collect())
    }
}
