//! Sensors whose lifetime summaries are known to be outdated.

use std::collections::{HashMap, HashSet};

use parking_lot::Mutex;

/// Maximum number of remembered sensors. The documents of others show it, at the latest when the month is over.
const SENSORS_MAX: usize = 50_000;

/// The sensors of which days were sealed, or readings deleted, since their lifetime summaries were folded.
#[derive(Debug, Default)]
pub struct OutdatedLifetimes(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Keys of sensors by database.
    sensors: HashMap<String, HashSet<Box<str>>>,
    count: usize,
}

impl OutdatedLifetimes {
    pub fn is_empty(&self) -> bool {
        self.0.lock().count == 0
    }

    /// Notes a sensor.
    pub fn note(&self, database: &str, sensor: &str) {
        let mut state = self.0.lock();
        if state.count < SENSORS_MAX && state.sensors.entry(database.to_owned()).or_default().insert(sensor.into()) {
            state.count += 1;
        }
    }

    /// Forgets sensors that are about to be folded.
    pub fn forget(&self, database: &str, sensors: &[Box<str>]) {
        let mut state = self.0.lock();
        let Some(noted) = state.sensors.get_mut(database) else { return };
        state.count -= sensors.iter().filter(|sensor| noted.remove(&**sensor)).count();
    }

    /// Returns the noted sensors of a database.
    pub fn of(&self, database: &str) -> Vec<Box<str>> {
        self.0.lock().sensors.get(database).into_iter().flatten().cloned().collect()
    }

    /// Forgets all databases except these.
    pub fn retain(&self, databases: &[String]) {
        let mut state = self.0.lock();
        state.sensors.retain(|database, _| databases.contains(database));
        state.count = state.sensors.values().map(HashSet::len).sum();
    }
}
