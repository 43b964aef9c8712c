//! The bucket cache: recently written buckets, packed in memory within a byte budget. It lets a flush detect duplicates
//! and late readings without reading pages from the store. A cached bucket has the state that this process last read
//! from the store or wrote to it.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use super::merge::{Bucket, PackedBucket};
use super::readings::Reading;
use crate::reading::Hour;

/// The sensor's number within this process, and the hour.
pub type CacheKey = (u32, Hour);

/// Buckets by database, sensor and hour. If the budget is exceeded, the least recently put buckets are evicted, and
/// only their headers stay.
#[derive(Debug, Default)]
pub struct BucketCache {
    /// Keyed by the database's number within this process.
    databases: HashMap<u64, CachedDatabase>,
    budget: usize,
    /// Maximum bytes of headers, independent of the current budget.
    headers_max: usize,
    /// The number of puts; an entry's age is measured in puts.
    puts: u64,
}

/// The cached buckets of one database.
#[derive(Debug, Default)]
pub struct CachedDatabase {
    buckets: HashMap<CacheKey, CachedBucket, rapidhash::fast::RandomState>,
    /// Evicted buckets, with the put number of their entry. They are stored, so a flush must read them before it writes
    /// them; it must not assume that they are new.
    headers: HashMap<CacheKey, u64, rapidhash::fast::RandomState>,
    memory: usize,
}

/// Bytes of memory per header, with the map's overhead as in [`BucketCache::put`].
const HEADER: usize = (size_of::<u64>() + size_of::<CacheKey>()) * 3 / 2;
/// The initial budget divided by this is the maximum memory of headers.
const HEADERS_DIVISOR: usize = 16;

#[derive(Debug)]
struct CachedBucket {
    bucket: PackedBucket,
    memory: usize,
    put: u64,
}

impl BucketCache {
    /// An empty cache; [`BucketCache::shrink`] reduces it to at most `budget` bytes.
    #[must_use]
    pub fn new(budget: usize) -> Self {
        Self { budget, headers_max: budget / HEADERS_DIVISOR, ..Self::default() }
    }

    fn entry(&self, database: u64, key: CacheKey) -> Option<&CachedBucket> {
        self.databases.get(&database)?.buckets.get(&key)
    }

    /// Removes and unpacks a bucket. The caller changes it, and puts it back once the store has the change.
    pub fn take(&mut self, database: u64, key: CacheKey) -> Option<Bucket> {
        let held = self.databases.get_mut(&database)?;
        let entry = held.buckets.remove(&key)?;
        held.memory -= entry.memory;
        Some(entry.bucket.unpack())
    }

    /// The latest `count` readings of a cached bucket, in time order; `None` if some of them are not cached.
    #[must_use]
    pub fn tail(&self, database: u64, key: CacheKey, count: usize) -> Option<Vec<Reading>> {
        self.entry(database, key)?.bucket.tail(count)
    }

    /// The approximate memory of a cached bucket once unpacked, in bytes; 0 if it is not cached.
    #[must_use]
    pub fn unpacked_memory(&self, database: u64, key: CacheKey) -> usize {
        self.entry(database, key).map_or(0, |entry| entry.bucket.unpacked_memory())
    }

    /// Returns true if the bucket was evicted and is therefore stored.
    #[must_use]
    pub fn is_stored(&self, database: u64, key: CacheKey) -> bool {
        self.databases.get(&database).is_some_and(|held| held.headers.contains_key(&key))
    }

    /// Caches a bucket in its stored state. The cache may exceed the budget until the next [`BucketCache::shrink`].
    pub fn put(&mut self, database: u64, key: CacheKey, bucket: Bucket) {
        // The map's memory per entry, measured on full tables: about 1.5 times the entry's size.
        const ENTRY: usize = (size_of::<CachedBucket>() + size_of::<CacheKey>()) * 3 / 2;
        self.puts += 1;
        let bucket = bucket.pack();
        let memory = bucket.memory() + ENTRY;
        let held = self.databases.entry(database).or_default();
        held.memory += memory;
        if held.headers.remove(&key).is_some() {
            held.memory -= HEADER;
        }
        if let Some(old) = held.buckets.insert(key, CachedBucket { bucket, memory, put: self.puts }) {
            held.memory -= old.memory;
        }
    }

    /// Removes the buckets of these sensors and hours with their headers, before the store deletes them.
    pub fn forget(&mut self, database: u64, sensors: &HashSet<u32>, hours: &Range<Hour>) {
        let Some(held) = self.databases.get_mut(&database) else { return };
        let is_forgotten = |key: &CacheKey| sensors.contains(&key.0) && hours.contains(&key.1);
        let mut freed = 0;
        held.buckets.retain(|key, entry| {
            freed += if is_forgotten(key) { entry.memory } else { 0 };
            !is_forgotten(key)
        });
        held.headers.retain(|key, _| {
            freed += if is_forgotten(key) { HEADER } else { 0 };
            !is_forgotten(key)
        });
        held.memory -= freed;
    }

    /// Removes and returns all buckets of a database. The caller can then free the memory on a thread that nothing
    /// waits for.
    pub fn remove(&mut self, database: u64) -> Option<CachedDatabase> {
        self.databases.remove(&database)
    }

    /// Sets the budget for the next [`BucketCache::shrink`].
    pub fn set_budget(&mut self, budget: usize) {
        self.budget = budget;
    }

    /// If the budget is exceeded, evicts the least recently put buckets until the rest takes at most nine tenths of it.
    /// The slack makes this search rare.
    pub fn shrink(&mut self) {
        let total = self.memory();
        if total <= self.budget {
            return;
        }
        let mut memory = total - self.headers() * HEADER;
        let ages = |(database, held): (&u64, &CachedDatabase)| {
            let database = *database;
            held.buckets.iter().map(move |(key, entry)| (entry.put, database, *key)).collect::<Vec<_>>()
        };
        let mut by_age: Vec<(u64, u64, CacheKey)> = self.databases.iter().flat_map(ages).collect();
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

    /// If there are too many headers, removes the oldest until half of the maximum is left.
    fn shrink_headers(&mut self) {
        let count_max = self.headers_max / HEADER;
        if self.headers() <= count_max {
            return;
        }
        let ages = |(database, held): (&u64, &CachedDatabase)| {
            let database = *database;
            held.headers.iter().map(move |(key, put)| (*put, database, *key)).collect::<Vec<_>>()
        };
        let mut by_age: Vec<(u64, u64, CacheKey)> = self.databases.iter().flat_map(ages).collect();
        by_age.sort_unstable();
        for (_, database, key) in by_age.iter().take(by_age.len() - count_max / 2) {
            if let Some(held) = self.databases.get_mut(database) {
                held.headers.remove(key);
                held.memory -= HEADER;
            }
        }
    }

    fn headers(&self) -> usize {
        self.databases.values().map(|held| held.headers.len()).sum()
    }

    /// The number of cached buckets.
    #[must_use]
    pub fn len(&self) -> usize {
        self.databases.values().map(|held| held.buckets.len()).sum()
    }

    /// Returns true if no bucket is cached.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.databases.values().all(|held| held.buckets.is_empty())
    }

    /// Bytes of memory, headers included.
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

    /// A bucket of this many readings, to choose its size.
    fn bucket(readings: i64) -> Bucket {
        let caps = Caps { max_readings: 3600, max_bytes: 1 << 20, hard_bytes: 4 << 20 };
        let names = [Arc::from("v")];
        let cells = [(0, Value::Float(1.0))];
        let rows = (0..readings).map(|time| Row { time, stamp: 1, names: &names, cells: &cells });
        let mut bucket = Bucket::default();
        bucket.apply(rows, &MergeOptions { caps: &caps, floor: 0, restamps: false });
        bucket
    }

    impl BucketCache {
        fn holds(&self, key: CacheKey) -> bool {
            self.entry(DATABASE, key).is_some()
        }
    }

    /// The number of the only database.
    const DATABASE: u64 = 1;

    fn key(number: u32) -> CacheKey {
        (number, Hour(-1))
    }

    #[test]
    fn the_least_recently_put_are_evicted_first() {
        let mut cache = BucketCache::new(0);
        for number in 0..10 {
            cache.put(DATABASE, key(number), bucket(10));
        }
        let each = cache.memory() / 10;
        cache.budget = 10 * each;
        cache.shrink();
        assert_eq!(cache.len(), 10, "at the budget nothing is evicted");

        let touched = cache.take(DATABASE, key(0)).expect("kept");
        cache.put(DATABASE, key(0), touched);
        assert!(cache.holds(key(1)), "a lookup does not make it younger");
        cache.put(DATABASE, key(10), bucket(10));
        cache.shrink();
        let kept: Vec<u32> = (0..11).filter(|number| cache.holds(key(*number))).collect();
        assert_eq!(kept, [0, 3, 4, 5, 6, 7, 8, 9, 10], "down to nine tenths of the budget");
        assert!(!cache.holds((5, Hour(0))), "another hour is another bucket");
    }

    #[test]
    fn the_header_of_an_evicted_bucket_stays_until_it_is_put_again() {
        let mut cache = BucketCache::new(16 * 1024);
        (0..40).for_each(|number| cache.put(DATABASE, key(number), bucket(30)));
        cache.shrink();
        let evicted: Vec<u32> = (0..40).filter(|number| !cache.holds(key(*number))).collect();
        assert!(!evicted.is_empty());
        let last = *evicted.last().expect("one");
        assert!(cache.is_stored(DATABASE, key(last)));
        assert!(!cache.is_stored(DATABASE, key(39)), "it is cached");
        assert!(!cache.is_stored(DATABASE, key(99)), "it was never cached");
        cache.put(DATABASE, key(last), bucket(30));
        assert!(!cache.is_stored(DATABASE, key(last)));
    }

    #[test]
    fn removing_a_database_leaves_the_others() {
        let mut cache = BucketCache::new(1 << 20);
        cache.put(1, key(1), bucket(10));
        let one = cache.memory();
        cache.put(2, key(1), bucket(10));
        assert_eq!((cache.len(), cache.memory()), (2, 2 * one), "sensors of different databases may share a number");
        drop(cache.remove(1).expect("it is held"));
        assert_eq!((cache.len(), cache.memory()), (1, one));
        assert!(cache.remove(1).is_none() && cache.take(1, key(1)).is_none() && cache.take(2, key(1)).is_some());
    }

    #[test]
    fn a_bucket_larger_than_the_budget_is_evicted() {
        let mut cache = BucketCache::new(1000);
        cache.put(DATABASE, key(1), bucket(1000));
        assert!(cache.memory() > 2 * 1000);
        cache.shrink();
        assert!(cache.is_empty());
        assert_eq!(cache.memory(), HEADER, "only its header is left");
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
            let mut cache = BucketCache::new(budget);
            for step in steps {
                match step {
                    Step::Put(number, readings) => cache.put(DATABASE, key(number), bucket(readings)),
                    Step::Take(number) => {
                        let held = cache.holds(key(number));
                        prop_assert_eq!(cache.take(DATABASE, key(number)).is_some(), held);
                    }
                    Step::Shrink => {
                        cache.shrink();
                        prop_assert!(cache.memory() <= budget);
                    }
                }
                let buckets: usize = cache.databases.values().flat_map(|held| held.buckets.values()).map(|entry| entry.bucket.memory()).sum();
                let headers = cache.headers() * HEADER;
                prop_assert!(headers <= budget / HEADERS_DIVISOR);
                prop_assert!(cache.memory() >= buckets && cache.memory() <= buckets + headers + cache.len() * 1024);
            }
            for number in 0..8 {
                cache.take(DATABASE, key(number));
            }
            prop_assert_eq!((cache.len(), cache.memory()), (0, cache.headers() * HEADER));
        }
    }
}
