//! Hot buckets: those lately written, kept in memory, packed, under a byte budget, so that duplicates
//! and late readings are known without reading pages back. Every bucket here is as the store has it.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use super::merge::{Bucket, PackedBucket};
use super::readings::Reading;
use crate::reading::Hour;

/// A sensor's number within this process, and the hour.
pub type HotKey = (u32, Hour);

/// Buckets by database, sensor and hour; over the budget, the longest untouched are let go, and their headers kept.
#[derive(Debug, Default)]
pub struct HotBuckets {
    /// By the database's number within this process.
    databases: HashMap<u64, Held>,
    budget: usize,
    /// Most bytes of headers, whatever the budget is at present.
    headers_max: usize,
    /// Counts the puts: the age of an entry is how long ago it was put back.
    puts: u64,
}

/// What is held of one database.
#[derive(Debug, Default)]
pub struct Held {
    buckets: HashMap<HotKey, Entry, rapidhash::fast::RandomState>,
    /// Of buckets that were let go, when they were put in: the store has them, so they are read before they are
    /// written, and not taken for new ones.
    headers: HashMap<HotKey, u64, rapidhash::fast::RandomState>,
    memory: usize,
}

/// What a header takes, by the measure of [`HotBuckets::put`].
const HEADER: usize = (size_of::<u64>() + size_of::<HotKey>()) * 3 / 2;
/// Headers take at most this part of the budget that there was at first.
const HEADERS_PART: usize = 16;

#[derive(Debug)]
struct Entry {
    bucket: PackedBucket,
    memory: usize,
    put: u64,
}

impl HotBuckets {
    /// No buckets yet; every [`HotBuckets::shrink`] leaves at most `budget` bytes of them.
    #[must_use]
    pub fn new(budget: usize) -> Self {
        Self { budget, headers_max: budget / HEADERS_PART, ..Self::default() }
    }

    fn entry(&self, database: u64, key: HotKey) -> Option<&Entry> {
        self.databases.get(&database)?.buckets.get(&key)
    }

    /// Takes a bucket out, to be changed and put back once the store has the change.
    pub fn take(&mut self, database: u64, key: HotKey) -> Option<Bucket> {
        let held = self.databases.get_mut(&database)?;
        let entry = held.buckets.remove(&key)?;
        held.memory -= entry.memory;
        Some(entry.bucket.unpack())
    }

    /// The latest `count` readings of a bucket that is held, in time order.
    #[must_use]
    pub fn tail(&self, database: u64, key: HotKey, count: usize) -> Option<Vec<Reading>> {
        Some(self.entry(database, key)?.bucket.tail(count))
    }

    /// About what a bucket will take once it is taken out, in bytes; 0 when it is not held.
    #[must_use]
    pub fn unpacked_memory(&self, database: u64, key: HotKey) -> usize {
        self.entry(database, key).map_or(0, |entry| entry.bucket.unpacked_memory())
    }

    /// Whether the store is known to have a bucket that was let go.
    #[must_use]
    pub fn is_stored(&self, database: u64, key: HotKey) -> bool {
        self.databases.get(&database).is_some_and(|held| held.headers.contains_key(&key))
    }

    /// Puts a bucket in, as the store has it. The budget may be exceeded until the next
    /// [`HotBuckets::shrink`].
    pub fn put(&mut self, database: u64, key: HotKey, bucket: Bucket) {
        // What the map itself takes for an entry, measured on full tables: about 1.5 times its size.
        const ENTRY: usize = (size_of::<Entry>() + size_of::<HotKey>()) * 3 / 2;
        self.puts += 1;
        let bucket = bucket.pack();
        let memory = bucket.memory() + ENTRY;
        let held = self.databases.entry(database).or_default();
        held.memory += memory;
        if held.headers.remove(&key).is_some() {
            held.memory -= HEADER;
        }
        if let Some(old) = held.buckets.insert(key, Entry { bucket, memory, put: self.puts }) {
            held.memory -= old.memory;
        }
    }

    /// Lets buckets of these sensors and hours go, headers and all: the store is about to lose them.
    pub fn forget(&mut self, database: u64, sensors: &HashSet<u32>, hours: &Range<Hour>) {
        let Some(held) = self.databases.get_mut(&database) else { return };
        let goes = |key: &HotKey| sensors.contains(&key.0) && hours.contains(&key.1);
        let mut freed = 0;
        held.buckets.retain(|key, entry| {
            freed += if goes(key) { entry.memory } else { 0 };
            !goes(key)
        });
        held.headers.retain(|key, _| {
            freed += if goes(key) { HEADER } else { 0 };
            !goes(key)
        });
        held.memory -= freed;
    }

    /// Lets all buckets of a database go. They are returned, so that they may be freed where nobody waits for it.
    pub fn remove(&mut self, database: u64) -> Option<Held> {
        self.databases.remove(&database)
    }

    /// Another budget, for the next [`HotBuckets::shrink`].
    pub fn set_budget(&mut self, budget: usize) {
        self.budget = budget;
    }

    /// Lets the longest untouched buckets go until nine tenths of the budget are kept, if it is
    /// exceeded: the slack makes the search for them rare.
    pub fn shrink(&mut self) {
        let (mut memory, headers) = (self.memory(), self.headers() * HEADER);
        if memory <= self.budget {
            return;
        }
        memory -= headers;
        let of_database = |(database, held): (&u64, &Held)| {
            let database = *database;
            held.buckets.iter().map(move |(key, entry)| (entry.put, database, *key)).collect::<Vec<_>>()
        };
        let mut by_age: Vec<(u64, u64, HotKey)> = self.databases.iter().flat_map(of_database).collect();
        by_age.sort_unstable();
        for (put, database, key) in by_age {
            if memory <= self.budget / 10 * 9 {
                break;
            }
            let Some(held) = self.databases.get_mut(&database) else { continue };
            let Some(entry) = held.buckets.remove(&key) else { continue };
            memory -= entry.memory;
            held.memory -= entry.memory;
            if held.headers.insert(key, put).is_none() {
                held.memory += HEADER;
            }
        }
        self.shrink_headers();
    }

    /// Lets the older half of the headers go when they are too many.
    fn shrink_headers(&mut self) {
        let most = self.headers_max / HEADER;
        if self.headers() <= most {
            return;
        }
        let of_database = |(database, held): (&u64, &Held)| {
            let database = *database;
            held.headers.iter().map(move |(key, put)| (*put, database, *key)).collect::<Vec<_>>()
        };
        let mut by_age: Vec<(u64, u64, HotKey)> = self.databases.iter().flat_map(of_database).collect();
        by_age.sort_unstable();
        for (_, database, key) in by_age.iter().take(by_age.len() - most / 2) {
            if let Some(held) = self.databases.get_mut(database) {
                held.headers.remove(key);
                held.memory -= HEADER;
            }
        }
    }

    fn headers(&self) -> usize {
        self.databases.values().map(|held| held.headers.len()).sum()
    }

    /// How many buckets are held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.databases.values().map(|held| held.buckets.len()).sum()
    }

    /// Whether none is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.databases.values().all(|held| held.buckets.is_empty())
    }

    /// How much memory they take, in bytes.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.databases.values().map(|held| held.memory).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::super::{Caps, MergeOptions, Row};
    use super::*;
    use crate::reading::Value;

    /// A bucket of this many readings, so that its size can be chosen.
    fn bucket(readings: i64) -> Bucket {
        let caps = Caps { max_readings: 3600, max_bytes: 1 << 20, hard_bytes: 4 << 20 };
        let (names, cells) = ([Arc::from("v")], [(0, Value::Float(1.0))]);
        let rows = (0..readings).map(|time| Row { time, stamp: 1, names: &names, cells: &cells });
        let mut bucket = Bucket::default();
        bucket.apply(rows, &MergeOptions { caps: &caps, floor: 0, restamps: false, log: "" });
        bucket
    }

    impl HotBuckets {
        fn holds(&self, key: HotKey) -> bool {
            self.entry(DATABASE, key).is_some()
        }
    }

    /// The number of the one database.
    const DATABASE: u64 = 1;

    fn key(number: u32) -> HotKey {
        (number, Hour(-1))
    }

    #[test]
    fn the_longest_untouched_go_first() {
        let mut hot = HotBuckets::new(0);
        for number in 0..10 {
            hot.put(DATABASE, key(number), bucket(10));
        }
        let each = hot.memory() / 10;
        hot.budget = 10 * each;
        hot.shrink();
        assert_eq!(hot.len(), 10, "at the budget all are kept");

        let touched = hot.take(DATABASE, key(0)).expect("kept");
        hot.put(DATABASE, key(0), touched);
        assert!(hot.holds(key(1)), "a look does not make it younger");
        hot.put(DATABASE, key(10), bucket(10));
        hot.shrink();
        let kept: Vec<u32> = (0..11).filter(|number| hot.holds(key(*number))).collect();
        assert_eq!(kept, [0, 3, 4, 5, 6, 7, 8, 9, 10], "down to nine tenths of the budget");
        assert!(!hot.holds((5, Hour(0))), "another hour is another bucket");
    }

    #[test]
    fn of_a_bucket_that_is_let_go_the_header_is_kept_until_it_comes_back() {
        let mut hot = HotBuckets::new(16 * 1024);
        (0..40).for_each(|number| hot.put(DATABASE, key(number), bucket(30)));
        hot.shrink();
        let gone: Vec<u32> = (0..40).filter(|number| !hot.holds(key(*number))).collect();
        assert!(!gone.is_empty());
        let last = *gone.last().expect("one");
        assert!(hot.is_stored(DATABASE, key(last)));
        assert!(!hot.is_stored(DATABASE, key(39)), "it is here as a whole");
        assert!(!hot.is_stored(DATABASE, key(99)), "nobody knows it");
        hot.put(DATABASE, key(last), bucket(30));
        assert!(!hot.is_stored(DATABASE, key(last)));
    }

    #[test]
    fn a_database_goes_as_a_whole_and_alone() {
        let mut hot = HotBuckets::new(1 << 20);
        hot.put(1, key(1), bucket(10));
        let one = hot.memory();
        hot.put(2, key(1), bucket(10));
        assert_eq!((hot.len(), hot.memory()), (2, 2 * one), "a sensor's number says nothing of its database");
        drop(hot.remove(1).expect("it is held"));
        assert_eq!((hot.len(), hot.memory()), (1, one));
        assert!(hot.remove(1).is_none() && hot.take(1, key(1)).is_none() && hot.take(2, key(1)).is_some());
    }

    #[test]
    fn a_bucket_over_the_budget_by_itself_is_let_go() {
        let mut hot = HotBuckets::new(1000);
        hot.put(DATABASE, key(1), bucket(1000));
        assert!(hot.memory() > 2 * 1000);
        hot.shrink();
        assert!(hot.is_empty());
        assert_eq!(hot.memory(), HEADER, "but for its header");
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
                    Step::Put(number, readings) => hot.put(DATABASE, key(number), bucket(readings)),
                    Step::Take(number) => {
                        let held = hot.holds(key(number));
                        prop_assert_eq!(hot.take(DATABASE, key(number)).is_some(), held);
                    }
                    Step::Shrink => {
                        hot.shrink();
                        prop_assert!(hot.memory() <= budget);
                    }
                }
                let buckets: usize = hot.databases.values().flat_map(|held| held.buckets.values()).map(|entry| entry.bucket.memory()).sum();
                let headers = hot.headers() * HEADER;
                prop_assert!(headers <= budget / HEADERS_PART);
                prop_assert!(hot.memory() >= buckets && hot.memory() <= buckets + headers + hot.len() * 1024);
            }
            for number in 0..8 {
                hot.take(DATABASE, key(number));
            }
            prop_assert_eq!((hot.len(), hot.memory()), (0, hot.headers() * HEADER));
        }
    }
}
