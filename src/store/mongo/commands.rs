//! Commands on their way: each a task that nobody can cancel, waited for under a deadline, few of them at a time.

use std::sync::{Arc, Mutex, PoisonError};

use bson::{Document, RawDocumentBuf};
use mongodb::Collection;
use tokio::sync::Semaphore;

use super::MongoStore;
use super::outcome::{classify, of_insert, of_updates};
use super::remove::{self, Removed};
use super::writes::{self, Change, chunks};
use crate::bucket::StorageError;
use crate::bucket::store::Written;

impl MongoStore {
    /// Runs a command as a task that nobody can cancel, among at most as many as `gate` lets
    /// through, and waits for it until the deadline. A task that is given up on keeps its place
    /// until the driver is done with it.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        gate: &Arc<Semaphore>,
        command: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, StorageError> {
        let timeout = self.options.command_timeout;
        let busy = || StorageError::Unavailable { detail: "earlier commands are still unanswered".to_owned() };
        let permit = tokio::time::timeout(timeout, gate.clone().acquire_owned()).await;
        let permit = permit.map_err(|_| busy())?.map_err(|_| busy())?;
        let task = tokio::spawn(async move {
            let result = command.await;
            drop(permit);
            result
        });
        match tokio::time::timeout(timeout, task).await {
            Ok(Ok(result)) => Ok(result),
            Ok(Err(failed)) => Err(StorageError::Unknown { detail: failed.to_string() }),
            Err(_) => {
                Err(StorageError::Unknown { detail: format!("no answer within {timeout:?} (store.command_timeout)") })
            }
        }
    }

    /// Reads, beside the writes.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        command: impl Future<Output = Result<T, StorageError>> + Send + 'static,
    ) -> Result<T, StorageError> {
        self.run(&self.reads, command).await?
    }

    /// Writes changes to one collection, in commands that run beside each other, and puts the
    /// outcomes in their places.
    pub(super) async fn write(
        &self,
        collection: &Collection<RawDocumentBuf>,
        changes: Vec<(usize, Change)>,
        outcomes: &Mutex<Vec<Written>>,
    ) {
        let (inserts, updates) = changes.into_iter().partition(|(_, change)| matches!(change, Change::Insert(_)));
        let commands = chunks(inserts).into_iter().chain(chunks(updates));
        let commands = commands.map(|chunk| self.write_chunk(collection, chunk, outcomes));
        futures_util::future::join_all(commands).await;
    }

    async fn write_chunk(
        &self,
        collection: &Collection<RawDocumentBuf>,
        chunk: Vec<(usize, Change)>,
        outcomes: &Mutex<Vec<Written>>,
    ) {
        let (places, changes): (Vec<usize>, Vec<Change>) = chunk.into_iter().unzip();
        let (count, collection, mongo) = (places.len(), collection.clone(), self.mongo.clone());
        let command = async move {
            if matches!(changes.first(), Some(Change::Insert(_))) {
                let documents = changes.into_iter().filter_map(|change| match change {
                    Change::Insert(document) => Some(document),
                    Change::Update { .. } | Change::Remove { .. } => None,
                });
                return of_insert(writes::insert(&collection, documents.collect()).await, count);
            }
            let reply = match writes::update_command(collection.name(), &changes, false) {
                Ok(command) => mongo.run_raw_command(command).await,
                Err(error) => Err(error),
            };
            if let Ok(reply) = &reply {
                writes::remove_torsos(&collection, &changes, reply).await;
            }
            of_updates(reply, count)
        };
        let results = self.run(&self.writes, command).await.unwrap_or_else(|e| vec![Written::Failed(e); count]);
        let mut outcomes = outcomes.lock().unwrap_or_else(PoisonError::into_inner);
        for (place, result) in places.into_iter().zip(results) {
            outcomes[place] = result;
        }
    }

    /// Removes all documents of a filter. The server ends each command before its deadline here, so that
    /// none outlives the call and removes what is written after it; what it has removed by then is gone.
    pub(super) async fn remove(
        &self,
        collection: &Collection<RawDocumentBuf>,
        filter: Document,
    ) -> Result<(), StorageError> {
        let most = self.options.command_timeout / 2;
        self.quiet().await?;
        loop {
            let command = remove::command(collection.name(), filter.clone(), most);
            let mongo = self.mongo.clone();
            let ran = self.run(&self.writes, async move { mongo.run_command(command).await }).await;
            let removed = ran.map(remove::outcome).unwrap_or_else(Removed::Failed);
            match removed {
                Removed::All => return Ok(()),
                Removed::InPart => {}
                Removed::Failed(error) => return Err(self.at_rest(error).await),
            }
        }
    }

    /// Waits until no write is at work that was given up on: what it brings must not come after a removal.
    pub(super) async fn quiet(&self) -> Result<(), StorageError> {
        let quiet = self.writes.acquire_many(self.options.commands_in_flight);
        let busy = || StorageError::Unavailable { detail: "earlier commands are still unanswered".to_owned() };
        let quiet = tokio::time::timeout(self.options.command_timeout, quiet).await;
        quiet.map_err(|_| busy())?.map(drop).map_err(|_| busy())
    }

    /// An error of a command that removes things, once the command is not at work any more, wherever it is.
    pub(super) async fn at_rest(&self, error: StorageError) -> StorageError {
        if matches!(error, StorageError::Unknown { .. }) {
            tokio::time::sleep(self.options.command_timeout / 2).await;
        }
        error
    }

    /// Makes all changes or none.
    pub(super) async fn transact(&self, changes: Vec<(Collection<RawDocumentBuf>, Change)>) -> Written {
        let (client, mongo) = (self.client.clone(), self.mongo.clone());
        let transaction = async move { writes::transact(&client, &mongo, changes).await };
        match self.run(&self.writes, transaction).await {
            Ok(Ok(written)) => written,
            Ok(Err(error)) => Written::Failed(classify(&error)),
            Err(error) => Written::Failed(error),
        }
    }
}
