//! Runs commands: each as a task that cannot be cancelled, a limited number at a time, with a deadline for the caller.

use std::sync::Arc;

use bson::{Document, RawDocumentBuf, doc};
use mongodb::error::{Error, ErrorKind};
use mongodb::{Collection, Database};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::MongoStore;
use super::given_up::AtWork;
use super::outcome::{classify, of_insert, of_updates, proven_invalid, stopped_by_validator};
use super::reads::{self, Query};
use super::remove;
use super::setup::prefix;
use super::writes::{self, MongoWrite, Together, Updates, chunks};
use crate::bucket::store::{Extent, Written};
use crate::bucket::{Result, StorageError};
use crate::document::document_rev;

impl MongoStore {
    /// Runs a command as a task that cannot be cancelled, when `gate` has a permit, and waits for it until the
    /// deadline. A task that passed its deadline keeps its permit until the driver is done with it.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        gate: &Arc<Semaphore>,
        command: impl Future<Output = T> + Send + 'static,
    ) -> Result<T> {
        let task = self.spawn(gate, command).await?;
        let ended = tokio::time::timeout(self.options.command_timeout, task).await;
        ended.map_err(|_| self.unanswered())?.map_err(|failed| StorageError::Unknown(failed.to_string()))
    }

    /// Runs a command that changes something in a database; `of` is the prefix of its collections' names. A command
    /// whose caller stopped waiting is registered in `given_up`.
    pub(super) async fn run_write<T: Send + 'static>(
        &self,
        of: &str,
        command: impl Future<Output = T> + Send + 'static,
    ) -> Result<T> {
        let mut at_work = AtWork::new(self.spawn(&self.writes, command).await?, of, &self.given_up);
        let ended = tokio::time::timeout(self.options.command_timeout, at_work.end()).await;
        ended.map_err(|_| self.unanswered())?.map_err(StorageError::Unknown)
    }

    /// Waits for a permit, until the deadline, and starts a command as a task that keeps it.
    async fn spawn<T: Send + 'static>(
        &self,
        gate: &Arc<Semaphore>,
        command: impl Future<Output = T> + Send + 'static,
    ) -> Result<JoinHandle<T>> {
        let permit = tokio::time::timeout(self.options.command_timeout, gate.clone().acquire_owned()).await;
        let permit = permit.map_err(|_| busy())?.map_err(|_| busy())?;
        Ok(tokio::spawn(async move {
            let result = command.await;
            drop(permit);
            result
        }))
    }

    fn unanswered(&self) -> StorageError {
        let timeout = self.options.command_timeout;
        StorageError::Unknown(format!("no answer within {timeout:?} (store.command_timeout)"))
    }

    /// Runs a read, under a limit separate from the writes.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        command: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        self.run(&self.reads, command).await?
    }

    /// Reads documents.
    pub(super) async fn find(
        &self,
        collection: &Collection<RawDocumentBuf>,
        query: Query,
    ) -> Result<Vec<RawDocumentBuf>> {
        let collection = collection.clone();
        self.read(async move { reads::find(&collection, query).await }).await
    }

    /// Writes changes to one collection, in concurrent commands, and stores each outcome at its place.
    pub(super) async fn write(
        &self,
        collection: &Collection<RawDocumentBuf>,
        changes: Vec<(usize, MongoWrite)>,
        outcomes: &Mutex<Vec<Written>>,
    ) {
        let (inserts, updates) = changes.into_iter().partition(|(_, change)| matches!(change, MongoWrite::Insert(_)));
        let commands = chunks(inserts).into_iter().chain(chunks(updates));
        let commands = commands.map(|chunk| self.write_chunk(collection, chunk, outcomes));
        futures_util::future::join_all(commands).await;
    }

    /// Writes a chunk. If the server refuses the whole command and one change may be the reason, halves the chunk until
    /// that change is found.
    async fn write_chunk(
        &self,
        collection: &Collection<RawDocumentBuf>,
        chunk: Vec<(usize, MongoWrite)>,
        outcomes: &Mutex<Vec<Written>>,
    ) {
        let mut batches = vec![chunk];
        while let Some(lot) = batches.pop() {
            let (mut places, changes): (Vec<usize>, Vec<MongoWrite>) = lot.into_iter().unzip();
            let Sent { results, mut returned } = self.send(collection, changes).await;
            if returned.len() > 1 {
                let half = returned.len().div_ceil(2);
                let later = places.split_off(half).into_iter().zip(returned.split_off(half)).collect();
                batches.extend([later, places.into_iter().zip(returned).collect()]);
                continue;
            }
            let mut outcomes = outcomes.lock();
            for (place, result) in places.into_iter().zip(results) {
                outcomes[place] = result;
            }
        }
    }

    async fn send(&self, collection: &Collection<RawDocumentBuf>, changes: Vec<MongoWrite>) -> Sent {
        let (count, into, mongo) = (changes.len(), collection.clone(), self.mongo.clone());
        let command = async move {
            let is_insert = matches!(changes.first(), Some(MongoWrite::Insert(_)));
            if is_insert { insert(&into, changes).await } else { update(&mongo, &into, changes).await }
        };
        let lost = |error| Sent { results: vec![Written::Failed(error); count], returned: Vec::new() };
        self.run_write(prefix(collection), command).await.unwrap_or_else(lost)
    }

    /// Removes all documents that match a filter. Each command has a time limit on the server that is shorter than the
    /// deadline here, so that none outlives this call and removes what is written after it; what it has removed by then
    /// stays removed.
    pub(super) async fn remove(&self, collection: &Collection<RawDocumentBuf>, filter: Document) -> Result<()> {
        let most = self.options.command_timeout / 2;
        self.quiet(prefix(collection)).await?;
        loop {
            let command = remove::command(collection.name(), filter.clone(), most);
            let mongo = self.mongo.clone();
            let ran = self.run_write(prefix(collection), async move { mongo.run_command(command).await }).await;
            match ran.and_then(remove::outcome) {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(error) => return Err(self.at_rest(error).await),
            }
        }
    }

    /// Fails if one of the documents that match a filter was written by a later version: a removal has left it out.
    pub(super) async fn refuse_newer(
        &self,
        collection: &Collection<RawDocumentBuf>,
        mut filter: Document,
    ) -> Result<()> {
        filter.extend(remove::is_newer());
        let query = Query::of(filter).sending(doc! { "_id": 1, "schemaVersion": 1 }).within(Extent::pages(1));
        let newer = self.find(collection, query).await?;
        newer.first().map_or(Ok(()), |newer| document_rev(newer).map(drop))
    }

    /// Waits until no abandoned write of a database is still running: it must not bring data back after a removal.
    pub(super) async fn quiet(&self, of: &str) -> Result<()> {
        tokio::time::timeout(self.options.command_timeout, self.given_up.quiet(of)).await.map_err(|_| busy())
    }

    /// Returns the error of a removal; if its outcome is unknown, only after the server's time limit for it has passed.
    pub(super) async fn at_rest(&self, error: StorageError) -> StorageError {
        if matches!(error, StorageError::Unknown(_)) {
            tokio::time::sleep(self.options.command_timeout / 2).await;
        }
        error
    }

    /// Makes all changes in one transaction, or none.
    pub(super) async fn transact(&self, of: &str, changes: Together) -> Written {
        let (client, mongo) = (self.client.clone(), self.mongo.clone());
        let transaction = async move { writes::transact(&client, &mongo, changes).await };
        match self.run_write(of, transaction).await {
            Ok(Ok(written)) => written,
            Ok(Err(error)) => Written::Failed(classify(&error)),
            Err(error) => Written::Failed(error),
        }
    }
}

fn busy() -> StorageError {
    StorageError::Unavailable("earlier commands are still unanswered after store.command_timeout".to_owned())
}

/// Outcome of the changes of one command.
struct Sent {
    results: Vec<Written>,
    /// All changes, if the server refused the whole command and one of them may be the reason.
    returned: Vec<MongoWrite>,
}

impl Sent {
    fn whole(error: &Error, changes: Vec<MongoWrite>) -> Self {
        let class = classify(error);
        let results = vec![Written::Failed(class.clone()); changes.len()];
        let may_be_one = matches!(class, StorageError::Refused(_) | StorageError::Failing(_));
        Self { results, returned: if may_be_one { changes } else { Vec::new() } }
    }
}

async fn insert(collection: &Collection<RawDocumentBuf>, changes: Vec<MongoWrite>) -> Sent {
    let documents: Vec<RawDocumentBuf> = changes.into_iter().filter_map(writes::inserted).collect();
    match writes::insert(collection, &documents).await {
        Err(error) if !matches!(error.kind.as_ref(), ErrorKind::InsertMany(_)) => {
            Sent::whole(&error, documents.into_iter().map(MongoWrite::Insert).collect())
        }
        result => Sent { results: of_insert(result, documents.len()), returned: Vec::new() },
    }
}

/// Upserts by compare-and-set. Changes that the validator stopped are sent once more as plain updates: one that it
/// stops again is invalid by its content; any other result means that the stored document has changed.
async fn update(mongo: &Database, collection: &Collection<RawDocumentBuf>, changes: Vec<MongoWrite>) -> Sent {
    let reply = match writes::update(mongo, collection.name(), &changes, Updates::Upserts).await {
        Ok(reply) => reply,
        Err(error) => return Sent::whole(&error, changes),
    };
    writes::remove_torsos(collection, &changes, &reply).await;
    let stopped = stopped_by_validator(&reply);
    let mut results = of_updates(Ok(reply), changes.len());
    if !stopped.is_empty() {
        let again: Vec<MongoWrite> = stopped.iter().filter_map(|place| changes.get(*place).cloned()).collect();
        let proof = writes::update(mongo, collection.name(), &again, Updates::Plain).await;
        for (place, refusal) in proof.iter().flat_map(proven_invalid) {
            if let Some(result) = stopped.get(place).and_then(|place| results.get_mut(*place)) {
                *result = Written::Failed(refusal);
            }
        }
    }
    Sent { results, returned: Vec::new() }
}
