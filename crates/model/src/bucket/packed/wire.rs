//! Packed readings in messages between instances.

use super::{PackedRows, RowState, UnpackedRows};
use crate::reading::varint::{put_bytes, put_varint, take_bytes, take_varint};

impl PackedRows {
    /// Appends the readings to a message for another instance.
    pub(in crate::bucket) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, u64::from(self.rows));
        put_bytes(out, &self.bytes);
    }

    /// Reads what [`PackedRows::encode`] wrote. Nothing can be appended to the result.
    pub(in crate::bucket) fn decode(bytes: &[u8], position: &mut usize) -> Option<Self> {
        let rows = u32::try_from(take_varint(bytes, position)?).ok()?;
        Some(Self { bytes: take_bytes(bytes, position)?.to_vec(), rows, end: RowState::default() })
    }

    /// Returns a copy in which each field has the number at its place in `fields`.
    pub(in crate::bucket) fn renumbered(&self, fields: &[u16]) -> Self {
        let mut unpacked = UnpackedRows::default();
        unpacked.unpack([self]);
        for (field, _) in &mut unpacked.cells {
            *field = fields.get(usize::from(*field)).copied().unwrap_or(*field);
        }
        let mut renumbered = Self::default();
        unpacked.rows.iter().for_each(|row| renumbered.push(row.stamp, row.time, unpacked.row_cells(row)));
        renumbered
    }
}
