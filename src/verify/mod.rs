//! Whether everything in a store is what it should be: every page and every sensor's document is
//! read and checked, and what can be made anew is, if asked. Checks (`pages`, `sensors`) are pure;
//! `walk` reads, `mend` writes, `print` tells. Knows no store but by the trait.

pub mod finding;
pub mod pages;
pub mod sensors;

mod mend;
mod print;
mod unflushed;
mod walk;

use std::io::Write;

pub use self::pages::PageBounds;
pub use self::print::Progress;
pub use self::unflushed::unflushed_records;
pub use self::walk::{DatabaseReport, Tally};

use crate::bucket::{StorageError, Store};
use crate::log::Inspected;

/// What to check against, and whether to mend.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// The bounds of a page.
    pub bounds: PageBounds,
    /// Most recent readings in a sensor's document.
    pub recent: usize,
    /// Whether what can be made anew is.
    pub repair: bool,
}

/// Checks all databases and tells on `out` what was found; whether nothing is wrong any more.
///
/// # Errors
/// The store does not answer, and the check was not completed. What had been found was told.
pub async fn run(
    store: &dyn Store,
    options: &Options,
    log: Option<&Inspected>,
    progress: &mut Progress,
    out: &mut (dyn Write + Send),
) -> Result<bool, StorageError> {
    progress.begin(store.estimate_pages().await?);
    let mut reports = Vec::new();
    let mut outcome = Ok(());
    for database in store.databases().await? {
        let mut report = DatabaseReport::new(database);
        outcome = walk::check_database(store, options, progress, &mut report).await;
        reports.push(report);
        if outcome.is_err() {
            break;
        }
    }
    progress.end();
    print::report(out, &reports, log, options.repair);
    outcome?;
    let clean = reports.iter().all(|report| report.differences.count == 0);
    print::verdict(out, &reports);
    Ok(clean)
}
