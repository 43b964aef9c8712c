//! The command line: flags in, settings or a list of problems out.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::access::{Pin, Quota, Scopes, Token, TokenChange, is_glob, parse_rate};
use crate::config::{self, Overrides, Problem, Settings};

/// Exit status for flags that do not go together, as clap has it.
const EXIT_USAGE: u8 = 2;
/// Exit status for a configuration that cannot be used (`EX_CONFIG` of sysexits.h).
const EXIT_CONFIG: u8 = 78;

/// Time-series ingestion: readings in, exact hourly buckets kept, ranges out.
#[derive(Debug, Parser)]
#[command(
    name = "hourglass",
    version,
    after_help = "First steps: hourglass serve, then copy the curl commands it prints."
)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What hourglass can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Take readings in and answer queries until told to stop.
    Serve(ServeFlags),
    /// Say whether `serve` with the same flags and environment would start; opens nothing.
    CheckConfig(ServeFlags),
    /// Read everything in the store and say what is not as it should be: exits with 0 when nothing
    /// is, 1 when something is, 2 when the check was not completed. The service must be stopped, or
    /// may run where the store is MongoDB.
    Verify(VerifyFlags),
    /// Bring everything in a folder's log to the store without serving anybody: before the folder goes, or the store
    /// changes. Exits with 0 when the log is empty, 75 when something is left in it, 1 when it could not be opened. The
    /// service must be stopped.
    FlushWal(FlushWalFlags),
    /// Readings that could not be stored and that nothing tries again: list them, or send them again when the reason is
    /// gone. May be done while the service runs.
    DeadLetters {
        /// What about them.
        #[command(subcommand)]
        command: DeadLettersCommand,
    },
    /// Make, list, rotate and revoke tokens, by which clients say who they are. May be done while the service runs.
    Token {
        /// What about them.
        #[command(subcommand)]
        command: TokenCommand,
    },
    /// About the configuration file.
    Config {
        /// What about it.
        #[command(subcommand)]
        command: ConfigCommand,
    },
}

/// What is to be done with tokens.
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Make a token and print it, this once. Databases are given as globs: `*` stands for any characters, `?` for one.
    Create(CreateFlags),
    /// List all tokens with what they may do; secrets are not kept, and cannot be shown.
    List(StoreFlags),
    /// From now on a token does not count.
    Revoke {
        /// Its name.
        name: String,
        #[command(flatten)]
        #[expect(missing_docs, reason = "flattened")]
        store: StoreFlags,
    },
    /// Give a token a new secret and print it, this once.
    Rotate {
        /// Its name.
        name: String,
        /// How long the old secret goes on to count, so that devices can be told the new one: 1h, 7d.
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
    /// Give up after so long: 90s, 10m. Without it, it waits for the store however long that takes.
    #[arg(long, value_name = "DURATION", value_parser = lifetime)]
    pub timeout: Option<i64>,
    #[command(flatten)]
    #[expect(missing_docs, reason = "flattened")]
    pub store: StoreFlags,
}

/// What is to be done with dead letters.
#[derive(Debug, Subcommand)]
pub enum DeadLettersCommand {
    /// Print those that were not sent again, as line protocol with the reasons.
    List(FolderFlags),
    /// Send them to a running service, and mark each lot that it has taken. Exits with 0 when all was taken and is in
    /// the store; it may be repeated.
    Send(SendFlags),
}

/// The flags of `dead-letters send`.
#[derive(Debug, Args)]
pub struct SendFlags {
    /// The service.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8086")]
    pub to: String,
    /// A token that may write to their databases; an admin's also asks for the store.
    #[arg(long, value_name = "TOKEN")]
    pub token: Option<String>,
    /// The file that it stands in: what is on a command line others can see.
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    pub token_file: Option<PathBuf>,
    #[command(flatten)]
    #[expect(missing_docs, reason = "flattened")]
    pub folder: FolderFlags,
}

/// Whose dead letters: as `serve` has it.
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
    /// What they have in common with `serve`.
    #[must_use]
    pub fn settings(&self) -> ServeFlags {
        let (config, data_dir, store) = (self.config.clone(), self.data_dir.clone(), self.store.clone());
        ServeFlags { config, listen: None, data_dir, store }
    }
}

impl FolderFlags {
    /// What they have in common with `serve`.
    #[must_use]
    pub fn settings(&self) -> ServeFlags {
        ServeFlags { config: self.config.clone(), listen: None, data_dir: self.data_dir.clone(), store: None }
    }
}

impl FlushWalFlags {
    /// How long to go on at most.
    #[must_use]
    pub fn patience(&self) -> Option<Duration> {
        self.timeout.map(|seconds| Duration::from_secs(seconds.unsigned_abs()))
    }
}

/// Where the tokens are kept: as `serve` has it.
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
    /// Its name: letters, digits, and - _ . @ :
    #[arg(long, value_parser = token_name)]
    pub name: String,
    /// Databases it may write to; may be given several times.
    #[arg(long, value_name = "GLOB", value_parser = glob)]
    pub write: Vec<String>,
    /// Databases it may read.
    #[arg(long, value_name = "GLOB", value_parser = glob)]
    pub read: Vec<String>,
    /// Databases it may create, delete from and drop, write to and read; `*` is for the whole service.
    #[arg(long, value_name = "GLOB", value_parser = glob)]
    pub admin: Vec<String>,
    /// It may read /metrics and /api/v1/status.
    #[arg(long)]
    pub metrics: bool,
    /// A tag that all sensors it writes or reads must have with this value; may be given several times.
    #[arg(long, value_name = "KEY=VALUE", value_parser = pin)]
    pub sensor_tag: Vec<Pin>,
    /// For how long it counts: 12h, 90d.
    #[arg(long, value_name = "DURATION", value_parser = lifetime)]
    pub expires: Option<i64>,
    /// Most readings per second, over some seconds: 5000/s.
    #[arg(long, value_name = "RATE", value_parser = per_second)]
    pub rate: Option<u32>,
    /// Most sensors per hour that nobody has met before: 100/h.
    #[arg(long, value_name = "RATE", value_parser = per_hour)]
    pub new_sensors: Option<u32>,
    /// Most sensors that it may write through one instance.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    pub sensors: Option<u32>,
    #[command(flatten)]
    #[expect(missing_docs, reason = "flattened")]
    pub store: StoreFlags,
}

fn token_name(text: &str) -> Result<String, String> {
    let fits = Token::is_name(text).then(|| text.to_owned());
    fits.ok_or_else(|| "1 to 64 letters, digits, and - _ . @ : are wanted".to_owned())
}

fn glob(text: &str) -> Result<String, String> {
    is_glob(text)
        .then(|| text.to_owned())
        .ok_or_else(|| "a database's name or a pattern such as climate_* is wanted".to_owned())
}

fn pin(text: &str) -> Result<Pin, String> {
    let pin = text.split_once('=').filter(|(key, value)| !key.is_empty() && !value.is_empty());
    let (key, value) = pin.ok_or("KEY=VALUE is wanted, e.g. site=lab")?;
    Ok(Pin { key: key.to_owned(), value: value.to_owned() })
}

/// Seconds, from a number with its unit.
fn lifetime(text: &str) -> Result<i64, String> {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[number.len()..] {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        "w" => 7 * 86_400,
        _ => return Err("a whole number with s, m, h, d or w is wanted, e.g. 90d".to_owned()),
    };
    let seconds = number.parse::<i64>().ok().and_then(|number| number.checked_mul(unit)).filter(|seconds| *seconds > 0);
    seconds.ok_or_else(|| "a whole number above zero is wanted".to_owned())
}

fn per_second(text: &str) -> Result<u32, String> {
    parse_rate(text, "s")
}

fn per_hour(text: &str) -> Result<u32, String> {
    parse_rate(text, "h")
}

impl TokenCommand {
    /// The settings' flags, and what is to be done.
    ///
    /// # Errors
    /// A token that could do nothing, or that could get around its own tags.
    pub fn taken_apart(self) -> Result<(ServeFlags, TokenChange), &'static str> {
        let (store, change) = match self {
            Self::List(store) => (store, TokenChange::List),
            Self::Revoke { name, store } => (store, TokenChange::Revoke { name }),
            Self::Rotate { name, keep_old, store } => {
                (store, TokenChange::Rotate { name, keep: keep_old.unwrap_or_default() })
            }
            Self::Create(flags) => {
                let CreateFlags { name, write, read, admin, metrics, sensor_tag: pins, .. } = flags;
                let scopes = Scopes { write, read, admin, metrics, pins };
                if scopes.is_empty() {
                    return Err("a token that may do nothing: give --write, --read, --admin or --metrics");
                }
                if !scopes.pins.is_empty() && !scopes.admin.is_empty() {
                    return Err(
                        "--sensor-tag and --admin exclude each other: who drops a database drops all its sensors",
                    );
                }
                let quota = Quota {
                    readings_per_second: flags.rate,
                    new_sensors_per_hour: flags.new_sensors,
                    sensors: flags.sensors,
                };
                (flags.store, TokenChange::Create { name, scopes, quota, expires_in: flags.expires })
            }
        };
        let StoreFlags { config, data_dir, store } = store;
        Ok((ServeFlags { config, listen: None, data_dir, store }, change))
    }
}

/// Does what is to be done with tokens.
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

/// Questions about the configuration file.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Print every key with its meaning, unit, default and bounds.
    Default,
}

/// The flags of `serve`; each wins over the environment, which wins over the file.
#[derive(Debug, Args)]
pub struct ServeFlags {
    /// The configuration file.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The address to serve HTTP on [default: 127.0.0.1:8086].
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: Option<String>,
    /// Where the embedded store keeps its file [default: ./data].
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Where pages are kept: `embedded`, or a `mongodb://` URI [default: embedded].
    #[arg(long, value_name = "STORE")]
    pub store: Option<String>,
}

/// The flags of `verify`.
#[derive(Debug, Args)]
pub struct VerifyFlags {
    /// The configuration file.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where the embedded store keeps its file [default: ./data].
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Where pages are kept: `embedded`, or a `mongodb://` URI [default: embedded].
    #[arg(long, value_name = "STORE")]
    pub store: Option<String>,
    /// Make anew what can be: summaries, counts, overflow marks, missing sensor documents. Never
    /// changes, moves or deletes a reading.
    #[arg(long)]
    pub repair: bool,
}

impl VerifyFlags {
    /// What they have in common with `serve`.
    #[must_use]
    pub fn settings(&self) -> ServeFlags {
        let (config, data_dir, store) = (self.config.clone(), self.data_dir.clone(), self.store.clone());
        ServeFlags { config, listen: None, data_dir, store }
    }
}

/// The settings that defaults, file, environment and flags make together.
///
/// # Errors
/// All problems at once.
pub fn settings(flags: &ServeFlags) -> Result<Settings, Vec<Problem>> {
    let overrides =
        Overrides { listen: flags.listen.clone(), data_dir: flags.data_dir.clone(), store: flags.store.clone() };
    config::load(flags.config.as_deref(), config::environment(), &overrides)
}

/// Prints the problems of a configuration, a line each.
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

/// Says that a configuration has no problem.
#[must_use]
pub fn config_is_sound(flags: &ServeFlags) -> ExitCode {
    match &flags.config {
        Some(file) => println!("{}: the configuration is sound", file.display()),
        None => println!("the configuration is sound"),
    }
    ExitCode::SUCCESS
}
