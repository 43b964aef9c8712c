//! Readings, and their bytes as the core carries them.

use std::cmp::Reverse;

use hourglass_members::{Deletion, Payload, Stamp};

/// A sensor and a time.
pub type Key = (u64, u64);

/// A reading with the stamp of its record; zero while it has none. The value is the id of the write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    pub key: Key,
    pub stamp: Stamp,
    pub value: u64,
}

impl Row {
    /// Returns true if this row hides another one. The values decide between equal stamps; here the older write wins,
    /// so that an unlucky tie is noticed.
    pub fn hides(&self, other: &Row) -> bool {
        (self.stamp, Reverse(self.value)) > (other.stamp, Reverse(other.value))
    }
}

pub fn encode(rows: &[Row]) -> Payload {
    let words = rows.iter().flat_map(|row| [row.key.0, row.key.1, row.stamp.0, row.value]);
    words.flat_map(u64::to_le_bytes).collect()
}

pub fn decode(payload: &Payload) -> Vec<Row> {
    let word = |bytes: &[u8], index: usize| {
        let bytes = &bytes[index * 8..index * 8 + 8];
        u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
    };
    let row = |bytes: &[u8]| Row {
        key: (word(bytes, 0), word(bytes, 1)),
        stamp: Stamp(word(bytes, 2)),
        value: word(bytes, 3),
    };
    payload.chunks(32).map(row).collect()
}

/// The statement of a deletion is its sensor.
pub fn statement(sensor: u64) -> Payload {
    sensor.to_le_bytes().into()
}

pub fn is_deleted(deletions: &[Deletion], row: &Row) -> bool {
    deletions.iter().any(|deletion| *deletion.statement == row.key.0.to_le_bytes() && row.stamp < deletion.stamp)
}
