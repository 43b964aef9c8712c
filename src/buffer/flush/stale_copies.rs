//! Sensors whose copies of metadata in pages and days lag behind.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Most sensors that are remembered. Beyond them, a walk through the sensors' documents finds what is left.
const REMEMBERED: usize = 1_000_000;

/// Shared by the task that refreshes and those who change metadata.
#[derive(Debug, Clone, Default)]
pub struct StaleCopies(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// By database and sensor.
    stale: HashMap<String, HashMap<Box<str>, StaleSensor>>,
    count: usize,
    /// Whether sensors are missing in `stale`.
    is_incomplete: bool,
}

/// A sensor whose copies lag behind.
#[derive(Debug, Clone, Copy)]
struct StaleSensor {
    /// When the document with the new metadata was stored, or the sensor was found.
    since: Instant,
    /// Whether its latest pages are refreshed.
    is_begun: bool,
}

/// Sensors of a database to be refreshed next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NextCopies {
    pub database: String,
    pub sensors: Vec<Box<str>>,
    /// Whether nobody writes new pages with older metadata any more: then all of their copies, else the latest.
    pub is_settled: bool,
}

impl StaleCopies {
    /// The number of sensors known to lag behind.
    pub fn count(&self) -> u64 {
        self.0.lock().count as u64
    }

    /// Notes that a sensor's document has other metadata than before.
    pub fn note(&self, database: &str, sensor: &str) {
        self.add(database, sensor, true);
    }

    /// Notes that a sensor's copies were found to lag behind.
    pub fn note_found(&self, database: &str, sensor: &str) {
        self.add(database, sensor, false);
    }

    fn add(&self, database: &str, sensor: &str, is_change: bool) {
        let mut guard = self.0.lock();
        let state = &mut *guard;
        let new = StaleSensor { since: Instant::now(), is_begun: false };
        if let Some(stale) = state.stale.get_mut(database).and_then(|of| of.get_mut(sensor)) {
            if is_change {
                *stale = new;
            }
        } else if state.count >= REMEMBERED {
            state.is_incomplete = true;
        } else {
            state.stale.entry(database.to_owned()).or_default().insert(sensor.into(), new);
            state.count += 1;
        }
    }

    /// Returns true if sensors that lag behind may be unknown here.
    pub fn is_incomplete(&self) -> bool {
        self.0.lock().is_incomplete
    }

    /// As [`StaleCopies::is_incomplete`]. Asked for once, it is taken for answered.
    pub fn take_incomplete(&self) -> bool {
        std::mem::take(&mut self.0.lock().is_incomplete)
    }

    /// At most `most` sensors of one database to be refreshed now: first those whose latest pages are not, then those that
    /// are settled.
    pub fn next(&self, most: usize, settle: Duration, now: Instant) -> Option<NextCopies> {
        let state = self.0.lock();
        for is_settled in [false, true] {
            let is_due = |stale: &StaleSensor| match is_settled {
                false => !stale.is_begun,
                true => now.saturating_duration_since(stale.since) >= settle,
            };
            for (database, of) in &state.stale {
                let due = of.iter().filter(|(_, stale)| is_due(stale)).map(|(sensor, _)| sensor.clone());
                let sensors: Vec<Box<str>> = due.take(most).collect();
                if !sensors.is_empty() {
                    return Some(NextCopies { database: database.clone(), sensors, is_settled });
                }
            }
        }
        None
    }

    /// Notes that the copies of [`StaleCopies::next`], which was asked for at `began`, are set; returns for how many sensors that
    /// were all copies. A sensor whose metadata changed since `began` is refreshed again.
    pub fn refreshed(&self, next: &NextCopies, began: Instant) -> u64 {
        let mut state = self.0.lock();
        let mut done = 0;
        let Some(of) = state.stale.get_mut(&next.database) else { return 0 };
        for sensor in &next.sensors {
            let Some(stale) = of.get_mut(sensor).filter(|stale| stale.since <= began) else { continue };
            match next.is_settled {
                false => stale.is_begun = true,
                true => {
                    of.remove(sensor);
                    done += 1;
                }
            }
        }
        if of.is_empty() {
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
        let (stale, settle) = (StaleCopies::default(), Duration::from_secs(10));
        stale.note("d", "m,s=1");
        let now = Instant::now();
        let latest = stale.next(10, settle, now).unwrap();
        assert!(!latest.is_settled && latest.sensors.len() == 1);
        stale.refreshed(&latest, now);
        assert_eq!(stale.next(10, settle, now), None, "not settled yet");
        let later = now + settle;
        let all = stale.next(10, settle, later).unwrap();
        assert!(all.is_settled);
        assert_eq!(stale.refreshed(&all, later), 1);
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
        stale.refreshed(&NextCopies { is_settled: true, ..all.clone() }, began - Duration::from_secs(1));
        assert_eq!(stale.count(), 1);
        assert_eq!(stale.next(10, Duration::ZERO, Instant::now()), Some(all));
    }
}
