//! The servers to measure: finds their programs, starts and stops them on loopback, and reads what they use.

pub mod http;
pub mod mongod;
pub mod peer;
pub mod process;
pub mod programs;
pub mod spawn;
pub mod system;
pub mod usage;
