//! Makes the allocator return freed memory to the system at once if memory is scarce. The allocator reads its options
//! before `main`, and only from the environment, so the process replaces itself once.

use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::config::Settings;

/// Maximum `server.memory` for which memory is returned at once. With more, unused memory matters
/// less than the time that returning it takes.
const SCARCE_BYTES: usize = 128 << 20;
/// mimalloc's delay in milliseconds until it returns freed memory.
const OPTION: &str = "MIMALLOC_PURGE_DELAY";
/// The running program, even after its file was replaced or removed.
const THIS_PROGRAM: &str = "/proc/self/exe";

/// Starts this program again in the same process with the option set. Returns if that is unnecessary or impossible.
pub fn spare_memory(settings: &Settings) {
    if settings.server.memory > SCARCE_BYTES || std::env::var_os(OPTION).is_some() {
        return;
    }
    let mut arguments = std::env::args_os();
    let Some(name) = arguments.next() else { return };
    let error = Command::new(THIS_PROGRAM).arg0(name).args(arguments).env(OPTION, "0").exec();
    eprintln!(
        "hourglass: starting again with {OPTION}=0 failed ({error}): continuing; the memory may exceed server.memory at times"
    );
}
