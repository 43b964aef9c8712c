//! MongoDB: the registry, request keys and pages, each written by compare-and-set.

use std::collections::BTreeMap;
use std::sync::Arc;

use hourglass_members::{Deletion, KeyRow, Payload, Registry, Stamp};

use crate::data::{Row, encode, is_deleted};

/// The stored readings of a sensor.
#[derive(Clone, Default)]
pub struct Page {
    pub rev: u64,
    pub cells: BTreeMap<u64, (Stamp, u64)>,
}

#[derive(Default)]
pub struct Store {
    pub registry: Arc<Registry>,
    pub keys: BTreeMap<u64, KeyRow>,
    pub pages: BTreeMap<u64, Page>,
}

impl Store {
    /// Writes the registry if nobody else did since it was read.
    pub fn write_registry(&mut self, document: &Arc<Registry>) -> bool {
        let is_next = document.rev == self.registry.rev + 1;
        if is_next {
            assert!(document.floor >= self.registry.floor, "the floor fell");
            self.registry = document.clone();
        }
        is_next
    }

    pub fn write_page(&mut self, sensor: u64, page: Page) -> bool {
        let stored = self.pages.entry(sensor).or_default();
        let is_next = page.rev == stored.rev + 1;
        if is_next {
            *stored = page;
        }
        is_next
    }

    /// Removes what a deletion covers.
    pub fn sweep(&mut self, deletion: &Deletion) {
        for (sensor, page) in &mut self.pages {
            let row = |time: u64, stamp: Stamp, value: u64| Row { key: (*sensor, time), stamp, value };
            page.cells.retain(|time, (stamp, value)| {
                !is_deleted(std::slice::from_ref(deletion), &row(*time, *stamp, *value))
            });
            page.rev += 1;
        }
    }

    pub fn rows(&self) -> Vec<Row> {
        let cells = self.pages.iter().flat_map(|(sensor, page)| page.cells.iter().map(move |cell| (*sensor, cell)));
        cells
            .map(|(sensor, (time, (stamp, value)))| Row { key: (sensor, *time), stamp: *stamp, value: *value })
            .collect()
    }

    pub fn snapshot(&self) -> Payload {
        encode(&self.rows())
    }

    /// Returns true if the store has a reading or a later one.
    pub fn has(&self, row: &Row) -> bool {
        let page = self.pages.get(&row.key.0);
        page.and_then(|page| page.cells.get(&row.key.1)).is_some_and(|(stamp, _)| *stamp >= row.stamp)
    }
}
