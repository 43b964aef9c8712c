//! Metadata that lists of sensors may lack, because they were read from the store before it got there.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::bucket::Meta;
use crate::reading::Stamp;

/// New metadata of a database's sensors, by their keys.
#[derive(Debug)]
pub struct NewMeta(Mutex<NewMetaState>);

#[derive(Debug)]
struct NewMetaState {
    sensors: HashMap<Box<str>, NewEntry>,
    /// When entries were last dropped that every list has by now.
    pruned: Instant,
    /// How old a list of sensors may be.
    kept: Duration,
}

impl NewMetaState {
    /// Drops what every list has by now.
    fn prune(&mut self) {
        let (now, kept) = (Instant::now(), self.kept);
        if now.duration_since(self.pruned) > kept {
            self.pruned = now;
            self.sensors.retain(|_, entry| entry.is_new(kept));
        }
    }
}

impl NewEntry {
    fn is_new(&self, kept: Duration) -> bool {
        self.unstored > 0 || self.since.elapsed() <= kept
    }
}

#[derive(Debug)]
struct NewEntry {
    meta: Arc<Meta>,
    /// Changes that are not stored yet.
    unstored: usize,
    /// When the last change was stored, or noted.
    since: Instant,
}

impl Default for NewMeta {
    fn default() -> Self {
        Self(Mutex::new(NewMetaState { sensors: HashMap::new(), pruned: Instant::now(), kept: Duration::ZERO }))
    }
}

impl NewMeta {
    /// Notes a logged change. `kept` is how old a list of sensors may be.
    pub fn note(&self, key: &str, change: &Meta, kept: Duration) {
        let mut state = self.0.lock();
        state.kept = kept;
        state.prune();
        let now = Instant::now();
        let new = || NewEntry { meta: Arc::default(), unstored: 0, since: now };
        let entry = state.sensors.entry(key.into()).or_insert_with(new);
        Arc::make_mut(&mut entry.meta).merge(change);
        (entry.unstored, entry.since) = (entry.unstored + 1, now);
    }

    /// Notes that changes of a sensor are stored.
    pub fn stored(&self, key: &str, changes: usize) {
        if let Some(entry) = self.0.lock().sensors.get_mut(key) {
            (entry.unstored, entry.since) = (entry.unstored.saturating_sub(changes), Instant::now());
        }
    }

    /// Removes what is older than a deletion of the sensor.
    pub fn cut(&self, key: &str, before: Stamp) {
        if let Some(entry) = self.0.lock().sensors.get_mut(key) {
            Arc::make_mut(&mut entry.meta).cut(before);
        }
    }

    /// What a sensor has here.
    pub fn of(&self, key: &str) -> Option<Arc<Meta>> {
        let state = self.0.lock();
        state.sensors.get(key).filter(|entry| entry.is_new(state.kept)).map(|entry| entry.meta.clone())
    }

    /// What all sensors have here.
    pub fn all(&self) -> HashMap<Box<str>, Arc<Meta>> {
        let mut state = self.0.lock();
        if state.sensors.is_empty() {
            return HashMap::new();
        }
        state.prune();
        let new = state.sensors.iter().filter(|(_, entry)| entry.is_new(state.kept));
        new.map(|(key, entry)| (key.clone(), entry.meta.clone())).collect()
    }
}
