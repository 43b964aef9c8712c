//! Summaries of numbered spans of time, by column: of the hours of a day, or of the days of a month. A scan decodes the wanted
//! fields only, and skips the others; of a field it skips what is no sum where nothing else is asked for.
//!
//! ```text
//! figures := set  count:varint field…                      set: of the numbers that there is something of
//! set     := little-endian, u24 of hours and u32 of days; bit n says that number n is in it
//! field   := name:varint  set  length:varint (of what follows)  counts min max first last sum rest…
//! counts  := count:varint (of every number)  |  0 count:varint…                 one per number of the field
//! min, max, first, last, sum: cells, one per number of the field, see `bucket::columns`
//! rest    := see `store::rest`; one for each sum that is a float
//! ```

use super::rest::{put_rest, take_rest};
use crate::bucket::Summary;
use crate::bucket::columns::{Cell, ColumnsDamage, PackedBytes, put_cells, skip_numbers, take_numbers};
use crate::bucket::exact::SumRest;
use crate::bucket::summary::{Figures, Number};
use crate::reading::varint::{put_bytes, put_varint};
use crate::reading::{Day, Hour, Value};

/// Most numbers.
const MOST: usize = 32;

/// Why bytes are not figures.
#[derive(Debug, thiserror::Error)]
pub enum NoFigures {
    #[error(transparent)]
    Damage(#[from] ColumnsDamage),
    #[error("field number {0} has no name")]
    Name(u64),
}

/// What is numbered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Span {
    /// The hours of a day, from 0.
    Hours,
    /// The days of a month, from 0.
    Days,
}

impl Span {
    /// Bytes of a set.
    const fn width(self) -> usize {
        match self {
            Self::Hours => 3,
            Self::Days => 4,
        }
    }
}

/// A set of numbers below 32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NumberSet(u32);

impl NumberSet {
    /// Adds a number; those above 31 are left out.
    pub fn insert(&mut self, number: u8) {
        self.0 |= 1_u32.checked_shl(number.into()).unwrap_or_default();
    }

    /// Appends it.
    pub fn put(self, span: Span, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0.to_le_bytes()[..span.width()]);
    }

    /// Decodes what [`Self::put`] appended.
    ///
    /// # Errors
    /// If bytes are missing.
    pub fn take(span: Span, bytes: &mut PackedBytes<'_>) -> Result<Self, ColumnsDamage> {
        let mut all = [0; 4];
        all[..span.width()].copy_from_slice(bytes.take(span.width())?);
        Ok(Self(u32::from_le_bytes(all)))
    }

    fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// In order.
    pub fn numbers(self) -> impl Iterator<Item = u8> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let number = u8::try_from(left.trailing_zeros()).ok().filter(|_| left != 0)?;
            left &= left - 1;
            Some(number)
        })
    }
}

/// The figures of one field.
#[derive(Debug, Clone, Default)]
pub struct FieldFigures {
    set: NumberSet,
    figures: Vec<Figures>,
}

impl FieldFigures {
    /// Adds the figures of a number, which is greater than all before.
    pub fn push(&mut self, number: u8, figures: Figures) {
        self.set.insert(number);
        self.figures.push(figures);
    }
}

/// Appends the figures of fields, by their numbers.
pub fn put_fields(out: &mut Vec<u8>, span: Span, set: NumberSet, fields: &[FieldFigures]) {
    set.put(span, out);
    let filled = || fields.iter().enumerate().filter(|(_, field)| !field.figures.is_empty());
    put_varint(out, filled().count() as u64);
    let mut room = Vec::new();
    for (name, field) in filled() {
        put_varint(out, name as u64);
        field.set.put(span, out);
        room.clear();
        put_figures(&mut room, &field.figures);
        put_bytes(out, &room);
    }
}

/// Collects the summaries of a day's hours by field.
#[derive(Debug)]
pub struct HourColumns {
    start: i64,
    set: NumberSet,
    fields: Vec<FieldFigures>,
}

impl HourColumns {
    /// No hours yet, of this many fields.
    #[must_use]
    pub fn new(day: Day, fields: usize) -> Self {
        Self { start: day.hours().start.0, set: NumberSet::default(), fields: vec![FieldFigures::default(); fields] }
    }

    /// Adds an hour, which is later than all before: its summaries with the numbers of their fields.
    pub fn push<'s>(&mut self, hour: Hour, summaries: impl Iterator<Item = (usize, &'s Summary)>) {
        let number = u8::try_from(hour.0 - self.start).unwrap_or(u8::MAX);
        self.set.insert(number);
        summaries.for_each(|(field, summary)| self.fields[field].push(number, summary.figures()));
    }

    /// Appends all of them.
    pub fn put(self, out: &mut Vec<u8>) {
        put_fields(out, Span::Hours, self.set, &self.fields);
    }
}

fn put_figures(out: &mut Vec<u8>, figures: &[Figures]) {
    match figures.iter().all(|one| one.count == figures[0].count) {
        true => put_varint(out, figures[0].count),
        false => {
            out.push(0);
            figures.iter().for_each(|one| put_varint(out, one.count));
        }
    }
    let (mut cells, mut room): (Vec<Cell>, _) = (Vec::with_capacity(figures.len()), Vec::new());
    let of: [fn(&Figures) -> &Value; 5] =
        [|one| &one.min, |one| &one.max, |one| &one.first, |one| &one.last, |one| &one.sum];
    for figure in of {
        cells.clear();
        cells.extend(figures.iter().map(|one| Some(figure(one).clone())));
        put_cells(out, &cells, &mut room);
    }
    for one in figures {
        if let Value::Float(sum) = &one.sum {
            put_rest(out, *sum, &one.rest);
        }
    }
}

/// Room for the columns of a field. The last one has the sums.
pub type Room = [[Number; MOST]; 5];

/// Figures that are not decoded yet.
#[derive(Debug)]
pub struct PackedFigures<'a> {
    span: Span,
    /// The numbers that there is something of.
    pub set: NumberSet,
    /// The number of fields, and what is stored of them.
    fields: (u64, &'a [u8]),
}

impl<'a> PackedFigures<'a> {
    /// Those at the end of these bytes.
    ///
    /// # Errors
    /// [`NoFigures`]
    pub fn at_end(span: Span, mut bytes: PackedBytes<'a>) -> Result<Self, NoFigures> {
        Ok(Self { span, set: NumberSet::take(span, &mut bytes)?, fields: (bytes.varint()?, bytes.rest()) })
    }

    /// Passes the summaries of the fields whose numbers are wanted, field by field and in order. There are `fields`. With `only_sums`,
    /// all but counts and sums may be anything.
    ///
    /// # Errors
    /// [`NoFigures`]
    pub fn each(
        &self,
        fields: usize,
        (is_wanted, only_sums): (impl Fn(usize) -> bool, bool),
        room: &mut Room,
        mut take: impl FnMut(usize, u8, Summary),
    ) -> Result<(), NoFigures> {
        let (count, mut bytes) = (self.fields.0, PackedBytes::new(self.fields.1));
        // A huge count does no harm: every iteration consumes bytes.
        for _ in 0..count {
            let number = bytes.varint()?;
            let field = usize::try_from(number).ok().filter(|field| *field < fields).ok_or(NoFigures::Name(number))?;
            let set = NumberSet::take(self.span, &mut bytes)?;
            let figures = bytes.counted()?;
            if is_wanted(field) {
                take_figures((figures, only_sums), set, room, |number, summary| take(field, number, summary))?;
            }
        }
        Ok(bytes.end()?)
    }
}

fn take_figures(
    (bytes, only_sums): (&[u8], bool),
    set: NumberSet,
    room: &mut Room,
    mut take: impl FnMut(u8, Summary),
) -> Result<(), NoFigures> {
    let mut bytes = PackedBytes::new(bytes);
    let (len, mut counts) = (set.len(), [0; MOST]);
    match bytes.varint()? {
        0 => {
            for count in &mut counts[..len] {
                *count = bytes.varint()?;
            }
        }
        same => counts[..len].fill(same),
    }
    let [mins, maxs, firsts, lasts, sums] = room;
    for numbers in [&mut *mins, maxs, firsts, lasts] {
        match only_sums {
            true => skip_numbers(&mut bytes, &mut numbers[..len])?,
            false => take_numbers(&mut bytes, &mut numbers[..len])?,
        }
    }
    take_numbers(&mut bytes, &mut sums[..len])?;
    for (place, number) in set.numbers().enumerate() {
        let (values, sum) = ([mins[place], maxs[place], firsts[place], lasts[place]], sums[place]);
        let rest = if let Number::Float(sum) = sum { take_rest(&mut bytes, sum)? } else { SumRest::default() };
        take(number, Summary::of_numbers(counts[place], values, sum, &rest));
    }
    Ok(bytes.end()?)
}
