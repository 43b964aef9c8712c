//! A server that is asked over HTTP: started on loopback, loaded with line protocol, asked, stopped.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;

use super::data::{Answer, MINUTES, Question, lines};
use super::dialect::Dialect;
use super::spawn::{Spawned, free_port};
use crate::client::Connection;

/// How long a start may take.
const START: Duration = Duration::from_secs(60);
/// Minutes of readings per POST: 5,000 lines.
const LOT: usize = 5;

/// A running one.
pub struct HttpServer {
    dialect: Dialect,
    process: Spawned,
    connection: Connection,
}

impl HttpServer {
    /// Starts it on what is in the folder and waits until it answers. `store` is for hourglass alone.
    pub async fn start(dialect: Dialect, program: &Path, store: &str, folder: &Path) -> Result<Self> {
        let port = free_port()?;
        let mut command = Command::new(program);
        command.current_dir(folder);
        let listen = format!("127.0.0.1:{port}");
        match dialect {
            Dialect::Hourglass => {
                command.args(["serve", "--listen", &listen, "--store", store, "--data-dir"]).arg(folder.join("data"));
            }
            Dialect::Influx => {
                std::fs::write(folder.join("influxdb.conf"), influx_config(folder, port, free_port()?))?;
                command.args(["run", "-config"]).arg(folder.join("influxdb.conf"));
            }
            Dialect::Victoria => {
                // The data are of a day that may be longer ago than the month that it keeps else.
                command.arg(format!("-httpListenAddr={listen}")).arg("-retentionPeriod=100y");
                command.arg(format!("-storageDataPath={}", folder.join("data").display()));
            }
        }
        let mut process = Spawned::start(&mut command, folder)?;
        let connection = ready(dialect, &listen, &mut process).await?;
        Ok(Self { dialect, process, connection })
    }

    /// Gives it all readings, and waits until they are where it keeps them.
    pub async fn load(&mut self) -> Result<()> {
        let (write, settle) = match self.dialect {
            Dialect::Hourglass => ("/write?db=bench&precision=s", Some("/api/v1/flush")),
            Dialect::Influx => ("/write?db=bench&precision=s", None),
            Dialect::Victoria => ("/write?precision=s", Some("/internal/force_flush")),
        };
        if self.dialect == Dialect::Influx {
            self.post("/query?q=CREATE%20DATABASE%20bench", Bytes::new()).await?;
        }
        for from in (0..MINUTES).step_by(LOT) {
            let to = MINUTES.min(from + i64::try_from(LOT)?);
            self.post(write, Bytes::from(lines(from..to))).await?;
        }
        match settle {
            Some(settle) => self.post(settle, Bytes::new()).await,
            None => Ok(()),
        }
    }

    async fn post(&mut self, path: &str, body: Bytes) -> Result<()> {
        loop {
            match self.connection.post(path, body.clone()).await? {
                (200 | 204, _) => return Ok(()),
                (503, _) => tokio::time::sleep(crate::BACK_OFF).await,
                (status, answer) => bail!("{path} was answered {status}: {answer}"),
            }
        }
    }

    /// Has it forget answers that it has kept on disk over its restart, where it does that: the next one is worked out.
    pub async fn forget_answers(&mut self) -> Result<()> {
        match self.dialect {
            Dialect::Victoria => self.post("/internal/resetRollupResultCache", Bytes::new()).await,
            Dialect::Hourglass | Dialect::Influx => Ok(()),
        }
    }

    /// Asks once. The time is from the first byte sent to the last one received.
    pub async fn ask(&mut self, question: Question) -> Result<(Duration, Answer)> {
        let path = self.dialect.path(question);
        let started = Instant::now();
        let (status, body) = self.connection.get(&path).await?;
        let took = started.elapsed();
        ensure!(status == 200, "{path} was answered {status}: {body}");
        Ok((took, self.dialect.parse(question, &body)?))
    }

    /// Stops it.
    pub fn stop(self) -> Result<()> {
        drop(self.connection);
        self.process.stop()
    }
}

async fn ready(dialect: Dialect, listen: &str, process: &mut Spawned) -> Result<Connection> {
    let deadline = Instant::now() + START;
    while Instant::now() < deadline {
        process.check()?;
        if let Ok(mut connection) = Connection::open(listen).await {
            let is_ready = match dialect {
                Dialect::Hourglass => {
                    let (status, said) = connection.get("/api/v1/status").await?;
                    status == 200 && said.contains("\"feeding\":false")
                }
                Dialect::Influx => connection.get("/ping").await?.0 == 204,
                Dialect::Victoria => connection.get("/health").await?.0 == 200,
            };
            if is_ready {
                return Ok(connection);
            }
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Err(anyhow::anyhow!("{dialect:?} did not answer within {START:?}")).context("starting a server")
}

/// As the package's own, without what runs by the clock.
fn influx_config(folder: &Path, port: u16, rpc: u16) -> String {
    let path = |name: &str| folder.join(name).display().to_string();
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
