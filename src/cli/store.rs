//! The flags of commands that open a store, a data folder or a configuration.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::commands::{BackupRequest, Service, lifetime};

/// The flags that select a data folder.
#[derive(Debug, Clone, Default, Args)]
pub struct FolderFlags {
    /// The configuration file.
    #[arg(long, value_name = "FILE", env = "HOURGLASS_CONFIG")]
    pub config: Option<PathBuf>,
    /// The folder of the write-ahead log and of the embedded store [default: ./data].
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<String>,
}

/// The flags that select a store.
#[derive(Debug, Clone, Default, Args)]
pub struct StoreFlags {
    #[command(flatten)]
    pub folder: FolderFlags,
    /// The store of the readings: `embedded`, or a `mongodb://` URI [default: embedded].
    #[arg(long, value_name = "STORE")]
    pub store: Option<String>,
}

/// The flags of `serve`. A flag overrides the environment, and the environment overrides the file.
#[derive(Debug, Clone, Default, Args)]
pub struct ServeFlags {
    #[command(flatten)]
    pub stored: StoreFlags,
    /// The address of the HTTP listener [default: 127.0.0.1:8086].
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: Option<String>,
    /// Maximum memory, for example 64MiB [default: a quarter of the machine's, at most 512MiB].
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<String>,
}

impl From<StoreFlags> for ServeFlags {
    fn from(stored: StoreFlags) -> Self {
        Self { stored, ..Self::default() }
    }
}

impl From<FolderFlags> for ServeFlags {
    fn from(folder: FolderFlags) -> Self {
        StoreFlags { folder, store: None }.into()
    }
}

#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Check the configuration that `serve` would use with the same flags and environment. `doctor` checks more.
    Check(ServeFlags),
    /// Print every key with its meaning, unit, default and bounds.
    ShowDefaults,
}

#[derive(Debug, Subcommand)]
pub enum AuditCommand {
    /// Print all records, oldest first: first those of administrators of the service, then all others.
    List(FolderFlags),
    /// Check the hashes that chain the records. Exit status: 0 if nothing was changed or removed, else 1.
    Verify(FolderFlags),
}

#[derive(Debug, Subcommand)]
pub enum DeadLettersCommand {
    /// Print the dead letters that were not resent yet as line protocol, each below a comment with its id and reason.
    List(FolderFlags),
    /// Resend the dead letters to a running service, and mark each one that it accepts. It is safe to run this again.
    /// Flushing them to the store takes an admin's token. Exit status: 0 if all were accepted and no flush failed, else
    /// 1.
    Send {
        #[command(flatten)]
        service: Service,
        #[command(flatten)]
        folder: FolderFlags,
    },
    /// Mark dead letters that need no more attention.
    Done {
        /// The ids, as `list` prints them.
        #[arg(required = true, value_name = "ID")]
        ids: Vec<u64>,
        #[command(flatten)]
        folder: FolderFlags,
    },
}

#[derive(Debug, Subcommand)]
pub enum WalCommand {
    /// Flush the write-ahead log of a stopped service to the store. Exit status: 0 if the WAL is empty afterwards, 75
    /// if records are left, 1 if the command failed.
    Flush {
        /// Stop after this time: 90s, 10m. Without it, the command waits for the store forever.
        #[arg(long, value_name = "DURATION", value_parser = lifetime)]
        timeout: Option<i64>,
        #[command(flatten)]
        store: StoreFlags,
    },
}

#[derive(Debug, Subcommand)]
pub enum BackupCommand {
    /// Write a backup into a folder or an archive: everything acknowledged before it began, with tokens and the
    /// configuration file. If the folder has an earlier backup, only the days that changed are written.
    Create {
        #[command(flatten)]
        request: BackupRequest,
        #[command(flatten)]
        store: StoreFlags,
    },
    /// Write a backup into an empty store, read it back, and compare. Run it again if it was interrupted.
    Restore {
        /// The folder of the backup.
        #[arg(value_name = "DIR", required_unless_present = "source")]
        folder: Option<PathBuf>,
        /// The folder, or - to read an archive from the standard input.
        #[arg(long, value_name = "SOURCE", conflicts_with = "folder")]
        source: Option<PathBuf>,
        #[command(flatten)]
        store: StoreFlags,
    },
    /// Check that a backup is complete: compare each file with the length and SHA-256 in the manifest.
    Verify {
        /// The folder of the backup, or - to read an archive from the standard input.
        #[arg(value_name = "SOURCE")]
        source: PathBuf,
    },
    /// Copy everything of a stopped service to another, empty store, read it back, and compare. Run it again if it was
    /// interrupted.
    Copy(CopyFlags),
    /// Print a digest of everything stored. It does not depend on the kind of store. With the embedded store, stop the
    /// service first.
    Digest {
        #[command(flatten)]
        output: OutputFlags,
        #[command(flatten)]
        store: StoreFlags,
    },
}

/// The flags of `backup copy`.
#[derive(Debug, Args)]
pub struct CopyFlags {
    /// The data folder of a service with the embedded store, or a `mongodb://` URI.
    #[arg(long, value_name = "STORE")]
    pub source: String,
    /// The store to write to, in the same format.
    #[arg(long, value_name = "STORE")]
    pub target: String,
    #[command(flatten)]
    pub folder: FolderFlags,
}

impl CopyFlags {
    /// Returns the flags of `serve` for the source and the target.
    #[must_use]
    pub fn settings(&self) -> [ServeFlags; 2] {
        [&self.source, &self.target].map(|store| {
            let is_mongodb = store.starts_with("mongodb://") || store.starts_with("mongodb+srv://");
            let mut folder = self.folder.clone();
            if is_mongodb {
                return StoreFlags { folder, store: Some(store.clone()) }.into();
            }
            folder.data_dir = Some(store.clone());
            StoreFlags { folder, store: Some("embedded".to_owned()) }.into()
        })
    }
}

/// The format of an answer.
#[derive(Debug, Clone, Copy, Args)]
pub struct OutputFlags {
    /// The format of the output.
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "table", env = "HOURGLASS_OUTPUT")]
    pub output: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    /// A table for people.
    Table,
    /// JSON.
    Json,
}

impl OutputFlags {
    #[must_use]
    pub fn is_json(self) -> bool {
        self.output == Output::Json
    }
}
