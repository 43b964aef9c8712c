//! A server with an HTTP API: starts it on loopback, and stops it.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::spawn::{Spawned, free_port};
use super::system::Configuration;
use crate::client::Connection;

/// Maximum time for a start.
const START_MAX: Duration = Duration::from_secs(60);

/// A product with an HTTP API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Product {
    /// hourglass.
    Hourglass,
    /// InfluxDB 1.x.
    Influx,
    /// VictoriaMetrics, the single binary.
    Victoria,
}

impl Product {
    /// Returns the path for POSTs of line protocol with timestamps in nanoseconds.
    pub fn write_path(self) -> &'static str {
        match self {
            Self::Hourglass | Self::Influx => "/write?db=bench",
            Self::Victoria => "/write",
        }
    }

    /// Returns the path of the request that flushes everything to the storage, if there is one.
    pub fn flush_path(self) -> Option<&'static str> {
        match self {
            Self::Hourglass => Some("/api/v1/flush"),
            Self::Influx => None,
            Self::Victoria => Some("/internal/force_flush"),
        }
    }
}

/// A running server.
pub struct HttpServer {
    address: String,
    process: Spawned,
}

impl HttpServer {
    /// Starts the server with the folder `data` inside `folder`, and waits until it answers. Only hourglass uses
    /// `store`.
    pub async fn start(
        product: Product,
        program: &Path,
        store: &str,
        folder: &Path,
        configuration: &Configuration,
    ) -> Result<Self> {
        let port = free_port()?;
        let mut command = Command::new(program);
        command.current_dir(folder).envs(configuration.variables.iter().map(|(name, value)| (name, value)));
        let address = format!("127.0.0.1:{port}");
        match product {
            Product::Hourglass => {
                command.args(["serve", "--listen", &address, "--store", store, "--data-dir"]).arg(folder.join("data"));
                if !configuration.file.is_empty() {
                    let file = folder.join("hourglass.toml");
                    std::fs::write(&file, configuration.file)?;
                    command.arg("--config").arg(file);
                }
            }
            Product::Influx => {
                std::fs::write(folder.join("influxdb.conf"), influx_config(folder, port, free_port()?))?;
                command.args(["run", "-config"]).arg(folder.join("influxdb.conf"));
            }
            Product::Victoria => {
                // The readings may be older than the default retention of one month.
                command.arg(format!("-httpListenAddr={address}")).arg("-retentionPeriod=100y");
                command.arg(format!("-storageDataPath={}", folder.join("data").display()));
            }
        }
        let mut process = Spawned::start(&mut command, folder)?;
        wait_until_ready(product, &address, &mut process).await?;
        Ok(Self { address, process })
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    pub fn stop(self) -> Result<()> {
        self.process.stop()
    }

    /// Kills the server with SIGKILL.
    pub fn kill(self) -> Result<()> {
        self.process.kill()
    }
}

async fn wait_until_ready(product: Product, address: &str, process: &mut Spawned) -> Result<()> {
    let path = match product {
        Product::Hourglass => "/api/v1/status",
        Product::Influx => "/ping",
        Product::Victoria => "/health",
    };
    let deadline = Instant::now() + START_MAX;
    while Instant::now() < deadline {
        process.check()?;
        if let Ok(mut connection) = Connection::open(address).await {
            let answer = connection.ask(path).await?;
            let is_feeding = String::from_utf8_lossy(&answer.body).contains("\"feeding\":true");
            if matches!(answer.status, 200 | 204) && !is_feeding {
                return Ok(());
            }
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    bail!("starting a server: {product:?} did not answer within {START_MAX:?}")
}

/// Returns the configuration of the package, without periodic jobs.
fn influx_config(folder: &Path, port: u16, rpc: u16) -> String {
    let path = |name: &str| folder.join("data").join(name).display().to_string();
    format!(
        r#"
reporting-enabled = false
bind-address = "127.0.0.1:{rpc}"
[meta]
dir = "{}"
[data]
dir = "{}"
wal-dir = "{}"
query-log-enabled = false
[monitor]
store-enabled = false
[continuous_queries]
enabled = false
[http]
bind-address = "127.0.0.1:{port}"
log-enabled = false
"#,
        path("meta"),
        path("data"),
        path("wal")
    )
}
