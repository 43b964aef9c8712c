//! The flags of commands that open a store, a data folder or a configuration.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::commands::{BackupRequest, Service, lifetime};

/// The flags that name a data folder.
#[derive(Debug, Clone, Default, Args)]
pub struct FolderFlags {
    /// The configuration file.
    #[arg(long, value_name = "FILE", env = "HOURGLASS_CONFIG")]
    pub config: Option<PathBuf>,
    /// The folder of the write-ahead log and of the embedded store [default: ./data].
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<String>,
}

/// The flags that name a store.
#[derive(Debug, Clone, Default, Args)]
pub struct StoreFlags {
    #[command(flatten)]
    pub folder: FolderFlags,
    /// Where readings are stored: `embedded`, or a `mongodb://` URI [default: embedded].
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
    /// How much memory to use at most, for example 64MiB [default: a quarter of the machine, at most 512MiB].
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
    /// Check the configuration that `serve` would use with the same flags and environment. `doctor` tries more.
    Check(ServeFlags),
    /// Print every key with its meaning, unit, default and bounds.
    ShowDefaults,
}

#[derive(Debug, Subcommand)]
pub enum AuditCommand {
    /// Print all records: those of administrators of the service first, each log's oldest first.
    List(FolderFlags),
    /// Check the hashes that chain the records. Exit status: 0 if nothing was changed or removed, else 1.
    Verify(FolderFlags),
}

#[derive(Debug, Subcommand)]
pub enum DeadLettersCommand {
    /// Print the dead letters that were not yet resent, as line protocol, each below a comment with its id and reason.
    List(FolderFlags),
    /// Resend the dead letters to a running service, and mark each one that it accepts. Exits with 0 if the service
    /// accepted all of them and flushed them to the store, for which the token must be an admin's. It is safe to run the
    /// command again.
    Send {
        #[command(flatten)]
        service: Service,
        #[command(flatten)]
        folder: FolderFlags,
    },
    /// Mark dead letters that need no more attention.
    Done {
        /// Their ids, as `list` prints them.
        #[arg(required = true, value_name = "ID")]
        ids: Vec<u64>,
        #[command(flatten)]
        folder: FolderFlags,
    },
}

#[derive(Debug, Subcommand)]
pub enum WalCommand {
    /// Flush the write-ahead log of a stopped service to the store. Exit status: 0 if it is empty, 75 if records are left,
    /// 1 if it failed.
    Flush {
        /// Stop after this time: 90s, 10m. Without it, the command waits for the store without limit.
        #[arg(long, value_name = "DURATION", value_parser = lifetime)]
        timeout: Option<i64>,
        #[command(flatten)]
        store: StoreFlags,
    },
}

#[derive(Debug, Subcommand)]
pub enum BackupCommand {
    /// Write a backup into a folder: everything acknowledged before it began, with tokens and the configuration file. Into
    /// the folder of an earlier backup, only the days that changed are written.
    Create {
        #[command(flatten)]
        request: BackupRequest,
        #[command(flatten)]
        store: StoreFlags,
    },
    /// Write a backup into an empty store, read it back, and compare. Run it again if it was interrupted.
    Restore {
        /// The folder of the backup.
        #[arg(value_name = "DIR")]
        folder: PathBuf,
        #[command(flatten)]
        store: StoreFlags,
    },
    /// Copy everything of a stopped service to another, empty store, read it back, and compare. Run it again if it was
    /// interrupted.
    Copy(CopyFlags),
    /// Print a digest of everything stored, which is the same for both stores. With the embedded store, stop the service first.
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
    /// The same of the store to write to.
    #[arg(long, value_name = "STORE")]
    pub target: String,
    #[command(flatten)]
    pub folder: FolderFlags,
}

impl CopyFlags {
    /// The flags of `serve` for each of the two stores.
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

/// How to print an answer.
#[derive(Debug, Clone, Copy, Args)]
pub struct OutputFlags {
    /// Print lines for people, or JSON.
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "table", env = "HOURGLASS_OUTPUT")]
    pub output: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    /// Lines for people.
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
