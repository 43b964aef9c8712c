//! The memtable's row format: readings of one sensor in WAL order, each with its record's stamp. A reading of two
//! numbers takes about 16 bytes, against 100 as values. The format exists in memory only and may change at any time.
//! Merged readings are packed by [`super::columns`] instead.
//!
//! ```text
//! row   := head:varint (stamp milliseconds minus those of the previous row << 2 | 2 if the stamp differs
//!          | 1 if a new shape follows)  [low:varint (zigzag; low bits of the stamp minus those of the first row)]
//!          [shape]  time:varint (zigzag; delta of deltas in ns)  value…
//! shape := count:varint cell…                     cell := varint (field's index << 3 | kind)
//! value := 0 float: count:u8 bytes (the f64's big-endian bytes without trailing zero bytes)
//!        | 1 integer: zigzag varint | 2 unsigned: varint | 3 boolean: u8 | 4 text: length:varint bytes
//! ```

use std::iter;
use std::ops::Range;

use super::columns::put_float;
use super::merge::Row;
use crate::reading::stamp::{first_stamp, low_bits, stamp_millis};
use crate::reading::varint::{put_bytes, put_varint, take_varint, unzigzag, zigzag};
use crate::reading::{Stamp, Value};

/// Packed readings in push order, each with its record's stamp.
#[derive(Debug, Clone, Default)]
pub struct PackedRows {
    bytes: Vec<u8>,
    rows: u32,
    /// The state that the next row is encoded against.
    end: RowState,
}

/// The state that a row is encoded against: the previous row.
#[derive(Debug, Clone, Copy, Default)]
struct RowState {
    stamp: Stamp,
    /// The low bits of the first row's stamp; later stamps from the same opening of the WAL differ little.
    low: u64,
    time: i64,
    interval: i64,
    /// The position of the row's shape in the bytes: the last shape written.
    shape: u32,
}

/// Decoded readings. The memory is reused between uses.
#[derive(Debug, Default)]
pub struct UnpackedRows {
    rows: Vec<UnpackedRow>,
    cells: Vec<(u16, Value)>,
}

#[derive(Debug, Clone)]
struct UnpackedRow {
    time: i64,
    stamp: Stamp,
    /// The row's range in the cells of [`UnpackedRows`].
    cells: Range<usize>,
}

impl PackedRows {
    /// The number of readings.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows as usize
    }

    /// Returns true if there are no readings.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Bytes of memory.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.bytes.capacity()
    }

    /// Appends a reading. Its record must not be before the last reading's record in the WAL.
    pub fn push<'a>(
        &mut self,
        stamp: Stamp,
        time: i64,
        cells: impl ExactSizeIterator<Item = (u16, &'a Value)> + Clone,
    ) {
        self.make_room();
        let previous = self.end;
        let is_new = self.rows == 0 || !self.is_shape_of(previous.shape, cells.clone());
        self.put_stamp(stamp, is_new);
        if is_new {
            self.end.shape = u32::try_from(self.bytes.len()).unwrap_or(u32::MAX);
            put_varint(&mut self.bytes, cells.len() as u64);
            cells.clone().for_each(|(field, value)| put_varint(&mut self.bytes, cell_head(field, value)));
        }
        let interval = time.wrapping_sub(previous.time);
        put_varint(&mut self.bytes, zigzag(interval.wrapping_sub(previous.interval)));
        cells.for_each(|(_, value)| self.put_value(value));
        self.end.stamp = stamp;
        self.end.time = time;
        self.end.interval = interval;
        self.rows += 1;
    }

    fn put_stamp(&mut self, stamp: Stamp, is_new_shape: bool) {
        let previous = self.end.stamp;
        if stamp == previous {
            self.bytes.push(u8::from(is_new_shape));
            return;
        }
        let millis = stamp_millis(stamp) - stamp_millis(previous);
        put_varint(&mut self.bytes, millis << 2 | 2 | u64::from(is_new_shape));
        put_varint(&mut self.bytes, zigzag(low_bits(stamp).wrapping_sub(self.end.low).cast_signed()));
        if self.rows == 0 {
            self.end.low = low_bits(stamp);
        }
    }

    /// Grows the buffer by a quarter if it is nearly full. A memtable has very many of these buffers, and doubling
    /// would leave a third of the memory unused.
    fn make_room(&mut self) {
        /// Bytes of a first reading with a few numbers, including its shape.
        const FIRST_READING: usize = 40;
        if self.bytes.capacity() - self.bytes.len() < FIRST_READING / 2 {
            self.bytes.reserve_exact((self.bytes.len() / 4).max(FIRST_READING));
        }
    }

    fn is_shape_of<'a>(&self, shape: u32, mut cells: impl ExactSizeIterator<Item = (u16, &'a Value)>) -> bool {
        let mut position = shape as usize;
        varint(&self.bytes, &mut position) == cells.len() as u64
            && cells.all(|(field, value)| varint(&self.bytes, &mut position) == cell_head(field, value))
    }

    fn put_value(&mut self, value: &Value) {
        match value {
            Value::Float(v) => put_float(&mut self.bytes, *v),
            Value::Integer(v) => put_varint(&mut self.bytes, zigzag(*v)),
            Value::Unsigned(v) => put_varint(&mut self.bytes, *v),
            Value::Boolean(v) => self.bytes.push(u8::from(*v)),
            Value::String(v) => put_bytes(&mut self.bytes, v.as_bytes()),
        }
    }

    /// Appends readings that come later in the WAL.
    pub fn append(&mut self, later: &Self) {
        let mut unpacked = UnpackedRows::default();
        unpacked.unpack([later]);
        for row in &unpacked.rows {
            self.push(row.stamp, row.time, unpacked.row_cells(row));
        }
    }

    /// Appends the readings of another pack that have these times and come later in the WAL.
    pub fn append_within(&mut self, later: &Self, times: &Range<i64>) {
        if times.is_empty() {
            return;
        }
        let span = TimeSpan { first: times.start, last: times.end - 1 };
        let mut walk = Walk::new(later);
        let mut unpacked = UnpackedRows::default();
        while walk.position < later.bytes.len() {
            unpacked.rows.clear();
            unpacked.cells.clear();
            unpacked.add(&mut walk, BLOCK, span);
            unpacked.rows.iter().for_each(|row| self.push(row.stamp, row.time, unpacked.row_cells(row)));
        }
    }

    /// Removes and returns the readings for which `is_taken(time, stamp)` is true.
    pub fn take_out(&mut self, is_taken: impl Fn(i64, Stamp) -> bool) -> Self {
        let mut unpacked = UnpackedRows::default();
        unpacked.unpack([&*self]);
        let mut kept = Self::default();
        let mut taken = Self::default();
        for row in &unpacked.rows {
            let target = if is_taken(row.time, row.stamp) { &mut taken } else { &mut kept };
            target.push(row.stamp, row.time, unpacked.row_cells(row));
        }
        *self = kept;
        taken
    }

    /// Prefetches the memory that the next push needs into the CPU cache: the end of the bytes and the last shape.
    #[must_use]
    pub fn touch(&self) -> u8 {
        let shape = self.bytes.get(self.end.shape as usize);
        self.bytes.last().zip(shape).map_or(0, |(last, shape)| last ^ shape)
    }

    /// Decodes the readings in parts of at most `count`, in time order. All readings of one time are in the same part,
    /// even if they are more than `count`.
    #[must_use]
    pub fn parts(&self, count: usize) -> PackedParts<'_> {
        PackedParts::new(self, count)
    }

    /// The readings' stamps, in push order.
    pub fn stamps(&self) -> impl Iterator<Item = Stamp> {
        let mut walk = Walk::new(self);
        iter::from_fn(move || {
            let row = walk.row(|_, _, bytes, position, kind| skip(bytes, position, kind))?;
            Some(row.stamp)
        })
    }
}

/// The number of readings that [`PackedParts`] decodes or skips together.
const BLOCK: usize = 1024;
/// The number of equal spans of time in which [`PackedParts`] counts readings, to divide them into parts.
const SPANS: usize = 4096;

/// An iterator over packed readings that decodes them part by part.
pub struct PackedParts<'a> {
    blocks: Vec<Block<'a>>,
    parts: std::vec::IntoIter<TimeSpan>,
}

/// A range of times in nanoseconds that includes both ends.
#[derive(Debug, Clone, Copy)]
struct TimeSpan {
    first: i64,
    last: i64,
}

impl TimeSpan {
    const ALL: Self = Self { first: i64::MIN, last: i64::MAX };

    fn contains(self, time: i64) -> bool {
        self.first <= time && time <= self.last
    }

    fn overlaps(self, other: Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    fn union(self, other: Self) -> Self {
        Self { first: self.first.min(other.first), last: self.last.max(other.last) }
    }
}

/// Consecutive packed readings.
struct Block<'a> {
    start: Walk<'a>,
    span: TimeSpan,
}

impl<'a> PackedParts<'a> {
    fn new(packed: &'a PackedRows, count: usize) -> Self {
        let mut walk = Walk::new(packed);
        let mut blocks = Vec::with_capacity(packed.len().div_ceil(BLOCK));
        loop {
            let start = walk.clone();
            let times = iter::from_fn(|| walk.time()).take(BLOCK);
            let spans = times.map(|time| TimeSpan { first: time, last: time });
            let Some(span) = spans.reduce(TimeSpan::union) else { break };
            blocks.push(Block { start, span });
        }
        let mut parts = Vec::new();
        if let Some(whole) = blocks.iter().map(|block| block.span).reduce(TimeSpan::union) {
            divide(&blocks, whole, count, &mut parts);
        }
        Self { blocks, parts: parts.into_iter() }
    }

    /// Decodes the next part into `part`, in time order; readings of one time stay in push order. Returns false at the
    /// end.
    pub fn next_in_time_order(&mut self, part: &mut UnpackedRows) -> bool {
        part.rows.clear();
        part.cells.clear();
        let Some(span) = self.parts.next() else { return false };
        for block in self.blocks.iter().filter(|block| block.span.overlaps(span)) {
            part.add(&mut block.start.clone(), BLOCK, span);
        }
        part.sort();
        true
    }

    /// Skips this many parts.
    pub fn skip(&mut self, parts: usize) {
        self.parts.by_ref().take(parts).for_each(drop);
    }
}

/// Divides the readings in a span of time into spans of at most `count` readings, and appends these to `parts`.
fn divide(blocks: &[Block<'_>], whole: TimeSpan, count: usize, parts: &mut Vec<TimeSpan>) {
    let width = whole.last.abs_diff(whole.first) / SPANS as u64 + 1;
    let index = |time: i64| usize::try_from(time.abs_diff(whole.first) / width).unwrap_or(SPANS);
    let mut counts = vec![0_usize; SPANS];
    for block in blocks.iter().filter(|block| block.span.overlaps(whole)) {
        let mut walk = block.start.clone();
        let times = iter::from_fn(|| walk.time()).take(BLOCK);
        times.filter(|time| whole.contains(*time)).for_each(|time| counts[index(time)] += 1);
    }
    let span_at = |index: usize| {
        let first = whole.first.saturating_add_unsigned(width * index as u64);
        TimeSpan { first, last: first.saturating_add_unsigned(width - 1).min(whole.last) }
    };
    let mut open: Option<TimeSpan> = None;
    let mut open_count = 0;
    for (index, found) in counts.into_iter().enumerate().filter(|(_, found)| *found > 0) {
        if open_count + found > count {
            parts.extend(open.take());
            open_count = 0;
        }
        let span = span_at(index);
        if found > count && width > 1 {
            divide(blocks, span, count, parts);
        } else {
            open = Some(open.map_or(span, |open| open.union(span)));
            open_count += found;
        }
    }
    parts.extend(open);
}

/// The head of a cell in a shape: the field's index and the kind of the value.
fn cell_head(field: u16, value: &Value) -> u64 {
    let kind = match value {
        Value::Float(_) => 0,
        Value::Integer(_) => 1,
        Value::Unsigned(_) => 2,
        Value::Boolean(_) => 3,
        Value::String(_) => 4,
    };
    u64::from(field) << 3 | kind
}

/// A decoder over packed readings.
#[derive(Clone)]
struct Walk<'a> {
    bytes: &'a [u8],
    position: usize,
    previous: RowState,
}

/// The stamp and the time of a decoded row.
struct RowHead {
    stamp: Stamp,
    time: i64,
}

impl<'a> Walk<'a> {
    fn new(packed: &'a PackedRows) -> Self {
        Self { bytes: &packed.bytes, position: 0, previous: RowState::default() }
    }

    /// Skips the next row and returns its time.
    fn time(&mut self) -> Option<i64> {
        self.row(|_, _, bytes, position, kind| skip(bytes, position, kind)).map(|row| row.time)
    }

    /// Decodes the next row's stamp and time. Calls `value` with the time and the field of each value, and it must read
    /// or skip the value.
    fn row(&mut self, mut value: impl FnMut(i64, u16, &[u8], &mut usize, u64)) -> Option<RowHead> {
        if self.position == self.bytes.len() {
            return None;
        }
        let bytes = self.bytes;
        let previous = &mut self.previous;
        let head = varint(bytes, &mut self.position);
        if head & 2 == 2 {
            let low = previous.low.wrapping_add_signed(unzigzag(varint(bytes, &mut self.position)));
            if previous.stamp == 0 {
                previous.low = low;
            }
            previous.stamp = first_stamp(stamp_millis(previous.stamp) + (head >> 2)) | low;
        }
        if head & 1 == 1 {
            previous.shape = u32::try_from(self.position).unwrap_or(u32::MAX);
            for _ in 0..varint(bytes, &mut self.position) {
                varint(bytes, &mut self.position);
            }
        }
        previous.interval = previous.interval.wrapping_add(unzigzag(varint(bytes, &mut self.position)));
        previous.time = previous.time.wrapping_add(previous.interval);
        let mut shape = previous.shape as usize;
        for _ in 0..varint(bytes, &mut shape) {
            let cell = varint(bytes, &mut shape);
            value(previous.time, u16::try_from(cell >> 3).unwrap_or(u16::MAX), bytes, &mut self.position, cell & 7);
        }
        Some(RowHead { stamp: previous.stamp, time: previous.time })
    }
}

impl UnpackedRows {
    /// Decodes packed readings, replacing earlier content, and sorts them by time; the sort is stable.
    pub fn unpack_in_time_order<'p>(&mut self, packed: impl IntoIterator<Item = &'p PackedRows>) {
        self.unpack(packed);
        self.sort();
    }

    fn sort(&mut self) {
        // Most are sorted already.
        if !self.rows.is_sorted_by_key(|row| row.time) {
            self.rows.sort_by_key(|row| row.time);
        }
    }

    fn unpack<'p>(&mut self, packed: impl IntoIterator<Item = &'p PackedRows>) {
        self.rows.clear();
        self.cells.clear();
        for packed in packed {
            self.rows.reserve(packed.len());
            self.add(&mut Walk::new(packed), usize::MAX, TimeSpan::ALL);
        }
    }

    /// Decodes the next `count` readings, and adds those within the span.
    fn add(&mut self, walk: &mut Walk<'_>, count: usize, span: TimeSpan) {
        let Self { rows, cells } = self;
        for _ in 0..count {
            let start = cells.len();
            let row = walk.row(|time, field, bytes, position, kind| {
                if span.contains(time) {
                    cells.push((field, take_value(bytes, position, kind)));
                } else {
                    skip(bytes, position, kind);
                }
            });
            let Some(RowHead { stamp, time }) = row else { return };
            if span.contains(time) {
                rows.push(UnpackedRow { time, stamp, cells: start..cells.len() });
            }
        }
    }

    /// The readings; their cells index `names`.
    pub fn rows<'a>(&'a self, names: &'a [std::sync::Arc<str>]) -> impl ExactSizeIterator<Item = Row<'a>> {
        let row = |row: &'a UnpackedRow| Row {
            time: row.time,
            stamp: row.stamp,
            names,
            cells: &self.cells[row.cells.clone()],
        };
        self.rows.iter().map(row)
    }

    fn row_cells(&self, row: &UnpackedRow) -> impl ExactSizeIterator<Item = (u16, &Value)> + Clone {
        self.cells[row.cells.clone()].iter().map(|(field, value)| (*field, value))
    }
}

fn take_value(bytes: &[u8], position: &mut usize, kind: u64) -> Value {
    match kind {
        0 => {
            let mut float = [0; 8];
            let taken = take_counted(bytes, position);
            float[..taken.len()].copy_from_slice(taken);
            Value::Float(f64::from_bits(u64::from_be_bytes(float)))
        }
        1 => Value::Integer(unzigzag(varint(bytes, position))),
        2 => Value::Unsigned(varint(bytes, position)),
        3 => {
            *position += 1;
            Value::Boolean(bytes[*position - 1] == 1)
        }
        _ => Value::String(String::from_utf8_lossy(take_counted(bytes, position)).into()),
    }
}

fn skip(bytes: &[u8], position: &mut usize, kind: u64) {
    match kind {
        1 | 2 => {
            varint(bytes, position);
        }
        3 => *position += 1,
        _ => {
            take_counted(bytes, position);
        }
    }
}

/// Reads length-prefixed bytes. The u8 count of a float is below 128 and therefore also a varint.
fn take_counted<'a>(bytes: &'a [u8], position: &mut usize) -> &'a [u8] {
    let count = usize::try_from(varint(bytes, position)).unwrap_or(usize::MAX);
    *position += count;
    &bytes[*position - count..*position]
}

/// Reads a varint that this module wrote, so it is always valid.
fn varint(bytes: &[u8], position: &mut usize) -> u64 {
    let number = take_varint(bytes, position);
    debug_assert!(number.is_some(), "packed here");
    number.unwrap_or_default()
}

mod wire;

#[cfg(test)]
mod tests;
