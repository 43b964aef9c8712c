//! The parts of the ingest path by themselves, and the whole of it to the ack. Throughput is in readings: a thousand
//! divided by millions of items per second is nanoseconds per reading.

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
