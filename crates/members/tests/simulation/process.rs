//! A process around the core: carries out actions, flushes, and reads requests.

use hourglass_members::{Ack, Action, Batch, ClientAnswer, Event, KeyRow, RequestId, StopReason, partition};

use crate::clients::{ClientEvent, Operation};
use crate::data::{Row, encode, statement};
use crate::faults::{Fault, FaultKind};
use crate::profile::Mistake;
use crate::world::{Command, Message, Pending, Scheduled, World};

impl World {
    pub fn process(&mut self, node: usize, message: Message) {
        match message {
            Message::Core(event) => self.handle(node, event),
            Message::Synced => self.end_sync(node),
            Message::Request(request) => self.read_request(node, request),
            Message::ReadMemory(question) => self.read_memory(node, question),
            Message::Page { sensor, page } => match page {
                Some(page) => {
                    let (page, rows) = self.nodes[node].merge(sensor, page);
                    self.ask_store(node, Command::WritePage { sensor, page, rows });
                }
                None => self.end_flush(node),
            },
            Message::PageWritten { sensor, rows, is_written } => self.on_page_written(node, sensor, &rows, is_written),
            Message::Swept { is_done: true, .. } => self.handle(node, Event::Swept),
            Message::Swept { deletion, .. } => self.ask_store(node, Command::Sweep(deletion)),
            Message::Append(append) => {
                if let Some(process) = self.nodes[node].process.as_mut().filter(|process| process.instance.may_ack()) {
                    process.queue.push_back(append);
                }
                self.begin_sync(node);
            }
        }
    }

    /// Gives an event to the core and carries out what follows.
    pub fn handle(&mut self, node: usize, event: Event) {
        let now = self.nodes[node].now(self.now_us);
        let Some(process) = &mut self.nodes[node].process else { return };
        let incarnation = process.incarnation;
        let actions = process.instance.handle(now, event);
        for action in actions {
            let is_alive = self.nodes[node].process.as_ref().is_some_and(|process| process.incarnation == incarnation);
            if !is_alive {
                return;
            }
            self.act(node, action);
        }
    }

    fn act(&mut self, node: usize, action: Action) {
        self.trace(|| format!("{node} {action:?}"));
        self.count_action(&action);
        let mistake = self.profile.mistake;
        match action {
            Action::Send { to, frame } => self.send(node, to, frame),
            Action::Sweep(deletion) => self.ask_store(node, Command::Sweep(deletion)),
            Action::ReadRegistry => self.ask_store(node, Command::ReadRegistry),
            Action::WriteRegistry(document) => self.ask_store(node, Command::WriteRegistry(document)),
            Action::Append(mut append) => {
                match mistake {
                    Some(Mistake::NoNotAfter) => append.not_after = None,
                    Some(Mistake::NoAbove) => append.above = None,
                    Some(Mistake::NoDeadline) => append.expires_boot_ms = None,
                    Some(Mistake::ProbeWithoutSync) if append.record.is_none() => {
                        return self.skip_sync(node, append.id);
                    }
                    _ => {}
                }
                if let Some(process) = &mut self.nodes[node].process {
                    process.queue.push_back(append);
                }
                self.begin_sync(node);
            }
            Action::UpsertKey { request, key, row } => self.ask_store(node, Command::UpsertKey { request, key, row }),
            Action::Split { request, base_ms } => self.split(node, request, base_ms),
            Action::AnswerFromMemory { question, .. } => {
                let delay_us = self.random.between(0, 10_000);
                let incarnation = self.nodes[node].process.as_ref().map(|process| process.incarnation);
                let message = Message::ReadMemory(question);
                self.after(delay_us, Scheduled::ToNode { node, incarnation, message });
            }
            Action::AskStore { request } => self.ask_store(node, Command::Snapshot(request)),
            Action::Answer { request, answer } => self.answer_client(node, request, answer),
            Action::MarkJoined => self.nodes[node].disk.is_joined = true,
            Action::RemoveJoined => self.nodes[node].disk.is_joined = false,
            Action::FlushAll => {
                if let Some(process) = &mut self.nodes[node].process {
                    process.is_flushing_all = true;
                    process.next_flush_us = 0;
                }
                if mistake == Some(Mistake::ClosedBeforeFlush) {
                    self.handle(node, Event::FlushedAll);
                }
            }
            Action::Stop(reason) => {
                self.kill_node(node);
                if reason == StopReason::Closed && self.nodes[node].is_draining {
                    self.nodes[node].is_gone = true;
                } else {
                    let delay_us = self.random.between(200_000, 8_000_000);
                    let fault = Fault { kind: FaultKind::Kill { loses_disk: false }, node, other: node };
                    self.after(delay_us, Scheduled::EndFault(fault));
                }
            }
        }
    }

    /// Reads a client's request from its socket.
    fn read_request(&mut self, node: usize, request: RequestId) {
        let now = self.nodes[node].now(self.now_us);
        let attempt = &mut self.history.attempts[request.0 as usize];
        attempt.read_us = Some(self.now_us);
        let operation = attempt.operation;
        let ack_timeout_ms = self.nodes[node].config.ack_timeout_ms;
        let Some(process) = &mut self.nodes[node].process else { return };
        self.history.attempts[request.0 as usize].reader = process.incarnation;
        let wait_ms = match operation {
            Operation::Write(write) if self.history.writes[write].ack == Ack::Logged => 2_000,
            Operation::Write(_) => ack_timeout_ms,
            _ => 10_000,
        };
        let until_us = self.now_us + (wait_ms + 500) * 1_000;
        self.pending.insert(request, Pending { node, incarnation: process.incarnation, until_us });
        if self.profile.mistake == Some(Mistake::StoreFirst) && matches!(operation, Operation::Query { .. }) {
            process.snapshots.insert(request, self.store.snapshot());
        }
        let event = match operation {
            Operation::Write(write) if self.history.writes[write].is_keyed => {
                let row = KeyRow { body_hash: write as u64, base_ms: now.wall_ms };
                Event::KeyedWrite { request, read_boot_ms: now.boot_ms, key: write as u64, row }
            }
            Operation::Write(_) => return self.split(node, request, 0),
            Operation::Delete(delete) => {
                Event::Delete { request, statement: statement(self.history.deletes[delete].sensor) }
            }
            Operation::Query { may_be_incomplete } => {
                Event::Query { request, question: encode(&[]), may_be_incomplete }
            }
            Operation::Retire(opening) => Event::Retire { request, opening },
        };
        self.handle(node, event);
    }

    /// Splits a write into batches by partition.
    fn split(&mut self, node: usize, request: RequestId, base_ms: u64) {
        let attempt = &self.history.attempts[request.0 as usize];
        let Operation::Write(id) = attempt.operation else { return };
        let read_us = attempt.read_us.unwrap_or(self.now_us);
        let read_boot_ms = self.nodes[node].now(read_us).boot_ms;
        let write = &self.history.writes[id];
        let mut batches: Vec<Batch> = Vec::new();
        for key in &write.keys {
            let time = if write.is_keyed { base_ms } else { key.1 };
            let row = Row { key: (key.0, time), stamp: Default::default(), value: id as u64 };
            let records = encode(&[row]);
            batches.push(Batch { partition: partition("d", &key.0.to_le_bytes()), records });
        }
        self.handle(node, Event::Write { request, read_boot_ms, ack: write.ack, batches });
    }

    fn answer_client(&mut self, node: usize, request: RequestId, answer: ClientAnswer) {
        if self.pending.remove(&request).is_none() {
            self.history.violations.push(format!("request {request:?} was answered twice, or not read"));
        }
        self.note_answer(node, request, &answer);
        let client = self.history.attempts[request.0 as usize].client;
        // Some answers get lost on their way.
        if !self.random.is_hit(20) || self.is_healed {
            let delay_us = self.random.between(200, 3_000);
            self.after(delay_us, Scheduled::Client(client, ClientEvent::Answer { request, answer }));
        }
    }

    pub fn tick(&mut self, node: usize) {
        if self.nodes[node].is_gone {
            return;
        }
        let delay_us = self.random.between(60_000, 100_000);
        self.after(delay_us, Scheduled::Tick(node));
        let now_us = self.now_us;
        let host = &mut self.nodes[node];
        let Some(process) = host.process.as_mut().filter(|_| !host.is_frozen) else { return };
        host.disk.truncate(&[], process.instance.deletions());
        let watermark = host.disk.watermark().unwrap_or(host.disk.synced_stamp);
        let is_replayed = now_us >= process.replayed_at_us;
        let questions = if is_replayed { std::mem::take(&mut process.questions) } else { Vec::new() };
        let is_flushed = host.disk.wal.is_empty() && process.queue.is_empty() && process.syncing.is_none();
        let is_done = process.is_flushing_all && is_flushed && process.flush.is_none();
        self.handle(node, Event::Watermark(watermark));
        for question in questions {
            self.read_memory(node, question);
        }
        if is_done {
            self.handle(node, Event::FlushedAll);
        }
        self.handle(node, Event::Tick);
        self.begin_flush(node);
        self.begin_sync(node);
    }

    fn begin_flush(&mut self, node: usize) {
        let now_us = self.now_us;
        let Some(process) = &mut self.nodes[node].process else { return };
        let is_due = now_us >= process.next_flush_us && now_us >= process.replayed_at_us;
        if !is_due || process.flush.is_some() || process.instance.registry().is_none() {
            return;
        }
        let mut sensors: Vec<u64> = process.memtable.keys().map(|key| key.0).collect();
        sensors.dedup();
        process.flush = Some(sensors);
        self.flush_next(node);
    }

    fn flush_next(&mut self, node: usize) {
        let Some(process) = &mut self.nodes[node].process else { return };
        match process.flush.as_mut().and_then(Vec::pop) {
            Some(sensor) => self.ask_store(node, Command::ReadPage(sensor)),
            None => self.end_flush(node),
        }
    }

    fn end_flush(&mut self, node: usize) {
        let pause_us = self.random.between(100_000, self.profile.flush_us);
        if let Some(process) = &mut self.nodes[node].process {
            process.flush = None;
            process.next_flush_us = self.now_us + if process.is_flushing_all { 50_000 } else { pause_us };
        }
    }

    fn on_page_written(&mut self, node: usize, sensor: u64, rows: &[Row], is_written: Option<bool>) {
        match is_written {
            Some(true) => {
                for append in self.nodes[node].forget(rows) {
                    self.handle(node, Event::Stored { append });
                }
                self.flush_next(node);
            }
            // Another writer was first, so read and merge again.
            Some(false) => self.ask_store(node, Command::ReadPage(sensor)),
            None => self.end_flush(node),
        }
    }
}
