//! The stamps of a page's readings: for each cell, the stamp of the WAL record that wrote it. Nearly always one record
//! wrote all cells of a reading. Most readings are settled: their stamps are at or below the page's floor and are not
//! stored, because no WAL has unflushed readings at or below the floor.
//!
//! The byte format, in both stores and in memory:
//!
//! ```text
//! stamps := [run… cells]                  empty if all cells are settled
//! run    := head:varint [length:varint] [low:varint]        consecutive readings with one stamp, in time order
//! head   := (length << 1) if they are settled
//!         | (zigzag(milliseconds, delta of deltas) << 3 | same low bits << 2 | single reading << 1 | 1)
//! cells  := count:varint name…  count:varint cell…          cells whose stamp differs from their reading's
//! name   := text                          cell := reading:varint name:varint millis:varint low:varint
//! ```

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

use super::columns::{ColumnsDamage, PackedBytes};
use crate::reading::stamp::{LOW_BITS, SETTLED, Stamp, first_stamp, low_bits, stamp_millis};
use crate::reading::varint::{put_texts, put_varint, unzigzag, zigzag};

/// The stamps of a page in encoded form, as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StampOrder<'a> {
    /// The page's floor: every settled cell's stamp is at or below it.
    pub floor: Stamp,
    /// See [`Stamps::oldest`].
    pub oldest: Stamp,
    /// See [`Stamps::greatest`].
    pub last: Stamp,
    /// See [`Stamps::encode`].
    pub stamps: Cow<'a, [u8]>,
}

impl StampOrder<'_> {
    /// A copy that owns its bytes.
    #[must_use]
    pub fn into_owned(self) -> StampOrder<'static> {
        let Self { floor, oldest, last, stamps } = self;
        StampOrder { floor, oldest, last, stamps: Cow::Owned(stamps.into_owned()) }
    }
}

/// Stamps per reading, and per cell where a cell's stamp differs from its reading's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stamps {
    floor: Stamp,
    /// One per reading; [`SETTLED`] at or below the floor.
    rows: Vec<Stamp>,
    /// The stamps of cells that differ from their reading's, by index of reading and column.
    cells: BTreeMap<(u32, u16), Stamp>,
}

impl Stamps {
    /// Stamps for this many readings, all settled.
    #[must_use]
    pub fn all_settled(readings: usize, floor: Stamp) -> Self {
        Self { floor, rows: vec![SETTLED; readings], cells: BTreeMap::new() }
    }

    /// The page's floor: every settled cell's stamp is at or below it.
    #[must_use]
    pub fn floor(&self) -> Stamp {
        self.floor
    }

    /// Raises the floor and settles every cell at or below it. A lower floor is ignored.
    pub fn raise(&mut self, floor: Stamp) {
        if floor <= self.floor {
            return;
        }
        self.floor = floor;
        for stamp in &mut self.rows {
            if *stamp <= floor {
                *stamp = SETTLED;
            }
        }
        for stamp in self.cells.values_mut() {
            if *stamp <= floor {
                *stamp = SETTLED;
            }
        }
        let rows = &self.rows;
        self.cells.retain(|(row, _), stamp| *stamp != rows[*row as usize]);
    }

    /// Gives every settled cell the floor as its stamp, or 1 where that is 0; the floor is then 0.
    pub fn make_explicit(&mut self) {
        let settled = self.floor.max(1);
        for stamp in self.rows.iter_mut().chain(self.cells.values_mut()) {
            if *stamp == SETTLED {
                *stamp = settled;
            }
        }
        self.floor = 0;
    }

    /// The stamps of a range of readings.
    #[must_use]
    pub fn slice(&self, readings: Range<usize>) -> Self {
        let mut part = Self { floor: self.floor, rows: self.rows[readings.clone()].to_vec(), cells: BTreeMap::new() };
        if !self.cells.is_empty() {
            let cells = self.cells.range(key(readings.start, 0)..key(readings.end, 0));
            let shift = |row: u32, column: u16| key(row as usize - readings.start, usize::from(column));
            part.cells = cells.map(|((row, column), stamp)| (shift(*row, *column), *stamp)).collect();
        }
        part
    }

    /// The least stamp, or the floor if any cell is settled. A deletion with a stamp at or below this cannot cover any
    /// cell of the page: pending deletions are applied before the floor is raised above them.
    #[must_use]
    pub fn oldest(&self) -> Stamp {
        let least = self.rows.iter().chain(self.cells.values()).min().copied().unwrap_or(SETTLED);
        if least == SETTLED { self.floor } else { least }
    }

    /// The greatest stamp; the floor if all cells are settled.
    #[must_use]
    pub fn greatest(&self) -> Stamp {
        self.rows.iter().chain(self.cells.values()).max().map_or(self.floor, |greatest| self.floor.max(*greatest))
    }

    /// Returns true if all cells are settled.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.cells.is_empty() && self.rows.iter().all(|stamp| *stamp == SETTLED)
    }

    /// A cell's stamp; [`SETTLED`] if it is at or below the floor.
    #[must_use]
    pub fn get(&self, row: usize, column: usize) -> Stamp {
        if self.cells.is_empty() {
            return self.rows[row];
        }
        self.cells.get(&key(row, column)).copied().unwrap_or(self.rows[row])
    }

    /// Returns true if all cells of a reading have the reading's stamp.
    fn is_uniform(&self, row: usize) -> bool {
        self.cells.is_empty() || self.cells_of(row).next().is_none()
    }

    /// The cells of a reading whose stamps differ from the reading's.
    fn cells_of(&self, row: usize) -> impl Iterator<Item = (&(u32, u16), &Stamp)> {
        self.cells.range(key(row, 0)..=key(row, usize::from(u16::MAX)))
    }

    /// Renumbers the columns: `new_columns` maps old to new numbers, `None` for removed columns.
    pub fn renumber(&mut self, new_columns: &[Option<usize>]) {
        let renumber = |((row, column), stamp): ((u32, u16), Stamp)| {
            let new_column = new_columns.get(usize::from(column)).copied().flatten()?;
            Some((key(row as usize, new_column), stamp))
        };
        self.cells = std::mem::take(&mut self.cells).into_iter().filter_map(renumber).collect();
    }

    /// Reserves memory for this many more readings.
    pub fn reserve(&mut self, readings: usize) {
        self.rows.reserve(readings);
    }

    /// Appends a reading whose cells all have this stamp.
    pub fn push(&mut self, stamp: Stamp) {
        self.rows.push(if stamp <= self.floor { SETTLED } else { stamp });
    }

    /// Appends the reading at `row` of another set; `column` maps the other set's columns to this set's.
    pub fn push_row(&mut self, other: &Self, row: usize, column: impl Fn(usize) -> Option<usize>) {
        let new_row = self.rows.len();
        self.rows.push(other.rows[row]);
        if !other.is_uniform(row) {
            let new_key = |other_column: u16| Some(key(new_row, column(usize::from(other_column))?));
            self.cells.extend(other.cells_of(row).filter_map(|((_, column), stamp)| Some((new_key(*column)?, *stamp))));
        }
    }

    /// Sets a cell's stamp, which must be above the floor or [`SETTLED`].
    pub fn set(&mut self, row: usize, column: usize, stamp: Stamp) {
        if stamp == self.rows[row] {
            self.cells.remove(&key(row, column));
        } else {
            self.cells.insert(key(row, column), stamp);
        }
    }

    /// Sets the stamp of all cells of a reading.
    pub fn set_row(&mut self, row: usize, stamp: Stamp) {
        self.rows[row] = stamp;
        let cells: Vec<(u32, u16)> = self.cells_of(row).map(|(cell, _)| *cell).collect();
        for cell in cells {
            self.cells.remove(&cell);
        }
    }

    /// Reorders the readings: place i gets the reading that was at `order[i]`.
    pub fn permute(&mut self, order: &[u32]) {
        let old = std::mem::replace(self, Self { floor: self.floor, ..Self::default() });
        self.rows.reserve(order.len());
        order.iter().for_each(|row| self.push_row(&old, *row as usize, Some));
    }

    /// Keeps the first `readings` readings.
    pub fn truncate(&mut self, readings: usize) {
        self.rows.truncate(readings);
        self.cells.retain(|(row, _), _| (*row as usize) < readings);
    }

    /// Bytes of memory.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.rows.capacity() * size_of::<Stamp>() + self.cells.len() * 2 * size_of::<((u32, u16), Stamp)>()
    }

    /// Encodes the stamps, without the floor; empty if all cells are settled.
    pub fn encode<'a>(&self, name: impl Fn(usize) -> &'a str) -> Vec<u8> {
        let mut out = Vec::new();
        if self.is_settled() {
            return out;
        }
        let mut before = StampRun::default();
        for run in self.rows.chunk_by(|a, b| a == b) {
            before.put(&mut out, run[0], run.len());
        }
        let mut columns: Vec<u16> = self.cells.keys().map(|(_, column)| *column).collect();
        columns.sort_unstable();
        columns.dedup();
        put_texts(&mut out, columns.iter().map(|column| name(usize::from(*column))));
        put_varint(&mut out, self.cells.len() as u64);
        for ((row, column), stamp) in &self.cells {
            put_varint(&mut out, u64::from(*row));
            put_varint(&mut out, columns.binary_search(column).unwrap_or_default() as u64);
            put_varint(&mut out, stamp_millis(*stamp));
            put_varint(&mut out, low_bits(*stamp));
        }
        out
    }

    /// Decodes stamps for a set of `readings` readings from bytes that may be damaged; `column` maps a name to its
    /// column.
    ///
    /// # Errors
    /// [`ColumnsDamage`] for invalid bytes.
    pub fn decode(
        bytes: &[u8],
        floor: Stamp,
        readings: usize,
        column: impl Fn(&str) -> Option<usize>,
    ) -> Result<Self, ColumnsDamage> {
        let mut stamps = Self { floor, rows: Vec::with_capacity(readings), cells: BTreeMap::new() };
        if bytes.is_empty() {
            stamps.rows.resize(readings, SETTLED);
            return Ok(stamps);
        }
        let mut bytes = PackedBytes::new(bytes);
        let mut before = StampRun::default();
        while stamps.rows.len() < readings {
            let (stamp, length) = before.take(&mut bytes)?;
            let length = usize::try_from(length).ok().filter(|length| *length <= readings - stamps.rows.len());
            let length = length.filter(|length| *length > 0);
            let length = length.ok_or(ColumnsDamage::Unknown { what: "a run of stamps", found: stamp })?;
            stamps.rows.resize(stamps.rows.len() + length, stamp);
        }
        let columns: Vec<Option<usize>> = bytes.texts()?.into_iter().map(column).collect();
        for _ in 0..bytes.varint()? {
            let row = bytes.varint()?;
            let name = bytes.varint()?;
            let stamp = join_stamp(bytes.varint()?, bytes.varint()?)?;
            let column = usize::try_from(name).ok().and_then(|name| *columns.get(name)?);
            let row = usize::try_from(row).ok().filter(|row| *row < readings);
            let (Some(row), Some(column)) = (row, column) else {
                return Err(ColumnsDamage::Unknown { what: "a stamp's cell", found: name });
            };
            stamps.cells.insert(key(row, column), stamp);
        }
        bytes.end()?;
        let rows = &stamps.rows;
        stamps.cells.retain(|(row, _), stamp| *stamp != rows[*row as usize]);
        Ok(stamps)
    }
}

fn key(row: usize, column: usize) -> (u32, u16) {
    (u32::try_from(row).unwrap_or(u32::MAX), u16::try_from(column).unwrap_or(u16::MAX))
}

fn join_stamp(millis: u64, low: u64) -> Result<Stamp, ColumnsDamage> {
    if millis >> (u64::BITS - LOW_BITS) != 0 || low >> LOW_BITS != 0 {
        return Err(ColumnsDamage::Unknown { what: "a stamp", found: millis });
    }
    Ok(first_stamp(millis) | low)
}

/// The state that the next run of stamps is encoded against.
#[derive(Default)]
struct StampRun {
    millis: i64,
    step: i64,
    low: u64,
}

impl StampRun {
    #[expect(clippy::cast_possible_wrap, reason = "milliseconds have 44 bits")]
    fn put(&mut self, out: &mut Vec<u8>, stamp: Stamp, length: usize) {
        if stamp == SETTLED {
            put_varint(out, (length as u64) << 1);
            return;
        }
        let millis = stamp_millis(stamp) as i64;
        let low = low_bits(stamp);
        let step = millis - self.millis;
        let is_same = low == self.low;
        let is_single = length == 1;
        put_varint(out, zigzag(step - self.step) << 3 | u64::from(is_same) << 2 | u64::from(is_single) << 1 | 1);
        if !is_single {
            put_varint(out, length as u64);
        }
        if !is_same {
            put_varint(out, low);
        }
        *self = Self { millis, step, low };
    }

    fn take(&mut self, bytes: &mut PackedBytes<'_>) -> Result<(Stamp, u64), ColumnsDamage> {
        let head = bytes.varint()?;
        if head & 1 == 0 {
            return Ok((SETTLED, head >> 1));
        }
        let length = if head & 2 == 0 { bytes.varint()? } else { 1 };
        let low = if head & 4 == 0 { bytes.varint()? } else { self.low };
        let step = self.step.wrapping_add(unzigzag(head >> 3));
        let millis = self.millis.wrapping_add(step);
        let unknown = ColumnsDamage::Unknown { what: "a stamp", found: head };
        let stamp = join_stamp(u64::try_from(millis).map_err(|_| unknown)?, low)?;
        *self = Self { millis, step, low };
        Ok((stamp, length))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NAMES: [&str; 3] = ["a", "b", "c"];

    fn stamps() -> impl Strategy<Value = Stamps> {
        let stamp = || prop_oneof![Just(SETTLED), (0..4_u64).prop_map(|n| 9 << 40 | n), 1..1_u64 << 62];
        let row = (stamp(), prop::collection::vec((0..3_usize, stamp()), 0..3));
        (prop::collection::vec(row, 0..20), 0..1_u64 << 62).prop_map(|(rows, floor)| {
            let mut stamps = Stamps::default();
            for (number, (stamp, cells)) in rows.into_iter().enumerate() {
                stamps.push(stamp);
                cells.into_iter().for_each(|(column, stamp)| stamps.set(number, column, stamp));
            }
            stamps.raise(floor);
            stamps
        })
    }

    #[test]
    fn settled_stamps_take_no_bytes_and_regular_ones_about_two() {
        assert_eq!(Stamps::all_settled(60, 7).encode(|_| "a"), Vec::<u8>::new());
        let mut stamps = Stamps::default();
        for minute in 0..60 {
            // One record per reading, 60 s apart with a jitter of up to 100 ms.
            stamps.push(first_stamp(1_800_000_000_000 + minute * 60_000 + minute * 37 % 100) | 5 << 12);
        }
        assert!(stamps.encode(|_| "a").len() <= 60 * 5 / 2 + 12, "{}", stamps.encode(|_| "a").len());
        let mut one = Stamps::default();
        (0..60).for_each(|_| one.push(first_stamp(1_800_000_000_000)));
        assert!(one.encode(|_| "a").len() < 16);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn stamps_come_back(stamps in stamps()) {
            let bytes = stamps.encode(|column| NAMES[column]);
            let column = |name: &str| NAMES.iter().position(|known| *known == name);
            let back = Stamps::decode(&bytes, stamps.floor(), stamps.rows.len(), column);
            prop_assert_eq!(back, Ok(stamps));
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..60), readings in 0..30_usize) {
            let _ = Stamps::decode(&bytes, 0, readings, |name| (name.len() < 2).then_some(name.len()));
        }

        #[test]
        fn raising_the_floor_settles_older_cells(stamps in stamps(), floor in 0..1_u64 << 62) {
            let mut raised = stamps.clone();
            raised.raise(floor);
            for row in 0..stamps.rows.len() {
                for column in 0..3 {
                    let before = stamps.get(row, column);
                    let expected = if before <= raised.floor() { SETTLED } else { before };
                    prop_assert_eq!(raised.get(row, column), expected);
                }
            }
        }
    }
}
