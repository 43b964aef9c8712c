//! A map from WAL records to values, in WAL order: values are added at the end and mostly removed near the front.

use std::collections::VecDeque;

use crate::wal::Sequence;

#[derive(Debug)]
pub struct InLogOrder<T> {
    /// Removed values leave gaps (`None`), but never at the front.
    places: VecDeque<(Sequence, Option<T>)>,
    empty: usize,
}

impl<T> Default for InLogOrder<T> {
    fn default() -> Self {
        Self { places: VecDeque::new(), empty: 0 }
    }
}

impl<T> InLogOrder<T> {
    /// Adds the value of a record that is later than all before.
    pub fn push(&mut self, sequence: Sequence, thing: T) {
        debug_assert!(self.places.back().is_none_or(|(last, _)| *last < sequence), "in log order");
        self.places.push_back((sequence, Some(thing)));
    }

    pub fn len(&self) -> usize {
        self.places.len() - self.empty
    }

    /// The earliest record and its value.
    pub fn first(&self) -> Option<(Sequence, &T)> {
        let (sequence, thing) = self.places.front()?;
        Some((*sequence, thing.as_ref()?))
    }

    pub fn get(&self, sequence: Sequence) -> Option<&T> {
        self.places[self.place(sequence)?].1.as_ref()
    }

    pub fn get_mut(&mut self, sequence: Sequence) -> Option<&mut T> {
        let place = self.place(sequence)?;
        self.places[place].1.as_mut()
    }

    pub fn remove(&mut self, sequence: Sequence) -> Option<T> {
        let place = self.place(sequence)?;
        let thing = self.places[place].1.take()?;
        self.empty += 1;
        while self.places.front().is_some_and(|(_, thing)| thing.is_none()) {
            self.places.pop_front();
            self.empty -= 1;
        }
        // One long-lived value must not keep the empty slots of all later values that were removed.
        if self.empty > self.places.len() / 2 {
            self.places.retain(|(_, thing)| thing.is_some());
            self.empty = 0;
        }
        Some(thing)
    }

    fn place(&self, sequence: Sequence) -> Option<usize> {
        // Positions mostly have no gaps, so the distance from the first is tried as the index.
        let (first, _) = self.places.front()?;
        let guess = usize::try_from(sequence.checked_sub(*first)?).ok()?;
        if self.places.get(guess).is_some_and(|(there, _)| *there == sequence) {
            return Some(guess);
        }
        self.places.binary_search_by_key(&sequence, |(there, _)| *there).ok()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn it_is_a_map(steps in prop::collection::vec((any::<bool>(), 0..20_u64), 0..200)) {
            let (mut things, mut model, mut next) = (InLogOrder::default(), BTreeMap::new(), 0);
            for (adds, number) in steps {
                if adds {
                    next += 1 + number / 15 * 1_000_000;
                    things.push(next, number);
                    model.insert(next, number);
                } else {
                    let wanted = next.saturating_sub(number);
                    prop_assert_eq!(things.get(wanted), model.get(&wanted));
                    prop_assert_eq!(things.remove(wanted), model.remove(&wanted));
                    prop_assert_eq!(things.get_mut(wanted), None);
                }
                prop_assert_eq!(things.first(), model.first_key_value().map(|(sequence, thing)| (*sequence, thing)));
                prop_assert!(things.places.len() <= 2 * model.len() + 1, "unused places are freed");
            }
        }
    }
}
