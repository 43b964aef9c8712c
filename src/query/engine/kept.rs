//! The values of a window, for functions that need all of them.

use std::cmp::Ordering;
use std::collections::HashMap;

use super::fold::Pick;
use super::memory::text_bytes;
use super::number::{number, order, whole};
use crate::reading::Value;

/// Values in the order in which they came, of which 8 bytes are held as long as all are of one type.
#[derive(Debug)]
pub enum Column {
    Floats(Vec<f64>),
    Integers(Vec<i64>),
    Others(Vec<Value>),
}

/// Values with what belongs to them.
#[derive(Debug)]
pub struct Kept {
    pub values: Column,
    /// The times of the values, if they are wanted.
    times: Option<Vec<i64>>,
    /// The readings' [`Plan::beside`](super::plan::Plan::beside) parts, if there are any.
    beside: Vec<Vec<Option<Value>>>,
}

impl Column {
    fn push(&mut self, value: &Value) {
        match (&mut *self, value) {
            (Self::Floats(held), Value::Float(value)) => held.push(*value),
            (Self::Integers(held), Value::Integer(value)) => held.push(*value),
            (Self::Others(held), value) => held.push(value.clone()),
            (Self::Floats(held), Value::Integer(value)) if held.is_empty() => *self = Self::Integers(vec![*value]),
            _ => {
                let mut values: Vec<Value> = (0..self.len()).map(|at| self.value(at)).collect();
                values.push(value.clone());
                *self = Self::Others(values);
            }
        }
    }

    pub fn len(&self) -> usize {
        match self {
            Self::Floats(held) => held.len(),
            Self::Integers(held) => held.len(),
            Self::Others(held) => held.len(),
        }
    }

    fn value(&self, at: usize) -> Value {
        match self {
            Self::Floats(held) => Value::Float(held[at]),
            Self::Integers(held) => Value::Integer(held[at]),
            Self::Others(held) => held[at].clone(),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Floats(held) => held.capacity() * size_of::<f64>(),
            Self::Integers(held) => held.capacity() * size_of::<i64>(),
            Self::Others(held) => held.capacity() * size_of::<Value>(),
        }
    }

    /// The value of this rank.
    fn select(&mut self, rank: usize) -> Value {
        match self {
            Self::Floats(held) => Value::Float(*held.select_nth_unstable_by(rank, f64::total_cmp).1),
            Self::Integers(held) => Value::Integer(*held.select_nth_unstable(rank).1),
            Self::Others(held) => held.select_nth_unstable_by(rank, by_value).1.clone(),
        }
    }
}

fn by_value(a: &Value, b: &Value) -> Ordering {
    order(a, b).unwrap_or(Ordering::Equal)
}

impl Kept {
    pub fn new(has_times: bool) -> Self {
        Self { values: Column::Floats(Vec::new()), times: has_times.then(Vec::new), beside: Vec::new() }
    }

    /// Adds a value. Returns how many more bytes are held.
    pub fn push(&mut self, time: i64, value: &Value, beside: impl FnOnce() -> Vec<Option<Value>>) -> usize {
        let before = self.bytes();
        self.values.push(value);
        let mut texts = text_bytes(value);
        if let Some(times) = &mut self.times {
            times.push(time);
            let beside = beside();
            if !beside.is_empty() {
                texts += beside.iter().flatten().map(text_bytes).sum::<usize>() + size_of_val(&*beside);
                self.beside.push(beside);
            }
        }
        self.bytes().saturating_sub(before) + texts
    }

    /// The memory of its columns.
    pub fn bytes(&self) -> usize {
        let times = self.times.as_ref().map_or(0, |times| times.capacity() * size_of::<i64>());
        self.values.bytes() + times + self.beside.capacity() * size_of::<Vec<Option<Value>>>()
    }

    pub fn texts(&self) -> usize {
        let values = if let Column::Others(held) = &self.values { held.iter().map(text_bytes).sum() } else { 0 };
        values + self.beside.iter().flatten().flatten().map(text_bytes).sum::<usize>()
    }

    /// The value between the two in the middle, or the one in the middle.
    pub fn median(mut self) -> Option<Value> {
        let count = self.values.len();
        let values = &mut self.values;
        let high = number(&values.select((count / 2).min(count.checked_sub(1)?)))?;
        if count % 2 == 1 {
            return Some(Value::Float(high));
        }
        let low = number(&values.select(count / 2 - 1))?;
        Some(Value::Float(low + (high - low) / 2.0))
    }

    /// The value of which so many percent are less; of equal ones the earliest.
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "a rank is a small number")]
    pub fn percentile(mut self, percent: f64) -> Option<Pick> {
        let count = self.values.len();
        let rank = (count as f64 * percent / 100.0 + 0.5).floor() as i64 - 1;
        let rank = usize::try_from(rank).ok()?.min(count.checked_sub(1)?);
        let Some(times) = &self.times else {
            return Some(Pick { time: None, value: self.values.select(rank), beside: Vec::new() });
        };
        let mut places: Vec<usize> = (0..count).collect();
        let values = &self.values;
        let by_rank = |a: &usize, b: &usize| {
            let order = match values {
                Column::Floats(held) => held[*a].partial_cmp(&held[*b]).unwrap_or(Ordering::Equal),
                Column::Integers(held) => held[*a].cmp(&held[*b]),
                Column::Others(held) => by_value(&held[*a], &held[*b]),
            };
            order.then(times[*a].cmp(&times[*b])).then(a.cmp(b))
        };
        let place = *places.select_nth_unstable_by(rank, by_rank).1;
        let beside = self.beside.get_mut(place).map(std::mem::take).unwrap_or_default();
        Some(Pick { time: Some(times[place]), value: values.value(place), beside })
    }
}

/// The identity of a value. Equal numbers of different types are the same value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum ValueKey {
    Whole(i128),
    Float(u64),
    Boolean(bool),
    Text(Box<str>),
}

impl ValueKey {
    #[expect(clippy::cast_possible_truncation, reason = "a whole double near 64 bits fits 128 bits")]
    fn new(value: &Value) -> Self {
        match value {
            Value::Float(v) if v.fract() == 0.0 && v.abs() < 1e30 => Self::Whole(*v as i128),
            Value::Float(v) => Self::Float(v.to_bits()),
            Value::Integer(_) | Value::Unsigned(_) => Self::Whole(whole(value).unwrap_or_default()),
            Value::Boolean(v) => Self::Boolean(*v),
            Value::String(v) => Self::Text(v.clone()),
        }
    }
}

/// Each value of a window once.
#[derive(Debug, Default)]
pub struct DistinctValues {
    by_key: HashMap<ValueKey, Occurrences>,
    /// The number of added values.
    count: usize,
}

#[derive(Debug)]
struct Occurrences {
    /// The first number of this amount that came; `None` for texts, which are the key.
    number: Option<Value>,
    count: usize,
    /// The times of the first and the last occurrence, and their numbers among all values.
    first: (i64, usize),
    last: (i64, usize),
}

impl DistinctValues {
    /// Adds a value. Returns how many more bytes are held.
    pub fn push(&mut self, time: i64, value: &Value) -> usize {
        let place = self.count;
        self.count += 1;
        let mut bytes = 0;
        let held = self.by_key.entry(ValueKey::new(value)).or_insert_with(|| {
            bytes = 2 * size_of::<(ValueKey, Occurrences)>() + text_bytes(value);
            let number = (!matches!(value, Value::String(_))).then(|| value.clone());
            Occurrences { number, count: 0, first: (time, place), last: (time, place) }
        });
        held.count += 1;
        if time < held.first.0 {
            held.first = (time, place);
        }
        if time >= held.last.0 {
            held.last = (time, place);
        }
        bytes
    }

    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// The memory that [`Self::push`] counted.
    pub fn bytes(&self) -> usize {
        self.len() * 2 * size_of::<(ValueKey, Occurrences)>() + self.texts()
    }

    pub fn texts(&self) -> usize {
        self.by_key.keys().map(|key| if let ValueKey::Text(text) = key { text.len() } else { 0 }).sum()
    }

    fn all(self) -> Vec<(Value, Occurrences)> {
        let value = |(key, mut held): (ValueKey, Occurrences)| match (key, held.number.take()) {
            (ValueKey::Text(text), _) => Some((Value::String(text), held)),
            (_, number) => Some((number?, held)),
        };
        self.by_key.into_iter().filter_map(value).collect()
    }

    /// The values in the order of their first occurrence; with `by_last`, of their last one.
    pub fn values(self, by_last: bool) -> Vec<(i64, Value)> {
        let at = |held: &Occurrences| if by_last { held.last } else { held.first };
        let mut all = self.all();
        all.sort_unstable_by_key(|(_, held)| at(held));
        all.into_iter().map(|(value, held)| (at(&held).0, value)).collect()
    }

    /// The most frequent value. Ties as InfluxDB breaks them: of two equally frequent values the greater one wins if it
    /// occurs more than once and its first occurrence is not after the other's last; if not, the lesser one.
    pub fn mode(self) -> Option<Value> {
        let mut all = self.all();
        all.sort_unstable_by(|(a, _), (b, _)| by_value(a, b));
        let more = |best: (Value, Occurrences), next: (Value, Occurrences)| {
            let held = &best.1;
            let other = &next.1;
            let is_tied = other.count == held.count && other.count > 1 && other.first.0 <= held.last.0;
            if other.count > held.count || is_tied { next } else { best }
        };
        all.into_iter().reduce(more).map(|(value, _)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: `mode`, `distinct` and `count(distinct)` took 1 and 1.0, and 0.0 and -0.0, for different values.
    #[test]
    fn equal_numbers_are_one_value() {
        let values = [Value::Integer(1), Value::Float(1.0), Value::Float(0.0), Value::Float(-0.0), Value::Float(0.5)];
        let mut distinct = DistinctValues::default();
        values.iter().zip(0..).for_each(|(value, time)| _ = distinct.push(time, value));
        assert_eq!(distinct.len(), 3);
        let shown = [(0, Value::Integer(1)), (2, Value::Float(0.0)), (4, Value::Float(0.5))];
        assert_eq!(distinct.values(false), shown);
    }

    #[test]
    fn a_column_keeps_its_values_when_another_type_comes() {
        let values = [Value::Integer(3), Value::Integer(1), Value::Float(2.5), Value::Unsigned(u64::MAX)];
        for (count, median) in [(1, 3.0), (2, 2.0), (3, 2.5), (4, 2.75)] {
            let mut kept = Kept::new(false);
            values[..count].iter().for_each(|value| _ = kept.push(0, value, Vec::new));
            assert_eq!(kept.median(), Some(Value::Float(median)), "{count}");
        }
    }
}
