//! What opening a log found on the disk.

use super::damage::Damage;
use super::options::Sequence;

/// What opening a log found on the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovery {
    /// The log's id: random, chosen when the log is made, and kept for its life.
    pub log: u64,
    /// Id of this opening: random, new every time.
    pub opening: u64,
    /// Earlier openings whose records are still there, each with its last sequence.
    pub openings: Vec<(u64, Sequence)>,
    /// Sequence of the last record found, or 0. Records appended from now on have higher sequences.
    pub last: Sequence,
    /// Position up to which the log is truncated: replay begins behind it.
    pub truncated: Sequence,
    /// Damage found so far. Older segments are verified when they are read.
    pub damage: Vec<Damage>,
    /// Why nothing can be appended yet, if so. The log keeps trying.
    pub unwritable: Option<String>,
}
