//! A set of readings as columns: times in order, and per field a column of values beside them.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use super::columns::{self, Cell, Damage};
use super::stamps::Stamps;
use super::summary::Summary;
use crate::faults::{self, Bug};
use crate::reading::stamp::SETTLED;
use crate::reading::time::MILLI_NS;
use crate::reading::{Stamp, Value};

/// One reading by itself, as queries and sensor documents hand it around.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    /// Nanoseconds since the epoch.
    pub time: i64,
    /// Field names and values.
    pub fields: Vec<(Arc<str>, Value)>,
}

/// What became of a reading whose time a set holds already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Merged {
    /// A value changed, or was added.
    Changed,
    /// The values are the same, and now known to have been said later.
    Restamped,
    /// The set has this very reading, from an earlier try.
    Landed,
    /// The set has later values, or the same ones.
    Same,
    /// It lies at or below the floor and says something else: by then its log was taken to have nothing left, so it is
    /// not known which is later. Nothing changed.
    Outdated,
}

/// A set of readings, distinct in time. Between [`Readings::push`] and [`Readings::settle`] the
/// newly pushed ones form a tail; otherwise all is in time order and every summary is current.
#[derive(Debug, Clone, Default)]
pub struct Readings {
    times: Vec<i64>,
    /// Which records wrote them.
    stamps: Stamps,
    columns: Vec<Column>,
    /// Readings before this index are in time order, and those from it on are too.
    settled: usize,
    /// Stored size of all readings in bytes, by [`reading_bytes`].
    bytes: usize,
    /// Bytes of all text values.
    texts: usize,
    /// For how many readings a new column has room at first.
    expected: usize,
    /// The settled set as bytes, once somebody has asked: a store that writes them, and then whoever keeps them hot.
    packed: OnceLock<Box<[u8]>>,
}

#[derive(Debug, Clone)]
struct Column {
    name: Arc<str>,
    /// One cell per reading.
    cells: Vec<Cell>,
    summary: Option<Summary>,
}

/// A settled set of readings as bytes, for as long as nobody looks at it.
#[derive(Debug, Clone, Default)]
pub struct PackedReadings {
    columns: Vec<(Arc<str>, Option<Summary>)>,
    len: usize,
    packed: Box<[u8]>,
    floor: Stamp,
    stamps: Box<[u8]>,
    bytes: usize,
    texts: usize,
}

/// Why columns are no set of readings.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoSet {
    /// A reading does not lie after the one before it.
    #[error("the reading at {time} ns is out of order or there twice")]
    Order {
        /// When it is.
        time: i64,
    },
    /// Two columns have one name.
    #[error("the field {name} is there twice")]
    Twice {
        /// Which name.
        name: Arc<str>,
    },
}

/// Bytes that a reading takes in a stored page: an array element (type, index, document) with a
/// date, its sub-millisecond rest, and its fields, as the BSON specification counts them.
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
    /// How many readings.
    #[must_use]
    pub fn len(&self) -> usize {
        self.times.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    /// The times, in order once settled.
    #[must_use]
    pub fn times(&self) -> &[i64] {
        &self.times
    }

    /// The stored size of all readings, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The memory that all readings take here, in bytes, texts included.
    #[must_use]
    pub fn memory(&self) -> usize {
        let cells = self.columns.iter().map(|c| c.cells.capacity()).sum::<usize>() * size_of::<Option<Value>>();
        let times = self.times.capacity() * size_of::<i64>() + self.stamps.memory();
        times + cells + self.columns.capacity() * size_of::<Column>() + self.texts
    }

    /// The stamps of its cells.
    #[must_use]
    pub fn stamps(&self) -> &Stamps {
        &self.stamps
    }

    /// Whether a record of this stamp wrote any cell of a reading.
    #[must_use]
    pub fn has_of(&self, index: usize, stamp: Stamp) -> bool {
        (0..self.columns.len()).any(|column| self.stamps.of(index, column) == stamp)
    }

    /// The stamps as bytes, but for the floor.
    #[must_use]
    pub fn encode_stamps(&self) -> Vec<u8> {
        self.stamps.encode(|column| &self.columns[column].name)
    }

    /// Takes over stamps that were encoded, for a set that has none yet.
    ///
    /// # Errors
    /// [`Damage`]
    pub fn decode_stamps(&mut self, floor: Stamp, bytes: &[u8]) -> Result<(), Damage> {
        let column = |name: &str| self.columns.iter().position(|column| *column.name == *name);
        self.stamps = Stamps::decode(bytes, floor, self.times.len(), column)?;
        Ok(())
    }

    /// Settles every cell at or below a floor, of a settled set.
    pub fn raise_floor(&mut self, floor: Stamp) {
        self.stamps.raise(floor);
    }

    /// How many cells, empty ones included, there would be with one more reading of these fields.
    #[must_use]
    pub fn cells_with<'a>(&self, names: impl ExactSizeIterator<Item = &'a Arc<str>>) -> usize {
        let readings = self.times.len() + 1;
        // Most pages are so far from any bound that the exact number of new columns is not worth looking for.
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

    /// The reading at `index` by itself.
    #[must_use]
    pub fn reading(&self, index: usize) -> Reading {
        let fields = self.fields(index).map(|(name, value)| (name.clone(), value.clone())).collect();
        Reading { time: self.times[index], fields }
    }

    /// A set from columns, each with a cell per time; summaries are made anew, and nothing is known of stamps.
    ///
    /// # Errors
    /// [`NoSet`]
    pub fn from_columns(
        times: Vec<i64>,
        columns: impl IntoIterator<Item = (Arc<str>, Vec<Cell>)>,
    ) -> Result<Self, NoSet> {
        if let Some(pair) = times.windows(2).find(|pair| pair[0] >= pair[1]) {
            return Err(NoSet::Order { time: pair[1] });
        }
        let bytes = times.iter().map(|time| reading_bytes(*time, std::iter::empty())).sum();
        let stamps = Stamps::settled(times.len(), SETTLED);
        let mut set = Self { bytes, settled: times.len(), times, stamps, ..Self::default() };
        for (name, cells) in columns {
            if set.columns.iter().any(|column| column.name == name) {
                return Err(NoSet::Twice { name });
            }
            set.bytes += cells.iter().flatten().map(|value| cell_bytes(&name, value)).sum::<usize>();
            set.texts += cells.iter().flatten().map(text_bytes).sum::<usize>();
            let summary = Summary::fold(cells.iter().flatten());
            set.columns.push(Column { name, cells, summary });
        }
        Ok(set)
    }

    /// The settled set as [`columns::pack`] has it: made once, and kept until something changes.
    #[must_use]
    pub fn packed(&self) -> &[u8] {
        self.packed.get_or_init(|| self.pack_columns())
    }

    fn pack_columns(&self) -> Box<[u8]> {
        debug_assert!(self.settled == self.times.len(), "settled");
        columns::pack(&self.times, self.columns.iter().map(|column| &*column.cells)).into()
    }

    /// How many cells there are, empty ones included.
    #[must_use]
    pub fn cells_in_all(&self) -> usize {
        self.times.len() * self.columns.len()
    }

    /// All columns, each with a cell per reading.
    pub fn columns(&self) -> impl ExactSizeIterator<Item = (&Arc<str>, &[Cell])> {
        self.columns.iter().map(|column| (&column.name, &*column.cells))
    }

    /// Leaves these columns alone. A reading that has none of them stays, without a value.
    pub fn keep(&mut self, is_wanted: impl Fn(&str) -> bool) {
        if self.columns.iter().all(|column| is_wanted(&column.name)) {
            return;
        }
        let mut left = 0..;
        let place = |column: &Column| if is_wanted(&column.name) { left.next() } else { None };
        let places: Vec<Option<usize>> = self.columns.iter().map(place).collect();
        self.stamps.renumber(&places);
        self.columns.retain(|column| is_wanted(&column.name));
        let values = || self.columns.iter().flat_map(|c| c.cells.iter().flatten().map(|value| (&*c.name, value)));
        self.texts = values().map(|(_, value)| text_bytes(value)).sum();
        let rows = self.times.iter().map(|time| reading_bytes(*time, std::iter::empty())).sum::<usize>();
        self.bytes = rows + values().map(|(name, value)| cell_bytes(name, value)).sum::<usize>();
        self.packed = OnceLock::new();
    }

    /// Makes room for so many more readings.
    pub fn reserve(&mut self, readings: usize) {
        self.times.reserve(readings);
        self.stamps.reserve(readings);
        self.columns.iter_mut().for_each(|column| column.cells.reserve(readings));
        self.expected = self.times.len() + readings;
    }

    /// A field's column: a cell per reading.
    #[must_use]
    pub fn cells(&self, name: &str) -> Option<&[Cell]> {
        self.columns.iter().find(|column| *column.name == *name).map(|column| &*column.cells)
    }

    /// The summary of each field that holds a number.
    pub fn summaries(&self) -> impl Iterator<Item = (&Arc<str>, &Summary)> {
        self.columns.iter().filter_map(|c| c.summary.as_ref().map(|s| (&c.name, s)))
    }

    /// As [`Readings::summaries`], each by itself.
    #[must_use]
    pub fn owned_summaries(&self) -> Vec<(Arc<str>, Summary)> {
        self.summaries().map(|(name, summary)| (name.clone(), summary.clone())).collect()
    }

    /// As [`Readings::summaries`], each with the number of its column.
    pub fn numbered_summaries(&self) -> impl Iterator<Item = (usize, &Summary)> {
        self.columns.iter().enumerate().filter_map(|(number, c)| Some((number, c.summary.as_ref()?)))
    }

    /// Where the reading of this time stands.
    #[must_use]
    pub fn find(&self, time: i64) -> Option<usize> {
        let (head, tail) = self.times.split_at(self.settled);
        // Most readings are new and later than all before them.
        let in_head = if head.last().is_some_and(|last| *last >= time) { head.binary_search(&time).ok() } else { None };
        in_head.or_else(|| tail.binary_search(&time).ok().map(|i| i + self.settled))
    }

    /// Adds a reading whose time is not held yet, after any pushed since the last settling.
    pub fn push<'a>(&mut self, time: i64, stamp: Stamp, fields: impl Iterator<Item = (&'a Arc<str>, &'a Value)>) {
        self.stamps.push(stamp);
        self.push_cells(time, fields);
    }

    /// Adds a reading of another set, whose time is not held yet.
    fn push_from(&mut self, other: &Self, row: usize) {
        self.push_cells(other.times[row], other.fields(row));
        let columns = &self.columns;
        let here = |of: usize| columns.iter().position(|column| column.name == other.columns[of].name);
        self.stamps.push_from(&other.stamps, row, here);
    }

    fn push_cells<'a>(&mut self, time: i64, fields: impl Iterator<Item = (&'a Arc<str>, &'a Value)>) {
        debug_assert!(self.times[self.settled..].last().is_none_or(|last| *last < time), "pushed in time order");
        let index = self.times.len();
        self.packed.take();
        self.times.push(time);
        self.bytes += reading_bytes(time, std::iter::empty());
        for (hint, (name, value)) in fields.enumerate() {
            let at = self.column(name, hint);
            let column = &mut self.columns[at];
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

    /// Merges what a record with this stamp says of the reading at `index`: field by field the greater stamp wins, and
    /// of equal stamps the greater value.
    pub fn merge<'a>(
        &mut self,
        index: usize,
        stamp: Stamp,
        fields: impl Iterator<Item = (&'a Arc<str>, &'a Value)>,
    ) -> Merged {
        if stamp <= self.stamps.floor() {
            return self.compare(index, fields);
        }
        let (mut changed, mut restamped, mut landed) = (false, false, true);
        for (hint, (name, value)) in fields.enumerate() {
            let at = self.column(name, hint);
            self.columns[at].cells.resize(self.times.len(), None);
            let held = self.columns[at].cells[index].as_ref().map(|old| (self.stamps.of(index, at), old));
            landed &= held.is_some_and(|(of, _)| of == stamp);
            let (wins, differs) = match held {
                None => (true, true),
                Some((of, old)) => {
                    let is_greater = || value.is_greater(old) || faults::has(Bug::EqualStampsByArrival);
                    (stamp > of || (stamp == of && is_greater()), old != value)
                }
            };
            if !wins {
                continue;
            }
            restamped |= held.is_none_or(|(of, _)| of != stamp);
            self.stamps.set(index, at, stamp);
            if differs {
                changed = true;
                self.replace(at, index, value);
            }
        }
        if restamped {
            self.unite_stamps(index);
        }
        match (changed, restamped, landed) {
            (true, ..) => Merged::Changed,
            (false, true, _) => Merged::Restamped,
            (false, false, true) => Merged::Landed,
            (false, false, false) => Merged::Same,
        }
    }

    fn compare<'a>(&self, index: usize, mut fields: impl Iterator<Item = (&'a Arc<str>, &'a Value)>) -> Merged {
        let is_there = |(name, value): (&Arc<str>, &Value)| {
            let column = self.columns.iter().position(|column| column.name == *name);
            let cell = column.and_then(|at| Some((at, self.columns[at].cells.get(index)?.as_ref()?)));
            // A cell above the floor is later, whatever it says.
            cell.is_some_and(|(at, held)| held == value || self.stamps.of(index, at) != SETTLED)
        };
        if fields.all(is_there) { Merged::Same } else { Merged::Outdated }
    }

    fn replace(&mut self, at: usize, index: usize, value: &Value) {
        let column = &mut self.columns[at];
        let cell = &mut column.cells[index];
        self.bytes += cell_bytes(&column.name, value);
        self.bytes -= cell.as_ref().map_or(0, |old| cell_bytes(&column.name, old));
        self.texts += text_bytes(value);
        self.texts -= cell.as_ref().map_or(0, text_bytes);
        *cell = Some(value.clone());
        self.packed.take();
    }

    /// Where all cells of a reading have one stamp, it is the reading's.
    fn unite_stamps(&mut self, index: usize) {
        let there = self.columns.iter().enumerate();
        let there = there.filter(|(_, column)| column.cells.get(index).is_some_and(Option::is_some));
        let mut stamps = there.map(|(at, _)| self.stamps.of(index, at));
        let Some(first) = stamps.next() else { return };
        if stamps.all(|stamp| stamp == first) {
            self.stamps.set_row(index, first);
        }
    }

    /// Merges another settled set into this settled one; tells whether anything changed but stamps.
    pub fn merge_set(&mut self, other: &Self) -> bool {
        let (mut changed, mut added) = (false, false);
        for (row, time) in other.times.iter().enumerate() {
            let Some(index) = self.find(*time) else {
                self.push_from(other, row);
                added = true;
                continue;
            };
            for (at, column) in other.columns.iter().enumerate() {
                if let Some(value) = &column.cells[row] {
                    let field = std::iter::once((&column.name, value));
                    changed |= self.merge(index, other.stamps.of(row, at), field) == Merged::Changed;
                }
            }
        }
        if changed || added {
            self.settle(changed);
        }
        changed || added
    }

    /// Brings all into time order and the summaries up to date. `rewritten` tells that settled
    /// readings were overwritten, so that no summary can be continued from where it was.
    pub fn settle(&mut self, rewritten: bool) {
        let from = self.settled;
        self.settled = self.times.len();
        self.packed.take();
        let late = from > 0 && from < self.times.len() && self.times[from] < self.times[from - 1];
        if late {
            self.sort();
        }
        for column in &mut self.columns {
            match &mut column.summary {
                Some(summary) if !rewritten && !late => {
                    column.cells[from..].iter().flatten().for_each(|value| summary.push(value));
                }
                summary => *summary = Summary::fold(column.cells.iter().flatten()),
            }
        }
    }

    /// Takes the later part, from `index` on, into a set of its own.
    #[must_use]
    pub fn split_off(&mut self, index: usize) -> Self {
        let mut later = Self { stamps: Stamps::settled(0, self.stamps.floor()), ..Self::default() };
        for i in index..self.times.len() {
            later.push_from(self, i);
        }
        if faults::has(Bug::SplitLosesStamps) {
            later.stamps = Stamps::settled(later.times.len(), self.stamps.floor());
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

    /// Deletes the cells of a range of times that are older than a stamp, readings that have none left, and fields that
    /// no reading has any more; tells how many readings lost something.
    ///
    /// Settled cells are as old as the floor: whoever raises it deletes first what is to be deleted below it.
    pub fn delete(&mut self, range: &Range<i64>, before: Stamp) -> usize {
        let within = self.times.partition_point(|time| *time < range.start)
            ..self.times.partition_point(|time| *time < range.end);
        if self.stamps.oldest() >= before {
            return 0;
        }
        let is_old =
            |stamp: Stamp| if stamp == SETTLED { self.stamps.oldest_settled() < before } else { stamp < before };
        let (mut rest, mut cut) = (Self::default(), 0);
        rest.stamps = Stamps::settled(0, self.stamps.floor());
        for i in 0..self.times.len() {
            let goes = |at: usize| within.contains(&i) && is_old(self.stamps.of(i, at));
            let there = || self.columns.iter().enumerate().filter(|(_, column)| column.cells[i].is_some());
            let (all, gone) = (there().count(), there().filter(|(at, _)| goes(*at)).count());
            cut += usize::from(gone > 0);
            if gone == all {
                continue;
            }
            let kept = there().filter(|(at, _)| !goes(*at));
            let row = rest.times.len();
            rest.stamps.push(SETTLED);
            rest.push_cells(self.times[i], kept.clone().filter_map(|(_, c)| Some((&c.name, c.cells[i].as_ref()?))));
            for (at, column) in kept {
                let to = rest.columns.iter().position(|other| other.name == column.name).unwrap_or(at);
                rest.stamps.set(row, to, self.stamps.of(i, at));
            }
            rest.unite_stamps(row);
        }
        if cut > 0 {
            rest.settle(true);
            *self = rest;
        }
        cut
    }

    /// Packs a settled set.
    #[must_use]
    pub fn pack(mut self) -> PackedReadings {
        let packed = self.packed.take().unwrap_or_else(|| self.pack_columns());
        let (floor, stamps) = (self.stamps.floor(), self.encode_stamps().into());
        let columns = self.columns.into_iter().map(|column| (column.name, column.summary)).collect();
        PackedReadings { columns, len: self.times.len(), packed, floor, stamps, bytes: self.bytes, texts: self.texts }
    }

    fn column(&mut self, name: &Arc<str>, hint: usize) -> usize {
        // A sensor sends its fields in one order, so the field is nearly always where it was last.
        let same = |c: &Column| Arc::ptr_eq(&c.name, name) || c.name == *name;
        if self.columns.get(hint).is_some_and(same) {
            return hint;
        }
        self.columns.iter().position(same).unwrap_or_else(|| {
            let cells = Vec::with_capacity(self.expected);
            self.columns.push(Column { name: name.clone(), cells, summary: None });
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

impl PackedReadings {
    fn unpacked(&self) -> columns::Unpacked {
        let unpacked: Result<_, Damage> = columns::unpack_own(&self.packed, self.columns.len());
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

    /// The set again.
    #[must_use]
    pub fn unpack(self) -> Readings {
        let (times, columns) = self.unpacked();
        let column = |((name, summary), cells)| Column { name, cells, summary };
        let columns = self.columns.into_iter().zip(columns).map(column).collect();
        let packed = OnceLock::from(self.packed);
        let (settled, stamps) = (times.len(), Stamps::default());
        let (bytes, texts) = (self.bytes, self.texts);
        let mut set = Readings { settled, times, stamps, columns, bytes, texts, expected: 0, packed };
        let decoded = set.decode_stamps(self.floor, &self.stamps);
        debug_assert!(decoded.is_ok(), "packed here: {decoded:?}");
        set
    }

    /// The memory that it takes, in bytes.
    #[must_use]
    pub fn memory(&self) -> usize {
        let columns = self.columns.capacity() * size_of::<(Arc<str>, Option<Summary>)>();
        self.packed.len() + self.stamps.len() + columns
    }

    /// About what [`PackedReadings::unpack`] will take, in bytes.
    #[must_use]
    pub fn unpacked_memory(&self) -> usize {
        self.len * (2 * size_of::<i64>() + self.columns.len() * size_of::<Cell>()) + self.texts
    }
}

impl FromIterator<Reading> for Readings {
    /// A set from readings in time order, distinct in time, of whose stamps nothing is known.
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
    /// The same readings, whatever the order of their columns.
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
