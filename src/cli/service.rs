//! The flags of commands that ask a running service.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::store::{FolderFlags, StoreFlags};

/// A running service, and who asks it.
#[derive(Debug, Args)]
pub struct TargetFlags {
    /// The address of the service: http://HOST:PORT or https://HOST:PORT.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8086")]
    pub to: String,
    #[command(flatten)]
    #[expect(missing_docs, reason = "flattened")]
    pub by: CredentialFlags,
}

/// A database of a running service, and who asks.
#[derive(Debug, Args)]
pub struct DatabaseFlags {
    /// The database.
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub db: String,
    #[command(flatten)]
    #[expect(missing_docs, reason = "flattened")]
    pub service: TargetFlags,
}

/// By what a service and its client know each other.
#[derive(Debug, Args)]
pub struct CredentialFlags {
    /// A token that may do what the command asks for: an admin's, unless it is about the readings of a database only.
    #[arg(long, value_name = "TOKEN")]
    pub token: Option<String>,
    /// A file that contains the token. Other users of the machine can see a token on the command line.
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    pub token_file: Option<PathBuf>,
    /// With https://, the authorities that are trusted, in PEM [default: the system's, or those of SSL_CERT_FILE].
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// With https://, a client's certificate chain in PEM, for a service that asks for one.
    #[arg(long, value_name = "FILE", requires = "key")]
    pub cert: Option<PathBuf>,
    /// The private key of --cert, in PEM.
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub key: Option<PathBuf>,
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
    #[expect(missing_docs, reason = "flattened")]
    pub target: TargetFlags,
    #[command(flatten)]
    #[expect(missing_docs, reason = "flattened")]
    pub folder: FolderFlags,
}

/// The flags of `compact`.
#[derive(Debug, Args)]
pub struct CompactFlags {
    /// The address of a running service. Without it, the service must be stopped.
    #[arg(long, value_name = "URL")]
    pub to: Option<String>,
    #[command(flatten)]
    #[expect(missing_docs, reason = "flattened")]
    pub by: CredentialFlags,
    /// Have MongoDB compact the collections, on the node that takes writes, one after the other.
    #[arg(long)]
    pub run: bool,
    #[command(flatten)]
    #[expect(missing_docs, reason = "flattened")]
    pub store: StoreFlags,
}

#[derive(Debug, Subcommand)]
pub enum SensorsCommand {
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
pub enum RelabelCommand {
    /// Show one name under another one. Exit status: 0 if it was done.
    Make(RelabelFlags),
    /// Print the relabels of a database, in the order in which they were made.
    List(DatabaseFlags),
    /// Take a relabel back: everything is shown as if it had never been.
    Undo {
        /// As `list` prints it.
        id: String,
        #[command(flatten)]
        target: DatabaseFlags,
    },
    /// Make a relabel final: it cannot be taken back any more.
    Finalize {
        /// As `list` prints it.
        id: String,
        #[command(flatten)]
        target: DatabaseFlags,
    },
}

#[derive(Debug, Args)]
pub struct RelabelFlags {
    /// What is renamed: sensor, tag_value, tag_key or measurement.
    pub kind: String,
    /// The name as it is. Of a sensor, its key: climate,room=lab,sensor=s1.
    pub from: String,
    /// The name to be shown.
    pub into: String,
    /// The tag of which a value is renamed.
    #[arg(long, value_name = "KEY")]
    pub tag: Option<String>,
    /// Only tags of this measurement.
    #[arg(long, value_name = "NAME")]
    pub measurement: Option<String>,
    /// Only readings from this time on, in RFC 3339.
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Only tell what would be renamed.
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    #[expect(missing_docs, reason = "flattened")]
    pub target: DatabaseFlags,
}

impl RelabelFlags {
    /// The members of the request's body.
    #[must_use]
    pub fn body(&self) -> Vec<(&'static str, String)> {
        let Self { kind, from, into, tag, measurement, since, .. } = self;
        let mut body = vec![("kind", kind.clone()), ("from", from.clone()), ("to", into.clone())];
        let named = [("tag", tag), ("measurement", measurement), ("since", since)];
        body.extend(named.into_iter().filter_map(|(name, value)| Some((name, value.clone()?))));
        body
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
    #[expect(missing_docs, reason = "flattened")]
    pub target: DatabaseFlags,
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
    #[command(flatten)]
    #[expect(missing_docs, reason = "flattened")]
    pub target: TargetFlags,
}
