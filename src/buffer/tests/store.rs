//! The model's store: pages by compare-and-set, and the registry. It checks every write and does not merge readings.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::bucket::deletions::{Covers, cut};
use crate::bucket::page::StoredPage;
use crate::bucket::registry::MemberRegistry;
use crate::bucket::{Bucket, Page, Readings, Summary, WriteKind};
use crate::reading::{Stamp, Value};

/// A sensor's number, and the hour.
pub(crate) type Key = (usize, i64);
/// Time and field.
pub(crate) type Cell = (i64, String);

#[derive(Debug, Clone)]
struct Document {
    rev: u64,
    closed: bool,
    has_overflow: bool,
    readings: Readings,
}

/// The store that all instances share.
#[derive(Debug, Default)]
pub(crate) struct SharedStore {
    pages: BTreeMap<Key, BTreeMap<u32, Document>>,
    pub(crate) registry: MemberRegistry,
    /// The largest number of pages that a bucket has had.
    pub(crate) pages_max: usize,
}

impl SharedStore {
    /// Returns a bucket's pages without deleted readings, as an instance reads them.
    pub(crate) fn read(&self, key: Key, covers: &Covers) -> Vec<StoredPage> {
        let page = |(number, document): (&u32, &Document)| {
            let mut readings = document.readings.clone().pack().unpack();
            let cut = cut(&mut readings, covers);
            StoredPage {
                number: *number,
                rev: document.rev,
                closed: document.closed,
                has_overflow: document.has_overflow,
                readings,
                cut,
                left_out: None,
            }
        };
        self.pages.get(&key).into_iter().flatten().map(page).collect()
    }

    /// Writes a group by compare-and-set, or nothing. Returns false on a conflict.
    pub(crate) fn write(&mut self, key: Key, bucket: &Bucket, group: &[usize]) -> bool {
        let pages: Vec<&Page> = group.iter().map(|p| &bucket.pages()[*p]).collect();
        let held = self.pages.entry(key).or_default();
        let is_applicable = |page: &Page| match (page.write_in_group(), held.get(&page.number)) {
            (WriteKind::Insert, held) => held.is_none(),
            (_, held) => held.is_some_and(|document| document.rev == page.rev()),
        };
        if !pages.iter().all(|page| is_applicable(page)) {
            return false;
        }
        for page in pages {
            match page.write_in_group() {
                WriteKind::Remove => drop(held.remove(&page.number)),
                WriteKind::Append { start } => {
                    check_append(&held[&page.number].readings, page, start);
                    held.insert(page.number, Document::from_page(page));
                }
                WriteKind::Insert | WriteKind::Replace => drop(held.insert(page.number, Document::from_page(page))),
            }
        }
        self.check(key);
        true
    }

    /// Removes a whole bucket if every cell in it is older than a stamp.
    pub(crate) fn remove_older(&mut self, key: Key, limit: Stamp) {
        let is_old = |document: &Document| document.readings.stamps().greatest() < limit;
        if self.pages.get(&key).is_some_and(|pages| pages.values().all(is_old)) {
            self.pages.remove(&key);
        }
    }

    fn check(&mut self, key: Key) {
        let pages = &self.pages[&key];
        self.pages_max = self.pages_max.max(pages.len());
        assert!((0..).zip(pages.keys()).all(|(i, number)| i == *number), "a gap in the pages: {:?}", pages.keys());
        assert!(pages.values().filter(|document| !document.closed).count() <= 1, "two open pages");
        let mut seen = BTreeSet::new();
        for document in pages.values() {
            let times = document.readings.times();
            assert!(times.is_sorted_by(|a, b| a < b), "a page is sorted");
            assert!(times.iter().all(|time| seen.insert(*time)), "a timestamp is on two pages");
            check_summaries(&document.readings);
        }
    }

    /// Every stored cell of a bucket.
    pub(crate) fn cells(&self, key: Key) -> BTreeMap<Cell, Value> {
        let pages = self.pages.get(&key).into_iter().flatten();
        pages.flat_map(|(_, document)| list_cells(&document.readings)).collect()
    }
}

impl Document {
    fn from_page(page: &Page) -> Self {
        let readings = page.readings.clone();
        Self { rev: page.next_rev(), closed: page.closed, has_overflow: page.has_overflow, readings }
    }
}

/// Checks that an append keeps the stored readings and adds new ones after them.
fn check_append(stored: &Readings, page: &Page, start: usize) {
    assert_eq!(stored.len(), start, "what is appended comes after all that is stored");
    for row in 0..start {
        let fields = |set: &Readings| -> BTreeMap<Arc<str>, Value> {
            set.fields(row).map(|(name, value)| (name.clone(), value.clone())).collect()
        };
        assert_eq!(stored.times()[row], page.readings.times()[row]);
        assert!(fields(stored) == fields(&page.readings), "an append changes nothing that is stored");
    }
}

pub(crate) fn list_cells(readings: &Readings) -> Vec<(Cell, Value)> {
    let row_cells = |(row, time): (usize, &i64)| {
        readings.fields(row).map(|(name, value)| ((*time, name.to_string()), value.clone())).collect::<Vec<_>>()
    };
    readings.times().iter().enumerate().flat_map(row_cells).collect()
}

/// Every summary equals the fold over the values.
fn check_summaries(readings: &Readings) {
    for (name, cells) in readings.columns() {
        let folded = Summary::fold(cells.iter().flatten());
        let kept = readings.summaries().find(|(field, _)| *field == name).map(|(_, summary)| summary.clone());
        assert_eq!(format!("{kept:?}"), format!("{folded:?}"), "the summary of {name}");
    }
}
