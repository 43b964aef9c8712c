//! A settled set of readings as bytes, column by column: what a hot bucket is in memory, and what the embedded store
//! keeps of a page. Knows no names. What was stored may be damaged, so nothing in the bytes is trusted here.
//!
//! ```text
//! set    := count:varint [times column…]           as many columns as the reader knows names; nothing more of an empty set
//! times  := unit:u8 (0 s, 1 ms, 2 µs, 3 ns)  difference…
//!           each a zigzag varint, in units: by how much the interval to the time before differs from the interval before it
//! column := run…                                   one cell per reading
//! run    := head:varint (cells - 1 << 3 | kind)  what the kind says
//! kind   := 0 nothing there
//!         | 1 decimals: places:u8 (0..=9)  zigzag varint… (the value times 10^places, less that of the cell before)
//!         | 2 floats: (count:u8 bytes)… (of the eight, the highest first, without the zeros at the end)
//!         | 3 integers: zigzag varint… (less the cell before)  | 4 unsigned: varint…
//!         | 5 booleans: u8…  | 6 texts: (length:varint bytes)…
//! ```
//!
//! The embedded store's files have it: a change of it is a new form of their pages.

use crate::reading::Value;
use crate::reading::time::MILLI_NS;
use crate::reading::varint::{put_varint, take_varint, unzigzag, zigzag};

/// What a reading has in one column.
pub type Cell = Option<Value>;

/// Times, and as many columns as were asked for, each with a cell per time.
pub type Unpacked = (Vec<i64>, Vec<Vec<Cell>>);

/// Units of time in nanoseconds, the coarsest first.
const UNITS: [i64; 4] = [1_000 * MILLI_NS, MILLI_NS, MILLI_NS / 1_000, 1];
/// Places behind the point, as the power of ten that brings them before it; all of them are exact.
const POWERS: [f64; 10] = [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9];
/// Whole numbers below this are exact as floats.
const EXACT: u64 = 1 << 53;

/// Most cells, empty ones included, of a set that is read back from a store: it bounds what damaged bytes can ask for.
/// Four times what a page of a mebibyte may have.
pub const CELLS_MAX: usize = 1 << 20;

const NOTHING: u64 = 0;
const DECIMALS: u64 = 1;
const FLOATS: u64 = 2;
const INTEGERS: u64 = 3;
const UNSIGNED: u64 = 4;
const BOOLEANS: u64 = 5;
const TEXTS: u64 = 6;

/// Why bytes are not those of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// They end, or a number in them has more than 64 bits.
    #[error("its bytes do not go on as they should at byte {at} of {len}")]
    Cut {
        /// Where.
        at: usize,
        /// How many there are.
        len: usize,
    },
    /// There are more than there should be.
    #[error("{left} bytes are left over")]
    Left {
        /// How many.
        left: usize,
    },
    /// More readings or fields than its bytes can hold.
    #[error("it says that it has {readings} readings of {columns} fields")]
    Large {
        /// Readings.
        readings: u64,
        /// Fields.
        columns: usize,
    },
    /// A number stands where only others may.
    #[error("{what} is {found}")]
    Unknown {
        /// Of what.
        what: &'static str,
        /// Which one.
        found: u64,
    },
    /// A time that nanoseconds cannot say.
    #[error("a time is out of range")]
    Time,
    /// A text that is no UTF-8.
    #[error("a text is no UTF-8")]
    Text,
}

/// Times and columns as bytes. Every column has a cell per time.
pub fn pack<'a>(times: &[i64], columns: impl Iterator<Item = &'a [Cell]>) -> Vec<u8> {
    let mut out = Vec::with_capacity(16 + times.len() * 8);
    put_varint(&mut out, times.len() as u64);
    if times.is_empty() {
        return out;
    }
    put_times(&mut out, times);
    let mut room = Vec::with_capacity(times.len());
    columns.for_each(|cells| put_cells(&mut out, cells, &mut room));
    out
}

/// Times, and a column per name, again.
///
/// # Errors
/// [`Damage`], also for more than [`CELLS_MAX`] cells.
pub fn unpack(bytes: &[u8], columns: usize) -> Result<Unpacked, Damage> {
    unpack_up_to(CELLS_MAX, bytes, columns)
}

/// As [`unpack`], for bytes that never left this process, of any size.
///
/// # Errors
/// [`Damage`]
pub fn unpack_own(bytes: &[u8], columns: usize) -> Result<Unpacked, Damage> {
    unpack_up_to(usize::MAX, bytes, columns)
}

fn unpack_up_to(cells_max: usize, bytes: &[u8], columns: usize) -> Result<Unpacked, Damage> {
    let mut bytes = Bytes::new(bytes);
    let readings = bytes.varint()?;
    let large = Damage::Large { readings, columns };
    // Every time takes a byte, and so does every column.
    let count = usize::try_from(readings).ok().filter(|count| *count <= bytes.left()).ok_or(large)?;
    if count.checked_mul(columns).is_none_or(|cells| cells > cells_max) {
        return Err(large);
    }
    if count == 0 {
        return bytes.end().map(|()| (Vec::new(), vec![Vec::new(); columns]));
    }
    let times = take_times(&mut bytes, count)?;
    let columns = (0..columns).map(|_| take_cells(&mut bytes, count)).collect::<Result<Vec<_>, _>>()?;
    bytes.end().map(|()| (times, columns))
}

fn put_times(out: &mut Vec<u8>, times: &[i64]) {
    let is_unit = |unit: &i64| times.iter().all(|time| time % unit == 0);
    let unit = UNITS.iter().position(is_unit).unwrap_or(UNITS.len() - 1);
    out.push(u8::try_from(unit).unwrap_or_default());
    let (mut before, mut interval) = (0, 0);
    for time in times {
        let time = time / UNITS[unit];
        let next = time.wrapping_sub(before);
        put_varint(out, zigzag(next.wrapping_sub(interval)));
        (before, interval) = (time, next);
    }
}

fn take_times(bytes: &mut Bytes<'_>, count: usize) -> Result<Vec<i64>, Damage> {
    let unit = bytes.byte()?;
    let unit =
        UNITS.get(usize::from(unit)).ok_or(Damage::Unknown { what: "a unit of time", found: u64::from(unit) })?;
    let mut times = Vec::with_capacity(count);
    let (mut time, mut interval) = (0_i64, 0_i64);
    for _ in 0..count {
        interval = interval.wrapping_add(unzigzag(bytes.varint()?));
        time = time.wrapping_add(interval);
        times.push(time.checked_mul(*unit).ok_or(Damage::Time)?);
    }
    Ok(times)
}

/// Adds one column. `room` is for whoever packs many.
pub fn put_cells(out: &mut Vec<u8>, cells: &[Cell], room: &mut Vec<i64>) {
    let (mut rest, mut places) = (cells, 0);
    while let Some(first) = rest.first() {
        let run = match first {
            Some(Value::Float(first)) => put_floats(out, *first, rest, &mut places, room),
            _ => put_run(out, rest),
        };
        rest = &rest[run..];
    }
}

/// Adds the cells that are of the first one's kind, which is no float; tells how many.
fn put_run(out: &mut Vec<u8>, cells: &[Cell]) -> usize {
    let kind = cells.first().map_or(NOTHING, kind);
    let run = cells.iter().take_while(|cell| self::kind(cell) == kind).count();
    put_head(out, run, kind);
    let mut before = 0;
    for value in cells[..run].iter().flatten() {
        match value {
            Value::Integer(v) => {
                put_varint(out, zigzag(v.wrapping_sub(before)));
                before = *v;
            }
            Value::Unsigned(v) => put_varint(out, *v),
            Value::Boolean(v) => out.push(u8::from(*v)),
            Value::String(v) => {
                put_varint(out, v.len() as u64);
                out.extend_from_slice(v.as_bytes());
            }
            // Its kind is another one.
            Value::Float(_) => {}
        }
    }
    run
}

/// Adds floats: as decimals while they are some, with as many places as the first has, and never fewer than `places`;
/// otherwise until one is a decimal again. Tells how many.
fn put_floats(out: &mut Vec<u8>, first: f64, cells: &[Cell], places: &mut usize, room: &mut Vec<i64>) -> usize {
    let Some(found) = (*places..POWERS.len()).find(|places| scaled(first, *places).is_some()) else {
        let is_none = |cell: &&Cell| float(cell).is_some_and(|v| scaled(v, *places).is_none());
        let run = cells.iter().take_while(is_none).count();
        put_head(out, run, FLOATS);
        cells[..run].iter().filter_map(float).for_each(|v| put_float(out, v));
        return run;
    };
    *places = found;
    room.clear();
    room.extend(cells.iter().map_while(|cell| scaled(float(cell)?, found)));
    put_head(out, room.len(), DECIMALS);
    out.push(u8::try_from(found).unwrap_or_default());
    let mut before = 0;
    for number in &*room {
        put_varint(out, zigzag(number - before));
        before = *number;
    }
    room.len()
}

fn put_head(out: &mut Vec<u8>, run: usize, kind: u64) {
    put_varint(out, (run as u64).wrapping_sub(1) << 3 | kind);
}

fn put_float(out: &mut Vec<u8>, value: f64) {
    let bytes = value.to_bits().to_be_bytes();
    let count = 8 - value.to_bits().trailing_zeros() as usize / 8;
    out.push(u8::try_from(count).unwrap_or_default());
    out.extend_from_slice(&bytes[..count]);
}

/// The whole number that, with so many places behind the point, is this float to the bit.
#[expect(clippy::cast_possible_truncation, reason = "what does not fit is another float when it is read back")]
fn scaled(value: f64, places: usize) -> Option<i64> {
    let number = (value * POWERS[places] + 0.5_f64.copysign(value)) as i64;
    let is_same = number.unsigned_abs() < EXACT && decimal(number, places).to_bits() == value.to_bits();
    is_same.then_some(number)
}

/// As [`scaled`] had it. A quotient of two exact floats is the nearest one to the decimal, which is what a parser makes of it.
#[expect(clippy::cast_precision_loss, reason = "what was scaled is exact")]
fn decimal(number: i64, places: usize) -> f64 {
    number as f64 / POWERS[places]
}

fn float(cell: &Cell) -> Option<f64> {
    match cell {
        Some(Value::Float(v)) => Some(*v),
        _ => None,
    }
}

fn kind(cell: &Cell) -> u64 {
    match cell {
        None => NOTHING,
        Some(Value::Float(_)) => FLOATS,
        Some(Value::Integer(_)) => INTEGERS,
        Some(Value::Unsigned(_)) => UNSIGNED,
        Some(Value::Boolean(_)) => BOOLEANS,
        Some(Value::String(_)) => TEXTS,
    }
}

/// Takes a column of so many cells, a number that the bytes have been found to have room for.
///
/// # Errors
/// [`Damage`]
pub fn take_cells(bytes: &mut Bytes<'_>, count: usize) -> Result<Vec<Cell>, Damage> {
    let mut cells = Vec::with_capacity(count);
    while cells.len() < count {
        let head = bytes.varint()?;
        let too_long = Damage::Unknown { what: "a run of cells", found: head };
        let run = usize::try_from(head >> 3).ok().filter(|run| *run < count - cells.len()).ok_or(too_long)? + 1;
        take_run(bytes, head & 7, run, &mut cells)?;
    }
    Ok(cells)
}

fn take_run(bytes: &mut Bytes<'_>, kind: u64, run: usize, cells: &mut Vec<Cell>) -> Result<(), Damage> {
    let mut before = 0_i64;
    let places = if kind == DECIMALS { usize::from(bytes.byte()?) } else { 0 };
    if places >= POWERS.len() {
        return Err(Damage::Unknown { what: "a number of places", found: places as u64 });
    }
    for _ in 0..run {
        cells.push(match kind {
            NOTHING => None,
            DECIMALS => {
                before = before.wrapping_add(unzigzag(bytes.varint()?));
                Some(Value::Float(decimal(before, places)))
            }
            FLOATS => Some(Value::Float(take_float(bytes)?)),
            INTEGERS => {
                before = before.wrapping_add(unzigzag(bytes.varint()?));
                Some(Value::Integer(before))
            }
            UNSIGNED => Some(Value::Unsigned(bytes.varint()?)),
            BOOLEANS => match bytes.byte()? {
                truth @ 0..=1 => Some(Value::Boolean(truth == 1)),
                other => return Err(Damage::Unknown { what: "a boolean", found: u64::from(other) }),
            },
            TEXTS => Some(Value::String(bytes.text()?.into())),
            found => return Err(Damage::Unknown { what: "a kind of cells", found }),
        });
    }
    Ok(())
}

fn take_float(bytes: &mut Bytes<'_>) -> Result<f64, Damage> {
    let count = bytes.byte()?;
    let mut float = [0; 8];
    let part = float.get_mut(..usize::from(count));
    let part = part.ok_or(Damage::Unknown { what: "a float's number of bytes", found: u64::from(count) })?;
    part.copy_from_slice(bytes.take(usize::from(count))?);
    Ok(f64::from_bits(u64::from_be_bytes(float)))
}

/// Bytes that are read from their beginning on.
#[derive(Debug, Clone)]
pub struct Bytes<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Bytes<'a> {
    /// From the first one on.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// How many were not read yet.
    #[must_use]
    pub fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// All that were not read yet.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    /// That all were read.
    ///
    /// # Errors
    /// [`Damage::Left`]
    pub fn end(&self) -> Result<(), Damage> {
        match self.left() {
            0 => Ok(()),
            left => Err(Damage::Left { left }),
        }
    }

    /// The next number.
    ///
    /// # Errors
    /// [`Damage::Cut`]
    pub fn varint(&mut self) -> Result<u64, Damage> {
        take_varint(self.bytes, &mut self.at).ok_or_else(|| self.cut())
    }

    /// The next byte.
    ///
    /// # Errors
    /// [`Damage::Cut`]
    pub fn byte(&mut self) -> Result<u8, Damage> {
        let byte = *self.bytes.get(self.at).ok_or_else(|| self.cut())?;
        self.at += 1;
        Ok(byte)
    }

    /// The next so many bytes.
    ///
    /// # Errors
    /// [`Damage::Cut`]
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], Damage> {
        let taken = self.rest().get(..count).ok_or_else(|| self.cut())?;
        self.at += count;
        Ok(taken)
    }

    /// A text behind its length.
    ///
    /// # Errors
    /// [`Damage::Cut`], [`Damage::Text`]
    pub fn text(&mut self) -> Result<&'a str, Damage> {
        let length = usize::try_from(self.varint()?).unwrap_or(usize::MAX);
        std::str::from_utf8(self.take(length)?).map_err(|_| Damage::Text)
    }

    fn cut(&self) -> Damage {
        Damage::Cut { at: self.at, len: self.bytes.len() }
    }
}

#[cfg(test)]
mod tests;
