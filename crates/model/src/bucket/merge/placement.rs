//! Placement of new readings: finds or opens a page for them, splits pages that grew too large, and numbers new pages.

use super::{Bucket, Caps, MergeOptions, Row};
use crate::bucket::page::Page;
use crate::bucket::readings::{Readings, reading_bytes};

/// The size of the smallest stored cell: a type byte, a one-letter name with its terminator, and a boolean. `max_bytes`
/// divided by this bounds the cells of a page, empty ones included. A page without empty cells reaches `max_bytes`
/// first. If every reading has different fields, empty cells would take far more memory than the page takes in the
/// store.
const CELL_BYTES_MIN: usize = 4;

impl Bucket {
    /// The open page if it has room for the row; otherwise closes it and opens the next page.
    pub(super) fn page_with_room(&mut self, row: &Row<'_>, options: &MergeOptions<'_>, expected: usize) -> usize {
        let caps = options.caps;
        if let Some(p) = self.pages.iter().position(|page| !page.closed && !page.is_removed) {
            let page = &mut self.pages[p];
            let row_bytes = reading_bytes(row.time, row.fields().map(|(n, v)| (&**n, v)));
            let fits = page.readings.len() < caps.max_readings
                && page.readings.bytes() + row_bytes <= caps.max_bytes
                && page.readings.cells_after_push(row.fields().map(|(name, _)| name))
                    <= caps.max_bytes / CELL_BYTES_MIN;
            if fits || page.readings.is_empty() {
                return p;
            }
            page.closed = true;
        }
        // Reuse a page that a deletion emptied and that is still stored, so that the numbers have no gap.
        if let Some(p) = self.pages.iter().position(|page| page.is_removed) {
            let page = &mut self.pages[p];
            page.is_removed = false;
            page.closed = false;
            page.is_rewritten = true;
            // If page 0 was removed, all pages were.
            self.pages[0].has_overflow = p > 0;
            return p;
        }
        let mut readings = Readings::default();
        readings.raise_floor(options.floor);
        readings.reserve(expected);
        self.add_page(readings)
    }

    fn add_page(&mut self, readings: Readings) -> usize {
        let number = self.pages.last().map_or(0, |page| page.number + 1);
        if let Some(first) = self.pages.first_mut() {
            first.has_overflow = true;
        }
        self.pages.push(Page { readings, ..Page::new(number) });
        self.pages.len() - 1
    }

    /// Splits every page that overwrites grew beyond the hard limit: its later half moves to a new page.
    pub(super) fn split_oversized(&mut self, caps: &Caps) {
        let before = self.pages.len();
        let mut p = 0;
        while p < self.pages.len() {
            let page = &mut self.pages[p];
            if page.readings.bytes() <= caps.hard_bytes || page.readings.len() < 2 {
                p += 1;
                continue;
            }
            let later = page.readings.split_off(page.readings.len() / 2);
            page.closed = true;
            page.is_rewritten = true;
            let root = if page.stored.is_some() { Some(page.number) } else { page.moved_from };
            let moved = self.add_page(later);
            self.pages[moved].closed = true;
            self.pages[moved].moved_from = root;
        }
        if self.pages.len() > before {
            self.number_unstored();
        }
    }

    /// Numbers the pages that were never stored in the order in which they will be stored: first pages split off stored
    /// pages, then other new pages, then the open page.
    ///
    /// The stored numbers then have no gap, and the open page is the last. Otherwise a writer with an outdated view
    /// could insert an open page in a gap while another writer opens one at the end, and the bucket would have two open
    /// pages. A page after the open one could not be inserted until the open page is closed.
    fn number_unstored(&mut self) {
        self.pages.sort_by_key(|page| match page.stored {
            Some(_) => 0,
            None if page.moved_from.is_some() => 1,
            None if page.closed => 2,
            None => 3,
        });
        for p in 1..self.pages.len() {
            if self.pages[p].stored.is_none() {
                self.pages[p].number = self.pages[p - 1].number + 1;
            }
        }
    }
}
