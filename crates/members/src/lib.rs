//! The protocol by which several hourglass instances are one service, as a pure state machine. It has no I/O, no clock
//! and no tasks: [`Instance::handle`] takes an [`Event`] and returns the [`Action`]s that follow. Readings, questions
//! and answers are opaque bytes. DESIGN.md ("Several instances") has the rules and their reasons.
//! `src/cluster` of the server performs the actions.
//!
//! | module | part |
//! |---|---|
//! | `partitions` | owners of sensors |
//! | `registry`, `observer`, `membership` | the shared document; who joins, leaves, and is removed |
//! | `peers` | probes, silence, suspicion |
//! | `writes`, `parts`, `keys` | the receiver's and the owner's side of a write; request keys |
//! | `queries`, `deletions` | questions to all openings; deletions that all know |

mod config;
mod deletions;
mod events;
mod instance;
mod keys;
mod membership;
mod observer;
mod partitions;
mod parts;
mod peers;
mod queries;
mod registry;
mod stamp;
mod writes;

pub use config::Config;
pub use events::{
    Ack, Action, Append, AppendId, AppendOutcome, Batch, ClientAnswer, Event, Frame, FrameBody, KeyRow, Origin, Part,
    PartAnswer, QuestionId, Record, RequestId, StopReason,
};
pub use instance::{Instance, Start};
pub use partitions::{OwnerTable, PARTITIONS, partition};
pub use registry::{Deletion, Entry, FolderId, Opening, Payload, Protocol, Registry};
pub use stamp::{Now, Stamp, StampClock};
