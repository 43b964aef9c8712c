//! A system with its servers and its folder: starts, queries, kills, stops and restarts it.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use mongodb::Collection;
use mongodb::bson::Document;
use mongodb::options::{TimeseriesGranularity, TimeseriesOptions};

use super::http::{HttpServer, Product};
use super::mongod::Mongod;
use super::peer::Peer;
use super::programs::Programs;
use super::spawn::{Folder, free_port};
use super::usage::{Usage, disk_bytes};
use crate::client::Connection;

/// Maximum number of flush attempts that are answered with 503, 100 ms apart.
const FLUSHES_MAX: usize = 6000;

/// The configuration of hourglass, or the environment of another server.
#[derive(Debug, Clone, Default)]
pub struct Configuration {
    /// Environment variables.
    pub variables: Vec<(&'static str, String)>,
    /// The content of the configuration file, or empty for none.
    pub file: &'static str,
}

/// The processes to kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Victim {
    /// The server that receives the writes.
    Server,
    /// The mongod behind it, which the service survives.
    Mongod,
    /// All at once.
    All,
}

impl Victim {
    /// Returns the name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Mongod => "mongod",
            Self::All => "all",
        }
    }
}

/// The servers of a peer. Dropping it kills them and removes the folder.
pub struct System<'a> {
    pub peer: Peer,
    /// The configuration of the next start.
    pub configuration: Configuration,
    programs: &'a Programs,
    server: Option<HttpServer>,
    mongod: Option<Mongod>,
    mongod_port: u16,
    folder: Folder,
}

impl<'a> System<'a> {
    /// Starts the system with a fresh folder, ready for writes.
    pub async fn start(peer: Peer, programs: &'a Programs, parent: &Path) -> Result<Self> {
        Self::start_with(peer, programs, parent, Configuration::default()).await
    }

    /// As [`Self::start`], with a configuration.
    pub async fn start_with(
        peer: Peer,
        programs: &'a Programs,
        parent: &Path,
        configuration: Configuration,
    ) -> Result<Self> {
        let folder = Folder::new(parent)?;
        let mongod_port = free_port()?;
        let mut system = Self { peer, configuration, programs, server: None, mongod: None, mongod_port, folder };
        system.start_again().await?;
        match peer.product() {
            Some(Product::Influx) => system.post("/query?q=CREATE%20DATABASE%20bench").await?,
            None if peer.has_mongod() => system.create_collection().await?,
            _ => {}
        }
        Ok(system)
    }

    /// Starts the servers that do not run, with their existing data.
    pub async fn start_again(&mut self) -> Result<()> {
        if self.peer.has_mongod() && self.mongod.is_none() {
            let folder = self.folder.sub("mongod")?;
            self.mongod = Some(Mongod::start(&self.programs.mongod, self.mongod_port, &folder).await?);
        }
        if let (Some(product), Some(program), None) =
            (self.peer.product(), self.peer.program(self.programs), &self.server)
        {
            let store = self.mongod.as_ref().map_or_else(|| "embedded".to_owned(), |mongod| mongod.uri("hourglass"));
            let folder = self.folder.sub("server")?;
            self.server = Some(HttpServer::start(product, program, &store, &folder, &self.configuration).await?);
        }
        Ok(())
    }

    /// Creates the time-series collection.
    async fn create_collection(&self) -> Result<()> {
        let options = TimeseriesOptions::builder()
            .time_field("ts".to_owned())
            .meta_field(Some("meta".to_owned()))
            .granularity(Some(TimeseriesGranularity::Minutes))
            .build();
        Ok(self.mongod()?.client().database("native").create_collection("climate").timeseries(options).await?)
    }

    /// Returns the time-series collection.
    pub fn collection(&self) -> Result<Collection<Document>> {
        Ok(self.mongod()?.client().database("native").collection("climate"))
    }

    pub fn mongod(&self) -> Result<&Mongod> {
        self.mongod.as_ref().context("mongod does not run")
    }

    fn server(&self) -> Result<&HttpServer> {
        self.server.as_ref().context("the server does not run")
    }

    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Returns the HTTP address.
    pub fn address(&self) -> Result<&str> {
        Ok(self.server()?.address())
    }

    /// Returns the process id of the server with the HTTP API.
    pub fn pid(&self) -> Result<u32> {
        Ok(self.server()?.pid())
    }

    /// Returns the process id of mongod, if it runs.
    pub fn mongod_pid(&self) -> Option<u32> {
        self.mongod.as_ref().map(Mongod::pid)
    }

    /// Returns the ids of all its processes.
    pub fn pids(&self) -> Vec<u32> {
        self.server.as_ref().map(HttpServer::pid).into_iter().chain(self.mongod_pid()).collect()
    }

    /// Returns the usage of all its processes so far.
    pub fn usage(&self) -> Result<Usage> {
        Usage::now(&self.pids())
    }

    /// Returns the disk usage of its data folders.
    pub fn data_bytes(&self) -> Result<f64> {
        Ok(disk_bytes(&self.folder.sub("server/data")?)? + disk_bytes(&self.folder.sub("mongod/data")?)?)
    }

    pub async fn connect(&self) -> Result<Connection> {
        Connection::open(self.address()?).await
    }

    /// Sends a GET over a new connection, and returns the body.
    pub async fn get(&self, path: &str) -> Result<String> {
        self.connect().await?.get(path).await
    }

    /// Sends a POST without a body until it is accepted.
    pub async fn post(&self, path: &str) -> Result<()> {
        let mut connection = self.connect().await?;
        for _ in 0..FLUSHES_MAX {
            let answer = connection.post(path, Bytes::new()).await?;
            match answer.status {
                200 | 204 => return Ok(()),
                503 => tokio::time::sleep(Duration::from_millis(100)).await,
                status => bail!("{path} was answered {status}: {}", String::from_utf8_lossy(&answer.body)),
            }
        }
        bail!("{path} was answered 503 {FLUSHES_MAX} times")
    }

    /// Flushes everything to the storage, for servers with such a request.
    pub async fn flush(&self) -> Result<()> {
        match self.peer.product().and_then(Product::flush_path) {
            Some(path) => self.post(path).await,
            None => Ok(()),
        }
    }

    /// Waits until everything is in its final storage, and returns the usage at that time. hourglass answers a flush
    /// then; other servers must become idle.
    pub async fn drain(&self) -> Result<Usage> {
        self.flush().await?;
        if self.peer.is_hourglass() { self.usage() } else { Usage::await_idle(&self.pids()).await }
    }

    /// Returns a metric of hourglass, summed over its labels.
    pub async fn metric(&self, name: &str) -> Result<f64> {
        let text = self.get("/metrics").await?;
        let has_name = |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']));
        let values = text.lines().filter(has_name).filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        Ok(values.sum())
    }

    /// Kills processes as `kill -9` does.
    pub fn kill(&mut self, victim: Victim) -> Result<()> {
        if victim != Victim::Mongod
            && let Some(server) = self.server.take()
        {
            server.kill()?;
        }
        if victim != Victim::Server
            && let Some(mongod) = self.mongod.take()
        {
            mongod.kill()?;
        }
        Ok(())
    }

    /// Stops the server with the HTTP API, and leaves mongod running.
    pub fn stop_server(&mut self) -> Result<()> {
        self.server.take().map_or(Ok(()), HttpServer::stop)
    }

    /// Stops everything in order. The data remains until it is dropped.
    pub fn stop(&mut self) -> Result<()> {
        self.stop_server()?;
        self.mongod.take().map_or(Ok(()), Mongod::stop)
    }

    /// Stops and restarts everything in order, so that nothing is only in memory.
    pub async fn restart(&mut self) -> Result<()> {
        self.stop()?;
        self.start_again().await
    }

    /// Runs a command of hourglass on the data folder of the stopped server.
    pub fn command(&self, name: &str) -> Result<()> {
        let program = self.peer.program(self.programs).context("no program")?;
        let mut command = std::process::Command::new(program);
        let output = command.args([name, "--data-dir"]).arg(self.folder.sub("server/data")?).output()?;
        ensure!(output.status.success(), "hourglass {name}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }
}
