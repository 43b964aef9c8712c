//! Commands on their way: each a task that nobody can cancel, waited for under a deadline, few of them at a time.

use std::sync::{Arc, Mutex, PoisonError};

use bson::{Document, RawDocumentBuf};
use mongodb::error::{Error, ErrorKind};
use mongodb::{Collection, Database};
use tokio::sync::Semaphore;

use super::MongoStore;
use super::outcome::{classify, of_insert, of_updates, proven_invalid, stopped_by_validator};
use super::remove::{self, Removed};
use super::setup::Collections;
use super::writes::{self, Change, Together, Updates, chunks};
use crate::bucket::StorageError;
use crate::bucket::store::{PageWrite, Written};

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

    /// Writes a chunk. Where the server takes nothing of it because of what is in it, that is found by halves.
    async fn write_chunk(
        &self,
        collection: &Collection<RawDocumentBuf>,
        chunk: Vec<(usize, Change)>,
        outcomes: &Mutex<Vec<Written>>,
    ) {
        let mut lots = vec![chunk];
        while let Some(lot) = lots.pop() {
            let (mut places, changes): (Vec<usize>, Vec<Change>) = lot.into_iter().unzip();
            let Sent { results, mut returned } = self.send(collection, changes).await;
            if returned.len() > 1 {
                let half = returned.len().div_ceil(2);
                let later = places.split_off(half).into_iter().zip(returned.split_off(half)).collect();
                lots.extend([later, places.into_iter().zip(returned).collect()]);
                continue;
            }
            let mut outcomes = outcomes.lock().unwrap_or_else(PoisonError::into_inner);
            for (place, result) in places.into_iter().zip(results) {
                outcomes[place] = result;
            }
        }
    }

    async fn send(&self, collection: &Collection<RawDocumentBuf>, changes: Vec<Change>) -> Sent {
        let (count, collection, mongo) = (changes.len(), collection.clone(), self.mongo.clone());
        let command = async move {
            let is_insert = matches!(changes.first(), Some(Change::Insert(_)));
            if is_insert { insert(&collection, changes).await } else { update(&mongo, &collection, changes).await }
        };
        let lost = |error| Sent { results: vec![Written::Failed(error); count], returned: Vec::new() };
        self.run(&self.writes, command).await.unwrap_or_else(lost)
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

    /// Writes the groups at these places, each in a transaction of its own, a few beside each other. Each is encoded when
    /// it is its turn.
    pub(super) async fn transact_each(
        &self,
        collections: &Collections,
        writes: &[PageWrite<'_>],
        places: &Mutex<Vec<usize>>,
        outcomes: &Mutex<Vec<Written>>,
    ) {
        let next = || places.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let work = || async {
            while let Some(place) = next() {
                let outcome = self.transact(writes::together(collections, &writes[place])).await;
                outcomes.lock().unwrap_or_else(PoisonError::into_inner)[place] = outcome;
            }
        };
        futures_util::future::join_all((0..self.options.commands_in_flight).map(|_| work())).await;
    }

    /// Makes all changes or none.
    async fn transact(&self, changes: Together) -> Written {
        let (client, mongo) = (self.client.clone(), self.mongo.clone());
        let transaction = async move { writes::transact(&client, &mongo, changes).await };
        match self.run(&self.writes, transaction).await {
            Ok(Ok(written)) => written,
            Ok(Err(error)) => Written::Failed(classify(&error)),
            Err(error) => Written::Failed(error),
        }
    }
}

/// What became of the changes of one command.
struct Sent {
    results: Vec<Written>,
    /// All changes, where the server took nothing of the command for a reason that may be one of them.
    returned: Vec<Change>,
}

impl Sent {
    fn whole(error: &Error, changes: Vec<Change>) -> Self {
        let class = classify(error);
        let results = vec![Written::Failed(class.clone()); changes.len()];
        let may_be_one = matches!(class, StorageError::Refused { .. } | StorageError::Failing { .. });
        Self { results, returned: if may_be_one { changes } else { Vec::new() } }
    }
}

async fn insert(collection: &Collection<RawDocumentBuf>, changes: Vec<Change>) -> Sent {
    let document = |change| match change {
        Change::Insert(document) => Some(document),
        Change::Update { .. } | Change::Remove { .. } => None,
    };
    let documents: Vec<RawDocumentBuf> = changes.into_iter().filter_map(document).collect();
    match writes::insert(collection, &documents).await {
        Err(error) if !matches!(error.kind.as_ref(), ErrorKind::InsertMany(_)) => {
            Sent::whole(&error, documents.into_iter().map(Change::Insert).collect())
        }
        result => Sent { results: of_insert(result, documents.len()), returned: Vec::new() },
    }
}

/// Upserts by compare-and-set. Those that the validator stopped are sent once more as plain updates: what
/// it stops then is invalid by its content, and anything else means that the document is another one now.
async fn update(mongo: &Database, collection: &Collection<RawDocumentBuf>, changes: Vec<Change>) -> Sent {
    let command = |changes: &[Change], updates| writes::update_command(collection.name(), changes, updates);
    let reply = match command(&changes, Updates::Upserts) {
        Ok(command) => mongo.run_raw_command(command).await,
        Err(error) => Err(error),
    };
    let reply = match reply {
        Ok(reply) => reply,
        Err(error) => return Sent::whole(&error, changes),
    };
    writes::remove_torsos(collection, &changes, &reply).await;
    let stopped = stopped_by_validator(&reply);
    let mut results = of_updates(Ok(reply), changes.len());
    if !stopped.is_empty() {
        let again: Vec<Change> = stopped.iter().filter_map(|place| changes.get(*place).cloned()).collect();
        let proof = match command(&again, Updates::Plain) {
            Ok(command) => mongo.run_raw_command(command).await,
            Err(error) => Err(error),
        };
        for (place, refusal) in proof.iter().flat_map(proven_invalid) {
            if let Some(result) = stopped.get(place).and_then(|place| results.get_mut(*place)) {
                *result = Written::Failed(refusal);
            }
        }
    }
    Sent { results, returned: Vec::new() }
}
