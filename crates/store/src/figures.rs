//! The encoding of summaries by field: of the hours of a day, or of the days of a month. A scan decodes only the fields
//! that it needs, and only counts and sums where that is enough.
//!
//! ```text
//! figures := set  count:varint field…                      set: the numbers that have a summary of any field
//! set     := little-endian, u24 for hours and u32 for days; bit n is set if number n is in the set
//! field   := name:varint  set  length:varint (of the rest)  counts min max first last sum rest…
//! counts  := count:varint (of every number)  |  0 count:varint…                 one per number in the field's set
//!          | 0 0 length:varint distribution… counts                              if fields have bounds, see `distributions`
//! min, max, first, last, sum: cells, one per number in the field's set, see `bucket::columns`
//! rest    := see `store::rest`; one for each sum that is a float
//! ```

use std::sync::Arc;

use super::distributions;
use super::rest::{put_rest, take_rest};
use crate::bucket::Summary;
use crate::bucket::columns::{Cell, ColumnsDamage, PackedBytes, put_cells, skip_numbers, take_numbers};
use crate::bucket::exact::SumRest;
use crate::bucket::store::Projection;
use crate::bucket::summary::{Figures, Number};
use crate::reading::varint::{put_bytes, put_varint};
use crate::reading::{Day, Hour, Value};

/// Maximum number of hours or days in a set.
const NUMBERS_MAX: usize = 32;

/// The reason that bytes cannot be decoded as figures.
#[derive(Debug, thiserror::Error)]
pub enum FiguresError {
    #[error(transparent)]
    Damage(#[from] ColumnsDamage),
    #[error("field number {0} has no name")]
    Name(u64),
}

/// The unit that the numbers of a set count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Span {
    /// The hours of a day, from 0.
    Hours,
    /// The days of a month, from 0.
    Days,
}

impl Span {
    /// Encoded size of a set, in bytes.
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
    /// Adds a number. Ignores numbers above 31.
    pub fn insert(&mut self, number: u8) {
        self.0 |= 1_u32.checked_shl(number.into()).unwrap_or_default();
    }

    /// Appends the set to `out`.
    pub fn put(self, span: Span, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0.to_le_bytes()[..span.width()]);
    }

    /// Decodes a set that [`Self::put`] wrote.
    ///
    /// # Errors
    /// If bytes are missing.
    pub fn take(span: Span, bytes: &mut PackedBytes<'_>) -> Result<Self, ColumnsDamage> {
        let mut word = [0; 4];
        word[..span.width()].copy_from_slice(bytes.take(span.width())?);
        Ok(Self(u32::from_le_bytes(word)))
    }

    fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Returns the numbers in ascending order.
    pub fn numbers(self) -> impl Iterator<Item = u8> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let number = u8::try_from(left.trailing_zeros()).ok().filter(|_| left != 0)?;
            left &= left - 1;
            Some(number)
        })
    }
}

/// The figures of one field, by hour or day.
#[derive(Debug, Clone, Default)]
pub struct FieldFigures {
    set: NumberSet,
    figures: Vec<Figures>,
}

impl FieldFigures {
    /// Appends the figures of a number, which must be greater than all numbers before.
    pub fn push(&mut self, number: u8, figures: Figures) {
        self.set.insert(number);
        self.figures.push(figures);
    }
}

/// Encodes the figures of fields. A field's name is its index in `fields`; fields without figures are left out.
pub fn put_fields(out: &mut Vec<u8>, span: Span, set: NumberSet, fields: &[FieldFigures]) {
    set.put(span, out);
    let filled = || fields.iter().enumerate().filter(|(_, field)| !field.figures.is_empty());
    put_varint(out, filled().count() as u64);
    let mut encoded = Vec::new();
    for (name, field) in filled() {
        put_varint(out, name as u64);
        field.set.put(span, out);
        encoded.clear();
        put_figures(&mut encoded, &field.figures);
        put_bytes(out, &encoded);
    }
}

/// Collects the summaries of a day's hours by field.
#[derive(Debug)]
pub struct HourColumns {
    /// The first hour of the day, in hours since the epoch.
    start: i64,
    set: NumberSet,
    fields: Vec<FieldFigures>,
}

impl HourColumns {
    /// Creates an empty collection for a number of fields.
    #[must_use]
    pub fn new(day: Day, fields: usize) -> Self {
        Self { start: day.hours().start.0, set: NumberSet::default(), fields: vec![FieldFigures::default(); fields] }
    }

    /// Appends the summaries of an hour, each with the index of its field. The hour must be later than all hours before.
    pub fn push<'s>(&mut self, hour: Hour, summaries: impl Iterator<Item = (usize, &'s Summary)>) {
        let number = u8::try_from(hour.0 - self.start).unwrap_or(u8::MAX);
        self.set.insert(number);
        summaries.for_each(|(field, summary)| self.fields[field].push(number, summary.figures()));
    }

    /// Encodes the collection.
    pub fn put(self, out: &mut Vec<u8>) {
        put_fields(out, Span::Hours, self.set, &self.fields);
    }
}

fn put_figures(out: &mut Vec<u8>, figures: &[Figures]) {
    if figures.iter().any(|one| one.distribution.is_some()) {
        // No summary is of 0 values, so that these bytes are no counts.
        out.extend([0, 0]);
        let mut encoded = Vec::new();
        figures.iter().for_each(|one| distributions::put(&mut encoded, one.distribution.as_deref()));
        put_bytes(out, &encoded);
    }
    let have_same_count = figures.iter().all(|one| one.count == figures[0].count);
    if have_same_count {
        put_varint(out, figures[0].count);
    } else {
        out.push(0);
        figures.iter().for_each(|one| put_varint(out, one.count));
    }
    let mut cells: Vec<Cell> = Vec::with_capacity(figures.len());
    let mut scratch = Vec::new();
    let getters: [fn(&Figures) -> &Value; 5] =
        [|one| &one.min, |one| &one.max, |one| &one.first, |one| &one.last, |one| &one.sum];
    for get in getters {
        cells.clear();
        cells.extend(figures.iter().map(|one| Some(get(one).clone())));
        put_cells(out, &cells, &mut scratch);
    }
    for one in figures {
        if let Value::Float(sum) = &one.sum {
            put_rest(out, *sum, &one.rest);
        }
    }
}

/// Buffers for the decoded columns of a field: min, max, first, last and sum.
pub type Room = [[Number; NUMBERS_MAX]; 5];

/// Figures that are not decoded yet.
#[derive(Debug)]
pub struct PackedFigures<'a> {
    span: Span,
    /// The numbers that have a summary of any field.
    pub set: NumberSet,
    field_count: u64,
    /// The encoded fields.
    fields: &'a [u8],
}

impl<'a> PackedFigures<'a> {
    /// Reads the header of the figures, which take up the rest of `bytes`.
    ///
    /// # Errors
    /// [`FiguresError`]
    pub fn at_end(span: Span, mut bytes: PackedBytes<'a>) -> Result<Self, FiguresError> {
        let set = NumberSet::take(span, &mut bytes)?;
        let field_count = bytes.varint()?;
        Ok(Self { span, set, field_count, fields: bytes.unread() })
    }

    /// Passes the summaries of the wanted fields to `take`: the field's index, the number of the hour or day, and the
    /// summary, field by field in stored order. `fields` is the number of known fields. The projection says which figures
    /// are decoded.
    ///
    /// # Errors
    /// [`FiguresError`]
    pub fn each(
        &self,
        fields: usize,
        is_wanted: impl Fn(usize) -> bool,
        projection: &Projection,
        room: &mut Room,
        mut take: impl FnMut(usize, u8, Summary),
    ) -> Result<(), FiguresError> {
        let mut bytes = PackedBytes::new(self.fields);
        // A huge count from a damaged document is harmless, because every iteration consumes bytes.
        for _ in 0..self.field_count {
            let number = bytes.varint()?;
            let field =
                usize::try_from(number).ok().filter(|field| *field < fields).ok_or(FiguresError::Name(number))?;
            let set = NumberSet::take(self.span, &mut bytes)?;
            let figures = bytes.prefixed_bytes()?;
            if is_wanted(field) {
                take_figures(figures, set, projection, room, |number, summary| take(field, number, summary))?;
            }
        }
        Ok(bytes.end()?)
    }
}

fn take_figures(
    bytes: &[u8],
    set: NumberSet,
    projection: &Projection,
    room: &mut Room,
    mut take: impl FnMut(u8, Summary),
) -> Result<(), FiguresError> {
    let mut bytes = PackedBytes::new(bytes);
    let len = set.len();
    let mut counts = [0; NUMBERS_MAX];
    let mut distributions = None;
    if bytes.unread().starts_with(&[0, 0]) && len > 0 {
        bytes.take(2)?;
        let encoded = bytes.prefixed_bytes()?;
        distributions = projection.distributions.then(|| PackedBytes::new(encoded));
    }
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
        if projection.only_sums {
            skip_numbers(&mut bytes, &mut numbers[..len])?;
        } else {
            take_numbers(&mut bytes, &mut numbers[..len])?;
        }
    }
    take_numbers(&mut bytes, &mut sums[..len])?;
    let mut bounds: Arc<[f64]> = Arc::default();
    for (index, number) in set.numbers().enumerate() {
        let values = [mins[index], maxs[index], firsts[index], lasts[index]];
        let sum = sums[index];
        let rest = if let Number::Float(sum) = sum { take_rest(&mut bytes, sum)? } else { SumRest::default() };
        let mut summary = Summary::from_numbers(counts[index], values, sum, &rest);
        if let Some(distributions) = &mut distributions {
            summary = summary.with_distribution(distributions::take(distributions, &mut bounds)?);
        }
        take(number, summary);
    }
    Ok(bytes.end()?)
}
