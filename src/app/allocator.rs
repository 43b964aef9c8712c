//! Makes the allocator return freed memory to the system early, so that the resident memory is what hourglass uses. The
//! allocator reads its options before `main`, and only from the environment, so the process replaces itself once.

use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::config::Settings;

/// Maximum `server.memory` for which memory is returned at once.
const SCARCE_BYTES: usize = 256 << 20;
/// mimalloc's delay in milliseconds until it returns freed memory. Its default is a second, in which a busy server frees
/// as much as it uses.
const OPTION: &str = "MIMALLOC_PURGE_DELAY";
const DELAY: &str = "100";
/// The running program, if its file was replaced or removed.
const THIS_PROGRAM: &str = "/proc/self/exe";

/// Starts this program again in the same process with the option set. Returns if that is unnecessary or impossible.
pub fn spare_memory(settings: &Settings) {
    if std::env::var_os(OPTION).is_some() {
        return;
    }
    let mut arguments = std::env::args_os();
    let Some(name) = arguments.next() else { return };
    // The system names the process after this path.
    let program = std::env::current_exe().ok().filter(|path| path.exists()).unwrap_or_else(|| THIS_PROGRAM.into());
    let delay = if settings.server.memory > SCARCE_BYTES { DELAY } else { "0" };
    let error = Command::new(program).arg0(name).args(arguments).env(OPTION, delay).exec();
    eprintln!(
        "hourglass: starting again with {OPTION}={delay} failed ({error}): continuing; the memory may exceed server.memory at times"
    );
}
