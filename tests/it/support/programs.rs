//! `hourglass` commands that end by themselves, with output and exit status.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use super::server::program;

/// Runs a command; the exit status is a number, without one it was killed.
pub fn hourglass(arguments: &[&str]) -> CommandOutput {
    run_program(program().args(arguments))
}

/// Runs a prepared command to its end.
pub fn run_program(command: &mut Command) -> CommandOutput {
    command.output().expect("it can be run").into()
}

/// Runs a command with this standard input to its end.
pub fn run_with_input(command: &mut Command, input: &[u8]) -> CommandOutput {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it can be run");
    let mut stdin = child.stdin.take().expect("it is piped");
    std::thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(input).expect("it reads"));
        child.wait_with_output().expect("it ends").into()
    })
}

/// Computes the digest of a store whose service is stopped.
#[track_caller]
pub fn digest(store: &str, data_dir: &Path) -> Value {
    let arguments = ["backup", "digest", "--output", "json", "--store", store, "--data-dir", path(data_dir)];
    serde_json::from_str(&hourglass(&arguments).expect_success().stdout).expect("one line of JSON")
}

/// Output and exit status of a command.
#[derive(Debug)]
pub struct CommandOutput {
    pub status: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl From<Output> for CommandOutput {
    fn from(Output { status, stdout, stderr }: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("text");
        Self { status: status.code(), stdout: text(stdout), stderr: text(stderr) }
    }
}

impl CommandOutput {
    #[track_caller]
    pub fn expect_success(self) -> Self {
        assert_eq!(self.status, Some(0), "{self:?}");
        self
    }

    #[track_caller]
    pub fn expect_failure(self, reason: &str) -> Self {
        assert!(self.status == Some(1) && self.stderr.contains(reason), "{reason}: {self:?}");
        self
    }

    /// Returns stdout and stderr together.
    pub fn output(&self) -> String {
        self.stdout.clone() + &self.stderr
    }

    #[track_caller]
    pub fn expect_killed(self) -> Self {
        assert_eq!(self.status, None, "{self:?}");
        self
    }
}

/// Runs `hourglass verify` on a store whose service is stopped, or that is shared.
pub fn verify(store: &str, data_dir: &Path, flags: &[&str]) -> CommandOutput {
    run_program(program().args(["verify", "--store", store, "--data-dir"]).arg(data_dir).args(flags))
}

/// Returns a path as an argument.
pub fn path(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}
