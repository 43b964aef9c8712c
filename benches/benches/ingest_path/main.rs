//! Benchmarks of the parts of the ingest path, and of the whole path up to the ack. Throughput is in readings: 1000
//! divided by million items per second gives nanoseconds per reading.

mod bucket;
mod document;
mod lines;
mod log;
mod path;

use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() {
    divan::main();
}
