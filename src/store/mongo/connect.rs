//! The client: what the driver is told beside the URI. It has no socket timeout and waits long by
//! default, so heartbeats and deadlines are set here.

use std::time::Duration;

use mongodb::error::Error;
use mongodb::options::{ClientOptions, ReadConcern, ReadPreference, SelectionCriteria};
use mongodb::{Client, Database};

use super::writes::durable;
use crate::bucket::StorageError;

/// How the store talks to MongoDB. Config section `[store]`.
#[derive(Debug, Clone)]
pub struct MongoOptions {
    /// Longest wait for one command.
    pub command_timeout: Duration,
    /// Most write commands at a time, and as many reads beside them.
    pub commands_in_flight: u32,
}

impl Default for MongoOptions {
    fn default() -> Self {
        Self { command_timeout: Duration::from_secs(5), commands_in_flight: 4 }
    }
}

/// The database in the URI's server that is used when the URI names none.
const DEFAULT_DATABASE: &str = "hourglass";
/// How often the driver looks at the servers. With the connect timeout it bounds how long a
/// command hangs on a frozen server: 3 s, where the driver's defaults give 20 s.
const HEARTBEAT: Duration = Duration::from_secs(1);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a command waits for a primary. Below it, a short election is ridden through.
const SELECTION_TIMEOUT: Duration = Duration::from_secs(3);

/// A client for the URI's servers, which it does not wait for, and the database in them.
pub async fn connect(uri: &str, options: &MongoOptions) -> Result<(Client, Database), StorageError> {
    let refused = |e: Error| StorageError::Refused { detail: format!("store.uri: {e}") };
    let mut client_options = ClientOptions::parse(uri).await.map_err(refused)?;
    client_options.app_name.get_or_insert_with(|| "hourglass".to_owned());
    client_options.heartbeat_freq.get_or_insert(HEARTBEAT);
    client_options.connect_timeout.get_or_insert(CONNECT_TIMEOUT);
    client_options.server_selection_timeout.get_or_insert(SELECTION_TIMEOUT);
    // Reads see what a majority has: what a write was confirmed for, and nothing that a failover
    // could take back. Always from the primary.
    client_options.read_concern = Some(ReadConcern::majority());
    client_options.selection_criteria = Some(SelectionCriteria::ReadPreference(ReadPreference::Primary));
    client_options.write_concern = Some(durable());
    client_options.max_pool_size = Some(2 * options.commands_in_flight + 4);
    client_options.max_connecting.get_or_insert(4);
    let name = client_options.default_database.clone().unwrap_or_else(|| DEFAULT_DATABASE.to_owned());
    let client = Client::with_options(client_options).map_err(refused)?;
    let mongo = client.database(&name);
    Ok((client, mongo))
}
