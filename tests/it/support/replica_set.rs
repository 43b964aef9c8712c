//! Three mongod as one replica set on loopback, which can be stopped, killed, voted out and made to fail.

use std::fs::OpenOptions;
use std::process::Command;
use std::time::Duration;

use mongodb::Client;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, Document, doc};
use mongodb::error::Error;
use tokio::runtime::Runtime;

use super::mongod::{REPLICA_SET, free_port, program};
use super::process::{Folder, Process, last_lines};
use super::proxy::Proxy;
use super::{eventually, poll};

/// Advertised addresses of the members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Front {
    /// The own port.
    Direct,
    /// A proxy in front of it.
    Proxies,
}

/// A running replica set. Dropping it kills it and removes its folders.
pub struct ReplicaSet {
    members: Vec<Member>,
    runtime: Runtime,
}

struct Member {
    // Fields drop in this order: the process ends before its folder goes.
    process: Process,
    folder: Folder,
    port: u16,
    proxy: Option<Proxy>,
    paused: bool,
}

/// Time for a set to have one primary and two secondaries, on a busy machine.
const HEALTHY_TIMEOUT: Duration = Duration::from_secs(90);
const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);
const ELECTION_TIMEOUT_MS: i32 = 2000;
const SECONDARY: i32 = 2;

impl ReplicaSet {
    /// Starts three members and waits until the set is complete.
    #[track_caller]
    pub fn start(front: Front) -> ReplicaSet {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a tokio runtime can be built");
        let set = ReplicaSet { members: (0..3).map(|_| Member::start(front)).collect(), runtime };
        let members: Vec<Bson> = set.members.iter().zip(0..).map(|(member, id)| member.as_configured(id)).collect();
        let settings = doc! { "electionTimeoutMillis": ELECTION_TIMEOUT_MS, "heartbeatIntervalMillis": 500 };
        let config = doc! { "_id": REPLICA_SET, "members": members, "settings": settings };
        for member in 0..set.len() {
            set.await_commands(member);
        }
        let initiated = set.admin(0, doc! { "replSetInitiate": config });
        initiated.unwrap_or_else(|error| panic!("the set is not initiated: {error}\n{}", set.members[0].log()));
        set.await_healthy();
        set
    }

    /// Returns the connection string of `database` with the advertised addresses.
    pub fn uri(&self, database: &str) -> String {
        let hosts: Vec<String> = self.members.iter().map(Member::advertised).collect();
        format!("mongodb://{}/{database}?replicaSet={REPLICA_SET}", hosts.join(","))
    }

    /// Returns the proxy of a member; panics in a set without proxies.
    pub fn proxy(&self, member: usize) -> &Proxy {
        self.members[member].proxy.as_ref().expect("the set was started with proxies")
    }

    pub fn len(&self) -> usize {
        self.members.len()
    }

    pub fn others(&self, member: usize) -> Vec<usize> {
        (0..self.len()).filter(|other| *other != member).collect()
    }

    /// Waits for a primary and returns its member; of two, the one elected later.
    #[track_caller]
    pub fn primary(&self) -> usize {
        eventually("a primary is elected", || self.present_primary())
    }

    /// Waits for a primary among these members.
    #[track_caller]
    pub fn primary_among(&self, members: &[usize]) -> usize {
        let among = || self.present_primary().filter(|primary| members.contains(primary));
        eventually("one of these members is elected", among)
    }

    /// Waits until all members run, one as primary and the others as secondaries.
    #[track_caller]
    pub fn await_healthy(&self) {
        let mut last = String::new();
        let healthy = poll(HEALTHY_TIMEOUT, || {
            let primary = self.present_primary()?;
            let status = self.admin(primary, doc! { "replSetGetStatus": 1 }).ok()?;
            let members = status.get_array("members").ok()?;
            let states = members.iter().map(|member| member.as_document()?.get_i32("state").ok());
            let states: Option<Vec<i32>> = states.collect();
            let states = states?;
            last = format!("states {states:?}");
            (states.iter().filter(|state| **state == SECONDARY).count() == self.len() - 1).then_some(())
        });
        assert!(healthy.is_some(), "the set is not whole within {HEALTHY_TIMEOUT:?}: {last}");
    }

    /// Makes the primary step down and waits for the next one.
    #[track_caller]
    pub fn step_down(&self) -> usize {
        let old = self.primary();
        let command = doc! { "replSetStepDown": 15, "secondaryCatchUpPeriodSecs": 10 };
        let others = self.others(old);
        // The answer may take longer than the timeout; only the election counts.
        eventually("the primary gives way to another member", || {
            let _ = self.admin(old, command.clone());
            self.present_primary().filter(|primary| others.contains(primary))
        })
    }

    /// Sends SIGSTOP: connections stay open without answers.
    pub fn pause(&mut self, member: usize) {
        self.members[member].process.signal("STOP");
        self.members[member].paused = true;
    }

    /// Sends SIGCONT.
    pub fn resume(&mut self, member: usize) {
        self.members[member].process.signal("CONT");
        self.members[member].paused = false;
    }

    /// Sends SIGKILL.
    pub fn kill(&mut self, member: usize) {
        self.members[member].process.kill();
    }

    /// Restarts a member after [`kill`](ReplicaSet::kill), on the same port and folder, without waiting.
    #[track_caller]
    pub fn restart(&mut self, member: usize) {
        let member = &mut self.members[member];
        assert!(member.process.exited().is_some(), "the member still runs: kill it first");
        member.process = spawn(&member.folder, member.port);
        member.paused = false;
    }

    /// Fails hourglass's next `times` of these commands by `data` (`errorCode`, `closeConnection`,
    /// `writeConcernError`); returns the failures so far in the member's life.
    #[track_caller]
    pub fn fail_commands(&self, member: usize, times: i32, commands: &[&str], mut data: Document) -> i64 {
        data.insert("failCommands", commands);
        let command = doc! { "configureFailPoint": "failCommand", "mode": { "times": times }, "data": data };
        count_of(&self.admin(member, command).expect("a fail point is set"))
    }

    /// Ends [`fail_commands`](ReplicaSet::fail_commands) and returns the failures in the member's life.
    #[track_caller]
    pub fn stop_failing(&self, member: usize) -> i64 {
        let off = doc! { "configureFailPoint": "failCommand", "mode": "off" };
        count_of(&self.admin(member, off).expect("a fail point is cleared"))
    }

    /// Runs an admin command on one member, by its own port.
    pub fn admin(&self, member: usize, command: Document) -> Result<Document, Error> {
        self.command(member, "admin", command)
    }

    /// Runs a command on one member, by its own port.
    pub fn command(&self, member: usize, database: &str, command: Document) -> Result<Document, Error> {
        let uri = format!(
            "mongodb://127.0.0.1:{}/?directConnection=true&serverSelectionTimeoutMS=2000",
            self.members[member].port
        );
        let answer = async {
            let client = Client::with_uri_str(uri).await?;
            client.database(database).run_command(command).await
        };
        let answer = self.runtime.block_on(async { tokio::time::timeout(COMMAND_TIMEOUT, answer).await });
        answer.unwrap_or_else(|_elapsed| Err(Error::custom("the member did not answer in time")))
    }

    fn await_commands(&self, member: usize) {
        let mut last = String::new();
        let taken = poll(HEALTHY_TIMEOUT, || {
            let answer = self.admin(member, doc! { "ping": 1 });
            answer.map_err(|error| last = error.to_string()).ok()
        });
        assert!(taken.is_some(), "a member takes no commands: {last}\n{}", self.members[member].log());
    }

    fn present_primary(&self) -> Option<usize> {
        let elected = |member: usize| -> Option<(ObjectId, usize)> {
            let hello = self.admin(member, doc! { "hello": 1 }).ok()?;
            let writable = hello.get_bool("isWritablePrimary").unwrap_or(false);
            // Later elections have greater ids.
            if writable { hello.get_object_id("electionId").ok().map(|id| (id, member)) } else { None }
        };
        let answering = (0..self.len()).filter(|member| !self.members[*member].paused);
        answering.filter_map(elected).max().map(|(_, member)| member)
    }
}

impl Member {
    #[track_caller]
    fn start(front: Front) -> Member {
        let folder = Folder::new("member");
        std::fs::create_dir(folder.file("db")).expect("mongod's folder can be made");
        let port = free_port();
        let process = spawn(&folder, port);
        let proxy = (front == Front::Proxies).then(|| Proxy::start(port));
        Member { process, folder, port, proxy, paused: false }
    }

    fn advertised(&self) -> String {
        format!("127.0.0.1:{}", self.proxy.as_ref().map_or(self.port, Proxy::port))
    }

    fn as_configured(&self, id: i32) -> Bson {
        doc! { "_id": id, "host": self.advertised() }.into()
    }

    fn log(&self) -> String {
        last_lines(&self.folder.file("mongod.log"), 40)
    }
}

fn count_of(answer: &Document) -> i64 {
    answer.get_i64("count").or_else(|_| answer.get_i32("count").map(i64::from)).expect("a count")
}

#[track_caller]
fn spawn(folder: &Folder, port: u16) -> Process {
    let program = program().unwrap_or_else(|why| panic!("{why}"));
    let mut command = Command::new(program);
    command.args(["--replSet", REPLICA_SET, "--bind_ip", "127.0.0.1", "--port", &port.to_string()]);
    command.args(["--nounixsocket", "--wiredTigerCacheSizeGB", "0.25", "--oplogSize", "512"]);
    command.args(["--setParameter", "diagnosticDataCollectionEnabled=false"]);
    // A killed server's transaction holds its documents for this long; the default is a minute.
    command.args(["--setParameter", "transactionLifetimeLimitSeconds=3"]);
    command.args(["--setParameter", "enableTestCommands=1"]);
    command.arg("--dbpath").arg(folder.file("db")).current_dir(folder.path());
    let log = OpenOptions::new().create(true).append(true).open(folder.file("mongod.log"));
    let log = log.expect("mongod's log can be opened");
    let errors = log.try_clone().expect("a second handle of the log");
    Process::spawn(&command, log, errors).expect("mongod can be started")
}
