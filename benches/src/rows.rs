//! Readings of one sensor as rows, the input of packing and merging.

use std::sync::Arc;

use hourglass::bucket::packed::PackedRows;
use hourglass::bucket::{Bucket, Caps, MergeOptions, Row};
use hourglass::reading::Value;

use crate::fleet::START_MS;

/// Readings of one hour, with two numeric fields.
#[derive(Debug, Clone)]
pub struct Rows {
    names: [Arc<str>; 2],
    rows: Vec<(i64, [(u16, Value); 2])>,
}

impl Rows {
    /// Creates `count` readings, `interval_ms` apart, starting `offset_ms` after the start of the hour.
    #[must_use]
    pub fn new(count: usize, interval_ms: i64, offset_ms: i64) -> Self {
        let row = |number: i64| {
            // Two decimals and one decimal, like real thermometers.
            let hundredths = 2000 + number * 7 % 900;
            let tenths = 300 + number * 3 % 600;
            let cells = [(0, Value::Float(hundredths as f64 / 100.0)), (1, Value::Float(tenths as f64 / 10.0))];
            ((START_MS + offset_ms + number * interval_ms) * 1_000_000, cells)
        };
        Self { names: ["temp", "humidity"].map(Arc::from), rows: (0..).take(count).map(row).collect() }
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the readings with the stamp of a WAL record.
    pub fn rows(&self, stamp: u64) -> impl Iterator<Item = Row<'_>> {
        self.rows.iter().map(move |(time, cells)| Row { time: *time, stamp, names: &self.names, cells })
    }

    /// Packs the readings as a shard does, each from a record of its own.
    pub fn push_to(&self, packed: &mut PackedRows) {
        for ((time, cells), sequence) in self.rows.iter().zip(1..) {
            packed.push(sequence, *time, cells.iter().map(|(field, value)| (*field, value)));
        }
    }

    /// Returns a bucket with these readings, as read from the store.
    #[must_use]
    pub fn to_bucket(&self) -> Bucket {
        let mut bucket = Bucket::default();
        bucket.apply(self.rows(1), &MergeOptions { caps: &CAPS, floor: 0, restamps: false });
        bucket.mark_written(&[0]);
        bucket
    }
}

/// The default configuration.
pub const CAPS: Caps = Caps { max_readings: 3600, max_bytes: 1 << 20, hard_bytes: 4 << 20 };
