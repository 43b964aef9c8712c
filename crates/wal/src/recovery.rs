//! The result of opening a WAL.

use super::damage::Damage;
use super::options::Sequence;

/// The state of a WAL when it was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovery {
    /// The WAL's random id, chosen when the WAL was created.
    pub log: u64,
    /// The random id of this opening.
    pub opening: u64,
    /// The ids of earlier openings with remaining records, each with its last sequence.
    pub openings: Vec<(u64, Sequence)>,
    /// The sequence of the last record, or 0. New records get higher sequences.
    pub last: Sequence,
    /// The position up to which the WAL is truncated. A replay begins after it.
    pub truncated: Sequence,
    /// The damage found so far. Older segments are verified when they are read.
    pub damage: Vec<Damage>,
    /// The error that prevents appends now. The WAL keeps trying.
    pub unwritable: Option<String>,
}
