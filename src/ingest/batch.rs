//! Readings of one request for one shard: what the door lets in, the log keeps, and a shard takes in.

use std::ops::Range;
use std::sync::Arc;

use super::catalog::{Database, KnownSensor};
use super::progress::{Queued, Ticket};
use crate::reading::{Hour, Value};

/// Readings of one request for one shard, flat: no allocation per reading.
#[derive(Debug, Default)]
pub struct Batch {
    /// The sensors they are of.
    pub sensors: Vec<Arc<KnownSensor>>,
    rows: Vec<BatchRow>,
    cells: Vec<(u16, Value)>,
}

/// One reading.
#[derive(Debug)]
struct BatchRow {
    sensor: u32,
    time: i64,
    cells: Range<u32>,
}

impl Batch {
    /// Memory of one row beside its cells.
    pub const ROW_BYTES: usize = size_of::<BatchRow>();

    /// Empty, with room for as many readings of two fields as a body of so many bytes is likely to have for one of so
    /// many shards.
    pub fn expecting(body_bytes: usize, shards: usize) -> Self {
        /// Of line protocol with two fields; what is longer leaves room that is never touched.
        const LINE_BYTES: usize = 72;
        /// Beyond it growing costs little in comparison.
        const ROWS_MAX: usize = 8192;
        // Shards do not get exactly the same.
        let rows = (body_bytes / LINE_BYTES / shards * 9 / 8).min(ROWS_MAX);
        Self { sensors: Vec::new(), rows: Vec::with_capacity(rows), cells: Vec::with_capacity(2 * rows) }
    }

    /// Whether there is no reading in it.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// How many readings.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// How many cells, those of the row that is being put together included.
    pub fn cells(&self) -> usize {
        self.cells.len()
    }

    /// Adds a cell to the row that is being put together.
    pub fn push_cell(&mut self, field: u16, value: Value) {
        self.cells.push((field, value));
    }

    /// Ends a row whose cells are those from `start` on.
    pub fn push_row(&mut self, sensor: u32, time: i64, start: usize) {
        self.rows.push(BatchRow { sensor, time, cells: index(start)..index(self.cells.len()) });
    }

    /// The readings in the order they were accepted: sensor by its index, time, cells.
    pub fn readings(&self) -> impl Iterator<Item = (u32, i64, &[(u16, Value)])> {
        self.rows.iter().map(|row| (row.sensor, row.time, self.cells_of(row)))
    }

    /// The hours that the readings are of, with the sensor's index: each at least once, neighbours that come one after
    /// the other together.
    pub fn hours(&self) -> Vec<(u32, Range<Hour>)> {
        let mut last: Vec<Option<Range<Hour>>> = vec![None; self.sensors.len()];
        let mut all = Vec::new();
        for row in &self.rows {
            let (hour, Some(last)) = (Hour::of(row.time), last.get_mut(row.sensor as usize)) else { continue };
            match last {
                Some(hours) if hours.contains(&hour) => {}
                Some(hours) if hours.end == hour => hours.end = hour.next(),
                _ => all.extend(last.replace(hour..hour.next()).map(|hours| (row.sensor, hours))),
            }
        }
        let rest = last.into_iter().enumerate().filter_map(|(sensor, hours)| Some((index(sensor), hours?)));
        all.extend(rest);
        all
    }

    fn cells_of(&self, row: &BatchRow) -> &[(u16, Value)] {
        &self.cells[row.cells.start as usize..row.cells.end as usize]
    }
}

/// A batch on its way to a shard, with the ticket of its request.
#[derive(Debug)]
pub struct Fed {
    /// Whose sensors they are.
    pub database: Arc<Database>,
    /// The readings.
    pub batch: Batch,
    /// Given back when nothing of the request is unflushed any more.
    pub ticket: Arc<Ticket>,
    /// The memory of the request's batches, until all of its shards have taken them in.
    pub _queued: Arc<Queued>,
}

/// Stored bytes of a reading with these cells, roughly: enough to see that a page is full.
pub fn stored_bytes(cells: &[(u16, Value)]) -> usize {
    let text = |value: &Value| if let Value::String(text) = value { text.len() } else { 0 };
    24 + cells.iter().map(|(_, value)| 16 + text(value)).sum::<usize>()
}

/// Batches are bounded by the body, and a body by `limits.body_bytes`, far below 4 GiB.
pub fn index(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
