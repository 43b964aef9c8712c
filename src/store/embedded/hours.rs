//! The hourly summaries of a part of a day, by column: a scan decodes the wanted fields only, and skips the others.
//!
//! ```text
//! hours   := set  count:varint field…                      set: of the hours that the part has readings in
//! set     := u24, little-endian; bit n says that hour n of the day is in it
//! field   := name:varint  set  length:varint (of what follows)  counts min max first last sum rest…
//! counts  := count:varint (of every hour)  |  0 count:varint…                   one per hour of the field
//! min, max, first, last, sum: cells, one per hour of the field, see `bucket::columns`
//! rest    := see `form::rest`; one for each sum that is a float
//! ```

use super::form::NoPage;
use super::form::rest::{put_rest, take_rest};
use crate::bucket::Readings;
use crate::bucket::columns::{Cell, ColumnsDamage, PackedBytes, put_cells, take_cells_into};
use crate::bucket::exact::SumRest;
use crate::bucket::summary::Figures;
use crate::reading::varint::put_varint;
use crate::reading::{Day, Hour, Value};

const HOURS: u32 = 24;

/// Numbers of hours of a day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct HourSet(u32);

impl HourSet {
    fn insert(&mut self, number: u8) {
        self.0 |= 1 << number;
    }

    fn put(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0.to_le_bytes()[..3]);
    }

    fn take(bytes: &mut PackedBytes<'_>) -> Result<Self, NoPage> {
        let [first, second, third] = *bytes.take(3)? else { return Err(NoPage::Readings) };
        Ok(Self(u32::from_le_bytes([first, second, third, 0])))
    }

    fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// In order.
    pub(super) fn numbers(self) -> impl Iterator<Item = u8> {
        (0_u8..24).filter(move |number| self.0 & 1 << number != 0)
    }
}

/// The hour of a day, 0 to 23.
fn number(day: Day, hour: Hour) -> u8 {
    u8::try_from(hour.0 - day.hours().start.0).unwrap_or_default().min(23)
}

/// Appends the summaries of these hours; the readings of each have the same `columns` columns.
pub(super) fn put_hours(out: &mut Vec<u8>, day: Day, hours: &[(Hour, Readings)], columns: usize) {
    let mut set = HourSet::default();
    let mut by_column: Vec<(HourSet, Vec<Figures>)> = vec![Default::default(); columns];
    for (hour, readings) in hours {
        let hour = number(day, *hour);
        set.insert(hour);
        for (column, summary) in readings.numbered_summaries() {
            let (set, figures) = &mut by_column[column];
            set.insert(hour);
            figures.push(summary.figures());
        }
    }
    set.put(out);
    put_varint(out, by_column.iter().filter(|(_, figures)| !figures.is_empty()).count() as u64);
    let mut room = Vec::new();
    for (column, (set, figures)) in by_column.iter().enumerate().filter(|(_, (_, figures))| !figures.is_empty()) {
        put_varint(out, column as u64);
        set.put(out);
        room.clear();
        put_figures(&mut room, figures);
        put_varint(out, room.len() as u64);
        out.extend_from_slice(&room);
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
        if let (Value::Float(sum), Some(rest)) = (&one.sum, &one.rest) {
            put_rest(out, *sum, rest);
        }
    }
}

/// Room for the columns of a field.
pub(super) type Room = [Vec<Cell>; 5];

/// Summaries that are not decoded yet.
#[derive(Debug)]
pub(super) struct Hours<'a> {
    pub(super) set: HourSet,
    /// The number of fields, and what is stored of them.
    fields: (u64, &'a [u8]),
}

impl<'a> Hours<'a> {
    /// Those at the end of these bytes.
    pub(super) fn at_end(mut bytes: PackedBytes<'a>) -> Result<Self, NoPage> {
        Ok(Self { set: HourSet::take(&mut bytes)?, fields: (bytes.varint()?, bytes.rest()) })
    }

    /// Passes the summaries of the fields whose numbers are wanted, field by field and hour by hour. There are `fields`.
    pub(super) fn each(
        &self,
        fields: usize,
        is_wanted: impl Fn(usize) -> bool,
        room: &mut Room,
        mut take: impl FnMut(usize, u8, &Figures),
    ) -> Result<(), NoPage> {
        let (count, mut bytes) = (self.fields.0, PackedBytes::new(self.fields.1));
        // A huge count does no harm: every iteration consumes bytes.
        for _ in 0..count {
            let number = bytes.varint()?;
            let field = usize::try_from(number).ok().filter(|field| *field < fields).ok_or(NoPage::Name(number))?;
            let set = HourSet::take(&mut bytes)?;
            let length = usize::try_from(bytes.varint()?).unwrap_or(usize::MAX);
            let figures = bytes.take(length)?;
            if is_wanted(field) {
                take_figures(figures, set, room, |hour, figures| take(field, hour, figures))?;
            }
        }
        Ok(bytes.end()?)
    }
}

fn take_figures(bytes: &[u8], set: HourSet, room: &mut Room, mut take: impl FnMut(u8, &Figures)) -> Result<(), NoPage> {
    let mut bytes = PackedBytes::new(bytes);
    let (len, mut counts) = (set.len(), [0; HOURS as usize]);
    match bytes.varint()? {
        0 => {
            for count in &mut counts[..len] {
                *count = bytes.varint()?;
            }
        }
        same => counts[..len].fill(same),
    }
    for cells in room.iter_mut() {
        take_cells_into(&mut bytes, len, cells)?;
    }
    let [mins, maxs, firsts, lasts, sums] = room;
    let cells = mins.drain(..).zip(maxs.drain(..)).zip(firsts.drain(..).zip(lasts.drain(..))).zip(sums.drain(..));
    for ((hour, count), (((min, max), (first, last)), sum)) in set.numbers().zip(counts).zip(cells) {
        let (Some(min), Some(max), Some(first), Some(last), Some(sum)) = (min, max, first, last, sum) else {
            return Err(ColumnsDamage::Unknown { what: "a figure of a summary", found: 0 }.into());
        };
        let rest = if let Value::Float(sum) = sum { take_rest(&mut bytes, sum)? } else { SumRest::default() };
        take(hour, &Figures::with_mean(count, [min, max, first, last], sum, Some(rest)));
    }
    Ok(bytes.end()?)
}
