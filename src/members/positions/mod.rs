//! WAL positions: how far readings are logged, dispatched and stored. They decide what can be truncated, when a flush
//! is complete and when a write with ack `store` is answered, and they keep the ledger of all readings.

mod guards;
mod in_log_order;
pub mod pending_acks;
#[cfg(test)]
mod tests;
mod wal_positions;

pub use super::positions::guards::{PendingAck, QueuedBatches, SealAtEnd, Tracked, WalPin};
pub use super::positions::wal_positions::{Lag, LoggedRequest, WalPositions};
pub use crate::telemetry::Ledger;
