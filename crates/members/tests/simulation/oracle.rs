//! All that happened, and the judgement of it.

use std::collections::{BTreeMap, BTreeSet};

use hourglass_members::{Ack, ClientAnswer, FolderId, Opening, Payload, RequestId};

use crate::clients::{KEYED, Operation};
use crate::data::{Key, Row, decode, is_deleted};
use crate::node::Node;
use crate::world::World;

/// One request of a client.
pub struct Attempt {
    pub client: usize,
    pub operation: Operation,
    pub sent_us: u64,
    /// The time when a process read it from its socket.
    pub read_us: Option<u64>,
    /// The process that read it.
    pub reader: u64,
    /// The time of the ack.
    pub acked_us: Option<u64>,
    pub answer: Option<ClientAnswer>,
}

impl Attempt {
    pub fn new(client: usize, operation: Operation, sent_us: u64) -> Self {
        Self { client, operation, sent_us, read_us: None, reader: 0, acked_us: None, answer: None }
    }

    /// Returns the time after which nothing is stamped for this attempt. A request that lies unread in the socket of a
    /// frozen process counts as written when it is read.
    fn end_us(&self) -> u64 {
        self.acked_us.unwrap_or_else(|| self.read_us.map_or(0, |read_us| read_us + 2_000_000))
    }
}

pub struct Write {
    pub keys: Vec<Key>,
    pub ack: Ack,
    pub is_keyed: bool,
    pub attempts: Vec<usize>,
    /// The folders that logged each key.
    pub copies: BTreeMap<Key, BTreeSet<FolderId>>,
    /// The folders that synced each key, and when.
    pub synced: BTreeMap<Key, BTreeMap<FolderId, u64>>,
    /// True if a lost disk had the only copy.
    pub is_lost: bool,
}

impl Write {
    pub fn new(keys: Vec<Key>, ack: Ack, is_keyed: bool) -> Self {
        Self {
            keys,
            ack,
            is_keyed,
            attempts: Vec::new(),
            copies: BTreeMap::new(),
            synced: BTreeMap::new(),
            is_lost: false,
        }
    }
}

#[derive(Default)]
pub struct Delete {
    pub sensor: u64,
    pub attempts: Vec<usize>,
}

/// The readings that an answer need not contain.
#[derive(Default)]
pub struct Excuses {
    /// The time of the question.
    pub at_us: u64,
    /// The folders in the notice.
    pub missing: BTreeSet<FolderId>,
    /// Folders that the operator gave up, with the time when they were listed again.
    pub given_up: BTreeMap<FolderId, Option<u64>>,
}

impl Excuses {
    /// Returns true if a reading that was acked from a folder may be missing. After a registration all others know the
    /// entry 2.5 s later.
    fn covers(&self, folder: &FolderId, acked_us: u64) -> bool {
        let is_given_up = |listed_us: &Option<u64>| {
            listed_us.is_none_or(|listed_us| acked_us <= listed_us && self.at_us < listed_us + 2_600_000)
        };
        self.missing.contains(folder) || self.given_up.get(folder).is_some_and(is_given_up)
    }
}

#[derive(Default)]
pub struct History {
    pub attempts: Vec<Attempt>,
    pub writes: Vec<Write>,
    pub deletes: Vec<Delete>,
    by_key: BTreeMap<Key, Vec<usize>>,
    pub violations: Vec<String>,
    /// Folders that ever ceased to hold the floor.
    pub late_folders: BTreeSet<FolderId>,
    /// Greatest distance between two clocks so far.
    pub tolerance_us: u64,
}

/// The first ack of a write or a deletion.
#[derive(Clone, Copy)]
struct FirstAck {
    sent_us: u64,
    acked_us: u64,
    /// The process that acked it.
    reader: u64,
}

impl History {
    pub fn add_write(&mut self, write: Write) {
        let id = self.writes.len();
        write.keys.iter().for_each(|key| self.by_key.entry(*key).or_default().push(id));
        self.writes.push(write);
    }

    pub fn add_attempt(&mut self, attempt: Attempt) {
        let index = self.attempts.len();
        match attempt.operation {
            Operation::Write(write) => self.writes[write].attempts.push(index),
            Operation::Delete(delete) => self.deletes[delete].attempts.push(index),
            Operation::Query { .. } | Operation::Retire(_) => {}
        }
        self.attempts.push(attempt);
    }

    /// Notes that a folder logs readings.
    pub fn note_copies(&mut self, folder: FolderId, rows: &[Row]) {
        for row in rows {
            let write = &mut self.writes[row.value as usize];
            let key = if write.is_keyed { (row.key.0, 0) } else { row.key };
            write.copies.entry(key).or_default().insert(folder);
        }
    }

    /// Returns true if the operator asked to give up a folder.
    pub fn is_retired(&self, folder: FolderId) -> bool {
        let is_retire = |operation| matches!(operation, Operation::Retire(opening) if opening.folder == folder);
        self.attempts.iter().any(|attempt| is_retire(attempt.operation))
    }

    /// Notes that a folder has synced readings.
    pub fn note_synced(&mut self, now_us: u64, folder: FolderId, rows: &[Row]) {
        for row in rows {
            let write = &mut self.writes[row.value as usize];
            let key = if write.is_keyed { (row.key.0, 0) } else { row.key };
            write.synced.entry(key).or_default().entry(folder).or_insert(now_us);
        }
    }

    fn first_ack(&self, attempts: &[usize]) -> Option<FirstAck> {
        let acked = attempts.iter().filter_map(|index| {
            let attempt = &self.attempts[*index];
            Some(FirstAck { sent_us: attempt.sent_us, acked_us: attempt.acked_us?, reader: attempt.reader })
        });
        acked.min_by_key(|ack| ack.acked_us)
    }

    fn end_us(&self, attempts: &[usize]) -> u64 {
        attempts.iter().map(|index| self.attempts[*index].end_us()).max().unwrap_or(0)
    }

    /// Returns true if a reading of `later` must hide one of `earlier`: it was asked for after all attempts of the
    /// earlier one had ended. That is exact through one owner, and through one receiver, whose frames raise the
    /// clocks of all owners. Otherwise it holds within the distance of the clocks.
    fn must_hide(&self, earlier: usize, later: usize, key: &Key) -> bool {
        let first = &self.writes[earlier];
        let second = &self.writes[later];
        let Some(ack) = self.first_ack(&second.attempts) else { return false };
        let folders: BTreeSet<&FolderId> =
            [first, second].into_iter().filter_map(|write| write.copies.get(key)).flatten().collect();
        let first_ack = self.first_ack(&first.attempts).filter(|_| first.attempts.len() == 1);
        let is_exact = first_ack.is_some_and(|first| folders.len() == 1 || first.reader == ack.reader);
        let tolerance_us = if is_exact { 0 } else { self.tolerance_us + 2_000 };
        self.end_us(&first.attempts) + tolerance_us < ack.sent_us
    }

    /// Returns true if a reading comes from a folder that was away too long. It may arrive when a deletion is forgotten.
    fn is_late(&self, write: usize) -> bool {
        let mut folders = self.writes[write].copies.values().flatten();
        folders.any(|folder| self.late_folders.contains(folder))
    }

    fn must_delete(&self, write: usize, delete: &Delete) -> bool {
        let Some(ack) = self.first_ack(&delete.attempts) else { return false };
        self.end_us(&self.writes[write].attempts) + self.tolerance_us + 2_000 < ack.sent_us
    }

    fn may_delete(&self, write_sent_us: u64, delete: &Delete) -> bool {
        let end_us = self.end_us(&delete.attempts);
        end_us > 0 && write_sent_us <= end_us + self.tolerance_us + 2_000
    }

    /// Judges what was seen of one key.
    fn judge(&self, key: &Key, seen: Option<u64>, excuses: &Excuses) -> Option<String> {
        let at_us = excuses.at_us;
        let writes = self.by_key.get(key).map_or(&[][..], Vec::as_slice);
        // A reading must be there unless each of its copies is excused. It must hide others only if none is: the copy
        // that was acked may be missing, and that of an earlier attempt may have a smaller stamp.
        let is_owed = |id: usize, needs_all_copies: bool| {
            let write = &self.writes[id];
            let ack = self.first_ack(&write.attempts)?;
            let is_covered = |folders: &BTreeMap<FolderId, u64>| {
                let mut known = folders.iter().filter(|copy| *copy.1 < at_us).map(|copy| copy.0);
                let covers = |folder: &FolderId| excuses.covers(folder, ack.acked_us);
                if needs_all_copies { known.any(covers) } else { known.all(covers) }
            };
            let is_excused = write.is_lost || write.synced.get(key).is_some_and(is_covered);
            (ack.acked_us < at_us && !is_excused).then_some(ack)
        };
        let deletes: Vec<&Delete> = self.deletes.iter().filter(|delete| delete.sensor == key.0).collect();
        if let Some(value) = seen {
            let value = value as usize;
            if self.is_late(value) && deletes.iter().any(|delete| self.end_us(&delete.attempts) > 0) {
                return None;
            }
            for later in writes.iter().filter(|later| **later != value && is_owed(**later, true).is_some()) {
                if self.must_hide(value, *later, key) {
                    return Some(format!("{key:?} has {value}, although {later} was acked later"));
                }
            }
            let is_known = |delete: &&&Delete| self.first_ack(&delete.attempts).is_some_and(|ack| ack.acked_us < at_us);
            for delete in deletes.iter().filter(is_known) {
                if self.must_delete(value, delete) {
                    return Some(format!("{key:?} has {value}, although it was deleted"));
                }
            }
            return None;
        }
        for id in writes {
            let Some(ack) = is_owed(*id, false) else { continue };
            if !deletes.iter().any(|delete| self.may_delete(ack.sent_us, delete)) {
                return Some(format!("{key:?} lacks {id}, acked at {} ms", ack.acked_us / 1_000));
            }
        }
        None
    }

    /// Judges all rows that a client got.
    pub fn judge_rows(&mut self, rows: &BTreeMap<Key, Row>, excuses: &Excuses, source: &str) {
        let mut problems = Vec::new();
        for key in self.by_key.keys().filter(|key| key.0 < KEYED) {
            let seen = rows.get(key).map(|row| row.value);
            problems.extend(self.judge(key, seen, excuses));
        }
        let mut keyed = BTreeSet::new();
        for row in rows.values().filter(|row| row.key.0 >= KEYED) {
            if !keyed.insert(row.value) {
                problems.push(format!("the keyed write {} is there twice", row.value));
            }
        }
        for id in (0..self.writes.len()).filter(|id| self.writes[*id].is_keyed) {
            let key = self.writes[id].keys[0];
            let seen = keyed.contains(&(id as u64)).then_some(id as u64);
            problems.extend(self.judge(&key, seen, excuses));
        }
        self.violations.extend(problems.into_iter().map(|problem| format!("{source}: {problem}")));
    }
}

/// Merges rows: the greatest stamp of a key wins.
pub fn merge(payloads: &[Payload]) -> BTreeMap<Key, Row> {
    let mut merged = BTreeMap::new();
    for row in payloads.iter().flat_map(decode) {
        let best: &mut Row = merged.entry(row.key).or_insert(row);
        if row.hides(best) {
            *best = row;
        }
    }
    merged
}

impl World {
    /// Notes a process's answer, and judges it if it has rows.
    pub fn note_answer(&mut self, node: usize, request: RequestId, answer: &ClientAnswer) {
        let attempt = &mut self.history.attempts[request.0 as usize];
        let sent_us = attempt.sent_us;
        let operation = attempt.operation;
        attempt.answer = Some(answer.clone());
        match answer {
            ClientAnswer::Acked { .. } | ClientAnswer::Done => {
                attempt.acked_us = Some(self.now_us);
                self.check_ack(operation);
            }
            ClientAnswer::Rows { answers, store, deletions, missing } => {
                let mut payloads = answers.clone();
                payloads.push(store.clone());
                let mut rows = merge(&payloads);
                rows.retain(|_, row| !is_deleted(deletions, row));
                let folders: BTreeSet<FolderId> = missing.iter().map(|opening: &Opening| opening.folder).collect();
                if !folders.is_empty() && matches!(operation, Operation::Query { may_be_incomplete: false }) {
                    self.history.violations.push(format!("{request:?} has an incomplete answer"));
                }
                let source = format!("{} ms: answer of {node}", self.now_us / 1_000);
                let given_up = self.given_up.clone();
                let excuses = Excuses { at_us: sent_us, missing: folders, given_up };
                self.history.judge_rows(&rows, &excuses, &source);
            }
            _ => {}
        }
    }

    fn check_ack(&mut self, operation: Operation) {
        let Operation::Write(id) = operation else { return };
        let write = &self.history.writes[id];
        if write.ack == Ack::Stored {
            let rows = self.store.rows();
            let deletes: Vec<u64> = self.history.deletes.iter().map(|delete| delete.sensor).collect();
            let is_stored = |key: &Key| deletes.contains(&key.0) || rows.iter().any(|row| row.key == *key);
            if !write.keys.iter().all(is_stored) {
                self.history.violations.push(format!("write {id} was acked as stored and is not"));
            }
        }
    }

    /// Notes the loss of a disk: readings that no other disk and not the store has are lost.
    pub fn note_lost_disk(&mut self, node: usize) {
        let rows: Vec<Row> = self.nodes[node].disk.wal.iter().flat_map(|record| record.rows.clone()).collect();
        for row in rows {
            let has_copy = |other: &Node| {
                let mut synced = other.disk.wal.iter().filter(|record| record.is_synced);
                let is_same = |copy: &Row| copy.value == row.value && copy.key == row.key;
                let is_other = other.folder != self.nodes[node].folder && !other.is_gone;
                is_other && synced.any(|record| record.rows.iter().any(is_same))
            };
            if !self.store.has(&row) && !self.nodes.iter().any(has_copy) {
                self.history.writes[row.value as usize].is_lost = true;
            }
        }
    }
}
