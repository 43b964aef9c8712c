//! What `hourglass doctor` says of a MongoDB, and whether the server can be used as it is configured: version, replica set, login, rights. A store that refuses every
//! write would otherwise look healthy until its log is full.

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
/// Maximum wait for one server's answer where the driver finds no primary.
const DIAGNOSIS_TIMEOUT: Duration = Duration::from_secs(1);

impl MongoStore {
    /// Asks the server whether it answers, is new enough and a replica set or a cluster, and takes this user's reads and
    /// writes.
    pub(super) async fn probe(&self) -> Result<()> {
        self.probe_server().await.map_err(|error| match error {
            StorageError::Unusable { cause, detail } => {
                StorageError::Unusable { cause, detail: format!("{}: {detail}", self.whom) }
            }
            other => other,
        })
    }

    /// What the server says of itself, its time included.
    pub(super) async fn hello(&self) -> Result<Document> {
        let mongo = self.mongo.clone();
        let hello = async move { mongo.run_command(doc! { "hello": 1 }).await };
        self.run(&self.checks, hello).await?.map_err(|e| classify(&e))
    }

    async fn probe_server(&self) -> Result<()> {
        match self.hello().await {
            Ok(hello) => judge(&hello, None)?,
            Err(error @ StorageError::Unavailable(_)) => {
                return Err(diagnose(&self.address).await.unwrap_or(error));
            }
            Err(error) => return Err(error),
        }
        let mongo = self.mongo.clone();
        let probed = self.run(&self.checks, async move { touch(&mongo).await }).await?;
        match probed {
            Err(error @ StorageError::Unusable { .. }) => Err(error),
            // Any other failure is one of a command, which those that need it meet and report themselves.
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

/// A MongoDB and what is missing in it.
#[derive(Debug)]
pub struct About {
    pub version: String,
    /// The number of hourglass databases.
    pub databases: usize,
    /// Indexes that are not there, in words.
    pub missing: Vec<String>,
}

impl MongoStore {
    /// The server's version, and which indexes are missing.
    ///
    /// # Errors
    /// If the server does not answer or refuses.
    pub async fn about(&self) -> Result<About> {
        let mongo = self.mongo.clone();
        let info = self.read(async move { mongo.run_command(doc! { "buildInfo": 1 }).await.map_err(|e| classify(&e)) });
        let version = info.await?.get_str("version").unwrap_or("?").to_owned();
        let names = self.databases().await?;
        let mut missing = Vec::new();
        for name in &names {
            let collections = Collections::of(&self.mongo, name);
            missing.extend(self.read(async move { setup::missing_indexes(&collections).await }).await?);
        }
        Ok(About { version, databases: names.len(), missing })
    }
}

/// Reads and writes nothing, with the rights that both need; refuses a store from before version 1.
async fn touch(mongo: &Database) -> Result<()> {
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
    match older.await.map_err(|e| classify(&e))? {
        Some(older) => {
            let name = older.get_str("_id").unwrap_or_default();
            let detail = format!("the database {name:?} has no schemaVersion");
            Err(StorageError::Unusable { cause: Unusable::Older, detail })
        }
        None => Ok(()),
    }
}

/// Whether a server with this answer to `hello` can be used, and belongs to the set that is wanted.
fn judge(hello: &Document, wanted: Option<&str>) -> Result<()> {
    let unusable = |cause, detail: String| Err(StorageError::Unusable { cause, detail });
    let wire = hello.get_i32("maxWireVersion").unwrap_or(0);
    if wire < WIRE_VERSION_MIN {
        let detail = format!("the server's wire version is {wire}, below the {WIRE_VERSION_MIN} of MongoDB 5.0");
        return unusable(Unusable::TooOld, detail);
    }
    let is_router = hello.get_str("msg").is_ok_and(|message| message == "isdbgrid");
    match (hello.get_str("setName").ok(), wanted) {
        _ if is_router => Ok(()),
        // A standalone mongod has no transactions and no snapshots; page splits need both.
        (None, _) => unusable(Unusable::NotReplicaSet, "the server is a standalone mongod".to_owned()),
        (Some(found), Some(wanted)) if found != wanted => {
            let detail = format!("the server's replica set is {found:?}, and store.uri names {wanted:?}");
            unusable(Unusable::NotReplicaSet, detail)
        }
        (Some(_), _) => Ok(()),
    }
}

/// Asks each host of the address by itself why none of them is a primary that can be used; `None` if no answer says it.
async fn diagnose(address: &ClientOptions) -> Option<StorageError> {
    let asked = address.hosts.iter().map(|host| tokio::spawn(hello(address.clone(), host.clone())));
    let answers = futures_util::future::join_all(asked).await;
    let judged = answers.iter().filter_map(|answer| answer.as_ref().ok()?.as_ref());
    judged.filter_map(|hello| judge(hello, address.repl_set_name.as_deref()).err()).next()
}

/// One server's answer to `hello`, without a login and whatever set it belongs to.
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
    fn a_server_is_judged_by_its_version_and_its_set() {
        let cause = |hello: Document, wanted: Option<&str>| match judge(&hello, wanted) {
            Err(StorageError::Unusable { cause, .. }) => Some(cause),
            other => other.map(|()| None).unwrap_or_else(|error| panic!("{error}")),
        };
        let set = |wire: i32| doc! { "maxWireVersion": wire, "setName": "rs" };
        // The story: hourglass started with MongoDB 4.2 (wire version 8) and filled its log.
        assert_eq!(cause(set(8), None), Some(Unusable::TooOld));
        assert_eq!(cause(set(12), Some("rs")), Some(Unusable::TooOld));
        assert_eq!(cause(set(13), Some("rs")), None);
        assert_eq!(cause(set(17), None), None);
        assert_eq!(cause(set(17), Some("other")), Some(Unusable::NotReplicaSet));
        assert_eq!(cause(doc! { "maxWireVersion": 17 }, None), Some(Unusable::NotReplicaSet));
        assert_eq!(cause(doc! { "maxWireVersion": 17, "msg": "isdbgrid" }, None), None);
    }
}
