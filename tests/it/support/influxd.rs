//! A real InfluxDB 1.x on free loopback ports, in a temporary folder, without reports, statistics and background jobs.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::http::request;
use super::mongod::free_port;
use super::packages::{not_run, on_path};
use super::poll;
use super::process::{Folder, Process, last_lines};

/// A running influxd. Dropping it kills it, removes its folder, and in a failing test shows the end of its log.
pub struct Influxd {
    // Fields drop in this order: the process ends before its folder goes.
    process: Process,
    folder: Folder,
    port: u16,
}

const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Another process can take a free port before influxd; five times in a row is another problem.
const PORT_ATTEMPTS: usize = 5;

impl Influxd {
    /// Starts influxd and waits until it answers; `None` if it is missing. Panics if it is required or does not start.
    #[track_caller]
    pub fn start() -> Option<Influxd> {
        let program = match program() {
            Ok(program) => program,
            Err(why) => {
                not_run(&format!("needs `influxd` 1.x of the Debian package influxdb ({why})"));
                return None;
            }
        };
        let mut last = String::new();
        for _ in 0..PORT_ATTEMPTS {
            match Influxd::try_start(&program) {
                Ok(influxd) => return Some(influxd),
                Err(why) => last = why,
            }
        }
        panic!("{last}");
    }

    /// Returns the URL of a path that begins with a slash.
    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    fn try_start(program: &Path) -> Result<Influxd, String> {
        let folder = Folder::new("influxd");
        let port = free_port();
        let rpc = free_port();
        std::fs::write(folder.file("influxdb.conf"), config(&folder, port, rpc)).expect("a config file can be written");
        let mut command = Command::new(program);
        command.args(["run", "-config"]).arg(folder.file("influxdb.conf")).current_dir(folder.path());
        // Its settings can come from the environment, too.
        for (key, _) in std::env::vars_os().filter(|(key, _)| key.to_string_lossy().starts_with("INFLUXDB_")) {
            command.env_remove(key);
        }
        let log = OpenOptions::new().create(true).append(true).open(folder.file(LOG)).expect("a log can be made");
        let errors = log.try_clone().expect("a log can be shared");
        let process = Process::spawn(&command, log, errors).expect("influxd can be started");
        let mut influxd = Influxd { process, folder, port };
        let answered = poll(START_TIMEOUT, || {
            if influxd.process.exited().is_some() {
                return Some(false);
            }
            let pong = request("GET", &influxd.url("/ping"), b"", &[]);
            pong.is_ok_and(|pong| pong.status == 204).then_some(true)
        });
        // Another server may answer at the port while ours is about to fail.
        if answered == Some(true) && influxd.process.exited().is_none() {
            return Ok(influxd);
        }
        let what = if answered.is_none() { "did not answer" } else { "ended" };
        Err(format!("{} {what}; its log ends:\n{}", program.display(), last_lines(&influxd.folder.file(LOG), 20)))
    }
}

impl Drop for Influxd {
    fn drop(&mut self) {
        if let Some(status) = self.process.exited().filter(|_| std::thread::panicking()) {
            let printed = last_lines(&self.folder.file(LOG), 20);
            eprintln!("--- influxd had ended ({status}); its log ends:\n{printed}");
        }
    }
}

const LOG: &str = "influxd.log";

/// Returns a version with InfluxQL; later ones of the same name lack it.
fn program() -> Result<PathBuf, String> {
    let program = on_path(Path::new("influxd")).ok_or("it is not on PATH")?;
    let printed = Command::new(&program).arg("version").output().map_err(|error| error.to_string())?;
    let printed = String::from_utf8_lossy(&printed.stdout).into_owned();
    if printed.contains("v1.") { Ok(program) } else { Err(format!("it says {:?}", printed.trim())) }
}

fn config(folder: &Folder, port: u16, rpc: u16) -> String {
    let path = |name: &str| folder.file(name).display().to_string();
    format!(
        r#"
reporting-enabled = false
bind-address = "127.0.0.1:{rpc}"
[meta]
dir = "{meta}"
[data]
dir = "{data}"
wal-dir = "{wal}"
query-log-enabled = false
[monitor]
store-enabled = false
[subscriber]
enabled = false
[continuous_queries]
enabled = false
[retention]
enabled = false
[shard-precreation]
enabled = false
[http]
bind-address = "127.0.0.1:{port}"
auth-enabled = false
log-enabled = false
"#,
        meta = path("meta"),
        data = path("data"),
        wal = path("wal"),
    )
}
