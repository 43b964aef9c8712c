//! Which sensors' copies of metadata lag behind, and what the refreshing of copies has done since the start. What keeps groups'
//! documents tells the latter of itself in the same words.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::bucket::{Regrouped, StorageError};
use crate::clock::now_ns;

/// Most sensors that are remembered. Beyond them, a walk through the sensors' documents finds what is left.
const REMEMBERED: usize = 1_000_000;

/// Shared by the task that refreshes and those who change metadata.
#[derive(Debug, Clone, Default)]
pub struct Refreshing(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// By database and sensor.
    stale: HashMap<String, HashMap<Box<str>, StaleCopies>>,
    count: usize,
    /// Whether sensors are missing in `stale`.
    is_incomplete: bool,
    done: RefreshingDone,
    /// Sensors that lag behind and are remembered by the store.
    left_elsewhere: u64,
}

/// A sensor whose copies lag behind.
#[derive(Debug, Clone, Copy)]
struct StaleCopies {
    /// When the document with the new metadata was stored, or the sensor was found.
    since: Instant,
    /// Whether its latest pages are refreshed.
    is_begun: bool,
}

/// What was refreshed since the start: copies of metadata, or groups' documents.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RefreshingDone {
    /// Sensors all of whose copies were set as their metadata, each time that this was done.
    pub sensors: u64,
    /// Pages and parts of days whose copies were changed.
    pub documents: u64,
    /// Sensors whose copies are known to lag behind.
    pub left: u64,
    /// When the last walk through all sensors ended: wall-clock time in nanoseconds. `None` before the first has.
    pub walked: Option<i64>,
    /// Why the last try failed.
    pub error: Option<String>,
}

/// Sensors of a database to be refreshed next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NextCopies {
    pub database: String,
    pub sensors: Vec<Box<str>>,
    /// Whether nobody writes new pages with older metadata any more: then all of their copies, else the latest.
    pub is_settled: bool,
}

impl Refreshing {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was done so far.
    #[must_use]
    pub fn done(&self) -> RefreshingDone {
        let state = self.lock();
        RefreshingDone { left: state.count as u64 + state.left_elsewhere, ..state.done.clone() }
    }

    /// Notes that a sensor's document has other metadata than before.
    pub(super) fn note(&self, database: &str, sensor: &str) {
        self.add(database, sensor, true);
    }

    /// Notes that a sensor's copies were found to lag behind.
    pub(super) fn note_found(&self, database: &str, sensor: &str) {
        self.add(database, sensor, false);
    }

    fn add(&self, database: &str, sensor: &str, is_change: bool) {
        let mut guard = self.lock();
        let state = &mut *guard;
        let new = StaleCopies { since: Instant::now(), is_begun: false };
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

    /// Whether sensors that lag behind may be unknown here. Asked for once, it is taken for answered.
    pub(super) fn take_incomplete(&self) -> bool {
        std::mem::take(&mut self.lock().is_incomplete)
    }

    /// At most `most` sensors of one database to be refreshed now: first those whose latest pages are not, then those that
    /// are settled.
    pub(super) fn next(&self, most: usize, settle: Duration, now: Instant) -> Option<NextCopies> {
        let state = self.lock();
        for is_settled in [false, true] {
            let is_due = |stale: &StaleCopies| match is_settled {
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

    /// Notes what became of [`Refreshing::next`], which was asked for at `began`. A sensor whose metadata changed since then is
    /// refreshed again.
    pub(super) fn refreshed(&self, next: &NextCopies, began: Instant, documents: u64, is_complete: bool) {
        let mut state = self.lock();
        state.done.documents += documents;
        state.done.error = None;
        if !is_complete {
            return;
        }
        let mut done = 0;
        let Some(of) = state.stale.get_mut(&next.database) else { return };
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
        state.done.sensors += done as u64;
    }

    /// Notes a step of the task that keeps groups' documents, whose sensors the store itself remembers.
    pub(super) fn stepped(&self, step: &Regrouped) {
        let mut state = self.lock();
        state.done.sensors += step.sensors;
        state.done.documents += step.documents;
        state.left_elsewhere = step.left;
        state.done.error = None;
    }

    pub(super) fn walked(&self) {
        self.lock().done.walked = Some(now_ns());
    }

    pub(super) fn failed(&self, error: &StorageError) {
        self.lock().done.error = Some(error.to_string());
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_pages_come_first_and_all_copies_once_they_are_settled() {
        let (refreshing, settle) = (Refreshing::default(), Duration::from_secs(10));
        refreshing.note("d", "m,s=1");
        let now = Instant::now();
        let latest = refreshing.next(10, settle, now).unwrap();
        assert!(!latest.is_settled && latest.sensors.len() == 1);
        refreshing.refreshed(&latest, now, 3, true);
        assert_eq!(refreshing.next(10, settle, now), None, "not settled yet");
        let later = now + settle;
        let all = refreshing.next(10, settle, later).unwrap();
        assert!(all.is_settled);
        // Not all of it was done within the time limit: again.
        refreshing.refreshed(&all, later, 5, false);
        assert_eq!(refreshing.next(10, settle, later), Some(all.clone()));
        refreshing.refreshed(&all, later, 1, true);
        assert_eq!(refreshing.next(10, settle, later), None);
        let done = refreshing.done();
        assert_eq!((done.sensors, done.documents, done.left), (1, 9, 0));
    }

    #[test]
    fn what_changes_during_a_refresh_is_refreshed_again() {
        let refreshing = Refreshing::default();
        refreshing.note("d", "m,s=1");
        let began = Instant::now();
        let all = refreshing.next(10, Duration::ZERO, began).unwrap();
        refreshing.note("d", "m,s=1");
        refreshing.refreshed(&NextCopies { is_settled: true, ..all.clone() }, began - Duration::from_secs(1), 0, true);
        assert_eq!(refreshing.done().left, 1);
        assert_eq!(refreshing.next(10, Duration::ZERO, Instant::now()), Some(all));
    }
}
