//! The owner's side of a write, and the ends of all appends.

use std::collections::BTreeMap;

use crate::events::{
    Ack, AppendId, AppendOutcome, ClientAnswer, FrameBody, Origin, Part, PartAnswer, Record, RequestId,
};
use crate::instance::{AppendBounds, Instance};
use crate::registry::{FolderId, Opening, Payload};

/// The reason of an append.
#[derive(Clone, Debug)]
pub(crate) enum Purpose {
    /// A part of a client's request to this instance.
    Own { request: RequestId, index: usize, ack: Ack },
    /// A part of another receiver.
    Part { from: Opening, version: u16, number: u64, ack: Ack },
    /// Another instance's probe.
    Probe { from: Opening, version: u16, number: u64 },
    /// The clock itself, so that an idle WAL's watermark grows.
    Mark,
    /// A client's deletion.
    Deletion { request: RequestId, statement: Payload },
}

impl Purpose {
    pub(crate) fn origin(&self) -> Origin {
        match self {
            Self::Own { request, index, .. } => Origin::Own { request: *request, index: *index },
            Self::Part { .. } => Origin::Part,
            Self::Probe { .. } => Origin::Probe,
            Self::Mark => Origin::Mark,
            Self::Deletion { .. } => Origin::Deletion,
        }
    }

    pub(crate) fn reports_stored(&self) -> bool {
        matches!(self, Self::Own { ack: Ack::Stored, .. } | Self::Part { ack: Ack::Stored, .. })
    }
}

/// The appends under way, and the parts seen so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parts {
    /// Appends that are not synced yet.
    pub(crate) appends: BTreeMap<AppendId, Purpose>,
    /// Synced appends that somebody wants stored.
    unstored: BTreeMap<AppendId, Purpose>,
    /// For each folder its latest opening and that one's greatest part number.
    seen: BTreeMap<FolderId, (Opening, u64)>,
}

impl Parts {
    /// Returns true if a part was not seen before, and remembers it. Numbers grow, so one per folder is enough.
    fn is_new(&mut self, from: Opening, number: u64) -> bool {
        let seen = self.seen.entry(from.folder).or_insert((from, 0));
        if (from, number) <= *seen {
            return false;
        }
        *seen = (from, number);
        true
    }
}

impl Instance {
    pub(crate) fn on_part(&mut self, from: Opening, version: u16, part: Part) {
        let Part { number, records, ack, not_after } = part;
        let refuse = |answer| FrameBody::PartAnswer { number, answer };
        if !self.makes_room_for(from.folder) {
            return self.reply(from, version, refuse(PartAnswer::Refused));
        }
        // A copy that was delivered twice. The first one is answered.
        if !self.parts.is_new(from, number) {
            return;
        }
        if !self.takes_parts() {
            return self.reply(from, version, refuse(PartAnswer::Refused));
        }
        let is_crowded = ack == Ack::Stored && self.parts.unstored.len() >= self.config.appends_max;
        let purpose = Purpose::Part { from, version, number, ack };
        let bounds = AppendBounds { not_after: Some(not_after), ..AppendBounds::default() };
        if is_crowded || !self.append(purpose, Some(Record::Readings(records)), bounds) {
            self.reply(from, version, refuse(PartAnswer::Busy));
        }
    }

    /// Returns true if the part numbers of a folder can be remembered. Folders without an entry make room.
    fn makes_room_for(&mut self, folder: FolderId) -> bool {
        let seen = &mut self.parts.seen;
        if seen.len() >= self.config.folders_max && !seen.contains_key(&folder) {
            let registry = &self.registry;
            seen.retain(|known, _| registry.as_ref().is_some_and(|registry| registry.entry(*known).is_some()));
        }
        seen.len() < self.config.folders_max || seen.contains_key(&folder)
    }

    pub(crate) fn on_probe(&mut self, from: Opening, version: u16, number: u64) {
        // Without room the probe stays unanswered, as behind a hung disk.
        self.append(Purpose::Probe { from, version, number }, None, AppendBounds::default());
    }

    pub(crate) fn on_appended(&mut self, append: AppendId, outcome: AppendOutcome) {
        let Some(purpose) = self.parts.appends.remove(&append) else { return };
        let reports_stored = purpose.reports_stored();
        match (purpose.clone(), outcome) {
            (Purpose::Own { request, index, .. }, AppendOutcome::Synced { rejected, .. }) => {
                self.on_own_logged(request, index, rejected);
            }
            (Purpose::Part { from, version, number, .. }, AppendOutcome::Synced { rejected, .. }) => {
                let answer = PartAnswer::Logged { rejected };
                self.reply(from, version, FrameBody::PartAnswer { number, answer });
            }
            (Purpose::Part { from, version, number, .. }, AppendOutcome::Late) => {
                return self.reply(from, version, FrameBody::PartAnswer { number, answer: PartAnswer::Late });
            }
            (Purpose::Part { from, version, number, .. }, AppendOutcome::Refused) => {
                return self.reply(from, version, FrameBody::PartAnswer { number, answer: PartAnswer::Refused });
            }
            (Purpose::Own { request, .. }, AppendOutcome::Refused | AppendOutcome::Unknown) => {
                return self.end_write(request, ClientAnswer::Unavailable);
            }
            // Without a sync the probe stays unanswered.
            (Purpose::Probe { .. }, AppendOutcome::Refused | AppendOutcome::Unknown) => return,
            (Purpose::Probe { from, version, number }, _) => {
                self.reply(from, version, FrameBody::ProbeAnswer { number });
            }
            (Purpose::Deletion { request, statement }, AppendOutcome::Synced { stamp, .. }) => {
                self.on_deletion_logged(request, stamp, statement);
            }
            (Purpose::Mark, _) => {}
            // The request has been answered at its deadline, or the receiver takes the owner for silent.
            (_, _) => return,
        }
        if reports_stored {
            self.parts.unstored.insert(append, purpose);
        }
    }

    pub(crate) fn on_stored(&mut self, append: AppendId) {
        match self.parts.unstored.remove(&append) {
            Some(Purpose::Own { request, index, .. }) => self.on_part_stored(request, index),
            Some(Purpose::Part { from, version, number, .. }) => {
                self.reply(from, version, FrameBody::PartAnswer { number, answer: PartAnswer::Stored });
            }
            _ => {}
        }
    }
}
