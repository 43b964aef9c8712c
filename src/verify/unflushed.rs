//! What the log holds that the store need not have yet.

use std::path::Path;

use crate::log::{Folder, Inspected, OpenError, inspect};

/// What of the log in this folder is not released, or `None` where there is no log. Opens it for
/// reading only and takes no lock, so that a service may run meanwhile.
///
/// # Errors
/// The log cannot be read, or is of a later program.
pub fn unflushed_records(folder: &Path) -> Result<Option<Inspected>, OpenError> {
    if !folder.is_dir() {
        return Ok(None);
    }
    inspect(&Folder::read_only(folder)).map(Some)
}
