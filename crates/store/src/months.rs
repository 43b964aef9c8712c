//! The bytes in which both stores keep the totals of a sensor's month.
//!
//! ```text
//! month := 1:u8  overlapping:set  names  figures
//! names := count:varint (length:varint bytes)…
//! overlapping: the days whose parts overlap, so that their hours must be read
//! set, figures: see `figures`; days are numbered from 0. A day without numeric fields is in the set of the figures, too.
//! ```

use std::ops::Range;
use std::sync::Arc;

use super::figures::{FieldFigures, NoFigures, NumberSet, PackedFigures, Room, Span, put_fields};
use crate::bucket::columns::{ColumnsDamage, PackedBytes};
use crate::bucket::store::Projection;
use crate::bucket::{DaySummaries, MonthTotals};
use crate::reading::varint::put_texts;
use crate::reading::{Day, Month};

/// The first byte.
const FORM: u8 = 1;

/// Why bytes are not the totals of a month.
#[derive(Debug, thiserror::Error)]
pub enum NoMonth {
    #[error(transparent)]
    Damage(#[from] ColumnsDamage),
    #[error(transparent)]
    Figures(#[from] NoFigures),
    #[error("it has form {0}, this program knows {FORM}")]
    Form(u8),
}

/// The number of a day of the month.
fn number(month: &Range<Day>, day: Day) -> u8 {
    u8::try_from(day.0 - month.start.0).unwrap_or(u8::MAX)
}

/// Encodes totals.
#[must_use]
pub fn encode(month: Month, totals: &MonthTotals) -> Vec<u8> {
    let (days, mut out, mut overlapping, mut set) =
        (month.days(), vec![FORM], NumberSet::default(), NumberSet::default());
    totals.overlapping.iter().for_each(|day| overlapping.insert(number(&days, *day)));
    let (mut names, mut fields): (Vec<&Arc<str>>, Vec<FieldFigures>) = (Vec::new(), Vec::new());
    for (day, of_fields) in &totals.days {
        let number = number(&days, *day);
        set.insert(number);
        for (name, summary) in of_fields {
            let field = names.iter().position(|held| *held == name).unwrap_or_else(|| {
                names.push(name);
                fields.push(FieldFigures::default());
                names.len() - 1
            });
            fields[field].push(number, summary.figures());
        }
    }
    overlapping.put(Span::Days, &mut out);
    put_texts(&mut out, names.into_iter().map(|name| &**name));
    put_fields(&mut out, Span::Days, set, &fields);
    out
}

/// Decodes the totals of the projected fields.
///
/// # Errors
/// [`NoMonth`]
pub fn decode(bytes: &[u8], month: Month, projection: &Projection, room: &mut Room) -> Result<MonthTotals, NoMonth> {
    let mut bytes = PackedBytes::new(bytes);
    match bytes.byte()? {
        FORM => {}
        other => return Err(NoMonth::Form(other)),
    }
    let first = month.days().start.0;
    let day = |number: u8| Day(first + i64::from(number));
    let overlapping = NumberSet::take(Span::Days, &mut bytes)?.numbers().map(day).collect();
    let names: Vec<Option<Arc<str>>> = bytes.texts()?.into_iter().map(|name| projection.name_of(name)).collect();
    let figures = PackedFigures::at_end(Span::Days, bytes)?;
    let wanted = names.iter().flatten().count();
    let mut days: Vec<(Day, DaySummaries)> =
        figures.set.numbers().map(|number| (day(number), Vec::with_capacity(wanted))).collect();
    figures.each(
        names.len(),
        (|field| names[field].is_some(), projection.only_sums),
        room,
        |field, number, summary| {
            let place = days.binary_search_by_key(&day(number), |(day, _)| *day);
            let (Some(name), Ok(place)) = (&names[field], place) else { return };
            days[place].1.push((name.clone(), summary));
        },
    )?;
    Ok(MonthTotals { days, overlapping })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::bucket::Summary;
    use crate::reading::Value;

    fn value() -> impl Strategy<Value = Value> {
        prop_oneof![
            any::<f64>().prop_filter("finite", |v| v.is_finite()).prop_map(Value::Float),
            any::<i64>().prop_map(Value::Integer),
            any::<u64>().prop_map(Value::Unsigned),
        ]
    }

    proptest! {
        #[test]
        fn totals_come_back(
            month in -300_i64..300,
            days in proptest::collection::btree_map(0_i64..31, proptest::collection::btree_map("[a-c]", proptest::collection::vec(value(), 1..4), 0..3), 0..31),
            overlapping in proptest::collection::btree_set(0_i64..28, 0..4),
        ) {
            let month = Month(month);
            let first = month.days().start.0;
            let overlapping: Vec<Day> = overlapping.into_iter().map(|n| Day(first + n)).collect();
            let of_day = |(number, fields): (i64, std::collections::BTreeMap<String, Vec<Value>>)| {
                let fields = fields.into_iter().filter_map(|(name, values)| Some((Arc::from(name), Summary::fold(values.iter())?)));
                (Day(first + number), fields.collect::<Vec<_>>())
            };
            let days = days.into_iter().map(of_day).filter(|(day, _)| month.days().contains(day) && !overlapping.contains(day));
            let totals = MonthTotals { days: days.collect(), overlapping };
            let bytes = encode(month, &totals);
            let back = decode(&bytes, month, &Projection::SUMMARIES, &mut Room::default()).expect("totals");
            let sorted = |mut totals: MonthTotals| {
                totals.days.iter_mut().for_each(|(_, fields)| fields.sort_by(|a, b| a.0.cmp(&b.0)));
                totals
            };
            let exact = |totals: MonthTotals| {
                let figures = |(day, fields): (Day, Vec<(Arc<str>, Summary)>)| {
                    (day, fields.into_iter().map(|(name, summary)| (name, summary.figures())).collect::<Vec<_>>())
                };
                (totals.days.into_iter().map(figures).collect::<Vec<_>>(), totals.overlapping)
            };
            prop_assert_eq!(exact(sorted(back)), exact(sorted(totals.clone())));
            let only = Projection { fields: Some(Arc::new([Arc::from("b")])), ..Projection::SUMMARIES };
            let back = decode(&bytes, month, &only, &mut Room::default()).expect("totals");
            prop_assert_eq!(back.days.len(), totals.days.len());
            prop_assert!(back.days.iter().flat_map(|(_, fields)| fields).all(|(name, _)| &**name == "b"));
            for length in 0..bytes.len() {
                prop_assert!(decode(&bytes[..length], month, &Projection::SUMMARIES, &mut Room::default()).is_err());
            }
        }
    }
}
