//! The command line: from flags to settings, or to a list of problems.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::access::{Pin, Quota, Scopes, Token, TokenChange, is_glob, parse_rate};
use crate::config::{self, Overrides, Problem, Settings};
use crate::reading::duration::{DURATION_UNITS, parse_duration};

/// Exit status for flags that contradict each other; clap uses the same.
const EXIT_USAGE: u8 = 2;
/// Exit status for an invalid configuration (`EX_CONFIG` of sysexits.h).
const EXIT_CONFIG: u8 = 78;

/// Time-series ingestion: accepts sensor readings, stores them in hourly buckets with exact summaries, answers queries.
#[derive(Debug, Parser)]
#[command(
    name = "hourglass",
    version,
    after_help = "First steps: run `hourglass demo` to look around, or `hourglass serve` and copy the curl commands that it prints."
)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Accept readings and answer queries, until SIGTERM or SIGINT.
    Serve(ServeFlags),
    /// Show what hourglass does: a simulated factory of 50 sensors, with a month of history and readings each second, in a folder
    /// of its own, until Ctrl-C removes it. Takes no configuration, so it touches nothing else.
    Demo(DemoFlags),
    /// Check the configuration that `serve` would use with the same flags and environment. Opens no store and no WAL,
    /// unless --probe is given.
    CheckConfig(CheckFlags),
    /// Find out why `serve` does not start or is slow: like `check-config --probe`, with figures of disk, clock and
    /// store. Exit status: 0 if nothing is wrong, 78 if something is.
    Doctor(ServeFlags),
    /// Ask the running service with this configuration whether it acknowledges writes (`/ready` at status.listen, else at
    /// server.listen). Prints one line. Exit status: 0 if it does, else 1. For containers, which have no curl.
    Healthcheck(HealthFlags),
    /// Check everything in the store, and repair it with --repair. Exit status: 0 if nothing is wrong, 1 if something
    /// is wrong, 2 if the check was not completed. With the embedded store, stop the service first; with MongoDB, it
    /// may run.
    Verify(VerifyFlags),
    /// Print a digest of everything stored: the same for both stores and for every form in which readings are kept, so that
    /// two stores with the same readings have the same digest. With the embedded store, stop the service first; with
    /// MongoDB, it may run.
    Digest(DigestFlags),
    /// Write a backup of a running service into a folder: everything acknowledged before it began, with tokens and the
    /// configuration file. Into the folder of an earlier backup, only the days that changed are written. With --stopped, of a
    /// store whose service is stopped.
    Backup(BackupFlags),
    /// Write a backup into an empty store, read it back, and compare. Run it again if it was interrupted.
    Restore(RestoreFlags),
    /// Copy everything from one store to another, empty one, read it back, and compare: of a stopped service, or of a running one,
    /// whose changes are followed until --switch. Run it again if it was interrupted.
    Copy(CopyFlags),
    /// Flush the whole write-ahead log (WAL) of a data folder to the store, without serving requests: before you delete the
    /// folder or switch to another store. Exit status: 0 if the WAL is now empty, 75 if records are left, 1 if it
    /// failed, for example because the WAL could not be opened. Stop the service first.
    FlushWal(FlushWalFlags),
    /// Give space that sealing, deletions and retention freed back to the disk: of a running service (--to), or of the embedded
    /// file of a stopped one. Of MongoDB, print what each collection could give back. It may be interrupted at any time.
    Compact(CompactFlags),
    /// Have the running service seal every day that is over, now, whatever `seal.after` says: history then takes a tenth
    /// of its space. Exit status: 0 if all that can be sealed is, else 1.
    Seal(SealFlags),
    /// Have the running service write back what a deletion by value (`DELETE … WHERE field …`) removed, as far as it is still
    /// absent; without an id, list those deletions. They are kept for `undo.keep`. Exit status: 0 if nothing was refused,
    /// else 1.
    Undo(UndoFlags),
    /// Have the running service say what would become of each line of a file, of line protocol or JSON, if it were written:
    /// sensor, time, bucket, fields, warnings, and why it would be rejected. Nothing is kept. Exit status: 0 if all of it would be
    /// accepted, else 1.
    Explain(ExplainFlags),
    /// Send the metadata of many sensors to the running service, or print what it has: names, sites, units.
    Sensors {
        #[command(subcommand)]
        command: SensorsCommand,
    },
    /// Have the running service look for documents of older forms in its store and rewrite them, now, and show how far it is.
    /// The service does so by itself, slowly. Exit status: 0 if none is left, else 1.
    Migrate(SealFlags),
    /// List or resend dead letters: readings that the store rejected and that hourglass does not retry. The service may
    /// run meanwhile.
    DeadLetters {
        #[command(subcommand)]
        command: DeadLettersCommand,
    },
    /// Create, list, rotate and revoke the tokens by which clients authenticate. The service may run meanwhile.
    Token {
        #[command(subcommand)]
        command: TokenCommand,
    },
    /// Show the default configuration.
    Config {
        #[command(subcommand)]
        command: ConfigCommand,
    },
}

#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Create a token and print it; it is not shown again. Databases are given as globs: `*` matches any characters,
    /// `?` matches one.
    Create(CreateFlags),
    /// List all tokens and their rights. Secrets are not stored and cannot be shown.
    List(StoreFlags),
    /// Print the records of all changes of tokens (audit.log), oldest first. With --verify, check instead that nothing in
    /// the audit trail was changed or removed. Exit status: 0 if nothing is wrong, else 1.
    Audit {
        /// Check the hashes that chain the records of audit.log, changes.log, refusals.log and uses.log.
        #[arg(long)]
        verify: bool,
        #[command(flatten)]
        #[expect(missing_docs, reason = "flattened")]
        store: StoreFlags,
    },
    /// Make a token invalid.
    Revoke {
        /// The name of the token.
        name: String,
        #[command(flatten)]
        #[expect(missing_docs, reason = "flattened")]
        store: StoreFlags,
    },
    /// Bind a token to clients' certificates: a client that presents one of them, and sends no token, acts as this
    /// token. The certificates given replace those given before; without any, the token is bound to none.
    Bind {
        /// The name of the token.
        name: String,
        /// As for `create`.
        #[arg(long, value_name = "CERTIFICATE", value_parser = certificate)]
        certificate: Vec<String>,
        #[command(flatten)]
        #[expect(missing_docs, reason = "flattened")]
        store: StoreFlags,
    },
    /// Give a token a new secret and print it; it is not shown again.
    Rotate {
        /// The name of the token.
        name: String,
        /// How long the old secret stays valid, so that there is time to update the devices: 1h, 7d.
        #[arg(long, value_name = "DURATION", value_parser = lifetime)]
        keep_old: Option<i64>,
        #[command(flatten)]
        #[expect(missing_docs, reason = "flattened")]
        store: StoreFlags,
    },
}

/// The flags of `flush-wal`.
#[derive(Debug, Args)]
pub struct FlushWalFlags {
    /// Stop after this time: 90s, 10m. Without it, the command waits for the store without limit.
    #[arg(long, value_name = "DURATION", value_parser = lifetime)]
    pub timeout: Option<i64>,
    #[command(flatten)]
    #[expect(missing_docs, reason = "flattened")]
    pub store: StoreFlags,
}

#[derive(Debug, Subcommand)]
pub enum DeadLettersCommand {
    /// Print the dead letters that were not yet resent, as line protocol, with the reason of each chunk.
    List(FolderFlags),
    /// Resend the dead letters to a running service, and mark each chunk that it accepts. Exits with 0 if the service
    /// accepted all of them and flushed them to the store. It is safe to run the command again.
    Send(SendFlags),
}

/// The flags of `compact`.
#[derive(Debug, Args)]
pub struct CompactFlags {
    /// The address of a running service. Without it, the service must be stopped.
    #[arg(long, value_name = "URL")]
    pub to: Option<String>,
    /// The token of an admin of the service.
    #[arg(long, value_name = "TOKEN")]
    pub token: Option<String>,
    /// A file that contains the token. Other users of the machine can see a token on the command line.
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    pub token_file: Option<PathBuf>,
    /// Have MongoDB compact the collections, on the node that takes writes, one after the other.
    #[arg(long)]
    pub run: bool,
    #[command(flatten)]
    #[expect(missing_docs, reason = "flattened")]
    pub store: StoreFlags,
}

/// The flags of `undo`.
#[derive(Debug, Args)]
pub struct UndoFlags {
    /// The id of the deletion.
    pub id: Option<String>,
    /// The address of the service.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8086")]
    pub to: String,
    /// The token of an admin of the database.
    #[arg(long, value_name = "TOKEN")]
    pub token: Option<String>,
    /// A file that contains the token. Other users of the machine can see a token on the command line.
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    pub token_file: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum SensorsCommand {
    /// Send lines such as {"sensor":"climate,sensor=s1","meta":{"site":"lab"}}, or CSV with a column `sensor`. Each changes what it
    /// names and leaves the rest. Exit status: 0 if no line was refused, else 1.
    Import {
        /// The file, CSV if its name ends with .csv; `-` or nothing for lines of JSON from the standard input.
        file: Option<PathBuf>,
        /// Only count what would change.
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        target: TargetFlags,
    },
    /// Print the metadata of all sensors that have some, in lines of JSON as `import` takes them.
    Export(TargetFlags),
}

/// A database of a running service.
#[derive(Debug, Args)]
pub struct TargetFlags {
    /// The database.
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub db: String,
    /// The address of the service.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8086")]
    pub to: String,
    /// A token that may write to the database, or read it.
    #[arg(long, value_name = "TOKEN")]
    pub token: Option<String>,
    /// A file that contains the token. Other users of the machine can see a token on the command line.
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    pub token_file: Option<PathBuf>,
}

/// The flags of `explain`.
#[derive(Debug, Args)]
pub struct ExplainFlags {
    /// The file; `-` or nothing for the standard input.
    pub file: Option<PathBuf>,
    /// The database.
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub db: String,
    /// The retention policy.
    #[arg(long, value_name = "NAME")]
    pub rp: Option<String>,
    /// The unit of the timestamps: ns, us, ms, s, m, h or auto.
    #[arg(long, value_name = "UNIT")]
    pub precision: Option<String>,
    /// Print the service's answer as it is.
    #[arg(long)]
    pub json: bool,
    /// The address of the service.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8086")]
    pub to: String,
    /// A token that may write to the database.
    #[arg(long, value_name = "TOKEN")]
    pub token: Option<String>,
    /// A file that contains the token. Other users of the machine can see a token on the command line.
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    pub token_file: Option<PathBuf>,
}

/// The flags of `seal` and `migrate`.
#[derive(Debug, Args)]
pub struct SealFlags {
    /// The address of the service.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8086")]
    pub to: String,
    /// The token of an admin of the service.
    #[arg(long, value_name = "TOKEN")]
    pub token: Option<String>,
    /// A file that contains the token. Other users of the machine can see a token on the command line.
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    pub token_file: Option<PathBuf>,
}

/// The flags of `dead-letters send`.
#[derive(Debug, Args)]
pub struct SendFlags {
    /// The address of the service.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8086")]
    pub to: String,
    /// A token that may write to the databases of the dead letters. To also flush them to the store, it must be an
    /// admin's.
    #[arg(long, value_name = "TOKEN")]
    pub token: Option<String>,
    /// A file that contains the token. Other users of the machine can see a token on the command line.
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    pub token_file: Option<PathBuf>,
    #[command(flatten)]
    #[expect(missing_docs, reason = "flattened")]
    pub folder: FolderFlags,
}

/// The flags that `serve` has too and that name the data folder.
#[derive(Debug, Args)]
pub struct FolderFlags {
    /// The configuration file.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The data directory of the service [default: ./data].
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
}

impl StoreFlags {
    /// The same flags of `serve`.
    #[must_use]
    pub fn settings(&self) -> ServeFlags {
        let (config, data_dir, store) = (self.config.clone(), self.data_dir.clone(), self.store.clone());
        ServeFlags { config, listen: None, data_dir, store, memory: None }
    }
}

impl FolderFlags {
    /// The same flags of `serve`.
    #[must_use]
    pub fn settings(&self) -> ServeFlags {
        ServeFlags {
            config: self.config.clone(),
            listen: None,
            data_dir: self.data_dir.clone(),
            store: None,
            memory: None,
        }
    }
}

impl FlushWalFlags {
    /// The time limit, if there is one.
    #[must_use]
    pub fn patience(&self) -> Option<Duration> {
        self.timeout.map(|seconds| Duration::from_secs(seconds.unsigned_abs()))
    }
}

/// The flags that `serve` has too and that name the store.
#[derive(Debug, Args)]
pub struct StoreFlags {
    /// The configuration file.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The data directory of the service [default: ./data].
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// `embedded`, or a `mongodb://` URI [default: embedded].
    #[arg(long, value_name = "STORE")]
    pub store: Option<String>,
}

/// The flags of `token create`.
#[derive(Debug, Args)]
pub struct CreateFlags {
    /// The name of the token: 1 to 64 letters, digits, and - _ . @ :
    #[arg(long, value_parser = token_name)]
    pub name: String,
    /// Databases that it may write to. You can repeat this flag.
    #[arg(long, value_name = "GLOB", value_parser = glob)]
    pub write: Vec<String>,
    /// Databases that it may read. You can repeat this flag.
    #[arg(long, value_name = "GLOB", value_parser = glob)]
    pub read: Vec<String>,
    /// Databases that it may create, drop, delete from, write to and read; `*` makes it an admin of the whole service.
    /// You can repeat this flag.
    #[arg(long, value_name = "GLOB", value_parser = glob)]
    pub admin: Vec<String>,
    /// Allow it to read /metrics and /api/v1/status.
    #[arg(long)]
    pub metrics: bool,
    /// A tag and its value that every sensor it writes or reads must have. You can repeat this flag.
    #[arg(long, value_name = "KEY=VALUE", value_parser = pin)]
    pub sensor_tag: Vec<Pin>,
    /// A client certificate that counts as this token: sha256:FINGERPRINT, as `openssl x509 -noout -fingerprint -sha256`
    /// shows it, or dns:NAME, a DNS name that it has. You can repeat this flag.
    #[arg(long, value_name = "CERTIFICATE", value_parser = certificate)]
    pub certificate: Vec<String>,
    /// How long the token is valid: 12h, 90d.
    #[arg(long, value_name = "DURATION", value_parser = lifetime)]
    pub expires: Option<i64>,
    /// Maximum number of readings per second, averaged over some seconds: 5000/s.
    #[arg(long, value_name = "RATE", value_parser = per_second)]
    pub rate: Option<u32>,
    /// Maximum number of new sensors per hour: 100/h.
    #[arg(long, value_name = "RATE", value_parser = per_hour)]
    pub new_sensors: Option<u32>,
    /// Maximum number of sensors that it may write through one instance.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    pub sensors: Option<u32>,
    /// Maximum number of databases that it may write to at which it still creates a new one [default:
    /// quota.token_databases, unless it is an admin of the whole service].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    pub databases: Option<u32>,
    #[command(flatten)]
    #[expect(missing_docs, reason = "flattened")]
    pub store: StoreFlags,
}

fn token_name(text: &str) -> Result<String, String> {
    let fits = Token::is_name(text).then(|| text.to_owned());
    fits.ok_or_else(|| "expected 1 to 64 letters, digits, and - _ . @ :".to_owned())
}

fn certificate(text: &str) -> Result<String, String> {
    Token::certificate(text).ok_or_else(|| {
        "expected sha256: and 64 hexadecimal digits, or dns: and a DNS name without a wildcard".to_owned()
    })
}

fn glob(text: &str) -> Result<String, String> {
    is_glob(text)
        .then(|| text.to_owned())
        .ok_or_else(|| "expected a database's name or a glob such as climate_*".to_owned())
}

fn pin(text: &str) -> Result<Pin, String> {
    let pin = text.split_once('=').filter(|(key, value)| !key.is_empty() && !value.is_empty());
    let (key, value) = pin.ok_or("expected KEY=VALUE, for example site=lab")?;
    Ok(Pin { key: key.to_owned(), value: value.to_owned() })
}

/// Parses a duration such as `90d` into seconds.
fn lifetime(text: &str) -> Result<i64, String> {
    let nanoseconds =
        parse_duration(text, &DURATION_UNITS[5..]).map_err(|fault| format!("{fault}; expected for example 90d"))?;
    let seconds = nanoseconds / 1_000_000_000;
    if seconds > 0 { Ok(seconds) } else { Err("expected at least one second".to_owned()) }
}

fn per_second(text: &str) -> Result<u32, String> {
    parse_rate(text, "s")
}

fn per_hour(text: &str) -> Result<u32, String> {
    parse_rate(text, "h")
}

impl TokenCommand {
    /// Splits the command into the flags of the settings and the change to make.
    ///
    /// # Errors
    /// If the token would have no rights, or could circumvent its own tags.
    pub fn taken_apart(self) -> Result<(ServeFlags, TokenChange), &'static str> {
        let (store, change) = match self {
            Self::List(store) => (store, TokenChange::List),
            Self::Audit { verify, store } => (store, TokenChange::Audit { verify }),
            Self::Revoke { name, store } => (store, TokenChange::Revoke { name }),
            Self::Bind { name, certificate: certificates, store } => (store, TokenChange::Bind { name, certificates }),
            Self::Rotate { name, keep_old, store } => {
                (store, TokenChange::Rotate { name, keep: keep_old.unwrap_or_default() })
            }
            Self::Create(flags) => {
                let CreateFlags { name, write, read, admin, metrics, sensor_tag: pins, .. } = flags;
                let scopes = Scopes { write, read, admin, metrics, pins };
                if scopes.is_empty() {
                    return Err("the token may do nothing: give --write, --read, --admin or --metrics");
                }
                if !scopes.pins.is_empty() && !scopes.admin.is_empty() {
                    return Err(
                        "--sensor-tag and --admin exclude each other: an admin can drop sensors without the tag",
                    );
                }
                let quota = Quota {
                    readings_per_second: flags.rate,
                    new_sensors_per_hour: flags.new_sensors,
                    sensors: flags.sensors,
                    databases: flags.databases,
                };
                let (certificates, expires_in) = (flags.certificate, flags.expires);
                (flags.store, TokenChange::Create { name, scopes, certificates, quota, expires_in })
            }
        };
        let StoreFlags { config, data_dir, store } = store;
        Ok((ServeFlags { config, listen: None, data_dir, store, memory: None }, change))
    }
}

#[must_use]
pub fn tokens(command: TokenCommand, apply: impl Fn(&Settings, TokenChange) -> ExitCode) -> ExitCode {
    match command.taken_apart() {
        Ok((flags, change)) => match settings(&flags) {
            Ok(settings) => apply(&settings, change),
            Err(problems) => report(&problems),
        },
        Err(problem) => {
            eprintln!("hourglass: {problem}");
            ExitCode::from(EXIT_USAGE)
        }
    }
}

#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Print every key with its meaning, unit, default and bounds.
    Default,
}

/// The flags of `serve`. A flag overrides the environment, and the environment overrides the file.
#[derive(Debug, Clone, Args)]
pub struct ServeFlags {
    /// The configuration file.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The address of the HTTP listener [default: 127.0.0.1:8086].
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: Option<String>,
    /// The folder of the write-ahead log and of the embedded store [default: ./data].
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Where readings are stored: `embedded`, or a `mongodb://` URI [default: embedded].
    #[arg(long, value_name = "STORE")]
    pub store: Option<String>,
    /// How much memory to use at most, for example 64MiB [default: a quarter of the machine, at most 512MiB].
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<String>,
}

/// The flags of `demo`.
#[derive(Debug, Args)]
pub struct DemoFlags {
    /// The number that the simulation starts from: the same one makes the same factory.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
    /// How many days of history to make.
    #[arg(long, value_name = "DAYS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=400))]
    pub days: u32,
    /// The port of the page, on the loopback address [default: 8086, or a free one if that is taken].
    #[arg(long, value_name = "PORT")]
    pub port: Option<u16>,
    /// A folder that is new, empty, or left by a demo that was killed [default: a new one in the system's temp folder].
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Leave the folder at the end, to `serve` from it.
    #[arg(long)]
    pub keep: bool,
    /// Open the page in a browser.
    #[arg(long)]
    pub open: bool,
}

/// The flags of `check-config`.
#[derive(Debug, Args)]
pub struct CheckFlags {
    /// Also try folders, ports, certificates, tokens and the store, without starting.
    #[arg(long)]
    pub probe: bool,
    #[command(flatten)]
    #[expect(missing_docs, reason = "flattened")]
    pub serve: ServeFlags,
}

/// The flags of `healthcheck`.
#[derive(Debug, Args)]
pub struct HealthFlags {
    /// The configuration file of the service.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The address of the service's HTTP listener, if it was given as a flag.
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: Option<String>,
}

impl HealthFlags {
    /// The same flags of `serve`.
    #[must_use]
    pub fn settings(&self) -> ServeFlags {
        ServeFlags {
            config: self.config.clone(),
            listen: self.listen.clone(),
            data_dir: None,
            store: None,
            memory: None,
        }
    }
}

/// The flags of `verify`.
#[derive(Debug, Args)]
pub struct VerifyFlags {
    /// The configuration file.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The folder of the write-ahead log and of the embedded store [default: ./data].
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Where readings are stored: `embedded`, or a `mongodb://` URI [default: embedded].
    #[arg(long, value_name = "STORE")]
    pub store: Option<String>,
    /// Recompute what readings determine: summaries, counts, stamps, overflow marks, and sensor documents or fields of them that are missing. Never changes
    /// or deletes a reading.
    #[arg(long)]
    pub repair: bool,
}

impl VerifyFlags {
    /// The same flags of `serve`.
    #[must_use]
    pub fn settings(&self) -> ServeFlags {
        let (config, data_dir, store) = (self.config.clone(), self.data_dir.clone(), self.store.clone());
        ServeFlags { config, listen: None, data_dir, store, memory: None }
    }
}

/// The flags of `backup`.
#[derive(Debug, Args)]
pub struct BackupFlags {
    /// The folder of the backup. It is made.
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// The address of the service.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8086", conflicts_with = "stopped")]
    pub from: String,
    /// An admin's token.
    #[arg(long, value_name = "TOKEN", conflicts_with = "stopped")]
    pub token: Option<String>,
    /// A file that contains the token. Other users of the machine can see a token on the command line.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["token", "stopped"])]
    pub token_file: Option<PathBuf>,
    /// The service is stopped: read the store itself.
    #[arg(long)]
    pub stopped: bool,
    /// Restore the backup into a folder beside it, verify that, compare, and remove it; then the service's metric
    /// hourglass_backup_proved_timestamp_seconds tells the time of this backup.
    #[arg(long)]
    pub prove: bool,
    /// How long to wait until other instances on the same store have stored what they acknowledged.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = lifetime)]
    pub patience: i64,
    #[command(flatten)]
    #[expect(missing_docs, reason = "flattened")]
    pub store: StoreFlags,
}

/// The flags of `restore`.
#[derive(Debug, Args)]
pub struct RestoreFlags {
    /// The folder of the backup.
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    #[command(flatten)]
    #[expect(missing_docs, reason = "flattened")]
    pub store: StoreFlags,
}

/// The flags of `copy`.
#[derive(Debug, Args)]
pub struct CopyFlags {
    /// The data folder of a service with the embedded store, or a `mongodb://` URI. Of a running service its address,
    /// `http://HOST:PORT`: then what changes is copied again and again.
    #[arg(long, value_name = "STORE")]
    pub from: String,
    /// The same of the store to write to.
    #[arg(long, value_name = "STORE")]
    pub to: String,
    /// The configuration file.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The data directory of the service with MongoDB [default: ./data].
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// The token of an admin of the running service.
    #[arg(long, value_name = "TOKEN")]
    pub token: Option<String>,
    /// A file that contains the token. Other users of the machine can see a token on the command line.
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    pub token_file: Option<PathBuf>,
    /// Have the running service take no more writes, copy the rest, compare, and end.
    #[arg(long)]
    pub switch: bool,
    /// The pause before what has changed is copied again.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = lifetime)]
    pub every: i64,
}

impl CopyFlags {
    /// Whether the source is a running service.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.from.starts_with("http://") || self.from.starts_with("https://")
    }

    /// The flags of `serve` for each of the two stores.
    #[must_use]
    pub fn settings(&self) -> [ServeFlags; 2] {
        [&self.from, &self.to].map(|store| {
            let is_mongodb = store.starts_with("mongodb://") || store.starts_with("mongodb+srv://");
            let (data_dir, store) = match is_mongodb {
                true => (self.data_dir.clone(), store.clone()),
                false => (Some(PathBuf::from(store)), "embedded".to_owned()),
            };
            ServeFlags { config: self.config.clone(), listen: None, data_dir, store: Some(store), memory: None }
        })
    }
}

/// The flags of `digest`.
#[derive(Debug, Args)]
pub struct DigestFlags {
    /// Print one line of JSON.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    #[expect(missing_docs, reason = "flattened")]
    pub store: StoreFlags,
}

/// The settings by defaults, file, environment and flags. Prints a warning to stderr for each key set by an old name.
///
/// # Errors
/// All problems at once.
pub fn settings(flags: &ServeFlags) -> Result<Settings, Vec<Problem>> {
    let ServeFlags { listen, data_dir, store, memory, .. } = flags.clone();
    let overrides = Overrides { listen, data_dir, store, memory };
    let (settings, renamed) = config::load(flags.config.as_deref(), config::environment(), &overrides)?;
    renamed.iter().for_each(|renamed| eprintln!("hourglass: {renamed}"));
    Ok(settings)
}

/// Prints the problems of a configuration, one per line, and returns the exit status.
#[must_use]
pub fn report(problems: &[Problem]) -> ExitCode {
    for problem in problems {
        eprintln!("hourglass: {problem}");
    }
    let count = problems.len();
    eprintln!(
        "hourglass: {count} problem{} in the configuration; nothing was started",
        if count == 1 { "" } else { "s" }
    );
    ExitCode::from(EXIT_CONFIG)
}

/// Prints the first problem alone, for a command that prints one line and exits with 0 or 1.
#[must_use]
pub fn not_asked(problems: &[Problem]) -> ExitCode {
    let more = if problems.len() > 1 { " (and more: hourglass check-config)" } else { "" };
    problems.iter().take(1).for_each(|problem| eprintln!("hourglass: {problem}{more}"));
    ExitCode::FAILURE
}

#[must_use]
pub fn config_is_sound(flags: &ServeFlags) -> ExitCode {
    match &flags.config {
        Some(file) => println!("{}: the configuration is valid", file.display()),
        None => println!("the configuration is valid"),
    }
    ExitCode::SUCCESS
}
