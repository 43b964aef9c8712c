//! The state machine of one opening: dispatch of events, and what all parts share.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::config::Config;
use crate::deletions::Deletions;
use crate::events::{Action, Append, AppendId, ClientAnswer, Event, Frame, FrameBody, Record, RequestId};
use crate::keys::Keys;
use crate::membership::Membership;
use crate::observer::Observer;
use crate::partitions::{OwnerTable, PARTITIONS};
use crate::parts::{Parts, Purpose};
use crate::peers::Peers;
use crate::queries::Queries;
use crate::registry::{Deletion, FolderId, Opening, Registry};
use crate::stamp::{Now, Stamp, StampClock};
use crate::writes::Writes;

/// The state that a folder gives to its next opening.
#[derive(Clone, Debug)]
pub struct Start {
    /// The opening.
    pub opening: Opening,
    /// True if the last opening was a member and did not close, so that this one may ack at once.
    pub was_joined: bool,
    /// The last stamp of the WAL.
    pub last_stamp: Stamp,
    /// A stamp below all that is not stored.
    pub watermark: Stamp,
    /// Logged deletions that the registry may not remember.
    pub deletions: Vec<Deletion>,
    /// Random bits of the stamps.
    pub random: u8,
}

/// One opening. It does nothing by itself: each event returns the actions that follow.
#[derive(Clone, Debug)]
pub struct Instance {
    pub(crate) config: Config,
    pub(crate) opening: Opening,
    pub(crate) now: Now,
    pub(crate) clock: StampClock,
    /// The last known registry, and the time when its read began.
    pub(crate) registry: Option<Arc<Registry>>,
    pub(crate) registry_read_ms: u64,
    pub(crate) owners: OwnerTable,
    pub(crate) membership: Membership,
    pub(crate) observer: Observer,
    pub(crate) peers: Peers,
    pub(crate) writes: Writes,
    pub(crate) parts: Parts,
    pub(crate) queries: Queries,
    pub(crate) deletions: Deletions,
    pub(crate) keys: Keys,
    next_number: u64,
    out: Vec<Action>,
}

impl Instance {
    /// Opens a folder.
    pub fn new(config: Config, start: Start, now: Now) -> Self {
        Self {
            clock: StampClock::new(start.last_stamp, start.random, config.lead_max_ms),
            config,
            opening: start.opening,
            now,
            registry: None,
            registry_read_ms: 0,
            owners: OwnerTable::default(),
            membership: Membership::new(start.was_joined, start.watermark),
            observer: Observer::default(),
            peers: Peers::default(),
            writes: Writes::default(),
            parts: Parts::default(),
            queries: Queries::default(),
            deletions: Deletions::new(start.deletions),
            keys: Keys::default(),
            next_number: 1,
            out: Vec::new(),
        }
    }

    /// Returns the opening.
    pub fn opening(&self) -> Opening {
        self.opening
    }

    /// Returns the last known registry.
    pub fn registry(&self) -> Option<&Arc<Registry>> {
        self.registry.as_ref()
    }

    /// Returns the deletions that hide stored and unflushed readings.
    pub fn deletions(&self) -> &[Deletion] {
        self.registry.as_ref().map_or(&[], |registry| &registry.deletions)
    }

    /// Returns the clock for the thread of the WAL.
    pub fn clock_mut(&mut self) -> &mut StampClock {
        &mut self.clock
    }

    /// Returns the owner of each partition; `None` without an instance in the view.
    pub fn owners(&mut self) -> Vec<Option<FolderId>> {
        (0..PARTITIONS as u16).map(|partition| self.owners.owner(partition)).collect()
    }

    /// Notes that a read of the registry begins now, asked for or not.
    pub fn begin_registry_read(&mut self, boot_ms: u64) {
        self.membership.begin_read(boot_ms);
    }

    /// Handles an event.
    pub fn handle(&mut self, now: Now, event: Event) -> Vec<Action> {
        let pause_ms = now.boot_ms.saturating_sub(self.now.boot_ms);
        self.now = now;
        if pause_ms > self.config.pause_ms {
            self.observer.restart(now.boot_ms);
            self.peers.forgive(pause_ms);
        }
        match event {
            Event::Tick => self.tick(),
            Event::Frame(frame) => self.on_frame(frame),
            Event::RegistryRead(registry) => self.on_registry_read(registry),
            Event::RegistryWritten { is_written } => self.on_registry_written(is_written),
            Event::Appended { append, outcome } => self.on_appended(append, outcome),
            Event::Stored { append } => self.on_stored(append),
            Event::Watermark(watermark) => self.membership.watermark = watermark,
            Event::FlushedAll => self.on_flushed_all(),
            Event::KeyedWrite { request, read_boot_ms, key, row } => {
                self.on_keyed_write(request, read_boot_ms, key, row)
            }
            Event::KeyAnswer { request, row } => self.on_key_answer(request, row),
            Event::Write { request, read_boot_ms, ack, batches } => self.on_write(request, read_boot_ms, ack, batches),
            Event::Delete { request, statement } => self.on_delete(request, statement),
            Event::Swept => self.on_swept(),
            Event::Query { request, question, may_be_incomplete } => {
                self.on_query(request, question, may_be_incomplete)
            }
            Event::MemoryAnswer { question, answer } => self.on_memory_answer(question, answer),
            Event::StoreAnswer { request, answer } => self.on_store_answer(request, answer),
            Event::Retire { request, opening } => self.on_retire(request, opening),
            Event::Terminate => self.on_terminate(),
            Event::Drain => self.on_drain(),
        }
        std::mem::take(&mut self.out)
    }

    fn tick(&mut self) {
        self.tick_membership();
        self.tick_probes();
        self.tick_keys();
        self.tick_writes();
        self.tick_deletions();
        self.tick_queries();
    }

    fn tick_probes(&mut self) {
        let number = self.number();
        for folder in self.peers.due_probes(self.now.boot_ms, &self.config, number) {
            self.send(folder, None, FrameBody::Probe { number });
        }
    }

    fn on_frame(&mut self, frame: Frame) {
        let is_spoken = (self.config.protocol.lowest..=self.config.protocol.highest).contains(&frame.version);
        let is_mine = frame.to.is_none_or(|opening| opening == self.opening);
        if !is_spoken || !is_mine || !self.config.has_address {
            return;
        }
        self.clock.hear(self.now, frame.greatest);
        self.peers.notice(frame.from);
        let from = frame.from;
        match frame.body {
            FrameBody::Part(part) => self.on_part(from, frame.version, part),
            FrameBody::PartAnswer { number, answer } => self.on_part_answer(from, number, answer),
            FrameBody::Probe { number } => self.on_probe(from, frame.version, number),
            FrameBody::ProbeAnswer { number } => self.peers.on_probe_answer(self.now.boot_ms, from, number),
            FrameBody::Question { number, question } => self.on_question(from, frame.version, number, question),
            FrameBody::Answer { number, answer } => self.on_peer_answer(from, number, answer),
        }
    }

    /// Returns the next number of a frame or an append.
    pub(crate) fn number(&mut self) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        number
    }

    pub(crate) fn act(&mut self, action: Action) {
        self.out.push(action);
    }

    pub(crate) fn answer(&mut self, request: RequestId, answer: ClientAnswer) {
        self.act(Action::Answer { request, answer });
    }

    /// Sends a frame to a peer if there is a version that both speak.
    pub(crate) fn send(&mut self, folder: FolderId, to: Option<Opening>, body: FrameBody) {
        if let Some(version) = self.peers.by_folder.get(&folder).and_then(|peer| peer.version) {
            self.send_version(folder, to, version, body);
        }
    }

    /// Answers a frame, in its version.
    pub(crate) fn reply(&mut self, to: Opening, version: u16, body: FrameBody) {
        self.send_version(to.folder, Some(to), version, body);
    }

    fn send_version(&mut self, folder: FolderId, to: Option<Opening>, version: u16, body: FrameBody) {
        let greatest = self.clock.greatest(self.now);
        let frame = Frame { from: self.opening, version, to, greatest, body };
        self.act(Action::Send { to: folder, frame });
    }

    /// Appends to the WAL. Returns false if its queue is full.
    pub(crate) fn append(&mut self, purpose: Purpose, record: Option<Record>, bounds: AppendBounds) -> bool {
        if self.parts.appends.len() >= self.config.appends_max {
            return false;
        }
        let id = AppendId(self.number());
        let reports_stored = purpose.reports_stored();
        let origin = purpose.origin();
        self.parts.appends.insert(id, purpose);
        let AppendBounds { above, not_after, expires_boot_ms } = bounds;
        self.act(Action::Append(Append { id, record, above, not_after, expires_boot_ms, reports_stored, origin }));
        true
    }
}

/// The bounds of an append, as in [`Append`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AppendBounds {
    pub(crate) above: Option<Stamp>,
    pub(crate) not_after: Option<Stamp>,
    pub(crate) expires_boot_ms: Option<u64>,
}

/// The beats of other openings at some moment. A beat that changes proves a read of the registry since then.
#[derive(Clone, Debug)]
pub(crate) struct BeatWait {
    since_ms: u64,
    beats: BTreeMap<Opening, u64>,
}

impl BeatWait {
    /// Begins to wait for all openings but one's own.
    pub(crate) fn new(boot_ms: u64, own: Opening, registry: &Registry) -> Self {
        let others = registry.entries.iter().filter(|entry| entry.opening != own);
        Self { since_ms: boot_ms, beats: others.map(|entry| (entry.opening, entry.beat)).collect() }
    }

    /// Returns true if each opening has beaten or closed since, or if the copies of the silent ones are too old to
    /// begin a question.
    pub(crate) fn is_over(&self, boot_ms: u64, config: &Config, registry: &Registry) -> bool {
        let is_open = |opening: &Opening, beat: u64| {
            registry.entries.iter().any(|entry| entry.opening == *opening && entry.beat == beat)
        };
        boot_ms >= self.since_ms + config.beat_wait_ms
            || !self.beats.iter().any(|(opening, beat)| is_open(opening, *beat))
    }
}
