//! A system with its servers and its folder: starts, writes to, kills, stops and restarts it.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use mongodb::Collection;
use mongodb::bson::Document;
use mongodb::options::{TimeseriesGranularity, TimeseriesOptions};

use super::peer::Peer;
use super::reading::{Reading, lines};
use crate::client::Connection;
use crate::servers::http::{HttpServer, Product};
use crate::servers::mongod::Mongod;
use crate::servers::programs::Programs;
use crate::servers::spawn::{Folder, free_port};

/// Which processes to kill.
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
    /// The name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Mongod => "mongod",
            Self::All => "all",
        }
    }
}

/// A peer's servers. Dropping it kills them and removes the folder.
pub struct System<'a> {
    pub peer: Peer,
    /// Whether queries to VictoriaMetrics use its response cache, as by default. It drops the cache some seconds after
    /// old samples arrive. If false, queries bypass the cache.
    pub is_cached: bool,
    programs: &'a Programs,
    server: Option<HttpServer>,
    mongod: Option<Mongod>,
    mongod_port: u16,
    folder: Folder,
}

/// A writer: over its own connection, or by the driver.
pub enum Writer {
    /// Line protocol, to a path.
    Http(Connection, String),
    /// Documents.
    Native(Collection<Document>),
}

impl<'a> System<'a> {
    /// Starts the system with a fresh folder, ready for writes.
    pub async fn start(peer: Peer, programs: &'a Programs, within: &Path) -> Result<Self> {
        let folder = Folder::new(within, "prove")?;
        let mut system =
            Self { peer, is_cached: false, programs, server: None, mongod: None, mongod_port: free_port()?, folder };
        system.start_again().await?;
        match &mut system.server {
            Some(server) => server.create_database().await?,
            None => system.create_collection().await?,
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
            self.server = Some(HttpServer::start(product, program, &store, &self.folder.sub("server")?).await?);
        }
        Ok(())
    }

    async fn create_collection(&self) -> Result<()> {
        let options = TimeseriesOptions::builder()
            .time_field("ts".to_owned())
            .meta_field(Some("meta".to_owned()))
            .granularity(Some(TimeseriesGranularity::Seconds))
            .build();
        Ok(self.mongod()?.client().database("native").create_collection("climate").timeseries(options).await?)
    }

    /// The time-series collection.
    pub fn collection(&self) -> Result<Collection<Document>> {
        Ok(self.mongod()?.client().database("native").collection("climate"))
    }

    fn mongod(&self) -> Result<&Mongod> {
        self.mongod.as_ref().context("mongod does not run")
    }

    /// The HTTP address.
    pub fn address(&self) -> Result<&str> {
        Ok(self.server.as_ref().context("the server does not run")?.address())
    }

    /// A new writer.
    pub async fn writer(&self) -> Result<Writer> {
        Ok(match self.peer.product() {
            Some(product) => Writer::Http(Connection::open(self.address()?).await?, product.write_path("ms")),
            None => Writer::Native(self.collection()?),
        })
    }

    /// Writes all readings, a thousand at a time.
    pub async fn write(&self, readings: &[Reading]) -> Result<()> {
        let mut writer = self.writer().await?;
        for readings in readings.chunks(1000) {
            writer.write(readings).await?;
        }
        Ok(())
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

    /// Stops and restarts it in order, so that nothing is only in memory.
    pub async fn restart(&mut self) -> Result<()> {
        if let Some(server) = self.server.take() {
            server.stop()?;
        }
        if let Some(mongod) = self.mongod.take() {
            mongod.stop()?;
        }
        self.start_again().await
    }

    /// Makes acked readings visible to queries, for systems where the ack does not mean that.
    pub async fn make_visible(&mut self) -> Result<()> {
        match &mut self.server {
            Some(server) if server.product() == Product::Victoria => server.flush().await,
            _ => Ok(()),
        }
    }
}

impl Writer {
    /// Writes readings, and returns when they are acked.
    pub async fn write(&mut self, readings: &[Reading]) -> Result<()> {
        match self {
            Self::Http(connection, path) => {
                connection.deliver(path, lines(readings)).await?;
            }
            Self::Native(collection) => {
                let inserted = collection.insert_many(readings.iter().map(Reading::document)).ordered(false).await?;
                ensure!(inserted.inserted_ids.len() == readings.len(), "a batch was inserted in part");
            }
        }
        Ok(())
    }
}
