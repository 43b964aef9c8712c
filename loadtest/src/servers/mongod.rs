//! A mongod of one node, as a replica set.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use mongodb::Client;
use mongodb::bson::doc;

use super::spawn::Spawned;

/// Maximum time for a start.
const START_MAX: Duration = Duration::from_secs(60);

/// A running mongod.
pub struct Mongod {
    process: Spawned,
    port: u16,
    client: Client,
}

impl Mongod {
    /// Starts mongod with the folder `data` inside `folder`, and waits until it accepts writes. A folder must always
    /// get the same port. The cache has a fixed size, so that runs compare; the compression is that of
    /// deploy/compose.yaml.
    pub async fn start(program: &Path, port: u16, folder: &Path) -> Result<Self> {
        let data = folder.join("data");
        std::fs::create_dir_all(&data).with_context(|| format!("creating {}", data.display()))?;
        let mut command = Command::new(program);
        command.args(["--replSet", "loadtest", "--bind_ip", "127.0.0.1", "--port", &port.to_string()]);
        command.args(["--nounixsocket", "--wiredTigerCacheSizeGB", "1", "--dbpath"]).arg(data).current_dir(folder);
        command.args(["--zstdDefaultCompressionLevel", "1"]);
        command.args(["--setParameter", "diagnosticDataCollectionEnabled=false"]);
        // By default, a primary waits for 15 s before it exits, so that clients find another one.
        command.args(["--setParameter", "shutdownTimeoutMillisForSignaledShutdown=100"]);
        let mut process = Spawned::start(&mut command, folder)?;
        let client = Client::with_uri_str(uri(port, "admin")).await?;
        tokio::time::timeout(START_MAX, await_primary(&client, port, &mut process))
            .await
            .context("starting mongod")??;
        Ok(Self { process, port, client })
    }

    pub fn uri(&self, database: &str) -> String {
        uri(self.port, database)
    }

    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    pub fn stop(self) -> Result<()> {
        self.process.stop()
    }

    /// Kills mongod with SIGKILL.
    pub fn kill(self) -> Result<()> {
        self.process.kill()
    }
}

fn uri(port: u16, database: &str) -> String {
    format!("mongodb://127.0.0.1:{port}/{database}?directConnection=true")
}

async fn await_primary(client: &Client, port: u16, process: &mut Spawned) -> Result<()> {
    let admin = client.database("admin");
    let hello = admin.run_command(doc! { "hello": 1 }).await?;
    if !hello.contains_key("setName") {
        let members = vec![doc! { "_id": 0, "host": format!("127.0.0.1:{port}") }];
        // This fails if the folder is a replica set already; it then elects itself.
        let _ = admin.run_command(doc! { "replSetInitiate": { "_id": "loadtest", "members": members } }).await;
    }
    loop {
        process.check()?;
        let hello = admin.run_command(doc! { "hello": 1 }).await?;
        if hello.get_bool("isWritablePrimary").unwrap_or(false) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
