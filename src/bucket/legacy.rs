//! What is left of the rule before there were stamps, for logs and pages of that form. It goes with the next version.
//!
//! A log of that form numbers its records from 1, and a page that was written then names, per log, the highest number
//! merged into it. Such a number is a stamp older than every real one, so among themselves the records of one log merge by
//! it as they did. What a stamp does not say there is whether a page of that form has a record already, under a value that
//! somebody else corrected since: that the page says.

use super::page::Page;
use crate::reading::Stamp;
use crate::reading::stamp::is_sequence;

/// Whether the stored reading at `index` has what a log of the older form says at this place: a log's readings came to a
/// bucket in log order, so a page that has a later one of them has this one too.
pub(super) fn has_landed(page: &Page, index: usize, log: &str, stamp: Stamp) -> bool {
    let is_applied = |(by, applied): &(std::sync::Arc<str>, u64)| **by == *log && *applied >= stamp;
    is_sequence(stamp) && page.has_stored(index) && page.applied.iter().any(is_applied)
}
