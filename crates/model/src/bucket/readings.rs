//! A set of readings in columns: sorted times, and a column of values for each field. It is the content of a page in
//! memory.

mod bounds;
mod merge;
mod packed;

pub use self::merge::MergeOutcome;
pub use self::packed::PackedReadings;

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use super::columns::{Cell, ColumnsDamage};
use super::stamps::Stamps;
use super::summary::Summary;
use super::summary::distribution::FieldBounds;
use crate::reading::stamp::SETTLED;
use crate::reading::time::MILLI_NS;
use crate::reading::{Stamp, Value};

/// A single reading, as queries and sensor documents use it.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    /// Nanoseconds since the epoch.
    pub time: i64,
    /// Field names and values.
    pub fields: Vec<(Arc<str>, Value)>,
}

/// A set of readings with distinct times. [`Readings::push`] appends readings to a tail, and [`Readings::settle`]
/// merges the tail by time and updates the summaries. After that, all readings are in time order and every summary is
/// current.
#[derive(Debug, Clone, Default)]
pub struct Readings {
    times: Vec<i64>,
    /// The stamps of the WAL records that wrote the cells.
    stamps: Stamps,
    columns: Vec<FieldColumn>,
    /// The bounds of the summaries' distributions.
    bounds: FieldBounds,
    /// The index of the first reading of the tail. The readings before it and the tail are each in time order.
    settled: usize,
    /// Stored size of all readings in bytes, by [`reading_bytes`].
    bytes: usize,
    /// Bytes of all text values in memory.
    texts: usize,
    /// The initial capacity of a new column, in readings.
    expected: usize,
    /// The packed set, computed on first use and shared by the store's write and the bucket cache; cleared by changes.
    packed: OnceLock<Box<[u8]>>,
}

#[derive(Debug, Clone)]
struct FieldColumn {
    name: Arc<str>,
    /// One cell per reading.
    cells: Vec<Cell>,
    summary: Option<Summary>,
}

/// The reason that columns do not form a set of readings.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidReadings {
    /// A reading's time is not after that of the reading before it.
    #[error("the reading at {0} ns is out of order or a duplicate")]
    Order(i64),
    /// Two columns have the same name.
    #[error("duplicate field {0}")]
    Twice(Arc<str>),
}

/// The size of a reading in a stored page, in bytes, by the BSON specification: an array element (type, index,
/// document) with a date, its sub-millisecond part and its fields.
#[must_use]
pub fn reading_bytes<'a>(time: i64, fields: impl Iterator<Item = (&'a str, &'a Value)>) -> usize {
    const ELEMENT: usize = 7 + 5;
    const TS: usize = 1 + 3 + 8;
    const NS: usize = 1 + 3 + 4;
    let rest = if time.rem_euclid(MILLI_NS) == 0 { 0 } else { NS };
    ELEMENT + TS + rest + fields.map(|(name, value)| cell_bytes(name, value)).sum::<usize>()
}

fn cell_bytes(name: &str, value: &Value) -> usize {
    let value_bytes = match value {
        Value::Float(_) | Value::Integer(_) => 8,
        Value::Unsigned(_) => 16,
        Value::Boolean(_) => 1,
        Value::String(text) => 4 + text.len() + 1,
    };
    1 + name.len() + 1 + value_bytes
}

fn text_bytes(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Float(_) | Value::Integer(_) | Value::Unsigned(_) | Value::Boolean(_) => 0,
    }
}

impl Readings {
    /// The number of readings.
    #[must_use]
    pub fn len(&self) -> usize {
        self.times.len()
    }

    /// Returns true if the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    /// The times in nanoseconds, sorted once settled.
    #[must_use]
    pub fn times(&self) -> &[i64] {
        &self.times
    }

    /// The stored size of all readings in bytes, by [`reading_bytes`].
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes of memory, texts included.
    #[must_use]
    pub fn memory(&self) -> usize {
        let cells = self.columns.iter().map(|c| c.cells.capacity()).sum::<usize>() * size_of::<Option<Value>>();
        let times = self.times.capacity() * size_of::<i64>() + self.stamps.memory();
        times + cells + self.columns.capacity() * size_of::<FieldColumn>() + self.texts
    }

    /// The stamps of the cells.
    #[must_use]
    pub fn stamps(&self) -> &Stamps {
        &self.stamps
    }

    /// Returns true if the record with this stamp wrote any cell of the reading at `index`.
    #[must_use]
    pub fn has_stamp(&self, index: usize, stamp: Stamp) -> bool {
        (0..self.columns.len()).any(|column| self.stamps.get(index, column) == stamp)
    }

    /// Encodes the stamps, without the floor.
    #[must_use]
    pub fn encode_stamps(&self) -> Vec<u8> {
        self.stamps.encode(|column| &self.columns[column].name)
    }

    /// Replaces the stamps with decoded ones.
    ///
    /// # Errors
    /// [`ColumnsDamage`] for invalid bytes.
    pub fn decode_stamps(&mut self, floor: Stamp, bytes: &[u8]) -> Result<(), ColumnsDamage> {
        let column = |name: &str| self.columns.iter().position(|column| *column.name == *name);
        self.stamps = Stamps::decode(bytes, floor, self.times.len(), column)?;
        Ok(())
    }

    /// Raises the floor: cells at or below it become [`SETTLED`]. Requires a sorted set.
    pub fn raise_floor(&mut self, floor: Stamp) {
        self.stamps.raise(floor);
    }

    /// The number of cells, empty ones included, after adding a reading with these fields. Results below 1024 are upper
    /// bounds.
    #[must_use]
    pub fn cells_after_push<'a>(&self, names: impl ExactSizeIterator<Item = &'a Arc<str>>) -> usize {
        let readings = self.times.len() + 1;
        // Most pages are far from any limit, so that the exact number of new columns does not matter.
        let bound = readings * (self.columns.len() + names.len());
        if bound < 1024 {
            return bound;
        }
        let new = names.filter(|name| !self.columns.iter().any(|c| c.name == **name)).count();
        readings * (self.columns.len() + new)
    }

    /// The fields of the reading at `index`, in column order.
    pub fn fields(&self, index: usize) -> impl Iterator<Item = (&Arc<str>, &Value)> {
        self.columns.iter().filter_map(move |c| c.cells[index].as_ref().map(|value| (&c.name, value)))
    }

    /// The fields of the reading at `index` whose stamps are below `limit`. Settled cells count as old as the floor.
    pub fn fields_before(&self, index: usize, limit: Stamp) -> impl Iterator<Item = (&Arc<str>, &Value)> {
        let is_old = move |column: usize| self.stamps.get(index, column).max(self.stamps.floor()) < limit;
        let old = self.columns.iter().enumerate().filter(move |(number, _)| is_old(*number));
        old.filter_map(move |(_, c)| c.cells[index].as_ref().map(|value| (&c.name, value)))
    }

    /// A copy of the reading at `index`.
    #[must_use]
    pub fn reading(&self, index: usize) -> Reading {
        let fields = self.fields(index).map(|(name, value)| (name.clone(), value.clone())).collect();
        Reading { time: self.times[index], fields }
    }

    /// A set from columns, each with a cell per time. Summaries are computed; all cells are [`SETTLED`].
    ///
    /// # Errors
    /// [`InvalidReadings`] for unsorted or duplicate times, and for duplicate columns.
    pub fn from_columns(
        times: Vec<i64>,
        columns: impl IntoIterator<Item = (Arc<str>, Vec<Cell>)>,
    ) -> Result<Self, InvalidReadings> {
        if let Some(pair) = times.windows(2).find(|pair| pair[0] >= pair[1]) {
            return Err(InvalidReadings::Order(pair[1]));
        }
        let bytes = times.iter().map(|time| reading_bytes(*time, std::iter::empty())).sum();
        let stamps = Stamps::all_settled(times.len(), SETTLED);
        let mut set = Self { bytes, settled: times.len(), times, stamps, ..Self::default() };
        for (name, cells) in columns {
            if set.columns.iter().any(|column| column.name == name) {
                return Err(InvalidReadings::Twice(name));
            }
            set.bytes += cells.iter().flatten().map(|value| cell_bytes(&name, value)).sum::<usize>();
            set.texts += cells.iter().flatten().map(text_bytes).sum::<usize>();
            let summary = Summary::fold(cells.iter().flatten());
            set.columns.push(FieldColumn { name, cells, summary });
        }
        Ok(set)
    }

    /// The number of cells, empty ones included.
    #[must_use]
    pub fn cell_count(&self) -> usize {
        self.times.len() * self.columns.len()
    }

    /// All columns, each with a cell per reading.
    pub fn columns(&self) -> impl ExactSizeIterator<Item = (&Arc<str>, &[Cell])> {
        self.columns.iter().map(|column| (&column.name, &*column.cells))
    }

    /// Keeps only the columns for which `is_wanted` is true. Readings without any remaining value stay in the set.
    pub fn keep(&mut self, is_wanted: impl Fn(&str) -> bool) {
        if self.columns.iter().all(|column| is_wanted(&column.name)) {
            return;
        }
        let mut left = 0..;
        let place = |column: &FieldColumn| if is_wanted(&column.name) { left.next() } else { None };
        let places: Vec<Option<usize>> = self.columns.iter().map(place).collect();
        self.stamps.renumber(&places);
        self.columns.retain(|column| is_wanted(&column.name));
        let values = || self.columns.iter().flat_map(|c| c.cells.iter().flatten().map(|value| (&*c.name, value)));
        self.texts = values().map(|(_, value)| text_bytes(value)).sum();
        let rows = self.times.iter().map(|time| reading_bytes(*time, std::iter::empty())).sum::<usize>();
        self.bytes = rows + values().map(|(name, value)| cell_bytes(name, value)).sum::<usize>();
        self.packed = OnceLock::new();
    }

    /// Reserves memory for this many more readings.
    pub fn reserve(&mut self, readings: usize) {
        self.times.reserve(readings);
        self.stamps.reserve(readings);
        self.columns.iter_mut().for_each(|column| column.cells.reserve(readings));
        self.expected = self.times.len() + readings;
    }

    /// The column of a field, with a cell per reading.
    #[must_use]
    pub fn cells(&self, name: &str) -> Option<&[Cell]> {
        self.columns.iter().find(|column| *column.name == *name).map(|column| &*column.cells)
    }

    /// The summary of each field that has numbers.
    pub fn summaries(&self) -> impl Iterator<Item = (&Arc<str>, &Summary)> {
        self.columns.iter().filter_map(|c| c.summary.as_ref().map(|s| (&c.name, s)))
    }

    /// Copies of [`Readings::summaries`].
    #[must_use]
    pub fn owned_summaries(&self) -> Vec<(Arc<str>, Summary)> {
        self.summaries().map(|(name, summary)| (name.clone(), summary.clone())).collect()
    }

    /// Like [`Readings::summaries`], with column numbers instead of names.
    pub fn numbered_summaries(&self) -> impl Iterator<Item = (usize, &Summary)> {
        self.columns.iter().enumerate().filter_map(|(number, c)| Some((number, c.summary.as_ref()?)))
    }

    /// The index of the reading with this time.
    #[must_use]
    pub fn find(&self, time: i64) -> Option<usize> {
        let (head, tail) = self.times.split_at(self.settled);
        // Most readings are new and later than all others.
        let in_head = if head.last().is_some_and(|last| *last >= time) { head.binary_search(&time).ok() } else { None };
        in_head.or_else(|| tail.binary_search(&time).ok().map(|i| i + self.settled))
    }

    /// Appends a reading. The set must not have its time, and it must be later than all readings pushed since the last
    /// [`Readings::settle`].
    pub fn push<'a>(&mut self, time: i64, stamp: Stamp, fields: impl Iterator<Item = (&'a Arc<str>, &'a Value)>) {
        self.stamps.push(stamp);
        self.push_cells(time, fields);
    }

    /// Appends a reading of another set, with a time that this set does not have.
    fn push_row(&mut self, other: &Self, row: usize) {
        self.push_cells(other.times[row], other.fields(row));
        let columns = &self.columns;
        let own_column = |number: usize| columns.iter().position(|column| column.name == other.columns[number].name);
        self.stamps.push_row(&other.stamps, row, own_column);
    }

    fn push_cells<'a>(&mut self, time: i64, fields: impl Iterator<Item = (&'a Arc<str>, &'a Value)>) {
        debug_assert!(self.times[self.settled..].last().is_none_or(|last| *last < time), "pushed in time order");
        let index = self.times.len();
        self.packed.take();
        self.times.push(time);
        self.bytes += reading_bytes(time, std::iter::empty());
        for (hint, (name, value)) in fields.enumerate() {
            let number = self.column(name, hint);
            let column = &mut self.columns[number];
            self.bytes += cell_bytes(&column.name, value);
            self.texts += text_bytes(value);
            if column.cells.len() < index {
                column.cells.resize(index, None);
            }
            column.cells.push(Some(value.clone()));
        }
        for column in &mut self.columns {
            if column.cells.len() <= index {
                column.cells.push(None);
            }
        }
    }

    /// Settles every cell at this floor, regardless of its stamp. Used for readings from another store.
    pub fn settle_all(&mut self, floor: Stamp) {
        self.stamps = Stamps::all_settled(self.times.len(), floor);
    }

    /// Divides a sorted set at the times where `part` changes. Each part has all columns of the set.
    #[must_use]
    pub fn parts<K: PartialEq>(self, part: impl Fn(i64) -> K) -> Vec<(K, Self)> {
        let stamps = self.stamps;
        let bounds = self.bounds;
        let mut columns: Vec<(Arc<str>, std::vec::IntoIter<Cell>)> =
            self.columns.into_iter().map(|column| (column.name, column.cells.into_iter())).collect();
        let mut parts = Vec::new();
        let mut from = 0;
        for times in self.times.chunk_by(|a, b| part(*a) == part(*b)) {
            let cells = columns.iter_mut().map(|(name, cells)| (name.clone(), cells.take(times.len()).collect()));
            // A part of a valid set is valid.
            let mut set = Self::from_columns(times.to_vec(), cells).unwrap_or_default();
            set.stamps = stamps.slice(from..from + times.len());
            set.set_bounds(&bounds);
            from += times.len();
            parts.push((part(times[0]), set));
        }
        parts
    }

    /// Sorts the readings and updates the summaries. Set `is_rewritten` if existing readings changed, so that summaries
    /// are computed from scratch instead of being continued.
    pub fn settle(&mut self, is_rewritten: bool) {
        let from = self.settled;
        self.settled = self.times.len();
        self.packed.take();
        let is_late = from > 0 && from < self.times.len() && self.times[from] < self.times[from - 1];
        if is_late {
            self.sort();
        }
        for column in &mut self.columns {
            match &mut column.summary {
                Some(summary) if !is_rewritten && !is_late => {
                    column.cells[from..].iter().flatten().for_each(|value| summary.push(value));
                }
                summary => {
                    *summary = Summary::fold_within(column.cells.iter().flatten(), self.bounds.get(&column.name))
                }
            }
        }
    }

    /// Moves the readings from `index` on into a new set.
    #[must_use]
    pub fn split_off(&mut self, index: usize) -> Self {
        let mut later = self.empty_copy();
        for i in index..self.times.len() {
            later.push_row(self, i);
        }
        self.times.truncate(index);
        self.stamps.truncate(index);
        for column in &mut self.columns {
            column.cells.truncate(index);
        }
        self.settled = index;
        self.bytes -= later.bytes;
        self.texts -= later.texts;
        self.settle(true);
        later.settle(true);
        later
    }

    /// Deletes the cells in a time range whose stamp is below `limit`, and then readings without cells and fields
    /// without readings. Returns the number of readings that lost a cell.
    ///
    /// Settled cells count as old as the floor. Therefore apply pending deletions before raising the floor.
    pub fn delete(&mut self, range: &Range<i64>, limit: Stamp) -> usize {
        self.delete_where(|time| range.contains(&time), limit)
    }

    /// As [`Readings::delete`], for the times for which `is_selected` is true.
    pub fn delete_where(&mut self, is_selected: impl Fn(i64) -> bool, limit: Stamp) -> usize {
        if self.stamps.oldest() >= limit {
            return 0;
        }
        let is_old = |stamp: Stamp| if stamp == SETTLED { self.stamps.floor() < limit } else { stamp < limit };
        let mut rest = self.empty_copy();
        let mut cut_readings = 0;
        for i in 0..self.times.len() {
            let is_time_selected = is_selected(self.times[i]);
            let is_deleted = |column: usize| is_time_selected && is_old(self.stamps.get(i, column));
            let cells = || self.columns.iter().enumerate().filter(|(_, column)| column.cells[i].is_some());
            let deleted = cells().filter(|(number, _)| is_deleted(*number)).count();
            cut_readings += usize::from(deleted > 0);
            if deleted == cells().count() {
                continue;
            }
            let kept = cells().filter(|(number, _)| !is_deleted(*number));
            let row = rest.times.len();
            rest.stamps.push(SETTLED);
            rest.push_cells(self.times[i], kept.clone().filter_map(|(_, c)| Some((&c.name, c.cells[i].as_ref()?))));
            for (number, column) in kept {
                let target = rest.columns.iter().position(|other| other.name == column.name).unwrap_or(number);
                rest.stamps.set(row, target, self.stamps.get(i, number));
            }
            rest.unite_stamps(row);
        }
        if cut_readings > 0 {
            rest.settle(true);
            *self = rest;
        }
        cut_readings
    }

    /// The number of a field's column, which is added if it is missing. `hint` is the expected number.
    fn column(&mut self, name: &Arc<str>, hint: usize) -> usize {
        // A sensor sends its fields in a fixed order, so the hint is nearly always right.
        let same = |c: &FieldColumn| Arc::ptr_eq(&c.name, name) || c.name == *name;
        if self.columns.get(hint).is_some_and(same) {
            return hint;
        }
        self.columns.iter().position(same).unwrap_or_else(|| {
            let cells = Vec::with_capacity(self.expected);
            self.columns.push(FieldColumn { name: name.clone(), cells, summary: None });
            self.columns.len() - 1
        })
    }

    fn sort(&mut self) {
        let mut order: Vec<u32> = (0..u32::try_from(self.times.len()).unwrap_or(u32::MAX)).collect();
        order.sort_unstable_by_key(|i| self.times[*i as usize]);
        self.times = order.iter().map(|i| self.times[*i as usize]).collect();
        self.stamps.permute(&order);
        for column in &mut self.columns {
            column.cells = order.iter().map(|i| column.cells[*i as usize].take()).collect();
        }
    }
}

impl FromIterator<Reading> for Readings {
    /// A set from readings in time order with distinct times; all cells are [`SETTLED`].
    fn from_iter<I: IntoIterator<Item = Reading>>(readings: I) -> Self {
        let mut set = Self::default();
        for reading in readings {
            set.push(reading.time, SETTLED, reading.fields.iter().map(|(name, value)| (name, value)));
        }
        set.settle(true);
        set
    }
}

impl PartialEq for Readings {
    /// Compares times and values; the order of columns and the stamps do not matter.
    fn eq(&self, other: &Self) -> bool {
        let same_fields = |i: usize| {
            let holds = |set: &Self, name: &str, value: &Value| set.fields(i).any(|(n, v)| **n == *name && v == value);
            self.fields(i).count() == other.fields(i).count() && self.fields(i).all(|(n, v)| holds(other, n, v))
        };
        self.times == other.times && (0..self.len()).all(same_fields)
    }
}

#[cfg(test)]
mod tests;
