//! The law: a bucket is a set of readings keyed by timestamp; merging is set union, and where two
//! readings share a timestamp the later one wins, field by field; every summary is a fold over
//! that set. Pure: no clock, no runtime, no driver. Stores are reached only through the [`Store`]
//! trait declared here.

pub mod changes;
pub mod columns;
pub mod deletions;
pub mod exact;
pub mod hot;
pub mod kept;
pub mod packed;
pub mod page;
pub mod readings;
pub mod registry;
pub mod stamps;
pub mod store;
pub mod summary;
pub mod unflushed;

mod legacy;
mod merge;

pub use changes::Changes;
pub use merge::{Applied, Bucket, Caps, MergeOptions, PackedBucket, Row};
pub use page::{Page, StoredPage, WriteKind};
pub use readings::{Reading, Readings};
pub use store::{BucketId, SensorDocument, StorageError, Store};
pub use summary::Summary;
pub use unflushed::{Behind, Met, MetVersion, UnflushedHour, UnflushedReadings};
