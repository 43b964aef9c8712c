//! A whole run: faults, then peace, then the final judgement.

use std::collections::BTreeMap;

use hourglass_members::{ClientAnswer, Event, FolderId, RequestId};

use crate::clients::Operation;
use crate::data::{Key, Row, is_deleted};
use crate::faults::{Fault, FaultKind};
use crate::oracle::Excuses;
use crate::profile::Profile;
use crate::world::{Scheduled, World};

/// The outcome of a run.
pub struct Outcome {
    pub violations: Vec<String>,
    pub view_changes: u64,
    pub hours: f64,
    /// Numbers of rare steps that were taken.
    pub counts: BTreeMap<String, u64>,
}

/// Longest time until everything works again after the last fault.
const SETTLE_US: u64 = 150_000_000;

pub fn run(profile: Profile) -> Outcome {
    let mut world = World::new(profile);
    world.start_all();
    for _ in 0..world.profile.clients {
        world.add_client();
    }
    world.operator = world.clients.len();
    world.add_idle_client();
    world.schedule_faults();
    while world.now_us < world.profile.active_us && world.history.violations.is_empty() {
        world.run_until(world.now_us + 500_000);
        world.check_waiting();
        world.check_dead();
    }
    if world.history.violations.is_empty() {
        world.settle();
    }
    Outcome {
        view_changes: world.store.registry.view,
        hours: world.now_us as f64 / 3.6e9,
        violations: world.history.violations,
        counts: world.counts,
    }
}

impl World {
    /// Starts all instances on empty folders.
    pub fn start_all(&mut self) {
        for _ in 0..self.profile.nodes {
            let node = self.add_node();
            self.start_node(node);
            let delay_us = self.random.between(0, 100_000);
            self.after(delay_us, Scheduled::Tick(node));
        }
    }

    /// Nobody waits for ever: each request that a running process has read is answered in time.
    pub fn check_waiting(&mut self) {
        for (request, pending) in &self.pending {
            let node = &self.nodes[pending.node];
            let is_running = node.process.as_ref().is_some_and(|process| process.incarnation == pending.incarnation);
            if is_running
                && !node.is_frozen
                && self.now_us > pending.until_us.max(self.last_fault_us(pending.node) + 500_000)
            {
                let operation = self.history.attempts[request.0 as usize].operation;
                self.history.violations.push(format!(
                    "{} ms: {operation:?} waits for ever at {}",
                    self.now_us / 1_000,
                    pending.node
                ));
                return;
            }
        }
    }

    fn last_fault_us(&self, node: usize) -> u64 {
        self.faults.iter().filter(|(_, other)| *other == node).map(|(at_us, _)| *at_us).max().unwrap_or(0)
    }

    /// A folder that was killed or whose disk hangs leaves the view, if all others work.
    pub fn check_dead(&mut self) {
        let limit_us = (self.profile.grace_ms + 15_000) * 1_000;
        for node in 0..self.nodes.len() {
            let Some(since_us) = self.nodes[node].dead_since_us else { continue };
            let is_healthy = |other: &usize| {
                let host = &self.nodes[*other];
                host.process.is_some()
                    && !host.is_frozen
                    && !host.is_hung
                    && host.has_mongo
                    && host.config.has_address
                    && self.store.registry.active.contains(&host.folder)
            };
            let others: Vec<usize> =
                (0..self.nodes.len()).filter(|other| *other != node && !self.nodes[*other].is_gone).collect();
            let last_us = self.faults.iter().filter(|(_, other)| *other != node).map(|(at_us, _)| *at_us).max();
            let calm_us = self.now_us.saturating_sub(since_us.max(last_us.unwrap_or(0)));
            let is_calm = self.cuts.is_empty()
                && !others.is_empty()
                && others.iter().all(is_healthy)
                && !self.profile.has_mixed_versions;
            if is_calm && calm_us > limit_us && self.store.registry.active.contains(&self.nodes[node].folder) {
                self.history.violations.push(format!("{} ms: {node} is dead and in the view", self.now_us / 1_000));
            }
        }
    }

    /// Ends all faults.
    fn heal(&mut self) {
        self.is_healed = true;
        self.cuts.clear();
        self.profile.loss_per_mille = 0;
        self.profile.delay_per_mille = 0;
        self.profile.unknown_per_mille = 0;
        for node in 0..self.nodes.len() {
            self.nodes[node].has_mongo = true;
            self.nodes[node].is_slow = false;
            if self.nodes[node].is_frozen {
                self.thaw(node);
            }
            self.unhang(node);
            if self.profile.has_mixed_versions && !self.nodes[node].is_draining {
                self.kill_node(node);
                self.nodes[node].config = self.profile.final_config();
            }
            let fault = Fault { kind: FaultKind::Kill { loses_disk: false }, node, other: node };
            self.after(10_000, Scheduled::EndFault(fault));
        }
    }

    /// Waits until everything works again, then judges what is stored and answered.
    fn settle(&mut self) {
        self.heal();
        let begin_us = self.now_us;
        let mut queries: Vec<(usize, RequestId)> = Vec::new();
        let mut problem = String::new();
        while self.now_us < begin_us + SETTLE_US && self.history.violations.is_empty() {
            self.run_until(self.now_us + 500_000);
            self.check_waiting();
            let gone: Vec<_> = self
                .store
                .registry
                .entries
                .iter()
                .map(|entry| entry.opening)
                .filter(|opening| self.is_lost(opening.folder))
                .collect();
            if let Some(opening) = gone.first() {
                problem = format!("{opening:?} is not given up");
                let node = self.random.index(self.nodes.len());
                if !self.nodes[node].is_gone {
                    self.ask(self.operator, node, Operation::Retire(*opening));
                }
                continue;
            }
            // A leaver that was started again does not know that it was leaving.
            for node in (0..self.nodes.len()).filter(|node| self.nodes[*node].is_draining).collect::<Vec<_>>() {
                self.handle(node, Event::Drain);
            }
            if let Some(found) = self.unsettled() {
                problem = found;
                queries.clear();
                continue;
            }
            if queries.is_empty() {
                for node in self.living() {
                    self.add_idle_client();
                    let client = self.clients.len() - 1;
                    queries.push((node, self.ask(client, node, Operation::Query { may_be_incomplete: true })));
                }
                self.run_until(self.now_us + 3_000_000);
            }
            problem = "some queries are not answered without a notice".to_owned();
            let is_complete = |request: &RequestId| {
                let answer = &self.history.attempts[request.0 as usize].answer;
                matches!(answer, Some(ClientAnswer::Rows { missing, .. }) if missing.is_empty())
            };
            if queries.iter().all(|(_, request)| is_complete(request)) {
                return self.judge_store();
            }
            queries.clear();
        }
        if self.history.violations.is_empty() {
            self.history.violations.push(format!("never settled: {problem}"));
        }
    }

    fn is_lost(&self, folder: FolderId) -> bool {
        self.nodes.iter().any(|node| node.folder == folder && node.is_gone)
    }

    fn living(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|node| !self.nodes[*node].is_gone && !self.nodes[*node].is_draining).collect()
    }

    /// Returns something that does not work yet.
    fn unsettled(&self) -> Option<String> {
        for index in 0..self.nodes.len() {
            let node = &self.nodes[index];
            if node.is_gone {
                continue;
            }
            if node.is_draining {
                return Some(format!("{index} does not leave"));
            }
            let Some(process) = &node.process else { return Some(format!("{index} does not run")) };
            if !process.instance.may_ack() || !self.store.registry.active.contains(&node.folder) {
                return Some(format!("{index} is not active: {:?}", self.store.registry));
            }
            if !node.disk.wal.is_empty() || !process.memtable.is_empty() {
                return Some(format!("{index} has unflushed readings"));
            }
        }
        let is_living = |folder: &FolderId| self.nodes.iter().any(|node| node.folder == *folder && !node.is_gone);
        if !self.store.registry.active.iter().all(is_living) {
            return Some(format!("dead folders in the view: {:?}", self.store.registry.active));
        }
        if self.store.registry.deletions.iter().any(|deletion| !deletion.is_known) {
            return Some("a deletion is not known".to_owned());
        }
        (!self.pending.is_empty()).then(|| "requests are under way".to_owned())
    }

    fn judge_store(&mut self) {
        let deletions = &self.store.registry.deletions;
        let rows: BTreeMap<Key, Row> =
            self.store.rows().into_iter().filter(|row| !is_deleted(deletions, row)).map(|row| (row.key, row)).collect();
        let excuses = Excuses { at_us: u64::MAX, ..Excuses::default() };
        self.history.judge_rows(&rows, &excuses, "store");
    }
}
