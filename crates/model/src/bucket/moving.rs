//! Moves values of other types, which are kept beside a field, into one field.

use std::sync::Arc;

use super::Readings;
use crate::reading::{Family, Stamp, Value, ValueType};

/// Which values may move where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldMove {
    /// The field, beside which values of other families are kept, and into which they move.
    pub field: Arc<str>,
    /// As which type.
    pub to: ValueType,
}

/// Values that move, told by the field that they are in: what is stored of a reading in several parts moves alike in each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueMove {
    /// The field that they are in.
    pub from: Arc<str>,
    /// Where they go.
    pub into: Arc<str>,
    /// As which type.
    pub to: ValueType,
}

/// What moves of one reading: first out of the field's way, then into it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReadingMoves {
    /// A value of another family in the field, which goes beside it because it says nothing as the type.
    pub aside: Option<ValueMove>,
    /// The value that becomes the field's.
    pub inward: Option<ValueMove>,
}

impl FieldMove {
    /// Into the field, as this type.
    #[must_use]
    pub fn new(field: &str, to: ValueType) -> Self {
        Self { field: field.into(), to }
    }

    fn is_beside(&self, name: &str) -> bool {
        Family::kept_beside(name).is_some_and(|(field, _)| *field == *self.field)
    }

    /// Which values of a reading move, of the cells whose stamps are below `before`. The set must have everything that is stored of
    /// the reading.
    #[must_use]
    pub fn choose(&self, readings: &Readings, index: usize, before: Stamp) -> ReadingMoves {
        let inward = |from: &str| ValueMove { from: from.into(), into: self.field.clone(), to: self.to };
        let own = readings.stamped(index).find(|(_, name, ..)| **name == *self.field);
        let Some((_, _, value, stamp)) = own else {
            return ReadingMoves { aside: None, inward: self.latest_beside(readings, index, before).map(inward) };
        };
        if value.family() == self.to.family() || !readings.is_before(stamp, before) {
            return ReadingMoves::default();
        }
        if self.to.cast(value).is_some() {
            return ReadingMoves { aside: None, inward: Some(inward(&self.field)) };
        }
        let into = value.family().beside(&self.field);
        if readings.stamped(index).any(|(_, name, ..)| *name == *into) {
            return ReadingMoves::default();
        }
        let aside = ValueMove { from: self.field.clone(), into: into.into(), to: ValueType::of(value) };
        ReadingMoves { aside: Some(aside), inward: self.latest_beside(readings, index, before).map(inward) }
    }

    /// The field beside this one with the latest value that can move, if there is any.
    fn latest_beside<'r>(&self, readings: &'r Readings, index: usize, before: Stamp) -> Option<&'r str> {
        let able = readings.stamped(index).filter(|(_, name, value, stamp)| {
            self.is_beside(name) && readings.is_before(*stamp, before) && self.to.cast(value).is_some()
        });
        able.max_by_key(|(at, _, _, stamp)| (*stamp, *at)).map(|(_, name, ..)| name)
    }

    /// Whether a reading has a value that would move, were it not for another one or for its text.
    #[must_use]
    pub fn has_drifted(&self, readings: &Readings, index: usize) -> bool {
        let is_other = |name: &str, value: &Value| *name == *self.field && value.family() != self.to.family();
        readings.fields(index).any(|(name, value)| is_other(name, value) || self.is_beside(name))
    }
}

impl ValueMove {
    /// The cell that moves, with its stamp and place, and what it becomes; none if there is a value already where it would go.
    fn choose(&self, readings: &Readings, index: usize, before: Stamp) -> Option<(Stamp, usize, Value)> {
        let mut cells = readings.stamped(index);
        let is_free = match cells.clone().find(|(_, name, ..)| **name == *self.into) {
            Some((_, _, value, _)) if value.family() == self.to.family() => false,
            // Where two instances gave a field two families at the same moment, it has values of both. Nothing else may take
            // the place of this one.
            Some(_) => self.from == self.into,
            None => true,
        };
        let (at, _, value, stamp) = cells.find(|(_, name, ..)| is_free && **name == *self.from)?;
        readings.is_before(stamp, before).then(|| Some((stamp, at, self.to.cast(value)?))).flatten()
    }

    /// Moves the values of the readings at the times that pass a test whose stamps are below `before`; their stamps stay, so a
    /// value that was written later wins. Returns how many readings changed.
    pub fn apply(&self, readings: &mut Readings, is_meant: impl Fn(i64) -> bool, before: Stamp) -> usize {
        let chosen: Vec<Option<(usize, Value)>> = readings
            .times()
            .iter()
            .enumerate()
            .map(|(index, time)| {
                let cell = is_meant(*time).then(|| self.choose(readings, index, before)).flatten();
                cell.map(|(_, at, value)| (at, value))
            })
            .collect();
        let moved = chosen.iter().flatten().count();
        if moved > 0 {
            readings.move_cells(&chosen, &self.into);
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// Cells by time and field: stamp and value.
    type Cells = BTreeMap<(i64, String), (Stamp, Value)>;

    fn set_of(cells: &Cells, floor: Stamp) -> Readings {
        let mut readings = Readings::default();
        for ((time, name), (stamp, value)) in cells {
            let name: Arc<str> = Arc::from(&**name);
            match readings.find(*time) {
                Some(index) => drop(readings.merge(index, *stamp, std::iter::once((&name, value)))),
                None => readings.push(*time, *stamp, std::iter::once((&name, value))),
            }
            readings.settle(true);
        }
        readings.raise_floor(floor);
        readings
    }

    /// Moves what may move of a whole set; returns how many values did.
    fn apply(moving: &FieldMove, readings: &mut Readings, is_meant: impl Fn(i64) -> bool, before: Stamp) -> usize {
        let of_all = |readings: &mut Readings, which: fn(ReadingMoves) -> Option<ValueMove>| -> usize {
            let chosen = |(index, time): (usize, &i64)| {
                is_meant(*time).then(|| which(moving.choose(readings, index, before))).flatten().map(|of| (*time, of))
            };
            let all: Vec<(i64, ValueMove)> = readings.times().iter().enumerate().filter_map(chosen).collect();
            all.into_iter().map(|(time, of)| of.apply(readings, |other| other == time, before)).sum()
        };
        of_all(readings, |moves| moves.aside) + of_all(readings, |moves| moves.inward)
    }

    fn values(readings: &Readings) -> BTreeMap<(i64, String), Value> {
        let rows = readings.times().iter().enumerate();
        let cells = rows.flat_map(|(index, time)| {
            readings.fields(index).map(|(name, value)| ((*time, name.to_string()), value.clone()))
        });
        cells.collect()
    }

    fn text(value: &str) -> Value {
        Value::String(value.into())
    }

    fn cells() -> impl Strategy<Value = Cells> {
        let value = prop_oneof![
            (0..9_i64).prop_map(|v| ("temp", Value::Integer(v))),
            (0..9_i64).prop_map(|v| ("temp@string", text(&v.to_string()))),
            Just(("temp@string", text("warm"))),
            any::<bool>().prop_map(|v| ("temp@boolean", Value::Boolean(v))),
            // Two instances took the field's first value for two families.
            (0..9_i64).prop_map(|v| ("temp", text(&v.to_string()))),
            // The field was one of text.
            Just(("temp", text("warm"))),
            (0..9_i64).prop_map(|v| ("temp2@string", text(&v.to_string()))),
        ];
        prop::collection::vec((0..20_i64, value, 1..100_u64), 0..60).prop_map(|cells| {
            cells.into_iter().map(|(time, (name, value), stamp)| ((time, name.to_owned()), (stamp, value))).collect()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// What says the same moves where nothing is, at the times that are meant, if it is old; all else stays. Nothing is lost
        /// but by a value that says the same, and a second time changes nothing more.
        #[test]
        fn values_move_as_in_a_plain_map(cells in cells(), floor in 0..50_u64, above in 1..60_u64, meant in 1..5_i64) {
            let before = floor + above;
            let moving = FieldMove::new("temp", ValueType::Float);
            let mut readings = set_of(&cells, floor);
            let mut expected: BTreeMap<(i64, String), Value> =
                cells.iter().map(|(at, (_, value))| (at.clone(), value.clone())).collect();
            let mut count = 0;
            for time in (0..20).filter(|time| time % meant == 0) {
                let target = (time, "temp".to_owned());
                if expected.get(&target).is_some_and(|value| value.family() == Family::Number) {
                    continue;
                }
                let aside = (time, "temp@string".to_owned());
                let is_warm = cells.get(&target).is_some_and(|(stamp, value)| *value == text("warm") && (*stamp).max(floor) < before);
                if is_warm && !expected.contains_key(&aside) {
                    let value = expected.remove(&target).expect("it is warm");
                    expected.insert(aside, value);
                    count += 1;
                }
                // A value of another family in the field itself goes first.
                let names: &[&str] = if expected.contains_key(&target) { &["temp"] } else { &["temp@string", "temp@boolean"] };
                let sources = names.iter().map(|name| (time, (*name).to_owned()));
                let old = sources.filter(|at| cells.get(at).is_some_and(|(stamp, _)| (*stamp).max(floor) < before));
                let able: Vec<_> = old.filter_map(|at| Some((ValueType::Float.cast(&cells[&at].1)?, at))).collect();
                // Which of several moves is told by their stamps; here it is enough that one does.
                if able.len() == 1 {
                    let (value, at) = able[0].clone();
                    expected.remove(&at);
                    expected.insert(target, value);
                    count += 1;
                } else if able.len() > 1 {
                    let index = readings.find(time).expect("it has cells");
                    prop_assert!(moving.choose(&readings, index, before).inward.is_some());
                    expected.retain(|(of, name), _| *of != time || name == "temp2@string");
                    count += 1;
                }
            }
            let stamps_before: BTreeMap<i64, Stamp> =
                readings.times().iter().enumerate().map(|(index, time)| (*time, readings.stamped(index).map(|c| c.3).max().unwrap_or(0))).collect();
            prop_assert_eq!(apply(&moving, &mut readings, |time| time % meant == 0, before), count);
            let seen = values(&readings);
            for (at, value) in &expected {
                prop_assert_eq!(seen.get(at), Some(value), "{:?}", at);
            }
            for (index, time) in readings.times().iter().enumerate() {
                let greatest = readings.stamped(index).map(|cell| cell.3).max().unwrap_or(0);
                prop_assert!(greatest <= stamps_before[time], "no stamp is made newer");
            }
            let times: Vec<i64> = cells.keys().map(|(time, _)| *time).collect();
            prop_assert!(times.iter().all(|time| readings.find(*time).is_some()), "no reading is lost");
            let once = values(&readings);
            apply(&moving, &mut readings, |time| time % meant == 0, before);
            prop_assert_eq!(values(&readings), once);
        }
    }

    #[test]
    fn a_value_that_was_written_later_wins_over_one_that_moved() {
        let moving = FieldMove::new("temp", ValueType::Float);
        let at = |name: &str| (7, name.to_owned());
        let mut stored =
            set_of(&Cells::from([(at("temp@string"), (10, text("21.5"))), (at("w"), (10, Value::Integer(1)))]), 0);
        assert_eq!(apply(&moving, &mut stored, |_| true, 20), 1);
        let later = set_of(&Cells::from([(at("temp"), (30, Value::Float(3.0)))]), 0);
        let mut merged = stored.clone();
        merged.merge_set(&later);
        assert_eq!(values(&merged)[&at("temp")], Value::Float(3.0));
        let earlier = set_of(&Cells::from([(at("temp"), (5, Value::Float(3.0)))]), 0);
        stored.merge_set(&earlier);
        assert_eq!(values(&stored)[&at("temp")], Value::Float(21.5));
        assert_eq!(values(&stored)[&at("w")], Value::Integer(1));
    }

    /// Regression: each part chose for itself which of several values moves. Where a day had one of a reading and a page another, both
    /// moved into the same field, and one of them was lost.
    #[test]
    fn of_a_reading_that_is_in_two_parts_one_value_moves_and_the_other_stays() {
        let at = |name: &str| (7, name.to_owned());
        let moving = FieldMove::new("temp", ValueType::Float);
        let mut page = set_of(&Cells::from([(at("temp@string"), (10, text("21.5")))]), 0);
        let mut day = set_of(&Cells::from([(at("temp@boolean"), (8, Value::Boolean(true)))]), 0);
        let union = |page: &Readings, day: &Readings| {
            let mut union = day.clone();
            union.merge_set(page);
            union
        };
        let chosen = moving.choose(&union(&page, &day), 0, 20).inward.expect("it can move");
        assert_eq!(&*chosen.from, "temp@string");
        assert_eq!(chosen.apply(&mut page, |_| true, 20) + chosen.apply(&mut day, |_| true, 20), 1);
        let left = values(&union(&page, &day));
        assert_eq!(
            left,
            BTreeMap::from([(at("temp"), Value::Float(21.5)), (at("temp@boolean"), Value::Boolean(true))])
        );
        assert_eq!(moving.choose(&union(&page, &day), 0, 20), ReadingMoves::default());
    }

    /// A text in the field itself that is no number stayed there for ever, and with it all numbers beside it: the first value of a
    /// sensor said for good what its field is.
    #[test]
    fn what_says_nothing_makes_way_for_what_does() {
        let at = |name: &str| (7, name.to_owned());
        let moving = FieldMove::new("temp", ValueType::Float);
        let held = [(at("temp"), (10, text("err"))), (at("temp@number"), (11, Value::Integer(5)))];
        let mut readings = set_of(&Cells::from(held.clone()), 0);
        assert_eq!(apply(&moving, &mut readings, |_| true, 20), 2);
        assert_eq!(
            values(&readings),
            BTreeMap::from([(at("temp"), Value::Float(5.0)), (at("temp@string"), text("err"))])
        );
        // A place that is taken, and a value that is newer, stay.
        let mut taken = Cells::from(held.clone());
        taken.insert(at("temp@string"), (9, text("warm")));
        for (cells, before) in [(taken, 20), (Cells::from(held), 10)] {
            let mut readings = set_of(&cells, 0);
            assert_eq!(apply(&moving, &mut readings, |_| true, before), 0);
            assert!(moving.has_drifted(&readings, 0));
        }
    }
}
