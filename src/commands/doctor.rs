//! `hourglass doctor`: tries everything that a start needs, without starting and without leaving anything behind.

use std::fmt::Display;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use super::healthcheck::metric_of_service;
use crate::access::{TokenFile, TokenStore};
use crate::app::first_token::SecretFile;
use crate::app::open::open_mongo;
use crate::bucket::store::Coordination;
use crate::clock::{now_ns, now_seconds};
use crate::config::units::show_size;
use crate::config::{AuthRequired, Settings};
use crate::edge::Tls;
use crate::store::{MongoStore, free_bytes};
use crate::telemetry::metrics::STORE_FULL_SECONDS;
use crate::telemetry::{Metrics, logs};

/// Exit status if something is wrong (`EX_CONFIG` of sysexits.h).
const EXIT_CONFIG: u8 = 78;
/// Number of measured syncs.
const SYNCS: usize = 20;
/// Number of bytes written before each sync.
const SYNC_BYTES: usize = 4096;
/// Median time of a sync above which it is reported, because every ack waits for one.
const SLOW_SYNC: Duration = Duration::from_millis(100);
/// Seconds before a certificate expires from which on it is reported, as by the alert.
const CERTIFICATE_SOON_SECONDS: i64 = 7 * 86_400;
/// Days before the disk of the store is full from which on it is reported, as by the alert.
const DISK_SOON_DAYS: f64 = 7.0;
/// Descriptors besides those of connections: files of the WAL and the store, connections to MongoDB.
const OTHER_FILES: u64 = 256;

/// Tries everything that `serve` needs, and prints problems and figures of disk, clock and store.
#[must_use]
pub fn examine(settings: &Settings) -> ExitCode {
    logs::start("off", &settings.telemetry);
    let examined = crate::app::run_to_end(async {
        let mut examination = Examination { problems: 0 };
        examination.run(settings).await;
        Ok(examination.problems)
    });
    match examined {
        Ok(0) => {
            println!("nothing is wrong: serve would start");
            ExitCode::SUCCESS
        }
        Ok(problems) => {
            eprintln!("hourglass: {problems} problem{}; nothing was started", if problems == 1 { "" } else { "s" });
            ExitCode::from(EXIT_CONFIG)
        }
        Err(error) => crate::app::report_error(&error),
    }
}

/// Prints problems and counts them.
struct Examination {
    problems: usize,
}

impl Examination {
    async fn run(&mut self, settings: &Settings) {
        let mut folders = vec![("server.data_dir", settings.server.data_dir.clone())];
        if settings.wal_dir().parent() != Some(settings.server.data_dir.as_path()) {
            folders.push(("wal.dir", settings.wal_dir()));
        }
        for (key, folder) in &folders {
            if self.note(check_writable(folder).with_context(|| format!("{key} = {}", folder.display()))).is_some() {
                self.disk(key, folder, settings);
            }
        }
        self.note(check_not_in_use(&settings.wal_dir()));
        self.running_service(settings);
        self.contradictions(settings);
        self.open_doors(settings);
        for (key, address) in settings.listeners() {
            let bound = std::net::TcpListener::bind(address).map(drop);
            self.note(bound.map_err(|error| {
                let cause = match error.kind() {
                    ErrorKind::AddrNotAvailable => "this machine has no such address",
                    ErrorKind::PermissionDenied => "binding a port below 1024 needs CAP_NET_BIND_SERVICE or root",
                    _ => "is it in use, by a running service?",
                };
                anyhow::Error::new(error).context(format!("{key}: listening on {address} ({cause})"))
            }));
        }
        if settings.tls.listen.is_some() || settings.tcp.tls {
            let metrics = Metrics::new(env!("CARGO_PKG_VERSION"), "none").context("setting up metrics");
            let tls = metrics.and_then(|metrics| Ok(Tls::load(settings.tls.clone(), metrics)?));
            if let Some(tls) = self.note(tls) {
                self.certificates(&tls);
            }
        }
        for broker in &settings.mqtt {
            let probed = crate::mqtt::probe(broker).await;
            self.note(
                probed
                    .with_context(|| format!("[[mqtt]] {}: {}:{}", broker.client_id, broker.url.host, broker.url.port)),
            );
        }
        self.descriptors(settings);
        let tokens = if settings.store.uri.is_embedded() {
            TokenFile::primary(&settings.server.data_dir).tokens().await.context("server.data_dir")
        } else {
            self.mongo(settings).await.context("store.uri")
        };
        let first = &settings.auth.first_token_file;
        if tokens.as_ref().is_ok_and(Vec::is_empty) && !first.as_os_str().is_empty() {
            self.note(SecretFile::probe(first));
        }
        self.note(tokens.and_then(|tokens| {
            let needed = settings.exposed_address().is_some() || settings.auth.required == AuthRequired::Always;
            let has_one = tokens.iter().any(|token| {
                let expires = token.ends(settings.max_lifetime());
                crate::access::Token { expires, ..token.clone() }.is_live(now_seconds())
            });
            if needed && !has_one && !tokens.is_empty() && settings.max_lifetime().is_some() {
                bail!("tokens are required, and every token has ended, by its own end or by auth.max_lifetime: create a new one");
            }
            let makes_one = settings.makes_first_token() && tokens.is_empty();
            if needed && !has_one && !makes_one {
                bail!(
                    "tokens are required, because other machines can reach {} or because of auth.required, and there is \
                     no valid token: hourglass token add --name first --admin '*'",
                    settings.front()
                );
            }
            Ok(())
        }));
    }

    /// Reports loadable certificates that clients refuse now or soon, and revocation lists that refuse all clients.
    fn certificates(&mut self, tls: &Tls) {
        if let Some(end) = tls.not_after().filter(|end| *end <= now_seconds() + CERTIFICATE_SOON_SECONDS) {
            let expires = if end <= now_seconds() { "has expired" } else { "expires soon" };
            let end = jiff::Timestamp::from_second(end).map_or_else(|_| "before now".to_owned(), |end| end.to_string());
            self.problem(format_args!("tls.cert_file: the certificate {expires} ({end}): renew it"));
        }
        if self.note(tls.lacks_revocation_list().map_err(anyhow::Error::from)) == Some(true) {
            self.problem(
                "tls.client_crl_file: an authority of tls.client_ca_file has no revocation list in it, so that all its \
                 clients are refused: add its list",
            );
        }
    }

    /// Reports keys that contradict each other, although a service with them starts.
    fn contradictions(&mut self, settings: &Settings) {
        let Settings { server, limits, wal, .. } = settings;
        self.not_above(
            ("server.connections_per_address", server.connections_per_address),
            ("server.connections", server.connections),
            "one address can take all connections",
        );
        self.not_above(
            ("limits.line_bytes", limits.line_bytes),
            ("limits.body_bytes", limits.body_bytes),
            "no request can have such a line",
        );
        self.not_above(
            ("limits.body_bytes", limits.body_bytes),
            ("wal.segment_bytes", wal.segment_bytes),
            "the record of a request must fit into a segment",
        );
    }

    /// Reports a key whose value exceeds that of another key.
    fn not_above(&mut self, key: (&str, usize), bound: (&str, usize), reason: &str) {
        if key.1 <= bound.1 {
            return;
        }
        let show = |value: usize| if key.0.ends_with("_bytes") { show_size(value) } else { value.to_string() };
        let value = show(key.1);
        let max = show(bound.1);
        self.problem(format_args!("{} ({value}) is more than {} ({max}): {reason}", key.0, bound.0));
    }

    /// Reports keys that admit everybody.
    fn open_doors(&mut self, settings: &Settings) {
        if let Some((address, _)) = settings.server.trusted_proxies.iter().find(|(_, bits)| *bits == 0) {
            self.problem(format_args!(
                "server.trusted_proxies: {address}/0 is every address, so that any client chooses the address that the \
                 audit trail and the log show: name the proxies' networks"
            ));
        }
        if settings.server.hosts.iter().any(|host| host == "*") && settings.exposed_address().is_none() {
            self.problem(
                "server.hosts: \"*\" lets pages of any site read and write where no token is needed (DNS rebinding): \
                 name the hosts under which this service is asked",
            );
        }
    }

    /// Returns the value of a successful check, or prints the problem.
    fn note<T>(&mut self, outcome: anyhow::Result<T>) -> Option<T> {
        outcome.map_err(|error| self.problem(format_args!("{error:#}"))).ok()
    }

    fn problem(&mut self, text: impl Display) {
        self.problems += 1;
        eprintln!("hourglass: {text}");
    }

    fn figure(&self, name: &str, value: impl Display) {
        println!("{name:24} {value}");
    }

    /// Checks the store, and returns the tokens in it.
    async fn mongo(&mut self, settings: &Settings) -> anyhow::Result<Vec<crate::access::Token>> {
        let store = open_mongo(settings).await?;
        store.check().await.map_err(|error| match &error {
            crate::bucket::StorageError::Unusable { detail, .. } => anyhow::anyhow!("{error} ({detail})"),
            _ => anyhow::Error::from(error),
        })?;
        self.measure_mongo(&store, settings).await;
        let tokens = store.tokens().await;
        store.close().await;
        Ok(tokens?)
    }

    async fn measure_mongo(&mut self, store: &MongoStore, settings: &Settings) {
        let sent = now_ns();
        if let Some(Some(theirs)) = self.note(store.clock_ms().await.context("reading MongoDB's clock")) {
            let ours = u64::try_from((sent / 2 + now_ns() / 2) / 1_000_000).unwrap_or_default();
            let offset = theirs.abs_diff(ours);
            let limit = settings.clock.max_offset;
            self.figure("clock offset", format_args!("{offset} ms"));
            if u128::from(offset) > limit.as_millis() {
                self.problem(format_args!("this machine's clock is {offset} ms from MongoDB's, more than clock.max_offset ({limit:?}): set the clock"));
            }
        }
        if let Some(info) = self.note(store.server_info().await.context("reading MongoDB's version and databases")) {
            self.figure("MongoDB", &info.version);
            self.figure("databases", info.databases);
            for missing in &info.missing {
                self.problem(missing);
            }
        }
    }

    /// Reports when the disk of the store will be full, if a service runs that shows its metrics without a token.
    fn running_service(&mut self, settings: &Settings) {
        let Some(seconds) = metric_of_service(settings, STORE_FULL_SECONDS).filter(|seconds| seconds.is_finite())
        else {
            return;
        };
        let days = seconds / 86_400.0;
        self.figure("disk of the store lasts", format_args!("{days:.1} days"));
        if days < DISK_SOON_DAYS {
            self.problem(format_args!(
                "at the growth of the last hours, the disk of the store is full in {days:.1} days: make room, or set a \
                 retention"
            ));
        }
    }

    /// Measures the free space of a folder and the time of a sync.
    fn disk(&mut self, key: &str, folder: &Path, settings: &Settings) {
        let existing = existing_ancestor(folder);
        if let Some(free) = self.note(free_bytes(&existing).with_context(|| format!("{key}: reading free space"))) {
            self.figure(&format!("{key} free"), format_args!("{} MiB", free >> 20));
            let whole =
                rustix::fs::statvfs(&existing).map_or(u64::MAX, |disk| disk.f_blocks.saturating_mul(disk.f_frsize));
            let budget = settings.wal.budget_bytes as u64;
            if whole < budget && settings.wal_dir().starts_with(folder) {
                self.problem(format_args!(
                    "wal.budget_bytes ({budget} bytes) is more than the whole disk of {} has ({whole} bytes): lower it",
                    existing.display()
                ));
            }
            let segment = 2 * settings.wal.segment_bytes as u64;
            if free < segment {
                self.problem(format_args!("{key}: {free} bytes are free in {}, less than two segments of the WAL (2 × wal.segment_bytes): free some space", existing.display()));
            }
        }
        let times = sync_times(&existing).with_context(|| format!("{key}: syncing a file"));
        if let Some(SyncTimes { median, longest }) = self.note(times) {
            self.figure(&format!("{key} fsync"), format_args!("median {median:?}, longest {longest:?} of {SYNCS}"));
            if median > SLOW_SYNC {
                self.problem(format_args!(
                    "{key}: a sync takes {median:?}, and every ack waits for one: use a faster disk"
                ));
            }
        }
    }

    fn descriptors(&mut self, settings: &Settings) {
        let Some(limit) = open_files_limit() else { return };
        let wanted = settings.server.connections as u64 + OTHER_FILES;
        self.figure("open files", format_args!("at most {limit}"));
        if limit < wanted {
            self.problem(format_args!(
                "the limit of open files is {limit}, below the {wanted} that server.connections needs: raise it (ulimit -n, LimitNOFILE) or lower the key"
            ));
        }
    }
}

/// Returns the folder, or its nearest ancestor that exists.
fn existing_ancestor(folder: &Path) -> PathBuf {
    let absolute = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    let existing = absolute.ancestors().find(|above| above.exists()).map(Path::to_owned);
    existing.unwrap_or(absolute)
}

/// Checks that no running process holds the WAL.
fn check_not_in_use(wal: &Path) -> anyhow::Result<()> {
    let Ok(lock) = std::fs::OpenOptions::new().read(true).write(true).open(wal.join("lock")) else { return Ok(()) };
    match lock.try_lock() {
        Err(std::fs::TryLockError::WouldBlock) => {
            bail!("wal.dir or server.data_dir: {} is in use by another process", wal.display())
        }
        _ => Ok(()),
    }
}

/// Checks that a file can be created in the folder, or in its nearest ancestor that exists.
fn check_writable(folder: &Path) -> anyhow::Result<()> {
    let existing = existing_ancestor(folder);
    if !existing.is_dir() {
        bail!("{} is a file, and a folder is needed: choose another path", existing.display());
    }
    let trial = existing.join(trial_name());
    let made = std::fs::File::create_new(&trial).map(drop);
    // If this fails, an empty file is left behind.
    let _ = std::fs::remove_file(&trial);
    match made {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            bail!("{} is not writable by this user: change its owner or mode", existing.display())
        }
        made => made.with_context(|| format!("creating a file in {}", existing.display())),
    }
}

fn trial_name() -> String {
    format!(".hourglass-trial-{}", std::process::id())
}

/// The times of [`SYNCS`] syncs.
struct SyncTimes {
    median: Duration,
    longest: Duration,
}

/// Measures how long a sync takes.
fn sync_times(folder: &Path) -> std::io::Result<SyncTimes> {
    let path = folder.join(trial_name());
    let mut file = std::fs::File::create_new(&path)?;
    let mut times = Vec::new();
    let synced = (0..SYNCS).try_for_each(|_| {
        file.write_all(&[0; SYNC_BYTES])?;
        let begun = Instant::now();
        file.sync_data()?;
        times.push(begun.elapsed());
        Ok(())
    });
    std::fs::remove_file(&path)?;
    synced.map(|()| {
        times.sort_unstable();
        SyncTimes { median: times[SYNCS / 2], longest: times[SYNCS - 1] }
    })
}

/// Returns the soft limit of open files, if the system reports it.
fn open_files_limit() -> Option<u64> {
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}
