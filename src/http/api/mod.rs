//! The native API: readings, summaries, sensors, metadata, lists, the live tail, and writes.

pub(crate) mod delete;
pub(crate) mod documents;
pub(crate) mod explain;
pub(crate) mod groups;
pub(crate) mod histogram;
pub(crate) mod lists;
pub mod meta;
pub(crate) mod overview;
pub(crate) mod push;
pub(crate) mod readings;
pub(crate) mod sensors;
pub(crate) mod status;
pub(crate) mod summary;
pub(crate) mod tail;
pub(crate) mod write;
