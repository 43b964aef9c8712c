//! A turn: one server runs one workload, alone and with a fresh folder.

use std::path::PathBuf;

use anyhow::Result;

use super::contender::Contender;
use super::disk::Disk;
use super::figures::{DiskBytes, Figures, Memory};
use super::work::Work;
use super::{native, stored};
use crate::process;
use crate::sending::{Sent, post_all};
use crate::servers::http::{HttpServer, Product};
use crate::servers::mongod::Mongod;
use crate::servers::programs::Programs;
use crate::servers::spawn::{Folder, free_port};
use crate::servers::usage::Usage;

/// The programs, and the place for their folders.
pub struct Bench {
    /// The programs.
    pub programs: Programs,
    pub folder: PathBuf,
}

/// The figures taken before a server is stopped.
struct Seen {
    sent: Sent,
    before: Usage,
    drained: Usage,
    memory: Memory,
    disk: Disk,
    written_bytes: f64,
}

impl Bench {
    /// Starts the server, runs the workload, waits until everything is in its final storage, checks that it is, and
    /// stops the server.
    pub async fn turn(&self, contender: Contender, work: &Work) -> Result<Figures> {
        let folder = Folder::new(&self.folder, "peers")?;
        let seen = match contender.product() {
            Some(product) => over_http(self.start(contender, product, &folder).await?, &folder, work).await?,
            None => self.native(&folder, work).await?,
        };
        // All servers have stopped in order and written everything.
        let disk = DiskBytes { written: seen.written_bytes, kept: seen.disk.grown()? };
        let (readings, used) = (contender.share(work), (&seen.before, &seen.drained));
        Ok(Figures::new(readings, &seen.sent, used, seen.memory, disk))
    }

    async fn mongod(&self, folder: &Folder) -> Result<Mongod> {
        Mongod::start(&self.programs.mongod, free_port()?, &folder.sub("mongod")?).await
    }

    /// Starts a system's servers, ready for writes.
    pub async fn start(&self, contender: Contender, product: Product, folder: &Folder) -> Result<Started> {
        let mongod = match contender {
            Contender::HourglassOnMongodb => Some(self.mongod(folder).await?),
            _ => None,
        };
        let store = mongod.as_ref().map_or_else(|| "embedded".to_owned(), |mongod| mongod.uri("hourglass"));
        let program = match product {
            Product::Hourglass => &self.programs.hourglass,
            Product::Influx => &self.programs.influxd,
            Product::Victoria => &self.programs.victoria,
        };
        let mut server = HttpServer::start(product, program, &store, &folder.sub("server")?).await?;
        server.create_database().await?;
        Ok(Started { server, mongod })
    }

    async fn native(&self, folder: &Folder, work: &Work) -> Result<Seen> {
        let batches = native::batches(work)?;
        let mongod = self.mongod(folder).await?;
        native::create(&mongod).await?;
        let pids = [mongod.pid()];
        let disk = Disk::before(vec![folder.sub("mongod/data")?])?;
        let before = Usage::now(&pids)?;
        let sent = native::insert_all(&mongod, &batches, work.connections).await?;
        let drained = Usage::at_rest(&pids).await?;
        let written_bytes = disk.written()?;
        let memory = Memory { server_mib: None, mongod_mib: Some(process::resident_mib(mongod.pid())?) };
        native::check(&mongod, work).await?;
        mongod.stop()?;
        Ok(Seen { sent, before, drained, memory, disk, written_bytes })
    }
}

/// Running servers.
pub struct Started {
    /// The server that receives the writes.
    pub server: HttpServer,
    mongod: Option<Mongod>,
}

impl Started {
    /// Stops them in order.
    pub fn stop(self) -> Result<()> {
        self.server.stop()?;
        self.mongod.map_or(Ok(()), Mongod::stop)
    }
}

async fn over_http(mut started: Started, folder: &Folder, work: &Work) -> Result<Seen> {
    let (server, mongod_pid) = (&mut started.server, started.mongod.as_ref().map(Mongod::pid));
    let pids: Vec<u32> = [server.pid()].into_iter().chain(mongod_pid).collect();
    let disk = Disk::before(vec![folder.sub("server/data")?, folder.sub("mongod/data")?])?;
    let before = Usage::now(&pids)?;
    let path = server.product().write_path("ns");
    let sent = post_all(server.address(), &path, &work.bodies, work.connections).await?;
    server.flush().await?;
    let drained = match server.product() {
        // hourglass answers a flush when everything is in the store; for the others, wait until they are idle.
        Product::Hourglass => Usage::now(&pids)?,
        Product::Influx | Product::Victoria => Usage::at_rest(&pids).await?,
    };
    let written_bytes = disk.written()?;
    let memory = Memory {
        server_mib: Some(process::resident_mib(server.pid())?),
        mongod_mib: mongod_pid.map(process::resident_mib).transpose()?,
    };
    stored::check(server, work, work.readings).await?;
    started.stop()?;
    Ok(Seen { sent, before, drained, memory, disk, written_bytes })
}
