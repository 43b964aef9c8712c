//! A map from WAL records to values in WAL order. Values are added at the end and mostly removed near the front.

use std::collections::VecDeque;

use crate::wal::Sequence;

/// An ordered map backed by a deque.
#[derive(Debug)]
pub struct LogOrderMap<T> {
    /// Records with their values. Removed values leave gaps (`None`), but never at the front.
    slots: VecDeque<(Sequence, Option<T>)>,
    /// The number of gaps.
    empty: usize,
}

impl<T> Default for LogOrderMap<T> {
    fn default() -> Self {
        Self { slots: VecDeque::new(), empty: 0 }
    }
}

impl<T> LogOrderMap<T> {
    /// Adds the value of a record, which must be later than all records in the map.
    pub fn push(&mut self, sequence: Sequence, value: T) {
        debug_assert!(self.slots.back().is_none_or(|(last, _)| *last < sequence), "records come in WAL order");
        self.slots.push_back((sequence, Some(value)));
    }

    pub fn len(&self) -> usize {
        self.slots.len() - self.empty
    }

    /// Returns the earliest record and its value.
    pub fn first(&self) -> Option<(Sequence, &T)> {
        let (sequence, value) = self.slots.front()?;
        Some((*sequence, value.as_ref()?))
    }

    pub fn get(&self, sequence: Sequence) -> Option<&T> {
        self.slots[self.slot(sequence)?].1.as_ref()
    }

    pub fn get_mut(&mut self, sequence: Sequence) -> Option<&mut T> {
        let slot = self.slot(sequence)?;
        self.slots[slot].1.as_mut()
    }

    pub fn remove(&mut self, sequence: Sequence) -> Option<T> {
        let slot = self.slot(sequence)?;
        let value = self.slots[slot].1.take()?;
        self.empty += 1;
        while self.slots.front().is_some_and(|(_, value)| value.is_none()) {
            self.slots.pop_front();
            self.empty -= 1;
        }
        // Compact, so that one long-lived value does not keep the gaps behind it.
        if self.empty > self.slots.len() / 2 {
            self.slots.retain(|(_, value)| value.is_some());
            self.empty = 0;
        }
        Some(value)
    }

    fn slot(&self, sequence: Sequence) -> Option<usize> {
        // Records are mostly consecutive, so try the distance from the first one as the index.
        let (first, _) = self.slots.front()?;
        let guess = usize::try_from(sequence.checked_sub(*first)?).ok()?;
        if self.slots.get(guess).is_some_and(|(record, _)| *record == sequence) {
            return Some(guess);
        }
        self.slots.binary_search_by_key(&sequence, |(record, _)| *record).ok()
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
        fn it_behaves_like_a_btree_map(steps in prop::collection::vec((any::<bool>(), 0..20_u64), 0..200)) {
            let mut map = LogOrderMap::default();
            let mut model = BTreeMap::new();
            let mut next = 0;
            for (adds, number) in steps {
                if adds {
                    next += 1 + number / 15 * 1_000_000;
                    map.push(next, number);
                    model.insert(next, number);
                } else {
                    let wanted = next.saturating_sub(number);
                    prop_assert_eq!(map.get(wanted), model.get(&wanted));
                    prop_assert_eq!(map.remove(wanted), model.remove(&wanted));
                    prop_assert_eq!(map.get_mut(wanted), None);
                }
                prop_assert_eq!(map.first(), model.first_key_value().map(|(sequence, value)| (*sequence, value)));
                prop_assert!(map.slots.len() <= 2 * model.len() + 1, "gaps are freed");
            }
        }
    }
}
