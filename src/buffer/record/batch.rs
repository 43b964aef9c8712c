//! The readings of one request for one shard. Admission makes batches, the WAL stores them, and shards take them.

use std::ops::Range;
use std::sync::Arc;

use crate::catalog::{Database, KnownSensor};
use crate::members::positions::{PendingAck, QueuedBatches};
use crate::reading::{Hour, Value};

/// The readings of one request for one shard, in flat vectors without an allocation per reading.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    pub sensors: Vec<Arc<KnownSensor>>,
    rows: Vec<BatchRow>,
    cells: Vec<(u16, Value)>,
}

#[derive(Debug, Clone)]
struct BatchRow {
    /// Index into `sensors`.
    sensor: u32,
    time: i64,
    /// Indexes into `cells`.
    cells: Range<u32>,
}

/// A reading of a batch.
#[derive(Debug, Clone, Copy)]
pub struct BatchReading<'a> {
    /// Index into [`Batch::sensors`].
    pub sensor: u32,
    /// Nanoseconds since the epoch.
    pub time: i64,
    /// Values by the field's index in the sensor's fields.
    pub cells: &'a [(u16, Value)],
}

impl Batch {
    /// The size of a row without its cells, in bytes.
    pub const ROW_BYTES: usize = size_of::<BatchRow>();

    /// Creates a batch with the capacity that a body of `body_bytes` with two fields per reading is likely to need for
    /// each of `shards`.
    pub fn expecting(body_bytes: usize, shards: usize) -> Self {
        /// The size of a line with two fields. With longer lines, some allocated memory is never touched.
        const LINE_BYTES: usize = 72;
        /// Maximum capacity. Larger batches amortize their reallocations.
        const ROWS_MAX: usize = 8192;
        // Add one eighth, because shards do not get equal parts.
        let rows = (body_bytes / LINE_BYTES / shards * 9 / 8).min(ROWS_MAX);
        Self { sensors: Vec::new(), rows: Vec::with_capacity(rows), cells: Vec::with_capacity(2 * rows) }
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns the memory of the batch without the sensors themselves, in bytes.
    pub fn memory(&self) -> usize {
        let text = |value: &Value| if let Value::String(text) = value { text.len() } else { 0 };
        let cells: usize = self.cells.iter().map(|(_, value)| size_of::<(u16, Value)>() + text(value)).sum();
        self.sensors.len() * size_of::<Arc<KnownSensor>>() + self.rows.len() * Self::ROW_BYTES + cells
    }

    /// Returns the number of cells, including those of the row under construction.
    pub fn cells(&self) -> usize {
        self.cells.len()
    }

    /// Adds a cell to the row under construction.
    pub fn push_cell(&mut self, field: u16, value: Value) {
        self.cells.push((field, value));
    }

    /// Sets a cell of the row under construction, whose cells begin at `start`.
    pub fn set_cell(&mut self, start: usize, field: u16, value: Value) {
        match self.cells[start..].iter_mut().find(|(known, _)| *known == field) {
            Some((_, known)) => *known = value,
            None => self.push_cell(field, value),
        }
    }

    /// Completes the row whose cells begin at `start`.
    pub fn push_row(&mut self, sensor: u32, time: i64, start: usize) {
        self.rows.push(BatchRow { sensor, time, cells: index(start)..index(self.cells.len()) });
    }

    /// Iterates over the readings in the order in which they were accepted.
    pub fn readings(&self) -> impl Iterator<Item = BatchReading<'_>> {
        self.rows.iter().map(|row| BatchReading { sensor: row.sensor, time: row.time, cells: self.row_cells(row) })
    }

    /// Returns the timestamp of the last accepted reading.
    pub fn last_time(&self) -> Option<i64> {
        self.rows.last().map(|row| row.time)
    }

    /// Returns the hours of the readings with the sensor's index. Consecutive hours in order are merged, and an hour
    /// may occur more than once.
    pub fn hours(&self) -> Vec<(u32, Range<Hour>)> {
        let mut last: Vec<Option<Range<Hour>>> = vec![None; self.sensors.len()];
        let mut all = Vec::new();
        for row in &self.rows {
            let hour = Hour::from_ns(row.time);
            let Some(last) = last.get_mut(row.sensor as usize) else { continue };
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

    fn row_cells(&self, row: &BatchRow) -> &[(u16, Value)] {
        &self.cells[row.cells.start as usize..row.cells.end as usize]
    }
}

/// A batch on its way to a shard, with its request's pending ack.
#[derive(Debug)]
pub struct DispatchedBatch {
    pub database: Arc<Database>,
    pub batch: Batch,
    /// Held until the shard has flushed all readings of the request.
    pub pending_ack: Arc<PendingAck>,
    /// Held until the shard has taken the batch from its inbox.
    pub _queued: Arc<QueuedBatches>,
}

/// Estimates the stored bytes of a reading with these cells, accurately enough to decide when a page is full.
pub fn stored_bytes(cells: &[(u16, Value)]) -> usize {
    let text = |value: &Value| if let Value::String(text) = value { text.len() } else { 0 };
    24 + cells.iter().map(|(_, value)| 16 + text(value)).sum::<usize>()
}

/// Converts an index to 32 bits. Never saturates in practice, because `limits.body_bytes` is far below 4 GiB.
pub fn index(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
