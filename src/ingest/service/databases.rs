//! Creates databases, explicitly or with their first write.

use std::sync::Arc;
use std::time::Instant;

use super::Ingest;
use crate::access::Caller;
use crate::bucket::{DatabaseSettings, StorageError};
use crate::catalog::{Database, DatabaseRefusal, DatabaseTerms};
use crate::config::bound;
use crate::ingest::error::IngestError;

impl Ingest {
    /// Creates the database unless it exists.
    ///
    /// # Errors
    /// If the name is invalid, `limits.databases` or the caller's quota is reached, the database is being dropped, or
    /// the store does not answer.
    pub async fn create_database(&self, name: &str, caller: &Caller) -> Result<(), IngestError> {
        self.create_with(name, caller, |_| {}).await
    }

    /// As [`Ingest::create_database`]. `set` changes the initial settings.
    pub(super) async fn create_with(
        &self,
        name: &str,
        caller: &Caller,
        set: impl Fn(&mut DatabaseSettings),
    ) -> Result<(), IngestError> {
        let database = self.database(name, caller).await?;
        if self.catalog.is_dropping(name) {
            return Err(IngestError::BeingDropped { name: name.to_owned() });
        }
        // Write the settings first. A drop that was logged earlier and is still to be carried out sees from them that
        // the database was created after the drop.
        let name = &*database.name;
        let created = self.member.stamp_now();
        let is_new = self.report(self.retention.note_created(name, created, set).await)?;
        let result = self.report(self.store.raw().create_database(name).await);
        if result.is_err() && is_new {
            self.report(self.retention.remove(name).await)?;
        }
        Ok(result?)
    }

    pub(super) async fn database(&self, name: &str, caller: &Caller) -> Result<Arc<Database>, IngestError> {
        if let Some(database) = self.catalog.database(name) {
            return Ok(database);
        }
        let stored = self.stored_databases(name).await?;
        self.catalog.add_database(name, &stored, self.database_terms(caller)).map_err(|refusal| {
            if let DatabaseRefusal::CallerQuota(exhausted) = &refusal {
                self.metrics.count_quota("refused", "token", exhausted.rate.label());
            }
            self.refused_database(name, refusal)
        })
    }

    /// Returns the limits on databases that a caller creates.
    pub(super) fn database_terms<'c>(&self, caller: &'c Caller) -> DatabaseTerms<'c> {
        let caller_max = bound(self.options.quota.token_databases);
        DatabaseTerms { max: self.options.limits.databases, caller, caller_max }
    }

    pub(super) fn refused_database(&self, name: &str, refusal: DatabaseRefusal) -> IngestError {
        let name = name.to_owned();
        match refusal {
            DatabaseRefusal::TooMany => IngestError::TooManyDatabases { name, limit: self.options.limits.databases },
            DatabaseRefusal::CallerQuota(exhausted) => IngestError::DatabaseQuota { name, exhausted },
        }
    }

    /// Returns the databases of the store, to look for `name` among them. The list is empty if the store does not
    /// answer.
    pub(super) async fn stored_databases(&self, name: &str) -> Result<Vec<String>, IngestError> {
        check_database_name(name)?;
        if self.lookup.presence.is_silent(name, Instant::now()) {
            return Ok(Vec::new());
        }
        Ok(self.store.raw().databases().await.unwrap_or_else(|error| {
            self.lookup.note_failure(name, &error);
            Vec::new()
        }))
    }

    /// Counts and logs a store error that fails a request.
    fn report<T>(&self, result: Result<T, StorageError>) -> Result<T, StorageError> {
        result.inspect_err(|error| {
            self.metrics.store_error(error.class());
            tracing::warn!(%error, "create database failed; request refused");
        })
    }
}

/// Checks the name of a database: 1 to 64 bytes without control characters.
///
/// # Errors
/// [`IngestError::DatabaseName`] if it is invalid.
pub fn check_database_name(name: &str) -> Result<(), IngestError> {
    if name.is_empty() || name.len() > 64 || name.chars().any(char::is_control) {
        return Err(IngestError::DatabaseName { name: name.chars().take(64).collect() });
    }
    Ok(())
}
