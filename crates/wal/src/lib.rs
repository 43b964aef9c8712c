//! The write-ahead log of hourglass: records in segment files in one folder, each synced before it is acked. A record
//! is a kind and bytes; the WAL does not depend on readings, buckets, stores or HTTP.
//!
//! Start with [`Wal`], which appends and truncates, and [`WalReader`], which reads records back. [`WalOptions`] has the
//! limits, and [`Recovery`] the result of opening a WAL.
//!
//! ```
//! use hourglass_wal::{Folder, Wal, WalOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let folder = tempfile::tempdir()?;
//! let (wal, recovery) = Wal::open(Folder::new(folder.path())?, WalOptions::new("example"))?;
//! assert_eq!(recovery.last, 0);
//!
//! // The callback runs once the record is durable.
//! let (sender, receiver) = std::sync::mpsc::channel();
//! wal.append(0, 1, b"payload".to_vec(), move |result| {
//!     let _ = sender.send(result);
//! })?;
//! let sequence = receiver.recv()??;
//!
//! let record = wal.reader(sequence).next()?.ok_or("no durable record")?;
//! assert_eq!(record.payload, b"payload");
//! wal.close();
//! # Ok(())
//! # }
//! ```
//!
//! # Guarantees
//! * A record whose append was reported durable is read back exactly once, unchanged, in WAL order, after any crash,
//!   until it is truncated. The exception is a record whose own bytes are damaged: the damage is detected and counted,
//!   and the bytes are copied to `quarantine/`. A record that was not reported durable is either complete or missing.
//! * Sequences are unique and increase over the life of the WAL. There are gaps: the sequences of failed writes, and
//!   about a million (`open::GAP`) at every start.
//! * No disk failure ends the WAL. While the disk fails, appends are rejected immediately. Once a fresh segment can be
//!   created, they are accepted again without a restart.
//!
//! # Design
//! One thread writes (`writer`). All records that arrive during one fdatasync share the next one. After it, their
//! callbacks run on that thread, in WAL order. Segments double in size, from a sixteenth of `segment_bytes` up to it.
//! The next segment is filled with zeros while the current one is in use. A quiet WAL gives up the preallocated space
//! (`Wal::rest_if_quiet`). `format` describes the bytes.
//!
//! `open` always begins a new segment, so that nothing is written after a tail that a crash may have torn. Bytes
//! without a record, before a later record or after the last one, get a verdict (`damage::Verdict`: torn, in doubt,
//! damaged). They are copied to `quarantine/`, counted, and skipped; then the tail is cut off.
//!
//! After a failed write or sync, the file descriptor is never used again. The records of the group, whose callbacks
//! have not run, are written to a fresh segment with new sequences. The header of a segment records the end of the
//! previous segment at the time of the switch. Bytes that a failed write left after that end are therefore never read
//! as records. A fresh file gets its segment name only after its header and first records are synced, and callbacks run
//! only after the folder is synced.

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
pub use self::inspect::{WalContents, inspect};
pub use self::log::Wal;
pub use self::options::{LeastSequence, Room, Sequence, WalOptions};
pub use self::reader::{Record, WalReader};
pub use self::recovery::Recovery;
pub use self::stats::WalStats;
