//! Runs commands, a limited number at a time. Each is a task that cannot be cancelled, and its caller waits until a deadline.

use std::sync::Arc;

use bson::{Document, RawDocumentBuf, doc};
use mongodb::error::{Error, ErrorKind};
use mongodb::{Collection, Database};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::MongoStore;
use super::abandoned::RunningWrite;
use super::kinds::{self, RULES_MAX};
use super::outcome::{broken_rules, classify, insert_outcomes, refusal, rule_of_insert, update_outcomes};
use super::reads::{CausalClient, Query};
use super::remove;
use super::setup::prefix;
use super::writes::{self, Marks, MongoWrite, TransactionWrites, UpdateMode, chunks};
use crate::bucket::store::{Extent, WriteOutcome};
use crate::bucket::{Result, StorageError};
use crate::document::check_version;

impl MongoStore {
    /// Runs a command as a task once `gate` has a permit, and waits for it until the deadline. A task that passes the
    /// deadline keeps its permit until the driver has finished.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        gate: &Arc<Semaphore>,
        command: impl Future<Output = T> + Send + 'static,
    ) -> Result<T> {
        let task = self.spawn(gate, command).await?;
        let ended = tokio::time::timeout(self.options.command_timeout, task).await;
        ended.map_err(|_| self.unanswered())?.map_err(|failed| StorageError::Unknown(failed.to_string()))
    }

    /// Runs a command that changes a database; `prefix` is the prefix of its collections' names. If the caller stops
    /// waiting, the command is registered in `abandoned`.
    pub(super) async fn run_write<T: Send + 'static>(
        &self,
        prefix: &str,
        command: impl Future<Output = T> + Send + 'static,
    ) -> Result<T> {
        let mut running = RunningWrite::new(self.spawn(&self.writes, command).await?, prefix, &self.abandoned);
        let ended = tokio::time::timeout(self.options.command_timeout, running.end()).await;
        ended.map_err(|_| self.unanswered())?.map_err(StorageError::Unknown)
    }

    /// Waits for a permit until the deadline, and starts a command as a task that holds the permit.
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

    /// Runs a read, under a separate limit from writes.
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
        let client = self.client.clone();
        let collection = collection.clone();
        self.read(async move { client.find(&collection, query).await }).await
    }

    /// Writes changes to one collection in concurrent commands. Each change comes with the index of its outcome.
    pub(super) async fn write(
        &self,
        collection: &Collection<RawDocumentBuf>,
        changes: Vec<(usize, MongoWrite)>,
        outcomes: &Mutex<Vec<WriteOutcome>>,
    ) {
        let (inserts, updates) = changes.into_iter().partition(|(_, change)| matches!(change, MongoWrite::Insert(_)));
        let commands = chunks(inserts).into_iter().chain(chunks(updates));
        let commands = commands.map(|chunk| self.write_chunk(collection, chunk, outcomes));
        futures_util::future::join_all(commands).await;
    }

    /// Writes a chunk. If the server refuses the whole command and a single change may be the cause, halves the chunk until
    /// that change is isolated.
    async fn write_chunk(
        &self,
        collection: &Collection<RawDocumentBuf>,
        chunk: Vec<(usize, MongoWrite)>,
        outcomes: &Mutex<Vec<WriteOutcome>>,
    ) {
        let mut batches = vec![chunk];
        while let Some(batch) = batches.pop() {
            let (mut indexes, changes): (Vec<usize>, Vec<MongoWrite>) = batch.into_iter().unzip();
            let Sent { results, mut returned } = self.send(collection, changes).await;
            if returned.len() > 1 {
                let half = returned.len().div_ceil(2);
                let second = indexes.split_off(half).into_iter().zip(returned.split_off(half)).collect();
                let first = indexes.into_iter().zip(returned).collect();
                batches.extend([second, first]);
                continue;
            }
            let mut outcomes = outcomes.lock();
            for (index, result) in indexes.into_iter().zip(results) {
                outcomes[index] = result;
            }
        }
    }

    async fn send(&self, collection: &Collection<RawDocumentBuf>, changes: Vec<MongoWrite>) -> Sent {
        let count = changes.len();
        let target = collection.clone();
        let client = self.client.clone();
        let mongo = self.mongo.clone();
        let is_checked = kinds::is_checked(&self.options.kinds, collection.name());
        let command = async move {
            let is_insert = matches!(changes.first(), Some(MongoWrite::Insert(_)));
            if is_insert {
                insert(&client, &target, changes, is_checked).await
            } else {
                update(&client, &mongo, &target, changes, is_checked).await
            }
        };
        let lost = |error| Sent { results: vec![WriteOutcome::Failed(error); count], returned: Vec::new() };
        self.run_write(prefix(collection), command).await.unwrap_or_else(lost)
    }

    /// Removes all documents that match a filter.
    ///
    /// The time limit of each command on the server is shorter than the deadline here. So no command outlives this call and
    /// removes documents that are written after it. A command that reaches the limit is repeated for the rest.
    pub(super) async fn remove(&self, collection: &Collection<RawDocumentBuf>, filter: Document) -> Result<()> {
        let time_max = self.options.command_timeout / 2;
        self.wait_for_abandoned(prefix(collection)).await?;
        loop {
            let command = remove::command(collection.name(), filter.clone(), time_max);
            let mongo = self.mongo.clone();
            let ran = self.run_write(prefix(collection), async move { mongo.run_command(command).await }).await;
            if let Ok(Ok(reply)) = &ran {
                self.client.note_reply(reply);
            }
            match ran.and_then(remove::outcome) {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(error) => return Err(self.after_time_limit(error).await),
            }
        }
    }

    /// Fails if any document that matches a filter has a schema version above `latest`, because a removal has skipped that document.
    pub(super) async fn refuse_newer(
        &self,
        collection: &Collection<RawDocumentBuf>,
        mut filter: Document,
        latest: u64,
    ) -> Result<()> {
        filter.extend(remove::is_newer(latest));
        let query = Query::new(filter).project(doc! { "_id": 1, "schemaVersion": 1 }).limit(Extent::pages(1));
        let newer = self.find(collection, query).await?;
        newer.first().map_or(Ok(()), |newer| check_version(newer, latest))
    }

    /// Waits until no abandoned write of a database is running, because it could restore data after a removal.
    pub(super) async fn wait_for_abandoned(&self, prefix: &str) -> Result<()> {
        let idle = self.abandoned.wait_until_idle(prefix);
        tokio::time::timeout(self.options.command_timeout, idle).await.map_err(|_| busy())
    }

    /// Returns the error of a removal. If its outcome is unknown, first waits until the server's time limit has passed.
    pub(super) async fn after_time_limit(&self, error: StorageError) -> StorageError {
        if matches!(error, StorageError::Unknown(_)) {
            tokio::time::sleep(self.options.command_timeout / 2).await;
        }
        error
    }

    /// Writes all changes in one transaction.
    pub(super) async fn transact(&self, prefix: &str, changes: TransactionWrites) -> WriteOutcome {
        let client = self.client.clone();
        let mongo = self.mongo.clone();
        let is_checked = self.options.kinds.have_checks();
        let transaction = async move {
            let again = is_checked.then(|| changes.clone());
            match (writes::transact(&client, &mongo, changes, Marks::Kept).await, again) {
                (Ok(WriteOutcome::Failed(StorageError::Refused(_))), Some(changes)) => {
                    writes::transact(&client, &mongo, changes, Marks::Exempt).await
                }
                (written, _) => written,
            }
        };
        match self.run_write(prefix, transaction).await {
            Ok(Ok(written)) => written,
            Ok(Err(error)) => WriteOutcome::Failed(classify(&error)),
            Err(error) => WriteOutcome::Failed(error),
        }
    }
}

fn busy() -> StorageError {
    StorageError::Unavailable("earlier commands are still unanswered after store.command_timeout".to_owned())
}

/// The outcome of one command.
struct Sent {
    results: Vec<WriteOutcome>,
    /// All changes, if the server refused the whole command and one of them may be the cause.
    returned: Vec<MongoWrite>,
}

impl Sent {
    fn whole(error: &Error, changes: Vec<MongoWrite>) -> Self {
        let class = classify(error);
        let results = vec![WriteOutcome::Failed(class.clone()); changes.len()];
        let is_divisible = matches!(class, StorageError::Refused(_) | StorageError::Failing(_));
        Self { results, returned: if is_divisible { changes } else { Vec::new() } }
    }
}

/// Inserts documents. If `is_checked`, those that break the rules of their kind are inserted with a mark.
async fn insert(
    client: &CausalClient,
    collection: &Collection<RawDocumentBuf>,
    changes: Vec<MongoWrite>,
    is_checked: bool,
) -> Sent {
    let documents: Vec<RawDocumentBuf> = changes.into_iter().filter_map(writes::inserted_document).collect();
    let result = writes::insert(client, collection, &documents).await;
    match result {
        Err(error) if !matches!(error.kind.as_ref(), ErrorKind::InsertMany(_)) => {
            Sent::whole(&error, documents.into_iter().map(MongoWrite::Insert).collect())
        }
        result => {
            let mut results = insert_outcomes(result, documents.len());
            let has_failed = |result: &WriteOutcome| {
                matches!(result, WriteOutcome::Conflict | WriteOutcome::Failed(StorageError::Refused(_)))
            };
            let failed = results.iter_mut().zip(&documents).filter(|(result, _)| is_checked && has_failed(result));
            for (result, document) in failed {
                *result = insert_marked(client, collection, document).await;
            }
            Sent { results, returned: Vec::new() }
        }
    }
}

/// Inserts one document, with marks for the rules that it breaks.
async fn insert_marked(
    client: &CausalClient,
    collection: &Collection<RawDocumentBuf>,
    document: &RawDocumentBuf,
) -> WriteOutcome {
    let mut rules = Vec::new();
    loop {
        let marked = [kinds::with_marks(document, &rules)];
        let result = writes::insert(client, collection, &marked).await;
        match rule_of_insert(&result).filter(|rule| !rules.contains(rule) && rules.len() < RULES_MAX) {
            Some(rule) => rules.push(rule),
            None => return insert_outcomes(result, 1).pop().unwrap_or(WriteOutcome::Conflict),
        }
    }
}

/// Sends upserts by compare-and-set. Changes that a rule stopped are sent once more as plain updates. If it stops one again,
/// the content of the document breaks the rule. Any other result means that the stored document has changed.
///
/// If `is_checked`, a stored document whose new content breaks a rule is marked. The caller writes it again, as after any
/// other change.
async fn update(
    client: &CausalClient,
    mongo: &Database,
    collection: &Collection<RawDocumentBuf>,
    changes: Vec<MongoWrite>,
    is_checked: bool,
) -> Sent {
    let reply = match writes::update(client, mongo, collection.name(), &changes, UpdateMode::Upsert).await {
        Ok(reply) => reply,
        Err(error) => return Sent::whole(&error, changes),
    };
    writes::remove_torsos(collection, &changes, &reply).await;
    let stopped: Vec<usize> = broken_rules(&reply).into_iter().map(|(statement, _)| statement).collect();
    let mut results = update_outcomes(Ok(reply), changes.len());
    if !stopped.is_empty() {
        let retried: Vec<MongoWrite> = stopped.iter().filter_map(|index| changes.get(*index).cloned()).collect();
        let proof = writes::update(client, mongo, collection.name(), &retried, UpdateMode::Plain).await;
        for (index, rule) in proof.iter().flat_map(broken_rules) {
            let is_marked = match retried.get(index) {
                Some(MongoWrite::Update { id, .. }) if is_checked => {
                    kinds::mark(mongo, collection.name(), id, &rule).await
                }
                _ => false,
            };
            if let Some(result) = stopped.get(index).and_then(|index| results.get_mut(*index)).filter(|_| !is_marked) {
                *result = WriteOutcome::Failed(refusal(&rule));
            }
        }
    }
    Sent { results, returned: Vec::new() }
}
