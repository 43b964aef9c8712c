//! Parses the command line and turns flags into settings or a list of problems.

mod pages;
mod requests;
mod store;
mod tokens;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

pub use self::pages::{print_completions, write_manual};
pub use self::store::{
    AuditCommand, BackupCommand, ConfigCommand, CopyFlags, DeadLettersCommand, FolderFlags, OutputFlags, ServeFlags,
    StoreFlags, WalCommand,
};
pub use self::tokens::{AddFlags, TokenCommand, tokens};
use crate::app;
use crate::commands::{
    DemoRequest, Exchange, ExportFlags, ImportFlags, InstanceCommand, JobCommand, MappingCommand, QueryFlags,
    RejectionsCommand, RenameCommand, SensorCommand, TailFlags, WriteFlags,
};
use crate::config::{self, Overrides, Problem, Settings};
use crate::telemetry::{logs, version};

/// Exit status for flags that contradict each other; clap uses the same.
const EXIT_USAGE: u8 = 2;
/// Exit status for an invalid configuration (`EX_CONFIG` of sysexits.h).
const EXIT_CONFIG: u8 = 78;

/// Time-series ingestion: accepts sensor readings, stores them in hourly buckets with exact summaries, answers queries.
#[derive(Debug, Parser)]
#[command(
    name = "hourglass",
    version = version::long(),
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
    /// Demonstrate hourglass with a simulated factory of 50 sensors, until Ctrl-C. Takes no configuration.
    Demo(DemoRequest),
    /// Find out why `serve` does not start or is slow: try folders, ports, certificates, tokens and the store, and measure
    /// disk, clock and store, without starting. Exit status: 0 if nothing is wrong, 78 if something is.
    Doctor(ServeFlags),
    /// Check whether the running service, started with the same flags, acknowledges writes. Made for containers. Exit
    /// status: 0 if it does, else 1.
    Healthcheck(HealthcheckFlags),
    /// Send readings to a running service: line protocol, CSV or NDJSON. Exit status: 0 if no row was refused, else 1.
    Write(WriteFlags),
    /// Query a running service with InfluxQL, or select readings and aggregates by flags. Exit status: 0 if no statement
    /// failed, else 1.
    Query(QueryFlags),
    /// Print readings as a running service acknowledges them.
    Tail(TailFlags),
    /// Import a file of line protocol, CSV or NDJSON, a database of InfluxDB or a collection of MongoDB into a running
    /// service, and compare the result. Run it again if it was interrupted. Exit status: 0 if no row was refused, else 1.
    Import(Box<ImportFlags>),
    /// Export readings of a running service as line protocol, CSV or NDJSON. Run it again if it was interrupted.
    Export(ExportFlags),
    /// Print the completions of a shell.
    Completions { shell: clap_complete::Shell },
    /// Print the manual page, or write the pages of all commands to a folder.
    Man {
        /// The folder.
        #[arg(value_name = "DIR")]
        folder: Option<PathBuf>,
    },
    /// Check everything in the store, and repair it with --repair. With the embedded store, stop the service first. Exit status: 0
    /// if nothing is wrong, 1 if something is, 2 if the check was not completed.
    Verify {
        /// Recompute everything that follows from readings: summaries, counts, stamps, and missing sensor documents.
        /// Never changes or deletes a reading.
        #[arg(long)]
        repair: bool,
        #[command(flatten)]
        store: StoreFlags,
    },
    /// Check the configuration, or print the default one.
    Config {
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// Add, list, rotate and revoke the tokens by which clients authenticate. The service can keep running.
    Token {
        #[command(subcommand)]
        command: TokenCommand,
    },
    /// Create and restore backups, copy a store, and compare stores by digest.
    Backup {
        #[command(subcommand)]
        command: BackupCommand,
    },
    /// Flush the write-ahead log of a stopped service.
    Wal {
        #[command(subcommand)]
        command: WalCommand,
    },
    /// Print the audit trail of a data folder, or check it.
    Audit {
        #[command(subcommand)]
        command: AuditCommand,
    },
    /// List sensors, and import or export their metadata.
    Sensor {
        #[command(subcommand)]
        command: SensorCommand,
    },
    /// List dead letters (readings that the store rejected), or send them again. The service can keep running.
    DeadLetters {
        #[command(subcommand)]
        command: DeadLettersCommand,
    },
    /// Print the version.
    Version,
    /// Compact the embedded file of a stopped service. A running service does it with `job run compact`.
    Compact(FolderFlags),
    /// List the background jobs of the running service, or run one now.
    Job {
        #[command(subcommand)]
        command: JobCommand,
    },
    /// List the instances of a cluster, drain one, or give up one that is lost.
    Instance {
        #[command(subcommand)]
        command: InstanceCommand,
    },
    /// Show sensors, measurements, tag keys or tag values of a running service under other names.
    Rename {
        #[command(subcommand)]
        command: RenameCommand,
    },
    /// List, store, remove and try mappings, which make readings of messages as devices send them.
    Mapping {
        #[command(subcommand)]
        command: MappingCommand,
    },
    /// List or export the rejected lines of the running service, or remove those already handled.
    Rejections {
        #[command(subcommand)]
        command: RejectionsCommand,
    },
}

/// The flags of `healthcheck`.
#[derive(Debug, Args)]
pub struct HealthcheckFlags {
    /// The address of the service, in place of that in the configuration.
    #[arg(long, value_name = "URL", conflicts_with_all = ["config", "data_dir", "store", "listen", "memory"])]
    pub server: Option<String>,
    /// For https://: a PEM file of the trusted authorities.
    #[arg(long, value_name = "FILE", requires = "server")]
    pub ca: Option<PathBuf>,
    #[command(flatten)]
    pub serve: ServeFlags,
}

/// Environment variables that set flags instead of configuration keys.
const VARIABLES: [&str; 9] = [
    "HOURGLASS_CONFIG",
    "HOURGLASS_SERVER",
    "HOURGLASS_DB",
    "HOURGLASS_TOKEN",
    "HOURGLASS_TOKEN_FILE",
    "HOURGLASS_CA",
    "HOURGLASS_CERT",
    "HOURGLASS_KEY",
    "HOURGLASS_OUTPUT",
];

/// The parsed command line.
#[derive(Debug)]
pub enum Request {
    Command(Command),
    /// One request to a running service.
    Exchange(Exchange),
}

/// Returns the description of the whole command line.
fn whole_command() -> clap::Command {
    requests::add_commands(Arguments::command())
}

/// Parses the command line. On a usage error or a request for help, prints it and exits the process.
#[must_use]
pub fn parse() -> Request {
    let matches = whole_command().get_matches();
    if let Some(exchange) = requests::parse_exchange(&matches) {
        return Request::Exchange(exchange.unwrap_or_else(|error| error.exit()));
    }
    let arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    Request::Command(arguments.command)
}

/// Resolves the settings from defaults, file, environment and flags.
///
/// # Errors
/// All problems at once.
pub fn settings(flags: impl Into<ServeFlags>) -> Result<Settings, Vec<Problem>> {
    let ServeFlags { stored: StoreFlags { folder, store }, listen, memory } = flags.into();
    let overrides = Overrides { listen, data_dir: folder.data_dir, store, memory };
    let environment = config::environment().filter(|(name, _)| !VARIABLES.contains(&name.as_str()));
    config::load(folder.config.as_deref(), environment, &overrides)
}

/// Runs a command with the settings, or prints the problems of the configuration.
#[must_use]
pub fn with_settings(flags: impl Into<ServeFlags>, run: impl FnOnce(&Settings) -> ExitCode) -> ExitCode {
    match settings(flags) {
        Ok(settings) => run(&settings),
        Err(problems) => report(&problems),
    }
}

/// As [`with_settings`], for a command that uses a store.
#[must_use]
pub fn with_store(flags: impl Into<ServeFlags>, run: impl AsyncFnOnce(&Settings) -> anyhow::Result<()>) -> ExitCode {
    with_settings(flags, |settings| on_threads(settings, run))
}

/// Runs a command that uses a store on its own runtime.
#[must_use]
pub fn on_threads(settings: &Settings, run: impl AsyncFnOnce(&Settings) -> anyhow::Result<()>) -> ExitCode {
    logs::start("warn", &settings.telemetry);
    app::exit_code(app::run_to_end(run(settings)))
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

/// Prints only the first problem, for a command that prints one line and exits with 0 or 1.
#[must_use]
pub fn report_first(problems: &[Problem]) -> ExitCode {
    let more = if problems.len() > 1 { " (and more: hourglass config check)" } else { "" };
    if let Some(problem) = problems.first() {
        eprintln!("hourglass: {problem}{more}");
    }
    ExitCode::FAILURE
}

#[must_use]
pub fn print_config_valid(flags: &ServeFlags) -> ExitCode {
    match &flags.stored.folder.config {
        Some(file) => println!("{}: the configuration is valid", file.display()),
        None => println!("the configuration is valid"),
    }
    ExitCode::SUCCESS
}
