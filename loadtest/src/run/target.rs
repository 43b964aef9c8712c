//! The server under load: a running one, or one started for the run with a fresh folder.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use clap::ValueEnum;
use serde_json::Value;

use super::trying::Line;
use super::watching::Watched;
use crate::client::Connection;
use crate::servers::http::{Configured, HttpServer, Product};
use crate::servers::mongod::Mongod;
use crate::servers::programs::Programs;
use crate::servers::spawn::{Folder, free_port};
use crate::servers::usage::bytes_below;

/// Maximum number of flush attempts that are answered with 503.
const FLUSHES: usize = 600;

/// The server to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Start {
    /// hourglass with the embedded store.
    Embedded,
    /// hourglass with MongoDB, which is started too.
    Mongodb,
}

impl Start {
    /// The name in flags and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Mongodb => "mongodb",
        }
    }
}

/// A server to load.
pub struct Target {
    /// Host and port.
    pub address: String,
    /// `embedded`, `mongodb` or `running`.
    pub how: &'static str,
    /// The version that the server reports.
    pub version: String,
    server: Option<HttpServer>,
    mongod: Option<Mongod>,
    processes: Vec<(String, u32)>,
    /// Removed at the end, after the servers have stopped.
    folder: Option<Folder>,
}

impl Target {
    /// A running server, and its processes if they are on this machine.
    pub async fn running(url: &str, pids: &[u32]) -> Result<Self> {
        let address = address(url)?;
        let version = version(&address).await.with_context(|| format!("asking {address} what it is"))?;
        let processes = pids.iter().map(|pid| (name_of(*pid), *pid)).collect();
        Ok(Self { address, how: "running", version, server: None, mongod: None, processes, folder: None })
    }

    /// Starts a server.
    pub async fn start(start: Start, programs: &Programs, within: &Path) -> Result<Self> {
        // All devices of a scenario have the same address here.
        let variables = [("HOURGLASS_SERVER_CONNECTIONS_PER_ADDRESS", "65536".to_owned())];
        Self::start_with(start, programs, within, Configured { variables: &variables, file: "" }).await
    }

    /// Starts a server with a configuration.
    pub async fn start_with(
        start: Start,
        programs: &Programs,
        within: &Path,
        configured: Configured<'_>,
    ) -> Result<Self> {
        let folder = Folder::new(within, "run")?;
        let mongod = match start {
            Start::Embedded => None,
            Start::Mongodb => Some(Mongod::start(&programs.mongod, free_port()?, &folder.sub("mongod")?).await?),
        };
        let store = mongod.as_ref().map_or_else(|| "embedded".to_owned(), |mongod| mongod.uri("hourglass"));
        let data = folder.sub("server")?;
        let server = HttpServer::start_with(Product::Hourglass, &programs.hourglass, &store, &data, configured).await?;
        let address = server.address().to_owned();
        let mut processes = vec![("hourglass".to_owned(), server.pid())];
        processes.extend(mongod.iter().map(|mongod| ("mongod".to_owned(), mongod.pid())));
        let how = start.name();
        let version = version(&address).await?;
        Ok(Self { address, how, version, server: Some(server), mongod, processes, folder: Some(folder) })
    }

    /// The source of resource usage: the processes, if known.
    pub fn watched(&self) -> Watched {
        match self.processes.as_slice() {
            [] => Watched::Metrics(Line::new(&self.address)),
            known => Watched::Processes(known.to_vec()),
        }
    }

    /// The server's processes on this machine, by name.
    pub fn processes(&self) -> &[(String, u32)] {
        &self.processes
    }

    /// Disk usage of its files; 0 if it was not started here.
    pub fn disk_bytes(&self) -> Result<f64> {
        self.folder.as_ref().map_or(Ok(0.0), |folder| bytes_below(folder.path()))
    }

    /// Waits until everything that it accepted is in the store.
    pub async fn flush(&self) -> Result<()> {
        let mut connection = Connection::open(&self.address).await?;
        for _ in 0..FLUSHES {
            match connection.post("/api/v1/flush", Bytes::new(), false).await?.status {
                200 | 204 => return Ok(()),
                503 => tokio::time::sleep(Duration::from_millis(100)).await,
                status => bail!("/api/v1/flush was answered {status}"),
            }
        }
        bail!("the store has not caught up: /api/v1/flush was answered 503 again and again")
    }

    /// Stops what was started.
    pub fn stop(self) -> Result<()> {
        self.server.map_or(Ok(()), HttpServer::stop)?;
        self.mongod.map_or(Ok(()), Mongod::stop)
    }
}

/// The host and the port of a URL.
fn address(url: &str) -> Result<String> {
    if url.starts_with("https://") {
        bail!("{url}: only http is supported; run the load tester on the same machine as the server, or use a tunnel");
    }
    let rest = url.trim_start_matches("http://").trim_end_matches('/');
    if rest.is_empty() || rest.contains('/') {
        bail!("{url}: expected a host and a port, such as http://127.0.0.1:8086");
    }
    let port = rest.rsplit(']').next().unwrap_or_default();
    Ok(if port.contains(':') { rest.to_owned() } else { format!("{rest}:80") })
}

async fn version(address: &str) -> Result<String> {
    let (status, said) = Connection::open(address).await?.get("/health").await?;
    let said: Value = serde_json::from_str(&said).with_context(|| format!("/health was answered {status}: {said}"))?;
    Ok(said["version"].as_str().unwrap_or("not told").to_owned())
}

fn name_of(pid: u32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    format!("{} {pid}", name.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_host_and_a_port() {
        let found = ["127.0.0.1:8086", "http://a.example:1/", "http://a.example", "http://[::1]:8086", "http://[::1]"];
        let addresses: Vec<String> = found.into_iter().map(|url| address(url).unwrap()).collect();
        assert_eq!(addresses, ["127.0.0.1:8086", "a.example:1", "a.example:80", "[::1]:8086", "[::1]:80"]);
        assert!(address("https://a.example").is_err() && address("http://a/b").is_err() && address("").is_err());
    }
}
