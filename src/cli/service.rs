//! The flags of commands that ask a running service.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::store::FolderFlags;
use crate::commands::{Service, TlsFiles};

/// A running service, and who asks it.
#[derive(Debug, Args)]
pub struct TargetFlags {
    /// The address of the service: http://HOST:PORT or https://HOST:PORT.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8086", env = "HOURGLASS_SERVER")]
    pub server: String,
    #[command(flatten)]
    pub by: CredentialFlags,
}

/// A database of a running service, and who asks.
#[derive(Debug, Args)]
pub struct DatabaseFlags {
    /// The database.
    #[arg(long, value_name = "NAME", default_value = "default", env = "HOURGLASS_DB")]
    pub db: String,
    #[command(flatten)]
    pub service: TargetFlags,
}

/// The credentials of a client.
#[derive(Debug, Args)]
pub struct CredentialFlags {
    /// A token that may do what the command asks for: an admin's, unless it is about the readings of a database only.
    #[arg(long, value_name = "TOKEN", env = "HOURGLASS_TOKEN", hide_env_values = true)]
    pub token: Option<String>,
    /// A file that contains the token; it wins over --token, which other users of the machine can see.
    #[arg(long, value_name = "FILE", env = "HOURGLASS_TOKEN_FILE")]
    pub token_file: Option<PathBuf>,
    /// With https://, the authorities that are trusted, in PEM [default: the system's, or those of SSL_CERT_FILE].
    #[arg(long, value_name = "FILE", env = "HOURGLASS_CA")]
    pub ca: Option<PathBuf>,
    /// With https://, a client's certificate chain in PEM, for a service that asks for one.
    #[arg(long, value_name = "FILE", requires = "key", env = "HOURGLASS_CERT")]
    pub cert: Option<PathBuf>,
    /// The private key of --cert, in PEM.
    #[arg(long, value_name = "FILE", requires = "cert", env = "HOURGLASS_KEY")]
    pub key: Option<PathBuf>,
}

impl From<TargetFlags> for Service {
    fn from(flags: TargetFlags) -> Self {
        flags.by.for_service(flags.server)
    }
}

impl CredentialFlags {
    /// The service at this URL, and the credentials for it.
    #[must_use]
    pub fn for_service(self, url: String) -> Service {
        let Self { token, token_file, ca, cert, key } = self;
        Service { url, token, token_file, tls: TlsFiles { ca, cert, key } }
    }
}

#[derive(Debug, Subcommand)]
pub enum DeadLettersCommand {
    /// Print the dead letters that were not yet resent, as line protocol, each below a comment with its id and reason.
    List(FolderFlags),
    /// Resend the dead letters to a running service, and mark each one that it accepts. Exits with 0 if the service
    /// accepted all of them and flushed them to the store, for which the token must be an admin's. It is safe to run the
    /// command again.
    Send(SendFlags),
    /// Mark dead letters that need no more attention.
    Done {
        /// Their ids, as `list` prints them.
        #[arg(required = true, value_name = "ID")]
        ids: Vec<u64>,
        #[command(flatten)]
        folder: FolderFlags,
    },
}

/// The flags of `dead-letters send`.
#[derive(Debug, Args)]
pub struct SendFlags {
    #[command(flatten)]
    pub target: TargetFlags,
    #[command(flatten)]
    pub folder: FolderFlags,
}

#[derive(Debug, Subcommand)]
pub enum JobCommand {
    /// Print each job with its state, its progress, and when it ran and runs.
    List(TargetFlags),
    /// Run a job now and print its progress. Exit status: 0 if it left nothing to do, else 1.
    Run {
        /// The job: seal, expire, strip, sweep, outliers, compact, refresh, group or index.
        name: String,
        #[command(flatten)]
        target: TargetFlags,
    },
}

#[derive(Debug, Subcommand)]
pub enum SensorCommand {
    /// Send lines such as {"sensor":"climate,sensor=s1","meta":{"site":"lab"}}, or CSV with a column `sensor`. Each changes what it
    /// names and leaves the rest. Exit status: 0 if no line was refused, else 1.
    Import {
        /// The file; `-` or nothing for the standard input.
        file: Option<PathBuf>,
        /// What it holds; without it, CSV if its name ends with .csv, else lines of JSON.
        #[arg(long, value_enum, value_name = "FORMAT")]
        format: Option<SensorsFormat>,
        /// Only count what would change.
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        target: DatabaseFlags,
    },
    /// Print the metadata of all sensors that have some, as `import` takes it.
    Export {
        #[arg(long, value_enum, value_name = "FORMAT", default_value = "ndjson")]
        format: SensorsFormat,
        #[command(flatten)]
        target: DatabaseFlags,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SensorsFormat {
    /// Lines such as {"sensor":"climate,sensor=s1","meta":{"site":"lab"}}.
    Ndjson,
    /// A row per sensor, and a column per name.
    Csv,
}

#[derive(Debug, Subcommand)]
pub enum RenameCommand {
    /// Show a name under another one, or edit the entry of a name that is shown already.
    Add {
        #[command(flatten)]
        scope: RenameScope,
        /// The name to show.
        shown: String,
        /// Only count what would be renamed.
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        target: DatabaseFlags,
    },
    /// List the renames of a database.
    List(DatabaseFlags),
    /// Show a stored name again.
    Remove {
        #[command(flatten)]
        scope: RenameScope,
        #[command(flatten)]
        target: DatabaseFlags,
    },
}

/// An entry by its stored name.
#[derive(Debug, Args)]
pub struct RenameScope {
    /// The kind of the name: sensor, measurement, tag_key or tag_value.
    pub kind: String,
    /// The stored name; of a sensor, its key: climate,room=lab,sensor=s1.
    pub stored: String,
    /// The key of the tag of which a value is renamed.
    #[arg(long, value_name = "KEY")]
    pub tag: Option<String>,
    /// Only values of the tag in this measurement.
    #[arg(long, value_name = "NAME")]
    pub measurement: Option<String>,
}

impl RenameScope {
    /// The texts of the entry by name.
    #[must_use]
    pub fn fields(self) -> Vec<(&'static str, String)> {
        let Self { kind, stored, tag, measurement } = self;
        let optional = [("tag", tag), ("measurement", measurement)];
        let mut fields = vec![("kind", kind), ("from", stored)];
        fields.extend(optional.into_iter().filter_map(|(name, value)| Some((name, value?))));
        fields
    }
}

#[derive(Debug, Subcommand)]
pub enum RejectionsCommand {
    /// Print the number of rejected lines by code, and the last ones, newest first.
    List(RejectedFlags),
    /// Print all rejected lines as line protocol, oldest first, each below a comment with the reason. Correct them, write them
    /// again, and then use `done` with the id in the last comment.
    Export(RejectedFlags),
    /// Remove rejected lines that need no more attention.
    Done {
        /// The id of the last of them, as `list` and `export` print it.
        #[arg(long, value_name = "ID")]
        through: u64,
        #[command(flatten)]
        selection: RejectedFlags,
    },
}

/// Which rejections of a running service.
#[derive(Debug, Args)]
pub struct RejectedFlags {
    /// Only rejections with this code: syntax, family, unit and others.
    #[arg(long)]
    pub code: Option<String>,
    /// Only lines of this measurement.
    #[arg(long, value_name = "NAME")]
    pub measurement: Option<String>,
    /// Only those whose line or reason contains this text.
    #[arg(long, value_name = "TEXT")]
    pub contains: Option<String>,
    /// Only those received at or after this time: RFC 3339, or a duration before now such as -24h.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub from: Option<String>,
    #[command(flatten)]
    pub target: DatabaseFlags,
}
