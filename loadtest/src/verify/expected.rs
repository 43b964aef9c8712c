//! Computes which readings must be stored, and compares them with those that are, sensor by sensor.

use std::collections::HashMap;

use anyhow::Result;
use jiff::Timestamp;

use crate::report::results::Verified;
use crate::run::posts::Posts;
use crate::run::readings::{Entry, Sensor};
use crate::run::recorder::Outcome;

/// Maximum number of differences that are described.
const TOLD: usize = 10;

/// A reading that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Sent {
    time: i64,
    /// Whether a POST with this reading was acked. If not, it may be stored or not.
    acked: bool,
    fingerprint: u64,
}

/// All sent readings by sensor, about 24 bytes each.
pub struct Expected {
    sensors: HashMap<String, Vec<Sent>>,
    found: Verified,
}

impl Expected {
    /// Generates the sent readings again.
    pub fn replay(mut posts: Posts, outcomes: &[Outcome]) -> Result<Self> {
        let mut by_number: HashMap<Sensor, Vec<Sent>> = HashMap::new();
        for outcome in outcomes {
            let Some((_, entries)) = posts.next()? else { break };
            if *outcome != Outcome::Unsent {
                add(&mut by_number, entries, *outcome == Outcome::Acked);
            }
        }
        let sensors = by_number.into_iter().map(|(sensor, sent)| (posts.key(sensor), sent));
        Ok(Self { sensors: sensors.collect(), found: Verified::default() }.settled())
    }

    /// Sorts the readings, keeps each timestamp once, and counts.
    fn settled(mut self) -> Self {
        for sent in self.sensors.values_mut() {
            // A reading that was acked once counts as acked; among equal ones, it sorts last.
            sent.sort_unstable();
            sent.reverse();
            sent.dedup_by_key(|sent| sent.time);
            sent.reverse();
            let acked = sent.iter().filter(|sent| sent.acked).count();
            self.found.expected += u64::try_from(acked).unwrap_or(0);
            self.found.sensors += u64::from(acked > 0);
        }
        self
    }

    /// Compares the stored readings of a sensor, in time order, with the expected ones.
    pub fn compare(&mut self, sensor: &str, stored: &[(i64, u64)]) {
        self.found.stored += u64::try_from(stored.len()).unwrap_or(0);
        let sent = self.sensors.remove(sensor).unwrap_or_default();
        let mut rest = sent.iter().peekable();
        let mut before = None;
        for (time, fingerprint) in stored {
            while let Some(lost) = rest.next_if(|sent| sent.time < *time) {
                self.lost(sensor, lost);
            }
            match rest.next_if(|sent| sent.time == *time) {
                Some(sent) if sent.fingerprint == *fingerprint => {
                    self.found.stored_unacked += u64::from(!sent.acked);
                }
                Some(_) => {
                    self.found.different += 1;
                    self.tell(sensor, *time, "is stored with other values");
                }
                None => {
                    self.found.extra += 1;
                    let is_double = before == Some(*time);
                    self.tell(
                        sensor,
                        *time,
                        if is_double { "is stored twice" } else { "is stored and was never sent" },
                    );
                }
            }
            before = Some(*time);
        }
        rest.for_each(|sent| self.lost(sensor, sent));
    }

    /// The result, after all stored sensors were compared; all others are missing.
    pub fn end(mut self) -> Verified {
        let mut unseen: Vec<(String, Vec<Sent>)> = std::mem::take(&mut self.sensors).into_iter().collect();
        unseen.sort_unstable();
        for (sensor, sent) in &unseen {
            sent.iter().for_each(|sent| self.lost(sensor, sent));
        }
        self.found
    }

    fn lost(&mut self, sensor: &str, sent: &Sent) {
        if sent.acked {
            self.found.missing += 1;
            self.tell(sensor, sent.time, "was acked and is not stored");
        }
    }

    fn tell(&mut self, sensor: &str, time: i64, what: &str) {
        if self.found.first.len() < TOLD {
            let time = Timestamp::from_nanosecond(time.into()).map_or_else(|_| time.to_string(), |at| at.to_string());
            self.found.first.push(format!("{sensor} at {time} {what}"));
        }
    }
}

fn add(by_number: &mut HashMap<Sensor, Vec<Sent>>, entries: &[Entry], acked: bool) {
    for Entry { sensor, time, fingerprint } in entries {
        let sent = Sent { time: *time, acked, fingerprint: *fingerprint };
        by_number.entry(*sensor).or_default().push(sent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three readings of a sensor: the first was sent twice, the last was not acked.
    fn expected() -> Expected {
        let sent = |time, acked| Sent { time, acked, fingerprint: time.unsigned_abs() };
        let sensors =
            HashMap::from([("m,s=1".to_owned(), vec![sent(2, true), sent(1, false), sent(1, true), sent(3, false)])]);
        Expected { sensors, found: Verified::default() }.settled()
    }

    fn verified(stored: &[(i64, u64)]) -> Verified {
        let mut expected = expected();
        expected.compare("m,s=1", stored);
        expected.end()
    }

    #[test]
    fn acked_and_stored_is_exact_whatever_became_of_the_rest() {
        for (stored, unacked) in [(vec![(1, 1), (2, 2)], 0), (vec![(1, 1), (2, 2), (3, 3)], 1)] {
            let found = verified(&stored);
            assert!(found.is_exact() && found.first.is_empty(), "{found:?}");
            assert_eq!((found.sensors, found.expected, found.stored_unacked), (1, 2, unacked));
        }
    }

    #[test]
    fn a_lost_reading_is_found() {
        let found = verified(&[(1, 1)]);
        assert_eq!((found.missing, found.extra, found.different), (1, 0, 0));
        assert_eq!(found.first, ["m,s=1 at 1970-01-01T00:00:00.000000002Z was acked and is not stored"]);
    }

    #[test]
    fn a_doubled_reading_is_found() {
        let found = verified(&[(1, 1), (1, 1), (2, 2)]);
        assert_eq!((found.missing, found.extra, found.different), (0, 1, 0));
        assert_eq!(found.first, ["m,s=1 at 1970-01-01T00:00:00.000000001Z is stored twice"]);
    }

    #[test]
    fn another_value_another_time_and_another_sensor_are_found() {
        let found = verified(&[(1, 7), (2, 2)]);
        assert_eq!((found.missing, found.extra, found.different), (0, 0, 1));
        let found = verified(&[(0, 0), (1, 1), (2, 2), (9, 9)]);
        assert_eq!((found.missing, found.extra, found.different), (0, 2, 0));
        let mut expected = expected();
        expected.compare("m,s=2", &[(1, 1)]);
        let found = expected.end();
        assert_eq!((found.missing, found.extra), (2, 1));
    }
}
