//! The service, its store and their faults.

use super::super::history::CellKey;
use super::clients::{Acks, Clients, parse_value, sensors};
use super::{POINT_TIME_MAX, busy_config, summaries};
use crate::support::prelude::*;

/// A service of one or more instances, and its store.
pub struct World {
    pub servers: Vec<Server>,
    launch: Launch,
    store: Option<OwnStore>,
    backups: Folder,
}

/// A MongoDB behind a fault proxy.
struct OwnStore {
    // Fields drop in this order.
    proxy: Proxy,
    mongod: Mongod,
    name: String,
}

/// A fault of the service or its store.
#[derive(Debug, Clone)]
pub enum ServiceFault {
    /// No fault besides the running jobs.
    None,
    Kill,
    /// The service kills itself at the nth pass of a point.
    KillAt {
        point: String,
        nth: i64,
    },
    /// The store hangs.
    Stall,
    /// The store is killed and restarted.
    StoreKill,
    StepDown,
    Network(Fault),
}

impl ServiceFault {
    /// Returns the name of the fault in the report.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::None => "no fault",
            Self::Kill => "kill",
            Self::KillAt { .. } => "kill at a point",
            Self::Stall => "stalled store",
            Self::StoreKill => "killed store",
            Self::StepDown => "step-down",
            Self::Network(_) => "network",
        }
    }
}

/// Time after which every instance applies the deletions of others.
const DELETION_DELAY_MAX: Duration = Duration::from_secs(10);

/// A successful backup and its time.
#[derive(Debug, Clone, Copy)]
pub struct FinishedBackup {
    started: Instant,
    ended: Instant,
}

/// Prints the last operation when a test fails.
struct LastOperation<'a>(&'a str);

impl Drop for LastOperation<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the last operation: {}", self.0);
        }
    }
}

impl World {
    pub fn embedded() -> World {
        World::start(Launch::embedded().config(busy_config()), 1, None)
    }

    pub fn mongo(instances: usize) -> World {
        let mongod = Mongod::start();
        let proxy = Proxy::start(mongod.port());
        let name = fresh_database_name();
        let uri = format!("mongodb://127.0.0.1:{}/{name}?directConnection=true", proxy.port());
        World::start(Launch::with_store(uri).config(busy_config()), instances, Some(OwnStore { proxy, mongod, name }))
    }

    fn start(launch: Launch, instances: usize, store: Option<OwnStore>) -> World {
        let servers = (0..instances).map(|_| launch.clone().start()).collect();
        World { servers, launch, store, backups: Folder::new("backups") }
    }

    pub fn is_shared(&self) -> bool {
        self.store.is_some()
    }

    pub fn bases(&self) -> Vec<String> {
        self.servers.iter().map(|server| server.url("")).collect()
    }

    /// Chooses a fault other than a kill at a point.
    pub fn random_fault(&self, random: &mut Random) -> ServiceFault {
        let mut all = vec![ServiceFault::None, ServiceFault::Kill, ServiceFault::Kill];
        if self.is_shared() {
            all.extend([ServiceFault::Stall, ServiceFault::StoreKill, ServiceFault::StepDown]);
            let faults = [Fault::BlackHole, Fault::Reset, Fault::CutReply { after: 0 }, Fault::CutReply { after: 40 }];
            all.extend(faults.map(ServiceFault::Network));
        }
        random.pick(&all)
    }

    pub fn ask_meanwhile(
        &self,
        asked: Option<&str>,
        instance: usize,
        random: &mut Random,
    ) -> Option<JoinHandle<Option<FinishedBackup>>> {
        let base = self.servers[instance].url("");
        let backup_dir = self.backups.path().to_owned();
        let kill_point = random.once_in(3).then(|| random.pick(&["day_kept:1", "days_kept:1", "manifest_kept:1"]));
        match asked {
            Some("backup") => Some(std::thread::spawn(move || {
                let started = Instant::now();
                let mut command = program();
                command.args(["backup", "create"]).arg(backup_dir).args(["--server", &base, "--patience", "20s"]);
                command.envs(kill_point.map(|point| ("FAULT_KILL_AT", point)));
                let output = command.output().expect("hourglass can be run");
                output.status.success().then(|| FinishedBackup { started, ended: Instant::now() })
            })),
            Some(what) => {
                let url = format!("{base}/api/v1/jobs/{what}/run");
                Some(std::thread::spawn(move || {
                    let _ = request("POST", &url, b"", &[]);
                    None
                }))
            }
            None => None,
        }
    }

    /// Causes a fault; returns true if a requested point was reached.
    pub fn inject(&mut self, fault: &ServiceFault, victim: usize, random: &mut Random, acks: &Acks<'_>) -> bool {
        let pause = Duration::from_millis(200 + random.below(900).unsigned_abs());
        match fault {
            ServiceFault::None => {
                let before = acks.count();
                poll(TIMEOUT, || (acks.count() > before + 10).then_some(()));
            }
            ServiceFault::Kill => {
                self.servers[victim].kill();
                self.servers[victim].restart_behind();
            }
            ServiceFault::KillAt { point, nth } => return self.kill_at(victim, &format!("{point}:{nth}")),
            ServiceFault::Stall => {
                let own = self.store.as_mut().expect("a store of its own");
                own.mongod.pause();
                std::thread::sleep(pause);
                own.mongod.resume();
            }
            ServiceFault::StoreKill => {
                let own = self.store.as_mut().expect("a store of its own");
                own.mongod.kill();
                own.mongod.restart();
            }
            ServiceFault::StepDown => self.store.as_ref().expect("a store of its own").step_down(),
            ServiceFault::Network(fault) => {
                let own = self.store.as_ref().expect("a store of its own");
                own.proxy.set(*fault);
                std::thread::sleep(pause);
                own.proxy.set(Fault::Pass);
            }
        }
        false
    }

    /// Restarts an instance with a fault point; one that does not reach it is killed all the same.
    fn kill_at(&mut self, victim: usize, point: &str) -> bool {
        let server = &mut self.servers[victim];
        server.kill();
        server.relaunch(self.launch.clone().env("FAULT_KILL_AT", point));
        let ended = poll(POINT_TIME_MAX, || server.exited());
        server.kill();
        server.restart_as(self.launch.clone());
        ended.is_some_and(|status| status.signal() == Some(9))
    }

    /// Waits until all instances have dispatched their backlog with its deletions; before that, answers may differ.
    pub fn await_recovered(&self) {
        for server in &self.servers {
            let is_recovered = || {
                let answer = request("GET", &server.url("/api/v1/status"), b"", &[]).ok()?;
                let status = (answer.status == 200).then(|| answer.json())?;
                (status["feeding"] == false && status["deletions_in_progress"] == 0).then_some(())
            };
            eventually("the backlog is dispatched and its deletions are done", is_recovered);
        }
    }

    /// Returns the readings of a sensor; waits until the store answers.
    pub fn readings(
        &self,
        server: &Server,
        database: &str,
        sensor: &str,
        range: Option<(i64, i64)>,
    ) -> Vec<crate::support::series::ReadingTexts> {
        let ask = |path: &str| -> Answer {
            eventually("a question is answered", || {
                let answer = request("GET", &server.url(path), b"", &[]).expect("the service is there");
                (answer.status != 503).then_some(answer)
            })
        };
        readings_for(ask, database, sensor, range, 10_000)
    }

    fn read_values(&self, server: &Server) -> BTreeMap<CellKey, i64> {
        let mut found = BTreeMap::new();
        for (database, sensor) in sensors() {
            for (time, fields) in self.readings(server, database, &sensor, None) {
                for (field, text) in fields {
                    let value = parse_value(&field, &text);
                    found.insert(CellKey { sensor: sensor.clone(), time, field }, value);
                }
            }
        }
        found
    }

    fn flush(&self) {
        for server in &self.servers {
            let url = server.url("/api/v1/flush");
            let flushed = || request("POST", &url, b"", &[]).is_ok_and(|answer| answer.status == 204);
            wait_until("a flush", flushed);
        }
    }

    /// Checks the readings and summaries of every instance against the history.
    #[track_caller]
    pub fn check(&mut self, clients: &Clients, when: &str, thoroughly: bool) {
        let _last_operation = LastOperation(when);
        // Unflushed readings are visible on their own instance only.
        if self.servers.len() > 1 || thoroughly {
            self.flush();
        }
        let mut found = BTreeMap::new();
        for server in &self.servers {
            // With several instances, deletions of others apply a moment later.
            let patience = if self.servers.len() > 1 { DELETION_DELAY_MAX } else { Duration::ZERO };
            let mut wrong = None;
            let is_right = || {
                found = self.read_values(server);
                let now = clients.find_error(&found);
                let is_right = now.is_none();
                wrong = wrong.take().or(now);
                is_right.then_some(())
            };
            assert!(
                poll(patience, is_right).is_some(),
                "{when}: {}, and so for {patience:?}",
                wrong.unwrap_or_default()
            );
        }
        clients.check(found.clone());
        for server in &self.servers {
            assert!(self.read_values(server) == found, "{when}: two answers differ");
            sensors().iter().for_each(|(database, sensor)| summaries::check(server, database, sensor, &found, when));
        }
        if thoroughly {
            self.verify(when);
            let again = self.read_values(&self.servers[0]);
            assert!(again == found, "{when}: verify changed an answer");
        }
    }

    #[track_caller]
    fn verify(&mut self, when: &str) {
        match &self.store {
            Some(own) => assert_verified(&own.mongod.uri(&own.name), &self.servers[0].data_dir(), when),
            None => {
                // The file can be opened after the stop.
                assert!(self.servers[0].stop().success(), "{when}: a stop");
                assert_verified("embedded", &self.servers[0].data_dir(), when);
                self.servers[0].restart();
            }
        }
    }

    /// Checks that a backup holds everything acked before it began and nothing sent after it ended.
    #[track_caller]
    pub fn restore_and_check(&self, backup: &FinishedBackup, clients: &Clients, number: usize) {
        let when = format!("backup {number}");
        let _last_operation = LastOperation(&when);
        let from = self.backups.path().to_str().expect("UTF-8");
        let restore = |store: &str, data: &Path| {
            let data = data.to_str().expect("UTF-8");
            let arguments = ["backup", "restore", from, "--store", store, "--data-dir", data];
            run_with_kill(&arguments, (number % 3 == 2).then_some("day_restored:1"));
        };
        let server = self.start_other_store(number.is_multiple_of(2), restore, &when);
        // Readings that are about to expire may do so in the restored service between both queries.
        let mut wrong = None;
        let is_right = || {
            let found = self.read_values(&server);
            clients.check_between(backup.started, backup.ended, &found);
            let difference =
                |(database, sensor): &(&str, String)| summaries::difference(&server, database, sensor, &found, &when);
            wrong = sensors().iter().find_map(difference);
            let is_at_rest = self.read_values(&server) == found;
            is_at_rest.then_some(())
        };
        assert!(poll(TIMEOUT, is_right).is_some(), "{when}: readings go on to change");
        assert!(wrong.is_none(), "{}", wrong.unwrap_or_default());
    }

    /// Checks that a copy answers like the original.
    #[track_caller]
    pub fn copy_and_check(&mut self, clients: &Clients, number: usize) {
        let when = format!("copy {number}");
        let _last_operation = LastOperation(&when);
        self.flush();
        let found = self.read_values(&self.servers[0]);
        clients.check(found.clone());
        self.servers.iter_mut().for_each(|server| assert!(server.stop().success(), "{when}: a stop"));
        let scratch = Folder::new("copy");
        let config = scratch.file("own.toml");
        let data = scratch.file("data");
        std::fs::write(&config, busy_config()).expect("a file");
        std::fs::create_dir(&data).expect("a folder can be made");
        let from = match &self.store {
            Some(own) => own.mongod.uri(&own.name),
            None => self.servers[0].data_dir().display().to_string(),
        };
        let copy = |store: &str, folder: &Path| {
            let target = if store == "embedded" { folder.to_str().expect("UTF-8") } else { store };
            let [config, data] = [&config, &data].map(|path| path.to_str().expect("UTF-8"));
            let arguments =
                ["backup", "copy", "--source", &from, "--target", target, "--config", config, "--data-dir", data];
            run_with_kill(&arguments, Some("day_copied:2"));
        };
        let server = self.start_other_store(!self.is_shared(), copy, &when);
        assert!(self.read_values(&server) == found, "{when}: a copy answers something else");
        drop(server);
        self.servers.iter_mut().for_each(Server::restart);
    }

    /// Starts a service on another store after filling it, and verifies it.
    #[track_caller]
    fn start_other_store(&self, is_mongo: bool, fill: impl Fn(&str, &Path), when: &str) -> Server {
        let store = if is_mongo { mongod().uri(&fresh_database_name()) } else { "embedded".to_owned() };
        // It has the folder that is filled.
        let mut server = Launch::embedded().config(busy_config()).start();
        assert!(server.stop().success());
        std::fs::remove_dir_all(server.data_dir()).expect("the folder exists");
        fill(&store, &server.data_dir());
        if is_mongo {
            std::fs::create_dir_all(server.data_dir()).expect("a folder can be made");
        }
        assert_verified(&store, &server.data_dir(), when);
        server.restart_with(Launch::with_store(&store).config(busy_config()));
        server
    }
}

impl OwnStore {
    /// Makes the primary a secondary for a second, after which it is elected again.
    fn step_down(&self) {
        let uri = format!("mongodb://127.0.0.1:{}/?directConnection=true", self.mongod.port());
        run_command(&uri, Some("admin"), doc! { "replSetStepDown": 1, "force": true });
    }
}

/// Runs a command with a kill at a point, then again until it succeeds.
#[track_caller]
fn run_with_kill(arguments: &[&str], kill_point: Option<&str>) {
    let run = |point: Option<&str>| {
        let mut command = program();
        command.args(arguments).envs(point.map(|point| ("FAULT_KILL_AT", point)));
        command.output().expect("hourglass can be run")
    };
    if let Some(point) = kill_point {
        let first = run(Some(point));
        if first.status.success() {
            return;
        }
        assert_eq!(first.status.signal(), Some(9), "{arguments:?}: {first:?}");
    }
    let output = run(None);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
}

#[track_caller]
fn assert_verified(store: &str, data: &Path, when: &str) {
    let mut command = program();
    command.args(["verify", "--store", store, "--data-dir"]).arg(data).env("HOURGLASS_TELEMETRY_LOG_LEVEL", "warn");
    for (key, value) in [("MAX_READINGS", "20"), ("MAX_BYTES", "2KiB"), ("HARD_BYTES", "3KiB")] {
        command.env(format!("HOURGLASS_PAGE_{key}"), value);
    }
    let output = command.output().expect("hourglass can be run");
    let printed = [output.stdout, output.stderr].map(|printed| String::from_utf8_lossy(&printed).into_owned()).concat();
    assert!(output.status.success(), "{when}: verify {}: {printed}", output.status);
}
