//! The command line: flags in, settings or a list of problems out.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::config::{self, Overrides, Problem, Settings};

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
    /// About the configuration file.
    Config {
        /// What about it.
        #[command(subcommand)]
        command: ConfigCommand,
    },
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
