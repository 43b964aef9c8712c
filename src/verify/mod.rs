//! Checks every page, sealed day and sensor document of a store, and repairs them on request.
//!
//! The checks (`pages`, `days`, `sensors`) are pure. `walk` reads, `repair` writes, and `print` reports. The store is
//! used only through its trait.

pub mod days;
pub mod finding;
pub mod pages;
pub mod sensors;

mod months;
mod print;
mod repair;
mod unflushed;
mod walk;

use std::io::Write;

use indicatif::ProgressBar;

pub use self::unflushed::unflushed_records;
pub use self::walk::{DatabaseReport, Tally, VerifyOptions};

use self::walk::DatabaseCheck;
use crate::bucket::{StorageError, Store};
use crate::wal::WalContents;

/// Checks all databases and prints the findings to `out`. Returns true if nothing is wrong after all repairs.
///
/// # Errors
/// If the store fails. The check is then incomplete, and its findings so far are printed.
pub async fn run(
    store: &dyn Store,
    options: &VerifyOptions,
    log: Option<&WalContents>,
    progress: &ProgressBar,
    out: &mut (dyn Write + Send),
) -> Result<bool, StorageError> {
    progress.set_length(store.estimate_pages().await?);
    let mut reports = Vec::new();
    let mut outcome = Ok(());
    for database in store.databases().await? {
        let report = DatabaseReport { name: database, ..DatabaseReport::default() };
        let mut check = DatabaseCheck { store, options, progress, report };
        outcome = check.run().await;
        reports.push(check.report);
        if outcome.is_err() {
            break;
        }
    }
    progress.finish_and_clear();
    print::report(out, &reports, log, options.repair);
    outcome?;
    let is_clean = reports.iter().all(|report| report.differences.count == 0);
    print::verdict(out, &reports);
    Ok(is_clean)
}
