//! What `hourglass doctor` says of a MongoDB.

use bson::doc;

use super::MongoStore;
use super::outcome::classify;
use super::setup::{self, Collections};
use crate::bucket::{StorageError, Store};

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
    pub async fn about(&self) -> Result<About, StorageError> {
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
