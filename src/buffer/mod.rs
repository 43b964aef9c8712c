//! The way from a WAL record to the store. Dispatch passes the readings of a record to shards, shards keep them in
//! memtables, flush tasks write them, and the WAL is truncated behind them. Deletions are carried out here too. Nothing
//! is validated again.

pub(crate) mod deleter;
pub(crate) mod dispatch;
pub(crate) mod flush;
pub(crate) mod memtable;
pub(crate) mod record;
pub(crate) mod shard;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod truncate;
