//! Hot buckets: those lately written, kept in memory under a byte budget so that duplicates and
//! late readings are known without reading pages back. Every bucket here is as the store has it.

use std::collections::HashMap;

use super::merge::Bucket;
use crate::reading::Hour;

/// A sensor's number within this process, and the hour.
pub type HotKey = (u32, Hour);

/// Buckets by sensor and hour; over the budget, the longest untouched are let go.
#[derive(Debug, Default)]
pub struct HotBuckets {
    buckets: HashMap<HotKey, Entry, rapidhash::fast::RandomState>,
    budget: usize,
    memory: usize,
    /// Counts the puts: the age of an entry is how long ago it was put back.
    puts: u64,
}

#[derive(Debug)]
struct Entry {
    bucket: Bucket,
    memory: usize,
    put: u64,
}

impl HotBuckets {
    /// No buckets yet; every [`HotBuckets::shrink`] leaves at most `budget` bytes of them.
    #[must_use]
    pub fn new(budget: usize) -> Self {
        Self { budget, ..Self::default() }
    }

    /// Takes a bucket out, to be changed and put back once the store has the change.
    pub fn take(&mut self, key: HotKey) -> Option<Bucket> {
        let entry = self.buckets.remove(&key)?;
        self.memory -= entry.memory;
        Some(entry.bucket)
    }

    /// A look at a bucket.
    #[must_use]
    pub fn get(&self, key: HotKey) -> Option<&Bucket> {
        self.buckets.get(&key).map(|entry| &entry.bucket)
    }

    /// Puts a bucket in, as the store has it. The budget may be exceeded until the next
    /// [`HotBuckets::shrink`].
    pub fn put(&mut self, key: HotKey, bucket: Bucket) {
        // What the map itself takes for an entry, measured on full tables: about 1.5 times its size.
        const ENTRY: usize = (size_of::<Entry>() + size_of::<HotKey>()) * 3 / 2;
        self.puts += 1;
        let memory = bucket.memory() + ENTRY;
        self.memory += memory;
        if let Some(old) = self.buckets.insert(key, Entry { bucket, memory, put: self.puts }) {
            self.memory -= old.memory;
        }
    }

    /// Another budget, for the next [`HotBuckets::shrink`].
    pub fn set_budget(&mut self, budget: usize) {
        self.budget = budget;
    }

    /// Lets the longest untouched buckets go until nine tenths of the budget are kept, if it is
    /// exceeded: the slack makes the search for them rare.
    pub fn shrink(&mut self) {
        if self.memory <= self.budget {
            return;
        }
        let mut by_age: Vec<(u64, HotKey)> = self.buckets.iter().map(|(key, entry)| (entry.put, *key)).collect();
        by_age.sort_unstable();
        for (_, key) in by_age {
            if self.memory <= self.budget / 10 * 9 {
                break;
            }
            self.take(key);
        }
    }

    /// How many buckets are held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.buckets.len()
    }

    /// Whether none is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.buckets.is_empty()
    }

    /// How much memory they take, in bytes.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.memory
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::super::{Caps, Row};
    use super::*;
    use crate::reading::Value;

    /// A bucket of this many readings, so that its size can be chosen.
    fn bucket(readings: i64) -> Bucket {
        let caps = Caps { max_readings: 3600, max_bytes: 1 << 20, hard_bytes: 4 << 20 };
        let (names, cells) = ([Arc::from("v")], [(0, Value::Float(1.0))]);
        let rows = (0..readings).map(|time| Row { time, sequence: 1, names: &names, cells: &cells });
        let mut bucket = Bucket::default();
        bucket.apply(rows, &caps, &Arc::from("one"));
        bucket
    }

    fn key(number: u32) -> HotKey {
        (number, Hour(-1))
    }

    #[test]
    fn the_longest_untouched_go_first() {
        let mut hot = HotBuckets::new(0);
        for number in 0..10 {
            hot.put(key(number), bucket(10));
        }
        let each = hot.memory() / 10;
        hot.budget = 10 * each;
        hot.shrink();
        assert_eq!(hot.len(), 10, "at the budget all are kept");

        let touched = hot.take(key(0)).expect("kept");
        hot.put(key(0), touched);
        assert!(hot.get(key(1)).is_some(), "a look does not make it younger");
        hot.put(key(10), bucket(10));
        hot.shrink();
        let kept: Vec<u32> = (0..11).filter(|number| hot.get(key(*number)).is_some()).collect();
        assert_eq!(kept, [0, 3, 4, 5, 6, 7, 8, 9, 10], "down to nine tenths of the budget");
        assert!(hot.get((5, Hour(0))).is_none(), "another hour is another bucket");
    }

    #[test]
    fn a_bucket_over_the_budget_by_itself_is_let_go() {
        let mut hot = HotBuckets::new(1000);
        hot.put(key(1), bucket(1000));
        assert!(hot.memory() > 8 * 1000);
        hot.shrink();
        assert!(hot.is_empty());
        assert_eq!(hot.memory(), 0);
    }

    #[derive(Debug, Clone)]
    enum Step {
        Put(u32, i64),
        Take(u32),
        Shrink,
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn memory_is_accounted_to_the_byte(budget in 0..20_000_usize, steps in prop::collection::vec(prop_oneof![
            4 => (0..8_u32, 0..40_i64).prop_map(|(number, readings)| Step::Put(number, readings)),
            2 => (0..8_u32).prop_map(Step::Take),
            1 => Just(Step::Shrink),
        ], 0..40)) {
            let mut hot = HotBuckets::new(budget);
            for step in steps {
                match step {
                    Step::Put(number, readings) => hot.put(key(number), bucket(readings)),
                    Step::Take(number) => {
                        let held = hot.get(key(number)).is_some();
                        prop_assert_eq!(hot.take(key(number)).is_some(), held);
                    }
                    Step::Shrink => {
                        hot.shrink();
                        prop_assert!(hot.memory() <= budget);
                    }
                }
                let buckets: usize = (0..8).filter_map(|number| hot.get(key(number))).map(Bucket::memory).sum();
                prop_assert!(hot.memory() >= buckets && hot.memory() <= buckets + hot.len() * 1024);
            }
            for number in 0..8 {
                hot.take(key(number));
            }
            prop_assert_eq!((hot.len(), hot.memory()), (0, 0));
        }
    }
}
