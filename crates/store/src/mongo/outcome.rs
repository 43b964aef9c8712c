//! Classifies MongoDB errors: was the write applied, may it be sent again? By code and kind, never by message (server
//! `error_codes.yml`; driver `error.rs`).

use bson::Document;
use mongodb::error::{Error, ErrorKind, InsertManyError, WriteFailure};

use super::told;
use crate::bucket::store::Written;
use crate::bucket::{Result, StorageError, Unusable};

/// Duplicate key: the document exists already, or an upsert's `rev` did not match.
const DUPLICATE_KEY: i32 = 11_000;
/// The collection's validator rejected the document.
const VALIDATION: i32 = 121;
/// Two transactions wrote one document.
const WRITE_CONFLICT: i32 = 112;
/// Lock timeout, snapshot unavailable or too old, no such transaction: what happens to a transaction that runs beside
/// others.
const TRANSACTION_LOST: [i32; 4] = [24, 239, 246, 251];
/// A document, or the result of an update, over 16 MiB.
const TOO_LARGE: [i32; 3] = [10_334, 17_419, 17_420];
/// The primary changes, or the server stops the command: every part of the command fails alike.
const PRIMARY_CHANGES: [i32; 9] = [50, 64, 91, 189, 10_107, 11_600, 11_602, 13_435, 13_436];

/// Classifies a driver error.
pub fn classify(error: &Error) -> StorageError {
    tracing::debug!(%error, "the MongoDB driver reported an error");
    let detail = told::by_driver(error);
    if error.contains_label(mongodb::error::UNKNOWN_TRANSACTION_COMMIT_RESULT) {
        return StorageError::Unknown(detail);
    }
    // Elections, lost connections, transactions in conflict: with these labels the error is temporary, whatever its
    // code.
    let passes = [mongodb::error::RETRYABLE_WRITE_ERROR, mongodb::error::TRANSIENT_TRANSACTION_ERROR];
    match error.kind.as_ref() {
        ErrorKind::Command(command) if passes.into_iter().any(|label| error.contains_label(label)) => {
            match classify_code(command.code, detail) {
                StorageError::Database(detail) => StorageError::Unknown(detail),
                class => class,
            }
        }
        ErrorKind::ServerSelection { .. } | ErrorKind::DnsResolve { .. } => StorageError::Unavailable(detail),
        ErrorKind::Authentication { .. } => unusable(Unusable::WrongCredentials, detail),
        ErrorKind::Command(command) => classify_code(command.code, detail),
        ErrorKind::Write(WriteFailure::WriteError(write)) => classify_code(write.code, detail),
        // The request itself is malformed, which says nothing about a document.
        ErrorKind::InvalidArgument { .. } | ErrorKind::Bson(_) | ErrorKind::BsonSerialization(_) => {
            StorageError::Failing(detail)
        }
        // Lost connections, cleared pools, unconfirmed write concerns and unknown kinds: the write may have been
        // applied, and sending it again is safe.
        _ => StorageError::Unknown(detail),
    }
}

fn unusable(cause: Unusable, detail: String) -> StorageError {
    StorageError::Unusable { cause, detail }
}

/// Codes for a server that changes state, loses a connection or is too slow. They are not specific to one database.
const PASSING: [i32; 29] = [
    // Host unreachable or not found, network timeout, lock timeout, time limit exceeded, shutting down.
    6, 7, 24, 50, 63, 64, 89, 91, 100, 112, 133, 149, 150, 189, 202, 234, 246, 251, 262, 290, 317, 358, 384,
    // Interrupted by a change of the primary, no primary, socket errors.
    9001, 11_600, 11_601, 11_602, 13_388, 13_436,
];

/// Classifies a server error code.
pub fn classify_code(code: i32, detail: String) -> StorageError {
    match code {
        // Unauthorized, and Atlas' own refusal.
        13 | 8000 => unusable(Unusable::NotAuthorised, detail),
        // Authentication failed.
        18 => unusable(Unusable::WrongCredentials, detail),
        // Overload (refused before execution), not primary at dispatch, out of disk space.
        462 | 10_107 | 13_435 | 13_436 | 14_031 => StorageError::Unavailable(detail),
        WRITE_CONFLICT => StorageError::Busy(detail),
        code if TRANSACTION_LOST.contains(&code) => StorageError::Busy(detail),
        VALIDATION => StorageError::Refused(detail),
        code if TOO_LARGE.contains(&code) => StorageError::Refused(detail),
        // Bad value or type mismatch: in an option, a command, or a stored document that was changed from outside.
        2 | 14 => StorageError::Failing(detail),
        // Part of the command may have run, here and in the last case.
        code if PASSING.contains(&code) => StorageError::Unknown(detail),
        // The server processed the command: for example a view where a collection should be (166), an index that
        // conflicts with another (85), a collection being dropped (215).
        _ => StorageError::Database(detail),
    }
}

/// Whether the server refused a whole command with one of these codes.
pub fn has_code(error: &Error, codes: &[i32]) -> bool {
    matches!(error.kind.as_ref(), ErrorKind::Command(command) if codes.contains(&command.code))
}

/// The errors of single statements in a reply.
pub fn write_errors(reply: &Document) -> impl Iterator<Item = &Document> {
    reply.get_array("writeErrors").into_iter().flatten().filter_map(|error| error.as_document())
}

/// Fails, and says what was not done, if a statement of a command failed.
pub fn checked(reply: &Document, what: &str) -> Result<()> {
    let Some(error) = write_errors(reply).next() else { return Ok(()) };
    Err(StorageError::Failing(format!("{what}: {error}").chars().take(200).collect()))
}

/// Per-document outcomes of an unordered insert of `count` documents.
pub fn of_insert(result: Result<(), Error>, count: usize) -> Vec<Written> {
    match result {
        Ok(()) => vec![Written::Yes; count],
        Err(error) => match error.kind.as_ref() {
            ErrorKind::InsertMany(partial) => of_partial_insert(partial, count),
            _ => vec![Written::Failed(classify(&error)); count],
        },
    }
}

fn of_partial_insert(partial: &InsertManyError, count: usize) -> Vec<Written> {
    let unconfirmed = partial.write_concern_error.as_ref();
    let rest = unconfirmed
        .map_or(Written::Yes, |e| Written::Failed(StorageError::Unknown(told::write_concern(e.code, &e.message))));
    let mut outcomes = vec![rest; count];
    for error in partial.write_errors.iter().flatten() {
        if let Some(outcome) = outcomes.get_mut(error.index) {
            *outcome = match error.code {
                DUPLICATE_KEY => Written::Conflict,
                other => Written::Failed(of_one(other, &error.message)),
            };
        }
    }
    outcomes
}

/// Per-statement outcomes of an unordered raw `update` command with `count` upserts by compare-and-set. The driver
/// returns `Ok` even if statements failed.
pub fn of_updates(result: Result<Document, Error>, count: usize) -> Vec<Written> {
    let reply = match result {
        Ok(reply) => reply,
        Err(error) => return vec![Written::Failed(classify(&error)); count],
    };
    let rest = match reply.get_document("writeConcernError") {
        Ok(error) => {
            let (code, message) = (error.get_i32("code").unwrap_or(0), error.get_str("errmsg").unwrap_or(""));
            Written::Failed(StorageError::Unknown(told::write_concern(code, message)))
        }
        Err(_) => Written::Yes,
    };
    let mut outcomes = vec![rest; count];
    // The upsert inserted a document, which only happens if the validator is missing: see `remove_torsos`.
    for upserted in reply.get_array("upserted").into_iter().flatten().filter_map(|u| u.as_document()) {
        if let Some(outcome) = statement(upserted).and_then(|i| outcomes.get_mut(i)) {
            *outcome = Written::Conflict;
        }
    }
    for error in write_errors(&reply) {
        if let Some(outcome) = statement(error).and_then(|i| outcomes.get_mut(i)) {
            *outcome = of_statement(error.get_i32("code").unwrap_or(0), error.get_str("errmsg").unwrap_or(""));
        }
    }
    outcomes
}

/// Classifies an error of one document among many. A change of the primary hits all of them; any other unknown code
/// concerns this document alone.
fn of_one(code: i32, message: &str) -> StorageError {
    let detail = told::by_server(code, message);
    match classify_code(code, detail) {
        StorageError::Unknown(detail) | StorageError::Database(detail) if !PRIMARY_CHANGES.contains(&code) => {
            StorageError::Failing(detail)
        }
        class => class,
    }
}

/// The index of the statement that a part of a reply refers to.
pub fn statement(part: &Document) -> Option<usize> {
    part.get_i32("index").ok().and_then(|i| usize::try_from(i).ok())
}

/// Outcome of one failed upsert by compare-and-set. If the rev differs, the upsert tries to insert, which fails with a
/// duplicate key, or with the validator if the page was deleted: read, merge and write again.
fn of_statement(code: i32, message: &str) -> Written {
    match code {
        DUPLICATE_KEY | VALIDATION => Written::Conflict,
        other => Written::Failed(of_one(other, message)),
    }
}

/// Indexes of the statements that the validator stopped. For an upsert it is unknown which document was invalid: the
/// new one it would have inserted, or the updated one.
pub fn stopped_by_validator(reply: &Document) -> Vec<usize> {
    proven_invalid(reply).into_iter().map(|(statement, _)| statement).collect()
}

/// Plain updates that the validator stopped, and its message. A plain update inserts nothing, so the validator checked
/// the very document that has the expected rev.
pub fn proven_invalid(reply: &Document) -> Vec<(usize, StorageError)> {
    let errors = write_errors(reply).filter(|error| error.get_i32("code").is_ok_and(|code| code == VALIDATION));
    let told = |error: &Document| {
        let detail = told::by_server(VALIDATION, error.get_str("errmsg").unwrap_or(""));
        Some((statement(error)?, StorageError::Refused(detail)))
    };
    errors.filter_map(told).collect()
}

/// Outcome of `count` plain updates by compare-and-set in a transaction: success only if all of them matched.
pub fn of_exact_updates(reply: &Document, count: usize) -> Written {
    if let Some(error) = write_errors(reply).next() {
        return Written::Failed(of_one(error.get_i32("code").unwrap_or(0), error.get_str("errmsg").unwrap_or("")));
    }
    let hits = reply.get_i32("n").ok().and_then(|n| usize::try_from(n).ok());
    if hits == Some(count) { Written::Yes } else { Written::Conflict }
}

/// Whether a single insert failed because its `_id` exists.
pub fn is_duplicate_key(error: &Error) -> bool {
    matches!(&*error.kind, ErrorKind::Write(WriteFailure::WriteError(fault)) if fault.code == DUPLICATE_KEY)
}

/// Outcome of a transaction that failed. Nothing of it remains, unless it is unknown whether it was committed.
pub fn of_transaction(error: &Error) -> Written {
    if error.contains_label(mongodb::error::UNKNOWN_TRANSACTION_COMMIT_RESULT) {
        return Written::Failed(classify(error));
    }
    let said = match error.kind.as_ref() {
        ErrorKind::Command(command) => Some((command.code, &command.message)),
        ErrorKind::Write(WriteFailure::WriteError(write)) => Some((write.code, &write.message)),
        ErrorKind::InsertMany(partial) => partial.write_errors.iter().flatten().map(|e| (e.code, &e.message)).next(),
        _ => None,
    };
    match said {
        Some((DUPLICATE_KEY, _)) => return Written::Conflict,
        Some((code, _)) if PRIMARY_CHANGES.contains(&code) => {}
        Some((code, message)) if error.contains_label(mongodb::error::TRANSIENT_TRANSACTION_ERROR) => {
            return Written::Failed(StorageError::Busy(told::by_server(code, message)));
        }
        Some((code, message)) => return Written::Failed(of_one(code, message)),
        None => {}
    }
    // The connection or the primary was lost before the commit was sent.
    Written::Failed(match classify(error) {
        StorageError::Unknown(detail) if error.contains_label(mongodb::error::TRANSIENT_TRANSACTION_ERROR) => {
            StorageError::Unavailable(detail)
        }
        other => other,
    })
}

#[cfg(test)]
mod tests;
