//! The servers to measure: finds their programs, and starts, prepares and stops them on loopback.

pub mod http;
pub mod mongod;
pub mod programs;
pub mod spawn;
pub mod usage;
