//! A turn: one server, alone and on a fresh folder, is given one work.

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

/// What servers are made of.
pub struct Bench {
    /// The programs.
    pub programs: Programs,
    /// Where their folders are made.
    pub folder: PathBuf,
}

/// What was seen of a server before it was stopped.
struct Seen {
    sent: Sent,
    before: Usage,
    drained: Usage,
    memory: Memory,
    disk: Disk,
    written_bytes: f64,
}

impl Bench {
    /// Starts the server, gives it the work, waits until that is where it is kept, checks that all of it is, and ends
    /// the server.
    pub async fn turn(&self, contender: Contender, work: &Work) -> Result<Figures> {
        let folder = Folder::new(&self.folder, "peers")?;
        let seen = match contender {
            Contender::HourglassOnMongodb => {
                let mongod = self.mongod(&folder).await?;
                let store = mongod.uri("hourglass");
                let seen = self.over_http(Product::Hourglass, &store, Some(&mongod), &folder, work).await?;
                mongod.stop()?;
                seen
            }
            Contender::HourglassEmbedded => self.over_http(Product::Hourglass, "embedded", None, &folder, work).await?,
            Contender::Influx => self.over_http(Product::Influx, "", None, &folder, work).await?,
            Contender::Victoria => self.over_http(Product::Victoria, "", None, &folder, work).await?,
            Contender::Native => self.native(&folder, work).await?,
        };
        // Everybody was stopped in order, and has written what was to be written.
        let disk = DiskBytes { written: seen.written_bytes, kept: seen.disk.grown()? };
        let (readings, used) = (contender.share(work), (&seen.before, &seen.drained));
        Ok(Figures::new(readings, &seen.sent, used, seen.memory, disk))
    }

    async fn mongod(&self, folder: &Folder) -> Result<Mongod> {
        Mongod::start(&self.programs.mongod, free_port()?, &folder.sub("mongod")?).await
    }

    async fn over_http(
        &self,
        product: Product,
        store: &str,
        mongod: Option<&Mongod>,
        folder: &Folder,
        work: &Work,
    ) -> Result<Seen> {
        let program = match product {
            Product::Hourglass => &self.programs.hourglass,
            Product::Influx => &self.programs.influxd,
            Product::Victoria => &self.programs.victoria,
        };
        let mut server = HttpServer::start(product, program, store, &folder.sub("server")?).await?;
        server.create_database().await?;
        let mongod_pid = mongod.map(Mongod::pid);
        let pids: Vec<u32> = [server.pid()].into_iter().chain(mongod_pid).collect();
        let disk = Disk::before(vec![folder.sub("server/data")?, folder.sub("mongod/data")?])?;
        let before = Usage::now(&pids)?;
        let sent = post_all(server.address(), &product.write_path("ns"), &work.bodies, work.connections).await?;
        server.flush().await?;
        let drained = match product {
            // Its flush is answered when everything is in the store; the others are watched.
            Product::Hourglass => Usage::now(&pids)?,
            Product::Influx | Product::Victoria => Usage::at_rest(&pids).await?,
        };
        let written_bytes = disk.written()?;
        let memory = Memory {
            server_mib: Some(process::resident_mib(server.pid())?),
            mongod_mib: mongod_pid.map(process::resident_mib).transpose()?,
        };
        stored::check(&mut server, work).await?;
        server.stop()?;
        Ok(Seen { sent, before, drained, memory, disk, written_bytes })
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
