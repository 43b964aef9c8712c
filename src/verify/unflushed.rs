//! What the log holds that the store need not have yet.

use std::path::Path;

use crate::log::{Folder, Inspected, OpenError, inspect};

/// The log's folder within the data folder.
const LOG: &str = "log";

/// What of the log in this data folder is not released, or `None` where there is no log. Opens it
/// for reading only and takes no lock, so that a service may run meanwhile. **The one place that
/// knows where the log lies.**
///
/// # Errors
/// The log cannot be read, or is of a later program.
pub fn unflushed_records(data_dir: &Path) -> Result<Option<Inspected>, OpenError> {
    let folder = data_dir.join(LOG);
    if !folder.is_dir() {
        return Ok(None);
    }
    inspect(&Folder::read_only(folder)).map(Some)
}
