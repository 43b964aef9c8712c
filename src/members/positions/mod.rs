//! WAL positions: the records up to which readings are logged, dispatched and stored. They decide how far the WAL can
//! be truncated, when a flush is complete, and when a write with ack `store` is answered. They also keep the ledger of
//! all readings.

mod guards;
mod log_order_map;
pub mod pending_acks;
#[cfg(test)]
mod tests;
mod wal_positions;

pub use super::positions::guards::{PendingAck, QueuedBatches, RequestGuards, SealAtEnd, WalPin};
pub use super::positions::wal_positions::{Lag, LoggedRequest, WalPositions};
pub use crate::telemetry::Ledger;
