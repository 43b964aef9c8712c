//! The programs to run, given by flags, and the versions that they report.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use clap::Args;

/// The flags for programs and the folder of their data.
#[derive(Debug, Args)]
pub struct ProgramOptions {
    /// The hourglass to run.
    #[arg(long, default_value = "target/dist/hourglass")]
    hourglass: PathBuf,
    /// The mongod to run, 6.0 or newer [default: the one on PATH, else the one that the tests installed].
    #[arg(long)]
    mongod: Option<PathBuf>,
    /// The InfluxDB 1.x to run.
    #[arg(long, default_value = "influxd")]
    influxd: PathBuf,
    /// The VictoriaMetrics to run.
    #[arg(long, default_value = "victoria-metrics")]
    victoria: PathBuf,
    /// Parent folder of the temporary folders for the data.
    #[arg(long, default_value = "target")]
    pub folder: PathBuf,
}

/// Paths of the programs, valid from any working directory.
pub struct Programs {
    pub hourglass: PathBuf,
    pub mongod: PathBuf,
    pub influxd: PathBuf,
    pub victoria: PathBuf,
}

impl ProgramOptions {
    /// Returns the programs that the flags name.
    pub fn programs(&self) -> Programs {
        Programs {
            hourglass: make_absolute(&self.hourglass),
            mongod: make_absolute(&self.mongod.clone().unwrap_or_else(default_mongod)),
            influxd: make_absolute(&self.influxd),
            victoria: make_absolute(&self.victoria),
        }
    }
}

fn default_mongod() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_on_path = std::env::split_paths(&path).any(|folder| folder.join("mongod").is_file());
    if is_on_path { "mongod".into() } else { "target/mongod/fiftyone/db/bin/mongod".into() }
}

/// Makes a path absolute. A name without a folder is unchanged, and is searched in PATH when it is run.
fn make_absolute(program: &Path) -> PathBuf {
    match program.components().count() {
        1 => program.to_owned(),
        _ => std::path::absolute(program).unwrap_or_else(|_| program.to_owned()),
    }
}

/// Returns the first word of the output that looks like a version. For builds that print none, it is the version of the
/// Debian package.
pub fn version(program: &Path, flag: &str) -> Result<String> {
    let output = Command::new(program).arg(flag).output().with_context(|| format!("running {}", program.display()))?;
    let output = String::from_utf8_lossy(&output.stdout).into_owned();
    let is_version = |word: &&str| word.contains('.') && word.chars().any(|c| c.is_ascii_digit());
    let printed = output.split_whitespace().find(is_version).map(|word| word.trim_start_matches('v').to_owned());
    Ok(printed.or_else(|| package_version(program)).unwrap_or_else(|| "unknown".to_owned()))
}

/// Returns the version of the package named like the program.
fn package_version(program: &Path) -> Option<String> {
    let shown =
        Command::new("dpkg-query").args(["--show", "--showformat=${Version}"]).arg(program.file_name()?).output();
    let version = String::from_utf8(shown.ok()?.stdout).ok()?;
    (!version.is_empty()).then_some(version)
}
