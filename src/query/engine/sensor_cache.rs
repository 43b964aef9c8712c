//! A cache of sensors that were read from the store one by one, for dashboards that query the same sensors again and
//! again. Bounded by bytes, and by `query.cache_max_age`.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::directory::DirectoryEntry;

/// Sensors by database and key. Cleared as a whole when it exceeds its bytes.
#[derive(Debug)]
pub struct SensorCache {
    bytes_max: usize,
    max_age: Duration,
    state: Mutex<SensorState>,
}

#[derive(Debug, Default)]
struct SensorState {
    databases: HashMap<Box<str>, HashMap<Arc<str>, SensorRead>>,
    bytes: usize,
}

/// A sensor as the store had it.
#[derive(Debug)]
struct SensorRead {
    entry: DirectoryEntry,
    /// Just before the read.
    at: Instant,
    /// The catalog's count of deletions at that time.
    deletions: u64,
}

impl SensorCache {
    pub fn new(bytes_max: usize, max_age: Duration) -> Self {
        Self { bytes_max, max_age, state: Mutex::default() }
    }

    /// A sensor that was read recently and since the latest deletion.
    pub fn get(&self, database: &str, key: &str, deletions: u64) -> Option<DirectoryEntry> {
        let state = self.state.lock();
        let read = state.databases.get(database)?.get(key)?;
        (read.deletions == deletions && read.at.elapsed() < self.max_age).then(|| read.entry.clone())
    }

    /// Caches a sensor that was read after `at`, when there had been this many deletions.
    pub fn put(&self, database: &str, entry: &DirectoryEntry, at: Instant, deletions: u64) {
        let mut state = self.state.lock();
        if state.bytes + memory(entry) > self.bytes_max {
            *state = SensorState::default();
        }
        if memory(entry) > self.bytes_max {
            return;
        }
        let SensorState { databases, bytes } = &mut *state;
        let read = SensorRead { entry: entry.clone(), at, deletions };
        let sensors = databases.entry(database.into()).or_default();
        let old = sensors.insert(Arc::from(&*entry.sensor.key), read);
        *bytes += memory(entry);
        *bytes -= old.map_or(0, |old| memory(&old.entry));
    }
}

/// The memory of an entry. Hash tables are not always full.
fn memory(entry: &DirectoryEntry) -> usize {
    let fields = entry.fields.iter().map(|(name, _)| name.len() + size_of_val(&entry.fields[0])).sum::<usize>();
    let meta = entry.meta.as_ref().map_or(0, |meta| meta.memory());
    2 * size_of::<(Arc<str>, SensorRead)>()
        + 3 * entry.sensor.key.len()
        + size_of_val(&*entry.sensor.tags)
        + fields
        + meta
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::{Family, Sensor};

    fn entry(key: &str) -> DirectoryEntry {
        let sensor = Arc::new(Sensor { key: key.into(), measurement: "m".into(), tags: [].into() });
        DirectoryEntry { fields: [(Arc::from("temp"), Family::Number)].into(), ..DirectoryEntry::bare(sensor) }
    }

    #[test]
    fn a_sensor_is_remembered_until_something_is_deleted() {
        let cache = SensorCache::new(1 << 20, Duration::from_secs(3600));
        assert!(cache.get("a", "m,s=1", 3).is_none());
        cache.put("a", &entry("m,s=1"), Instant::now(), 3);
        assert_eq!(cache.get("a", "m,s=1", 3).map(|entry| entry.sensor.key.to_string()).as_deref(), Some("m,s=1"));
        assert!(cache.get("a", "m,s=1", 4).is_none());
        assert!(cache.get("b", "m,s=1", 3).is_none());
        assert!(cache.get("a", "m,s=2", 3).is_none());
    }

    #[test]
    fn a_sensor_is_read_again_once_it_is_old() {
        let cache = SensorCache::new(1 << 20, Duration::ZERO);
        cache.put("a", &entry("m,s=1"), Instant::now(), 0);
        assert!(cache.get("a", "m,s=1", 0).is_none());
    }

    #[test]
    fn sensors_take_no_more_than_they_may() {
        let bytes_max = 10 * memory(&entry("m,s=100"));
        let cache = SensorCache::new(bytes_max, Duration::from_secs(3600));
        for number in 100..200 {
            // Twice: an entry that is read again replaces the old one.
            for _ in 0..2 {
                cache.put("a", &entry(&format!("m,s={number}")), Instant::now(), 0);
            }
            let state = cache.state.lock();
            let held = state.databases["a"].values().map(|read| memory(&read.entry)).sum::<usize>();
            assert_eq!(state.bytes, held);
            assert!(held <= bytes_max && held > 0);
        }
        assert!(cache.get("a", "m,s=199", 0).is_some());
        assert!(cache.get("a", "m,s=100", 0).is_none());
    }
}
