//! Appends to a WAL through faults and power cuts, remembers the acked records, and checks that the WAL has them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc;
use std::time::Instant;

use super::simulated::{Cut, Fault, Simulated};
use super::{eventually, open, read_all};
use crate::{AppendError, Recovery, Sequence, Verdict, Wal, WalOptions};

pub(super) struct History {
    pub(super) disk: Simulated,
    options: WalOptions,
    log: Option<Wal>,
    sent: u64,
    /// True if the last append exceeded the budget.
    is_full: bool,
    acked: BTreeMap<Sequence, u64>,
    /// The highest position passed to `truncate`.
    truncated: Sequence,
    /// All sequences ever seen, to detect one that is used twice.
    used: BTreeMap<Sequence, u64>,
}

impl History {
    pub(super) fn new(disk: Simulated, options: WalOptions) -> Self {
        let acked = BTreeMap::new();
        let used = BTreeMap::new();
        Self { disk, options, log: None, sent: 0, is_full: false, acked, truncated: 0, used }
    }

    pub(super) fn log(&self) -> &Wal {
        self.log.as_ref().unwrap()
    }

    pub(super) fn acked(&self) -> usize {
        self.acked.len()
    }

    /// Opens the WAL, which must be closed; `None` if that fails.
    pub(super) fn open(&mut self) -> Option<Recovery> {
        assert!(self.log.is_none());
        let (log, recovery) = open(&self.disk, self.options.clone()).ok()?;
        self.log = Some(log);
        Some(recovery)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.log.is_none()
    }

    pub(super) fn close(&mut self) {
        self.log = None;
    }

    /// Appends records of these sizes so that all but the first share a sync, and waits for all outcomes.
    pub(super) fn append(&mut self, sizes: &[usize]) {
        let Some(log) = &self.log else { return };
        let (sender, outcomes) = mpsc::channel();
        let (open_gate, gate) = mpsc::channel::<()>();
        let mut gate = Some(gate);
        for size in sizes {
            self.sent += 1;
            let number = self.sent;
            let sender = sender.clone();
            let gate = gate.take();
            let done = move |result| {
                if let Some(gate) = gate {
                    let _ = gate.recv();
                }
                sender.send((number, result)).unwrap();
            };
            // The append may be refused; a refused record must never be read back.
            let taken = log.append(0, number as u8, payload(number, *size), done);
            self.is_full = matches!(taken, Err(AppendError::Full(_)));
        }
        drop((open_gate, sender));
        let mut before = 0;
        for (number, result) in outcomes {
            if let Ok(sequence) = result {
                assert!(sequence > before, "the callback of {sequence} ran after that of {before}");
                before = sequence;
                self.see(sequence, number);
                self.acked.insert(sequence, number);
            }
        }
    }

    /// Truncates about this fraction of the acked records.
    pub(super) fn truncate(&mut self, numerator: usize, denominator: usize) {
        let Some(log) = &self.log else { return };
        let at = (self.acked.len() * numerator / denominator).max(1) - 1;
        if let Some(sequence) = self.acked.keys().nth(at).copied() {
            let _ = log.truncate(sequence);
            self.truncated = self.truncated.max(sequence);
        }
    }

    /// Requests a rest, as if the WAL had been quiet.
    pub(super) fn rest(&mut self) {
        let Some(log) = &self.log else { return };
        log.rest_if_quiet(Instant::now() + self.options.quiet);
        eventually("the writer's attention", || !log.shared.lock().should_rest);
    }

    pub(super) fn cut(&mut self, cut: Cut) {
        // The process dies first, so that closing the WAL has no effect.
        self.disk.set_fault(Fault::Dead { after: 0 });
        self.log = None;
        self.disk.cut(cut);
    }

    /// Kills the process, opens the WAL again, and treats every record that a reader returns as acked: it must survive
    /// from then on.
    pub(super) fn kill_and_read(&mut self) {
        self.disk.set_fault(Fault::Dead { after: 0 });
        self.log = None;
        self.disk.kill();
        assert!(self.open().is_some());
        for record in read_all(self.log(), 0) {
            self.acked.insert(record.sequence, u64::from_le_bytes(record.payload[..8].try_into().unwrap()));
        }
        self.check();
    }

    /// Checks that the open WAL has all acked records that are not truncated, once and in order, and no record that was
    /// not sent.
    pub(super) fn check(&mut self) {
        let records = read_all(self.log(), 0);
        let mut seen = BTreeSet::new();
        let mut last = (0, 0);
        for record in &records {
            let number = u64::from_le_bytes(record.payload[..8].try_into().unwrap());
            assert!((1..=self.sent).contains(&number), "{number} was never sent");
            assert_eq!(record.payload, payload(number, record.payload.len()), "record {number} is changed");
            assert_eq!(record.kind, number as u8);
            assert!(seen.insert(number), "record {number} is there twice");
            assert!((record.sequence, number) > last && number > last.1, "{number} comes after {last:?}");
            last = (record.sequence, number);
            self.see(record.sequence, number);
        }
        for (sequence, number) in self.acked.range(self.truncated + 1..) {
            let found = records.iter().find(|record| record.sequence == *sequence);
            assert!(found.is_some(), "record {number}, acked as {sequence}, is lost; {} are there", records.len());
            assert!(seen.contains(number));
        }
        self.check_damage();
    }

    /// Checks that all damage is torn writes, because these tests do not damage synced bytes. Exception: a record's
    /// part in its last sector may be too short for a verdict, and is then in doubt.
    fn check_damage(&self) {
        for damage in self.log().damage() {
            let in_last_sector = (damage.offset + damage.bytes) % 512;
            let is_short = damage.verdict == Verdict::InDoubt && (1..=24).contains(&in_last_sector);
            assert!(damage.verdict == Verdict::Torn || is_short, "{damage:?}");
        }
    }

    /// Opens the WAL if it is closed, checks it, and waits until a new record is acked.
    pub(super) fn check_alive(&mut self) {
        if self.log.is_none() {
            assert!(self.open().is_some(), "{:?}", open(&self.disk, self.options.clone()).err());
        }
        self.check();
        let before = self.acked.len();
        eventually("a fresh ack", || {
            self.append(&[20]);
            if self.is_full {
                self.truncate(1, 1);
            }
            self.acked.len() > before
        });
        self.check();
    }

    fn see(&mut self, sequence: Sequence, number: u64) {
        let earlier = *self.used.entry(sequence).or_insert(number);
        assert_eq!(earlier, number, "sequence {sequence} is used twice");
    }
}

/// A payload that begins with its number and hardly compresses.
pub(super) fn payload(number: u64, size: usize) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    while bytes.len() < size.max(8) {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        bytes.push((state >> 56) as u8);
    }
    bytes.truncate(size.max(8));
    bytes
}
