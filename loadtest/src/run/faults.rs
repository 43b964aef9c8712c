//! Simulates faults between the devices and the server: lines and batches of lines are missing or late. A seed
//! determines which.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::random::Random;
use super::readings::{Entry, Readings, Sensor};
use super::scenario::{Faults, Scenario};

/// The chance that a delayed item is sent instead of the next one, if there is no `late_by`. As in TSBS.
const COMES: f64 = 0.5;

/// The lines to send: some are missing, some late.
pub struct Lines {
    readings: Readings,
    faults: Faults,
    random: Random,
    /// The number of lines generated of the current batch, and its fate.
    in_batch: u32,
    fate: Fate,
    /// The latest timestamp so far.
    now: i64,
    /// Late lines that are due at a reading time.
    timed: BinaryHeap<Reverse<Timed>>,
    held: u64,
    /// Late lines and batches that are sent at random.
    entries: VecDeque<Held>,
    batches: VecDeque<Vec<Held>>,
    /// Whether a line was sent in time since the last one was delayed; otherwise the delayed one would not be late.
    is_overtaken: bool,
    /// Delayed lines to send now, before all others.
    coming: VecDeque<Held>,
    scratch: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Sent,
    Missing,
    /// Delayed until this reading time, or at random.
    Late(Option<i64>),
}

struct Held {
    entry: Entry,
    line: Box<[u8]>,
}

/// Ordered by time; of equal times, the line that was delayed first is first.
struct Timed {
    due: i64,
    number: u64,
    held: Held,
}

impl PartialEq for Timed {
    fn eq(&self, other: &Self) -> bool {
        (self.due, self.number) == (other.due, other.number)
    }
}

impl Eq for Timed {}

impl PartialOrd for Timed {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timed {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.due, self.number).cmp(&(other.due, other.number))
    }
}

impl Lines {
    pub fn new(scenario: &Scenario, seed: u64, start: i64) -> Self {
        Self {
            readings: Readings::new(scenario, seed, start),
            faults: scenario.faults.clone(),
            random: Random::new(seed, &[u64::MAX, 2]),
            in_batch: 0,
            fate: Fate::Sent,
            now: start,
            timed: BinaryHeap::new(),
            held: 0,
            entries: VecDeque::new(),
            batches: VecDeque::new(),
            is_overtaken: false,
            coming: VecDeque::new(),
            scratch: Vec::new(),
        }
    }

    /// Appends the next line to send.
    pub fn next_line(&mut self, out: &mut Vec<u8>) -> Entry {
        loop {
            if let Some(held) = self.comes_now() {
                out.extend_from_slice(&held.line);
                return held.entry;
            }
            if self.in_batch == 0 {
                self.begin_batch();
            }
            self.in_batch = (self.in_batch + 1) % self.faults.batch;
            let begin = out.len();
            let entry = self.readings.next_line(out);
            self.now = self.now.max(entry.time);
            let fate = match self.fate {
                Fate::Sent => self.fate_of(self.faults.entry_missing, self.faults.entry_late),
                fate => fate,
            };
            if fate == Fate::Sent {
                self.is_overtaken = true;
                return entry;
            }
            self.scratch.clear();
            self.scratch.extend_from_slice(&out[begin..]);
            out.truncate(begin);
            if let Fate::Late(until) = fate {
                self.hold(entry, until);
            }
        }
    }

    /// The latest timestamp so far, in nanoseconds.
    pub fn now(&self) -> i64 {
        self.now
    }

    pub fn key(&self, sensor: Sensor) -> String {
        self.readings.key(sensor)
    }

    fn begin_batch(&mut self) {
        if self.is_overtaken && !self.batches.is_empty() && self.random.is(COMES) {
            self.coming.extend(self.batches.pop_front().into_iter().flatten());
        }
        self.fate = self.fate_of(self.faults.batch_missing, self.faults.batch_late);
        if self.fate == Fate::Late(None) {
            self.batches.push_back(Vec::new());
        }
    }

    fn fate_of(&mut self, missing: f64, late: f64) -> Fate {
        if self.random.is(missing) {
            return Fate::Missing;
        }
        // `late` is a share of all lines, but the missing ones are already excluded here.
        if !self.random.is(late / (1.0 - missing)) {
            return Fate::Sent;
        }
        let until = self.faults.late_by.map(|by| self.now.saturating_add(self.random.between(1, by.nanoseconds())));
        Fate::Late(until)
    }

    fn hold(&mut self, entry: Entry, until: Option<i64>) {
        let held = Held { entry, line: self.scratch.as_slice().into() };
        self.is_overtaken = false;
        match (until, self.fate) {
            (Some(due), _) => {
                self.held += 1;
                self.timed.push(Reverse(Timed { due, number: self.held, held }));
            }
            (None, Fate::Late(_)) => self.batches.back_mut().map_or((), |batch| batch.push(held)),
            (None, _) => self.entries.push_back(held),
        }
    }

    fn comes_now(&mut self) -> Option<Held> {
        if let Some(held) = self.coming.pop_front() {
            return Some(held);
        }
        if self.timed.peek().is_some_and(|Reverse(first)| first.due <= self.now) {
            return self.timed.pop().map(|Reverse(first)| first.held);
        }
        let may_come = self.is_overtaken && !self.entries.is_empty();
        if may_come && self.random.is(COMES) { self.entries.pop_front() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::run::scenario::Scenario;

    fn scenario(faults: &str) -> Scenario {
        let text = format!(
            r#"
            description = "a test"
            duration = "1s"
            connections = 1
            lines = 10
            [[measurements]]
            name = "m"
            devices = 100
            interval = "10s"
            [measurements.tags]
            id = {{ kind = "numbered", prefix = "d" }}
            site = {{ kind = "choice", values = ["a", "b"] }}
            [measurements.fields]
            f = {{ kind = "walk", least = 0, most = 100, step = 1 }}
            g = {{ kind = "flag", share = 0.5 }}
            [faults]
            {faults}"#
        );
        Scenario::parse(&text).unwrap()
    }

    fn entries(faults: &str, count: usize) -> Vec<Entry> {
        let mut lines = Lines::new(&scenario(faults), 5, 0);
        (0..count).map(|_| lines.next_line(&mut Vec::new())).collect()
    }

    #[test]
    fn the_same_seed_gives_the_same_lines() {
        let faults =
            "batch_missing = 0.01\nbatch_late = 0.05\nentry_missing = 0.1\nentry_late = 0.3\ntag_missing = 0.01";
        let text = |seed| {
            let mut lines = Lines::new(&scenario(faults), seed, 0);
            let mut text = Vec::new();
            for _ in 0..5000 {
                lines.next_line(&mut text);
            }
            text
        };
        assert_eq!(text(1), text(1));
        assert_ne!(text(1), text(2));
    }

    #[test]
    fn without_faults_every_reading_comes_in_order() {
        let entries = entries("", 1000);
        assert!(entries.is_sorted_by_key(|entry| entry.time));
        let of_each = entries.iter().fold(BTreeMap::<_, i64>::new(), |mut counts, entry| {
            *counts.entry(entry.sensor).or_default() += 1;
            counts
        });
        assert!(of_each.len() == 100 && of_each.values().all(|count| *count == 10));
    }

    /// The shares of generated lines that were not sent, and that came after a later line.
    fn missing_and_late(faults: &str) -> (f64, f64) {
        let count = 200_000;
        let entries = entries(faults, count);
        let ticks = entries.last().unwrap().time / 10_000_000_000;
        let made = f64::from(u32::try_from(ticks).unwrap()) * 100.0;
        let (mut latest, mut late) = (BTreeMap::new(), 0.0);
        let mut newest = 0;
        for (place, entry) in entries.iter().enumerate() {
            let order = (entry.time, entry.sensor);
            if place > 0 && order < newest_of(&latest, newest) {
                late += 1.0;
            } else {
                newest = entry.time;
                latest.insert(newest, order);
                latest.retain(|time, _| *time >= newest);
            }
        }
        (1.0 - f64::from(u32::try_from(count).unwrap()) / made, late / made)
    }

    fn newest_of(latest: &BTreeMap<i64, (i64, u64)>, newest: i64) -> (i64, u64) {
        latest.get(&newest).copied().unwrap_or((0, 0))
    }

    #[test]
    fn shares_of_faults_are_as_the_scenario_says() {
        for (faults, missing, late) in [
            ("entry_missing = 0.1", 0.1, 0.0),
            ("batch_missing = 0.05", 0.05, 0.0),
            ("entry_late = 0.3", 0.0, 0.3),
            ("batch_late = 0.05", 0.0, 0.05),
            ("entry_late = 0.2\nlate_by = \"30s\"", 0.0, 0.2),
            // As in TSBS, lines are missing or late only in batches that are neither.
            (
                "batch_missing = 0.01\nbatch_late = 0.05\nentry_missing = 0.1\nentry_late = 0.3",
                0.01 + 0.94 * 0.1,
                0.05 + 0.94 * 0.3,
            ),
        ] {
            let found = missing_and_late(faults);
            let is_near = |found: f64, wanted: f64| (found - wanted).abs() < 0.01;
            assert!(is_near(found.0, missing) && is_near(found.1, late), "{faults}: {found:?}");
        }
    }

    #[test]
    fn nothing_is_later_than_it_may_be() {
        let entries = entries("batch_late = 0.1\nentry_late = 0.1\nlate_by = \"30s\"", 50_000);
        let mut newest = 0;
        let mut latest = 0;
        for entry in entries {
            newest = newest.max(entry.time);
            latest = latest.max(newest - entry.time);
        }
        assert!((20_000_000_000..=40_000_000_000).contains(&latest), "{latest}");
    }

    #[test]
    fn a_missing_tag_is_never_the_one_that_names_the_device() {
        let mut lines = Lines::new(&scenario("tag_missing = 0.2\nfield_missing = 0.5"), 1, 0);
        let (mut without_tag, mut without_field) = (0, 0);
        for _ in 0..10_000 {
            let mut text = Vec::new();
            let entry = lines.next_line(&mut text);
            let text = String::from_utf8(text).unwrap();
            assert!(text.contains(",id=d") && text.starts_with(&(lines.key(entry.sensor) + " ")), "{text}");
            without_tag += u32::from(!text.contains("site="));
            without_field += u32::from(!(text.contains("f=") && text.contains("g=")));
            assert!(text.contains("f=") || text.contains("g="));
        }
        assert!((1800..2200).contains(&without_tag) && (4800..5200).contains(&without_field));
    }
}
