//! Keys that were renamed or removed. This version still accepts the old names of renamed ones; the next one will not. A
//! removed key is answered with what takes its place.

use std::fmt;

use super::problem::ConfigSource;

/// Old names and new names.
const RENAMED: &[(&str, &str)] = &[
    ("log.dir", "wal.dir"),
    ("log.segment_bytes", "wal.segment_bytes"),
    ("log.budget_bytes", "wal.budget_bytes"),
    ("log.queue_bytes", "wal.queue_bytes"),
    ("log.compress", "wal.compress"),
    ("log.horizon", "wal.horizon"),
    ("hot.max_bytes", "memtable.max_bytes"),
    ("flush.flights", "flush.tasks"),
];

/// Removed keys, and the key that bounds or decides the same now.
const REMOVED: &[(&str, &str)] = &[
    ("query.answer_bytes", "query.request_bytes"),
    ("query.points_max", "query.request_bytes"),
    ("query.windows_max", "query.request_bytes"),
    ("server.allow_unauthenticated", "auth.required"),
    ("ingest.linger", "flush.interval"),
    ("ingest.group_bytes", "memtable.max_bytes"),
    ("ingest.queue", "ingest.bytes_in_flight"),
];

/// A key that a layer sets by its old name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenamedKey {
    pub source: ConfigSource,
    pub old: String,
    pub new: &'static str,
}

/// The new name of the key with this old name.
pub fn new_name(old: &str) -> Option<&'static str> {
    RENAMED.iter().find(|(name, _)| *name == old).map(|(_, new)| *new)
}

/// What takes the place of the removed key with this name.
pub fn replacement(removed: &str) -> Option<&'static str> {
    REMOVED.iter().find(|(name, _)| *name == removed).map(|(_, new)| *new)
}

/// All names that were keys once, with the keys that are meant by them now.
pub fn former_names() -> impl Iterator<Item = (&'static str, &'static str)> {
    RENAMED.iter().chain(REMOVED).copied()
}

/// Whether a renamed key was in a section of this name.
pub fn was_section(name: &str) -> bool {
    RENAMED.iter().any(|(old, _)| old.split_once('.').is_some_and(|(section, _)| section == name))
}

pub fn old_names() -> impl Iterator<Item = &'static str> {
    RENAMED.iter().map(|(old, _)| *old)
}

impl fmt::Display for RenamedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { source, old, new } = self;
        write!(f, "{source}: warning: {old} is now named {new}; the next version will not accept {old}")
    }
}
