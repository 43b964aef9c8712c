//! The MongoDB store. A database has its pages in `<db>.buckets` and `<db>.overflow`, sealed days in `<db>.days` and sensors
//! in `<db>.sensors`. The collection `databases` lists the databases.
//!
//! The driver's futures must not be dropped before they complete (its README, RUST-937), and it has no socket timeout. So
//! every command runs as a task, and its caller waits until a deadline.

mod abandoned;
mod commands;
mod connect;
mod copies;
mod days;
mod declared;
mod extras;
mod groups;
mod indexes;
mod kinds;
mod messages;
mod outcome;
mod pages;
mod probe;
mod reads;
mod remove;
mod scan;
mod settings;
mod setup;
mod space;
mod store;
mod tokens;
mod versions;
mod walk;
mod writes;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use mongodb::Database;
use mongodb::options::ClientOptions;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

pub use self::connect::MongoOptions;
pub(crate) use self::messages::driver_error;
pub use self::space::CollectionSpace;

use self::abandoned::AbandonedWrites;
use self::groups::PendingSensors;
use self::outcome::classify;
use self::reads::CausalClient;
use self::settings::SealForms;
use self::setup::Collections;
use crate::bucket::Result;
use crate::names::collection_prefix;
use crate::reading::Hour;

/// Maximum number of sensor documents per remove command. mongod plans larger `$or` filters slowly.
const REMOVE_SENSORS_MAX: usize = 50;
/// Maximum number of sensors per read command.
const READ_SENSORS_MAX: usize = 1000;
/// Maximum number of buckets per read command. Low, because pages can be large.
const READ_BUCKETS_MAX: usize = 64;

/// A store in a MongoDB replica set or sharded cluster.
#[derive(Debug)]
pub struct MongoStore {
    client: CausalClient,
    mongo: Database,
    /// The parsed address, for diagnosis of single servers.
    address: ClientOptions,
    /// User, database and hosts. For the operator only.
    login: String,
    options: MongoOptions,
    writes: Arc<Semaphore>,
    abandoned: Arc<AbandonedWrites>,
    reads: Arc<Semaphore>,
    /// The permit for health checks, the registry and the server's clock, which must not wait for other commands.
    checks: Arc<Semaphore>,
    /// Databases whose collections this process has created or found.
    created: Mutex<HashSet<String>>,
    /// Databases that this process has added to the list.
    listed: Mutex<HashSet<String>>,
    /// Databases whose collection of group documents this process has created or found.
    grouped: Mutex<HashSet<String>>,
    /// Databases whose indexes of `unique` metadata this process has created or found.
    unique: Mutex<HashSet<String>>,
    /// The last marked document that the job examined, by collection and mark, unless it examined all.
    unmarked: Mutex<HashMap<String, String>>,
    pending: PendingSensors,
    seal_forms: SealForms,
}

impl MongoStore {
    /// Creates the database's collections and lists it, unless this process knows that both is done.
    async fn ensure_created(&self, database: &str) -> Result<Collections> {
        let collections = self.collections(database).await?;
        if !self.is_listed(database) {
            self.list(database).await?;
        }
        Ok(collections)
    }

    /// Returns true if this process has listed the database and knows of no drop since.
    fn is_listed(&self, database: &str) -> bool {
        self.listed.lock().contains(database)
    }

    async fn list(&self, database: &str) -> Result<()> {
        let list = setup::list(setup::databases(&self.mongo), database.to_owned());
        self.run_write(&collection_prefix(database), list).await?.map_err(|e| classify(&e))?;
        self.listed.lock().insert(database.to_owned());
        Ok(())
    }

    /// Creates the database's collections unless this process knows that they exist. Their validators must be current
    /// before anything is written.
    async fn collections(&self, database: &str) -> Result<Collections> {
        let is_known = self.created.lock().contains(database);
        if !is_known {
            let mongo = self.mongo.clone();
            let name = database.to_owned();
            let kinds = self.options.kinds.clone();
            let create = async move { setup::create(&mongo, &name, &kinds).await };
            self.run_write(&collection_prefix(database), create).await?.map_err(|e| classify(&e))?;
            self.created.lock().insert(database.to_owned());
        }
        Ok(Collections::new(&self.mongo, database))
    }

    /// Returns the collections for a write. Only what is new lists a database: changes must not list a dropped one again.
    async fn collections_for(&self, database: &str, has_new: bool) -> Result<Collections> {
        if has_new { self.ensure_created(database).await } else { self.collections(database).await }
    }

    /// Forgets that the database's collections exist and that it is listed.
    fn forget(&self, database: &str) {
        self.created.lock().remove(database);
        self.listed.lock().remove(database);
        self.grouped.lock().remove(database);
        self.unique.lock().remove(database);
    }
}

fn date(hour: Hour) -> bson::DateTime {
    bson::DateTime::from_millis(hour.start_ms())
}
