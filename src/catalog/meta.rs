//! New metadata that earlier lists of sensors lack, because they were read from the store before it was stored.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::charge::{Account, Charge};
use crate::bucket::Meta;
use crate::reading::Stamp;

/// New metadata of a database's sensors, by sensor key.
#[derive(Debug)]
pub struct NewMeta(Mutex<NewMetaState>);

#[derive(Debug)]
struct NewMetaState {
    sensors: HashMap<Box<str>, NewEntry>,
    /// The time of the last [`NewMetaState::prune`] that dropped entries.
    pruned: Instant,
    /// Maximum age of a sensor list.
    list_age: Duration,
}

impl NewMetaState {
    /// Drops the entries that every list has by now.
    fn prune(&mut self) {
        let now = Instant::now();
        let list_age = self.list_age;
        if now.duration_since(self.pruned) > list_age {
            self.pruned = now;
            self.sensors.retain(|_, entry| entry.is_new(list_age));
        }
    }
}

#[derive(Debug)]
struct NewEntry {
    meta: Arc<Meta>,
    /// The number of changes that are not stored yet.
    unstored: usize,
    /// The time at which the last change was noted or stored.
    since: Instant,
    charge: Charge,
}

/// Estimates the memory of new metadata with `bytes` of names and values: of the entry here, and of the change that a shard
/// keeps until it is stored. They share their texts.
pub fn memory_of_meta(key: &str, names: usize, bytes: usize) -> usize {
    /// Both map entries, in maps that are half full, and the parts of a change besides its metadata.
    const FIXED: usize = 800;
    /// Both list entries, and the overhead of two texts.
    const PER_NAME: usize = 160;
    FIXED + key.len() + names * PER_NAME + bytes
}

impl NewEntry {
    /// Returns true if a list of this age may lack the entry.
    fn is_new(&self, list_age: Duration) -> bool {
        self.unstored > 0 || self.since.elapsed() <= list_age
    }
}

impl Default for NewMeta {
    fn default() -> Self {
        Self(Mutex::new(NewMetaState { sensors: HashMap::new(), pruned: Instant::now(), list_age: Duration::ZERO }))
    }
}

impl NewMeta {
    /// Notes a logged change, and charges it. `list_age` is the maximum age of a sensor list.
    pub fn note(&self, account: &Arc<Account>, key: &str, change: &Meta, list_age: Duration) {
        let mut state = self.0.lock();
        state.list_age = list_age;
        state.prune();
        let now = Instant::now();
        let new = || NewEntry { meta: Arc::default(), unstored: 0, since: now, charge: account.charge(0) };
        let entry = state.sensors.entry(key.into()).or_insert_with(new);
        Arc::make_mut(&mut entry.meta).merge(change);
        entry.charge.set(memory_of_meta(key, entry.meta.entries().count(), entry.meta.bytes()));
        entry.unstored += 1;
        entry.since = now;
    }

    /// Releases the memory of entries that every list has by now.
    pub fn prune(&self) {
        self.0.lock().prune();
    }

    /// Notes that this many changes of a sensor are stored.
    pub fn note_stored(&self, key: &str, changes: usize) {
        if let Some(entry) = self.0.lock().sensors.get_mut(key) {
            entry.unstored = entry.unstored.saturating_sub(changes);
            entry.since = Instant::now();
        }
    }

    /// Removes the values older than a deletion of the sensor.
    pub fn cut(&self, key: &str, stamp: Stamp) {
        if let Some(entry) = self.0.lock().sensors.get_mut(key) {
            Arc::make_mut(&mut entry.meta).cut(stamp);
        }
    }

    /// Returns the new metadata of a sensor.
    pub fn get(&self, key: &str) -> Option<Arc<Meta>> {
        let state = self.0.lock();
        state.sensors.get(key).filter(|entry| entry.is_new(state.list_age)).map(|entry| entry.meta.clone())
    }

    /// Returns the new metadata of all sensors.
    pub fn all(&self) -> HashMap<Box<str>, Arc<Meta>> {
        let mut state = self.0.lock();
        if state.sensors.is_empty() {
            return HashMap::new();
        }
        state.prune();
        let new = state.sensors.iter().filter(|(_, entry)| entry.is_new(state.list_age));
        new.map(|(key, entry)| (key.clone(), entry.meta.clone())).collect()
    }
}
