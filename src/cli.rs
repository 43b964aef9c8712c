//! The command line: from flags to settings, or to a list of problems.

mod requests;
mod store;
mod tokens;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

pub use self::store::{
    AuditCommand, BackupCommand, ConfigCommand, CopyFlags, DeadLettersCommand, FolderFlags, OutputFlags, ServeFlags,
    StoreFlags, WalCommand,
};
pub use self::tokens::{AddFlags, TokenCommand, tokens};
use crate::app;
use crate::commands::{DemoRequest, Exchange, JobCommand, RejectionsCommand, RenameCommand, SensorCommand};
use crate::config::{self, Overrides, Problem, Settings};
use crate::telemetry::logs;

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
    /// Show what hourglass does with a simulated factory of 50 sensors, until Ctrl-C. Takes no configuration.
    Demo(DemoRequest),
    /// Find out why `serve` does not start or is slow: try folders, ports, certificates, tokens and the store, and measure
    /// disk, clock and store, without starting. Exit status: 0 if nothing is wrong, 78 if something is.
    Doctor(ServeFlags),
    /// Ask the running service, which was started with the same flags, whether it acknowledges writes, for containers. Exit
    /// status: 0 if it does, else 1.
    Healthcheck(ServeFlags),
    /// Check everything in the store, and repair it with --repair. With the embedded store, stop the service first. Exit status: 0
    /// if nothing is wrong, 1 if something is, 2 if the check was not completed.
    Verify {
        /// Recompute what readings determine: summaries, counts, stamps, and sensor documents that are missing. Never
        /// changes or deletes a reading.
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
    /// Add, list, rotate and revoke the tokens by which clients authenticate. The service may run meanwhile.
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
    /// List dead letters (readings that the store rejected), or send them again. The service may run meanwhile.
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
    /// Show sensors, measurements, tag keys or tag values of a running service under other names.
    Rename {
        #[command(subcommand)]
        command: RenameCommand,
    },
    /// List or export the rejected lines of the running service, or remove those that are done.
    Rejections {
        #[command(subcommand)]
        command: RejectionsCommand,
    },
}

/// Variables of the environment that set flags, not keys of the configuration.
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

/// What the command line asks for.
#[derive(Debug)]
pub enum Request {
    Command(Command),
    /// One request to a running service.
    Exchange(Exchange),
}

/// Parses the command line. Prints help, or what is wrong, and ends the process then.
#[must_use]
pub fn parse() -> Request {
    let matches = requests::added_to(Arguments::command()).get_matches();
    if let Some(exchange) = requests::of_matches(&matches) {
        return Request::Exchange(exchange.unwrap_or_else(|error| error.exit()));
    }
    let arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    Request::Command(arguments.command)
}

/// The settings by defaults, file, environment and flags.
///
/// # Errors
/// All problems at once.
pub fn settings(flags: impl Into<ServeFlags>) -> Result<Settings, Vec<Problem>> {
    let ServeFlags { stored: StoreFlags { folder, store }, listen, memory } = flags.into();
    let overrides = Overrides { listen, data_dir: folder.data_dir, store, memory };
    let environment = config::environment().filter(|(name, _)| !VARIABLES.contains(&name.as_str()));
    config::load(folder.config.as_deref(), environment, &overrides)
}

/// Runs a command with the settings, or prints what is wrong with them.
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

/// Runs a command that uses a store, on threads of its own.
#[must_use]
pub fn on_threads(settings: &Settings, run: impl AsyncFnOnce(&Settings) -> anyhow::Result<()>) -> ExitCode {
    logs::start("warn", &settings.telemetry);
    app::ended(app::run_to_end(run(settings)))
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
    let more = if problems.len() > 1 { " (and more: hourglass config check)" } else { "" };
    problems.iter().take(1).for_each(|problem| eprintln!("hourglass: {problem}{more}"));
    ExitCode::FAILURE
}

#[must_use]
pub fn config_is_sound(flags: &ServeFlags) -> ExitCode {
    match &flags.stored.folder.config {
        Some(file) => println!("{}: the configuration is valid", file.display()),
        None => println!("the configuration is valid"),
    }
    ExitCode::SUCCESS
}
