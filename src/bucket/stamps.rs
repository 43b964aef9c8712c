//! The stamps of a page's readings: which record wrote each cell. Nearly always all cells of a reading came with one
//! record, and nearly all readings of a page are settled: their stamps lie at or below the page's floor, below which no
//! log has anything unflushed, and are not kept.
//!
//! As bytes, in both stores and in memory:
//!
//! ```text
//! stamps := [run… cells]                  nothing where all is settled
//! run    := head:varint [length:varint] [low:varint]        so many readings, in time order
//! head   := (length << 1) where they are settled
//!         | (zigzag(milliseconds, as the difference of differences) << 3 | low as before << 2 | a single one << 1 | 1)
//! cells  := count:varint name…  count:varint cell…          those whose stamp is not their reading's
//! name   := text                          cell := reading:varint name:varint millis:varint low:varint
//! ```

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::columns::{Bytes, Damage};
use crate::faults::{self, Bug};
use crate::reading::stamp::{LOW_BITS, SETTLED, Stamp, first_of, low_of, millis_of};
use crate::reading::varint::{put_varint, unzigzag, zigzag};

/// What a stored page says of its stamps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order<'a> {
    /// Every settled cell's stamp is at or below this.
    pub floor: Stamp,
    /// [`Stamps::oldest`].
    pub oldest: Stamp,
    /// [`Stamps::greatest`].
    pub last: Stamp,
    /// [`Stamps::encode`].
    pub stamps: Cow<'a, [u8]>,
}

impl Order<'_> {
    /// Its own copy.
    #[must_use]
    pub fn into_owned(self) -> Order<'static> {
        let Self { floor, oldest, last, stamps } = self;
        Order { floor, oldest, last, stamps: Cow::Owned(stamps.into_owned()) }
    }
}

/// Stamps of readings by their place, and of cells by the numbers of reading and column.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stamps {
    floor: Stamp,
    /// One per reading; [`SETTLED`] at or below the floor.
    rows: Vec<Stamp>,
    /// Of cells that have another one than their reading.
    cells: BTreeMap<(u32, u16), Stamp>,
}

impl Stamps {
    /// So many readings, all settled.
    #[must_use]
    pub fn settled(readings: usize, floor: Stamp) -> Self {
        Self { floor, rows: vec![SETTLED; readings], cells: BTreeMap::new() }
    }

    /// Every settled cell's stamp is at or below this.
    #[must_use]
    pub fn floor(&self) -> Stamp {
        self.floor
    }

    /// Settles every cell at or below a floor. A floor never falls.
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

    /// What a deletion's stamp must be above to cover any cell: the least stamp, or the floor where a cell is settled. Whoever
    /// raises a floor deletes first what is deleted below it.
    #[must_use]
    pub fn oldest(&self) -> Stamp {
        let least = self.rows.iter().chain(self.cells.values()).min().copied().unwrap_or(SETTLED);
        if least == SETTLED { self.oldest_settled() } else { least }
    }

    /// As old as a settled cell counts.
    #[must_use]
    pub fn oldest_settled(&self) -> Stamp {
        if faults::has(Bug::SettledIsOlderThanAll) { SETTLED } else { self.floor }
    }

    /// The greatest stamp; the floor where all are settled.
    #[must_use]
    pub fn greatest(&self) -> Stamp {
        self.rows.iter().chain(self.cells.values()).max().map_or(self.floor, |greatest| self.floor.max(*greatest))
    }

    /// Whether no cell's stamp is kept.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.cells.is_empty() && self.rows.iter().all(|stamp| *stamp == SETTLED)
    }

    /// A cell's stamp; [`SETTLED`] at or below the floor.
    #[must_use]
    pub fn of(&self, row: usize, column: usize) -> Stamp {
        if self.cells.is_empty() || faults::has(Bug::CellTakesItsReadingsStamp) {
            return self.rows[row];
        }
        self.cells.get(&key(row, column)).copied().unwrap_or(self.rows[row])
    }

    /// Whether all of a reading's cells have its own stamp.
    fn is_uniform(&self, row: usize) -> bool {
        self.cells.is_empty() || self.cells.range(key(row, 0)..=key(row, usize::from(u16::MAX))).next().is_none()
    }

    /// Columns have other numbers now; those without one are gone.
    pub fn renumber(&mut self, places: &[Option<usize>]) {
        let moved = |((row, column), stamp): ((u32, u16), Stamp)| {
            let place = places.get(usize::from(column)).copied().flatten()?;
            Some((key(row as usize, place), stamp))
        };
        self.cells = std::mem::take(&mut self.cells).into_iter().filter_map(moved).collect();
    }

    /// Makes room for so many more readings.
    pub fn reserve(&mut self, readings: usize) {
        self.rows.reserve(readings);
    }

    /// Adds a reading.
    pub fn push(&mut self, stamp: Stamp) {
        self.rows.push(if stamp <= self.floor { SETTLED } else { stamp });
    }

    /// Adds a reading that another set has at `row`; `column` says which of its columns is which here.
    pub fn push_from(&mut self, other: &Self, row: usize, column: impl Fn(usize) -> Option<usize>) {
        let at = self.rows.len();
        self.rows.push(other.rows[row]);
        if !other.is_uniform(row) {
            let cells = other.cells.range(key(row, 0)..=key(row, usize::from(u16::MAX)));
            let here = |of: &u16| column(usize::from(*of));
            self.cells.extend(cells.filter_map(|((_, of), stamp)| Some((key(at, here(of)?), *stamp))));
        }
    }

    /// Gives a cell a stamp above the floor.
    pub fn set(&mut self, row: usize, column: usize, stamp: Stamp) {
        if stamp == self.rows[row] {
            self.cells.remove(&key(row, column));
        } else {
            self.cells.insert(key(row, column), stamp);
        }
    }

    /// Gives all cells of a reading one stamp.
    pub fn set_row(&mut self, row: usize, stamp: Stamp) {
        self.rows[row] = stamp;
        if !self.is_uniform(row) {
            self.cells.retain(|(of, _), _| *of as usize != row);
        }
    }

    /// Puts readings into another order: at each place the one that was at `order`'s.
    pub fn permute(&mut self, order: &[u32]) {
        let old = std::mem::replace(self, Self { floor: self.floor, ..Self::default() });
        self.rows.reserve(order.len());
        order.iter().for_each(|row| self.push_from(&old, *row as usize, Some));
    }

    /// Keeps the first so many readings.
    pub fn truncate(&mut self, readings: usize) {
        self.rows.truncate(readings);
        self.cells.retain(|(row, _), _| (*row as usize) < readings);
    }

    /// Bytes of memory.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.rows.capacity() * size_of::<Stamp>() + self.cells.len() * 2 * size_of::<((u32, u16), Stamp)>()
    }

    /// As bytes; none where all is settled. The floor is kept apart.
    pub fn encode<'a>(&self, name: impl Fn(usize) -> &'a str) -> Vec<u8> {
        let mut out = Vec::new();
        if self.is_settled() {
            return out;
        }
        let mut before = Run::default();
        for run in self.rows.chunk_by(|a, b| a == b) {
            before.put(&mut out, run[0], run.len());
        }
        let mut columns: Vec<u16> = self.cells.keys().map(|(_, column)| *column).collect();
        columns.sort_unstable();
        columns.dedup();
        put_varint(&mut out, columns.len() as u64);
        for column in &columns {
            let name = name(usize::from(*column));
            put_varint(&mut out, name.len() as u64);
            out.extend_from_slice(name.as_bytes());
        }
        put_varint(&mut out, self.cells.len() as u64);
        for ((row, column), stamp) in &self.cells {
            put_varint(&mut out, u64::from(*row));
            put_varint(&mut out, columns.binary_search(column).unwrap_or_default() as u64);
            put_varint(&mut out, millis_of(*stamp));
            put_varint(&mut out, low_of(*stamp));
        }
        out
    }

    /// From bytes that may be damaged, for a set of so many readings; `column` finds a name's column.
    ///
    /// # Errors
    /// [`Damage`]
    pub fn decode(
        bytes: &[u8],
        floor: Stamp,
        readings: usize,
        column: impl Fn(&str) -> Option<usize>,
    ) -> Result<Self, Damage> {
        let mut stamps = Self { floor, rows: Vec::with_capacity(readings), cells: BTreeMap::new() };
        if bytes.is_empty() {
            stamps.rows.resize(readings, SETTLED);
            return Ok(stamps);
        }
        let mut bytes = Bytes::new(bytes);
        let mut before = Run::default();
        while stamps.rows.len() < readings {
            let (stamp, length) = before.take(&mut bytes)?;
            let length = usize::try_from(length).ok().filter(|length| *length <= readings - stamps.rows.len());
            let length = length.filter(|length| *length > 0);
            let length = length.ok_or(Damage::Unknown { what: "a run of stamps", found: stamp })?;
            stamps.rows.resize(stamps.rows.len() + length, stamp);
        }
        let mut columns = Vec::new();
        for _ in 0..bytes.varint()? {
            columns.push(column(bytes.text()?));
        }
        for _ in 0..bytes.varint()? {
            let (row, name) = (bytes.varint()?, bytes.varint()?);
            let stamp = stamp_of(bytes.varint()?, bytes.varint()?)?;
            let column = usize::try_from(name).ok().and_then(|name| *columns.get(name)?);
            let row = usize::try_from(row).ok().filter(|row| *row < readings);
            let (Some(row), Some(column)) = (row, column) else {
                return Err(Damage::Unknown { what: "a stamp's cell", found: name });
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

fn stamp_of(millis: u64, low: u64) -> Result<Stamp, Damage> {
    if millis >> (u64::BITS - LOW_BITS) != 0 || low >> LOW_BITS != 0 {
        return Err(Damage::Unknown { what: "a stamp", found: millis });
    }
    Ok(first_of(millis) | low)
}

/// What the next run of stamps is told from.
#[derive(Default)]
struct Run {
    millis: i64,
    step: i64,
    low: u64,
}

impl Run {
    #[expect(clippy::cast_possible_wrap, reason = "milliseconds have 44 bits")]
    fn put(&mut self, out: &mut Vec<u8>, stamp: Stamp, length: usize) {
        if stamp == SETTLED {
            put_varint(out, (length as u64) << 1);
            return;
        }
        let (millis, low) = (millis_of(stamp) as i64, low_of(stamp));
        let step = millis - self.millis;
        let (is_same, is_single) = (low == self.low, length == 1);
        put_varint(out, zigzag(step - self.step) << 3 | u64::from(is_same) << 2 | u64::from(is_single) << 1 | 1);
        if !is_single {
            put_varint(out, length as u64);
        }
        if !is_same {
            put_varint(out, low);
        }
        *self = Self { millis, step, low };
    }

    fn take(&mut self, bytes: &mut Bytes<'_>) -> Result<(Stamp, u64), Damage> {
        let head = bytes.varint()?;
        if head & 1 == 0 {
            return Ok((SETTLED, head >> 1));
        }
        let length = if head & 2 == 0 { bytes.varint()? } else { 1 };
        let low = if head & 4 == 0 { bytes.varint()? } else { self.low };
        let step = self.step.wrapping_add(unzigzag(head >> 3));
        let millis = self.millis.wrapping_add(step);
        let unknown = Damage::Unknown { what: "a stamp", found: head };
        let stamp = stamp_of(u64::try_from(millis).map_err(|_| unknown)?, low)?;
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
    fn what_is_settled_takes_no_bytes_and_a_regular_sender_about_two_a_reading() {
        assert_eq!(Stamps::settled(60, 7).encode(|_| "a"), Vec::<u8>::new());
        let mut stamps = Stamps::default();
        for minute in 0..60 {
            // 60 s apart, give or take 50 ms, each a record of its own.
            stamps.push(first_of(1_800_000_000_000 + minute * 60_000 + minute * 37 % 100) | 5 << 12);
        }
        assert!(stamps.encode(|_| "a").len() <= 60 * 5 / 2 + 12, "{}", stamps.encode(|_| "a").len());
        let mut one = Stamps::default();
        (0..60).for_each(|_| one.push(first_of(1_800_000_000_000)));
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
        fn any_bytes_have_an_answer(bytes in prop::collection::vec(any::<u8>(), 0..60), readings in 0..30_usize) {
            let _ = Stamps::decode(&bytes, 0, readings, |name| (name.len() < 2).then_some(name.len()));
        }

        #[test]
        fn a_floor_settles_what_is_at_or_below_it(stamps in stamps(), floor in 0..1_u64 << 62) {
            let mut raised = stamps.clone();
            raised.raise(floor);
            for row in 0..stamps.rows.len() {
                for column in 0..3 {
                    let before = stamps.of(row, column);
                    let expected = if before <= raised.floor() { SETTLED } else { before };
                    prop_assert_eq!(raised.of(row, column), expected);
                }
            }
        }
    }
}
