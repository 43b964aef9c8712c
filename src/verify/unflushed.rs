//! Inspects the records of a WAL that may not be in the store yet.

use std::path::Path;

use crate::wal::{Folder, WalContents, WalOpenError, inspect};

/// Inspects the records of a WAL that are not truncated. Returns `None` if there is no WAL. Opens it read-only and
/// without a lock, so that a service can keep running.
///
/// # Errors
/// If the WAL cannot be read, or if a later version wrote it.
pub fn unflushed_records(folder: &Path) -> Result<Option<WalContents>, WalOpenError> {
    if !folder.is_dir() {
        return Ok(None);
    }
    inspect(&Folder::read_only(folder)).map(Some)
}
