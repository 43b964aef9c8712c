//! A server with an HTTP API: starts it on loopback, prepares it for writes, and stops it.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bytes::Bytes;

use super::spawn::{Spawned, free_port};
use crate::client::Connection;

/// Maximum time for a start.
const START: Duration = Duration::from_secs(60);

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
    /// The path for POSTs of line protocol with this precision.
    pub fn write_path(self, precision: &str) -> String {
        match self {
            Self::Hourglass | Self::Influx => format!("/write?db=bench&precision={precision}"),
            Self::Victoria => format!("/write?precision={precision}"),
        }
    }

    /// The path of the request that flushes everything to its storage, if there is one.
    fn flush_path(self) -> Option<&'static str> {
        match self {
            Self::Hourglass => Some("/api/v1/flush"),
            Self::Influx => None,
            Self::Victoria => Some("/internal/force_flush"),
        }
    }
}

/// How hourglass is configured.
#[derive(Debug, Clone, Copy, Default)]
pub struct Configured<'a> {
    /// Environment variables.
    pub variables: &'a [(&'a str, String)],
    /// What is in its configuration file; empty for none.
    pub file: &'a str,
}

/// A running server.
pub struct HttpServer {
    product: Product,
    address: String,
    process: Spawned,
    connection: Connection,
}

impl HttpServer {
    /// Starts the server with the folder `data` inside `folder`, and waits until it answers. Only hourglass uses
    /// `store`.
    pub async fn start(product: Product, program: &Path, store: &str, folder: &Path) -> Result<Self> {
        Self::start_with(product, program, store, folder, Configured::default()).await
    }

    /// The same with a configuration of hourglass.
    pub async fn start_with(
        product: Product,
        program: &Path,
        store: &str,
        folder: &Path,
        configured: Configured<'_>,
    ) -> Result<Self> {
        let port = free_port()?;
        let mut command = Command::new(program);
        command.current_dir(folder).envs(configured.variables.iter().map(|(name, value)| (name, value)));
        let address = format!("127.0.0.1:{port}");
        match product {
            Product::Hourglass => {
                command.args(["serve", "--listen", &address, "--store", store, "--data-dir"]).arg(folder.join("data"));
                if !configured.file.is_empty() {
                    let file = folder.join("hourglass.toml");
                    std::fs::write(&file, configured.file)?;
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
        let connection = ready(product, &address, &mut process).await?;
        Ok(Self { product, address, process, connection })
    }

    pub fn product(&self) -> Product {
        self.product
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// The connection for administration and queries.
    pub fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }

    /// Opens the connection again. Servers close one that is not used for a minute.
    pub async fn reconnect(&mut self) -> Result<()> {
        self.connection = Connection::open(&self.address).await?;
        Ok(())
    }

    /// Creates the database, for servers that need that.
    pub async fn create_database(&mut self) -> Result<()> {
        if self.product == Product::Influx {
            self.connection.deliver("/query?q=CREATE%20DATABASE%20bench", Bytes::new()).await?;
        }
        Ok(())
    }

    /// Flushes everything to its storage, for servers that can be told to.
    pub async fn flush(&mut self) -> Result<()> {
        if let Some(path) = self.product.flush_path() {
            self.connection.deliver(path, Bytes::new()).await?;
        }
        Ok(())
    }

    pub fn stop(self) -> Result<()> {
        drop(self.connection);
        self.process.stop()
    }

    /// Kills it with SIGKILL.
    pub fn kill(self) -> Result<()> {
        self.process.kill()
    }
}

async fn ready(product: Product, address: &str, process: &mut Spawned) -> Result<Connection> {
    let deadline = Instant::now() + START;
    while Instant::now() < deadline {
        process.check()?;
        if let Ok(mut connection) = Connection::open(address).await {
            let is_ready = match product {
                Product::Hourglass => {
                    let (status, said) = connection.get("/api/v1/status").await?;
                    status == 200 && said.contains("\"feeding\":false")
                }
                Product::Influx => connection.get("/ping").await?.0 == 204,
                Product::Victoria => connection.get("/health").await?.0 == 200,
            };
            if is_ready {
                return Ok(connection);
            }
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Err(anyhow::anyhow!("{product:?} did not answer within {START:?}")).context("starting a server")
}

/// The package's configuration, without periodic jobs.
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
