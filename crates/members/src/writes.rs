//! The receiver's side of a write: parts to owners, repeats, strays and the deadline.

use std::collections::BTreeMap;

use crate::events::{Ack, Batch, ClientAnswer, FrameBody, Part, PartAnswer, Record, RequestId};
use crate::instance::{AppendBounds, Instance};
use crate::parts::Purpose;
use crate::registry::{FolderId, Opening};
use crate::stamp::Stamp;

/// The place of one batch of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Not sent, or known not to be logged. To be placed from this time on.
    Unplaced { from_boot_ms: u64 },
    /// Sent under this number. Perhaps logged.
    Sent { number: u64 },
    /// In this instance's WAL queue.
    Queued,
    /// Logged somewhere.
    Logged,
    /// Stored.
    Stored,
}

/// One batch of a request.
#[derive(Clone, Debug)]
struct Piece {
    batch: Batch,
    place: Place,
    /// Set if an owner may have logged the batch with a stamp up to this one.
    above: Option<Stamp>,
    /// Number of refusals as late.
    late_count: u32,
    /// True if no owner is to be asked again.
    is_stray: bool,
}

/// A write that was not answered yet.
#[derive(Clone, Debug)]
struct Write {
    deadline_ms: u64,
    stored_deadline_ms: u64,
    ack: Ack,
    pieces: Vec<Piece>,
    rejected: Vec<u32>,
}

/// A part without an answer.
#[derive(Clone, Copy, Debug)]
struct Sent {
    to: Opening,
    request: RequestId,
    index: usize,
    bytes: usize,
    not_after: Stamp,
    /// Time at which `not_after` has passed on the boot clock.
    passed_boot_ms: u64,
}

/// The client writes of this instance.
#[derive(Clone, Debug, Default)]
pub(crate) struct Writes {
    writes: BTreeMap<RequestId, Write>,
    sent: BTreeMap<u64, Sent>,
    /// Bytes that wait for the answers of a folder.
    bytes: BTreeMap<FolderId, usize>,
    /// Logged parts that are to be stored, by number.
    unstored: BTreeMap<u64, (FolderId, RequestId, usize)>,
}

impl Writes {
    fn piece_mut(&mut self, request: RequestId, index: usize) -> Option<&mut Piece> {
        self.writes.get_mut(&request)?.pieces.get_mut(index)
    }

    /// Removes a part that waits for an answer, and its bytes.
    fn take_sent(&mut self, number: u64) -> Option<Sent> {
        let sent = self.sent.remove(&number)?;
        if let Some(bytes) = self.bytes.get_mut(&sent.to.folder) {
            *bytes -= sent.bytes;
        }
        Some(sent)
    }
}

impl Instance {
    pub(crate) fn on_write(&mut self, request: RequestId, read_boot_ms: u64, ack: Ack, batches: Vec<Batch>) {
        let deadline_ms = read_boot_ms + self.config.request_timeout_ms;
        let is_full = self.writes.writes.len() >= self.config.requests_max;
        if is_full || !self.may_ack() || self.now.boot_ms >= deadline_ms {
            return self.answer(request, ClientAnswer::Unavailable);
        }
        let place = Place::Unplaced { from_boot_ms: 0 };
        let piece = |batch| Piece { batch, place, above: None, late_count: 0, is_stray: false };
        let write = Write {
            deadline_ms,
            stored_deadline_ms: read_boot_ms + self.config.ack_timeout_ms,
            ack,
            pieces: batches.into_iter().map(piece).collect(),
            rejected: Vec::new(),
        };
        self.writes.writes.insert(request, write);
        self.place_pieces(request);
        self.finish_write(request);
    }

    /// Places all batches of a request that are due.
    fn place_pieces(&mut self, request: RequestId) {
        let boot_ms = self.now.boot_ms;
        let Some(write) = self.writes.writes.get(&request) else { return };
        let is_due = |piece: &Piece| matches!(piece.place, Place::Unplaced { from_boot_ms } if boot_ms >= from_boot_ms);
        let due: Vec<usize> = (0..write.pieces.len()).filter(|index| is_due(&write.pieces[*index])).collect();
        for index in due {
            self.place_piece(request, index);
        }
    }

    /// Hands a batch to its owner, or takes it if there is none that can be asked.
    fn place_piece(&mut self, request: RequestId, index: usize) {
        let own = self.opening.folder;
        let Some(write) = self.writes.writes.get(&request) else { return };
        let deadline_ms = write.deadline_ms;
        let ack = write.ack;
        let piece = write.pieces[index].clone();
        let owner = self.owners.owner(piece.batch.partition).filter(|owner| *owner != own && !piece.is_stray);
        let peer = owner.and_then(|owner| self.peers.by_folder.get(&owner));
        let Some(peer) = peer.filter(|peer| peer.version.is_some() && !peer.is_silent) else {
            return self.take_piece(request, index, deadline_ms);
        };
        let to = peer.opening;
        let bytes = piece.batch.records.len();
        let waiting = self.writes.bytes.entry(to.folder).or_default();
        // A slow owner slows its own sensors only. One batch may always wait.
        if *waiting > 0 && *waiting + bytes > self.config.peer_bytes_max {
            return;
        }
        *waiting += bytes;
        let left_ms = deadline_ms.saturating_sub(self.now.boot_ms).min(self.config.not_after_ms);
        let greatest = self.clock.greatest(self.now);
        let not_after = Stamp::from_ms(greatest.ms() + left_ms);
        let number = self.number();
        let passed_boot_ms = self.now.boot_ms + left_ms;
        self.writes.sent.insert(number, Sent { to, request, index, bytes, not_after, passed_boot_ms });
        if let Some(piece) = self.writes.piece_mut(request, index) {
            piece.place = Place::Sent { number };
        }
        let part = Part { number, records: piece.batch.records, ack, not_after };
        self.send(to.folder, Some(to), FrameBody::Part(part));
    }

    /// Appends a batch to this instance's WAL: its own, or a stray.
    fn take_piece(&mut self, request: RequestId, index: usize, deadline_ms: u64) {
        let Some(write) = self.writes.writes.get(&request) else { return };
        let piece = &write.pieces[index];
        let record = Record::Readings(piece.batch.records.clone());
        let bounds = AppendBounds { above: piece.above, not_after: None, expires_boot_ms: Some(deadline_ms) };
        let purpose = Purpose::Own { request, index, ack: write.ack };
        if self.append(purpose, Some(record), bounds)
            && let Some(piece) = self.writes.piece_mut(request, index)
        {
            piece.place = Place::Queued;
        }
    }

    pub(crate) fn on_part_answer(&mut self, from: Opening, number: u64, answer: PartAnswer) {
        if answer == PartAnswer::Stored {
            if let Some((folder, request, index)) = self.writes.unstored.get(&number).copied()
                && folder == from.folder
            {
                self.on_part_stored(request, index);
            }
            return;
        }
        if self.writes.sent.get(&number).is_none_or(|sent| sent.to != from) {
            return;
        }
        let Some(Sent { request, index, .. }) = self.writes.take_sent(number) else { return };
        if matches!(answer, PartAnswer::Logged { .. }) {
            self.peers.mark_reached(self.now.boot_ms, from.folder);
        }
        let now_ms = self.now.boot_ms;
        let busy_pause_ms = self.config.busy_pause_ms;
        // Once the batch is taken as a stray, an answer must not ack it: the stray may get a stamp above a correction.
        let Some(piece) = self.writes.piece_mut(request, index) else { return };
        if piece.place != (Place::Sent { number }) {
            return;
        }
        match answer {
            PartAnswer::Logged { rejected } => {
                piece.place = Place::Logged;
                self.writes.unstored.insert(number, (from.folder, request, index));
                self.on_logged(request, rejected);
            }
            PartAnswer::Late => {
                // The clock was raised by the frame. A second refusal means that the clocks are far apart.
                piece.late_count += 1;
                piece.is_stray |= piece.late_count >= 2;
                piece.place = Place::Unplaced { from_boot_ms: 0 };
                self.place_pieces(request);
            }
            PartAnswer::Refused => {
                piece.is_stray = true;
                piece.place = Place::Unplaced { from_boot_ms: 0 };
                self.place_pieces(request);
            }
            PartAnswer::Busy => piece.place = Place::Unplaced { from_boot_ms: now_ms + busy_pause_ms },
            PartAnswer::Stored => {}
        }
    }

    pub(crate) fn on_own_logged(&mut self, request: RequestId, index: usize, rejected: Vec<u32>) {
        if let Some(piece) = self.writes.piece_mut(request, index) {
            piece.place = Place::Logged;
            self.on_logged(request, rejected);
        }
    }

    fn on_logged(&mut self, request: RequestId, rejected: Vec<u32>) {
        if let Some(write) = self.writes.writes.get_mut(&request) {
            write.rejected.extend(rejected);
        }
        self.finish_write(request);
    }

    pub(crate) fn on_part_stored(&mut self, request: RequestId, index: usize) {
        if let Some(piece) = self.writes.piece_mut(request, index) {
            piece.place = Place::Stored;
            self.finish_write(request);
        }
    }

    /// Answers a request if all its batches are where the client wants them.
    fn finish_write(&mut self, request: RequestId) {
        let Some(write) = self.writes.writes.get(&request) else { return };
        let is_done = |piece: &Piece| match write.ack {
            Ack::Logged => matches!(piece.place, Place::Logged | Place::Stored),
            Ack::Stored => piece.place == Place::Stored,
        };
        if write.pieces.iter().all(is_done) {
            let mut rejected = write.rejected.clone();
            rejected.sort_unstable();
            self.end_write(request, ClientAnswer::Acked { rejected });
        }
    }

    /// Answers a request and forgets it. Nothing is sent, repeated or stamped for it from now on.
    pub(crate) fn end_write(&mut self, request: RequestId, answer: ClientAnswer) {
        self.writes.writes.remove(&request);
        self.writes.unstored.retain(|_, (_, other, _)| *other != request);
        self.answer(request, answer);
    }

    pub(crate) fn tick_writes(&mut self) {
        let boot_ms = self.now.boot_ms;
        let passed: Vec<u64> = self
            .writes
            .sent
            .iter()
            .filter(|(_, sent)| boot_ms > sent.passed_boot_ms)
            .map(|(number, _)| *number)
            .collect();
        for number in passed {
            let Some(sent) = self.writes.take_sent(number) else { continue };
            self.peers.mark_silent(sent.to);
            if let Some(piece) = self.writes.piece_mut(sent.request, sent.index) {
                piece.above = piece.above.max(Some(sent.not_after));
                piece.is_stray = true;
                piece.place = Place::Unplaced { from_boot_ms: 0 };
            }
        }
        let requests: Vec<RequestId> = self.writes.writes.keys().copied().collect();
        for request in requests {
            let Some(write) = self.writes.writes.get(&request) else { continue };
            let is_logged = write.pieces.iter().all(|piece| matches!(piece.place, Place::Logged | Place::Stored));
            let deadline_ms = if is_logged { write.stored_deadline_ms } else { write.deadline_ms };
            if boot_ms >= deadline_ms {
                self.end_write(request, ClientAnswer::Unavailable);
            } else {
                self.place_pieces(request);
            }
        }
    }

    /// Answers all requests at a stop.
    pub(crate) fn fail_requests(&mut self) {
        let requests: Vec<RequestId> = self.writes.writes.keys().copied().collect();
        for request in requests {
            self.end_write(request, ClientAnswer::Unavailable);
        }
    }
}
