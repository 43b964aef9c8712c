//! Deletions: logged, remembered in the registry, and answered once all openings know them. From then on merges may
//! remove what they cover, and a sweep ends them.

use std::collections::BTreeMap;

use crate::events::{Action, ClientAnswer, Record, RequestId};
use crate::instance::{AppendBounds, BeatWait, Instance};
use crate::parts::Purpose;
use crate::registry::{Deletion, Payload, Registry};
use crate::stamp::Stamp;

/// A logged deletion on its way.
#[derive(Clone, Debug)]
struct PendingDeletion {
    deletion: Deletion,
    /// `None` if it was replayed.
    request: Option<RequestId>,
    /// True once the registry remembers it.
    is_remembered: bool,
}

/// The deletions of this opening's WAL.
#[derive(Clone, Debug, Default)]
pub(crate) struct Deletions {
    pending: Vec<PendingDeletion>,
    /// Remembered deletions, of any opening, that may be unknown to others.
    unknown: Vec<(Deletion, BeatWait)>,
    /// The deletion that this opening sweeps, and true once that is done.
    sweep: Option<(Deletion, bool)>,
    /// Clients that wait, with their deadlines.
    waiting: BTreeMap<RequestId, u64>,
}

impl Deletions {
    /// Begins with the deletions that were replayed.
    pub(crate) fn new(replayed: Vec<Deletion>) -> Self {
        let pending = |deletion| PendingDeletion { deletion, request: None, is_remembered: false };
        Self { pending: replayed.into_iter().map(pending).collect(), ..Self::default() }
    }

    /// Returns the wait for the beats of all that may not know a deletion.
    fn wait(&self, deletion: &Deletion) -> Option<&BeatWait> {
        let found = self.unknown.iter().find(|(unknown, _)| unknown.is_same(deletion));
        found.map(|(_, wait)| wait)
    }
}

impl Instance {
    pub(crate) fn on_delete(&mut self, request: RequestId, statement: Payload) {
        let known = self.deletions().len() + self.deletions.pending.len() + self.deletions.waiting.len();
        let bounds = AppendBounds {
            expires_boot_ms: Some(self.now.boot_ms + self.config.request_timeout_ms),
            ..AppendBounds::default()
        };
        let purpose = Purpose::Deletion { request, statement: statement.clone() };
        let is_possible = self.may_ack() && self.registry.is_some() && known < self.config.deletions_max;
        if !is_possible || !self.append(purpose, Some(Record::Deletion(statement)), bounds) {
            return self.answer(request, ClientAnswer::Unavailable);
        }
        self.deletions.waiting.insert(request, self.now.boot_ms + self.config.deletion_timeout_ms);
    }

    pub(crate) fn on_deletion_logged(&mut self, request: RequestId, stamp: Stamp, statement: Payload) {
        self.deletions.pending.push(PendingDeletion {
            deletion: Deletion { stamp, statement, is_known: false },
            request: Some(request),
            is_remembered: false,
        });
        self.membership.hurry();
    }

    /// Adds the logged deletions to a document that is about to be written.
    pub(crate) fn add_deletions(&self, document: &mut Registry) {
        for pending in self.deletions.pending.iter().filter(|pending| !pending.is_remembered) {
            let is_known = document.deletions.iter().any(|deletion| deletion.is_same(&pending.deletion));
            if !is_known && document.deletions.len() < self.config.deletions_max {
                document.deletions.push(pending.deletion.clone());
            }
        }
        if let Some((swept, true)) = &self.deletions.sweep {
            document.deletions.retain(|deletion| !deletion.is_same(swept));
        }
        for deletion in document.deletions.iter_mut().filter(|deletion| !deletion.is_known) {
            let wait = self.deletions.wait(deletion);
            deletion.is_known = wait.is_some_and(|wait| self.is_over(wait));
        }
    }

    /// Sweeps one deletion that the floor has passed: no reading that it covers may still arrive. The least folder of the
    /// view does so.
    fn begin_sweep(&mut self, registry: &Registry) {
        if let Some((deletion, _)) = &self.deletions.sweep
            && !registry.deletions.iter().any(|known| known.is_same(deletion))
        {
            self.deletions.sweep = None;
        }
        let is_sweeper = registry.active.first() == Some(&self.opening.folder);
        if self.deletions.sweep.is_some() || !is_sweeper {
            return;
        }
        let passed = registry.deletions.iter().find(|deletion| deletion.is_known && deletion.stamp <= registry.floor);
        if let Some(deletion) = passed {
            self.deletions.sweep = Some((deletion.clone(), false));
            self.act(Action::Sweep(deletion.clone()));
        }
    }

    pub(crate) fn on_swept(&mut self) {
        if let Some((_, is_done)) = &mut self.deletions.sweep {
            *is_done = true;
        }
    }

    fn is_over(&self, wait: &BeatWait) -> bool {
        self.registry.as_ref().is_some_and(|registry| wait.is_over(self.now.boot_ms, &self.config, registry))
    }

    /// Begins to wait for others where the registry now remembers a deletion.
    pub(crate) fn follow_deletions(&mut self, registry: &Registry) {
        let is_unknown =
            |deletion: &Deletion| registry.deletions.iter().any(|known| known.is_same(deletion) && !known.is_known);
        self.deletions.unknown.retain(|(deletion, _)| is_unknown(deletion));
        for deletion in registry.deletions.iter().filter(|deletion| !deletion.is_known) {
            if self.deletions.wait(deletion).is_none() {
                let wait = BeatWait::new(self.now.boot_ms, self.opening, registry);
                self.deletions.unknown.push((deletion.clone(), wait));
            }
        }
        for pending in self.deletions.pending.iter_mut().filter(|pending| !pending.is_remembered) {
            pending.is_remembered = registry.deletions.iter().any(|known| known.is_same(&pending.deletion));
        }
        self.begin_sweep(registry);
        self.tick_deletions();
    }

    pub(crate) fn tick_deletions(&mut self) {
        let boot_ms = self.now.boot_ms;
        let mut answers = Vec::new();
        let mut pending = std::mem::take(&mut self.deletions.pending);
        pending.retain(|pending| {
            let wait = self.deletions.wait(&pending.deletion);
            let is_known = pending.is_remembered && wait.is_none_or(|wait| self.is_over(wait));
            if is_known {
                answers.extend(pending.request.map(|request| (request, ClientAnswer::Done)));
            }
            !is_known
        });
        self.deletions.pending = pending;
        // A logged deletion will be remembered and take effect, but its client is not told any more.
        let is_over = |deadline_ms: &u64| boot_ms >= *deadline_ms;
        let over = self.deletions.waiting.iter().filter(|(_, deadline_ms)| is_over(deadline_ms));
        answers.extend(over.map(|(request, _)| (*request, ClientAnswer::Unavailable)));
        for (request, answer) in answers {
            if self.deletions.waiting.remove(&request).is_some() {
                self.answer(request, answer);
            }
        }
    }
}
