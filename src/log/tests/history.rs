//! Appends to a log through faults and power cuts, remembers what was acked, and checks what the
//! log must still hold.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc;

use super::simulated::{Cut, Fault, Simulated};
use super::{eventually, open, read_all};
use crate::log::{AppendError, Log, Options, Recovery, Sequence, Verdict};

pub(super) struct History {
    pub(super) disk: Simulated,
    options: Options,
    log: Option<Log>,
    sent: u64,
    /// The last append was over the budget.
    is_full: bool,
    acked: BTreeMap<Sequence, u64>,
    /// The highest position whose release was asked for.
    released: Sequence,
    /// All sequences ever seen, to find one that is used twice.
    used: BTreeMap<Sequence, u64>,
}

impl History {
    pub(super) fn new(disk: Simulated, options: Options) -> Self {
        let (acked, used) = (BTreeMap::new(), BTreeMap::new());
        Self { disk, options, log: None, sent: 0, is_full: false, acked, released: 0, used }
    }

    pub(super) fn log(&self) -> &Log {
        self.log.as_ref().unwrap()
    }

    pub(super) fn acked(&self) -> usize {
        self.acked.len()
    }

    /// Opens the log if it is not open; whether it is then.
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

    /// Appends records of these sizes so that all but the first share a sync, and waits for all.
    pub(super) fn append(&mut self, sizes: &[usize]) {
        let Some(log) = &self.log else { return };
        let (tell, told) = mpsc::channel();
        let (open_gate, gate) = mpsc::channel::<()>();
        let mut gate = Some(gate);
        for size in sizes {
            self.sent += 1;
            let (number, tell, gate) = (self.sent, tell.clone(), gate.take());
            let done = move |result| {
                if let Some(gate) = gate {
                    let _ = gate.recv();
                }
                tell.send((number, result)).unwrap();
            };
            // A refusal is an answer; what was refused must never be seen.
            let taken = log.append(number as u8, payload(number, *size), done);
            self.is_full = matches!(taken, Err(AppendError::Full { .. }));
        }
        drop((open_gate, tell));
        let mut before = 0;
        for (number, result) in told {
            if let Ok(sequence) = result {
                assert!(sequence > before, "{sequence} was told after {before}");
                before = sequence;
                self.see(sequence, number);
                self.acked.insert(sequence, number);
            }
        }
    }

    /// Releases about that part of what was acked.
    pub(super) fn release(&mut self, numerator: usize, denominator: usize) {
        let Some(log) = &self.log else { return };
        let at = (self.acked.len() * numerator / denominator).max(1) - 1;
        if let Some(sequence) = self.acked.keys().nth(at).copied() {
            let _ = log.release(sequence);
            self.released = self.released.max(sequence);
        }
    }

    pub(super) fn cut(&mut self, cut: Cut) {
        // The process is dead first, so that closing does nothing.
        self.disk.set_fault(Fault::Dead { after: 0 });
        self.log = None;
        self.disk.cut(cut);
    }

    /// Kills the process, opens again, and counts what readers are shown as acked: it must stay.
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

    /// The log, which is open, holds what was acked and not released, once, in order, and nothing
    /// that was not sent.
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
        for (sequence, number) in self.acked.range(self.released + 1..) {
            let found = records.iter().find(|record| record.sequence == *sequence);
            assert!(found.is_some(), "record {number}, acked as {sequence}, is lost; {} are there", records.len());
            assert!(seen.contains(number));
        }
        self.check_damage();
    }

    /// Whatever was done here tears writes, and damages nothing. Only what a record has in its last
    /// sector may be so short that zeros there say nothing.
    fn check_damage(&self) {
        for damage in self.log().damage() {
            let in_last_sector = (damage.offset + damage.bytes) % 512;
            let is_short = damage.verdict == Verdict::InDoubt && (1..=24).contains(&in_last_sector);
            assert!(damage.verdict == Verdict::Torn || is_short, "{damage:?}");
        }
    }

    /// Opens again if need be, checks, and sees a fresh record acked: nothing is left to hinder it.
    pub(super) fn check_alive(&mut self) {
        if self.log.is_none() {
            assert!(self.open().is_some(), "{:?}", open(&self.disk, self.options.clone()).err());
        }
        self.check();
        let before = self.acked.len();
        eventually("a fresh ack", || {
            self.append(&[20]);
            if self.is_full {
                self.release(1, 1);
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

/// A payload that tells its number and nothing compresses well.
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
