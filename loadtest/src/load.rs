//! The two ways to load a server: as fast as it acks, and on a schedule that does not wait for it.

pub mod closed;
pub mod open;
