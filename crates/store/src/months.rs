//! The encoding of a sensor's monthly totals, which both stores share. docs/reference/stored-forms.md describes it.
//!
//! ```text
//! month := 1:u8  overlapping:set  names  figures
//! names := count:varint (length:varint bytes)…
//! set, figures: see `figures`; days are numbered from 0. The set of the figures includes days without numeric fields.
//! ```

use std::ops::Range;
use std::sync::Arc;

use super::figures::{FieldFigures, FiguresError, NumberSet, PackedFigures, Room, Span, put_fields};
use crate::bucket::columns::{ColumnsDamage, PackedBytes};
use crate::bucket::store::Projection;
use crate::bucket::{DaySummaries, MonthTotals};
use crate::reading::varint::put_texts;
use crate::reading::{Day, Month};

/// The first byte.
const FORM: u8 = 1;

/// The reason that bytes cannot be decoded as monthly totals.
#[derive(Debug, thiserror::Error)]
pub enum MonthError {
    #[error(transparent)]
    Damage(#[from] ColumnsDamage),
    #[error(transparent)]
    Figures(#[from] FiguresError),
    #[error("unknown form {0}; this program knows form {FORM}")]
    Form(u8),
}

/// Returns the index of a day within the days of its month.
fn day_number(month: &Range<Day>, day: Day) -> u8 {
    u8::try_from(day.0 - month.start.0).unwrap_or(u8::MAX)
}

/// Encodes the totals of a month.
#[must_use]
pub fn encode(month: Month, totals: &MonthTotals) -> Vec<u8> {
    let days = month.days();
    let mut out = vec![FORM];
    let mut overlapping = NumberSet::default();
    totals.overlapping.iter().for_each(|day| overlapping.insert(day_number(&days, *day)));
    let mut set = NumberSet::default();
    let mut names: Vec<&Arc<str>> = Vec::new();
    let mut fields: Vec<FieldFigures> = Vec::new();
    for (day, summaries) in &totals.days {
        let number = day_number(&days, *day);
        set.insert(number);
        for (name, summary) in summaries {
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
/// [`MonthError`]
pub fn decode(bytes: &[u8], month: Month, projection: &Projection, room: &mut Room) -> Result<MonthTotals, MonthError> {
    let mut bytes = PackedBytes::new(bytes);
    match bytes.byte()? {
        FORM => {}
        other => return Err(MonthError::Form(other)),
    }
    let first = month.days().start.0;
    let day = |number: u8| Day(first + i64::from(number));
    let overlapping = NumberSet::take(Span::Days, &mut bytes)?.numbers().map(day).collect();
    let names: Vec<Option<Arc<str>>> = bytes.texts()?.into_iter().map(|name| projection.shared_name(name)).collect();
    let figures = PackedFigures::at_end(Span::Days, bytes)?;
    let wanted = names.iter().flatten().count();
    let mut days: Vec<(Day, DaySummaries)> =
        figures.set.numbers().map(|number| (day(number), Vec::with_capacity(wanted))).collect();
    let is_wanted = |field: usize| names[field].is_some();
    figures.each(names.len(), is_wanted, projection, room, |field, number, summary| {
        let index = days.binary_search_by_key(&day(number), |(day, _)| *day);
        let (Some(name), Ok(index)) = (&names[field], index) else { return };
        days[index].1.push((name.clone(), summary));
    })?;
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
        fn totals_round_trip(
            month in -300_i64..300,
            days in proptest::collection::btree_map(0_i64..31, proptest::collection::btree_map("[a-c]", proptest::collection::vec(value(), 1..4), 0..3), 0..31),
            overlapping in proptest::collection::btree_set(0_i64..28, 0..4),
        ) {
            let month = Month(month);
            let first = month.days().start.0;
            let overlapping: Vec<Day> = overlapping.into_iter().map(|n| Day(first + n)).collect();
            let of_day = |(number, fields): (i64, std::collections::BTreeMap<String, Vec<Value>>)| {
                // Some days have counts by ranges, not all by the same ones.
                let bounds = [None, Some(Arc::from([0.0])), Some(Arc::from([-1.0, 1e9]))];
                let bounds = bounds[usize::try_from(number % 3).unwrap_or_default()].clone();
                let fold = |values: &[Value]| Summary::fold_within(values.iter(), bounds.as_ref());
                let fields = fields.into_iter().filter_map(|(name, values)| Some((Arc::from(name), fold(&values)?)));
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
