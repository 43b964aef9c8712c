//! Servers that are halted at a named point while a test wants it.

use std::fs;
use std::path::PathBuf;

use super::process::Folder;
use super::server::Launch;
use super::wait_until;

/// A file that halts servers while it exists.
pub struct Halt {
    file: PathBuf,
    _folder: Folder,
}

impl Halt {
    /// Creates an unset halt.
    pub fn new() -> Self {
        let folder = Folder::new("halt");
        Self { file: folder.file("halt"), _folder: folder }
    }

    /// Creates a set halt, so that servers are halted from the start.
    pub fn already_set() -> Self {
        let halt = Self::new();
        halt.set();
        halt
    }

    /// Configures a server to halt at this point while this is set.
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
        wait_until(what, || self.file.with_extension("met").exists());
    }
}
