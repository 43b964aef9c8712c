//! Faults: when they begin, and how each ends.

use hourglass_members::Event;

use crate::node::Node;
use crate::world::{Scheduled, World};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// Frames from the node to the other one are lost.
    OneWayCut,
    /// Frames between both are lost.
    Cut,
    /// Frames from and to the node are lost.
    Isolation,
    MongoAway,
    MongoAwayForAll,
    HungDisk,
    SlowDisk,
    Freeze,
    Kill {
        loses_disk: bool,
    },
    Terminate,
    Drain,
    ClockStep,
}

#[derive(Clone, Copy, Debug)]
pub struct Fault {
    pub kind: FaultKind,
    pub node: usize,
    pub other: usize,
}

const KINDS: [FaultKind; 11] = [
    FaultKind::Freeze,
    FaultKind::HungDisk,
    FaultKind::Kill { loses_disk: false },
    FaultKind::Terminate,
    FaultKind::OneWayCut,
    FaultKind::Cut,
    FaultKind::Isolation,
    FaultKind::MongoAway,
    FaultKind::SlowDisk,
    FaultKind::ClockStep,
    FaultKind::MongoAwayForAll,
];

/// The first kinds: those that may last.
const LONG_KINDS: usize = 8;

impl World {
    /// Schedules the faults of a run.
    pub fn schedule_faults(&mut self) {
        if self.profile.has_one_fault {
            let kind = KINDS[self.random.index(LONG_KINDS)];
            self.schedule_fault(Fault { kind, node: 0, other: 1 }, 5_000_000, self.profile.active_us - 10_000_000);
        }
        if self.profile.fault_us == 0 {
            return;
        }
        let mut at_us = 4_000_000;
        let mut is_disk_lost = false;
        let mut is_drained = false;
        while at_us < self.profile.active_us {
            let mut kind = KINDS[self.profile.only_fault.unwrap_or_else(|| self.random.index(KINDS.len()))];
            if self.profile.only_fault.is_none() && self.random.is_hit(60) && !is_disk_lost {
                kind = FaultKind::Kill { loses_disk: true };
                is_disk_lost = true;
            } else if self.profile.only_fault.is_none() && self.random.is_hit(60) && !is_drained && self.nodes.len() > 2
            {
                kind = FaultKind::Drain;
                is_drained = true;
            }
            let node = self.random.index(self.nodes.len());
            let other = (node + 1 + self.random.index(self.nodes.len() - 1)) % self.nodes.len();
            let fault = Fault { kind, node, other };
            let longest_us = if self.random.is_hit(300) { 30_000_000 } else { 5_000_000 };
            let length_us = self.random.between(100_000, longest_us);
            self.schedule_fault(fault, at_us, length_us);
            at_us += self.random.between(1, 2 * self.profile.fault_us);
        }
    }

    fn schedule_fault(&mut self, fault: Fault, at_us: u64, length_us: u64) {
        self.after(at_us, Scheduled::Fault(fault));
        self.after(at_us + length_us, Scheduled::EndFault(fault));
        if matches!(fault.kind, FaultKind::Freeze | FaultKind::Kill { .. }) && length_us > 12_000_000 {
            for pause_us in [0, 2_000_000, 5_000_000] {
                self.after(at_us + self.profile.retire_us + pause_us, Scheduled::Retire(fault.node));
            }
        }
    }

    fn pairs(&self, fault: Fault) -> Vec<(usize, usize)> {
        let Fault { kind, node, other } = fault;
        match kind {
            FaultKind::OneWayCut => vec![(node, other)],
            FaultKind::Cut => vec![(node, other), (other, node)],
            FaultKind::Isolation => {
                let others = (0..self.nodes.len()).filter(|index| *index != node);
                others.flat_map(|index| [(node, index), (index, node)]).collect()
            }
            _ => Vec::new(),
        }
    }

    pub fn begin_fault(&mut self, fault: Fault) {
        if self.is_healed {
            return;
        }
        let node = fault.node;
        self.trace(|| format!("begin {fault:?}"));
        self.faults.push((self.now_us, node));
        for (from, to) in self.pairs(fault) {
            let pair = (self.nodes[from].folder, self.nodes[to].folder);
            *self.cuts.entry(pair).or_default() += 1;
        }
        match fault.kind {
            FaultKind::MongoAway => self.nodes[node].has_mongo = false,
            FaultKind::MongoAwayForAll => self.nodes.iter_mut().for_each(|node| node.has_mongo = false),
            FaultKind::HungDisk => {
                self.nodes[node].is_hung = true;
                self.nodes[node].dead_since_us.get_or_insert(self.now_us);
            }
            FaultKind::SlowDisk => self.nodes[node].is_slow = true,
            FaultKind::Freeze => self.nodes[node].is_frozen = self.nodes[node].process.is_some(),
            FaultKind::Kill { loses_disk } => {
                self.kill_node(node);
                if loses_disk && !self.nodes[node].is_gone {
                    self.note_lost_disk(node);
                    self.nodes[node].is_gone = true;
                    self.nodes[node].disk.wal.clear();
                    self.replace_node();
                }
            }
            FaultKind::Terminate | FaultKind::Drain => {
                if self.nodes[node].is_frozen {
                    return;
                }
                let event = if fault.kind == FaultKind::Drain { Event::Drain } else { Event::Terminate };
                if fault.kind == FaultKind::Drain && self.nodes[node].process.is_some() {
                    self.nodes[node].is_draining = true;
                    self.replace_node();
                }
                self.handle(node, event);
            }
            FaultKind::ClockStep => {
                let max = self.profile.offset_max_ms as i64;
                self.nodes[node].offset_ms = self.random.between(0, 2 * max as u64) as i64 - max;
            }
            FaultKind::OneWayCut | FaultKind::Cut | FaultKind::Isolation => {}
        }
    }

    pub fn end_fault(&mut self, fault: Fault) {
        self.trace(|| format!("end {fault:?}"));
        let node = fault.node;
        self.faults.push((self.now_us, node));
        for (from, to) in self.pairs(fault) {
            let pair = (self.nodes[from].folder, self.nodes[to].folder);
            if let Some(count) = self.cuts.get_mut(&pair) {
                *count -= 1;
                if *count == 0 {
                    self.cuts.remove(&pair);
                }
            }
        }
        match fault.kind {
            FaultKind::MongoAway => self.nodes[node].has_mongo = true,
            FaultKind::MongoAwayForAll => self.nodes.iter_mut().for_each(|node| node.has_mongo = true),
            FaultKind::HungDisk => self.unhang(node),
            FaultKind::SlowDisk => self.nodes[node].is_slow = false,
            FaultKind::Freeze => self.thaw(node),
            FaultKind::Kill { .. } => self.start_node(node),
            // A stop that takes too long is ended by force.
            FaultKind::Terminate if !self.nodes[node].is_draining => {
                let is_stopping = self.nodes[node].process.as_ref().is_some_and(|process| process.is_flushing_all);
                if is_stopping {
                    self.kill_node(node);
                }
                self.start_node(node);
            }
            _ => {}
        }
    }

    pub fn unhang(&mut self, node: usize) {
        self.nodes[node].is_hung = false;
        if self.nodes[node].process.is_some() {
            self.nodes[node].dead_since_us = None;
        }
        if self.nodes[node].process.as_ref().is_some_and(|process| process.is_sync_due) && !self.nodes[node].is_frozen {
            self.end_sync(node);
        }
    }

    /// Adds an instance on a new folder.
    pub fn add_node(&mut self) -> usize {
        let index = self.nodes.len();
        let max = self.profile.offset_max_ms;
        let offset_ms = self.random.between(0, 2 * max) as i64 - max as i64;
        let boot_base_ms = self.random.between(1_000, 1_000_000_000);
        let config = self.profile.config(if index == 0 { 1 } else { self.random.between(0, 4) });
        let folder = hourglass_members::FolderId(index as u64 + 1);
        self.nodes.push(Node::new(folder, config, boot_base_ms, offset_ms));
        self.history.tolerance_us = 2 * max * 1_000;
        index
    }

    fn replace_node(&mut self) {
        let node = self.add_node();
        let delay_us = self.random.between(100_000, 5_000_000);
        self.after(delay_us, Scheduled::Tick(node));
        let fault = Fault { kind: FaultKind::Kill { loses_disk: false }, node, other: 0 };
        self.after(delay_us, Scheduled::EndFault(fault));
    }
}
