//! Servers that stand still at a named point, for as long as a test wants them to.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use super::process::Folder;
use super::server::Launch;
use super::wait_until;

/// How long a server may take to come to the point.
const WITHIN: Duration = Duration::from_secs(60);

/// A file that halts servers while it is there.
pub struct Halt {
    file: PathBuf,
    _folder: Folder,
}

impl Halt {
    /// No server is halted yet.
    pub fn new() -> Self {
        let folder = Folder::new("halt");
        Self { file: folder.file("halt"), _folder: folder }
    }

    /// Servers are halted from the start on.
    pub fn already_set() -> Self {
        let halt = Self::new();
        halt.set();
        halt
    }

    /// A server that is halted at this point while this is set.
    pub fn launch(&self, launch: Launch, point: &str) -> Launch {
        launch.env("FAULT_HALT_AT", format!("{point}:{}", self.file.display()))
    }

    pub fn set(&self) {
        fs::write(&self.file, "").expect("a file");
    }

    pub fn lift(&self) {
        fs::remove_file(&self.file).expect("it is set");
    }

    /// Waits until a server is halted.
    #[track_caller]
    pub fn await_met(&self, what: &str) {
        wait_until(what, WITHIN, || self.file.with_extension("met").exists());
    }
}
