//! Join, leave, and the removal of dead instances from the view.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::events::{Action, ClientAnswer, RequestId, StopReason};
use crate::instance::{AppendBounds, BeatWait, Instance};
use crate::partitions::OwnerTable;
use crate::parts::Purpose;
use crate::registry::{Entry, FolderId, Opening, Registry};
use crate::stamp::Stamp;

/// The steps of a join.
#[derive(Clone, Debug)]
enum Phase {
    /// The registry has no entry yet.
    Starting,
    /// Others may not know the entry yet.
    Registering(BeatWait),
    /// All others know the entry, so a query finds what this opening acks.
    Member,
}

/// The steps of a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leave {
    Staying,
    /// Asked to leave the view.
    Draining,
    /// Not in the view any more; parts still come from those that do not know.
    Left {
        since_ms: u64,
    },
    /// Nothing new is taken.
    Flushing,
    /// All is stored, so the entry may be closed.
    Flushed,
}

/// The access to the registry that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Idle,
    Reading { since_ms: u64 },
    Writing { read_ms: u64 },
}

/// This opening's place in the registry.
#[derive(Clone, Debug)]
pub(crate) struct Membership {
    phase: Phase,
    leave: Leave,
    was_joined: bool,
    access: Access,
    next_read_ms: u64,
    /// The document that is being written.
    written: Option<Arc<Registry>>,
    pub(crate) watermark: Stamp,
    /// The operator's command, the opening to give up, and the deadline.
    retire: Option<(RequestId, Opening, u64)>,
}

impl Membership {
    pub(crate) fn new(was_joined: bool, watermark: Stamp) -> Self {
        Self {
            phase: Phase::Starting,
            leave: Leave::Staying,
            was_joined,
            access: Access::Idle,
            next_read_ms: 0,
            written: None,
            watermark,
            retire: None,
        }
    }

    pub(crate) fn begin_read(&mut self, boot_ms: u64) {
        self.access = Access::Reading { since_ms: boot_ms };
    }

    /// Asks for a read of the registry as soon as possible.
    pub(crate) fn hurry(&mut self) {
        self.next_read_ms = 0;
    }
}

impl Instance {
    /// Returns true if this opening may promise anything to clients.
    pub fn may_ack(&self) -> bool {
        let is_member = matches!(self.membership.phase, Phase::Member) || self.membership.was_joined;
        is_member && !self.is_stopping()
    }

    /// Returns true if the entry is about to be closed, or is.
    pub(crate) fn is_closing(&self) -> bool {
        self.membership.leave == Leave::Flushed
    }

    fn is_stopping(&self) -> bool {
        matches!(self.membership.leave, Leave::Flushing | Leave::Flushed)
    }

    /// Returns true if this opening takes the parts of others.
    pub(crate) fn takes_parts(&self) -> bool {
        let is_active = self.registry.as_ref().is_none_or(|registry| registry.active.contains(&self.opening.folder));
        match self.membership.leave {
            Leave::Staying | Leave::Draining => self.may_ack() && is_active,
            Leave::Left { since_ms } => self.now.boot_ms < since_ms + self.config.leave_ms,
            Leave::Flushing | Leave::Flushed => false,
        }
    }

    pub(crate) fn tick_membership(&mut self) {
        let boot_ms = self.now.boot_ms;
        if self.membership.access == Access::Idle && boot_ms >= self.membership.next_read_ms {
            self.membership.access = Access::Reading { since_ms: boot_ms };
            self.act(Action::ReadRegistry);
            // A watermark is never above the last stamp on the disk: the next start may have a clock that nobody raised.
            if !self.parts.appends.values().any(|purpose| matches!(purpose, Purpose::Mark)) {
                self.append(Purpose::Mark, None, AppendBounds::default());
            }
        }
        if let Some((request, _, deadline_ms)) = self.membership.retire
            && boot_ms >= deadline_ms
        {
            self.membership.retire = None;
            self.answer(request, ClientAnswer::Unavailable);
        }
        if let Leave::Left { since_ms } = self.membership.leave
            && boot_ms >= since_ms + self.config.leave_ms
        {
            self.begin_flush();
        }
    }

    pub(crate) fn on_registry_read(&mut self, registry: Option<Arc<Registry>>) {
        let Access::Reading { since_ms } = self.membership.access else { return };
        self.membership.access = Access::Idle;
        self.membership.next_read_ms = since_ms + self.config.registry_ms;
        let Some(registry) = registry else { return };
        self.observer.observe(self.now.boot_ms, &self.config, &registry);
        if !self.install(registry.clone(), since_ms) {
            return;
        }
        let document = Arc::new(self.next_document(&registry));
        self.membership.access = Access::Writing { read_ms: since_ms };
        self.membership.written = Some(document.clone());
        self.act(Action::WriteRegistry(document));
    }

    pub(crate) fn on_registry_written(&mut self, is_written: bool) {
        let Access::Writing { read_ms } = self.membership.access else { return };
        self.membership.access = Access::Idle;
        let document = self.membership.written.take();
        if !is_written {
            // Somebody else wrote, or nobody knows: the next read tells. The pause differs between folders.
            self.membership.next_read_ms = self.now.boot_ms + 5 + self.opening.folder.0 % 16;
            return;
        }
        if let Some(document) = document {
            self.observer.observe(self.now.boot_ms, &self.config, &document);
            self.install(document, read_ms);
        }
    }

    /// Makes a document the known one and follows all that it says. Returns false if this opening is over.
    fn install(&mut self, registry: Arc<Registry>, read_ms: u64) -> bool {
        let boot_ms = self.now.boot_ms;
        let is_listed = registry.entry(self.opening.folder).is_some_and(|entry| entry.opening == self.opening);
        let is_replaced = registry.entry(self.opening.folder).is_some_and(|entry| entry.opening > self.opening);
        let is_started = !matches!(self.membership.phase, Phase::Starting);
        let is_closed = self.membership.leave == Leave::Flushed && registry.entry(self.opening.folder).is_none();
        if is_replaced || is_closed || is_started && !is_listed {
            // Whoever was given up must register before it acks again.
            self.act(Action::RemoveJoined);
            self.act(Action::Stop(if is_closed { StopReason::Closed } else { StopReason::EntryGone }));
            return false;
        }
        if !is_started && self.membership.was_joined && registry.entry(self.opening.folder).is_none() {
            // The folder was given up while it was down. No query asks it before others know the new entry.
            self.membership.was_joined = false;
            self.act(Action::RemoveJoined);
        }
        let is_new_view = self.registry.as_ref().is_none_or(|known| known.view != registry.view);
        if is_new_view {
            self.owners = OwnerTable::new(&registry.active);
        }
        self.clock.raise_to_floor(registry.floor);
        for deletion in &registry.deletions {
            self.clock.hear(self.now, deletion.stamp.next());
        }
        self.peers.update(boot_ms, &self.config, self.opening.folder, &registry);
        self.registry = Some(registry.clone());
        self.registry_read_ms = read_ms;
        if !is_started && is_listed {
            self.membership.phase = Phase::Registering(BeatWait::new(boot_ms, self.opening, &registry));
        }
        if let Phase::Registering(wait) = &self.membership.phase
            && wait.is_over(boot_ms, &self.config, &registry)
        {
            self.membership.phase = Phase::Member;
            if !self.is_stopping() {
                self.act(Action::MarkJoined);
            }
        }
        if self.membership.leave == Leave::Draining && !registry.active.contains(&self.opening.folder) {
            self.membership.leave = Leave::Left { since_ms: boot_ms };
        }
        self.finish_retire(&registry);
        self.follow_deletions(&registry);
        self.continue_queries();
        true
    }

    /// Returns the document with this opening's changes.
    fn next_document(&mut self, registry: &Registry) -> Registry {
        let mut document = registry.clone();
        document.rev += 1;
        let own = self.opening;
        let mut watermark = self.membership.watermark;
        if let Some(entry) = document.entry(own.folder)
            && entry.opening < own
        {
            watermark = watermark.min(entry.watermark);
            document.remove_entry(own.folder);
        }
        let suspects = self.peers.suspects(self.now.boot_ms, &self.config, &document);
        match document.entry_mut(own.folder) {
            Some(entry) => {
                entry.beat += 1;
                entry.watermark = watermark;
                entry.suspects = suspects;
                entry.holds_floor = true;
            }
            None => document.entries.push(Entry {
                opening: own,
                watermark,
                beat: 1,
                has_address: self.config.has_address,
                protocol: self.config.protocol,
                suspects,
                holds_floor: true,
            }),
        }
        self.add_deletions(&mut document);
        self.change_view(&mut document);
        self.give_up_retired(&mut document);
        for entry in document.entries.iter_mut().filter(|entry| entry.opening != own) {
            entry.holds_floor &= !self.observer.has_stood(self.now.boot_ms, entry.opening, self.config.horizon_ms);
        }
        if self.membership.leave == Leave::Flushed {
            document.remove_entry(own.folder);
        }
        document.raise_floor();
        document
    }

    /// Enters or leaves the view, and removes the dead from it.
    fn change_view(&self, document: &mut Registry) {
        let own = self.opening.folder;
        let mut active = document.active.clone();
        match self.membership.leave {
            Leave::Staying if self.may_join(document) => {
                active.insert(own);
            }
            Leave::Draining => {
                active.remove(&own);
            }
            _ => {}
        }
        if document.active.contains(&own) {
            active.retain(|folder| *folder == own || !self.should_remove(document, *folder));
        }
        document.set_active(active);
    }

    /// Returns true if this opening is known to all and reached by all.
    fn may_join(&self, document: &Registry) -> bool {
        let is_member = matches!(self.membership.phase, Phase::Member);
        is_member && self.config.has_address && !self.is_suspected(document, self.opening)
    }

    fn has_moving_beat(&self, opening: Opening) -> bool {
        opening == self.opening || self.observer.is_moving(self.now.boot_ms, &self.config, opening)
    }

    fn is_suspected(&self, document: &Registry, opening: Opening) -> bool {
        let mut others = document.entries.iter().filter(|entry| entry.opening != opening);
        others.any(|entry| entry.suspects.contains(&opening) && self.has_moving_beat(entry.opening))
    }

    /// Returns true if a folder is dead and this opening has the least id of those that may remove it.
    fn should_remove(&self, document: &Registry, folder: FolderId) -> bool {
        let boot_ms = self.now.boot_ms;
        let grace_ms = self.config.grace_ms;
        let own = self.opening;
        let is_candidate = |entry: &&Entry| {
            let other = entry.opening;
            document.active.contains(&other.folder) && other.folder != folder && self.has_moving_beat(other)
        };
        let candidates: BTreeSet<Opening> =
            document.entries.iter().filter(is_candidate).map(|entry| entry.opening).collect();
        let is_least = |openings: &BTreeSet<Opening>| openings.first() == Some(&own);
        let Some(entry) = document.entry(folder) else {
            return self.observer.is_absent(boot_ms, folder, grace_ms) && is_least(&candidates);
        };
        if self.observer.has_stood(boot_ms, entry.opening, grace_ms) {
            return is_least(&candidates);
        }
        let is_suspecting = |other: &&Entry| {
            other.opening.folder != folder
                && other.suspects.contains(&entry.opening)
                && self.has_moving_beat(other.opening)
        };
        let suspecting: BTreeSet<Opening> =
            document.entries.iter().filter(is_suspecting).map(|other| other.opening).collect();
        let is_only_other = document.active.iter().all(|active| *active == folder || *active == own.folder);
        let is_agreed = suspecting.contains(&own) && (suspecting.len() >= 2 || is_only_other);
        let reached_ms = self.peers.by_folder.get(&folder).map_or(boot_ms, |peer| peer.reached_ms);
        let removers: BTreeSet<Opening> = suspecting.intersection(&candidates).copied().collect();
        is_agreed && boot_ms >= reached_ms + grace_ms && is_least(&removers)
    }

    pub(crate) fn on_terminate(&mut self) {
        if !self.is_stopping() {
            self.begin_flush();
        }
    }

    pub(crate) fn on_drain(&mut self) {
        if self.membership.leave == Leave::Staying {
            self.membership.leave = Leave::Draining;
            self.membership.hurry();
        }
    }

    fn begin_flush(&mut self) {
        self.membership.leave = Leave::Flushing;
        self.fail_requests();
        self.act(Action::FlushAll);
    }

    pub(crate) fn on_flushed_all(&mut self) {
        if self.membership.leave == Leave::Flushing {
            self.membership.leave = Leave::Flushed;
            // Before the entry is closed: the next start must not ack without one.
            self.act(Action::RemoveJoined);
            self.fail_queries();
            self.membership.hurry();
        }
    }

    /// Begins to give up an opening. Only one at a time.
    pub(crate) fn on_retire(&mut self, request: RequestId, opening: Opening) {
        if self.membership.retire.is_some() {
            return self.answer(request, ClientAnswer::Unavailable);
        }
        let deadline_ms = self.now.boot_ms + self.config.query_timeout_ms;
        self.membership.retire = Some((request, opening, deadline_ms));
        self.membership.hurry();
    }

    /// Removes the entry of the opening that the operator gives up. Refuses while it is alive.
    fn give_up_retired(&mut self, document: &mut Registry) {
        let Some((request, opening, _)) = self.membership.retire else { return };
        let Some(entry) = document.entry(opening.folder).filter(|entry| entry.opening == opening) else { return };
        let is_reached = |other: &Entry| {
            other.opening != opening && self.has_moving_beat(other.opening) && !other.suspects.contains(&opening)
        };
        let reaches_peers = entry.has_address && document.entries.iter().any(is_reached);
        let has_stood = self.observer.has_stood(self.now.boot_ms, opening, self.config.query_grace_ms);
        if !has_stood || reaches_peers {
            self.membership.retire = None;
            return self.answer(request, ClientAnswer::StillAlive);
        }
        document.remove_entry(opening.folder);
        let mut active = document.active.clone();
        active.remove(&opening.folder);
        document.set_active(active);
    }

    fn finish_retire(&mut self, registry: &Registry) {
        if let Some((request, opening, _)) = self.membership.retire
            && !registry.entries.iter().any(|entry| entry.opening == opening)
        {
            self.membership.retire = None;
            self.answer(request, ClientAnswer::Done);
        }
    }
}
