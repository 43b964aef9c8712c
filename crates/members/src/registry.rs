//! The registry: the one document by which instances coordinate. It is written by compare-and-set on `rev`.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::stamp::Stamp;

/// Bytes that the protocol carries and does not look into.
pub type Payload = Arc<[u8]>;

/// The id of a data folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FolderId(pub u64);

/// One start of a folder. Starts of one folder are numbered, in the folder itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Opening {
    /// The folder.
    pub folder: FolderId,
    /// The number of the start; later starts have greater numbers.
    pub start: u32,
}

/// The versions of the protocol that an instance speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protocol {
    /// The lowest version.
    pub lowest: u16,
    /// The highest version.
    pub highest: u16,
}

impl Protocol {
    /// Returns the highest version that both speak.
    pub fn common(self, other: Self) -> Option<u16> {
        let version = self.highest.min(other.highest);
        (version >= self.lowest.max(other.lowest)).then_some(version)
    }
}

/// An opening that has not been closed, replaced or given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The opening.
    pub opening: Opening,
    /// A stamp below every stamp of the folder's WAL that may not be stored yet.
    pub watermark: Stamp,
    /// Grows with each write of the opening.
    pub beat: u64,
    /// True if the entry has the address of an internal listener.
    pub has_address: bool,
    /// The versions that the opening speaks.
    pub protocol: Protocol,
    /// The openings that this one cannot reach.
    pub suspects: BTreeSet<Opening>,
    /// False once the opening was silent for `wal.horizon`. It stays listed.
    pub holds_floor: bool,
}

/// A deletion that all instances apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deletion {
    /// It covers smaller stamps.
    pub stamp: Stamp,
    /// Its statement.
    pub statement: Payload,
    /// True once every query hides what it covers. Only then may a merge remove that from the store.
    pub is_known: bool,
}

/// The document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registry {
    /// Grows with each write.
    pub rev: u64,
    /// Grows with each change of `active`.
    pub view: u64,
    /// The folders that own partitions.
    pub active: BTreeSet<FolderId>,
    /// All openings whose readings may not be stored yet.
    pub entries: Vec<Entry>,
    /// The deletions to apply.
    pub deletions: Vec<Deletion>,
    /// No stamp at or below it may still arrive. It never falls.
    pub floor: Stamp,
}

impl Deletion {
    /// Returns true if both are the same. Raised clocks of two instances may issue the same stamp.
    pub fn is_same(&self, other: &Self) -> bool {
        self.stamp == other.stamp && self.statement == other.statement
    }
}

impl Registry {
    /// Returns the entry of a folder. There is at most one.
    pub fn entry(&self, folder: FolderId) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.opening.folder == folder)
    }

    /// As [`Registry::entry`], to change it.
    pub fn entry_mut(&mut self, folder: FolderId) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|entry| entry.opening.folder == folder)
    }

    /// Removes the entry of a folder.
    pub fn remove_entry(&mut self, folder: FolderId) {
        self.entries.retain(|entry| entry.opening.folder != folder);
    }

    /// Adds folders to the view or removes them, and counts the change.
    pub fn set_active(&mut self, active: BTreeSet<FolderId>) {
        if active != self.active {
            self.active = active;
            self.view += 1;
        }
    }

    /// Raises the floor to the least watermark. A deletion that merges do not apply yet needs the stamps below it.
    pub fn raise_floor(&mut self) {
        let holders = self.entries.iter().filter(|entry| entry.holds_floor);
        let Some(least) = holders.map(|entry| entry.watermark).min() else { return };
        let unknown = self.deletions.iter().filter(|deletion| !deletion.is_known);
        let bound = unknown.map(|deletion| deletion.stamp.before()).min().unwrap_or(least);
        self.floor = self.floor.max(least.min(bound));
    }
}
