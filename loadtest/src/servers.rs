//! The servers that are measured: their programs, and how each is started on loopback, fed and ended. Knows nothing
//! of what is measured.

pub mod http;
pub mod mongod;
pub mod programs;
pub mod spawn;
pub mod usage;
