//! A real mosquitto on a loopback port, with its sessions in a temporary folder.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::mongod::free_port;
use super::packages::{Package, require};
use super::process::{Folder, Process, last_lines};
use super::{TIMEOUT, poll};

/// A running broker. Dropping it kills it and removes its folder.
pub struct Broker {
    process: Process,
    folder: Folder,
    program: PathBuf,
    publisher: PathBuf,
    port: u16,
}

impl Broker {
    /// Starts a broker; `None` without mosquitto.
    #[track_caller]
    pub fn start() -> Option<Broker> {
        Broker::start_with("")
    }

    /// As [`start`](Broker::start), with more lines of its configuration, such as a second listener.
    #[track_caller]
    pub fn start_with(lines: &str) -> Option<Broker> {
        let program = require(Package::Mosquitto)?;
        let publisher = require(Package::MosquittoPub)?;
        let folder = Folder::new("broker");
        let port = free_port();
        let path = folder.path().display();
        // Run as root, it would change to a user who cannot write here.
        let config = format!(
            "user root\nlistener {port} 127.0.0.1\nallow_anonymous true\npersistence true\npersistence_location {path}/\n\
             autosave_interval 1\nmax_queued_messages 0\n{lines}\n"
        );
        std::fs::write(folder.file("mosquitto.conf"), config).expect("the configuration can be written");
        let process = spawn(&program, &folder);
        let broker = Broker { process, folder, program, publisher, port };
        broker.await_listener();
        Some(broker)
    }

    pub fn url(&self) -> String {
        format!("mqtt://127.0.0.1:{}", self.port)
    }

    /// Publishes a message with QoS 1, and waits until the broker has acknowledged it.
    #[track_caller]
    pub fn publish(&self, topic: &str, payload: impl AsRef<[u8]>, arguments: &[&str]) {
        self.pipe(topic, payload.as_ref(), &[&["-s"], arguments].concat());
    }

    /// Publishes each line as a message of QoS 1, and waits until the broker has acknowledged all.
    #[track_caller]
    pub fn publish_lines(&self, topic: &str, lines: &str) {
        self.pipe(topic, lines.as_bytes(), &["-l"]);
    }

    #[track_caller]
    fn pipe(&self, topic: &str, input: &[u8], arguments: &[&str]) {
        let mut command = Command::new(&self.publisher);
        command.args(["-h", "127.0.0.1", "-q", "1", "-V", "mqttv5", "-t", topic, "-p"]).arg(self.port.to_string());
        let mut child = command.args(arguments).stdin(Stdio::piped()).spawn().expect("mosquitto_pub can be started");
        child.stdin.take().expect("a pipe").write_all(input).expect("mosquitto_pub reads its input");
        assert!(child.wait().expect("an own child can be waited for").success(), "{}", self.log());
    }

    /// Sends SIGTERM and waits for the end.
    #[track_caller]
    pub fn stop(&mut self) {
        self.process.signal("TERM");
        assert!(self.process.wait(Duration::from_secs(45)).is_some(), "mosquitto did not end: {}", self.log());
    }

    /// Starts it again after [`stop`](Broker::stop), with the same sessions.
    #[track_caller]
    pub fn restart(&mut self) {
        self.process = spawn(&self.program, &self.folder);
        self.await_listener();
    }

    pub fn log(&self) -> String {
        last_lines(&self.folder.file("log"), 40)
    }

    #[track_caller]
    fn await_listener(&self) {
        let open = || TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).ok();
        assert!(poll(TIMEOUT, open).is_some(), "mosquitto does not listen: {}", self.log());
    }
}

fn spawn(program: &PathBuf, folder: &Folder) -> Process {
    let log = || -> File {
        OpenOptions::new().append(true).create(true).open(folder.file("log")).expect("the log can be opened")
    };
    let mut command = Command::new(program);
    command.arg("-c").arg(folder.file("mosquitto.conf"));
    Process::spawn(&command, log(), log()).expect("mosquitto can be started")
}
