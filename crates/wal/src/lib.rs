//! hourglass's write-ahead log: records in segment files in one folder, each synced before it is acked.
//! It sees a record as bytes with a kind, and knows nothing of readings, buckets, stores or HTTP.
//!
//! # Guarantees
//! * A record whose append was reported durable is read back exactly once, unchanged, in log order, after any crash,
//!   until it is truncated. The exception is a record whose own bytes are damaged: the damage is detected and counted,
//!   and the bytes are copied to `quarantine/`. A record that was not reported durable may be there whole, or not at
//!   all.
//! * Sequences are unique and increase over the life of the log. There are gaps: the sequences of failed writes, and
//!   about a million (`open::GAP`) at every start.
//! * No disk failure ends the log. While the disk fails, appends are refused at once; as soon as a fresh segment can be
//!   made, they are accepted again, without a restart.
//!
//! # Design
//! One thread writes (`writer`). All records that arrive during one fdatasync share the next one; after it, their
//! callbacks run on that thread, in log order. Segments double in size from a sixteenth of `segment_bytes` up to it;
//! the next one is filled with zeros while the current one is in use; a quiet log gives both back (`Wal::rest_if_quiet`).
//! `format` describes the bytes. `open` begins a new
//! segment every time, so that nothing is written behind a tail that a crash may have torn. Bytes that hold no record,
//! before a later record or behind the last one, get a verdict (`damage::Verdict`: torn, in doubt, damaged), are copied
//! to `quarantine/`, counted, and skipped; then the tail is cut off.
//!
//! After a failed write or sync its file descriptor is never used again. The group, whose callbacks have not run, is
//! written to a fresh segment with new sequences. The header of a segment records where the previous one ended when
//! this one replaced it, so what a failed write left behind that end is never read as records. A fresh file is renamed
//! to its segment name only once its header and first records are synced, and callbacks run only after the folder is
//! synced, too.

#![warn(missing_docs)]

mod checkpoint;
mod damage;
mod disk;
mod error;
mod folder;
mod format;
mod headless;
mod inspect;
mod log;
mod next_segment;
mod open;
mod options;
mod quarantine;
mod reader;
mod recovery;
mod scan;
mod shared;
mod stats;
mod truncate;
mod writer;

#[cfg(test)]
mod tests;

pub use self::damage::{Counts, Damage, Verdict};
pub use self::disk::{Disk, DiskFile};
pub use self::error::{AppendError, DiskError, WalOpenError};
pub use self::folder::Folder;
pub use self::inspect::{Inspected, inspect};
pub use self::log::Wal;
pub use self::options::{LeastSequence, Sequence, WalOptions};
pub use self::reader::{Record, WalReader};
pub use self::recovery::Recovery;
pub use self::stats::WalStats;
