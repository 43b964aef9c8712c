//! State of the simulated disk: what processes see, what is durable, and the unsynced changes between the two.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};

use super::Fault;

pub(super) const BLOCK: usize = 512;

#[derive(Clone)]
pub(super) struct World {
    pub(super) files: Vec<Bytes>,
    pub(super) names: BTreeMap<String, usize>,
    pub(super) durable_names: BTreeMap<String, usize>,
    pub(super) unsynced_names: Vec<NameChange>,
    pub(super) locks: BTreeSet<String>,
    pub(super) operations: u64,
    pub(super) syncs: u64,
    pub(super) openings: u64,
    /// Number of the current process generation; handles of an earlier one have no effect.
    pub(super) life: u64,
    pub(super) fault: Fault,
    pub(super) capacity: usize,
    pub(super) chance: u64,
}

#[derive(Clone, Default)]
pub(super) struct Bytes {
    pub(super) seen: Vec<u8>,
    pub(super) durable: Vec<u8>,
    pub(super) unsynced: Vec<Change>,
}

#[derive(Clone)]
pub(super) enum Change {
    Write { offset: usize, bytes: Vec<u8> },
    Length(usize),
}

#[derive(Clone)]
pub(super) enum NameChange {
    Link(String, usize),
    Unlink(String),
    Rename(String, String, usize),
}

impl World {
    pub(super) fn toss(&mut self) -> bool {
        toss(&mut self.chance)
    }

    pub(super) fn settle(&mut self, change: NameChange) {
        match change {
            NameChange::Link(name, file) => {
                self.durable_names.insert(name, file);
            }
            NameChange::Unlink(name) => {
                self.durable_names.remove(&name);
            }
            NameChange::Rename(from, to, file) => {
                if self.durable_names.get(&from) == Some(&file) {
                    self.durable_names.remove(&from);
                }
                self.durable_names.insert(to, file);
            }
        }
    }

    pub(super) fn change(&mut self, file: usize, change: Change) -> io::Result<()> {
        let used: usize = self.names.values().map(|file| self.files[*file].seen.len()).sum();
        let length = self.files[file].seen.len();
        if let Change::Write { offset, bytes } = &change
            && used + (offset + bytes.len()).saturating_sub(length) > self.capacity
        {
            return Err(ErrorKind::StorageFull.into());
        }
        change.apply(&mut self.files[file].seen);
        self.files[file].unsynced.push(change);
        Ok(())
    }
}

impl Bytes {
    /// Decides for each unsynced block whether it becomes durable; the others never do.
    pub(super) fn forget(&mut self, keeps: &mut impl FnMut() -> bool) {
        for change in std::mem::take(&mut self.unsynced) {
            match change {
                Change::Length(_) if !keeps() => {}
                Change::Length(_) => change.apply(&mut self.durable),
                Change::Write { offset, bytes } => {
                    let mut at = 0;
                    while at < bytes.len() {
                        let length = (BLOCK - (offset + at) % BLOCK).min(bytes.len() - at);
                        if keeps() {
                            let bytes = bytes[at..at + length].to_vec();
                            Change::Write { offset: offset + at, bytes }.apply(&mut self.durable);
                        }
                        at += length;
                    }
                }
            }
        }
    }
}

impl Change {
    pub(super) fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Length(length) => bytes.resize(*length, 0),
            Self::Write { offset, bytes: written } => {
                let end = offset + written.len();
                bytes.resize(bytes.len().max(end), 0);
                bytes[*offset..end].copy_from_slice(written);
            }
        }
    }
}

pub(super) fn toss(chance: &mut u64) -> bool {
    *chance ^= *chance << 13;
    *chance ^= *chance >> 7;
    *chance ^= *chance << 17;
    *chance >> 40 & 1 == 1
}
