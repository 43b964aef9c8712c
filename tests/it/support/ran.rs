//! Commands of `hourglass` that end by themselves: what they said, and how they ended.

use std::path::Path;
use std::process::{Command, Output};

use super::server::program;

/// A command, and its exit status as a number; without one it was killed.
pub fn hourglass(arguments: &[&str]) -> Ran {
    ran(program().args(arguments))
}

/// A command that was set up, run to its end.
pub fn ran(command: &mut Command) -> Ran {
    let Output { status, stdout, stderr } = command.output().expect("hourglass can be run");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    Ran { status: status.code(), stdout: text(stdout), stderr: text(stderr) }
}

/// What a command said, and how it ended.
#[derive(Debug)]
pub struct Ran {
    pub status: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    #[track_caller]
    pub fn good(self) -> Self {
        assert_eq!(self.status, Some(0), "{self:?}");
        self
    }

    #[track_caller]
    pub fn refused(self, because: &str) -> Self {
        assert!(self.status == Some(1) && self.stderr.contains(because), "{because}: {self:?}");
        self
    }

    /// All that it said.
    pub fn said(&self) -> String {
        self.stdout.clone() + &self.stderr
    }

    #[track_caller]
    pub fn killed(self) -> Self {
        assert_eq!(self.status, None, "{self:?}");
        self
    }
}

/// `hourglass verify` of a store whose service is stopped, or shared.
pub fn verify(store: &str, data_dir: &Path, flags: &[&str]) -> Ran {
    ran(program().args(["verify", "--store", store, "--data-dir"]).arg(data_dir).args(flags))
}

/// A path as an argument.
pub fn path(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}
