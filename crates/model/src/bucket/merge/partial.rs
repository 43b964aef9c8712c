//! Buckets with only some pages in memory: the choice of pages to leave out, and of pages to load.

use super::Bucket;
use crate::bucket::page::{Page, StoredPage};
use crate::reading::time::MILLI_NS;

/// The number of latest pages that [`Bucket::leave_out`] keeps. Most readings arrive in roughly the order of their
/// times.
const LATEST_KEPT: usize = 3;

impl Bucket {
    /// Drops the readings of pages that are unlikely to be needed soon, if there are more than `pages_max` pages. Keeps
    /// page 0, the open page, and the latest pages.
    pub fn leave_out(&mut self, pages_max: usize) {
        if self.pages.len() <= pages_max {
            return;
        }
        let mut ends: Vec<i64> = self.pages.iter().filter_map(|page| Some(page.span()?.1)).collect();
        ends.sort_unstable();
        let latest = ends.iter().rev().nth(LATEST_KEPT - 1).copied().unwrap_or(i64::MIN);
        for page in self.pages.iter_mut().filter(|page| page.closed && page.number > 0 && page.left_out.is_none()) {
            if page.stored.is_some() && page.pending().is_none() && page.span().is_some_and(|(_, last)| last < latest) {
                page.leave_out();
            }
        }
    }

    /// Returns true if the readings of any page are left out.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        self.pages.iter().any(|page| page.left_out.is_some())
    }

    /// The numbers of left-out pages that must be loaded before any merge: page 0 and the open page.
    #[must_use]
    pub fn always_needed(&self) -> Vec<u32> {
        let is_needed = |page: &&Page| page.left_out.is_some() && (page.number == 0 || !page.closed);
        self.pages.iter().filter(is_needed).map(|page| page.number).collect()
    }

    /// The numbers of left-out pages that may have a reading at one of these times, which are in nanoseconds and
    /// sorted.
    #[must_use]
    pub fn needed_for(&self, times: &[i64]) -> Vec<u32> {
        let is_needed = |page: &&Page| {
            page.left_out.is_some_and(|left_out| {
                let from = times.partition_point(|time| time.div_euclid(MILLI_NS) < left_out.span_ms.0);
                times.get(from).is_some_and(|time| left_out.may_have(*time))
            })
        };
        self.pages.iter().filter(is_needed).map(|page| page.number).collect()
    }

    /// The numbers of left-out pages that may have some of the latest `count` readings.
    #[must_use]
    pub fn needed_for_tail(&self, count: usize) -> Vec<u32> {
        let mut pages: Vec<(i64, i64, &Page)> =
            self.pages.iter().filter_map(|page| page.span().map(|(first, last)| (last, first, page))).collect();
        pages.sort_by_key(|(last, ..)| std::cmp::Reverse(*last));
        // The first `count` pages have at least one reading each, so a page that ends before all of these is not
        // needed.
        let ends = count.checked_sub(1).and_then(|index| pages.get(index)).map_or(i64::MIN, |(last, ..)| *last);
        let mut needed = Vec::new();
        let mut found = 0;
        let mut earliest = i64::MAX;
        for (_, first, page) in pages {
            if page.ends_before(Some(ends)) || (found >= count && page.ends_before(Some(earliest))) {
                break;
            }
            found += page.left_out.map_or(page.readings.len(), |left_out| left_out.count);
            earliest = earliest.min(first);
            needed.extend(page.left_out.map(|_| page.number));
        }
        needed
    }

    /// Loads pages that were left out. Returns false if the stored pages have changed since they were left out; the
    /// bucket must then be read again.
    #[must_use]
    pub fn load(&mut self, wanted: &[u32], stored: Vec<StoredPage>) -> bool {
        let mut stored: Vec<Option<StoredPage>> = stored.into_iter().map(Some).collect();
        wanted.iter().all(|number| {
            let found = stored.iter_mut().find(|page| page.as_ref().is_some_and(|page| page.number == *number));
            let held = self.pages.iter_mut().find(|page| page.number == *number);
            match (held, found.and_then(Option::take)) {
                (Some(held), Some(page)) if page.rev == held.rev() && !page.cut && page.left_out.is_none() => {
                    *held = Page::from(page);
                    true
                }
                _ => false,
            }
        })
    }
}
