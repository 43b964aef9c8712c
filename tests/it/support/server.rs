//! The real `hourglass` binary with flags, environment, config file and signals, as a user runs it.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use super::poll;
use super::process::{Folder, Process, last_lines};

/// Options to start a server.
#[derive(Clone, Debug)]
pub struct Launch {
    store: String,
    listen: String,
    config: Option<String>,
    environment: Vec<(String, String)>,
    data_dir: Option<PathBuf>,
}

/// A running server with its own folder. Dropping it kills it and in a failing test shows its output.
pub struct Server {
    // Fields drop in this order: the process ends before its folder goes.
    process: Process,
    folder: Folder,
    launch: Launch,
    address: SocketAddr,
}

/// Result of a server that ended by itself.
#[derive(Debug)]
pub struct FinishedServer {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

/// A debug build on a busy machine, with a first connection to MongoDB, needs a few seconds.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// More than the default `shutdown_timeout` of 30 s, after which a server ends by itself.
const STOP_TIMEOUT: Duration = Duration::from_secs(45);

impl Launch {
    /// With the embedded store.
    pub fn embedded() -> Launch {
        Launch::with_store("embedded")
    }

    /// With any value of `--store`: `embedded` or a MongoDB connection string.
    pub fn with_store(store: impl Into<String>) -> Launch {
        Launch {
            store: store.into(),
            listen: ANY_PORT.to_owned(),
            config: None,
            environment: Vec::new(),
            data_dir: None,
        }
    }

    /// With this config file.
    pub fn config(mut self, toml: impl Into<String>) -> Launch {
        self.config = Some(toml.into());
        self
    }

    /// With an environment variable: `HOURGLASS_SECTION_KEY`.
    pub fn env(mut self, key: &str, value: impl ToString) -> Launch {
        self.environment.push((key.to_owned(), value.to_string()));
        self
    }

    /// With another data folder than one in its own folder.
    pub fn data_dir(mut self, folder: PathBuf) -> Launch {
        self.data_dir = Some(folder);
        self
    }

    /// With another `--listen` than a free loopback port.
    pub fn listen(mut self, address: impl ToString) -> Launch {
        self.listen = address.to_string();
        self
    }

    /// Starts it and waits until it is ready.
    #[track_caller]
    pub fn start(self) -> Server {
        let folder = Folder::new("server");
        let process = self.spawn(&folder);
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut server = Server { process, folder, launch: self, address };
        server.await_banner();
        server
    }

    /// Starts a server that should fail, and waits for its end.
    #[track_caller]
    pub fn run_to_end(self) -> FinishedServer {
        let folder = Folder::new("server");
        let mut process = self.spawn(&folder);
        let status = process.wait(START_TIMEOUT);
        let stdout = read(&folder.file(STDOUT));
        let stderr = read(&folder.file(STDERR));
        let status = status.unwrap_or_else(|| panic!("hourglass runs and does not end:\n{stdout}\n{stderr}"));
        FinishedServer { status, stdout, stderr }
    }

    fn spawn(&self, folder: &Folder) -> Process {
        let mut command = program();
        command.arg("serve");
        if let Some(toml) = &self.config {
            let file = folder.file("hourglass.toml");
            std::fs::write(&file, toml).expect("the config file can be written");
            command.arg("--config").arg(file);
        }
        if !self.config.as_deref().is_some_and(|toml| toml.contains("[seal]")) {
            // Tests find old hours in pages, however long they take.
            command.env("HOURGLASS_SEAL_AFTER", "0s");
        }
        command.args(["--listen", &self.listen, "--store", &self.store]);
        let data_dir = self.data_dir.clone().unwrap_or_else(|| folder.file(DATA));
        command.arg("--data-dir").arg(data_dir).current_dir(folder.path());
        command.envs(self.environment.iter().map(|(key, value)| (key, value)));
        let process = Process::spawn(&command, append(&folder.file(STDOUT)), append(&folder.file(STDERR)));
        process.expect("hourglass can be started")
    }
}

impl Server {
    /// With default options and this store: `embedded` or a MongoDB connection string.
    #[track_caller]
    pub fn start(store: &str) -> Server {
        Launch::with_store(store).start()
    }

    /// Returns the URL of a path that begins with a slash.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Returns its `--store`.
    pub fn store(&self) -> &str {
        &self.launch.store
    }

    /// Returns the address of its HTTP listener.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the address of its `https` or `tcp` listener, by the banner.
    #[track_caller]
    pub fn scheme_address(&self, scheme: &str) -> SocketAddr {
        let banner = self.stdout();
        let start = format!("{scheme}://");
        let rest = banner.split(&start).nth(1).unwrap_or_else(|| panic!("no {start} in {banner}"));
        rest.split_whitespace().next().and_then(|address| address.parse().ok()).expect("an address")
    }

    /// Returns the address of `status.listen`, if set.
    #[track_caller]
    pub fn status(&self) -> SocketAddr {
        let banner = self.stdout();
        let address = banner.split("metrics: http://").nth(1).and_then(|rest| rest.split('/').next());
        address.and_then(|address| address.parse().ok()).unwrap_or_else(|| panic!("no address of metrics in {banner}"))
    }

    /// Returns the admin token in the banner of its first start; `None` later.
    pub fn first_token(&self) -> Option<String> {
        self.stdout().lines().find_map(|line| line.trim().strip_prefix("token    ")).map(str::to_owned)
    }

    /// Limits its address space, so that a failing test harms no other.
    pub fn limit_memory(&self, bytes: u64) {
        let [pid, limit] = [format!("--pid={}", self.pid()), format!("--as={bytes}")];
        assert!(Command::new("prlimit").args([pid, limit]).status().expect("prlimit, of util-linux").success());
    }

    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Returns its data folder, which survives restarts.
    pub fn data_dir(&self) -> PathBuf {
        self.folder.file(DATA)
    }

    /// Returns its standard output since the last start: the banner.
    pub fn stdout(&self) -> String {
        read(&self.folder.file(STDOUT))
    }

    /// Returns its standard error since the last start: the log.
    pub fn stderr(&self) -> String {
        read(&self.folder.file(STDERR))
    }

    /// Sends SIGTERM and waits for the end.
    #[track_caller]
    pub fn stop(&mut self) -> ExitStatus {
        self.stop_by("TERM")
    }

    /// Sends a signal (without `SIG`) and waits for the end.
    #[track_caller]
    pub fn stop_by(&mut self, signal: &str) -> ExitStatus {
        self.process.signal(signal);
        let ended = self.process.wait(STOP_TIMEOUT);
        ended.unwrap_or_else(|| panic!("hourglass did not end within {STOP_TIMEOUT:?} of SIG{signal}"))
    }

    /// Sends a signal (without `SIG`): `STOP`, `CONT`, or `TERM` to watch a stop.
    pub fn signal(&mut self, name: &str) {
        self.process.signal(name);
    }

    /// Returns the exit status, if it has ended.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        self.process.exited()
    }

    /// Sends SIGKILL and waits for the end.
    pub fn kill(&mut self) -> ExitStatus {
        self.process.kill()
    }

    /// Kills it and restarts it at the same address.
    #[track_caller]
    pub fn kill_and_restart(&mut self) {
        self.kill();
        self.restart();
    }

    /// Stops it and restarts it at the same address.
    #[track_caller]
    pub fn stop_and_restart(&mut self) {
        self.stop();
        self.restart();
    }

    /// Restarts it on the same data folder and address, and waits until queries are answered.
    #[track_caller]
    pub fn restart(&mut self) {
        self.restart_with(self.launch.clone());
    }

    /// As [`restart`](Server::restart), with other options; the address stays unless the launch names one.
    #[track_caller]
    pub fn restart_with(&mut self, launch: Launch) {
        self.restart_as(launch);
        super::series::await_dispatched(self);
    }

    /// As [`restart`](Server::restart), without waiting until the WAL is dispatched, which needs the store.
    #[track_caller]
    pub fn restart_behind(&mut self) {
        self.restart_as(self.launch.clone());
    }

    /// As [`restart_with`](Server::restart_with), without waiting until the WAL is dispatched.
    #[track_caller]
    pub fn restart_as(&mut self, launch: Launch) {
        self.relaunch(launch);
        self.await_banner();
    }

    /// As [`restart_as`](Server::restart_as), without waiting until it is ready: it may end before.
    #[track_caller]
    pub fn relaunch(&mut self, mut launch: Launch) {
        assert!(self.process.exited().is_some(), "hourglass still runs: stop or kill it first");
        for output in [STDOUT, STDERR] {
            std::fs::remove_file(self.folder.file(output)).expect("the last run's output can be removed");
        }
        if launch.listen == ANY_PORT {
            launch.listen = self.address.to_string();
        }
        self.process = launch.spawn(&self.folder);
        self.launch = launch;
    }

    #[track_caller]
    fn await_banner(&mut self) {
        let ready = poll(START_TIMEOUT, || match ready_address(&self.stdout()) {
            Some(address) => Some(Ok(address)),
            None => self.process.exited().map(Err),
        });
        // A panic drops the server, which shows its output.
        match ready {
            Some(Ok(address)) => self.address = address,
            Some(Err(status)) => panic!("hourglass ended before it was ready ({status})"),
            None => panic!("hourglass was not ready within {START_TIMEOUT:?}"),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for output in [STDOUT, STDERR] {
                let said = last_lines(&self.folder.file(output), 60);
                eprintln!("--- {output} of hourglass, process {}, ends:\n{said}", self.pid());
            }
        } else {
            super::mongod::expect_no_scan_of_shared();
        }
    }
}

/// Returns the binary without variables that would configure it, for commands other than `serve`.
pub fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hourglass"));
    let is_ours = |key: &OsString| key.to_string_lossy().starts_with("HOURGLASS_");
    for key in std::env::vars_os().map(|(key, _)| key).filter(is_ours) {
        command.env_remove(key);
    }
    command
}

const ANY_PORT: &str = "127.0.0.1:0";
const DATA: &str = "data";
const STDOUT: &str = "stdout";
const STDERR: &str = "stderr";

/// Returns the address in a banner with a complete line `ready in N ms`, or `started in N ms, not ready`.
fn ready_address(banner: &str) -> Option<SocketAddr> {
    let is_ready = |line: &str| {
        let start = line.split_once("ready in ").or_else(|| line.split_once("started in "));
        let after = start.map(|(_, after)| after);
        after.and_then(|after| after.split_once(" ms")).is_some_and(|(number, _)| number.parse::<f64>().is_ok())
    };
    if !banner.lines().any(is_ready) {
        return None;
    }
    banner.split("http://").skip(1).find_map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_hexdigit() && !".:[]".contains(c)).unwrap_or(rest.len());
        rest[..end].trim_end_matches(['.', ':']).parse().ok()
    })
}

fn append(path: &Path) -> File {
    OpenOptions::new().create(true).append(true).open(path).expect("an output file can be made")
}

fn read(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
}
