//! The allocator's one option: with little memory, what is freed goes back to the system at once, not a while later. It
//! reads its options before `main`, and only from the environment, so this process replaces itself once.

use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::config::Settings;

/// Up to this `server.memory`. With more, the slack does not matter, and giving back at once costs time.
const LITTLE: usize = 128 << 20;
/// mimalloc's: milliseconds until freed memory is given back.
const OPTION: &str = "MIMALLOC_PURGE_DELAY";
/// The running program, even if its file was replaced or removed.
const THIS_PROGRAM: &str = "/proc/self/exe";

/// Starts this program again in the same process, with the option set; returns if that is not needed, or not possible.
pub fn spare_memory(settings: &Settings) {
    if settings.server.memory > LITTLE || std::env::var_os(OPTION).is_some() {
        return;
    }
    let mut arguments = std::env::args_os();
    let Some(name) = arguments.next() else { return };
    let error = Command::new(THIS_PROGRAM).arg0(name).args(arguments).env(OPTION, "0").exec();
    eprintln!(
        "hourglass: starting again with {OPTION}=0 failed ({error}): going on, with more memory than server.memory at times"
    );
}
