//! Fixtures of the benchmarks: readings of a fleet of sensors, the ingest path with a WAL in memory, so that nothing depends
//! on the machine's disk, and sealed days.

pub mod disk;
pub mod fleet;
pub mod history;
pub mod path;
pub mod rows;

pub use disk::MemoryDisk;
pub use fleet::Fleet;
pub use path::Path;
pub use rows::Rows;
