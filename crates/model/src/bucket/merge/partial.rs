//! Buckets of which only some pages are in memory: which pages to leave out, which ones to load, and for what.

use super::Bucket;
use crate::bucket::page::{Page, StoredPage};
use crate::reading::time::MILLI_NS;

/// How many of the latest pages [`Bucket::leave_out`] keeps: readings mostly arrive in about the order of their times.
const LATEST_KEPT: usize = 3;

impl Bucket {
    /// Drops the readings of pages that are not likely to be needed soon, if there are more than `most` pages: all but
    /// those of page 0, of the page that takes new readings, and of the latest ones.
    pub fn leave_out(&mut self, most: usize) {
        if self.pages.len() <= most {
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

    /// Whether readings of some page are left out.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        self.pages.iter().any(|page| page.left_out.is_some())
    }

    /// The numbers of pages that must be loaded before anything is merged: page 0 and the one that takes new readings.
    #[must_use]
    pub fn always_needed(&self) -> Vec<u32> {
        let is_needed = |page: &&Page| page.left_out.is_some() && (page.number == 0 || !page.closed);
        self.pages.iter().filter(is_needed).map(|page| page.number).collect()
    }

    /// The numbers of pages that are left out and may have a reading of one of these times, in nanoseconds and in order.
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

    /// The numbers of pages that are left out and may have some of the latest `count` readings.
    #[must_use]
    pub fn needed_for_tail(&self, count: usize) -> Vec<u32> {
        let mut pages: Vec<(i64, i64, &Page)> =
            self.pages.iter().filter_map(|page| page.span().map(|(first, last)| (last, first, page))).collect();
        pages.sort_by_key(|(last, ..)| std::cmp::Reverse(*last));
        // The last readings of the first `count` pages are `count` readings: a page that ends before them has none.
        let ends = count.checked_sub(1).and_then(|at| pages.get(at)).map_or(i64::MIN, |(last, ..)| *last);
        let (mut needed, mut found, mut earliest) = (Vec::new(), 0, i64::MAX);
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

    /// Loads pages that were left out. Returns false if the store has other pages than it had when they were left out:
    /// then the bucket must be read again.
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
