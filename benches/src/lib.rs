//! Fixtures of the benchmarks: readings of a fleet of sensors, and the ingest path with a WAL in memory, so that
//! nothing depends on the machine's disk.

pub mod disk;
pub mod fleet;
pub mod path;
pub mod rows;

pub use disk::MemoryDisk;
pub use fleet::Fleet;
pub use path::Path;
pub use rows::Rows;
