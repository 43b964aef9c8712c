//! The readings of one request for one shard, as admission makes them, the WAL stores them and a shard takes them.

use std::ops::Range;
use std::sync::Arc;

use crate::catalog::{Database, KnownSensor};
use crate::members::positions::{PendingAck, QueuedBatches};
use crate::reading::{Hour, Value};

/// The readings of one request for one shard, flat: no allocation per reading.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    pub sensors: Vec<Arc<KnownSensor>>,
    rows: Vec<BatchRow>,
    cells: Vec<(u16, Value)>,
}

#[derive(Debug, Clone)]
struct BatchRow {
    sensor: u32,
    time: i64,
    cells: Range<u32>,
}

impl Batch {
    /// Bytes of memory of a row without its cells.
    pub const ROW_BYTES: usize = size_of::<BatchRow>();

    /// An empty batch with room for the readings of two fields that a body of `body_bytes` is likely to have for one of
    /// `shards`.
    pub fn expecting(body_bytes: usize, shards: usize) -> Self {
        /// A line of line protocol with two fields. Longer lines leave allocated room that is never touched.
        const LINE_BYTES: usize = 72;
        /// Beyond this, growing costs little in comparison.
        const ROWS_MAX: usize = 8192;
        // One eighth more, since shards do not get equal parts.
        let rows = (body_bytes / LINE_BYTES / shards * 9 / 8).min(ROWS_MAX);
        Self { sensors: Vec::new(), rows: Vec::with_capacity(rows), cells: Vec::with_capacity(2 * rows) }
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Bytes of memory without the sensors themselves.
    pub fn memory(&self) -> usize {
        let text = |value: &Value| if let Value::String(text) = value { text.len() } else { 0 };
        let cells: usize = self.cells.iter().map(|(_, value)| size_of::<(u16, Value)>() + text(value)).sum();
        self.sensors.len() * size_of::<Arc<KnownSensor>>() + self.rows.len() * Self::ROW_BYTES + cells
    }

    /// How many cells, including those of the row under construction.
    pub fn cells(&self) -> usize {
        self.cells.len()
    }

    /// Adds a cell to the row under construction.
    pub fn push_cell(&mut self, field: u16, value: Value) {
        self.cells.push((field, value));
    }

    /// Adds a cell to the row under construction, whose cells begin at `start`, or replaces the one of this field.
    pub fn set_cell(&mut self, start: usize, field: u16, value: Value) {
        match self.cells[start..].iter_mut().find(|(of, _)| *of == field) {
            Some((_, there)) => *there = value,
            None => self.push_cell(field, value),
        }
    }

    /// Completes the row whose cells begin at `start`.
    pub fn push_row(&mut self, sensor: u32, time: i64, start: usize) {
        self.rows.push(BatchRow { sensor, time, cells: index(start)..index(self.cells.len()) });
    }

    /// The readings in the order they were accepted: index of the sensor, timestamp, cells.
    pub fn readings(&self) -> impl Iterator<Item = (u32, i64, &[(u16, Value)])> {
        self.rows.iter().map(|row| (row.sensor, row.time, self.cells_of(row)))
    }

    /// The timestamp of the reading that was accepted last.
    pub fn last_time(&self) -> Option<i64> {
        self.rows.last().map(|row| row.time)
    }

    /// The hours of the readings, with the sensor's index. Each hour occurs at least once; consecutive ones are merged
    /// when they come in order.
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

/// A batch on its way to a shard, with its request's pending ack.
#[derive(Debug)]
pub struct DispatchedBatch {
    pub database: Arc<Database>,
    pub batch: Batch,
    /// Dropped when the shard has no unflushed reading of the request any more.
    pub pending_ack: Arc<PendingAck>,
    /// Counts the memory of the request's batches until all of its shards have taken theirs.
    pub _queued: Arc<QueuedBatches>,
}

/// Roughly the stored bytes of a reading with these cells: enough to see that a page is full.
pub fn stored_bytes(cells: &[(u16, Value)]) -> usize {
    let text = |value: &Value| if let Value::String(text) = value { text.len() } else { 0 };
    24 + cells.iter().map(|(_, value)| 16 + text(value)).sum::<usize>()
}

/// Saturates, which no batch reaches: `limits.body_bytes` is far below 4 GiB.
pub fn index(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
