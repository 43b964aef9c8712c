//! Classifies MongoDB errors: whether the write was applied, and whether it can be sent again. The class depends on the
//! code and kind of an error, never on its message (see the server's `error_codes.yml` and the driver's `error.rs`).

use bson::Document;
use mongodb::error::{Error, ErrorKind, InsertManyError, WriteFailure};

use super::kinds::unique::UNIQUE_PREFIX;
use super::messages;
use crate::bucket::store::WriteOutcome;
use crate::bucket::{Result, StorageError, Unusable};

/// Duplicate key: the document already exists, or the rev of an upsert did not match.
pub const DUPLICATE_KEY: i32 = 11_000;
/// The collection's validator rejected the document.
const VALIDATION: i32 = 121;
/// Two transactions wrote the same document.
const WRITE_CONFLICT: i32 = 112;
/// Lock timeout, snapshot unavailable or too old, no such transaction: normal for concurrent transactions.
const TRANSACTION_LOST: [i32; 4] = [24, 239, 246, 251];
/// A document or the result of an update exceeds 16 MiB.
const TOO_LARGE: [i32; 3] = [10_334, 17_419, 17_420];
/// The primary changes, or the server stops the command. Every statement of the command fails alike.
const PRIMARY_CHANGES: [i32; 9] = [50, 64, 91, 189, 10_107, 11_600, 11_602, 13_435, 13_436];

/// Classifies a driver error.
pub fn classify(error: &Error) -> StorageError {
    tracing::debug!(%error, "the MongoDB driver reported an error");
    let detail = messages::driver_error(error);
    if error.contains_label(mongodb::error::UNKNOWN_TRANSACTION_COMMIT_RESULT) {
        return StorageError::Unknown(detail);
    }
    // An error with one of these labels is temporary, whatever its code: an election, a lost connection or a transaction
    // conflict.
    let temporary = [mongodb::error::RETRYABLE_WRITE_ERROR, mongodb::error::TRANSIENT_TRANSACTION_ERROR];
    match error.kind.as_ref() {
        ErrorKind::Command(command) if temporary.into_iter().any(|label| error.contains_label(label)) => {
            match classify_code(command.code, detail) {
                StorageError::Database(detail) => StorageError::Unknown(detail),
                class => class,
            }
        }
        ErrorKind::ServerSelection { .. } | ErrorKind::DnsResolve { .. } => StorageError::Unavailable(detail),
        ErrorKind::Authentication { .. } => unusable(Unusable::WrongCredentials, detail),
        ErrorKind::Command(command) => classify_code(command.code, detail),
        ErrorKind::Write(WriteFailure::WriteError(write)) => classify_code(write.code, detail),
        // The request is malformed, so no document is at fault.
        ErrorKind::InvalidArgument { .. } | ErrorKind::Bson(_) | ErrorKind::BsonSerialization(_) => {
            StorageError::Failing(detail)
        }
        // Lost connections, cleared pools, unconfirmed write concerns and unknown kinds: the write may have been applied,
        // and can be sent again.
        _ => StorageError::Unknown(detail),
    }
}

fn unusable(cause: Unusable, detail: String) -> StorageError {
    StorageError::Unusable { cause, detail }
}

/// Codes of a server that changes state, loses a connection or is too slow. They do not depend on the database.
const TEMPORARY: [i32; 29] = [
    // Host unreachable or not found, network timeout, lock timeout, time limit exceeded, shutting down.
    6, 7, 24, 50, 63, 64, 89, 91, 100, 112, 133, 149, 150, 189, 202, 234, 246, 251, 262, 290, 317, 358, 384,
    // Interrupted by a change of the primary, no primary, socket errors.
    9001, 11_600, 11_601, 11_602, 13_388, 13_436,
];

/// Classifies a server error code.
pub fn classify_code(code: i32, detail: String) -> StorageError {
    match code {
        // Unauthorized, and the equivalent of Atlas.
        13 | 8000 => unusable(Unusable::NotAuthorised, detail),
        // Authentication failed.
        18 => unusable(Unusable::WrongCredentials, detail),
        // Overload (refused before execution), not primary at dispatch, out of disk space.
        462 | 10_107 | 13_435 | 13_436 | 14_031 => StorageError::Unavailable(detail),
        WRITE_CONFLICT => StorageError::Busy(detail),
        code if TRANSACTION_LOST.contains(&code) => StorageError::Busy(detail),
        VALIDATION => StorageError::Refused(detail),
        code if TOO_LARGE.contains(&code) => StorageError::Refused(detail),
        // Bad value or type mismatch, in an option, a command, or a stored document that was changed by others.
        2 | 14 => StorageError::Failing(detail),
        // Here and in the last case, the command may have been applied in part.
        code if TEMPORARY.contains(&code) => StorageError::Unknown(detail),
        // The server processed the command and failed. For example, a view has the name of a collection (166), an index
        // conflicts with another (85), or the collection is being dropped (215).
        _ => StorageError::Database(detail),
    }
}

/// Returns true if the server refused the whole command with one of these codes.
pub fn has_code(error: &Error, codes: &[i32]) -> bool {
    matches!(error.kind.as_ref(), ErrorKind::Command(command) if codes.contains(&command.code))
}

/// Returns the errors of single statements in a reply.
pub fn write_errors(reply: &Document) -> impl Iterator<Item = &Document> {
    reply.get_array("writeErrors").into_iter().flatten().filter_map(|error| error.as_document())
}

/// Fails if a statement of a command failed. The error starts with `context`.
pub fn check_statements(reply: &Document, context: &str) -> Result<()> {
    write_errors(reply).next().map_or(Ok(()), |error| Err(statement_error(error, context)))
}

/// Returns the error of a failed statement. It starts with `context`.
pub fn statement_error(error: &Document, context: &str) -> StorageError {
    StorageError::Failing(format!("{context}: {error}").chars().take(200).collect())
}

/// Returns the outcome of each document of an unordered insert of `count` documents.
pub fn insert_outcomes(result: Result<(), Error>, count: usize) -> Vec<WriteOutcome> {
    match result {
        Ok(()) => vec![WriteOutcome::Applied; count],
        Err(error) => match error.kind.as_ref() {
            ErrorKind::InsertMany(partial) => partial_insert_outcomes(partial, count),
            _ => vec![WriteOutcome::Failed(classify(&error)); count],
        },
    }
}

fn partial_insert_outcomes(partial: &InsertManyError, count: usize) -> Vec<WriteOutcome> {
    let others = match &partial.write_concern_error {
        Some(error) => unconfirmed_outcome(error.code, &error.message),
        None => WriteOutcome::Applied,
    };
    let mut outcomes = vec![others; count];
    for error in partial.write_errors.iter().flatten() {
        if let Some(outcome) = outcomes.get_mut(error.index) {
            *outcome = match error.code {
                DUPLICATE_KEY => WriteOutcome::Conflict,
                other => WriteOutcome::Failed(classify_document_error(other, &error.message)),
            };
        }
    }
    outcomes
}

/// The outcome of a write that the majority did not confirm.
fn unconfirmed_outcome(code: i32, message: &str) -> WriteOutcome {
    WriteOutcome::Failed(StorageError::Unknown(messages::write_concern_error(code, message)))
}

/// Returns the code and message of an error within a reply.
fn code_and_message(error: &Document) -> (i32, &str) {
    (error.get_i32("code").unwrap_or(0), error.get_str("errmsg").unwrap_or(""))
}

/// Returns the outcome of each statement of an unordered raw `update` command with `count` upserts by compare-and-set. The
/// driver returns `Ok` even if statements failed.
pub fn update_outcomes(result: Result<Document, Error>, count: usize) -> Vec<WriteOutcome> {
    let reply = match result {
        Ok(reply) => reply,
        Err(error) => return vec![WriteOutcome::Failed(classify(&error)); count],
    };
    let others = match reply.get_document("writeConcernError") {
        Ok(error) => {
            let (code, message) = code_and_message(error);
            unconfirmed_outcome(code, message)
        }
        Err(_) => WriteOutcome::Applied,
    };
    let mut outcomes = vec![others; count];
    // An upsert inserts a document only if the validator is missing: see `remove_torsos`.
    for upserted in reply.get_array("upserted").into_iter().flatten().filter_map(|u| u.as_document()) {
        if let Some(outcome) = statement(upserted).and_then(|i| outcomes.get_mut(i)) {
            *outcome = WriteOutcome::Conflict;
        }
    }
    for error in write_errors(&reply) {
        if let Some(outcome) = statement(error).and_then(|i| outcomes.get_mut(i)) {
            let (code, message) = code_and_message(error);
            *outcome = statement_outcome(code, message);
        }
    }
    outcomes
}

/// Classifies an error of one document among many. A change of the primary affects all of them; any other unknown code
/// affects this document alone.
fn classify_document_error(code: i32, message: &str) -> StorageError {
    let detail = messages::server_error(code, message);
    match classify_code(code, detail) {
        StorageError::Unknown(detail) | StorageError::Database(detail) if !PRIMARY_CHANGES.contains(&code) => {
            StorageError::Failing(detail)
        }
        class => class,
    }
}

/// Returns the index of the statement that a part of a reply refers to.
pub fn statement(part: &Document) -> Option<usize> {
    part.get_i32("index").ok().and_then(|i| usize::try_from(i).ok())
}

/// Returns the outcome of one failed upsert by compare-and-set.
///
/// If the rev differs, the upsert tries to insert. The insert fails with a duplicate key or, if the page was deleted, in
/// the validator. Both are conflicts: the caller reads, merges and writes again.
fn statement_outcome(code: i32, message: &str) -> WriteOutcome {
    match code {
        DUPLICATE_KEY | VALIDATION => WriteOutcome::Conflict,
        other => WriteOutcome::Failed(classify_document_error(other, message)),
    }
}

/// A rule for documents that the server enforces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rule {
    /// The collection's validator.
    Schema,
    /// The unique index of a metadata field, such as `meta.serial`.
    Unique(String),
}

impl Rule {
    /// Returns the rule that an error of one document names. A duplicate `_id` breaks no rule.
    fn from_error(code: i32, message: &str) -> Option<Self> {
        match code {
            VALIDATION => Some(Self::Schema),
            DUPLICATE_KEY if message.contains(UNIQUE_PREFIX) => {
                let (_, key) = message.split_once("dup key: { ")?;
                Some(Self::Unique(key.split_once(':')?.0.to_owned()))
            }
            _ => None,
        }
    }
}

/// Returns the indexes of the statements that a validator or a unique index stopped, with the rules. The document of an
/// upsert can be the stored one after the update, or the new one that it would have inserted. That of a plain update is the
/// one with the expected rev.
pub fn broken_rules(reply: &Document) -> Vec<(usize, Rule)> {
    let broken = |error: &Document| {
        let (code, message) = code_and_message(error);
        Some((statement(error)?, Rule::from_error(code, message)?))
    };
    write_errors(reply).filter_map(broken).collect()
}

/// Returns the rule that the only document of an insert breaks.
pub fn rule_of_insert(result: &Result<(), Error>) -> Option<Rule> {
    let Err(error) = result else { return None };
    let ErrorKind::InsertMany(partial) = error.kind.as_ref() else { return None };
    let error = partial.write_errors.iter().flatten().next()?;
    Rule::from_error(error.code, &error.message)
}

/// Returns the refusal of a document that breaks a rule.
pub fn refusal(rule: &Rule) -> StorageError {
    let (code, message) = match rule {
        Rule::Schema => (VALIDATION, "Document failed validation".to_owned()),
        Rule::Unique(field) => (DUPLICATE_KEY, format!("another sensor has the same {field}")),
    };
    StorageError::Refused(messages::server_error(code, &message))
}

/// Returns the outcome of `count` plain updates by compare-and-set in a transaction. They succeed only if all of them
/// matched.
pub fn exact_updates_outcome(reply: &Document, count: usize) -> WriteOutcome {
    if let Some(error) = write_errors(reply).next() {
        let (code, message) = code_and_message(error);
        return WriteOutcome::Failed(classify_document_error(code, message));
    }
    let matched = reply.get_i32("n").ok().and_then(|n| usize::try_from(n).ok());
    if matched == Some(count) { WriteOutcome::Applied } else { WriteOutcome::Conflict }
}

/// Returns true if a single insert failed because its `_id` already exists.
pub fn is_duplicate_key(error: &Error) -> bool {
    matches!(&*error.kind, ErrorKind::Write(WriteFailure::WriteError(fault)) if fault.code == DUPLICATE_KEY)
}

/// Returns the outcome of a failed transaction. Nothing of it was applied, unless the outcome of its commit is unknown.
pub fn transaction_outcome(error: &Error) -> WriteOutcome {
    if error.contains_label(mongodb::error::UNKNOWN_TRANSACTION_COMMIT_RESULT) {
        return WriteOutcome::Failed(classify(error));
    }
    let cause = match error.kind.as_ref() {
        ErrorKind::Command(command) => Some((command.code, &command.message)),
        ErrorKind::Write(WriteFailure::WriteError(write)) => Some((write.code, &write.message)),
        ErrorKind::InsertMany(partial) => partial.write_errors.iter().flatten().map(|e| (e.code, &e.message)).next(),
        _ => None,
    };
    match cause {
        Some((DUPLICATE_KEY, _)) => return WriteOutcome::Conflict,
        Some((code, _)) if PRIMARY_CHANGES.contains(&code) => {}
        Some((code, message)) if error.contains_label(mongodb::error::TRANSIENT_TRANSACTION_ERROR) => {
            return WriteOutcome::Failed(StorageError::Busy(messages::server_error(code, message)));
        }
        Some((code, message)) => return WriteOutcome::Failed(classify_document_error(code, message)),
        None => {}
    }
    // If the class is unknown, the connection or the primary was lost before the commit was sent.
    WriteOutcome::Failed(match classify(error) {
        StorageError::Unknown(detail) if error.contains_label(mongodb::error::TRANSIENT_TRANSACTION_ERROR) => {
            StorageError::Unavailable(detail)
        }
        other => other,
    })
}

#[cfg(test)]
mod tests;
