//! Creates the client and sets driver options that the URI leaves out. The driver has no socket timeout and long default
//! waits, so heartbeats and deadlines are set here.

use std::sync::Arc;
use std::time::Duration;

use mongodb::Client;
use mongodb::error::Error;
use mongodb::options::{ClientOptions, ReadConcern, ReadPreference, SelectionCriteria};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::groups::PendingSensors;
use super::reads::CausalClient;
use super::settings::SealForms;
use super::writes::durable;
use super::{MongoStore, messages};
use crate::bucket::{CopyRules, GroupRules, KindRules, Result, SealForm, StorageError};

/// Maximum number of concurrent write commands, and of concurrent read commands.
pub const CONCURRENT_COMMANDS_MAX: u32 = 4;

/// Options of the MongoDB store. Config section `[store]`.
#[derive(Debug, Clone)]
pub struct MongoOptions {
    /// Maximum wait for one command.
    pub command_timeout: Duration,
    /// The form of sealed days in databases without a setting of their own.
    pub seal_form: SealForm,
    /// The metadata that is copied into new pages and days.
    pub copies: CopyRules,
    /// The groups of sensors that have group documents.
    pub groups: GroupRules,
    /// The metadata paths that a text index covers.
    pub text: Vec<String>,
    /// The kinds of sensors.
    pub kinds: KindRules,
}

impl Default for MongoOptions {
    fn default() -> Self {
        Self {
            command_timeout: Duration::from_secs(5),
            seal_form: SealForm::Packed,
            copies: CopyRules::default(),
            groups: GroupRules::default(),
            text: Vec::new(),
            kinds: KindRules::default(),
        }
    }
}

/// The database on the URI's server if the URI names none.
const DEFAULT_DATABASE: &str = "hourglass";
/// The interval of the driver's server checks. Together with the connect timeout it limits the time that a command hangs
/// on a frozen server to 3 s, instead of 20 s with the driver's defaults.
const HEARTBEAT: Duration = Duration::from_secs(1);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum wait of a command for a primary. Shorter elections cause no error.
const SELECTION_TIMEOUT: Duration = Duration::from_secs(3);

impl MongoStore {
    /// Parses the URI and starts to discover the servers, without waiting for them.
    ///
    /// # Errors
    /// [`StorageError::Address`] if the driver rejects the URI.
    pub async fn open(uri: &str, options: MongoOptions) -> Result<Self> {
        let refused = |e: Error| {
            tracing::debug!(error = %e, "the MongoDB driver refused the address");
            StorageError::Address(messages::driver_error(&e))
        };
        let mut client_options = ClientOptions::parse(uri).await.map_err(refused)?;
        client_options.app_name.get_or_insert_with(|| "hourglass".to_owned());
        client_options.heartbeat_freq.get_or_insert(HEARTBEAT);
        client_options.connect_timeout.get_or_insert(CONNECT_TIMEOUT);
        client_options.server_selection_timeout.get_or_insert(SELECTION_TIMEOUT);
        // With majority read concern, reads see confirmed writes and nothing that a failover could roll back.
        client_options.read_concern = Some(ReadConcern::majority());
        client_options.selection_criteria = Some(SelectionCriteria::ReadPreference(ReadPreference::Primary));
        client_options.write_concern = Some(durable());
        client_options.max_pool_size = Some(2 * CONCURRENT_COMMANDS_MAX + 4);
        client_options.max_connecting.get_or_insert(4);
        let name = client_options.default_database.clone().unwrap_or_else(|| DEFAULT_DATABASE.to_owned());
        let user = client_options.credential.as_ref().and_then(|credential| credential.username.as_deref());
        let hosts: Vec<String> = client_options.hosts.iter().map(ToString::to_string).collect();
        let user = user.map_or("no user".to_owned(), |user| format!("user {user:?}"));
        let login = format!("{user}, database {name:?}, hosts {}", hosts.join(","));
        let client = Client::with_options(client_options.clone()).map_err(refused)?;
        let mongo = client.database(&name);
        let permits = CONCURRENT_COMMANDS_MAX as usize;
        Ok(Self {
            mongo,
            client: CausalClient::new(client),
            address: client_options,
            login,
            options,
            writes: Arc::new(Semaphore::new(permits)),
            reads: Arc::new(Semaphore::new(permits)),
            abandoned: Arc::default(),
            checks: Arc::new(Semaphore::new(1)),
            created: Mutex::default(),
            listed: Mutex::default(),
            grouped: Mutex::default(),
            unique: Mutex::default(),
            unmarked: Mutex::default(),
            pending: PendingSensors::default(),
            seal_forms: SealForms::default(),
        })
    }
}
