//! The command line: from flags to settings, or to a list of problems.

mod service;
mod store;
mod tokens;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

pub use self::service::{
    CompactFlags, CredentialFlags, DatabaseFlags, DeadLettersCommand, ExplainFlags, RejectedFlags, RejectionsCommand,
    RelabelCommand, RelabelFlags, SendFlags, SensorsCommand, SensorsFormat, TargetFlags,
};
pub use self::store::{
    BackupFlags, CheckFlags, CopyFlags, DemoFlags, DigestFlags, FlushWalFlags, FolderFlags, HealthFlags, RestoreFlags,
    ServeFlags, StoreFlags, VerifyFlags,
};
pub use self::tokens::{CreateFlags, TokenCommand, tokens};
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
    /// store of which every service is stopped.
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
    /// Have the running service store what it acknowledged, and seal every day that is over, now, whatever `seal.after` says: history
    /// then takes a tenth of its space. Exit status: 0 if all that can be sealed is, else 1.
    Seal(TargetFlags),
    /// Have the running service say what would become of each line of a file, of line protocol or JSON, if it were written:
    /// sensor, time, bucket, fields, warnings, and why it would be rejected. Nothing is kept. Exit status: 0 if all of it would be
    /// accepted, else 1.
    Explain(ExplainFlags),
    /// Send the metadata of many sensors to the running service, or print what it has: names, sites, units.
    Sensors {
        #[command(subcommand)]
        command: SensorsCommand,
    },
    /// Show sensors, tag values, tag keys or measurements of a running service under other names, without rewriting anything: make,
    /// list, take back and finalize relabels.
    Relabel {
        #[command(subcommand)]
        command: RelabelCommand,
    },
    /// List or export the rejected lines of the running service, or remove those that are done.
    Rejections {
        #[command(subcommand)]
        command: RejectionsCommand,
    },
    /// Print the indexes that the running service's configuration declares (`index = true`), whether MongoDB has them, and the queries
    /// that use them. Exit status: 0 if none is missing, else 1.
    Indexes(TargetFlags),
    /// Have the running service look for documents of older forms in its store and rewrite them, now, and show how far it is.
    /// The service does so by itself, slowly. Exit status: 0 if none is left, else 1.
    Migrate(TargetFlags),
    /// List, resend or mark dead letters: readings that the store rejected and that hourglass does not retry. The service may
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

/// Parses a duration such as `90d` into seconds.
fn lifetime(text: &str) -> Result<i64, String> {
    let nanoseconds =
        parse_duration(text, &DURATION_UNITS[5..]).map_err(|fault| format!("{fault}; expected for example 90d"))?;
    let seconds = nanoseconds / 1_000_000_000;
    if seconds > 0 { Ok(seconds) } else { Err("expected at least one second".to_owned()) }
}

#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Print every key with its meaning, unit, default and bounds.
    Default,
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
