//! Whether files have changed, by what the file system says of them.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What a file looked like: device, inode, length, and when it and what stands about it changed; `None` where it
/// cannot be looked at.
type Seen = Option<(u64, u64, u64, i64, i64, i64)>;

/// What several files looked like, at one look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamp(Vec<Seen>);

impl Stamp {
    /// Looks at the files, behind links.
    pub fn of<'a>(files: impl Iterator<Item = &'a Path>) -> Self {
        let seen = |file: &Path| {
            let of = std::fs::metadata(file).ok()?;
            Some((of.dev(), of.ino(), of.len(), of.mtime(), of.mtime_nsec(), of.ctime_nsec()))
        };
        Self(files.map(seen).collect())
    }
}
