//! Flushes. A flush task writes due buckets of one database and the documents of their sensors to the store, and
//! reports failures.

pub mod blocked;
pub mod chunks;
pub mod dead_letters;
pub mod document_writer;
pub mod documents;
pub mod failing;
pub mod lifetimes;
pub mod outliers;
mod sealed;
pub mod sensors;
pub mod stale_copies;
pub mod task;
