//! The MongoDB store: pages of a database in `<db>.buckets` and `<db>.overflow`, sensors in `<db>.sensors`, the list of
//! databases in `databases`.
//!
//! The driver's futures must not be dropped before they complete (its README, RUST-937), and it has no socket timeout,
//! so every command runs as a task of its own and its caller waits under a deadline.

mod commands;
mod connect;
mod copies;
mod days;
mod declared;
mod extras;
mod given_up;
mod groups;
mod indexes;
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
mod told;
mod versions;
mod walk;
mod writes;

use std::collections::HashSet;
use std::sync::Arc;

use mongodb::options::ClientOptions;
use mongodb::{Client, Database};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

pub use self::connect::MongoOptions;

use self::given_up::GivenUp;
use self::groups::NotedSensors;
use self::outcome::classify;
use self::settings::SealForms;
use self::setup::Collections;
use crate::bucket::Result;
use crate::names::collection_prefix;
use crate::reading::Hour;

/// Sensors that are removed together, each by its rev: mongod plans larger alternatives slowly.
const REMOVE_SENSORS: usize = 50;
/// Maximum sensors per read command.
const READ_SENSORS: usize = 1000;
/// Maximum buckets per read command: their pages may be large.
const READ_BUCKETS: usize = 64;

/// Pages and sensors in MongoDB.
#[derive(Debug)]
pub struct MongoStore {
    client: Client,
    mongo: Database,
    /// The address as the driver understood it, to ask its servers one by one.
    address: ClientOptions,
    /// User, database and hosts: for the operator only.
    whom: String,
    options: MongoOptions,
    writes: Arc<Semaphore>,
    given_up: Arc<GivenUp>,
    reads: Arc<Semaphore>,
    /// Permit for health checks, the registry and the server's clock, which must not wait behind other commands.
    checks: Arc<Semaphore>,
    /// Databases whose collections this process has created or found.
    created: Mutex<HashSet<String>>,
    /// Those whose collection of groups' documents it has created or found.
    grouped: Mutex<HashSet<String>>,
    noted: NotedSensors,
    seal_forms: SealForms,
}

impl MongoStore {
    /// Ensures that the database's collections exist, once per process.
    async fn created(&self, database: &str) -> Result<Collections> {
        let known = self.created.lock().contains(database);
        if !known {
            let (mongo, name) = (self.mongo.clone(), database.to_owned());
            let create = async move { setup::create(&mongo, &name).await };
            self.run_write(&collection_prefix(database), create).await?.map_err(|e| classify(&e))?;
            self.created.lock().insert(database.to_owned());
        }
        Ok(Collections::of(&self.mongo, database))
    }

    /// Forgets that the database's collections exist.
    fn forget(&self, database: &str) {
        self.created.lock().remove(database);
        self.grouped.lock().remove(database);
    }
}

fn date(hour: Hour) -> bson::DateTime {
    bson::DateTime::from_millis(hour.start_ms())
}
