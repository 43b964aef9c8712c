//! Checks that the server is usable as configured: version, replica set, login and privileges. Otherwise a store that
//! refuses every write would look healthy until the WAL is full. Also collects the report for `hourglass doctor`.

use std::time::Duration;

use bson::{Document, doc};
use mongodb::options::{ClientOptions, ServerAddress};
use mongodb::{Client, Database};

use super::MongoStore;
use super::outcome::classify;
use super::setup::{self, Collections};
use crate::bucket::store::DatabaseStore;
use crate::bucket::{Result, StorageError, Unusable};

/// The wire version of MongoDB 5.0, the first with snapshot reads outside transactions.
const WIRE_VERSION_MIN: i32 = 13;
/// Maximum wait for the answer of one server, if the driver finds no primary.
const DIAGNOSIS_TIMEOUT: Duration = Duration::from_secs(1);

impl MongoStore {
    /// Checks that the server answers, is new enough, is a replica set or a cluster, and accepts this user's reads and
    /// writes.
    pub(super) async fn probe(&self) -> Result<()> {
        self.probe_server().await.map_err(|error| match error {
            StorageError::Unusable { cause, detail } => {
                StorageError::Unusable { cause, detail: format!("{}: {detail}", self.login) }
            }
            other => other,
        })
    }

    /// Returns the server's answer to `hello`, which includes its time.
    pub(super) async fn hello(&self) -> Result<Document> {
        let mongo = self.mongo.clone();
        let hello = async move { mongo.run_command(doc! { "hello": 1 }).await };
        self.run(&self.checks, hello).await?.map_err(|e| classify(&e))
    }

    async fn probe_server(&self) -> Result<()> {
        match self.hello().await {
            Ok(hello) => check_server(&hello, None)?,
            Err(error @ StorageError::Unavailable(_)) => {
                return Err(diagnose(&self.address).await.unwrap_or(error));
            }
            Err(error) => return Err(error),
        }
        let mongo = self.mongo.clone();
        let probed = self.run(&self.checks, async move { check_access(&mongo).await }).await?;
        match probed {
            Err(error @ StorageError::Unusable { .. }) => Err(error),
            // Other failures concern this command only. Operations with the same problem report it themselves.
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

/// The report on a MongoDB server for `hourglass doctor`.
#[derive(Debug)]
pub struct ServerInfo {
    pub version: String,
    /// Number of hourglass databases.
    pub databases: usize,
    /// Messages about missing indexes.
    pub missing: Vec<String>,
}

impl MongoStore {
    /// Collects the server's version and missing indexes.
    ///
    /// # Errors
    /// If the server does not answer or refuses.
    pub async fn server_info(&self) -> Result<ServerInfo> {
        let mongo = self.mongo.clone();
        let info = self.read(async move { mongo.run_command(doc! { "buildInfo": 1 }).await.map_err(|e| classify(&e)) });
        let version = info.await?.get_str("version").unwrap_or("?").to_owned();
        let names = self.databases().await?;
        let mut missing = Vec::new();
        for name in &names {
            let collections = Collections::new(&self.mongo, name);
            missing.extend(self.read(async move { setup::missing_indexes(&collections).await }).await?);
        }
        Ok(ServerInfo { version, databases: names.len(), missing })
    }
}

/// Checks the privileges with a read and a write that match no document. Refuses a store from before version 1.
async fn check_access(mongo: &Database) -> Result<()> {
    let nothing = || doc! { "_id": { "$in": [] } };
    let update = doc! { "q": nothing(), "u": { "$set": { "probed": true } } };
    for command in [
        doc! { "find": "databases", "filter": nothing(), "limit": 1 },
        doc! { "update": "databases", "updates": [update] },
    ] {
        mongo.run_command(command).await.map_err(|e| classify(&e))?;
    }
    let databases = setup::databases(mongo);
    let older = databases.find_one(doc! { "schemaVersion": { "$exists": false } });
    let Some(older) = older.await.map_err(|e| classify(&e))? else { return Ok(()) };
    let name = older.get_str("_id").unwrap_or_default();
    let detail = format!("the database {name:?} has no schemaVersion");
    Err(StorageError::Unusable { cause: Unusable::Older, detail })
}

/// Checks a server by its answer to `hello`. `wanted` is the name of the replica set, if the address has one.
fn check_server(hello: &Document, wanted: Option<&str>) -> Result<()> {
    let unusable = |cause, detail: String| Err(StorageError::Unusable { cause, detail });
    let wire = hello.get_i32("maxWireVersion").unwrap_or(0);
    if wire < WIRE_VERSION_MIN {
        let detail = format!("the server's wire version is {wire}, below {WIRE_VERSION_MIN} (MongoDB 5.0)");
        return unusable(Unusable::TooOld, detail);
    }
    let is_router = hello.get_str("msg").is_ok_and(|message| message == "isdbgrid");
    match (hello.get_str("setName").ok(), wanted) {
        _ if is_router => Ok(()),
        // Page splits need transactions and snapshots, which a standalone mongod lacks.
        (None, _) => unusable(Unusable::NotReplicaSet, "the server is a standalone mongod".to_owned()),
        (Some(found), Some(wanted)) if found != wanted => {
            let detail = format!("the server's replica set is {found:?}, but store.uri has {wanted:?}");
            unusable(Unusable::NotReplicaSet, detail)
        }
        (Some(_), _) => Ok(()),
    }
}

/// Asks each host of the address directly, and returns the first reason that a host is unusable. Returns `None` if no
/// answer has one.
async fn diagnose(address: &ClientOptions) -> Option<StorageError> {
    let requests = address.hosts.iter().map(|host| tokio::spawn(hello(address.clone(), host.clone())));
    let answers = futures_util::future::join_all(requests).await;
    let mut answers = answers.iter().filter_map(|answer| answer.as_ref().ok()?.as_ref());
    answers.find_map(|hello| check_server(hello, address.repl_set_name.as_deref()).err())
}

/// Returns the answer of one server to `hello`, without login and for any replica set.
async fn hello(mut options: ClientOptions, host: ServerAddress) -> Option<Document> {
    options.hosts = vec![host];
    options.direct_connection = Some(true);
    options.repl_set_name = None;
    options.credential = None;
    options.load_balanced = None;
    options.server_selection_timeout = Some(DIAGNOSIS_TIMEOUT);
    options.connect_timeout = Some(DIAGNOSIS_TIMEOUT);
    let client = Client::with_options(options).ok()?;
    let answer = client.database("admin").run_command(doc! { "hello": 1 }).await;
    client.shutdown().immediate(true).await;
    answer.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_checked_by_version_and_replica_set() {
        let cause = |hello: Document, wanted: Option<&str>| match check_server(&hello, wanted) {
            Err(StorageError::Unusable { cause, .. }) => Some(cause),
            other => other.map(|()| None).unwrap_or_else(|error| panic!("{error}")),
        };
        let set = |wire: i32| doc! { "maxWireVersion": wire, "setName": "rs" };
        // Regression: hourglass started with MongoDB 4.2 (wire version 8) and filled its WAL.
        assert_eq!(cause(set(8), None), Some(Unusable::TooOld));
        assert_eq!(cause(set(12), Some("rs")), Some(Unusable::TooOld));
        assert_eq!(cause(set(13), Some("rs")), None);
        assert_eq!(cause(set(17), None), None);
        assert_eq!(cause(set(17), Some("other")), Some(Unusable::NotReplicaSet));
        assert_eq!(cause(doc! { "maxWireVersion": 17 }, None), Some(Unusable::NotReplicaSet));
        assert_eq!(cause(doc! { "maxWireVersion": 17, "msg": "isdbgrid" }, None), None);
    }
}
