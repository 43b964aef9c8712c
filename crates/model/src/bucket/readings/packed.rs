//! Sets of readings packed into bytes, for the bucket cache and the embedded store.

use std::sync::{Arc, OnceLock};

use super::{FieldColumn, Reading, Readings};
use crate::bucket::columns::{self, Cell, ColumnsDamage};
use crate::bucket::stamps::Stamps;
use crate::bucket::summary::Summary;
use crate::bucket::summary::distribution::FieldBounds;
use crate::reading::Stamp;

/// A set of readings packed into bytes.
#[derive(Debug, Clone, Default)]
pub struct PackedReadings {
    columns: Vec<(Arc<str>, Option<Summary>)>,
    bounds: FieldBounds,
    len: usize,
    packed: Box<[u8]>,
    floor: Stamp,
    stamps: Box<[u8]>,
    bytes: usize,
    texts: usize,
}

impl Readings {
    /// The sorted set encoded by [`columns::pack`]; cached until the set changes.
    #[must_use]
    pub fn packed(&self) -> &[u8] {
        self.packed.get_or_init(|| self.pack_columns())
    }

    fn pack_columns(&self) -> Box<[u8]> {
        debug_assert!(self.settled == self.times.len(), "settled");
        columns::pack(&self.times, self.columns.iter().map(|column| &*column.cells)).into()
    }

    /// Packs a sorted set.
    #[must_use]
    pub fn pack(mut self) -> PackedReadings {
        let packed = self.packed.take().unwrap_or_else(|| self.pack_columns());
        let floor = self.stamps.floor();
        let stamps = self.encode_stamps().into();
        let columns = self.columns.into_iter().map(|column| (column.name, column.summary)).collect();
        PackedReadings {
            columns,
            bounds: self.bounds,
            len: self.times.len(),
            packed,
            floor,
            stamps,
            bytes: self.bytes,
            texts: self.texts,
        }
    }
}

impl PackedReadings {
    fn unpacked(&self) -> columns::UnpackedColumns {
        let unpacked: Result<_, ColumnsDamage> = columns::unpack(&self.packed, self.columns.len(), usize::MAX);
        debug_assert!(unpacked.is_ok(), "packed here: {unpacked:?}");
        unpacked.unwrap_or_default()
    }

    /// The latest `count` readings, in time order.
    #[must_use]
    pub fn tail(&self, count: usize) -> Vec<Reading> {
        let (times, mut columns) = self.unpacked();
        let reading = |(index, time): (usize, &i64)| {
            let cells = self.columns.iter().zip(&mut columns);
            let fields = cells.filter_map(|((name, _), cells)| Some((name.clone(), cells[index].take()?))).collect();
            Reading { time: *time, fields }
        };
        times.iter().enumerate().skip(times.len().saturating_sub(count)).map(reading).collect()
    }

    /// Restores the set.
    #[must_use]
    pub fn unpack(self) -> Readings {
        let (times, columns) = self.unpacked();
        let column = |((name, summary), cells)| FieldColumn { name, cells, summary };
        let columns = self.columns.into_iter().zip(columns).map(column).collect();
        let mut set = Readings {
            settled: times.len(),
            times,
            stamps: Stamps::default(),
            columns,
            bounds: self.bounds,
            bytes: self.bytes,
            texts: self.texts,
            expected: 0,
            packed: OnceLock::from(self.packed),
        };
        let decoded = set.decode_stamps(self.floor, &self.stamps);
        debug_assert!(decoded.is_ok(), "packed here: {decoded:?}");
        set
    }

    /// Bytes of memory.
    #[must_use]
    pub fn memory(&self) -> usize {
        let columns = self.columns.capacity() * size_of::<(Arc<str>, Option<Summary>)>();
        let summaries = self.columns.iter().filter_map(|(_, summary)| summary.as_ref()).map(Summary::memory);
        self.packed.len() + self.stamps.len() + columns + summaries.sum::<usize>()
    }

    /// The approximate memory of the unpacked set, in bytes.
    #[must_use]
    pub fn unpacked_memory(&self) -> usize {
        self.len * (2 * size_of::<i64>() + self.columns.len() * size_of::<Cell>()) + self.texts
    }
}
