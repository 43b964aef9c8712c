//! The inputs and outputs of the state machine, and the frames between instances.

use std::sync::Arc;

use crate::registry::{Deletion, FolderId, Opening, Payload, Registry};
use crate::stamp::Stamp;

/// A client's request, numbered by the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// An append to the WAL, numbered by the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AppendId(pub u64);

/// The promise that a write waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ack {
    /// All readings are synced in a WAL.
    Logged,
    /// All readings are in the store.
    Stored,
}

/// The readings of a request that belong to one partition.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The partition.
    pub partition: u16,
    /// The records, in the WAL's own encoding.
    pub records: Payload,
}

/// A message to another instance.
#[derive(Clone, Debug)]
pub struct Frame {
    /// The sender.
    pub from: Opening,
    /// The version, which both speak.
    pub version: u16,
    /// The only opening that may take it; `None` if every start of the folder may.
    pub to: Option<Opening>,
    /// The greatest stamp that the sender knows.
    pub greatest: Stamp,
    /// The message.
    pub body: FrameBody,
}

/// The kinds of messages. A number is the asker's and returns with the answer.
#[derive(Clone, Debug)]
pub enum FrameBody {
    /// Asks an owner to take readings.
    Part(Part),
    /// The owner's answer.
    PartAnswer { number: u64, answer: PartAnswer },
    /// Asks for a sync of the WAL.
    Probe { number: u64 },
    /// Follows the sync.
    ProbeAnswer { number: u64 },
    /// Asks for unflushed readings.
    Question { number: u64, question: Payload },
    /// The unflushed readings.
    Answer { number: u64, answer: Payload },
}

/// Readings for their owner.
#[derive(Clone, Debug)]
pub struct Part {
    /// Grows with every part that the sender sends to anybody.
    pub number: u64,
    /// The records.
    pub records: Payload,
    /// The promise that the client waits for.
    pub ack: Ack,
    /// The owner must not log the records with a greater stamp.
    pub not_after: Stamp,
}

/// An owner's answer to a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartAnswer {
    /// The records are synced, without the rejected lines.
    Logged { rejected: Vec<u32> },
    /// The records are in the store.
    Stored,
    /// The stamp would be above `not_after`, so nothing was logged.
    Late,
    /// The instance takes no parts; nothing was logged.
    Refused,
    /// There is no room; nothing was logged.
    Busy,
}

/// An append to the WAL.
#[derive(Clone, Debug)]
pub struct Append {
    /// The number.
    pub id: AppendId,
    /// The record; `None` asks for a sync of a stamp alone.
    pub record: Option<Record>,
    /// The record's stamp must be greater.
    pub above: Option<Stamp>,
    /// The record's stamp must not be greater.
    pub not_after: Option<Stamp>,
    /// Nothing is stamped once the boot clock has reached this.
    pub expires_boot_ms: Option<u64>,
    /// True if [`Event::Stored`] is expected once the record is in the store.
    pub reports_stored: bool,
    /// The reason.
    pub origin: Origin,
}

/// The reason of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A batch of a client's request to this instance, by its index in [`Event::Write`].
    Own { request: RequestId, index: usize },
    /// A part of another receiver.
    Part,
    /// Another instance's probe: the answer must follow a sync.
    Probe,
    /// The clock itself, so that an idle WAL's watermark grows.
    Mark,
    /// A client's deletion.
    Deletion,
}

/// A record of the WAL.
#[derive(Clone, Debug)]
pub enum Record {
    /// Readings.
    Readings(Payload),
    /// The statement of a deletion.
    Deletion(Payload),
}

/// The end of an append.
#[derive(Clone, Debug)]
pub enum AppendOutcome {
    /// The record is synced, without the rejected lines.
    Synced { stamp: Stamp, rejected: Vec<u32> },
    /// The stamp would be above `not_after`.
    Late,
    /// The time in `expires_boot_ms` was reached.
    Expired,
    /// Nothing was logged, for another reason.
    Refused,
    /// The write failed, and nobody knows whether a restart finds the record.
    Unknown,
}

/// A row of the collection of request keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyRow {
    /// The hash of the body that came first.
    pub body_hash: u64,
    /// The time of its undated lines, in milliseconds.
    pub base_ms: u64,
}

/// An input.
#[derive(Clone, Debug)]
pub enum Event {
    /// Time has passed. Expected every 100 ms or less.
    Tick,
    /// A frame arrived.
    Frame(Frame),
    /// The registry was read, or could not be.
    RegistryRead(Option<Arc<Registry>>),
    /// The registry was written, or not, or nobody knows.
    RegistryWritten { is_written: bool },
    /// An append ended.
    Appended { append: AppendId, outcome: AppendOutcome },
    /// The readings of an append are in the store.
    Stored { append: AppendId },
    /// The WAL's bound for the floor: below all that is not stored, and not above the last synced stamp.
    Watermark(Stamp),
    /// Follows [`Action::FlushAll`]: the WAL has nothing that is not stored.
    FlushedAll,
    /// A request with a key and undated lines was received; its last byte was read at `read_boot_ms`.
    KeyedWrite { request: RequestId, read_boot_ms: u64, key: u64, row: KeyRow },
    /// The row of a key, or nothing if the store cannot be asked.
    KeyAnswer { request: RequestId, row: Option<KeyRow> },
    /// A request was parsed and split; its last byte was read at `read_boot_ms`.
    Write { request: RequestId, read_boot_ms: u64, ack: Ack, batches: Vec<Batch> },
    /// A client deletes.
    Delete { request: RequestId, statement: Payload },
    /// Follows [`Action::Sweep`].
    Swept,
    /// A client asks.
    Query { request: RequestId, question: Payload, may_be_incomplete: bool },
    /// Follows [`Action::AnswerFromMemory`].
    MemoryAnswer { question: QuestionId, answer: Payload },
    /// Follows [`Action::AskStore`]; `None` if the store does not answer.
    StoreAnswer { request: RequestId, answer: Option<Payload> },
    /// The operator gives up an opening.
    Retire { request: RequestId, opening: Opening },
    /// Stop, to come back soon.
    Terminate,
    /// Stop for good.
    Drain,
}

/// The source of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum QuestionId {
    /// A query of this instance.
    Own(RequestId),
    /// A question of another one.
    Peer { from: Opening, number: u64 },
}

/// An output.
#[derive(Clone, Debug)]
pub enum Action {
    /// Send a frame, or drop it if there is no connection.
    Send { to: FolderId, frame: Frame },
    /// Remove from the store what a deletion covers; the floor has passed it.
    Sweep(Deletion),
    /// Read the registry.
    ReadRegistry,
    /// Write the registry if its `rev` is the one before that of the document.
    WriteRegistry(Arc<Registry>),
    /// Append to the WAL.
    Append(Append),
    /// Insert the row of a key, or return the one that is there.
    UpsertKey { request: RequestId, key: u64, row: KeyRow },
    /// Date the undated lines of a request and split it.
    Split { request: RequestId, base_ms: u64 },
    /// Answer from the memtable, once the backlog of the time of this action is in it.
    AnswerFromMemory { question: QuestionId, text: Payload },
    /// Read the store, then merge.
    AskStore { request: RequestId },
    /// Answer the client.
    Answer { request: RequestId, answer: ClientAnswer },
    /// Remember in the folder that its next start may ack before it has read the registry.
    MarkJoined,
    /// Forget it.
    RemoveJoined,
    /// Flush everything; no readings follow.
    FlushAll,
    /// End the process.
    Stop(StopReason),
}

/// The reason of a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// All is stored and the entry is closed.
    Closed,
    /// Another opening has taken the folder over, or the operator has given this one up.
    EntryGone,
}

/// An answer to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientAnswer {
    /// 204, or the rejected lines.
    Acked { rejected: Vec<u32> },
    /// 503: try again.
    Unavailable,
    /// 422: the key was used with another body.
    KeyConflict,
    /// The deletion or the command is done.
    Done,
    /// 409: the opening is alive.
    StillAlive,
    /// To merge: `answers` are from memory, `store` is later. `deletions` hide what they cover. Openings in `missing`
    /// may have more.
    Rows { answers: Vec<Payload>, store: Payload, deletions: Vec<Deletion>, missing: Vec<Opening> },
    /// 503: these openings do not answer.
    Missing(Vec<Opening>),
}
