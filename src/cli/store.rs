//! The flags of commands that open a store, a data folder or a configuration.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::lifetime;
use super::service::CredentialFlags;

/// The flags of `serve`. A flag overrides the environment, and the environment overrides the file.
#[derive(Debug, Clone, Args)]
pub struct ServeFlags {
    /// The configuration file.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The address of the HTTP listener [default: 127.0.0.1:8086].
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: Option<String>,
    /// The folder of the write-ahead log and of the embedded store [default: ./data].
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Where readings are stored: `embedded`, or a `mongodb://` URI [default: embedded].
    #[arg(long, value_name = "STORE")]
    pub store: Option<String>,
    /// How much memory to use at most, for example 64MiB [default: a quarter of the machine, at most 512MiB].
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<String>,
}

/// The flags of `demo`.
#[derive(Debug, Args)]
pub struct DemoFlags {
    /// The number that the simulation starts from: the same one makes the same factory.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
    /// How many days of history to make.
    #[arg(long, value_name = "DAYS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=400))]
    pub days: u32,
    /// The port of the page, on the loopback address [default: 8086, or a free one if that is taken].
    #[arg(long, value_name = "PORT")]
    pub port: Option<u16>,
    /// A folder that is new, empty, or left by a demo that was killed [default: a new one in the system's temp folder].
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Leave the folder at the end, to `serve` from it.
    #[arg(long)]
    pub keep: bool,
    /// Open the page in a browser.
    #[arg(long)]
    pub open: bool,
}

/// The flags of `check-config`.
#[derive(Debug, Args)]
pub struct CheckFlags {
    /// Also try folders, ports, certificates, tokens and the store, without starting.
    #[arg(long)]
    pub probe: bool,
    #[command(flatten)]
    #[expect(missing_docs, reason = "flattened")]
    pub serve: ServeFlags,
}

/// The flags of `healthcheck`.
#[derive(Debug, Args)]
pub struct HealthFlags {
    /// The configuration file of the service.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The address of the service's HTTP listener, if it was given as a flag.
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: Option<String>,
}

impl HealthFlags {
    /// The same flags of `serve`.
    #[must_use]
    pub fn settings(&self) -> ServeFlags {
        ServeFlags {
            config: self.config.clone(),
            listen: self.listen.clone(),
            data_dir: None,
            store: None,
            memory: None,
        }
    }
}

/// The flags of `verify`.
#[derive(Debug, Args)]
pub struct VerifyFlags {
    /// The configuration file.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The folder of the write-ahead log and of the embedded store [default: ./data].
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Where readings are stored: `embedded`, or a `mongodb://` URI [default: embedded].
    #[arg(long, value_name = "STORE")]
    pub store: Option<String>,
    /// Recompute what readings determine: summaries, counts, stamps, overflow marks, and sensor documents or fields of them that are missing. Never changes
    /// or deletes a reading.
    #[arg(long)]
    pub repair: bool,
}

impl VerifyFlags {
    /// The same flags of `serve`.
    #[must_use]
    pub fn settings(&self) -> ServeFlags {
        let (config, data_dir, store) = (self.config.clone(), self.data_dir.clone(), self.store.clone());
        ServeFlags { config, listen: None, data_dir, store, memory: None }
    }
}

/// The flags that `serve` has too and that name the data folder.
#[derive(Debug, Args)]
pub struct FolderFlags {
    /// The configuration file.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The data directory of the service [default: ./data].
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
}

impl FolderFlags {
    /// The same flags of `serve`.
    #[must_use]
    pub fn settings(&self) -> ServeFlags {
        ServeFlags {
            config: self.config.clone(),
            listen: None,
            data_dir: self.data_dir.clone(),
            store: None,
            memory: None,
        }
    }
}

/// The flags that `serve` has too and that name the store.
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

impl StoreFlags {
    /// The same flags of `serve`.
    #[must_use]
    pub fn settings(&self) -> ServeFlags {
        let (config, data_dir, store) = (self.config.clone(), self.data_dir.clone(), self.store.clone());
        ServeFlags { config, listen: None, data_dir, store, memory: None }
    }
}

/// The flags of `flush-wal`.
#[derive(Debug, Args)]
pub struct FlushWalFlags {
    /// Stop after this time: 90s, 10m. Without it, the command waits for the store without limit.
    #[arg(long, value_name = "DURATION", value_parser = lifetime)]
    pub timeout: Option<i64>,
    #[command(flatten)]
    #[expect(missing_docs, reason = "flattened")]
    pub store: StoreFlags,
}

impl FlushWalFlags {
    /// The time limit, if there is one.
    #[must_use]
    pub fn patience(&self) -> Option<Duration> {
        self.timeout.map(|seconds| Duration::from_secs(seconds.unsigned_abs()))
    }
}

/// The flags of `backup`.
#[derive(Debug, Args)]
pub struct BackupFlags {
    /// The folder of the backup. It is made.
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// The address of the service.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8086", conflicts_with = "stopped")]
    pub from: String,
    #[command(flatten)]
    #[expect(missing_docs, reason = "flattened")]
    pub by: CredentialFlags,
    /// Every service on the store is stopped: read the store itself.
    #[arg(long, conflicts_with_all = ["token", "token_file", "ca", "cert", "key"])]
    pub stopped: bool,
    /// Restore the backup into its subfolder `proof`, verify that, compare, and remove it; then the service's metric
    /// hourglass_backup_proved_timestamp_seconds tells the time of this backup.
    #[arg(long)]
    pub prove: bool,
    /// How long to wait until other instances on the same store have stored what they acknowledged.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = lifetime)]
    pub patience: i64,
    #[command(flatten)]
    #[expect(missing_docs, reason = "flattened")]
    pub store: StoreFlags,
}

/// The flags of `restore`.
#[derive(Debug, Args)]
pub struct RestoreFlags {
    /// The folder of the backup.
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    #[command(flatten)]
    #[expect(missing_docs, reason = "flattened")]
    pub store: StoreFlags,
}

/// The flags of `copy`.
#[derive(Debug, Args)]
pub struct CopyFlags {
    /// The data folder of a service with the embedded store, or a `mongodb://` URI. Of a running service its address,
    /// `http://HOST:PORT` or `https://HOST:PORT`: then what changes is copied again and again.
    #[arg(long, value_name = "STORE")]
    pub from: String,
    /// The same of the store to write to.
    #[arg(long, value_name = "STORE")]
    pub to: String,
    /// The configuration file.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The data directory of the service with MongoDB [default: ./data].
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    #[command(flatten)]
    #[expect(missing_docs, reason = "flattened")]
    pub by: CredentialFlags,
    /// Have the running service take no more writes, copy the rest, compare, and end.
    #[arg(long)]
    pub switch: bool,
    /// The pause before what has changed is copied again.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = lifetime)]
    pub every: i64,
}

impl CopyFlags {
    /// Whether the source is a running service.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.from.starts_with("http://") || self.from.starts_with("https://")
    }

    /// The flags of `serve` for each of the two stores.
    #[must_use]
    pub fn settings(&self) -> [ServeFlags; 2] {
        [&self.from, &self.to].map(|store| {
            let is_mongodb = store.starts_with("mongodb://") || store.starts_with("mongodb+srv://");
            let (data_dir, store) = match is_mongodb {
                true => (self.data_dir.clone(), store.clone()),
                false => (Some(PathBuf::from(store)), "embedded".to_owned()),
            };
            ServeFlags { config: self.config.clone(), listen: None, data_dir, store: Some(store), memory: None }
        })
    }
}

/// The flags of `digest`.
#[derive(Debug, Args)]
pub struct DigestFlags {
    /// Print one line of JSON.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    #[expect(missing_docs, reason = "flattened")]
    pub store: StoreFlags,
}
