//! Child processes and folders that end with the test process, even on SIGKILL, by an `sh` that reads a pipe.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::Duration;

use super::poll;

/// A running program. Dropping it kills it.
pub struct Process {
    child: Child,
    leash: ChildStdin,
    status: Option<ExitStatus>,
}

/// A new empty folder. Dropping it removes it.
pub struct Folder {
    path: PathBuf,
    remover: Child,
}

/// The watcher is forked before `exec`, so the program is always watched, is the direct child, and has the pid `$$`. A
/// word on the pipe means that the program was already reaped and its pid may be reused.
const LEASHED: &str = r#"
exec 3<&0 </dev/null
{ read -r reaped <&3 || kill -KILL $$; } >/dev/null 2>&1 &
exec 3<&-
exec "$@"
"#;

/// A killed program may still write for a moment, which makes `rm` fail; hence the repetition.
const REMOVE_AT_END: &str = r#"
read -r end
tries=0
until rm -rf -- "$1"; do
    tries=$((tries + 1))
    [ "$tries" -lt 100 ] || exit 1
    sleep 0.1
done
"#;

impl Process {
    /// Starts `command` in its own process group, so that Ctrl-C ends the tests, which end the program.
    pub fn spawn(command: &Command, stdout: File, stderr: File) -> io::Result<Process> {
        let mut leashed = Command::new("sh");
        leashed.args(["-c", LEASHED, "leashed"]).arg(command.get_program()).args(command.get_args());
        for (key, value) in command.get_envs() {
            match value {
                Some(value) => leashed.env(key, value),
                None => leashed.env_remove(key),
            };
        }
        if let Some(folder) = command.get_current_dir() {
            leashed.current_dir(folder);
        }
        leashed.process_group(0).stdin(Stdio::piped()).stdout(stdout).stderr(stderr);
        let mut child = leashed.spawn()?;
        let leash = child.stdin.take().expect("stdin was asked to be a pipe");
        Ok(Process { child, leash, status: None })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal by its name without `SIG`: `TERM`, `STOP`, `CONT`.
    pub fn signal(&mut self, name: &str) {
        assert!(self.exited().is_none(), "SIG{name} for process {}, which has ended", self.pid());
        let script = r#"kill -s "$1" "$2""#;
        let sent = Command::new("sh").args(["-c", script, "signal", name, &self.pid().to_string()]).status();
        let sent = sent.expect("`sh` can be run");
        assert!(sent.success(), "SIG{name} to process {}: {sent}", self.pid());
    }

    /// Returns the exit status, if the program has ended.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            self.status = self.child.try_wait().expect("an own child can be waited for");
            self.release();
        }
        self.status
    }

    /// Waits for the exit status; `None` if the program still runs after `timeout`.
    pub fn wait(&mut self, timeout: Duration) -> Option<ExitStatus> {
        poll(timeout, || self.exited())
    }

    /// Sends SIGKILL, also to a stopped program, and waits for the end.
    pub fn kill(&mut self) -> ExitStatus {
        if let Some(status) = self.exited() {
            return status;
        }
        self.child.kill().expect("an own child can be killed");
        let status = self.child.wait().expect("an own child can be waited for");
        self.status = Some(status);
        self.release();
        status
    }

    /// Ends the watcher of a reaped program; it may be gone already.
    fn release(&mut self) {
        if self.status.is_some() {
            let _ = self.leash.write_all(b"reaped\n");
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Folder {
    /// Creates a folder under Cargo's target folder, not in /tmp, which may be memory: the tests cover syncs.
    pub fn new(name: &str) -> Folder {
        let parent = Path::new(env!("CARGO_TARGET_TMPDIR"));
        std::fs::create_dir_all(parent).expect("Cargo's temporary folder can be made");
        let made = tempfile::Builder::new().prefix(&format!("{name}-")).tempdir_in(parent);
        let path = made.expect("a temporary folder can be made").keep();
        let mut remover = Command::new("sh");
        remover.args(["-c", REMOVE_AT_END, "remover"]).arg(&path).process_group(0);
        let remover = remover.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        Folder { path, remover: remover.expect("`sh` can be run") }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Waiting closes the pipe first, which is the signal.
        let _ = self.remover.wait();
    }
}

/// Returns the last `count` lines of a text file; empty if it cannot be read.
pub fn last_lines(path: &Path, count: usize) -> String {
    let text = std::fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

pub fn resident_bytes(pid: u32) -> u64 {
    memory(pid, "VmRSS:")
}

/// Resets the peak to the resident bytes.
pub fn forget_peak(pid: u32) {
    std::fs::write(format!("/proc/{pid}/clear_refs"), "5").expect("Linux lets its owner");
}

/// Returns the resident bytes of the program file.
pub fn file_bytes(pid: u32) -> u64 {
    memory(pid, "RssFile:")
}

pub fn peak_bytes(pid: u32) -> u64 {
    memory(pid, "VmHWM:")
}

fn memory(pid: u32, which: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("procfs is readable");
    let line = status.lines().find_map(|line| line.strip_prefix(which)).expect("its memory");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("kilobytes") * 1024
}
