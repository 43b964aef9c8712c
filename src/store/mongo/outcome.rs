//! What a MongoDB error means for a write: was it applied, may it be sent again? By code and
//! kind, never by message (server `error_codes.yml`; driver `error.rs`).

use bson::Document;
use mongodb::error::{Error, ErrorKind, InsertManyError, WriteFailure};

use crate::bucket::StorageError;
use crate::bucket::store::Written;

/// Duplicate key: the document exists already, or an upsert's `rev` did not match.
const DUPLICATE_KEY: i32 = 11_000;
/// The validator said no.
const VALIDATION: i32 = 121;
/// Two transactions wrote one document.
const WRITE_CONFLICT: i32 = 112;

/// The class of a driver error.
pub fn classify(error: &Error) -> StorageError {
    let detail = error.to_string();
    if error.contains_label(mongodb::error::UNKNOWN_TRANSACTION_COMMIT_RESULT) {
        return StorageError::Unknown { detail };
    }
    match error.kind.as_ref() {
        ErrorKind::ServerSelection { .. } | ErrorKind::DnsResolve { .. } => StorageError::Unavailable { detail },
        ErrorKind::Authentication { .. } => StorageError::Denied { detail },
        ErrorKind::Command(command) => classify_code(command.code, detail),
        ErrorKind::Write(WriteFailure::WriteError(write)) => classify_code(write.code, detail),
        ErrorKind::InvalidArgument { .. } | ErrorKind::Bson(_) | ErrorKind::BsonSerialization(_) => {
            StorageError::Refused { detail }
        }
        // Cut connections, cleared pools, unconfirmed write concerns and whatever is not known
        // here: it may have been applied, and resending is safe.
        _ => StorageError::Unknown { detail },
    }
}

/// The class of a server error code.
pub fn classify_code(code: i32, detail: String) -> StorageError {
    match code {
        // Unauthorized, authentication failed, Atlas' own refusal.
        13 | 18 | 8000 => StorageError::Denied { detail },
        // Overload: refused before anything ran. Not primary at dispatch. No room on the disk.
        462 | 10_107 | 13_435 | 13_436 | 14_031 => StorageError::Unavailable { detail },
        // Too large, validator, type clash, bad value.
        10_334 | 17_419 | VALIDATION | 14 | 2 => StorageError::Refused { detail },
        // 189, 11600, 11602, 91, 50, 64, 100 and the rest: a prefix of the command may have run.
        _ => StorageError::Unknown { detail },
    }
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
    let rest = unconfirmed.map_or(Written::Yes, |e| {
        Written::Failed(StorageError::Unknown { detail: format!("write concern: {} {}", e.code, e.message) })
    });
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

/// Per-statement outcomes of an unordered raw `update` command of `count` upserts by
/// compare-and-set. The driver answers `Ok` also when statements failed.
pub fn of_updates(result: Result<Document, Error>, count: usize) -> Vec<Written> {
    let reply = match result {
        Ok(reply) => reply,
        Err(error) => return vec![Written::Failed(classify(&error)); count],
    };
    let rest = match reply.get_document("writeConcernError") {
        Ok(error) => Written::Failed(StorageError::Unknown { detail: format!("write concern: {error}") }),
        Err(_) => Written::Yes,
    };
    let mut outcomes = vec![rest; count];
    // An insert where only a validator that is gone would have stopped it: see `remove_torsos`.
    for upserted in reply.get_array("upserted").into_iter().flatten().filter_map(|u| u.as_document()) {
        if let Some(outcome) = statement(upserted).and_then(|i| outcomes.get_mut(i)) {
            *outcome = Written::Conflict;
        }
    }
    for error in reply.get_array("writeErrors").into_iter().flatten().filter_map(|e| e.as_document()) {
        if let Some(outcome) = statement(error).and_then(|i| outcomes.get_mut(i)) {
            *outcome = of_statement(error.get_i32("code").unwrap_or(0), error.get_str("errmsg").unwrap_or(""));
        }
    }
    outcomes
}

/// The class of an error that one document of many met. Where the primary goes away, all of them
/// do; anything else not known here is about this document alone.
fn of_one(code: i32, message: &str) -> StorageError {
    const PRIMARY_CHANGES: [i32; 9] = [50, 64, 91, 189, 10_107, 11_600, 11_602, 13_435, 13_436];
    let detail = format!("{code} {message}");
    match classify_code(code, detail) {
        StorageError::Unknown { detail } if !PRIMARY_CHANGES.contains(&code) => StorageError::Failing { detail },
        class => class,
    }
}

/// Which statement of a command a part of its reply is about.
pub fn statement(part: &Document) -> Option<usize> {
    part.get_i32("index").ok().and_then(|i| usize::try_from(i).ok())
}

/// An update's own error. A compare-and-set that finds another rev tries to insert, which fails
/// with a duplicate key, or with the validator where the page was deleted: read again.
pub fn of_statement(code: i32, message: &str) -> Written {
    match code {
        DUPLICATE_KEY | VALIDATION | WRITE_CONFLICT => Written::Conflict,
        other => Written::Failed(of_one(other, message)),
    }
}

/// Whether a single insert found its `_id` taken.
pub fn is_duplicate_key(error: &Error) -> bool {
    matches!(&*error.kind, ErrorKind::Write(WriteFailure::WriteError(fault)) if fault.code == DUPLICATE_KEY)
}

/// Whether an error within a transaction only means that another writer was there first, and that
/// nothing of the transaction is left.
pub fn is_transaction_conflict(error: &Error) -> bool {
    if error.contains_label(mongodb::error::TRANSIENT_TRANSACTION_ERROR) {
        return true;
    }
    match error.kind.as_ref() {
        ErrorKind::Command(command) => [DUPLICATE_KEY, WRITE_CONFLICT].contains(&command.code),
        ErrorKind::Write(WriteFailure::WriteError(write)) => [DUPLICATE_KEY, WRITE_CONFLICT].contains(&write.code),
        ErrorKind::InsertMany(partial) => {
            partial.write_errors.iter().flatten().any(|e| [DUPLICATE_KEY, WRITE_CONFLICT].contains(&e.code))
        }
        _ => false,
    }
}
