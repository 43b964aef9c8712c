//! The `hourglass` command.

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// Memory is often freed by another thread than the one that allocated it; the system allocator is several times slower
/// at that.
#[cfg(not(feature = "faults"))]
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

#[cfg(feature = "faults")]
#[global_allocator]
static ALLOCATOR: tracking_allocator::Allocator<MiMalloc> = tracking_allocator::Allocator::from_allocator(MiMalloc);

fn main() -> ExitCode {
    hourglass::dispatch::main()
}
