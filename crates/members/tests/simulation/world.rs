//! Virtual time: events in order, and what each does.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use hourglass_members::{
    AppendOutcome, ClientAnswer, Deletion, Event, FolderId, Frame, FrameBody, KeyRow, OwnerTable, QuestionId, Registry,
    RequestId, Stamp,
};

use crate::clients::{Client, ClientEvent};
use crate::data::{Row, encode};
use crate::faults::Fault;
use crate::node::Node;
use crate::oracle::History;
use crate::profile::{Mistake, Profile};
use crate::random::Random;
use crate::store::{Page, Store};

/// An input of a process.
#[derive(Clone)]
pub enum Message {
    Core(Event),
    Synced,
    Request(RequestId),
    ReadMemory(QuestionId),
    Page {
        sensor: u64,
        page: Option<Page>,
    },
    PageWritten {
        sensor: u64,
        rows: Vec<Row>,
        is_written: Option<bool>,
    },
    Swept {
        deletion: Deletion,
        is_done: bool,
    },
    /// A copy of a part that bypasses the core (a seeded mistake).
    Append(hourglass_members::Append),
}

/// A command for the store.
#[derive(Clone)]
pub enum Command {
    ReadRegistry,
    WriteRegistry(Arc<Registry>),
    UpsertKey { request: RequestId, key: u64, row: KeyRow },
    Snapshot(RequestId),
    Sweep(Deletion),
    ReadPage(u64),
    WritePage { sensor: u64, page: Page, rows: Vec<Row> },
}

pub enum Scheduled {
    Tick(usize),
    ToNode {
        node: usize,
        incarnation: Option<u64>,
        message: Message,
    },
    AtStore {
        node: usize,
        incarnation: u64,
        command: Command,
    },
    Client(usize, ClientEvent),
    Fault(Fault),
    EndFault(Fault),
    /// The operator gives up a node that is still away.
    Retire(usize),
}

/// A request that a process has read and not answered.
pub struct Pending {
    pub node: usize,
    pub incarnation: u64,
    pub until_us: u64,
}

pub struct World {
    pub profile: Profile,
    pub random: Random,
    pub now_us: u64,
    sequence: u64,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    scheduled: BTreeMap<u64, Scheduled>,
    pub nodes: Vec<Node>,
    pub store: Store,
    pub clients: Vec<Client>,
    pub history: History,
    pub pending: BTreeMap<RequestId, Pending>,
    pub cuts: BTreeMap<(FolderId, FolderId), u32>,
    /// Time of the last delivery of a connection, and its number.
    connections: BTreeMap<(FolderId, FolderId, bool), u64>,
    pub incarnations: u64,
    /// Time of the last begin or end of a fault, and its node.
    pub faults: Vec<(u64, usize)>,
    pub is_healed: bool,
    /// Folders that the operator gave up, with the time when they were listed again.
    pub given_up: BTreeMap<FolderId, Option<u64>>,
    pub counts: BTreeMap<String, u64>,
    pub operator: usize,
    last_seen: BTreeMap<FolderId, u64>,
}

impl World {
    pub fn new(profile: Profile) -> Self {
        let random = Random::new(profile.seed);
        Self {
            profile,
            random,
            now_us: 0,
            sequence: 0,
            queue: BinaryHeap::new(),
            scheduled: BTreeMap::new(),
            nodes: Vec::new(),
            store: Store::default(),
            clients: Vec::new(),
            history: History::default(),
            pending: BTreeMap::new(),
            cuts: BTreeMap::new(),
            connections: BTreeMap::new(),
            incarnations: 0,
            faults: Vec::new(),
            is_healed: false,
            given_up: BTreeMap::new(),
            counts: BTreeMap::new(),
            operator: 0,
            last_seen: BTreeMap::new(),
        }
    }

    pub fn count(&mut self, name: &str) {
        *self.counts.entry(name.to_owned()).or_default() += 1;
    }

    /// Notes which folders were given up by others, and which came back.
    fn note_given_up(&mut self, writer: usize, before: &Registry) {
        for (index, node) in self.nodes.iter().enumerate() {
            let entry = self.store.registry.entry(node.folder);
            let is_listed = entry.is_some();
            if self.given_up.contains_key(&node.folder) || entry.is_some_and(|entry| !entry.holds_floor) {
                self.history.late_folders.insert(node.folder);
            }
            if is_listed {
                if let Some(listed_us) = self.given_up.get_mut(&node.folder) {
                    listed_us.get_or_insert(self.now_us);
                }
            } else if index != writer && before.entry(node.folder).is_some() && self.history.is_retired(node.folder) {
                self.given_up.insert(node.folder, None);
            }
        }
    }

    /// Prints a line if the run is traced.
    pub fn trace(&self, line: impl FnOnce() -> String) {
        if self.profile.is_traced {
            println!("{:>10.3} {}", self.now_us as f64 / 1_000.0, line());
        }
    }

    pub fn after(&mut self, delay_us: u64, scheduled: Scheduled) {
        self.sequence += 1;
        self.queue.push(Reverse((self.now_us + delay_us, self.sequence)));
        self.scheduled.insert(self.sequence, scheduled);
    }

    /// Runs until a time.
    pub fn run_until(&mut self, until_us: u64) {
        while let Some(Reverse((at_us, sequence))) = self.queue.peek().copied() {
            if at_us > until_us {
                break;
            }
            self.queue.pop();
            self.now_us = at_us;
            if let Some(scheduled) = self.scheduled.remove(&sequence) {
                self.run(scheduled);
            }
        }
        self.now_us = until_us;
    }

    fn run(&mut self, scheduled: Scheduled) {
        match scheduled {
            Scheduled::Tick(node) => self.tick(node),
            Scheduled::ToNode { node, incarnation, message } => self.deliver(node, incarnation, message),
            Scheduled::AtStore { node, incarnation, command } => self.at_store(node, incarnation, command),
            Scheduled::Client(client, event) => self.run_client(client, event),
            Scheduled::Fault(fault) => self.begin_fault(fault),
            Scheduled::EndFault(fault) => self.end_fault(fault),
            Scheduled::Retire(node) => self.retire(node),
        }
    }

    /// Gives a message to a process now, or keeps it in the socket of a frozen one.
    pub fn deliver(&mut self, node: usize, incarnation: Option<u64>, message: Message) {
        let host = &mut self.nodes[node];
        let current = host.process.as_ref().map(|process| process.incarnation);
        if current.is_none() || incarnation.is_some() && incarnation != current {
            if let Message::Request(request) = message {
                self.refuse(request);
            }
            return;
        }
        if host.is_frozen {
            host.inbox.push((incarnation, message));
            return;
        }
        self.process(node, message);
    }

    /// Tells a client that its connection was refused or lost.
    pub fn refuse(&mut self, request: RequestId) {
        let client = self.history.attempts[request.0 as usize].client;
        let delay_us = self.random.between(200, 3_000);
        let event = ClientEvent::Answer { request, answer: ClientAnswer::Unavailable };
        self.after(delay_us, Scheduled::Client(client, event));
    }

    pub fn thaw(&mut self, node: usize) {
        self.nodes[node].is_frozen = false;
        for (incarnation, message) in std::mem::take(&mut self.nodes[node].inbox) {
            self.deliver(node, incarnation, message);
        }
        self.begin_sync(node);
    }

    pub fn start_node(&mut self, node: usize) {
        if self.nodes[node].process.is_some() || self.nodes[node].is_gone {
            return;
        }
        self.incarnations += 1;
        let replay_us = self.random.between(0, 1_500_000);
        let incarnation = self.incarnations;
        self.nodes[node].start(self.now_us, incarnation, replay_us);
        self.nodes[node].dead_since_us = None;
    }

    /// Ends a process. What was not synced may or may not be on the disk.
    pub fn kill_node(&mut self, node: usize) {
        let Some(process) = self.nodes[node].process.take() else { return };
        let wal = &mut self.nodes[node].disk.wal;
        let first = wal.iter().position(|record| !record.is_synced).unwrap_or(wal.len());
        let kept = self.random.between(first as u64, wal.len() as u64) as usize;
        wal.truncate(kept);
        let last = wal.last().map_or(Stamp::ZERO, |record| record.stamp);
        let disk = &mut self.nodes[node].disk;
        disk.last_stamp = last.max(disk.synced_stamp);
        self.nodes[node].is_frozen = false;
        self.nodes[node].dead_since_us = Some(self.now_us);
        for (incarnation, message) in std::mem::take(&mut self.nodes[node].inbox) {
            self.deliver(node, incarnation, message);
        }
        let lost: Vec<RequestId> = self
            .pending
            .iter()
            .filter(|(_, pending)| pending.incarnation == process.incarnation)
            .map(|(request, _)| *request)
            .collect();
        for request in lost {
            self.pending.remove(&request);
            self.refuse(request);
        }
    }

    /// Sends a frame through the network.
    pub fn send(&mut self, from: usize, to: FolderId, frame: Frame) {
        let Some(target) = self.nodes.iter().position(|node| node.folder == to) else { return };
        let source = self.nodes[from].folder;
        if self.cuts.contains_key(&(source, to)) || self.random.is_hit(self.profile.loss_per_mille) {
            return;
        }
        let is_question = matches!(frame.body, FrameBody::Question { .. } | FrameBody::Answer { .. });
        let mut delay_us = self.random.between(200, 4_000);
        if self.random.is_hit(self.profile.delay_per_mille) {
            delay_us = self.random.between(4_000, 4_000_000);
        }
        // One connection keeps its order. A new one may overtake the frames of the old one.
        let last = self.connections.entry((source, to, is_question)).or_default();
        if self.random.is_hit(3) {
            *last = 0;
        }
        let at_us = (self.now_us + delay_us).max(*last);
        *last = at_us;
        if self.random.is_hit(self.profile.duplicate_per_mille) {
            self.duplicate(target, &frame);
        }
        let message = Message::Core(Event::Frame(frame));
        self.after(at_us - self.now_us, Scheduled::ToNode { node: target, incarnation: None, message });
    }

    fn duplicate(&mut self, target: usize, frame: &Frame) {
        let delay_us = self.random.between(200, 1_500_000);
        let mut message = Message::Core(Event::Frame(frame.clone()));
        if let FrameBody::Part(part) = &frame.body
            && self.profile.mistake == Some(Mistake::RepeatedNumbers)
        {
            message = Message::Append(hourglass_members::Append {
                id: hourglass_members::AppendId(u64::MAX),
                record: Some(hourglass_members::Record::Readings(part.records.clone())),
                above: None,
                not_after: Some(part.not_after),
                expires_boot_ms: None,
                reports_stored: false,
                origin: hourglass_members::Origin::Part,
            });
        }
        self.after(delay_us, Scheduled::ToNode { node: target, incarnation: None, message });
    }

    pub fn ask_store(&mut self, node: usize, command: Command) {
        let Some(process) = &self.nodes[node].process else { return };
        let incarnation = process.incarnation;
        let delay_us = self.random.between(300, 5_000);
        self.after(delay_us, Scheduled::AtStore { node, incarnation, command });
    }

    fn at_store(&mut self, node: usize, incarnation: u64, command: Command) {
        // A command that was sent takes effect even if its sender has died since.
        let is_reached = self.nodes[node].has_mongo;
        let is_answered = is_reached && !self.random.is_hit(self.profile.unknown_per_mille);
        let is_registry = matches!(command, Command::ReadRegistry | Command::WriteRegistry(_));
        let is_slow = is_registry && self.random.is_hit(self.profile.slow_registry_per_mille);
        let message = match command {
            Command::ReadRegistry => {
                let registry = is_answered.then(|| self.registry_for_core());
                Message::Core(Event::RegistryRead(registry))
            }
            Command::WriteRegistry(document) => {
                let before = self.store.registry.clone();
                let is_written = is_reached && self.store.write_registry(&document);
                self.note_given_up(node, &before);
                Message::Core(Event::RegistryWritten { is_written: is_written && is_answered })
            }
            Command::UpsertKey { request, key, row } => {
                let row = is_reached.then(|| *self.key_rows(node, key).entry(key).or_insert(row));
                Message::Core(Event::KeyAnswer { request, row: row.filter(|_| is_answered) })
            }
            Command::Snapshot(request) => {
                let early = self.nodes[node].process.as_mut().and_then(|process| process.snapshots.remove(&request));
                let answer = is_answered.then(|| early.unwrap_or_else(|| self.store.snapshot()));
                Message::Core(Event::StoreAnswer { request, answer })
            }
            Command::Sweep(deletion) => {
                if is_reached {
                    self.store.sweep(&deletion);
                }
                Message::Swept { deletion, is_done: is_answered }
            }
            Command::ReadPage(sensor) => {
                let page = is_answered.then(|| self.store.pages.get(&sensor).cloned().unwrap_or_default());
                Message::Page { sensor, page }
            }
            Command::WritePage { sensor, page, rows } => {
                let is_written = is_reached && self.store.write_page(sensor, page);
                Message::PageWritten { sensor, rows, is_written: is_answered.then_some(is_written) }
            }
        };
        let delay_us = if is_answered && !is_slow {
            self.random.between(300, 5_000)
        } else {
            self.random.between(300_000, 1_000_000)
        };
        self.after(delay_us, Scheduled::ToNode { node, incarnation: Some(incarnation), message });
    }

    /// Returns the registry as the processes read it.
    fn registry_for_core(&mut self) -> Arc<Registry> {
        let registry = self.store.registry.clone();
        if self.profile.mistake != Some(Mistake::NoticeEnds) {
            return registry;
        }
        let mut document = (*registry).clone();
        for entry in &registry.entries {
            let seen = self.last_seen.entry(entry.opening.folder).or_insert(self.now_us);
            let is_alive = self.nodes.iter().any(|node| node.folder == entry.opening.folder && node.process.is_some());
            if is_alive {
                *seen = self.now_us;
            }
            if self.now_us > *seen + 12_000_000 {
                document.remove_entry(entry.opening.folder);
            }
        }
        Arc::new(document)
    }

    /// Returns the collection of request keys.
    fn key_rows(&mut self, node: usize, key: u64) -> &mut BTreeMap<u64, KeyRow> {
        if self.profile.mistake != Some(Mistake::KeysAtOwner) {
            return &mut self.store.keys;
        }
        let own = self.nodes[node].folder;
        let owner = OwnerTable::new(&self.store.registry.active).owner((key % 16_384) as u16).unwrap_or(own);
        let is_reached = |other: &Node| other.process.is_some() && !other.is_frozen;
        let found = self.nodes.iter().position(|other| other.folder == owner && is_reached(other));
        let is_cut = self.cuts.contains_key(&(own, owner)) || self.cuts.contains_key(&(owner, own));
        let keeper = found.filter(|_| !is_cut).unwrap_or(node);
        &mut self.nodes[keeper].keys
    }

    /// Answers a question from the memtable, as soon as the replay is over.
    pub fn read_memory(&mut self, node: usize, question: QuestionId) {
        let now_us = self.now_us;
        let Some(process) = &mut self.nodes[node].process else { return };
        if now_us < process.replayed_at_us {
            process.questions.push(question);
            return;
        }
        let rows = process.memtable.iter().map(|(key, (stamp, value))| Row { key: *key, stamp: *stamp, value: *value });
        let answer = encode(&rows.collect::<Vec<_>>());
        self.handle(node, Event::MemoryAnswer { question, answer });
    }

    pub fn begin_sync(&mut self, node: usize) {
        let mut written = Vec::new();
        if self.nodes[node].begin_sync(self.now_us, &mut written) {
            let folder = self.nodes[node].folder;
            self.history.note_copies(folder, &written);
            let floor = self.store.registry.floor;
            // What was given up, or was silent until the horizon, may fill gaps only.
            let entry = self.store.registry.entry(folder);
            let is_excused = self.given_up.contains_key(&folder) || entry.is_some_and(|entry| !entry.holds_floor);
            if written.iter().any(|row| row.stamp <= floor) && !is_excused {
                self.history.violations.push(format!("{} ms: {node} stamps below the floor", self.now_us / 1_000));
            }
            let delay_us = if self.nodes[node].is_slow {
                self.random.between(2_000, 1_800_000)
            } else {
                self.random.between(500, 4_000)
            };
            let incarnation = self.nodes[node].process.as_ref().map(|process| process.incarnation);
            self.after(delay_us, Scheduled::ToNode { node, incarnation, message: Message::Synced });
        }
    }

    pub fn end_sync(&mut self, node: usize) {
        if self.nodes[node].is_hung {
            if let Some(process) = &mut self.nodes[node].process {
                process.is_sync_due = true;
            }
            return;
        }
        let unsynced = self.nodes[node].disk.wal.iter().filter(|record| !record.is_synced);
        let rows: Vec<Row> = unsynced.flat_map(|record| record.rows.clone()).collect();
        let folder = self.nodes[node].folder;
        self.history.note_synced(self.now_us, folder, &rows);
        for (append, outcome) in self.nodes[node].end_sync() {
            self.handle(node, Event::Appended { append, outcome });
        }
        self.begin_sync(node);
    }

    /// Answers an append that needs no sync (a seeded mistake).
    pub fn skip_sync(&mut self, node: usize, append: hourglass_members::AppendId) {
        let outcome = AppendOutcome::Synced { stamp: hourglass_members::Stamp::ZERO, rejected: Vec::new() };
        self.handle(node, Event::Appended { append, outcome });
    }
}
