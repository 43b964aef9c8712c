//! Sensors whose copies of metadata in pages and days are outdated.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Maximum number of remembered sensors. A scan of the sensor documents finds the others.
const SENSORS_MAX: usize = 1_000_000;

/// The sensors with outdated copies, shared by the refreshing task and the writers of metadata.
#[derive(Debug, Clone, Default)]
pub struct StaleCopies(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// Sensors by database and key.
    stale: HashMap<String, HashMap<Box<str>, StaleSensor>>,
    count: usize,
    /// True if `stale` may lack sensors.
    is_incomplete: bool,
}

/// A sensor with outdated copies.
#[derive(Debug, Clone, Copy)]
struct StaleSensor {
    /// The time at which the new metadata was stored, or the sensor was found.
    since: Instant,
    /// True if its latest pages are refreshed.
    is_begun: bool,
}

/// The sensors of a database to refresh next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NextCopies {
    pub database: String,
    pub sensors: Vec<Box<str>>,
    /// True if no new pages with the old metadata can be written any more. Then all copies are refreshed, otherwise
    /// only the latest.
    pub is_settled: bool,
}

impl StaleCopies {
    /// Returns the number of sensors known to have outdated copies.
    pub fn count(&self) -> u64 {
        self.0.lock().count as u64
    }

    /// Lists some of these sensors, each with its database.
    pub fn some(&self, max: usize) -> Vec<String> {
        let state = self.0.lock();
        let all = state.stale.iter().flat_map(|(database, sensors)| sensors.keys().map(move |key| (database, key)));
        all.take(max).map(|(database, key)| format!("{database} {key}")).collect()
    }

    /// Notes that the metadata of a sensor's document changed.
    pub fn note(&self, database: &str, sensor: &str) {
        self.add(database, sensor, true);
    }

    /// Notes that a sensor was found to have outdated copies.
    pub fn note_found(&self, database: &str, sensor: &str) {
        self.add(database, sensor, false);
    }

    fn add(&self, database: &str, sensor: &str, is_change: bool) {
        let mut guard = self.0.lock();
        let state = &mut *guard;
        let new = StaleSensor { since: Instant::now(), is_begun: false };
        if let Some(stale) = state.stale.get_mut(database).and_then(|sensors| sensors.get_mut(sensor)) {
            if is_change {
                *stale = new;
            }
        } else if state.count >= SENSORS_MAX {
            state.is_incomplete = true;
        } else {
            state.stale.entry(database.to_owned()).or_default().insert(sensor.into(), new);
            state.count += 1;
        }
    }

    /// Returns true if some sensors with outdated copies may be unknown here.
    pub fn is_incomplete(&self) -> bool {
        self.0.lock().is_incomplete
    }

    /// As [`StaleCopies::is_incomplete`], and resets it: the caller finds the unknown sensors.
    pub fn take_incomplete(&self) -> bool {
        std::mem::take(&mut self.0.lock().is_incomplete)
    }

    /// Returns at most `sensors_max` sensors of one database to refresh now. Sensors whose latest pages are outdated
    /// come first, then those whose metadata has not changed for `settle`.
    pub fn next(&self, sensors_max: usize, settle: Duration, now: Instant) -> Option<NextCopies> {
        let state = self.0.lock();
        for is_settled in [false, true] {
            let is_due = |stale: &StaleSensor| {
                if is_settled { now.saturating_duration_since(stale.since) >= settle } else { !stale.is_begun }
            };
            for (database, sensors) in &state.stale {
                let due = sensors.iter().filter(|(_, stale)| is_due(stale)).map(|(sensor, _)| sensor.clone());
                let sensors: Vec<Box<str>> = due.take(sensors_max).collect();
                if !sensors.is_empty() {
                    return Some(NextCopies { database: database.clone(), sensors, is_settled });
                }
            }
        }
        None
    }

    /// Notes that the copies that [`StaleCopies::next`] returned at `began` are refreshed. Returns the number of
    /// sensors whose copies are all refreshed. Sensors whose metadata changed since `began` are refreshed again.
    pub fn note_refreshed(&self, next: &NextCopies, began: Instant) -> u64 {
        let mut state = self.0.lock();
        let mut done = 0;
        let Some(sensors) = state.stale.get_mut(&next.database) else { return 0 };
        for sensor in &next.sensors {
            let Some(stale) = sensors.get_mut(sensor).filter(|stale| stale.since <= began) else { continue };
            if next.is_settled {
                sensors.remove(sensor);
                done += 1;
            } else {
                stale.is_begun = true;
            }
        }
        if sensors.is_empty() {
            state.stale.remove(&next.database);
        }
        state.count -= done;
        done as u64
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_pages_come_first_and_all_copies_once_they_are_settled() {
        let stale = StaleCopies::default();
        let settle = Duration::from_secs(10);
        stale.note("d", "m,s=1");
        let now = Instant::now();
        let latest = stale.next(10, settle, now).unwrap();
        assert!(!latest.is_settled && latest.sensors.len() == 1);
        stale.note_refreshed(&latest, now);
        assert_eq!(stale.next(10, settle, now), None, "not settled yet");
        let later = now + settle;
        let all = stale.next(10, settle, later).unwrap();
        assert!(all.is_settled);
        assert_eq!(stale.note_refreshed(&all, later), 1);
        assert_eq!(stale.next(10, settle, later), None);
        assert_eq!(stale.count(), 0);
    }

    #[test]
    fn what_changes_during_a_refresh_is_refreshed_again() {
        let stale = StaleCopies::default();
        stale.note("d", "m,s=1");
        let began = Instant::now();
        let all = stale.next(10, Duration::ZERO, began).unwrap();
        stale.note("d", "m,s=1");
        stale.note_refreshed(&NextCopies { is_settled: true, ..all.clone() }, began - Duration::from_secs(1));
        assert_eq!(stale.count(), 1);
        assert_eq!(stale.next(10, Duration::ZERO, Instant::now()), Some(all));
    }
}
