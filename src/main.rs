//! The `hourglass` command.

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// Memory is often freed by another thread than the one that allocated it; the system allocator is several times slower
/// at that.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    hourglass::dispatch::main()
}
