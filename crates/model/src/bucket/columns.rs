//! The columnar byte format of a sorted set of readings. The bucket cache keeps it in memory, and the embedded store
//! writes it to its file. Column names are stored elsewhere. Stored bytes may be damaged, so the decoder validates all
//! of them.
//!
//! ```text
//! set    := count:varint [times column…]           as many columns as the caller expects; none if count is 0
//! times  := unit:u8 (0 s, 1 ms, 2 µs, 3 ns)  difference…
//!           delta of deltas in units, zigzag varint: this interval minus the previous interval
//! column := run…                                   one cell per reading
//! run    := head:varint ((cells - 1) << 3 | kind)  payload of that kind
//! kind   := 0 empty cells
//!         | 1 decimals: places:u8 (0..=9)  zigzag varint… (value * 10^places, minus that of the previous cell)
//!         | 2 floats: (count:u8 bytes)… (the f64's big-endian bytes without trailing zero bytes)
//!         | 3 integers: zigzag varint… (minus the previous cell)  | 4 unsigned: varint…
//!         | 5 booleans: u8…  | 6 texts: (length:varint bytes)…
//! ```
//!
//! The embedded store's files contain this format. A change needs a new form of their pages.

mod packed_bytes;

pub use self::packed_bytes::PackedBytes;

use super::summary::Number;
use crate::reading::Value;
use crate::reading::time::MILLI_NS;
use crate::reading::varint::{put_bytes, put_varint, unzigzag, zigzag};

/// A reading's value in one column; `None` if the reading lacks the field.
pub type Cell = Option<Value>;

/// Times, and the requested number of columns, each with a cell per time.
pub type UnpackedColumns = (Vec<i64>, Vec<Vec<Cell>>);

/// Units of time in nanoseconds, coarsest first.
const UNITS: [i64; 4] = [1_000 * MILLI_NS, MILLI_NS, MILLI_NS / 1_000, 1];
/// The power of ten for each number of decimal places; all are exact as floats.
const POWERS: [f64; 10] = [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9];
/// Integers below this are exact as floats.
const EXACT: u64 = 1 << 53;

/// Maximum number of cells of a stored page, empty ones included: four times the limit of a page of 1 MiB.
pub const CELLS_MAX: usize = 1 << 20;

const EMPTY: u64 = 0;
const DECIMALS: u64 = 1;
const FLOATS: u64 = 2;
const INTEGERS: u64 = 3;
const UNSIGNED: u64 = 4;
const BOOLEANS: u64 = 5;
const TEXTS: u64 = 6;

const NOT_A_NUMBER: ColumnsDamage = ColumnsDamage::Unknown { what: "a figure of a summary", found: 0 };

/// The reason that bytes cannot be decoded as a set of readings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ColumnsDamage {
    /// The bytes end early, or a number has more than 64 bits.
    #[error("damaged page: cannot decode at byte {position} of {len}")]
    Cut {
        /// The position of the damage.
        position: usize,
        /// The length of the bytes.
        len: usize,
    },
    /// Bytes follow the end of the set.
    #[error("{0} unexpected bytes follow the end")]
    Left(usize),
    /// The declared readings and fields do not fit into the bytes, or exceed the bound.
    #[error("the declared size, {readings} readings of {columns} fields, is too large")]
    Large {
        /// The declared number of readings.
        readings: u64,
        /// The number of fields.
        columns: usize,
    },
    /// A number has an invalid value.
    #[error("invalid value {found} for {what}")]
    Unknown {
        /// The meaning of the number.
        what: &'static str,
        /// The invalid value.
        found: u64,
    },
    /// A time does not fit into `i64` nanoseconds.
    #[error("a time is out of range")]
    Time,
    /// A text is not UTF-8.
    #[error("a text is not valid UTF-8")]
    Text,
}

/// Encodes times and columns. Every column must have one cell per time.
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

/// Decodes times and `columns` columns. `cells_max` is the maximum number of all cells, empty ones included. It bounds
/// the memory that damaged bytes can demand; bytes that never left this process need no bound.
///
/// # Errors
/// [`ColumnsDamage`] for invalid bytes, and for more than `cells_max` cells.
pub fn unpack(bytes: &[u8], columns: usize, cells_max: usize) -> Result<UnpackedColumns, ColumnsDamage> {
    let mut bytes = PackedBytes::new(bytes);
    let readings = bytes.varint()?;
    let large = ColumnsDamage::Large { readings, columns };
    // Every time takes at least one byte, so `count` cannot exceed the bytes left.
    let count = usize::try_from(readings).ok().filter(|count| *count <= bytes.unread_len()).ok_or(large)?;
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
    let mut previous = 0;
    let mut interval = 0;
    for time in times {
        let time = time / UNITS[unit];
        let next_interval = time.wrapping_sub(previous);
        put_varint(out, zigzag(next_interval.wrapping_sub(interval)));
        previous = time;
        interval = next_interval;
    }
}

fn take_times(bytes: &mut PackedBytes<'_>, count: usize) -> Result<Vec<i64>, ColumnsDamage> {
    let unit = bytes.byte()?;
    let unit = UNITS
        .get(usize::from(unit))
        .ok_or(ColumnsDamage::Unknown { what: "a unit of time", found: u64::from(unit) })?;
    let mut times = Vec::with_capacity(count);
    let mut time = 0_i64;
    let mut interval = 0_i64;
    for _ in 0..count {
        interval = interval.wrapping_add(unzigzag(bytes.varint()?));
        time = time.wrapping_add(interval);
        times.push(time.checked_mul(*unit).ok_or(ColumnsDamage::Time)?);
    }
    Ok(times)
}

/// Appends one column. `room` is scratch memory that the caller reuses between columns.
pub fn put_cells(out: &mut Vec<u8>, cells: &[Cell], room: &mut Vec<i64>) {
    let mut rest = cells;
    let mut places = 0;
    while let Some(first) = rest.first() {
        let run = match first {
            Some(Value::Float(first)) => put_floats(out, *first, rest, &mut places, room),
            _ => put_run(out, rest),
        };
        rest = &rest[run..];
    }
}

/// Appends the leading cells of the first cell's kind, which is not float; returns their number.
fn put_run(out: &mut Vec<u8>, cells: &[Cell]) -> usize {
    let kind = cells.first().map_or(EMPTY, kind);
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
            Value::String(v) => put_bytes(out, v.as_bytes()),
            // Unreachable: floats are another kind.
            Value::Float(_) => {}
        }
    }
    run
}

/// Appends a run of leading floats and returns their number. If the first is a decimal with at least `places` places,
/// the run takes floats that are exact with that many places. Otherwise it takes floats up to the next decimal.
fn put_floats(out: &mut Vec<u8>, first: f64, cells: &[Cell], places: &mut usize, room: &mut Vec<i64>) -> usize {
    let Some(found) = (*places..POWERS.len()).find(|places| scale(first, *places).is_some()) else {
        let is_none = |cell: &&Cell| float(cell).is_some_and(|v| scale(v, *places).is_none());
        let run = cells.iter().take_while(is_none).count();
        put_head(out, run, FLOATS);
        cells[..run].iter().filter_map(float).for_each(|v| put_float(out, v));
        return run;
    };
    *places = found;
    room.clear();
    room.extend(cells.iter().map_while(|cell| scale(float(cell)?, found)));
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

/// Appends a float without its trailing zero bytes, with the number of bytes as a prefix.
pub(super) fn put_float(out: &mut Vec<u8>, value: f64) {
    let bytes = value.to_bits().to_be_bytes();
    let count = 8 - value.to_bits().trailing_zeros() as usize / 8;
    out.push(u8::try_from(count).unwrap_or_default());
    out.extend_from_slice(&bytes[..count]);
}

/// The integer that, divided by 10^`places`, is exactly this float, bit for bit.
#[expect(clippy::cast_possible_truncation, reason = "a truncated number is another float when it is scaled back")]
fn scale(value: f64, places: usize) -> Option<i64> {
    let number = (value * POWERS[places] + 0.5_f64.copysign(value)) as i64;
    let is_same = number.unsigned_abs() < EXACT && divide(number, POWERS[places]).to_bits() == value.to_bits();
    is_same.then_some(number)
}

/// The inverse of [`scale`]. The quotient of two exact floats is the float nearest to the decimal, which is also the
/// result of parsing it.
#[expect(clippy::cast_precision_loss, reason = "numbers below 2^53 are exact")]
fn divide(number: i64, power: f64) -> f64 {
    number as f64 / power
}

fn float(cell: &Cell) -> Option<f64> {
    match cell {
        Some(Value::Float(v)) => Some(*v),
        _ => None,
    }
}

fn kind(cell: &Cell) -> u64 {
    match cell {
        None => EMPTY,
        Some(Value::Float(_)) => FLOATS,
        Some(Value::Integer(_)) => INTEGERS,
        Some(Value::Unsigned(_)) => UNSIGNED,
        Some(Value::Boolean(_)) => BOOLEANS,
        Some(Value::String(_)) => TEXTS,
    }
}

/// Decodes a column of `count` cells. They are allocated up front, so the caller must check that `count` is plausible.
///
/// # Errors
/// [`ColumnsDamage`] for invalid bytes.
pub fn take_cells(bytes: &mut PackedBytes<'_>, count: usize) -> Result<Vec<Cell>, ColumnsDamage> {
    let mut cells = Vec::with_capacity(count);
    take_runs(bytes, count, |cell| cells.push(cell))?;
    Ok(cells)
}

/// Decodes a column of numbers into `numbers`.
///
/// # Errors
/// [`ColumnsDamage`] for invalid bytes, and for cells that are no numbers.
pub fn take_numbers(bytes: &mut PackedBytes<'_>, numbers: &mut [Number]) -> Result<(), ColumnsDamage> {
    let count = numbers.len();
    let mut places = numbers.iter_mut();
    let mut are_numbers = true;
    take_runs(bytes, count, |cell| {
        let number = match cell {
            Some(Value::Float(v)) => Number::Float(v),
            Some(Value::Integer(v)) => Number::Integer(v),
            Some(Value::Unsigned(v)) => Number::Unsigned(v),
            None | Some(Value::Boolean(_) | Value::String(_)) => {
                are_numbers = false;
                return;
            }
        };
        places.next().into_iter().for_each(|place| *place = number);
    })?;
    if are_numbers { Ok(()) } else { Err(NOT_A_NUMBER) }
}

/// Skips a column that [`take_numbers`] would decode, and keeps only the kind of each number: floats become NaN,
/// integers 0.
///
/// # Errors
/// As [`take_numbers`], except that numbers of more than 64 bits are not detected.
pub fn skip_numbers(bytes: &mut PackedBytes<'_>, numbers: &mut [Number]) -> Result<(), ColumnsDamage> {
    let mut left = numbers;
    while !left.is_empty() {
        let (kind, run) = take_head(bytes, left.len())?;
        let (skipped, rest) = left.split_at_mut(run);
        skipped.fill(match kind {
            DECIMALS | FLOATS => Number::Float(f64::NAN),
            INTEGERS | UNSIGNED => Number::Integer(0),
            _ => return Err(NOT_A_NUMBER),
        });
        match kind {
            FLOATS => (0..run).try_for_each(|_| bytes.float().map(drop))?,
            DECIMALS => bytes.byte().and_then(|_| bytes.skip_varints(run))?,
            _ => bytes.skip_varints(run)?,
        }
        left = rest;
    }
    Ok(())
}

#[inline]
fn take_head(bytes: &mut PackedBytes<'_>, left: usize) -> Result<(u64, usize), ColumnsDamage> {
    let head = bytes.varint()?;
    let too_long = ColumnsDamage::Unknown { what: "a run of cells", found: head };
    let run = usize::try_from(head >> 3).ok().filter(|run| *run < left).ok_or(too_long)? + 1;
    Ok((head & 7, run))
}

#[inline]
fn take_runs(bytes: &mut PackedBytes<'_>, count: usize, mut put: impl FnMut(Cell)) -> Result<(), ColumnsDamage> {
    let mut left = count;
    while left > 0 {
        let (kind, run) = take_head(bytes, left)?;
        take_run(bytes, kind, run, &mut put)?;
        left -= run;
    }
    Ok(())
}

/// Decodes a run of cells. Each kind has its own loop, so that the kind is not tested per cell.
#[inline]
fn take_run(
    bytes: &mut PackedBytes<'_>,
    kind: u64,
    run: usize,
    mut put: impl FnMut(Cell),
) -> Result<(), ColumnsDamage> {
    let mut before = 0_i64;
    match kind {
        EMPTY => (0..run).for_each(|_| put(None)),
        DECIMALS => {
            let places = usize::from(bytes.byte()?);
            let damage = ColumnsDamage::Unknown { what: "a number of places", found: places as u64 };
            let power = POWERS.get(places).ok_or(damage)?;
            for _ in 0..run {
                before = before.wrapping_add(unzigzag(bytes.varint()?));
                put(Some(Value::Float(divide(before, *power))));
            }
        }
        FLOATS => {
            for _ in 0..run {
                put(Some(Value::Float(bytes.float()?)));
            }
        }
        INTEGERS => {
            for _ in 0..run {
                before = before.wrapping_add(unzigzag(bytes.varint()?));
                put(Some(Value::Integer(before)));
            }
        }
        UNSIGNED => {
            for _ in 0..run {
                put(Some(Value::Unsigned(bytes.varint()?)));
            }
        }
        BOOLEANS => {
            for _ in 0..run {
                put(Some(Value::Boolean(match bytes.byte()? {
                    truth @ 0..=1 => truth == 1,
                    other => return Err(ColumnsDamage::Unknown { what: "a boolean", found: u64::from(other) }),
                })));
            }
        }
        TEXTS => {
            for _ in 0..run {
                put(Some(Value::String(bytes.text()?.into())));
            }
        }
        found => return Err(ColumnsDamage::Unknown { what: "a kind of cells", found }),
    }
    Ok(())
}

#[cfg(test)]
mod tests;
