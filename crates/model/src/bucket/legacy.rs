//! Compatibility with WALs and pages from versions without stamps. To be removed in the next version.
//!
//! Such a WAL numbers its records from 1, and such a page stores, per WAL, the highest number merged into it
//! (`applied`). A number counts as a stamp below every real one, so records of one WAL still merge in their order. The
//! number alone does not tell whether a page already contains a record whose value another instance has corrected
//! since; `applied` does.

use super::page::Page;
use crate::reading::Stamp;
use crate::reading::stamp::is_sequence;

/// Whether the stored reading at `index` already contains the record that `log` numbers `stamp`. A WAL's readings
/// reached a bucket in WAL order, so a page that has a later record has this one too.
pub(super) fn has_landed(page: &Page, index: usize, log: &str, stamp: Stamp) -> bool {
    let is_applied = |(by, applied): &(std::sync::Arc<str>, u64)| **by == *log && *applied >= stamp;
    is_sequence(stamp) && page.has_stored(index) && page.applied.iter().any(is_applied)
}
